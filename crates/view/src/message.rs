//! A message as its broker shows it to the operator.
//!
//! The broker keeps what it was sent, and holds no secret: whether a body is what its sender signed
//! is checked by the reader, and one of which that is not known is not shown.

use std::borrow::Cow;
use std::collections::BTreeMap;

use peerbus_wire::{
    Conversation, Envelope, MessageId, PeerEntry, Receipt, Secret, Stage, readable,
};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::about::{Around, Audience, PeerView};
use crate::request::{RequestView, is_seen};
use crate::trail::{Step, Trail, reached, sentence, word};

/// A page of messages.
#[derive(Debug, Deserialize)]
pub struct MessagePage {
    /// Newest first.
    pub messages: Vec<MessageView>,
    /// Where the next page begins.
    #[serde(default)]
    pub before: Option<u64>,
}

/// One message: where it comes from, what became of it as steps and as a sentence, and what was signed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct MessageView {
    /// Its number at the broker.
    pub seq: u64,
    /// Its id.
    pub id: String,
    /// Empty: a temporary sender that has left, of which the text is gone, too.
    pub from: String,
    /// When the broker accepted it, in milliseconds by its clock.
    pub at: u64,
    /// For how many peers it was accepted.
    pub recipients: u32,
    /// How far it is, in a word or two: `queued`, `seen 1/3`.
    pub state: String,
    /// Each of its recipients has shown it to its agent, or said so.
    pub shown: bool,
    /// It will not get further at any of its recipients.
    pub ended: bool,
    /// What happened, in order.
    pub steps: Vec<Step>,
    /// The same as a sentence.
    pub note: String,
    /// It is a request that has no result; told where those are asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestView>,
    /// What was signed; `None`: it is gone. [`MessageView::write`] adds it.
    #[serde(skip_serializing)]
    pub envelope: Option<Box<RawValue>>,
    /// Its text is kept from who asks.
    #[serde(skip)]
    pub kept: bool,
}

/// A step of a message, as it happens.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepView {
    /// The message's number at the broker.
    pub seq: u64,
    /// Its id.
    pub id: String,
    /// Who sent it; empty when that name is forgotten.
    pub from: String,
    /// When, in milliseconds by the broker's clock, if that is known.
    pub at: Option<u64>,
    /// The step.
    pub step: Step,
}

/// What is known of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageText {
    /// Its sender signed this body (JSON).
    Signed(String),
    /// It must not be shown, and why.
    Hidden(&'static str),
}

/// What an envelope says, whoever wrote it.
#[derive(Debug, Clone)]
pub struct MessageContent {
    /// For whom.
    pub to: String,
    /// What it says of its conversation.
    pub talk: Conversation,
    /// How large its body is.
    pub bytes: usize,
    /// The text.
    pub text: MessageText,
}

impl MessageContent {
    /// Whether this is a message of `peerbus doctor` to itself, sent by `from`.
    #[must_use]
    pub fn is_probe(&self, from: &str) -> bool {
        let body = match &self.text {
            MessageText::Signed(body) => body,
            MessageText::Hidden(_) => return false,
        };
        self.to == from && spoken(body) == spoken(PROBE)
    }
}

impl MessageView {
    /// What became of the message `id`, in order of time, or only `at` one of its recipients (whether it
    /// was shown and has ended is of all). Everything else is left to be filled in.
    #[must_use]
    pub fn new(id: &MessageId, receipts: &[Receipt], at: Option<&str>, around: Around<'_>) -> Self {
        let recipients = receipts.iter().find_map(|receipt| match &receipt.stage {
            Stage::Accepted(accepted) => Some(accepted.recipients),
            _ => None,
        });
        let settled = receipts.iter().find_map(|receipt| match &receipt.stage {
            Stage::Settled { recipients } => Some(*recipients as usize),
            _ => None,
        });
        let reached = reached(receipts.iter());
        let stages = || reached.values().map(|receipt| &receipt.stage);
        // Of many recipients not all are named.
        let of_all = |count: usize| recipients.is_none_or(|all| count >= all as usize);
        // A path that says so has shown it, or its recipient has acked it and said how.
        let is_shown = |last: &&Receipt| match &last.stage {
            Stage::Pushed { .. } | Stage::Presented { .. } => true,
            Stage::Working { .. } | Stage::Done { .. } | Stage::Failed { .. } => true,
            Stage::Owed | Stage::Declined { .. } | Stage::Withdrawn | Stage::Unanswered { .. } => {
                receipts
                    .iter()
                    .any(|it| it.to == last.to && matches!(it.stage, Stage::Acked(Some(_))))
            }
            stage => matches!(stage, Stage::Acked(Some(_))),
        };
        // What was shown stays shown when its session is gone.
        let had = self::reached(receipts.iter().filter(|it| it.stage != Stage::Queued));
        let is_shown = |to| had.get(to).is_some_and(is_shown);
        let shown = !reached.is_empty() && of_all(reached.len()) && reached.keys().all(is_shown);
        let ends = stages().filter(|stage| stage.is_final()).count();
        let ended = recipients.is_some() && of_all(ends + settled.unwrap_or_default());
        let told = at.map_or_else(|| receipts.iter().collect(), |name| at_one(receipts, name));
        Self {
            id: id.as_str().to_owned(),
            recipients: recipients.unwrap_or_default(),
            state: state(&told),
            shown,
            ended,
            steps: told.iter().copied().map(Step::from).collect(),
            note: sentence::of(told.into_iter(), around),
            ..Self::default()
        }
    }

