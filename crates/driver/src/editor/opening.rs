//! Sessions that open, and what the editor says of one that waits. Pure.

use std::collections::VecDeque;
use std::mem::take;

use peerbus_wire::jsonrpc::{INVALID_REQUEST, RpcError, RpcMessage, raw};
use serde_json::json;
use serde_json::value::RawValue;

use super::mux::{
    HELD_BYTES_MAX, HELD_MAX, Held, Members, Mux, Out, Place, Seat, Turn, params, read, text_of,
};
use crate::acp::lines::{self, members};
use crate::acp::{ELSEWHERE, WITHDRAW};

/// Sessions that are peers; further ones work without the bus.
const SEATS_MAX: usize = 64;

impl Mux {
    /// A driver has ended.
    pub(super) fn gone(&mut self, nth: u64) -> Vec<Out> {
        self.shows(|_, question| question.nth == nth);
        let opens = self.seats.get_mut(&nth).and_then(|seat| {
            seat.is_left = true;
            seat.opens.take()
        });
        if let Some((line, _)) = opens {
            self.outs.push(Out::Agent(line));
            self.leaves(nth);
        }
        take(&mut self.outs)
    }

    /// A session has no driver any more. What waited for it does not wait.
    pub(super) fn leaves(&mut self, nth: u64) {
        if let Some(seat) = self.seats.remove(&nth) {
            self.again(seat.held);
        }
    }

    /// The editor opens a session. It waits until there is a driver that names its server.
    pub(super) fn opens(
        &mut self,
        line: &[u8],
        message: RpcMessage,
        place: Place,
        nth: Option<u64>,
    ) -> bool {
        // A new one and a copy have nothing of what a session was that they name.
        let goes_on = matches!(
            message.method.as_deref(),
            Some("session/load" | "session/resume")
        );
        let resume = place.resume.filter(|_| goes_on);
        let place = Place { resume, ..place };
        let known = nth.filter(|_| goes_on);
        if let Some(seat) = known.and_then(|nth| self.seats.get_mut(&nth)) {
            seat.loads.extend(text_of(&message.id));
            seat.is_mixed = matches!(seat.turn, Some(Turn::Bus(_)));
            let server = seat.server.as_deref();
            let with = server.and_then(|server| with_server(message, server));
            return with.map(|with| self.agent_gets(&with)).is_some();
        }
        if self.hello.known.is_none() {
            return false;
        }
        if self.seats.len() == SEATS_MAX {
            tracing::warn!("the editor has {SEATS_MAX} sessions: this one is not on the bus");
            return false;
        }
        self.last += 1;
        let is_copy = message.method.as_deref() == Some("session/fork");
        let seat = Seat {
            is_copy,
            id: place.resume.clone(),
            opens: Some((line.to_vec(), message)),
            ..Seat::default()
        };
        self.seats.insert(self.last, seat);
        self.outs.push(Out::Joins(self.last, place));
        true
    }

    /// A driver has named its server: the editor's request leaves.
    pub(super) fn joined(
        &mut self,
        nth: u64,
        id: Box<RawValue>,
        message: &RpcMessage,
    ) -> Option<()> {
        let [servers] = members(params(message), ["mcpServers"]);
        let servers = servers?;
        let server = serde_json::from_str::<Vec<Box<RawValue>>>(servers)
            .ok()?
            .pop()?;
        let seat = self.seats.get_mut(&nth)?;
        let (line, opens) = seat.opens.take()?;
        seat.opening = Some((text_of(&opens.id)?, id));
        let with = with_server(opens, &server);
        seat.server = Some(server);
        match with {
            Some(with) => self.agent_gets(&with),
            None => self.outs.push(Out::Agent(line)),
        }
        self.release(nth);
        Some(())
    }

