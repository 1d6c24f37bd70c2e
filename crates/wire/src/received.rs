//! What a broker sends: writing it at the broker, reading it at the client.

use std::sync::Arc;

use crate::PROTOCOL_VERSION;
use crate::canonical::write_compact;
use crate::client::{claim, how, part, window, write_how, write_window};
use crate::envelope::Envelope;
use crate::frame::{BrokerFrame, Delivery, NameAnswer, PeerEntry, PeersFrame, Presence, Received};
use crate::ids::{DeliveryKey, MessageId};
use crate::json::{self, Raw, Type};
use crate::limits::{
    FRAME_BYTES_MAX, HOW_BYTES_MAX, NESTING_MAX, PEER_ENTRY_BYTES_MAX, PRESENCE_BYTES_MAX,
    REASON_BYTES_MAX,
};
use crate::members::{Member, Members};
use crate::name::PeerName;
use crate::receipt::{Receipt, Refusal, RefusalCode, State};
use crate::text::cut;
use crate::writer::Writer;

/// What the beginning and the end of a frame may take.
const FRAME_SLACK_BYTES: usize = 1_024;

impl BrokerFrame {
    /// Packs statements, in order, into as few frames as surely fit
    /// [`crate::limits::FRAME_BYTES_MAX`].
    pub fn receipts(receipts: Vec<Receipt>) -> impl Iterator<Item = Self> {
        let mut rest = receipts.into_iter().peekable();
        std::iter::from_fn(move || {
            let mut room = FRAME_BYTES_MAX - FRAME_SLACK_BYTES;
            let mut chunk = Vec::new();
            while let Some(receipt) = rest.next_if(|next| bytes_max(next) <= room) {
                room -= bytes_max(&receipt);
                chunk.push(receipt);
            }
            (!chunk.is_empty()).then_some(Self::Receipts(chunk))
        })
    }

    /// The frame's text; a deliver frame shares its buffer. Never longer than a frame may be when
    /// `Receipts` was made by [`BrokerFrame::receipts`] and `Peers` has at most
    /// [`crate::limits::PEERS_ENTRIES_MAX`] entries; names that would not fit are left out.
    #[must_use]
    pub fn encode(&self) -> Arc<str> {
        match self {
            Self::Peers(peers) => write_peers(peers).into(),
            Self::Deliver(deliver) => Arc::clone(deliver.text()),
            Self::Receipts(receipts) => {
                let mut writer = Writer::frame("receipts");
                writer.name("receipts").begin(b'[');
                for receipt in receipts {
                    write_receipt(receipt, &mut writer);
                }
                writer.end(b']');
                writer.finish().into()
            }
            Self::Renamed(answer) => write_name_answer("renamed", answer).into(),
            Self::Retired(answer) => write_name_answer("retired", answer).into(),
        }
    }
}

impl Received {
    /// Reads a text message from a broker, v1 or ours. Never fails.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let Ok((members, Type::Object)) = Members::scan(bytes) else {
            return Self::Unknown;
        };
        if members.string(Member::ProtocolVersion).as_deref() != Some(PROTOCOL_VERSION) {
            return Self::Unknown;
        }
        let received = match members.frame_type().as_deref() {
            Some("peers") => peers(&members).map(Self::Peers),
            Some("deliver") => delivery(&members).map(Self::Deliver),
            Some("receipts") => receipts(&members).map(Self::Receipts),
            Some("renamed") => name_answer(&members).map(Self::Renamed),
            Some("retired") => name_answer(&members).map(Self::Retired),
            _ => None,
        };
        received.unwrap_or(Self::Unknown)
    }
}