    /// It in JSON, with an envelope as it is.
    #[must_use]
    pub fn write(&self, envelope: Option<&str>) -> String {
        let mut text = json!(self).to_string();
        text.pop();
        text + r#","envelope":"# + envelope.unwrap_or("null") + "}"
    }

    /// Tells of a recipient that is stopped, of which a new broker has heard nothing.
    pub fn tell_stopped(&mut self, peers: &[PeerEntry], audience: Audience) {
        for peer in peers.iter().filter(|peer| peer.stopped) {
            self.note = sentence::kept_there(std::mem::take(&mut self.note), &peer.name);
            let view = PeerView::new(peer, audience);
            self.note = sentence::stopped_there(std::mem::take(&mut self.note), &view, audience);
            let request = self.request.as_mut();
            let is_its = |it: &&mut RequestView| *it.holder.as_ref().unwrap_or(&it.to) == peer.name;
            if let Some(request) = request.filter(is_its) {
                request.stops(view.state);
            }
        }
    }

    /// Its way alone, as tools tell it.
    #[must_use]
    pub fn trail(&self) -> Trail {
        Trail::of(self.id.clone(), self.steps.clone(), self.note.clone())
    }

    /// Where it is, or ended: the last step at each recipient that had it not taken away again.
    #[must_use]
    pub fn standing(&self) -> BTreeMap<&str, &Step> {
        let mut each = BTreeMap::new();
        for step in &self.steps {
            if let Some(to) = &step.to {
                each.insert(to.as_str(), step);
            }
        }
        each.retain(|_, last| last.state != "recalled");
        each
    }

    /// The step with which a request ended; `None`: it is open, or the message is no request.
    #[must_use]
    pub fn end(&self) -> Option<&Step> {
        const ENDS: [&str; 5] = ["done", "failed", "declined", "withdrawn", "unanswered"];
        let mut steps = self.steps.iter().rev();
        steps.find(|step| ENDS.contains(&&*step.state))
    }

    /// An agent asks: the text is kept from it, unless each of its recipients has shown it, since a session
    /// may keep it from its agent.
    pub fn keep_unshown(&mut self) {
        self.kept = !self.shown;
    }

    /// Its contents.
    #[must_use]
    pub fn content(&self, secret: Option<&Secret>) -> MessageContent {
        let Some(envelope) = &self.envelope else {
            return MessageContent::nothing("its text is gone");
        };
        let content = MessageContent::read(envelope, &self.id, secret);
        match self.kept {
            true => MessageContent {
                talk: Conversation::default(),
                text: MessageText::Hidden(
                    "an agent asks, and it was not shown to everybody whom it is for",
                ),
                ..content
            },
            false => content,
        }
    }

    /// A line for a script.
    #[must_use]
    pub fn json(&self, secret: Option<&Secret>) -> Value {
        let content = self.content(secret);
        let mut told = json!({
            "seq": self.seq,
            "id": self.id,
            "from": self.from,
            "to": content.to,
            "at": self.at,
            "trail": self.trail(),
        });
        content.add_to(&mut told);
        told
    }
}

/// What is known of a message at one of its recipients; everything if it was there under another name.
fn at_one<'a>(receipts: &'a [Receipt], name: &str) -> Vec<&'a Receipt> {
    let is = |to: &String| to.eq_ignore_ascii_case(name);
    let here = |receipt: &&Receipt| receipt.to.as_ref().is_none_or(is);
    let there = |receipt: &Receipt| receipt.to.as_ref().is_some_and(is);
    match receipts.iter().any(there) {
        true => receipts.iter().filter(here).collect(),
        false => receipts.iter().collect(),
    }
}

