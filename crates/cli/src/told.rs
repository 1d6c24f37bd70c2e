//! Messages as the broker tells its operator of them, and what of them is shown.
//!
//! The broker keeps what it was sent, and holds no secret: whether a body is what its sender signed
//! is checked here, and one of which that is not known is not shown.

use std::path::{Path, PathBuf};

use peerbus_adapter::{Receipt, Stage, credentials, paths::Paths, wall_ms};
use peerbus_mcp::Trail;
use peerbus_wire::{Conversation, Envelope, Received, Secret, escape, utc};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::operator;

/// Longest name, or word of a stage, in a line.
const NAME_CHARS: usize = 64;
/// Columns of a line, where a body can be cut.
const COLUMNS: usize = 80;

/// A page of messages.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    /// Newest first.
    pub(crate) messages: Vec<Told>,
    /// Where the next page begins.
    #[serde(default)]
    pub(crate) before: Option<u64>,
}

/// One message.
#[derive(Debug, Deserialize)]
pub(crate) struct Told {
    pub(crate) seq: u64,
    pub(crate) id: String,
    /// Empty: a temporary sender that has left, of which the text is gone, too.
    pub(crate) from: String,
    pub(crate) at: u64,
    /// Receipts, in the frames of the wire.
    #[serde(default)]
    pub(crate) frames: Vec<Box<RawValue>>,
    pub(crate) envelope: Option<Box<RawValue>>,
}

/// What is known of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Text {
    /// Its sender signed this body (JSON).
    Signed(String),
    /// It must not be shown, and why.
    Hidden(&'static str),
}

/// What an envelope says, whoever wrote it.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) to: String,
    pub(crate) talk: Conversation,
    pub(crate) text: Text,
}

/// The user's secret, to check signatures with; `None` when there is none.
pub(crate) fn secret(file: Option<&Path>) -> Option<Secret> {
    let env = |name: &str| std::env::var(name).ok().filter(|secret| !secret.is_empty());
    let given = |name: &str| Secret::new(env(name)?.as_bytes()).ok();
    if let Some(secret) = given("PEERBUS_HMAC_SECRET") {
        return Some(match given("PEERBUS_HMAC_SECRET_ALSO") {
            Some(also) => secret.accepting(&also),
            None => secret,
        });
    }
    let file: PathBuf = match file {
        Some(file) => file.to_owned(),
        None => Paths::find().ok()?.credentials,
    };
    Some(credentials::load(&file).ok()?.secret)
}

/// Asks the broker for messages.
pub(crate) fn ask(socket: Option<&PathBuf>, target: &str) -> Result<Page, Failure> {
    let answer = operator::request(socket, "GET", target)?.ok()?;
    serde_json::from_str(&answer)
        .map_err(|error| Failure::failed(format!("the broker's answer is not understood: {error}")))
}

impl Told {
    pub(crate) fn receipts(&self) -> Vec<Receipt> {
        receipts(&self.frames)
    }

    pub(crate) fn trail(&self) -> Trail {
        Trail::new(&self.id, &self.receipts(), wall_ms())
    }

    pub(crate) fn said(&self, secret: Option<&Secret>) -> Said {
        let Some(envelope) = &self.envelope else {
            return Said {
                to: String::new(),
                talk: Conversation::default(),
                text: Text::Hidden("its text is gone"),
            };
        };
        said(envelope, &self.id, secret)
    }

