//! Which line goes where. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::take;
use std::path::PathBuf;

use peerbus_adapter::agents::Agent;
use peerbus_wire::jsonrpc::{RpcError, RpcMessage};
use peerbus_wire::{escape, readable};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::WHY_CHARS;
use crate::acp::permission::Calls;
use crate::acp::{ELSEWHERE, NOT_ASKED, WITHDRAW};

/// What our requests at the agent are called. It stands in JSON.
const OWN: &str = "\"peerbus-";

/// What is to be done.
pub(super) enum Out {
    Editor(Vec<u8>),
    Agent(Vec<u8>),
    /// A line for the driver of a session.
    Driver(u64, String),
    /// A session has a driver from now on.
    Joins(u64, Place),
    /// It has none any more.
    Leaves(u64),
}

/// What an editor says of a session that it opens.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Place {
    pub(super) cwd: PathBuf,
    /// The session that it goes on with.
    #[serde(rename = "sessionId")]
    pub(super) resume: Option<String>,
}

/// The members of an object, as they were written.
pub(super) type Members = BTreeMap<String, Box<RawValue>>;

#[derive(Default)]
pub(super) enum Hello {
    /// The agent has not said who it is, or speaks another version: its sessions are no peers.
    #[default]
    Without,
    /// The editor asked under this id.
    Asked(String),
    /// What the agent answered.
    Known(Value),
}

pub(super) enum Turn {
    /// The editor's, under its id.
    Editor(String),
    /// One that the driver began, under ours.
    Bus(String),
}

#[derive(Default)]
pub(super) struct Seat {
    pub(super) id: Option<String>,
    /// The editor's request that opens it, while the driver has not named its server.
    pub(super) opens: Option<(Vec<u8>, RpcMessage)>,
    /// The ids of the requests that open it: the editor's and the driver's.
    pub(super) opening: Option<(String, Box<RawValue>)>,
    /// The bus tools.
    pub(super) server: Option<Box<RawValue>>,
    pub(super) turn: Option<Turn>,
    /// What the editor said that waits for the session or the end of the turn, in its order.
    pub(super) held: VecDeque<Held>,
    /// The editor's requests that load it once more, while the agent tells again what was.
    pub(super) loads: BTreeSet<String>,
    /// It was loaded in the turn of mail that is under way: nothing is known to be of the turn.
    pub(super) is_mixed: bool,
    /// Its driver has ended.
    pub(super) is_left: bool,
    pub(super) calls: Calls,
}

/// A line of the editor's that waits.
pub(super) struct Held {
    /// Of a prompt.
    pub(super) prompt: Option<Box<RawValue>>,
    pub(super) line: Vec<u8>,
}

/// A question of the agent's in a turn that mail began.
pub(super) struct Question {
    pub(super) nth: u64,
    /// The editor was asked, too.
    pub(super) is_shown: bool,
    /// The driver was faster.
    pub(super) is_answered: bool,
    /// The driver did not answer it at once.
    pub(super) is_late: bool,
    /// What the editor is to be asked, while it is not.
    pub(super) marked: Option<RpcMessage>,
}

#[derive(Default)]
pub(super) struct Mux {
    /// What is known of the agent, if anything is.
    pub(super) agent: Option<&'static Agent>,
    pub(super) hello: Hello,
    pub(super) last: u64,
    pub(super) seats: BTreeMap<u64, Seat>,
    /// Requests of drivers at the agent, and under which id they know them.
    asked: BTreeMap<String, (u64, Box<RawValue>)>,
    pub(super) questions: BTreeMap<String, Question>,
    /// The editor has closed its end: mail begins nothing any more.
    pub(super) is_over: bool,
    pub(super) outs: Vec<Out>,
}

/// Reads a message as far as it is one.
pub(super) fn read(line: &[u8]) -> Option<RpcMessage> {
    let text = String::from_utf8_lossy(line);
    RpcMessage::read(readable(&text).as_bytes()).ok()
}