impl Presence {
    /// Takes the text of a JSON object. `None` when it is no object, not UTF-8, nested deeper than
    /// a body may be, or over the limit without its white space.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::of(&json::value(text.as_bytes()).ok()?)
    }

    pub(crate) fn of(raw: &Raw<'_>) -> Option<Self> {
        if raw.kind != Type::Object || usize::from(raw.depth) > NESTING_MAX {
            return None;
        }
        let mut text = Vec::new();
        write_compact(raw.text, &mut text);
        let text = String::from_utf8(text).ok()?;
        (text.len() <= PRESENCE_BYTES_MAX).then(|| Self(text.into()))
    }

    /// The JSON text: no white space outside strings, `<` `>` `&` escaped.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn write_peers(frame: &PeersFrame) -> String {
    let entries = frame.peers.as_ref().map_or(0, Vec::len);
    let room = FRAME_BYTES_MAX - FRAME_SLACK_BYTES;
    let room = room.saturating_sub(entries * PEER_ENTRY_BYTES_MAX);
    let mut writer = Writer::frame("peers");
    writer.name("names").begin(b'[');
    for name in &frame.names {
        // A list without its end beats a frame that no client may read.
        if writer.len() + 6 * name.len() > room {
            break;
        }
        writer.element(name);
    }
    writer.end(b']');
    if let Some(ext) = frame.ext {
        writer.number("ext", ext.into());
    }
    if let Some(window) = frame.window {
        write_window(window, &mut writer);
    }
    if let Some(peers) = &frame.peers {
        writer.name("peers").begin(b'[');
        for peer in peers {
            writer.begin(b'{').string("name", &peer.name);
            writer.raw("online", if peer.online { "true" } else { "false" });
            if let Some(unacked) = peer.unacked {
                writer.number("unacked", unacked);
            }
            writer.number("away_s", peer.away_s);
            if let Some(presence) = &peer.presence {
                writer.raw("presence", presence.as_str());
            }
            writer.end(b'}');
        }
        writer.end(b']');
    }
    if frame.omitted > 0 {
        writer.number("omitted", frame.omitted.into());
    }
    writer.finish()
}

fn peers(members: &Members<'_>) -> Option<PeersFrame> {
    let list = |name| members.get(name).map(|raw| raw.elements());
    let name = |raw: &Raw<'_>| Some(raw.string()?.text.into_owned());
    let names = list(Member::Names).unwrap_or(Some(Vec::new()))?;
    let peers = match list(Member::Peers) {
        Some(entries) => Some(entries?.iter().filter_map(peer).collect()),
        None => None,
    };
    Some(PeersFrame {
        names: names.iter().map(name).collect::<Option<_>>()?,
        ext: members
            .get(Member::Ext)
            .and_then(|_| members.number(Member::Ext, 0)),
        window: window(members).flatten(),
        peers,
        omitted: members.number(Member::Omitted, 0).unwrap_or(0),
    })
}

/// An entry that cannot be read is left out.
fn peer(raw: &Raw<'_>) -> Option<PeerEntry> {
    let members = Members::of(raw)?;
    let number = |name| members.get(name).and_then(|raw| raw.unsigned());
    Some(PeerEntry {
        name: members.string(Member::Name)?.into_owned(),
        online: members.flag(Member::Online)?,
        unacked: number(Member::Unacked),
        away_s: number(Member::AwayS).unwrap_or(0),
        presence: members
            .get(Member::Presence)
            .and_then(|raw| Presence::of(&raw)),
    })
}

fn delivery(members: &Members<'_>) -> Option<Delivery> {
    Some(Delivery {
        key: DeliveryKey::parse(&members.string(Member::DeliveryKey)?)?,
        envelope: Envelope::decode(members.get(Member::Envelope)?.text).ok()?,
        again: members.flag(Member::Again).unwrap_or(false),
        alias: members
            .string(Member::For)
            .and_then(|name| PeerName::parse(&name).ok()),
    })
}

fn name_answer(members: &Members<'_>) -> Option<NameAnswer> {
    Some(NameAnswer {
        name: members.string(Member::Name)?.into_owned(),
        refused: members
            .string(Member::Reason)
            .map(|reason| cut(&reason, REASON_BYTES_MAX).into_owned()),
    })
}

fn write_name_answer(kind: &str, answer: &NameAnswer) -> String {
    let mut writer = Writer::frame(kind);
    writer.string("name", &answer.name);
    if let Some(reason) = &answer.refused {
        writer.string("reason", &cut(reason, REASON_BYTES_MAX));
    }
    writer.finish()
}

/// Statements that cannot be read, such as those of a later version, are left out.
fn receipts(members: &Members<'_>) -> Option<Vec<Receipt>> {
    let receipts = members.get(Member::Receipts)?.elements()?;
    Some(receipts.iter().filter_map(receipt).collect())
}

