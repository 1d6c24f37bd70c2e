//! Lines that are too long to be read: what their beginnings say. Pure.

use std::fmt;
use std::mem::take;

use peerbus_wire::jsonrpc::{INVALID_REQUEST, RpcError, RpcMessage};
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::json;
use serde_json::value::RawValue;

use super::mux::{Members, Mux, Out, Turn, same};
use crate::process::LINE_MAX;

/// The members of a message before the one in which it is cut.
#[derive(Default)]
struct Head {
    members: Members,
    /// The member that is cut.
    cut: String,
}

impl Head {
    fn of(line: &[u8]) -> Self {
        let mut head = Self::default();
        // It fails where the line is cut.
        let _ = serde_json::Deserializer::from_slice(line).deserialize_map(&mut head);
        head
    }

    fn id(&self) -> Option<Box<RawValue>> {
        self.members.get("id").cloned()
    }

    fn method(&self) -> Option<String> {
        serde_json::from_str(self.members.get("method")?.get()).ok()
    }
}

impl<'de> Visitor<'de> for &mut Head {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            self.cut.clone_from(&name);
            self.members.insert(name, map.next_value()?);
        }
        Ok(())
    }
}

fn not_understood() -> String {
    format!("a line of more than {LINE_MAX} bytes cannot be understood")
}

impl Mux {
    /// Whether a line of the editor's passes on that begins like this. What it asks may begin a turn.
    pub(super) fn editor_long(&mut self, line: &[u8]) -> Result<(bool, Vec<Out>), String> {
        let head = Head::of(line);
        if head.method().is_some() || head.cut == "params" {
            let id = head.id().unwrap_or_default();
            let why = format!("a line of more than {LINE_MAX} bytes is not passed on");
            let why = RpcError::new(INVALID_REQUEST, why);
            self.editor_gets(&RpcMessage::response(id, &Err::<(), _>(why)));
            return Ok((false, take(&mut self.outs)));
        }
        if !matches!(&*head.cut, "result" | "error") {
            return Err(not_understood());
        }
        let is_dealt = head
            .id()
            .is_some_and(|id| self.editor_answers(&same(id.get())));
        Ok((!is_dealt, take(&mut self.outs)))
    }

    /// The same of the agent's. What it answers may end a turn; what it tells does not.
    pub(super) fn agent_long(&mut self, line: &[u8]) -> Result<(bool, Vec<Out>), String> {
        let head = Head::of(line);
        let method = head.method().ok_or_else(not_understood)?;
        let mut seats = self.seats.values();
        let is_mails = seats.any(|seat| matches!(seat.turn, Some(Turn::Bus(_))));
        if method != "session/request_permission" || !is_mails {
            return Ok((true, Vec::new()));
        }
        // Nobody could say what led to it.
        let id = head.id().ok_or_else(not_understood)?;
        let outcome = json!({ "outcome": { "outcome": "cancelled" } });
        self.agent_gets(&RpcMessage::response(id, &Ok::<_, ()>(outcome)));
        Ok((false, take(&mut self.outs)))
    }
}