pub(super) fn params<'a, T: Deserialize<'a> + Default>(message: &'a RpcMessage) -> T {
    let params = message.params.as_ref().map(|params| params.get());
    serde_json::from_str(params.unwrap_or_default()).unwrap_or_default()
}

/// An id, however it was written.
pub(super) fn text_of(id: &Option<Box<RawValue>>) -> Option<String> {
    id.as_ref().map(|id| same(id.get()))
}

/// The one way in which this id is written here.
pub(super) fn same(id: &str) -> String {
    let whole = |id: &Value| {
        let number = id.as_f64().filter(|it| it.fract() == 0.0);
        number.filter(|it| it.abs() < 9e15)
    };
    match serde_json::from_str::<Value>(id) {
        Ok(Value::Number(number)) => match whole(&number.clone().into()) {
            Some(whole) => format!("{whole:.0}"),
            None => id.to_owned(),
        },
        Ok(known) => known.to_string(),
        Err(_) => id.to_owned(),
    }
}

impl Mux {
    /// The way to this agent.
    pub(super) fn of(agent: &'static Agent) -> Self {
        Self {
            agent: Some(agent),
            ..Self::default()
        }
    }

    /// The editor's line.
    pub(super) fn editor(&mut self, line: &[u8]) -> Vec<Out> {
        let message = read(line);
        if !message.is_some_and(|message| self.editor_says(line, message)) {
            self.outs.push(Out::Agent(line.to_vec()));
        }
        take(&mut self.outs)
    }

    /// The agent's line.
    pub(super) fn agent(&mut self, line: &[u8]) -> Vec<Out> {
        let message = read(line);
        if !message.is_some_and(|message| self.agent_says(message)) {
            self.outs.push(Out::Editor(line.to_vec()));
        }
        take(&mut self.outs)
    }

    /// A driver's line.
    pub(super) fn driver(&mut self, nth: u64, line: &str) -> Vec<Out> {
        if let Some(message) = read(line.as_bytes()) {
            self.driver_says(nth, message);
        }
        take(&mut self.outs)
    }

    /// What ends the turns that are under way.
    pub(super) fn cancels(&self) -> Vec<Vec<u8>> {
        let busy = self.seats.values().filter(|seat| seat.turn.is_some());
        let cancel = |seat: &Seat| {
            let params = json!({ "sessionId": seat.id });
            RpcMessage::notification("session/cancel", &params).line()
        };
        busy.map(|seat| cancel(seat).into_bytes()).collect()
    }

    pub(super) fn seat_of(&self, id: Option<&str>) -> Option<u64> {
        let mut seats = self.seats.iter();
        let found = seats.find(|(_, seat)| id.is_some() && seat.id.as_deref() == id);
        found.map(|(nth, _)| *nth)
    }

    pub(super) fn agent_gets(&mut self, message: &RpcMessage) {
        self.outs.push(Out::Agent(message.line().into_bytes()));
    }

    pub(super) fn editor_gets(&mut self, message: &RpcMessage) {
        self.outs.push(Out::Editor(message.line().into_bytes()));
    }

    pub(super) fn tell(&mut self, nth: u64, message: &RpcMessage) {
        self.outs.push(Out::Driver(nth, message.text()));
    }