    /// How far it is, in a word or two.
    pub(crate) fn state(&self) -> String {
        let receipts = self.receipts();
        let last = |to: &str| {
            let of = |receipt: &&Receipt| receipt.to.as_deref() == Some(to);
            receipts.iter().rev().find(of)
        };
        let mut names: Vec<&str> = receipts.iter().filter_map(|r| r.to.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        match names.as_slice() {
            [] => "accepted".into(),
            [one] => last(one).map_or("accepted".into(), |receipt| word(&receipt.stage)),
            all => {
                let done = all.iter().filter_map(|to| last(to));
                let done = done
                    .filter(|receipt| word(&receipt.stage) == "seen")
                    .count();
                format!("seen {done}/{}", all.len())
            }
        }
    }

    /// A line for a script.
    pub(crate) fn json(&self, secret: Option<&Secret>) -> Value {
        let said = self.said(secret);
        let mut told = json!({
            "seq": self.seq,
            "id": self.id,
            "from": self.from,
            "to": said.to,
            "at": self.at,
            "trail": self.trail(),
        });
        add_said(&mut told, &said);
        told
    }

    /// A line for a person.
    pub(crate) fn line(&self, secret: Option<&Secret>) -> String {
        let said = self.said(secret);
        let from = name(&self.from);
        let head = format!(
            "{} {from} → {}  {}",
            time(self.at),
            name(&said.to),
            self.state()
        );
        with_text(&head, &said.text)
    }
}

/// What is said of a message's text, in JSON.
pub(crate) fn add_said(told: &mut Value, said: &Said) {
    told["thread"] = json!(said.talk.thread);
    told["reply_to"] = json!(
        said.talk
            .reply_to
            .as_ref()
            .map(peerbus_wire::MessageId::as_str)
    );
    match &said.text {
        Text::Signed(body) => {
            told["verified"] = true.into();
            told["body"] = serde_json::from_str(body).unwrap_or_else(|_| body.as_str().into());
        }
        Text::Hidden(why) => {
            told["verified"] = false.into();
            told["hidden"] = (*why).into();
        }
    }
}

/// The receipts in frames.
pub(crate) fn receipts(frames: &[Box<RawValue>]) -> Vec<Receipt> {
    let of = |frame: &RawValue| match Received::parse(frame.get().as_bytes()) {
        Received::Receipts(receipts) => receipts,
        _ => Vec::new(),
    };
    frames.iter().flat_map(|frame| of(frame)).collect()
}

/// What an envelope says that goes by an id.
pub(crate) fn said(envelope: &RawValue, id: &str, secret: Option<&Secret>) -> Said {
    let Ok(decoded) = Envelope::decode(envelope.get().as_bytes()) else {
        return Said {
            to: String::new(),
            talk: Conversation::default(),
            text: Text::Hidden("it cannot be read"),
        };
    };
    let envelope = decoded.envelope;
    let body = String::from_utf8_lossy(&envelope.body).into_owned();
    let text = match secret {
        None => Text::Hidden("there is no secret here to check its signature with"),
        Some(_) if envelope.id != id => Text::Hidden("it stands under another id"),
        Some(secret) => match secret.verify(&envelope) {
            Ok(()) => Text::Signed(body.clone()),
            Err(_) => Text::Hidden("its signature does not hold: another secret, or altered"),
        },
    };
    let talk = match &text {
        Text::Signed(body) => Conversation::of(body),
        Text::Hidden(_) => Conversation::default(),
    };
    Said {
        to: envelope.to,
        talk,
        text,
    }
}

/// The words of a body, for people: a text, or the text of an object, or the JSON.
pub(crate) fn words(body: &str) -> String {
    match serde_json::from_str(body) {
        Ok(Value::String(text)) => text,
        Ok(Value::Object(members)) => match members.get("text") {
            Some(Value::String(text)) => text.clone(),
            _ => body.to_owned(),
        },
        _ => body.to_owned(),
    }
}

/// A line with as much of a text as fits.
pub(crate) fn with_text(head: &str, text: &Text) -> String {
    let room = COLUMNS.saturating_sub(head.chars().count() + 4).max(16);
    match text {
        Text::Signed(body) => format!("{head}  \"{}\"", escape(&words(body), room)),
        Text::Hidden(why) => format!("{head}  (not shown: {why})"),
    }
}

/// A name that a peer gave.
pub(crate) fn name(name: &str) -> String {
    match name {
        "" => "?".into(),
        "*" => "all".into(),
        name => escape(name, NAME_CHARS),
    }
}

/// A stage as a word.
pub(crate) fn word(stage: &Stage) -> String {
    let id = peerbus_wire::MessageId::parse("m");
    let trail = id.ok().map(|id| {
        let receipt = Receipt {
            to: Some(String::new()),
            ..Receipt::new(id, stage.clone())
        };
        Trail::new("m", &[receipt], 0)
    });
    let step = trail.and_then(|trail| trail.steps.last().map(|step| step.state));
    step.unwrap_or("?").to_owned()
}

/// A moment, in UTC, without the year.
pub(crate) fn time(at_ms: u64) -> String {
    let at = utc(at_ms / 1_000);
    at.get(5..).unwrap_or_default().replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_signed_is_not_shown_and_what_is_stays_on_its_line() {
        let secret = Secret::new(&[7; 32]).unwrap();
        let mut envelope = Envelope {
            protocol_version: "v1".into(),
            id: "m1".into(),
            from: "ada".into(),
            to: "bob".into(),
            kind: "msg".into(),
            body: r#""hi\n\u001b[2J payload""#.into(),
            ..Envelope::default()
        };
        envelope.hmac = secret.sign(&envelope.canonical().unwrap());
        let raw = |hmac: &str| {
            let body = String::from_utf8(envelope.body.clone()).unwrap();
            let text = format!(
                r#"{{"protocol_version":"v1","id":"m1","from":"ada","to":"bob","ts":"","source":"","kind":"msg","body":{body},"hmac":"{hmac}"}}"#
            );
            RawValue::from_string(text).unwrap()
        };
        let good = said(&raw(&envelope.hmac), "m1", Some(&secret));
        let line = with_text("head", &good.text);
        assert!(
            line.contains("payload") && !line.contains(char::is_control),
            "{line}"
        );
        for (hmac, id, secret) in [
            ("00", "m1", Some(&secret)),
            (envelope.hmac.as_str(), "m2", Some(&secret)),
            (envelope.hmac.as_str(), "m1", None),
        ] {
            let line = with_text("head", &said(&raw(hmac), id, secret).text);
            assert!(
                line.contains("not shown") && !line.contains("payload"),
                "{line}"
            );
        }
    }
}
