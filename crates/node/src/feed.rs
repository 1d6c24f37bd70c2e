//! Events from a conversation that its client keeps in files of lines. Only where an event stands is
//! kept; its text is read again for whoever wants it.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use peerbus_adapter::mailbox::Snapshot;
use peerbus_os::file::open_regular;
use serde_json::Value;

use crate::log::{Place, SessionLog, Text};
use crate::protocol::EventKind;

/// Most that one look reads, in bytes. What was written besides since the last look is passed over.
const LOOK_MAX: u64 = 4 << 20;
/// How far back the first look at a file goes, in bytes.
const BACK: u64 = 256 * 1024;
/// Files of which it is known how far they were read: one session has one, and others after it was
/// cleared or resumed.
const FILES_MAX: usize = 8;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedEvent {
    /// What kind of thing.
    pub kind: EventKind,
    /// The session's id, where the place tells in which this was found.
    pub session_id: Option<String>,
    /// When, as RFC 3339 in UTC, likewise.
    pub timestamp: Option<String>,
    /// What else is to be said of it.
    pub members: Value,
}

/// Finds a file by what is known of the session.
type Find = Box<dyn Fn(&Snapshot) -> Option<PathBuf> + Send>;

/// How a client keeps a conversation.
pub struct Transcript {
    /// The file in which the session's conversation stands, by what is known of the session.
    pub find: Find,
    /// The events that a line tells of, in order. A line is read as often as somebody asks.
    pub read: fn(&str) -> Vec<FeedEvent>,
}

/// Reads a transcript as it grows.
pub(crate) struct Feed {
    transcript: Option<Transcript>,
    /// Older lines are not this node's.
    began: String,
    files: Vec<Reading>,
}

struct Reading {
    path: Arc<Path>,
    at: u64,
    /// It stands within a line of which the beginning is not known.
    skipping: bool,
}

impl Feed {
    pub(crate) fn new(transcript: Option<Transcript>, began: String) -> Self {
        Self {
            transcript,
            began,
            files: Vec::new(),
        }
    }

    /// Notes what was written since the last look.
    pub(crate) fn look(&mut self, session: &Snapshot, log: &mut SessionLog) {
        let Some(transcript) = &self.transcript else {
            return;
        };
        let read = transcript.read;
        let Some(path) = (transcript.find)(session) else {
            return;
        };
        let opened = open_regular(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (len, file) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::InvalidInput => return,
            // All that will stand there is new.
            Err(_) => {
                self.reading(&path, 0);
                return;
            }
        };
        let index = self.reading(&path, len);
        let Some(reading) = self.files.get_mut(index) else {
            return;
        };
        if len < reading.at {
            // Another file under this name.
            (reading.at, reading.skipping) = near_end(len);
        }
        if len - reading.at > LOOK_MAX {
            reading.at = len - LOOK_MAX;
            reading.skipping = true;
            log.skip(1);
        }
        reading.on(&file, len, read, &self.began, log);
    }

    fn reading(&mut self, path: &Path, len: u64) -> usize {
        if let Some(known) = self.files.iter().position(|file| *file.path == *path) {
            return known;
        }
        if self.files.len() >= FILES_MAX {
            self.files.remove(0);
        }
        let (at, skipping) = near_end(len);
        self.files.push(Reading {
            path: path.into(),
            at,
            skipping,
        });
        self.files.len() - 1
    }

    /// What is said of an event of a line; `None` where it cannot be read any more.
    pub(crate) fn again(&self, place: &Place) -> Option<FeedEvent> {
        let transcript = self.transcript.as_ref()?;
        let mut line = vec![0; place.len as usize];
        let file = open_regular(&place.file).ok()?;
        file.read_exact_at(&mut line, place.at).ok()?;
        let mut events = (transcript.read)(std::str::from_utf8(&line).ok()?).into_iter();
        events.nth(place.part as usize)
    }
}

fn near_end(len: u64) -> (u64, bool) {
    let at = len.saturating_sub(BACK);
    (at, at > 0)
}