    /// Whether it is dealt with; what is not passes on.
    pub(super) fn editor_says(&mut self, line: &[u8], message: RpcMessage) -> bool {
        let place: Place = params(&message);
        let nth = self.seat_of(place.resume.as_deref());
        let method = message.method.as_deref();
        if let Some(nth) = nth.filter(|nth| self.waits(*nth, method)) {
            return self.hold(nth, line, message);
        }
        match (method, text_of(&message.id), nth) {
            (Some("initialize"), Some(id), _) => self.hello = Hello::Asked(id),
            (
                Some("session/new" | "session/load" | "session/resume" | "session/fork"),
                Some(_),
                _,
            ) => return self.opens(line, message, place, nth),
            (Some("session/prompt"), Some(id), Some(nth)) => self.begins(nth, id),
            (Some("session/cancel"), None, Some(nth)) => self.cancelled(nth, |_| true),
            (Some(WITHDRAW), None, _) => {
                let told: Value = params(&message);
                let id = same(&told["requestId"].to_string());
                let all: Vec<_> = self.seats.keys().copied().collect();
                for nth in all {
                    self.cancelled(nth, |held| same(held.get()) == id);
                }
            }
            (Some("session/close" | "session/delete"), Some(_), Some(nth)) => {
                self.cancelled(nth, |_| true);
                self.seats.remove(&nth);
                self.outs.push(Out::Leaves(nth));
            }
            (None, Some(id), _) => return self.editor_answers(&id),
            _ => {}
        }
        false
    }

    /// A turn of the editor's begins.
    fn begins(&mut self, nth: u64, id: String) {
        if let Some(seat) = self.seats.get_mut(&nth) {
            seat.turn = Some(Turn::Editor(id));
        }
        // What the editor did not answer by now it does not answer any more.
        let is_left = |question: &Question| question.nth != nth || !question.is_answered;
        self.questions.retain(|_, question| is_left(question));
        let busy = json!({ "busy": true });
        self.tell(nth, &RpcMessage::notification(ELSEWHERE, &busy));
    }

    fn agent_says(&mut self, message: RpcMessage) -> bool {
        match (message.method.as_deref(), text_of(&message.id)) {
            (None, Some(id)) => return self.agent_answers(&id, message),
            (Some("session/request_permission"), Some(id)) => {
                return self.agent_asks(id, message);
            }
            (Some("session/update"), None) => {
                let told: Value = params(&message);
                let nth = self.seat_of(told["sessionId"].as_str());
                let seat = nth.and_then(|nth| self.seats.get_mut(&nth));
                // What is told again shows nothing of a turn of mail's.
                if let Some(seat) = seat.filter(|seat| seat.loads.is_empty() && !seat.is_mixed) {
                    seat.calls.note(&told["update"]);
                    self.tell(nth.unwrap_or_default(), &message);
                }
            }
            // The editor's answer is to this.
            (Some(_), Some(id)) => drop(self.questions.remove(&id)),
            _ => {}
        }
        false
    }

    fn agent_answers(&mut self, id: &str, mut message: RpcMessage) -> bool {
        if let Some((nth, known)) = self.asked.remove(id) {
            message.id = Some(known);
            self.tell(nth, &message);
            self.over(nth, |turn| matches!(turn, Turn::Bus(own) if own == id));
            return true;
        }
        if id.starts_with(OWN) {
            return true;
        }
        if matches!(&self.hello, Hello::Asked(asked) if asked == id) {
            self.hello = greeted(&message);
        }
        for seat in self.seats.values_mut() {
            seat.loads.remove(id);
        }
        let is_opening = |seat: &Seat| seat.opening.as_ref().is_some_and(|it| it.0 == id);
        let is_turn =
            |seat: &Seat| matches!(&seat.turn, Some(Turn::Editor(editors)) if editors == id);
        let mut seats = self.seats.iter();
        let Some((&nth, seat)) = seats.find(|(_, seat)| is_opening(seat) || is_turn(seat)) else {
            return false;
        };
        if is_opening(seat) {
            self.opened(nth, &message);
        } else {
            let usage = message.done().and_then(Result::ok).unwrap_or_default();
            let idle = json!({ "busy": false, "usage": usage["usage"] });
            self.tell(nth, &RpcMessage::notification(ELSEWHERE, &idle));
            self.over(nth, |_| true);
        }
        false
    }