fn receipt(raw: &Raw<'_>) -> Option<Receipt> {
    let members = Members::of(raw)?;
    let to = || Some(members.string(Member::To)?.into_owned());
    let reason = || {
        let reason = members.string(Member::Reason).unwrap_or_default();
        cut(&reason, REASON_BYTES_MAX).into_owned()
    };
    let state = match &*members.string(Member::State)? {
        "accepted" => State::Accepted {
            recipients: members.number(Member::Recipients, 0)?,
            online: members.number(Member::Online, 0)?,
            duplicate: members.flag(Member::Duplicate)?,
        },
        "refused" => {
            let code = RefusalCode::parse(&members.string(Member::Code).unwrap_or_default());
            State::Refused(Refusal {
                code,
                reason: reason(),
            })
        }
        "delivered" => State::Delivered { to: to()? },
        "pushed" => State::Pushed {
            to: to()?,
            path: part(&members, Member::Path)?,
        },
        "presented" => State::Presented {
            to: to()?,
            path: part(&members, Member::Path)?,
        },
        "held" => State::Held {
            to: to()?,
            reason: reason(),
        },
        "settled" => State::Settled {
            recipients: members.number(Member::Recipients, 0)?,
        },
        "acked" => State::Acked {
            to: to()?,
            how: how(&members),
        },
        "expired" => State::Expired {
            to: to()?,
            reason: reason(),
        },
        "dead" => State::Dead {
            to: to()?,
            reason: reason(),
        },
        "queued" => State::Queued { to: to()? },
        "unknown" => State::Unknown,
        _ => return None,
    };
    let id = MessageId::parse(&members.string(Member::Id)?).ok()?;
    let key = members
        .string(Member::Key)
        .and_then(|key| DeliveryKey::parse(&key));
    Some(Receipt {
        id,
        state,
        key,
        at_ms: members.time(Member::At),
    })
}

/// An upper bound for the length of a receipt: any character may take six bytes.
fn bytes_max(receipt: &Receipt) -> usize {
    let escaped = match &receipt.state {
        State::Accepted { .. } | State::Settled { .. } | State::Unknown => 0,
        State::Refused(refusal) => refusal.reason.len().min(REASON_BYTES_MAX),
        State::Delivered { to } | State::Queued { to } => to.len(),
        State::Acked { to, how } => to.len() + how.as_ref().map_or(0, |_| 2 * HOW_BYTES_MAX),
        State::Pushed { to, .. } | State::Presented { to, .. } => to.len() + HOW_BYTES_MAX,
        State::Held { to, reason } | State::Expired { to, reason } | State::Dead { to, reason } => {
            to.len() + reason.len().min(REASON_BYTES_MAX)
        }
    };
    let key = receipt.key.as_ref().map_or(0, |key| key.as_str().len());
    6 * (escaped + key) + receipt.id.as_str().len() + 192
}

fn write_receipt(receipt: &Receipt, writer: &mut Writer) {
    writer.begin(b'{').string("id", receipt.id.as_str());
    let state = |writer: &mut Writer, state: &str, to: &str| {
        writer.string("state", state).string("to", to);
    };
    let reason = |writer: &mut Writer, reason: &str| {
        writer.string("reason", &cut(reason, REASON_BYTES_MAX));
    };
    match &receipt.state {
        State::Accepted {
            recipients,
            online,
            duplicate,
        } => {
            writer
                .string("state", "accepted")
                .number("recipients", (*recipients).into());
            writer.number("online", (*online).into());
            if *duplicate {
                writer.raw("duplicate", "true");
            }
        }
        State::Refused(refusal) => {
            writer
                .string("state", "refused")
                .string("code", refusal.code.as_str());
            reason(writer, &refusal.reason);
        }
        State::Delivered { to } => state(writer, "delivered", to),
        State::Queued { to } => state(writer, "queued", to),
        State::Pushed { to, path } => {
            state(writer, "pushed", to);
            writer.string("path", &claim(path));
        }
        State::Presented { to, path } => {
            state(writer, "presented", to);
            writer.string("path", &claim(path));
        }
        State::Held { to, reason: why } => {
            state(writer, "held", to);
            reason(writer, why);
        }
        State::Acked { to, how } => {
            state(writer, "acked", to);
            write_how(how.as_ref(), writer);
        }
        State::Expired { to, reason: why } => {
            state(writer, "expired", to);
            reason(writer, why);
        }
        State::Dead { to, reason: why } => {
            state(writer, "dead", to);
            reason(writer, why);
        }
        State::Settled { recipients } => {
            writer
                .string("state", "settled")
                .number("recipients", (*recipients).into());
        }
        State::Unknown => {
            writer.string("state", "unknown");
        }
    }
    if let Some(key) = &receipt.key {
        writer.string("key", key.as_str());
    }
    if let Some(at_ms) = receipt.at_ms {
        writer.number("at", at_ms);
    }
    writer.end(b'}');
}