/// How far a message is, in a word or two.
fn state(receipts: &[&Receipt]) -> String {
    let mut last = reached(receipts.iter().copied());
    // Who had it, and has it no more, is owed nothing.
    last.retain(|_, receipt| !matches!(receipt.stage, Stage::Recalled { .. }));
    let mut words = last.iter().map(|(to, receipt)| {
        let seen = is_seen(receipts.iter().copied(), Some(to));
        word(&receipt.stage, seen)
    });
    match last.len() {
        0 => match receipts.iter().find_map(|receipt| match &receipt.stage {
            Stage::Accepted(accepted) => Some(accepted.recipients),
            _ => None,
        }) {
            Some(0) => "for nobody".into(),
            _ => "accepted".into(),
        },
        1 => words.next().unwrap_or_default().into(),
        all => format!(
            "seen {}/{all}",
            words.filter(|word| *word == "seen").count()
        ),
    }
}

impl MessageContent {
    /// Of a message of which nothing can be read.
    fn nothing(why: &'static str) -> Self {
        Self {
            to: String::new(),
            talk: Conversation::default(),
            bytes: 0,
            text: MessageText::Hidden(why),
        }
    }

    /// What an envelope says that goes by an id.
    #[must_use]
    pub fn read(envelope: &RawValue, id: &str, secret: Option<&Secret>) -> Self {
        let Ok(decoded) = Envelope::decode(envelope.get().as_bytes()) else {
            return Self::nothing("it cannot be read");
        };
        let envelope = decoded.envelope;
        let body = String::from_utf8_lossy(&envelope.body);
        let hidden = MessageText::Hidden;
        let text = match secret {
            None => hidden("there is no secret here to check its signature with"),
            Some(_) if envelope.id != id => hidden("it stands under another id"),
            Some(secret) => match secret.verify(&envelope) {
                Ok(()) => MessageText::Signed(readable(&body).into_owned()),
                Err(_) => hidden("its signature does not hold: another secret, or altered"),
            },
        };
        let talk = match &text {
            MessageText::Signed(body) => Conversation::of(body),
            MessageText::Hidden(_) => Conversation::default(),
        };
        Self {
            to: envelope.to,
            talk,
            bytes: body.len(),
            text,
        }
    }

    /// Adds what it says to what a script is told.
    pub fn add_to(&self, told: &mut Value) {
        told["thread"] = json!(self.talk.thread);
        told["reply_to"] = json!(self.talk.reply_to.as_ref().map(MessageId::as_str));
        match &self.text {
            MessageText::Signed(body) => {
                told["verified"] = true.into();
                told["body"] = serde_json::from_str(body).unwrap_or_else(|_| body.as_str().into());
            }
            MessageText::Hidden(why) => {
                told["verified"] = false.into();
                told["hidden"] = (*why).into();
            }
        }
    }
}

/// A body as it is. Bodies are JSON by the rules of acceptance; one that this library does not take must not
/// block those behind it: it is shown as a text.
#[must_use]
pub fn body_json(body: &str) -> Cow<'_, RawValue> {
    let text = || to_raw_value(body).map_or(Cow::Borrowed(RawValue::NULL), Cow::Owned);
    serde_json::from_str(body).map_or_else(|_| text(), Cow::Borrowed)
}

/// The body of the message that `peerbus doctor` sends to itself.
pub const PROBE: &str = r#""peerbus doctor""#;

