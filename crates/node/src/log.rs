//! What happened in a session, as its node keeps it: each event's kind, and where its text is.

use std::path::Path;
use std::sync::Arc;

use peerbus_core::events;

use crate::protocol::{EventKind, Kinds};

/// Where an event's text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// Here: its members as a JSON text.
    Kept(Box<str>),
    /// In a file of lines, in which it is read again.
    Line {
        /// The file.
        file: Arc<Path>,
        /// Where the line begins.
        at: u64,
        /// Its length in bytes.
        len: u32,
        /// Which of the events of that line.
        part: u32,
    },
}

impl Text {
    fn bytes(&self) -> usize {
        match self {
            Self::Kept(text) => text.len(),
            Self::Line { .. } => 0,
        }
    }
}

/// What a subscriber gets next.
pub type NextEvent<'a> = events::Next<&'a (EventKind, Text)>;

/// The last events; those whose texts stand in a file cost nothing of its bytes.
#[derive(Debug, Default)]
pub struct SessionLog(events::EventLog<(EventKind, Text)>);

impl SessionLog {
    /// Adds one. The oldest go where there is no room.
    pub fn push(&mut self, kind: EventKind, text: Text) {
        let bytes = text.bytes();
        self.0.push((kind, text), bytes);
    }

    /// So many happened that nobody can be told of.
    pub fn skip(&mut self, events: u64) {
        self.0.skip(events);
    }

    /// The number of the last one; 0: there was none.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.0.last()
    }

    /// What comes after the event `seq`, of these kinds.
    #[must_use]
    pub fn after(&self, seq: u64, kinds: Kinds) -> NextEvent<'_> {
        self.0.after(seq, |(kind, _)| kinds.has(*kind))
    }
}

/// The line of an event whose members are kept: for each subscriber it is copied, and not made anew.
pub(crate) fn line(members: &str, seq: u64) -> String {
    let open = members.strip_suffix('}').unwrap_or(members);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{open},\"seq\":{seq}}}}}\n"
    )
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
