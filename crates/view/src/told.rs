//! Messages as the broker tells its operator of them, and what of them is shown.
//!
//! The broker keeps what it was sent, and holds no secret: whether a body is what its sender signed
//! is checked here, and one of which that is not known is not shown.

use peerbus_wire::{Conversation, Envelope, Receipt, Received, Secret, Stage, readable};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::trail::{Trail, reached};

/// A page of messages.
#[derive(Debug, Deserialize)]
pub struct Page {
    /// Newest first.
    pub messages: Vec<Told>,
    /// Where the next page begins.
    #[serde(default)]
    pub before: Option<u64>,
}

/// One message.
#[derive(Debug, Deserialize)]
pub struct Told {
    /// Its number at the broker.
    pub seq: u64,
    /// Its id.
    pub id: String,
    /// Empty: a temporary sender that has left, of which the text is gone, too.
    pub from: String,
    /// When the broker accepted it, in milliseconds by its clock.
    pub at: u64,
    /// Receipts, in the frames of the wire.
    #[serde(default)]
    pub frames: Vec<Box<RawValue>>,
    /// What was signed; `None`: it is gone.
    pub envelope: Option<Box<RawValue>>,
    /// Its text is kept from who asks.
    #[serde(skip)]
    pub kept: bool,
}

/// What is known of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// Its sender signed this body (JSON).
    Signed(String),
    /// It must not be shown, and why.
    Hidden(&'static str),
}

/// What an envelope says, whoever wrote it.
#[derive(Debug, Clone)]
pub struct Said {
    /// For whom.
    pub to: String,
    /// What it says of its conversation.
    pub talk: Conversation,
    /// How large its body is.
    pub bytes: usize,
    /// The text.
    pub text: Text,
}

impl Said {
    /// Of a message of which nothing can be read.
    fn nothing(why: &'static str) -> Self {
        Self {
            to: String::new(),
            talk: Conversation::default(),
            bytes: 0,
            text: Text::Hidden(why),
        }
    }
}

impl Told {
    /// What became of it.
    #[must_use]
    pub fn receipts(&self) -> Vec<Receipt> {
        receipts(&self.frames)
    }

    /// The same as steps and a sentence. `now_ms`: the wall clock.
    #[must_use]
    pub fn trail(&self, now_ms: u64) -> Trail {
        Trail::new(&self.id, &self.receipts(), now_ms)
    }

    /// What it says.
    #[must_use]
    pub fn said(&self, secret: Option<&Secret>) -> Said {
        let Some(envelope) = &self.envelope else {
            return Said::nothing("its text is gone");
        };
        let said = said(envelope, &self.id, secret);
        match self.kept {
            true => Said {
                talk: Conversation::default(),
                text: Text::Hidden(
                    "an agent asks, and it was not shown to everybody whom it is for",
                ),
                ..said
            },
            false => said,
        }
    }

    /// Keeps the text from who asks, unless each of its recipients has shown it: a session may keep it from
    /// its agent.
    pub fn keep_unshown(&mut self) {
        let receipts = self.receipts();
        let reached = reached(receipts.iter());
        let shown = |receipt: &&Receipt| match &receipt.stage {
            Stage::Pushed { .. } | Stage::Presented { .. } => true,
            Stage::Acked(how) => how.is_some(),
            _ => false,
        };
        // Of many recipients not all are named.
        let recipients = receipts.iter().find_map(|receipt| match &receipt.stage {
            Stage::Accepted(accepted) => Some(accepted.recipients as usize),
            _ => None,
        });
        let all_named = recipients.is_none_or(|recipients| reached.len() >= recipients);
        self.kept = reached.is_empty() || !all_named || !reached.values().all(shown);
    }

    /// How far it is, in a word or two.
    #[must_use]
    pub fn state(&self) -> String {
        let receipts = self.receipts();
        let last = |to: &str| {
            let of = |receipt: &&Receipt| receipt.to.as_deref() == Some(to);
            receipts.iter().rev().find(of)
        };
        let mut names: Vec<&str> = receipts.iter().filter_map(|r| r.to.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        // Who had it, and has it no more, is owed nothing.
        let had = |receipt: &Receipt| matches!(receipt.stage, Stage::Recalled { .. });
        names.retain(|to| !last(to).is_some_and(had));
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

    /// A line for a script. `now_ms`: the wall clock.
    #[must_use]
    pub fn json(&self, secret: Option<&Secret>, now_ms: u64) -> Value {
        let said = self.said(secret);
        let mut told = json!({
            "seq": self.seq,
            "id": self.id,
            "from": self.from,
            "to": said.to,
            "at": self.at,
            "trail": self.trail(now_ms),
        });
        add_said(&mut told, &said);
        told
    }
}

/// What is said of a message's text, in JSON.
pub fn add_said(told: &mut Value, said: &Said) {
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
#[must_use]
pub fn receipts(frames: &[Box<RawValue>]) -> Vec<Receipt> {
    let of = |frame: &RawValue| match Received::parse(frame.get().as_bytes()) {
        Received::Receipts(receipts) => receipts,
        _ => Vec::new(),
    };
    frames.iter().flat_map(|frame| of(frame)).collect()
}

/// What an envelope says that goes by an id.
#[must_use]
pub fn said(envelope: &RawValue, id: &str, secret: Option<&Secret>) -> Said {
    let Ok(decoded) = Envelope::decode(envelope.get().as_bytes()) else {
        return Said::nothing("it cannot be read");
    };
    let envelope = decoded.envelope;
    let body = String::from_utf8_lossy(&envelope.body);
    let text = match secret {
        None => Text::Hidden("there is no secret here to check its signature with"),
        Some(_) if envelope.id != id => Text::Hidden("it stands under another id"),
        Some(secret) => match secret.verify(&envelope) {
            Ok(()) => Text::Signed(readable(&body).into_owned()),
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
        bytes: body.len(),
        text,
    }
}

/// The words of a body, for people: a text, or the text of an object, or the JSON.
#[must_use]
pub fn words(body: &str) -> String {
    match serde_json::from_str(body) {
        Ok(Value::String(text)) => text,
        Ok(Value::Object(members)) => match members.get("text") {
            Some(Value::String(text)) => text.clone(),
            _ => body.to_owned(),
        },
        _ => body.to_owned(),
    }
}

/// A stage as a word.
#[must_use]
pub fn word(stage: &Stage) -> String {
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

#[cfg(test)]
mod tests {
    use peerbus_wire::How;
    use peerbus_wire::{BrokerFrame, MessageId};

    use super::*;

    #[test]
    fn who_had_a_job_and_lost_it_is_not_counted() {
        let at = |to: &str, stage| Receipt {
            to: Some(to.to_owned()),
            ..Receipt::new(MessageId::parse("j1").unwrap(), stage)
        };
        let (why, path) = ("it left".to_owned(), "drain".to_owned());
        let seen = How::Seen {
            path,
            evidence: "tool_call".to_owned(),
        };
        let mut receipts = vec![at("ann", Stage::Recalled { why })];
        let state = |receipts: &[Receipt]| {
            let frames = BrokerFrame::receipts(receipts.to_vec());
            let frames: Vec<Value> = frames
                .map(|frame| serde_json::from_str(&frame.encode()).unwrap())
                .collect();
            let told = json!({ "seq": 1, "id": "j1", "from": "cyd", "at": 1, "frames": frames });
            serde_json::from_value::<Told>(told).unwrap().state()
        };
        assert_eq!(state(&receipts), "accepted");
        receipts.push(at("bob", Stage::Acked(Some(seen))));
        assert_eq!(state(&receipts), "seen");
    }
}
