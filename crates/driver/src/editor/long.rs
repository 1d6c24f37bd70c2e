//! Lines that are too long to be read: what their beginnings say. Pure.

use std::mem::take;

use peerbus_wire::jsonrpc::{INVALID_REQUEST, RpcError, RpcMessage};
use serde_json::json;
use serde_json::value::RawValue;

use super::mux::{Mux, Out, Turn, same};
use crate::acp::lines::cut;
use crate::process::LINE_MAX;

/// The id and the method of a message, where they stand before the member in which it is cut, and the
/// name of that.
fn head(line: &[u8]) -> (Option<Box<RawValue>>, Option<String>, String) {
    let line = String::from_utf8_lossy(line);
    let ([id, method], cut) = cut(&line, ["id", "method"]);
    let id = id.and_then(|id| RawValue::from_string(id.to_owned()).ok());
    let method = method.and_then(|method| serde_json::from_str(method).ok());
    (id, method, cut)
}

fn not_understood() -> String {
    format!("a line of more than {LINE_MAX} bytes cannot be understood")
}

impl Mux {
    /// Whether a line of the editor's passes on that begins like this. What it asks may begin a turn.
    pub(super) fn editor_long(&mut self, line: &[u8]) -> Result<(bool, Vec<Out>), String> {
        let (id, method, cut) = head(line);
        if method.is_some() || cut == "params" {
            let id = id.unwrap_or_default();
            let why = format!("a line of more than {LINE_MAX} bytes is not passed on");
            let why = RpcError::new(INVALID_REQUEST, why);
            self.editor_gets(&RpcMessage::response(id, &Err::<(), _>(why)));
            return Ok((false, take(&mut self.outs)));
        }
        if !matches!(&*cut, "result" | "error") {
            return Err(not_understood());
        }
        let is_dealt = id.is_some_and(|id| self.editor_answers(&same(id.get())));
        Ok((!is_dealt, take(&mut self.outs)))
    }

    /// The same of the agent's. What it answers may end a turn; what it tells does not.
    pub(super) fn agent_long(&mut self, line: &[u8]) -> Result<(bool, Vec<Out>), String> {
        let (id, method, _) = head(line);
        let method = method.ok_or_else(not_understood)?;
        let mut seats = self.seats.values();
        let is_mails = seats.any(|seat| matches!(seat.turn, Some(Turn::Bus(_))));
        if method != "session/request_permission" || !is_mails {
            return Ok((true, Vec::new()));
        }
        // Nobody could say what led to it.
        let id = id.ok_or_else(not_understood)?;
        let outcome = json!({ "outcome": { "outcome": "cancelled" } });
        self.agent_gets(&RpcMessage::response(id, &Ok::<_, ()>(outcome)));
        Ok((false, take(&mut self.outs)))
    }
}
