//! What happened in a session: the last events, bounded. Subscribers read it, each at its own pace.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use crate::protocol::{Kind, Kinds};

/// Events that are kept.
pub const EVENTS_MAX: usize = 1_000;
/// Bytes of texts that are kept.
pub const BYTES_MAX: usize = 256 * 1024;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Events up to this one are gone: so many, of any kind.
    Gap {
        /// The last of them.
        seq: u64,
        /// How many.
        missed: u64,
    },
    /// This one.
    Event {
        /// Its number.
        seq: u64,
        /// Its kind.
        kind: Kind,
        /// Where its text is.
        text: Text,
    },
    /// Nothing: all up to this one was looked at.
    Nothing(u64),
}

/// The last events. They are numbered from 1.
#[derive(Debug, Default)]
pub struct Log {
    entries: VecDeque<(Kind, Text)>,
    last: u64,
    bytes: usize,
}

impl Log {
    /// Adds one. The oldest go where there is no room.
    pub fn push(&mut self, kind: Kind, text: Text) {
        self.bytes += text.bytes();
        self.entries.push_back((kind, text));
        self.last += 1;
        while self.entries.len() > EVENTS_MAX || self.bytes > BYTES_MAX {
            let Some((_, text)) = self.entries.pop_front() else {
                return;
            };
            self.bytes -= text.bytes();
        }
    }

    /// So many happened that nobody can be told of.
    pub fn skip(&mut self, events: u64) {
        if events > 0 {
            self.entries.clear();
            self.bytes = 0;
            self.last += events;
        }
    }

    /// The number of the last one; 0: there was none.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// What comes after the event `seq`.
    #[must_use]
    pub fn after(&self, seq: u64, kinds: Kinds) -> Next {
        let gone = self.last - self.entries.len() as u64;
        if seq < gone {
            let missed = gone - seq;
            return Next::Gap { seq: gone, missed };
        }
        let from = usize::try_from(seq - gone).unwrap_or(usize::MAX);
        let mut rest = (seq + 1..).zip(self.entries.iter().skip(from));
        match rest.find(|(_, (kind, _))| kinds.has(*kind)) {
            Some((seq, (kind, text))) => Next::Event {
                seq,
                kind: *kind,
                text: text.clone(),
            },
            None => Next::Nothing(self.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> Text {
        Text::Kept(text.into())
    }

    fn with(events: usize) -> Log {
        let mut log = Log::default();
        for _ in 0..events {
            log.push(Kind::Status, kept("{}"));
        }
        log
    }

    #[test]
    fn the_last_thousand_are_kept_and_a_gap_says_what_is_missing() {
        let log = with(EVENTS_MAX);
        assert!(matches!(
            log.after(0, Kinds::ALL),
            Next::Event { seq: 1, .. }
        ));
        let log = with(EVENTS_MAX + 7);
        assert_eq!(log.after(3, Kinds::ALL), Next::Gap { seq: 7, missed: 4 });
        assert!(matches!(
            log.after(7, Kinds::ALL),
            Next::Event { seq: 8, .. }
        ));
        let last = log.last();
        assert_eq!(log.after(last, Kinds::ALL), Next::Nothing(last));
    }

    #[test]
    fn what_was_not_asked_for_is_passed_over() {
        let mut log = with(3);
        log.push(Kind::Bus, kept("b"));
        log.push(Kind::Status, kept("s"));
        let kinds = bus();
        let next = log.after(0, kinds);
        let text = kept("b");
        let kind = Kind::Bus;
        assert_eq!(next, Next::Event { seq: 4, kind, text });
        assert_eq!(log.after(4, kinds), Next::Nothing(5));
    }

    fn bus() -> Kinds {
        let line = r#"{"jsonrpc":"2.0","method":"session/subscribe","params":{"events":["bus"]}}"#;
        let request = crate::protocol::read(line.as_bytes(), None).unwrap();
        match request.unwrap().call {
            Ok(crate::protocol::Call::Subscribe { kinds, .. }) => kinds,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn texts_that_are_kept_are_bounded_and_lines_of_a_file_cost_none_of_that() {
        let mut log = Log::default();
        let long = "x".repeat(BYTES_MAX / 2);
        for _ in 0..3 {
            log.push(Kind::Bus, kept(&long));
        }
        assert_eq!(log.after(0, Kinds::ALL), Next::Gap { seq: 1, missed: 1 });
        let mut log = Log::default();
        for at in 0..EVENTS_MAX as u64 {
            let file = Path::new("/t.jsonl").into();
            let (len, part) = (u32::MAX, 0);
            let line = Text::Line {
                file,
                at,
                len,
                part,
            };
            log.push(Kind::Message, line);
        }
        assert_eq!(log.bytes, 0);
        assert_eq!(log.entries.len(), EVENTS_MAX);
    }

    #[test]
    fn what_nobody_can_be_told_of_is_a_gap() {
        let mut log = with(3);
        log.skip(5);
        log.push(Kind::Status, kept("{}"));
        assert_eq!(log.after(2, Kinds::ALL), Next::Gap { seq: 8, missed: 6 });
        assert!(matches!(
            log.after(8, Kinds::ALL),
            Next::Event { seq: 9, .. }
        ));
    }
}