impl Reading {
    fn on(
        &mut self,
        file: &File,
        len: u64,
        read: fn(&str) -> Vec<FeedEvent>,
        began: &str,
        log: &mut SessionLog,
    ) {
        // At most LOOK_MAX.
        let size = usize::try_from(len - self.at).unwrap_or_default();
        let mut bytes = vec![0; size];
        if size == 0 || file.read_exact_at(&mut bytes, self.at).is_err() {
            return;
        }
        let mut rest = bytes.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            let at = self.at;
            self.at += end as u64 + 1;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            let events = std::str::from_utf8(line).map(read).unwrap_or_default();
            for (part, event) in (0..).zip(events) {
                let old = event.timestamp.as_deref().is_some_and(|then| then < began);
                if !old {
                    let place = Place {
                        file: Arc::clone(&self.path),
                        at,
                        len: u32::try_from(end).unwrap_or_default(),
                        part,
                    };
                    log.push((event.kind, Text::Line(place)), 0);
                }
            }
        }
        if rest.len() as u64 >= LOOK_MAX {
            // A line that no look can hold.
            self.at = len;
            self.skipping = true;
            log.skip(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;
    use peerbus_core::events::Next;

    fn read(line: &str) -> Vec<FeedEvent> {
        let (timestamp, words) = line.split_once(' ').unwrap_or_default();
        let event = |word: &str| FeedEvent {
            kind: EventKind::Message,
            session_id: None,
            timestamp: Some(timestamp.to_owned()),
            members: json!({ "content": word }),
        };
        words.split(' ').map(event).collect()
    }

    struct Rig {
        feed: Feed,
        log: SessionLog,
        file: tempfile::NamedTempFile,
    }

    fn rig(before: &str) -> Rig {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(before.as_bytes()).unwrap();
        let path = file.path().to_owned();
        let transcript = Transcript {
            find: Box::new(move |_| Some(path.clone())),
            read,
        };
        Rig {
            feed: Feed::new(Some(transcript), "2026".into()),
            log: SessionLog::default(),
            file,
        }
    }

    impl Rig {
        fn look(&mut self, more: &str) {
            self.file.write_all(more.as_bytes()).unwrap();
            self.feed.look(&Snapshot::default(), &mut self.log);
        }

        /// What the log has, as words; a gap as its length.
        fn words(&self) -> Vec<String> {
            let (mut at, mut words) = (0, Vec::new());
            loop {
                match self.log.after(at, |_| true) {
                    Next::Nothing(_) => return words,
                    Next::Gap { seq, missed } => {
                        at = seq;
                        words.push(format!("gap {missed}"));
                    }
                    Next::Event {
                        seq,
                        event: (_, text),
                    } => {
                        at = seq;
                        let Text::Line(place) = text else {
                            panic!("{text:?}");
                        };
                        let event = self.feed.again(place);
                        let word = event.map(|event| event.members["content"].to_string());
                        words.push(word.unwrap_or("lost".into()));
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_appended_is_told_once_however_it_is_cut() {
        let mut rig = rig("2025-12-31 old\n2026-01-01 a b\n");
        rig.look("");
        rig.look("2026-01-02 c\n2026-01-0");
        rig.look("");
        rig.look("3 d\n");
        assert_eq!(rig.words(), [r#""a""#, r#""b""#, r#""c""#, r#""d""#]);
        rig.file.as_file().set_len(0).unwrap();
        rig.look("");
        assert_eq!(rig.words(), ["lost", "lost", "lost", "lost"]);
    }

    #[test]
    fn a_pipe_in_the_place_of_a_transcript_holds_nobody_up() {
        let mut rig = rig("");
        rig.look("2026-01-01 a\n");
        let path = rig.file.path();
        std::fs::remove_file(path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
        rig.look("");
        assert_eq!(rig.words(), ["lost"]);
    }

    #[test]
    fn what_no_look_can_hold_is_a_gap() {
        let mut rig = rig("");
        rig.look("2026-01-01 a\n");
        let line = format!("2026-01-02 {}\n", "x".repeat(1 << 20));
        rig.look(&line.repeat(6));
        let words = rig.words();
        assert_eq!(words[0], "gap 2");
        assert!(words.len() < 6, "{}", words.len());
        rig.look(&"y".repeat(5 << 20));
        rig.look("\n2026-01-03 b\n");
        assert_eq!(rig.words().last().unwrap(), r#""b""#);
    }
}
