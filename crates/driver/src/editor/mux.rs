//! Which line goes where. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::take;
use std::path::PathBuf;

use peerbus_adapter::agents::Agent;
use peerbus_wire::escape;
use peerbus_wire::jsonrpc::RpcMessage;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::own::Editors;
use crate::WHY_CHARS;
use crate::acp::calls::Calls;
use crate::acp::lines::{self, LONG, members, object};
use crate::acp::{ELSEWHERE, UNASKED, WITHDRAW};

/// Lines of the editor's that wait in one session, and the bytes of all.
pub(super) const HELD_MAX: usize = 64;
pub(super) const HELD_BYTES_MAX: usize = 64 << 20;

/// The steps to take.
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
#[derive(Default)]
pub(super) struct Place {
    pub(super) cwd: PathBuf,
    /// The session that it goes on with.
    pub(super) resume: Option<String>,
}

/// The members of an object, as they were written.
pub(super) type Members = BTreeMap<String, Box<RawValue>>;

#[derive(Default)]
pub(super) struct Hello {
    /// The editor asked under this id.
    asked: Option<String>,
    /// Who the agent says it is. `None`: it has not said so, or speaks another version. Its sessions are
    /// no peers.
    pub(super) known: Option<Value>,
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
    /// It is a copy of another one.
    pub(super) is_copy: bool,
    /// The id of the editor's request that closes it.
    pub(super) closing: Option<String>,
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
    /// What our requests at the agent begin with. It stands in JSON, and differs from that of another
    /// one of us.
    pub(super) own: String,
    pub(super) last: u64,
    /// What the editor said that waits for the answer to its greeting, in its order.
    early: VecDeque<Held>,
    pub(super) seats: BTreeMap<u64, Seat>,
    /// Requests of drivers at the agent, and under which id they know them.
    asked: BTreeMap<String, (u64, Box<RawValue>)>,
    pub(super) questions: BTreeMap<String, Question>,
    pub(super) editors: Editors,
    /// The editor has closed its end: mail begins nothing any more.
    pub(super) is_over: bool,
    pub(super) outs: Vec<Out>,
}

/// Reads a message as far as it is one.
pub(super) fn read(line: &[u8]) -> Option<RpcMessage> {
    lines::message(&String::from_utf8_lossy(line)).ok()
}

pub(super) fn params(message: &RpcMessage) -> &str {
    message.params.as_deref().map_or("", RawValue::get)
}

