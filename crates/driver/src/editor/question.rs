//! Questions in turns that mail began: the editor and the driver are asked, and the first answer counts.

use std::mem::take;

use peerbus_adapter::agents::Agent;
use peerbus_wire::jsonrpc::{RpcMessage, raw};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::mux::{Members, Mux, Out, Question, Seat, Turn};
use crate::acp::lines;
use crate::acp::{WITHDRAW, permission};

/// Questions that are remembered.
const QUESTIONS_MAX: usize = 256;
/// Longest parameters of one in a turn of mail, in bytes: a longer one is answered as cancelled.
const ASKED_MAX: usize = 4 << 20;
/// What goes before the title.
const LED_TO: &str = "A message of a peer led to this: ";
/// The same where it is not known in whose turn it is asked.
const MAY_HAVE_LED_TO: &str = "A message of a peer may have led to this: ";

/// What led to a question.
enum Led {
    Editor,
    /// The turn of mail in this session.
    Mail(u64),
    /// One or the other.
    Unclear,
}

impl Mux {
    /// The agent asks whether it may use a tool.
    pub(super) fn agent_asks(&mut self, id: String, mut message: RpcMessage) -> bool {
        let asked = lines::question(message.params.as_deref());
        let led = self.led(asked["sessionId"].as_str());
        let params = message.params.as_ref();
        let is_long =
            params.is_some_and(|it| it.get().len() > ASKED_MAX) || id.len() > lines::ID_MAX;
        if !matches!(led, Led::Editor) && is_long {
            // Rewritten, its members would take many times as much; its id is kept.
            let id = message.id.unwrap_or_default();
            let cancelled = permission::cancelled();
            self.agent_gets(&RpcMessage::response(id, &Ok::<_, ()>(cancelled)));
            return true;
        }
        let seat = match led {
            Led::Mail(nth) => self.seats.get(&nth).map(|seat| (nth, seat)),
            Led::Editor | Led::Unclear => None,
        };
        let Some((nth, seat)) = seat else {
            // The editor's answer to it is its own.
            self.questions.remove(&id);
            let is_unclear = matches!(led, Led::Unclear);
            let marked = is_unclear.then(|| marked(message, &asked["toolCall"], MAY_HAVE_LED_TO));
            let marked = marked.flatten();
            return marked.map(|marked| self.editor_gets(&marked)).is_some();
        };
        if self
            .questions
            .get(&id)
            .is_some_and(|open| !open.is_answered)
        {
            // A second one under its id would be answered with the first.
            return true;
        }
        let agent = self.agent.unwrap_or(&Agent::UNKNOWN);
        let call = seat.calls.asked(&asked, agent);
        let is_shown = seat.is_left || !permission::is_ours(&call, agent);
        let marked = marked(message.clone(), &call, LED_TO);
        // Drivers compare ids as they are written.
        message.id = RawValue::from_string(id.clone()).ok();
        self.tell(nth, &message);
        if self.questions.len() >= QUESTIONS_MAX {
            self.questions.retain(|_, question| !question.is_answered);
        }
        let question = Question {
            nth,
            is_shown,
            is_answered: false,
            is_late: false,
            marked,
        };
        self.questions.insert(id.clone(), question);
        if is_shown {
            self.shows(|it, _| *it == id);
        }
        true
    }

    /// In whose turn this session asks. One that the editor does not know is a helper's.
    fn led(&self, session: Option<&str>) -> Led {
        let is_mails = |seat: &Seat| matches!(seat.turn, Some(Turn::Bus(_)));
        if let Some(nth) = self.seat_of(session) {
            return match self.seats.get(&nth).is_some_and(is_mails) {
                true => Led::Mail(nth),
                false => Led::Editor,
            };
        }
        let seats = self.seats.iter();
        let mut mails = seats
            .filter(|(_, seat)| is_mails(seat))
            .map(|(nth, _)| *nth);
        let Some(nth) = mails.next() else {
            return Led::Editor;
        };
        let is_own = |seat: &Seat| matches!(seat.turn, Some(Turn::Editor(_)));
        let is_unclear =
            mails.next().is_some() || self.editors.may_ask() || self.seats.values().any(is_own);
        match session.is_some_and(|session| self.editors.has(session)) {
            true => Led::Editor,
            false if is_unclear => Led::Unclear,
            false => Led::Mail(nth),
        }
    }