    /// The turn has ended, if it is that one. The next of the editor's begins.
    fn over(&mut self, nth: u64, is_it: impl Fn(&Turn) -> bool) {
        let Some(seat) = self.seats.get_mut(&nth) else {
            return;
        };
        if seat.turn.take_if(|turn| is_it(turn)).is_none() {
            return;
        }
        seat.is_mixed = false;
        // The editor's answer to one that the driver answered is still to come.
        let is_left = |question: &Question| question.nth != nth || question.is_answered;
        self.questions.retain(|_, question| is_left(question));
        self.release(nth);
    }

    fn driver_says(&mut self, nth: u64, message: RpcMessage) -> Option<()> {
        let method = message.method.clone();
        match (method.as_deref(), message.id.clone()) {
            (Some("initialize"), Some(id)) => {
                let Hello::Known(hello) = &self.hello else {
                    return None;
                };
                let can = json!({ "sessionCapabilities": { "resume": {} } });
                let hello = json!({ "protocolVersion": 1, "agentCapabilities": can,
                    "agentInfo": hello["agentInfo"] });
                self.tell(nth, &RpcMessage::response(id, &Ok::<_, ()>(hello)));
            }
            (Some("session/new" | "session/resume"), Some(id)) => self.joined(nth, id, &message)?,
            (Some("session/prompt"), Some(id)) => self.bus_prompts(nth, id, message)?,
            (Some("session/cancel"), None) => {
                self.seats.get(&nth)?.turn.as_ref()?;
                self.agent_gets(&message);
            }
            (Some(_), Some(id)) => {
                self.asks(nth, id, message);
            }
            (None, Some(id)) => self.driver_answers(nth, &same(id.get()), &message)?,
            _ => {}
        }
        Some(())
    }

    /// Mail begins a turn, where none is under way.
    fn bus_prompts(&mut self, nth: u64, id: Box<RawValue>, message: RpcMessage) -> Option<()> {
        let seat = self.seats.get(&nth)?;
        if seat.turn.is_some() || self.is_over {
            // The driver will be told that it goes on, and when it ends.
            let why = RpcError::new(NOT_ASKED, "another turn is under way");
            self.tell(nth, &RpcMessage::response(id, &Err::<(), _>(why)));
            return Some(());
        }
        let told: Value = params(&message);
        // Words between backticks are shown as they are; no line of a peer's begins with them.
        let text = told["prompt"][0]["text"].as_str().unwrap_or_default();
        let text = format!("```\n{text}\n```\n");
        let shown = json!({ "sessionId": seat.id, "update": {
            "sessionUpdate": "user_message_chunk", "content": { "type": "text", "text": text } } });
        self.editor_gets(&RpcMessage::notification("session/update", &shown));
        let own = self.asks(nth, id, message);
        let seat = self.seats.get_mut(&nth)?;
        seat.turn = Some(Turn::Bus(own));
        seat.is_mixed = !seat.loads.is_empty();
        Some(())
    }

    /// Asks the agent what a driver asks, under an id of ours.
    fn asks(&mut self, nth: u64, id: Box<RawValue>, mut message: RpcMessage) -> String {
        self.last += 1;
        let own = format!("{OWN}{}\"", self.last);
        message.id = RawValue::from_string(own.clone()).ok();
        self.asked.insert(own.clone(), (nth, id));
        self.agent_gets(&message);
        own
    }
}

/// What comes of the agent's answer to the greeting.
fn greeted(message: &RpcMessage) -> Hello {
    let answer = match message.done() {
        Some(Ok(answer)) => answer,
        // The editor may try another version.
        _ => return Hello::Without,
    };
    let version = &answer["protocolVersion"];
    // One agent says 2 and means 1.
    let is_one = *version == 1 || *version == 2 && answer["agentCapabilities"].is_object();
    if !is_one {
        let version = escape(&version.to_string(), WHY_CHARS);
        tracing::warn!("version {version} of ACP is not known here: its sessions are no peers");
        return Hello::Without;
    }
    Hello::Known(answer)
}