    /// The agent opened a session, or did not.
    pub(super) fn opened(&mut self, nth: u64, message: &RpcMessage) {
        let Some(seat) = self.seats.get_mut(&nth) else {
            return;
        };
        let opening = seat.opening.take();
        let answer = lines::answer(message).and_then(Result::ok);
        // A load names its session in the request.
        let said = answer.as_ref().map(|answer| answer["sessionId"].as_str());
        let id = said.and_then(|said| said.map(str::to_owned).or(seat.id.take()));
        // Another peer of this id has it.
        seat.id = None;
        let id = id.filter(|id| self.seat_of(Some(id)).is_none());
        match (id, opening, self.seats.get_mut(&nth)) {
            (Some(id), Some((_, known)), Some(seat)) => {
                let began = json!({ "sessionId": id });
                seat.id = Some(id);
                let is_copy = seat.is_copy;
                self.tell(nth, &RpcMessage::response(known, &Ok::<_, ()>(began)));
                if is_copy {
                    // What it used before is not known.
                    let idle = json!({ "busy": false });
                    self.tell(nth, &RpcMessage::notification(ELSEWHERE, &idle));
                }
            }
            _ => {
                self.leaves(nth);
                self.outs.push(Out::Leaves(nth));
            }
        }
    }

    /// Whether what the editor says of a session waits behind what waits already.
    pub(super) fn waits(&self, nth: u64, method: Option<&str>) -> bool {
        let Some(seat) = self.seats.get(&nth) else {
            return false;
        };
        let is_behind = seat.opens.is_some() || !seat.held.is_empty();
        match method {
            None | Some("session/cancel" | WITHDRAW) => false,
            Some("session/close" | "session/delete") => seat.opens.is_some(),
            Some("session/prompt") => is_behind || seat.turn.is_some(),
            Some(_) => is_behind,
        }
    }

    /// A line of the editor's waits.
    pub(super) fn hold(&mut self, nth: u64, line: &[u8], message: RpcMessage) -> bool {
        let all = self.seats.values().flat_map(|seat| &seat.held);
        let bytes: usize = all.map(|held| held.line.len()).sum();
        let Some(seat) = self.seats.get_mut(&nth) else {
            return false;
        };
        // However long it is, one may wait.
        let has_room = bytes == 0 || bytes + line.len() <= HELD_BYTES_MAX;
        if seat.held.len() < HELD_MAX && has_room {
            let is_prompt = message.method.as_deref() == Some("session/prompt");
            let prompt = message.id.filter(|_| is_prompt);
            let line = line.to_vec();
            seat.held.push_back(Held { prompt, line });
        } else if let Some(id) = message.id {
            let why = RpcError::new(INVALID_REQUEST, "too much waits in this session");
            self.editor_gets(&RpcMessage::response(id, &Err::<(), _>(why)));
        } else {
            tracing::warn!("too much waits in a session: a notification of the editor's is lost");
        }
        true
    }

    /// What waited in a session goes on, as far as it can.
    pub(super) fn release(&mut self, nth: u64) {
        let seat = self.seats.get_mut(&nth);
        let seat = seat.filter(|seat| seat.opens.is_none());
        let held = seat.map(|seat| take(&mut seat.held));
        self.again(held.unwrap_or_default());
    }

    pub(super) fn again(&mut self, held: VecDeque<Held>) {
        for Held { line, .. } in held {
            let message = read(&line);
            if !message.is_some_and(|message| self.editor_says(&line, message)) {
                self.outs.push(Out::Agent(line));
            }
        }
    }

    /// The agent is never asked for what waits under these ids.
    pub(super) fn cancelled(&mut self, nth: u64, is_it: impl Fn(&RawValue) -> bool) {
        let Some(seat) = self.seats.get_mut(&nth) else {
            return;
        };
        for held in take(&mut seat.held) {
            match held.prompt {
                Some(id) if is_it(&id) => {
                    let ended = json!({ "stopReason": "cancelled" });
                    let ended = RpcMessage::response(id, &Ok::<_, ()>(ended));
                    self.outs.push(Out::Editor(ended.line().into_bytes()));
                }
                _ => seat.held.push_back(held),
            }
        }
        self.release(nth);
    }
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