/// What the editor says where, as far as it can be read.
fn place(message: &RpcMessage) -> Place {
    let read = members(params(message), ["cwd", "sessionId"]);
    let [cwd, resume] = read.map(|text| serde_json::from_str::<String>(text?).ok());
    let cwd = cwd.unwrap_or_default().into();
    Place { cwd, resume }
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
            own: format!("\"peerbus-{}-", Uuid::new_v4().simple()),
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
        let is_it = |seat: &Seat| seat.id.as_deref() == id && seat.closing.is_none();
        let mut seats = self.seats.iter();
        let found = seats.find(|(_, seat)| id.is_some() && is_it(seat));
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
        let opens = matches!(
            message.method.as_deref(),
            Some("session/new" | "session/load" | "session/resume" | "session/fork")
        );
        // Before it is known whether its sessions are peers, none opens.
        let is_early = self.hello.asked.is_some() && self.hello.known.is_none();
        let is_behind = message.method.is_some() && !self.early.is_empty();
        let bytes: usize = self.early.iter().map(|held| held.line.len()).sum();
        let has_room = self.early.len() < HELD_MAX && bytes < HELD_BYTES_MAX;
        if is_early && (opens || is_behind) && has_room {
            let (prompt, line) = (None, line.to_vec());
            self.early.push_back(Held { prompt, line });
            return true;
        }
        let place = place(&message);
        self.editors.names(place.resume.as_deref());
        let nth = self.seat_of(place.resume.as_deref());
        let method = message.method.as_deref();
        if let Some(nth) = nth.filter(|nth| self.waits(*nth, method)) {
            return self.hold(nth, line, message);
        }
        match (method, text_of(&message.id), nth) {
            (Some("initialize"), Some(id), _) => self.hello.asked = Some(id),
            (Some(_), Some(_), _) if opens => return self.opens(line, message, place, nth),
            (Some("session/prompt"), Some(id), Some(nth)) => self.begins(nth, id),
            (Some("session/prompt"), Some(id), None) => self.editors.begins(id),
            (Some("session/cancel"), None, Some(nth)) => self.cancelled(nth, |_| true),
            (Some(WITHDRAW), None, _) => {
                let id = taken_back(&message);
                let all: Vec<_> = self.seats.keys().copied().collect();
                for nth in all {
                    self.cancelled(nth, |held| same(held.get()) == id);
                }
            }
            (Some("session/close" | "session/delete"), Some(_), Some(nth)) => {
                self.cancelled(nth, |_| true);
                if let Some(seat) = self.seats.get_mut(&nth) {
                    seat.closing = text_of(&message.id);
                }
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
        let busy = json!({ "busy": true });
        self.tell(nth, &RpcMessage::notification(ELSEWHERE, &busy));
    }

    fn agent_says(&mut self, message: RpcMessage) -> bool {
        match (message.method.as_deref(), text_of(&message.id)) {
            (None, Some(id)) => return self.agent_answers(&id, message),
            (Some("session/request_permission"), Some(id)) => {
                return self.agent_asks(id, message);
            }
            (Some(WITHDRAW), None) => return self.agent_withdraws(&taken_back(&message)),
            (Some("session/update"), None) => {
                let told = lines::update(message.params.as_deref());
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
        if id.starts_with(&self.own) {
            return true;
        }
        if self.hello.asked.take_if(|asked| asked == id).is_some() {
            self.greeted(&message);
            let early = take(&mut self.early);
            self.again(early);
        }
        self.editors.answered(id, &message);
        let loads = |seat: &mut Seat| seat.loads.remove(id);
        let mut seats = self.seats.iter_mut();
        if let Some((&nth, _)) = seats.find_map(|it| loads(it.1).then_some(it)) {
            // The rest of what it repeats may still come.
            let loaded = json!({ "loaded": true });
            self.tell(nth, &RpcMessage::notification(ELSEWHERE, &loaded));
        }
        let closes = |seat: &mut Seat| seat.closing.take_if(|it| it == id).is_some();
        let mut seats = self.seats.iter_mut();
        let closed = seats.find_map(|(nth, seat)| closes(seat).then_some(*nth));
        if let Some(nth) = closed.filter(|_| message.error.is_none()) {
            self.seats.remove(&nth);
            self.outs.push(Out::Leaves(nth));
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
            let usage = lines::answer(&message).and_then(Result::ok);
            let usage = usage.unwrap_or_default();
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
                let who = self.hello.known.as_ref()?;
                let can = json!({ "sessionCapabilities": { "resume": {} } });
                let hello = json!({ "protocolVersion": 1, "agentCapabilities": can,
                    "agentInfo": who });
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
        if seat.turn.is_some() || seat.closing.is_some() || self.is_over {
            // The driver will be told that it goes on, and when it ends.
            let unasked = json!({ "id": id });
            self.tell(nth, &RpcMessage::notification(UNASKED, &unasked));
            return Some(());
        }
        let told: Value = serde_json::from_str(params(&message)).unwrap_or_default();
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

    /// Takes the agent's answer to the greeting.
    fn greeted(&mut self, message: &RpcMessage) {
        // Where it refuses, the editor may try another version, and what is known stays so.
        let Some(Ok(answer)) = lines::answer(message) else {
            return;
        };
        let version = &answer["protocolVersion"];
        // One agent says 2 and means 1.
        let is_one = *version == 1 || *version == 2 && answer["agentCapabilities"].is_object();
        if !is_one {
            let version = escape(&version.to_string(), WHY_CHARS);
            tracing::warn!("version {version} of ACP is not known here: its sessions are no peers");
        }
        let info = &answer["agentInfo"];
        let who = || json!({ "name": info["name"], "version": info["version"] });
        self.hello.known = is_one.then(who);
    }

    /// Asks the agent what a driver asks, under an id of ours.
    fn asks(&mut self, nth: u64, id: Box<RawValue>, mut message: RpcMessage) -> String {
        self.last += 1;
        let own = format!("{}{}\"", self.own, self.last);
        message.id = RawValue::from_string(own.clone()).ok();
        self.asked.insert(own.clone(), (nth, id));
        self.agent_gets(&message);
        own
    }
}

/// The id of what is taken back.
fn taken_back(message: &RpcMessage) -> String {
    let told = object(Some(params(message)), LONG, ["requestId"]);
    same(&told["requestId"].to_string())
}
