//! Which line goes where. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::mem::take;
use std::path::PathBuf;

use peerbus_adapter::agents::Agent;
use peerbus_wire::jsonrpc::{INVALID_REQUEST, RpcError, RpcMessage, raw};
use peerbus_wire::{escape, readable};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::WHY_CHARS;
use crate::acp::permission::Calls;
use crate::acp::{ELSEWHERE, NOT_ASKED, WITHDRAW};

/// Sessions that are peers; further ones work without the bus.
const SEATS_MAX: usize = 64;
/// Prompts of the editor's that wait in one session.
const HELD_MAX: usize = 64;
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
enum Hello {
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
    id: Option<String>,
    /// The editor's request that opens it, while the driver has not named its server.
    opens: Option<(Vec<u8>, RpcMessage)>,
    /// The ids of the requests that open it: the editor's and the driver's.
    opening: Option<(String, Box<RawValue>)>,
    /// The bus tools.
    server: Option<Box<RawValue>>,
    pub(super) turn: Option<Turn>,
    /// Prompts of the editor's that wait for the end of the turn.
    held: VecDeque<(Box<RawValue>, Vec<u8>)>,
    pub(super) calls: Calls,
}

/// A question of the agent's in a turn that mail began.
pub(super) struct Question {
    pub(super) nth: u64,
    /// The editor was asked, too.
    pub(super) is_shown: bool,
    /// The driver was faster.
    pub(super) is_answered: bool,
}

#[derive(Default)]
pub(super) struct Mux {
    /// What is known of the agent, if anything is.
    pub(super) agent: Option<&'static Agent>,
    hello: Hello,
    last: u64,
    pub(super) seats: BTreeMap<u64, Seat>,
    /// Requests of drivers at the agent, and under which id they know them.
    asked: BTreeMap<String, (u64, Box<RawValue>)>,
    pub(super) questions: BTreeMap<String, Question>,
    outs: Vec<Out>,
}

/// Reads a message as far as it is one.
fn read(line: &[u8]) -> Option<RpcMessage> {
    let text = String::from_utf8_lossy(line);
    RpcMessage::read(readable(&text).as_bytes()).ok()
}

pub(super) fn params<'a, T: Deserialize<'a> + Default>(message: &'a RpcMessage) -> T {
    let params = message.params.as_ref().map(|params| params.get());
    serde_json::from_str(params.unwrap_or_default()).unwrap_or_default()
}

