//! Acceptance: the rules that a message must satisfy whatever the state of the broker.

use std::borrow::Cow;
use std::fmt::Display;

use crate::PROTOCOL_VERSION;
use crate::canonical::{Fields, capacity, write_open};
use crate::envelope::{Address, Carried, Decoded, Irregular, Parts};
use crate::envelope_hash::EnvelopeHash;
use crate::hex;
use crate::ids::MessageId;
use crate::json;
use crate::limits::{
    DECODE_NESTING_MAX, ENVELOPE_BYTES_MAX, NESTING_MAX, SOURCE_BYTES_MAX, TS_BYTES_MAX,
};
use crate::name::{NameError, PeerName};
use crate::stage::{Refusal, RefusalCode};
use crate::text::quote;

/// The `from` of a carried envelope, which no character before it needs an escape for.
#[must_use]
pub fn sender_of(carried: &str) -> &str {
    carried.split('"').nth(11).unwrap_or_default()
}

/// The `to` of a carried envelope, which no character before it needs an escape for.
#[must_use]
pub fn recipient_of(carried: &str) -> &str {
    // The seventh member but one of each pair: four names and three values stand before it.
    carried.split('"').nth(15).unwrap_or_default()
}

/// The body of a carried envelope. No string member can hold the text that begins it, because a
/// quote inside a string is escaped; the `hmac` that ends it is hex.
#[must_use]
pub fn body_of(carried: &str) -> &str {
    let rest = carried
        .split_once(r#"","body":"#)
        .map_or("", |(_, rest)| rest);
    rest.rsplit_once(r#","hmac":""#)
        .map_or("", |(body, _)| body)
}

impl Decoded {
    /// Checks every rule of acceptance that needs no state and gives the form to carry.
    ///
    /// # Errors
    ///
    /// A refusal that names the member, what was found and the remedy.
    pub fn carry(&self) -> Result<Carried, Refusal> {
        let e = &self.envelope;
        let depth = match json::value(if e.body.is_empty() { b"null" } else { &e.body }) {
            Ok(body) => usize::from(body.depth),
            Err(error) if error.deep => {
                return Err(too_deep(&format!("over {DECODE_NESTING_MAX}")));
            }
            Err(error) => return Err(invalid(format!("body is not JSON (at byte {})", error.at))),
        };
        let strings = [
            &e.protocol_version,
            &e.id,
            &e.from,
            &e.to,
            &e.ts,
            &e.source,
            &e.kind,
            &e.hmac,
        ];
        let strings = strings.map(|s| Cow::Borrowed(s.as_str()));
        Parts {
            strings,
            body: &e.body,
            depth,
            irregular: self.irregular,
        }
        .carry()
    }
}

fn too_deep(depth: &impl std::fmt::Display) -> Refusal {
    invalid(format!(
        "body nests {depth} deep; at most {NESTING_MAX} arrays and objects may be open: flatten it"
    ))
}

impl Parts<'_> {
    /// See [`Decoded::carry`]. The body must be valid JSON.
    pub(crate) fn carry(&self) -> Result<Carried, Refusal> {
        let [version, id, from, to, ts, source, kind, hmac] = self.strings.each_ref();
        if version != PROTOCOL_VERSION {
            let found = quote(version);
            return Err(invalid(format!(
                "protocol_version must be \"v1\", got {found}"
            )));
        }
        regular(self.irregular)?;
        let id = MessageId::parse(id)
            .map_err(|error| invalid(format!("invalid id {}: {error}", quote(id))))?;
        let from = PeerName::parse(from)
            .map_err(|error| invalid(format!("invalid sender {}: {error}", quote(from))))?;
        let to = address(kind, to)?;
        stamp(ts, source)?;
        if hex::decode(hmac).is_none() {
            let found = quote(hmac);
            return Err(invalid(format!(
                "hmac must be 64 hex digits, got {found}: sign the message"
            )));
        }
        if self.depth > NESTING_MAX {
            return Err(too_deep(&self.depth));
        }
        let text = self.text(hmac)?;
        Ok(Carried {
            id,
            from,
            to,
            hash: EnvelopeHash::of(text.as_bytes()),
            text: text.into(),
            within_ms: None,
        })
    }

    /// The canonical form with the `hmac`.
    fn text(&self, hmac: &str) -> Result<String, Refusal> {
        let [version, id, from, to, ts, source, kind, _] =
            self.strings.each_ref().map(|s| s.as_bytes());
        let strings = [version, id, from, to, ts, source, kind];
        let fields = Fields {
            strings,
            body: self.body,
        };
        let mut text = Vec::with_capacity(capacity(&fields));
        write_open(&fields, &mut text);
        text.extend_from_slice(br#","hmac":""#);
        text.extend_from_slice(hmac.as_bytes());
        text.extend_from_slice(br#""}"#);
        if text.len() > ENVELOPE_BYTES_MAX {
            return Err(RefusalCode::TooLarge.because(format!(
                "message has {} bytes as it is carried, at most {ENVELOPE_BYTES_MAX} fit a frame \
                 (`<`, `>` and `&` take 6 bytes each): shorten the body or split it",
                text.len()
            )));
        }
        String::from_utf8(text).map_err(|_| not_utf8())
    }
}

/// Refuses spellings of which two readers could see two different envelopes.
fn regular(irregular: Option<Irregular>) -> Result<(), Refusal> {
    match irregular {
        None => Ok(()),
        Some(Irregular::DuplicateMember) => Err(invalid(
            "a member of the envelope appears twice: send each of them once",
        )),
        Some(Irregular::MemberCase) => Err(invalid(
            "a member of the envelope has its name in another case: write the names in lower case",
        )),
        Some(Irregular::InvalidUtf8) => Err(not_utf8()),
    }
}

fn address(kind: &str, to: &str) -> Result<Address, Refusal> {
    let wrong = |why: &dyn Display| invalid(format!("invalid recipient {}: {why}", quote(to)));
    match (kind, to) {
        ("broadcast", "*") => Ok(Address::All),
        ("broadcast", _) => Err(invalid(format!(
            "kind \"broadcast\" goes to \"*\", got to {}: use kind \"msg\" for one peer",
            quote(to)
        ))),
        ("msg", "*") => Err(invalid(
            "kind \"msg\" goes to one peer, got to \"*\": use kind \"broadcast\" for all",
        )),
        ("msg", _) if to.starts_with('#') => Address::group(to).map_err(|error| wrong(&error)),
        ("msg", _) => PeerName::parse(to)
            .map(Address::Peer)
            .map_err(|error| match error {
                NameError::Reserved => wrong(&"the name is reserved, so no peer can have it"),
                error => wrong(&error),
            }),
        _ => Err(invalid(format!(
            "kind must be \"msg\" or \"broadcast\", got {}",
            quote(kind)
        ))),
    }
}

fn stamp(ts: &str, source: &str) -> Result<(), Refusal> {
    if ts.len() > TS_BYTES_MAX || !ts.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return Err(invalid(format!(
            "ts must be at most {TS_BYTES_MAX} printable ASCII characters, got {}",
            quote(ts)
        )));
    }
    let ok = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if !(1..=SOURCE_BYTES_MAX).contains(&source.len()) || !source.bytes().all(ok) {
        return Err(invalid(format!(
            "source must be 1 to {SOURCE_BYTES_MAX} of A-Z a-z 0-9 . _ -, got {}",
            quote(source)
        )));
    }
    Ok(())
}

fn not_utf8() -> Refusal {
    invalid("the envelope is not valid UTF-8, or holds half of a surrogate pair")
}

pub(crate) fn invalid(reason: impl Into<String>) -> Refusal {
    RefusalCode::Invalid.because(reason)
}
