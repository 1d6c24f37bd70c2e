//! What happened in a session, as its node keeps it: each event's kind, and where its text is.

use std::path::Path;
use std::sync::Arc;

use peerbus_adapter::mailbox::Staged;
use peerbus_core::events::EventLog;
use peerbus_view::Words;
use serde_json::{Value, json};

use crate::protocol::EventKind;

/// Where an event's text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Text {
    /// Here: its members as a JSON text.
    Kept(Box<str>),
    /// In a file of lines, in which it is read again.
    Line(Place),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: Arc<Path>,
    pub(crate) at: u64,
    /// Its length in bytes.
    pub(crate) len: u32,
    /// Which of the events of that line.
    pub(crate) part: u32,
}

/// The last events; those whose texts stand in a file cost nothing of its bytes.
pub(crate) type SessionLog = EventLog<(EventKind, Text)>;

/// The line of an event whose members are kept: for each subscriber it is copied, and not made anew.
pub(crate) fn line(members: &str, seq: u64) -> String {
    let open = members.strip_suffix('}').unwrap_or(members);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{open},\"seq\":{seq}}}}}\n"
    )
}

/// How far a message is, as an event says it.
pub(crate) fn bus(staged: &Staged) -> Value {
    let words = Words::of(&staged.stage);
    let stage = match words.evidence {
        Some(_) => "seen",
        None => staged.stage.word(),
    };
    let mut event = json!({ "id": staged.id, "stage": stage });
    let peer = if staged.sent { "to" } else { "from" };
    for (name, text) in [
        (peer, staged.peer.as_deref()),
        ("path", words.path),
        ("evidence", words.evidence),
        ("reason", words.reason),
    ] {
        if let Some(text) = text {
            event[name] = text.into();
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::event;

    #[test]
    fn a_line_that_is_copied_says_what_one_does_that_is_made() {
        let mut members = json!({ "type": "bus", "id": "a\"}\n", "session_id": "s" });
        let copied = line(&members.to_string(), 7);
        members["seq"] = 7.into();
        assert!(copied.ends_with('\n') && copied.lines().count() == 1);
        let read = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        assert_eq!(read(&copied), read(&event(&members)));
    }
}