    /// The agent takes a question back. Whether the editor need not know.
    pub(super) fn agent_withdraws(&mut self, id: &str) -> bool {
        let Some(question) = self.questions.get(id) else {
            return false;
        };
        // The editor knows, and its answer is still to come.
        if question.is_answered {
            return true;
        }
        let (nth, is_shown) = (question.nth, question.is_shown);
        self.questions.remove(id);
        self.withdraw(Some(nth), id);
        !is_shown
    }

    /// The editor is asked these, too, if it was not yet.
    pub(super) fn shows(&mut self, is_it: impl Fn(&String, &Question) -> bool) {
        for (id, question) in &mut self.questions {
            if !question.is_answered
                && is_it(id, question)
                && let Some(marked) = question.marked.take()
            {
                question.is_shown = true;
                self.outs.push(Out::Editor(marked.line().into_bytes()));
            }
        }
    }

    /// Whether the editor is not asked something, because the driver is to answer it.
    pub(super) fn hides(&self) -> bool {
        self.questions.values().any(|question| !question.is_shown)
    }

    /// A while has passed. What a driver does not answer by itself is for the editor.
    pub(super) fn passed(&mut self) -> Vec<Out> {
        self.shows(|_, question| question.is_late);
        for question in self.questions.values_mut() {
            question.is_late = true;
        }
        take(&mut self.outs)
    }

    /// The first answer to a question counts.
    pub(super) fn editor_answers(&mut self, id: &str) -> bool {
        let Some(question) = self.questions.remove(id) else {
            return false;
        };
        if !question.is_answered {
            self.withdraw(Some(question.nth), id);
        }
        question.is_answered
    }

    /// Tells a driver, or the editor, that a question is answered.
    fn withdraw(&mut self, nth: Option<u64>, id: &str) {
        let id: Value = serde_json::from_str(id).unwrap_or_default();
        let told = RpcMessage::notification(WITHDRAW, &json!({ "requestId": id }));
        match nth {
            Some(nth) => self.tell(nth, &told),
            None => self.editor_gets(&told),
        }
    }

    pub(super) fn driver_answers(
        &mut self,
        nth: u64,
        id: &str,
        message: &RpcMessage,
    ) -> Option<()> {
        let question = self.questions.get_mut(id)?;
        if question.nth != nth || question.is_answered {
            return None;
        }
        question.is_answered = true;
        if question.is_shown {
            self.withdraw(None, id);
        } else {
            self.questions.remove(id);
        }
        self.agent_gets(message);
        Some(())
    }
}

/// A question that says what led to it, and that can be answered for once only.
fn marked(mut message: RpcMessage, call: &Value, why: &str) -> Option<RpcMessage> {
    let mut asked: Members = serde_json::from_str(message.params.as_ref()?.get()).ok()?;
    let known = asked.get("toolCall").map_or("{}", |known| known.get());
    let mut tool: Members = serde_json::from_str(known).unwrap_or_default();
    let title = call["title"].as_str();
    let title = title.unwrap_or_else(|| permission::tool(call));
    tool.insert("title".to_owned(), raw(&format!("{why}{title}"))?);
    asked.insert("toolCall".to_owned(), raw(&tool)?);
    let options = asked.get("options").map_or("[]", |options| options.get());
    let options: Vec<Value> = serde_json::from_str(options).unwrap_or_default();
    let once = options
        .into_iter()
        .filter(|it| it["kind"] != "allow_always");
    asked.insert("options".to_owned(), raw(&once.collect::<Vec<_>>())?);
    message.params = raw(&asked);
    Some(message)
}