fn text_of(id: &Option<Box<RawValue>>) -> Option<String> {
    id.as_ref().map(|id| id.get().to_owned())
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

    /// A driver has ended.
    pub(super) fn gone(&mut self, nth: u64) -> Vec<Out> {
        let opens = self.seats.get_mut(&nth).and_then(|seat| seat.opens.take());
        if let Some((line, _)) = opens {
            self.seats.remove(&nth);
            self.outs.push(Out::Agent(line));
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
    fn editor_says(&mut self, line: &[u8], message: RpcMessage) -> bool {
        let place: Place = params(&message);
        let nth = self.seat_of(place.resume.as_deref());
        let method = message.method.as_deref();
        match (method, text_of(&message.id), nth) {
            (Some("initialize"), Some(id), _) => self.hello = Hello::Asked(id),
            (
                Some("session/new" | "session/load" | "session/resume" | "session/fork"),
                Some(_),
                _,
            ) => return self.opens(line, message, place, nth),
            (Some("session/prompt"), Some(_), Some(nth)) => {
                return self.prompted(nth, line, message);
            }
            (Some("session/cancel"), None, Some(nth)) => self.cancelled(nth, |_| true),
            (Some(WITHDRAW), None, _) => {
                let told: Value = params(&message);
                let id = told["requestId"].to_string();
                let all: Vec<_> = self.seats.keys().copied().collect();
                for nth in all {
                    self.cancelled(nth, |held| held.get() == id);
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

    /// The editor opens a session. It waits until there is a driver that names its server.
    fn opens(&mut self, line: &[u8], message: RpcMessage, place: Place, nth: Option<u64>) -> bool {
        let copies = message.method.as_deref() == Some("session/fork");
        let known = nth.filter(|_| !copies).and_then(|nth| self.seats.get(&nth));
        if let Some(seat) = known {
            let server = seat.server.as_deref();
            let with = server.and_then(|server| with_server(message, server));
            return with.map(|with| self.agent_gets(&with)).is_some();
        }
        if !matches!(self.hello, Hello::Known(_)) {
            return false;
        }
        if self.seats.len() == SEATS_MAX {
            tracing::warn!("the editor has {SEATS_MAX} sessions: this one is not on the bus");
            return false;
        }
        self.last += 1;
        let seat = Seat {
            opens: Some((line.to_vec(), message)),
            ..Seat::default()
        };
        self.seats.insert(self.last, seat);
        self.outs.push(Out::Joins(self.last, place));
        true
    }

    /// A turn of the editor's begins, or waits.
    fn prompted(&mut self, nth: u64, line: &[u8], message: RpcMessage) -> bool {
        let Some((seat, id)) = self.seats.get_mut(&nth).zip(message.id) else {
            return false;
        };
        if seat.turn.is_none() {
            self.begins(nth, &id);
            return false;
        }
        if seat.held.len() == HELD_MAX {
            let why = RpcError::new(INVALID_REQUEST, "too many prompts wait in this session");
            self.editor_gets(&RpcMessage::response(id, &Err::<(), _>(why)));
            return true;
        }
        seat.held.push_back((id, line.to_vec()));
        true
    }

    /// A turn of the editor's begins.
    fn begins(&mut self, nth: u64, id: &RawValue) {
        if let Some(seat) = self.seats.get_mut(&nth) {
            seat.turn = Some(Turn::Editor(id.get().to_owned()));
        }
        let busy = json!({ "busy": true });
        self.tell(nth, &RpcMessage::notification(ELSEWHERE, &busy));
    }

    /// The agent is never asked for what waits under these ids.
    fn cancelled(&mut self, nth: u64, is_it: impl Fn(&RawValue) -> bool) {
        let held = self.seats.get_mut(&nth).map(|seat| take(&mut seat.held));
        let (over, left) = held.into_iter().flatten().partition(|(id, _)| is_it(id));
        if let Some(seat) = self.seats.get_mut(&nth) {
            seat.held = left;
        }
        let over: VecDeque<(Box<RawValue>, Vec<u8>)> = over;
        for (id, _) in over {
            let ended = json!({ "stopReason": "cancelled" });
            self.editor_gets(&RpcMessage::response(id, &Ok::<_, ()>(ended)));
        }
    }

    fn agent_says(&mut self, message: RpcMessage) -> bool {
        match (message.method.as_deref(), text_of(&message.id)) {
            (None, Some(id)) => return self.agent_answers(&id, message),
            (Some("session/request_permission"), Some(id)) => {
                return self.agent_asks(id, message);
            }
            (Some("session/update"), None) => {
                let told: Value = params(&message);
                if let Some(nth) = self.seat_of(told["sessionId"].as_str()) {
                    if let Some(seat) = self.seats.get_mut(&nth) {
                        seat.calls.note(&told["update"]);
                    }
                    self.tell(nth, &message);
                }
            }
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

    /// The agent opened a session, or did not.
    fn opened(&mut self, nth: u64, message: &RpcMessage) {
        let Some(seat) = self.seats.get_mut(&nth) else {
            return;
        };
        let opening = seat.opening.take();
        let answer = message.done().and_then(Result::ok);
        // A load names its session in the request.
        let said = answer.as_ref().map(|answer| answer["sessionId"].as_str());
        seat.id = said.and_then(|said| said.map(str::to_owned).or(seat.id.take()));
        match (&seat.id, opening) {
            (Some(id), Some((_, known))) => {
                let began = json!({ "sessionId": id });
                self.tell(nth, &RpcMessage::response(known, &Ok::<_, ()>(began)));
            }
            _ => {
                self.seats.remove(&nth);
                self.outs.push(Out::Leaves(nth));
            }
        }
    }

    /// The turn has ended, if it is that one. The next of the editor's begins.
    fn over(&mut self, nth: u64, is_it: impl Fn(&Turn) -> bool) {
        let Some(seat) = self.seats.get_mut(&nth) else {
            return;
        };
        if seat.turn.take_if(|turn| is_it(turn)).is_none() {
            return;
        }
        let next = seat.held.pop_front();
        // The editor's answer to one that the driver answered is still to come.
        let is_left = |question: &Question| question.nth != nth || question.is_answered;
        self.questions.retain(|_, question| is_left(question));
        if let Some((id, line)) = next {
            self.begins(nth, &id);
            self.outs.push(Out::Agent(line));
        }
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
            (None, Some(id)) => self.driver_answers(nth, id.get(), &message)?,
            _ => {}
        }
        Some(())
    }

    /// A driver has named its server: the editor's request leaves.
    fn joined(&mut self, nth: u64, id: Box<RawValue>, message: &RpcMessage) -> Option<()> {
        let named: Members = params(message);
        let servers = named.get("mcpServers")?.get();
        let server = serde_json::from_str::<Vec<Box<RawValue>>>(servers)
            .ok()?
            .pop()?;
        let seat = self.seats.get_mut(&nth)?;
        let (line, opens) = seat.opens.take()?;
        seat.opening = Some((text_of(&opens.id)?, id));
        let loads = opens.method.as_deref() != Some("session/fork");
        seat.id = params::<Place>(&opens).resume.filter(|_| loads);
        let with = with_server(opens, &server);
        seat.server = Some(server);
        match with {
            Some(with) => self.agent_gets(&with),
            None => self.outs.push(Out::Agent(line)),
        }
        Some(())
    }

    /// Mail begins a turn, where none is under way.
    fn bus_prompts(&mut self, nth: u64, id: Box<RawValue>, message: RpcMessage) -> Option<()> {
        let seat = self.seats.get(&nth)?;
        if seat.turn.is_some() {
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
        self.seats.get_mut(&nth)?.turn = Some(Turn::Bus(own));
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

/// A request that opens a session, with one more MCP server.
fn with_server(mut message: RpcMessage, server: &RawValue) -> Option<RpcMessage> {
    let mut place: Members = serde_json::from_str(message.params.as_ref()?.get()).ok()?;
    let servers = place.get("mcpServers").map(|servers| servers.get());
    let servers = serde_json::from_str::<Vec<Box<RawValue>>>(servers.unwrap_or("[]"));
    let mut servers = servers.ok()?;
    servers.push(server.to_owned());
    place.insert("mcpServers".to_owned(), raw(&servers)?);
    message.params = raw(&place);
    Some(message)
}