/// The words of a body, for people: a text, or the text of an object, or the JSON.
#[must_use]
pub fn spoken(body: &str) -> String {
    match serde_json::from_str(body) {
        Ok(Value::String(text)) => text,
        Ok(Value::Object(members)) => match members.get("text") {
            Some(Value::String(text)) => text.clone(),
            _ => body.to_owned(),
        },
        _ => body.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use peerbus_wire::{Accepted, How};

    use super::*;

    fn view(receipts: &[Receipt], at: Option<&str>) -> MessageView {
        let id = MessageId::parse("j1").unwrap();
        MessageView::new(&id, receipts, at, Around::alone(0))
    }

    fn accepted(recipients: u32) -> Receipt {
        let accepted = Accepted {
            recipients,
            online: 0,
            duplicate: false,
        };
        Receipt::new(MessageId::parse("j1").unwrap(), Stage::Accepted(accepted))
    }

    fn at(to: &str, stage: Stage) -> Receipt {
        Receipt {
            to: Some(to.to_owned()),
            ..Receipt::new(MessageId::parse("j1").unwrap(), stage)
        }
    }

    fn seen() -> Stage {
        let (path, evidence) = ("drain".to_owned(), "tool_call".to_owned());
        Stage::Acked(Some(How::Seen { path, evidence }))
    }

    #[test]
    fn who_had_a_job_and_lost_it_is_not_counted() {
        let why = "it left".to_owned();
        let mut receipts = vec![at("ann", Stage::Recalled { why })];
        assert_eq!(view(&receipts, None).state, "accepted");
        receipts.push(at("bob", seen()));
        let view = view(&receipts, None);
        assert_eq!(view.state, "seen");
        assert_eq!(view.standing().into_keys().collect::<Vec<_>>(), ["bob"]);
    }

    #[test]
    fn a_state_has_the_word_of_the_list_of_requests() {
        let why = |why: &str| Stage::Held { why: why.into() };
        let path = || "hook".to_owned();
        let presented = || Stage::Presented { path: path() };
        let pushed = || Stage::Pushed { path: path() };
        for (stages, word) in [
            (vec![seen(), Stage::Owed], "seen"),
            (vec![Stage::Acked(None), Stage::Owed], "acked"),
            (vec![why("paused: 3 replies")], "paused"),
            (vec![why("a rule")], "held"),
            (vec![why("a rule"), why("released: now")], "released"),
            (vec![why("released by a rule")], "held"),
            // By another path, too.
            (vec![presented(), pushed()], "presented"),
            (vec![presented(), Stage::Delivered, pushed()], "pushed"),
            // Its session is gone.
            (vec![Stage::Delivered, Stage::Queued], "queued"),
        ] {
            let receipts: Vec<_> = stages.into_iter().map(|stage| at("bob", stage)).collect();
            assert_eq!(view(&receipts, None).state, word);
            let whom = ("bob", Some("bob"));
            let request = RequestView::new(whom, 1, &receipts, Around::alone(0));
            assert_eq!(request.state, word);
        }
    }

    #[test]
    fn what_not_everybody_has_shown_is_kept_from_agents() {
        let path = || "socket".to_owned();
        let pushed = || at("ann", Stage::Pushed { path: path() });
        let lost = || at("ann", Stage::Recalled { why: String::new() });
        let settled = || {
            let id = MessageId::parse("j1").unwrap();
            Receipt::new(id, Stage::Settled { recipients: 1 })
        };
        for (receipts, shown, ended) in [
            (vec![accepted(1)], false, false),
            (vec![accepted(1), pushed()], true, false),
            (vec![accepted(2), pushed()], false, false),
            (
                vec![accepted(2), pushed(), at("bob", Stage::Delivered)],
                false,
                false,
            ),
            (vec![accepted(2), pushed(), at("bob", seen())], true, false),
            (vec![accepted(1), at("bob", seen())], true, true),
            (
                vec![accepted(1), at("bob", Stage::Acked(None))],
                false,
                true,
            ),
            (vec![accepted(2), settled(), at("bob", seen())], false, true),
            (vec![accepted(1), lost(), at("bob", seen())], false, true),
        ] {
            let mut view = view(&receipts, None);
            assert_eq!((view.shown, view.ended), (shown, ended), "{receipts:?}");
            view.keep_unshown();
            assert_eq!(view.kept, !shown);
        }
        let receipts = [accepted(2), pushed(), at("bob", Stage::Delivered)];
        let one = view(&receipts, Some("ANN"));
        assert_eq!(
            (one.steps.len(), &*one.state, one.shown),
            (2, "pushed", false)
        );
        assert!(one.note.starts_with("pushed to ann"), "{}", one.note);
        assert_eq!(
            view(&receipts, Some("old")).steps.len(),
            3,
            "by another name"
        );
    }

    #[test]
    fn what_is_written_is_read_and_an_answer_of_an_older_broker_is_not() {
        let view = view(&[accepted(1), at("bob", seen())], None);
        let envelope = r#"{"body":1.50}"#;
        let read: MessageView = serde_json::from_str(&view.write(Some(envelope))).unwrap();
        assert_eq!((&read.steps, &read.note), (&view.steps, &view.note));
        assert_eq!(read.envelope.unwrap().get(), envelope, "byte for byte");
        let gone: MessageView = serde_json::from_str(&view.write(None)).unwrap();
        assert!(gone.envelope.is_none());
        let older = r#"{"messages":[{"seq":1,"id":"m1","from":"a","at":1,"recipients":1,"frames":[],"envelope":null}]}"#;
        serde_json::from_str::<MessagePage>(older).unwrap_err();
    }
}
