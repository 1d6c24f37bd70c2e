//! Questions in turns that mail began: the editor and the driver are asked, and the first answer counts.

use std::mem::take;

use peerbus_adapter::agents::Agent;
use peerbus_wire::jsonrpc::{RpcMessage, raw};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::mux::{Members, Mux, Out, Question, Seat, Turn, params};
use crate::acp::{WITHDRAW, permission};

/// Questions that are remembered.
const QUESTIONS_MAX: usize = 256;
/// What goes before the title.
const LED_TO: &str = "A message of a peer led to this: ";

impl Mux {
    /// The agent asks whether it may use a tool.
    pub(super) fn agent_asks(&mut self, id: String, mut message: RpcMessage) -> bool {
        let asked: Value = params(&message);
        // An unknown session is a helper of an open one.
        let is_mails = |seat: &Seat| matches!(seat.turn, Some(Turn::Bus(_)));
        let mut mails = self.seats.iter().filter(|(_, seat)| is_mails(seat));
        let nth = self.seat_of(asked["sessionId"].as_str());
        let nth = nth.or_else(|| mails.next().map(|(nth, _)| *nth));
        let seat = nth.and_then(|nth| Some((nth, self.seats.get(&nth)?)));
        let Some((nth, seat)) = seat.filter(|(_, seat)| is_mails(seat)) else {
            // The editor's answer to it is its own.
            self.questions.remove(&id);
            return false;
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
        let marked = marked(message.clone(), &call);
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
fn marked(mut message: RpcMessage, call: &Value) -> Option<RpcMessage> {
    let mut asked: Members = serde_json::from_str(message.params.as_ref()?.get()).ok()?;
    let known = asked.get("toolCall").map_or("{}", |known| known.get());
    let mut tool: Members = serde_json::from_str(known).unwrap_or_default();
    let title = call["title"].as_str();
    let title = title.unwrap_or_else(|| permission::tool(call));
    tool.insert("title".to_owned(), raw(&format!("{LED_TO}{title}"))?);
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
