//! Reads what transcripts grow by, for as long as somebody wants to know.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use peerbus_mcp::Desk;
use tokio::time::{Instant, sleep};

use super::{Evidence, Transcript};
use crate::session::{Places, Session};

/// The first pause between two looks, and the longest, while something may soon be seen.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// When nothing was found for so long, looks are rarer.
const SOON: Duration = Duration::from_secs(300);
/// When everything is proven, the turn that proved it ends soon: so long after it is one more look
/// at what the session does.
const PAUSE_AFTER: Duration = Duration::from_secs(1);
/// After so long the client says which session it resumes; a few looks, at growing distances, see
/// it even on a slow machine.
const PAUSE_START: Duration = Duration::from_millis(250);
const PAUSE_START_MAX: Duration = Duration::from_secs(1);
/// Between two looks at a session from which nothing is expected, in the long run.
const PAUSE_IDLE: Duration = Duration::from_secs(30);
/// When no transcript is there so long after something was to be seen, there is none.
const APPEARS_WITHIN: Duration = Duration::from_secs(10);
/// A transcript is looked at if it grew since shortly before the last look.
const GREW_WITHIN: Duration = Duration::from_secs(10);
/// How far back the first look at a transcript goes, in bytes: what was written between the push and the look.
const BACK: u64 = 256 * 1024;
/// Most that one look reads of a transcript, in bytes; the next goes on from there.
const LOOK_MAX: u64 = 4 << 20;
const PORTION: usize = 64 * 1024;
/// Transcripts that are looked at; one session has one, and another after `/clear`.
const FILES_MAX: usize = 64;
/// Files in a project that are looked through for those that grew.
const ENTRIES_MAX: usize = 4_096;

/// Tells the desk what the session does and what its transcript shows, until the session ends.
pub(crate) async fn watch(session: Session, desk: Desk) {
    desk.set_evidence(session.glance().places(&session).readable_in_time());
    let mut look = Look::default();
    let mut pause = PAUSE_START;
    let _last = LastLook(&session, &desk);
    loop {
        let glance = session.report(&desk);
        // What is pushed in a moment will stand behind what is there now.
        look.begin(&glance.places(&session));
        tokio::select! {
            () = desk.watching() => {
                while_watched(&session, &desk, &mut look).await;
                pause = PAUSE_AFTER;
            }
            () = session.stirred() => {}
            () = sleep(pause) => {
                pause = if pause < PAUSE_START_MAX { pause * 2 } else { PAUSE_IDLE };
            }
        }
    }
}

/// Whatever was not noticed of the session is, when it ends: it may be resumed under an id that it
/// has had for a moment.
struct LastLook<'a>(&'a Session, &'a Desk);

impl Drop for LastLook<'_> {
    fn drop(&mut self) {
        self.0.report(self.1);
    }
}

async fn while_watched(session: &Session, desk: &Desk, look: &mut Look) {
    let since = Instant::now();
    let (mut pause, mut hoped) = (PAUSE_MIN, since);
    loop {
        let marks = desk.watched();
        if marks.is_empty() {
            return;
        }
        let places = session.report(desk).places(session);
        let grown = look.look(&places, &marks, |evidence| match evidence {
            Evidence::Presented(mark) => desk.presented(&mark),
            Evidence::Answered(mark) => desk.answered(&mark),
        });
        if places.there() {
            desk.set_evidence(true);
        } else if since.elapsed() > APPEARS_WITHIN {
            desk.set_evidence(false);
        }
        if grown {
            (pause, hoped) = (PAUSE_MIN, Instant::now());
        }
        let rest = if hoped.elapsed() < SOON {
            pause
        } else {
            PAUSE_IDLE
        };
        tokio::select! {
            () = sleep(rest) => pause = (pause * 2).min(PAUSE_MAX),
            () = session.stirred() => (pause, hoped) = (PAUSE_MIN, Instant::now()),
            () = desk.unwatched() => {}
        }
    }
}

impl Places {
    /// Whether transcripts are, or can be expected, there. A project's first one is only written
    /// with its first turn.
    fn readable_in_time(&self) -> bool {
        let parent = |dir: &PathBuf| {
            dir.parent()
                .and_then(Path::parent)
                .is_some_and(Path::is_dir)
        };
        self.file.is_some()
            || self
                .directories
                .iter()
                .any(|dir| dir.is_dir() || parent(dir))
    }

    /// Whether the session's transcript is there, or any where the session's id is not known.
    fn there(&self) -> bool {
        let Some(id) = &self.id else {
            return self.files().next().is_some();
        };
        let name = format!("{id}.jsonl");
        let named = self.directories.iter().map(|dir| dir.join(&name));
        named.chain(self.file.clone()).any(|path| path.is_file())
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let entries = self
            .directories
            .iter()
            .flat_map(std::fs::read_dir)
            .flatten();
        let entries = entries
            .take(ENTRIES_MAX)
            .flatten()
            .map(|entry| entry.path());
        let transcripts = entries.filter(|path| path.extension().is_some_and(|e| e == "jsonl"));
        transcripts.chain(self.file.clone())
    }
}

/// How far each transcript was read.
#[derive(Debug, Default)]
struct Look {
    files: BTreeMap<PathBuf, Reading>,
    last: Option<SystemTime>,
}

#[derive(Debug)]
struct Reading {
    at: u64,
    transcript: Transcript,
}

impl Look {
    /// The transcripts that grew since the last look, with their lengths.
    fn grown(&mut self, places: &Places) -> Vec<(PathBuf, u64)> {
        let now = SystemTime::now();
        let since = self.last.replace(now).unwrap_or(now);
        let since = since.checked_sub(GREW_WITHIN).unwrap_or(since);
        let grew = |path: PathBuf| {
            let found = std::fs::metadata(&path).ok()?;
            let lately = found.modified().is_ok_and(|at| at >= since);
            (found.is_file() && lately).then_some((path, found.len()))
        };
        places.files().filter_map(grew).collect()
    }

    /// From now on only what is appended counts, and a little of what stands there.
    fn begin(&mut self, places: &Places) {
        *self = Self::default();
        for (path, length) in self.grown(places) {
            self.files.insert(path, Reading::near_end(length));
        }
    }

    /// Reads what was appended. Whether anything was.
    fn look(&mut self, places: &Places, marks: &[String], mut found: impl FnMut(Evidence)) -> bool {
        let mut grown = false;
        for (path, length) in self.grown(places) {
            let known = self.files.len();
            let reading = match self.files.entry(path.clone()) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(new) if known < FILES_MAX => {
                    new.insert(Reading::near_end(length))
                }
                std::collections::btree_map::Entry::Vacant(_) => continue,
            };
            if length < reading.at {
                // Another file under this name.
                *reading = Reading::near_end(length);
            }
            if length > reading.at {
                grown = true;
                if let Err(error) = reading.on(&path, marks, &mut found) {
                    tracing::debug!(%error, "a transcript cannot be read");
                }
            }
        }
        grown
    }
}

impl Reading {
    fn near_end(length: u64) -> Self {
        let at = length.saturating_sub(BACK);
        let transcript = if at > 0 {
            Transcript::in_mid_line()
        } else {
            Transcript::default()
        };
        Self { at, transcript }
    }

    /// Reads on from where it was.
    fn on(
        &mut self,
        path: &Path,
        marks: &[String],
        found: &mut impl FnMut(Evidence),
    ) -> io::Result<()> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(self.at))?;
        let mut rest = file.take(LOOK_MAX);
        let mut portion = vec![0; PORTION];
        loop {
            let read = rest.read(&mut portion)?;
            if read == 0 {
                return Ok(());
            }
            self.at += read as u64;
            self.transcript
                .feed(portion.get(..read).unwrap_or_default(), marks)
                .into_iter()
                .for_each(&mut *found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn places(dir: &Path) -> Places {
        Places {
            directories: vec![dir.to_owned()],
            ..Places::default()
        }
    }

    fn append(path: &Path, text: &str) {
        let file = File::options().create(true).append(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn seen(look: &mut Look, places: &Places) -> Vec<Evidence> {
        let mut found = Vec::new();
        look.look(places, &["pb-1-1".to_owned()], |evidence| {
            found.push(evidence)
        });
        found
    }

    const USER: &str =
        "{\"type\":\"user\",\"uuid\":\"1\",\"message\":{\"content\":\"[pb-1-1]\"}}\n";
    const ANSWER: &str =
        "{\"type\":\"assistant\",\"uuid\":\"2\",\"parentUuid\":\"1\",\"requestId\":\"r\"}\n";

    #[test]
    fn what_is_appended_is_read_once_in_whichever_transcript() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let (old, new) = (dir.path().join("old.jsonl"), dir.path().join("new.jsonl"));
        append(&old, "{}\n");
        append(&dir.path().join("notes.txt"), USER);
        let mut look = Look::default();
        look.begin(&places);
        assert_eq!(seen(&mut look, &places), []);
        // The session was cleared: it goes on in another file.
        append(&new, USER);
        assert_eq!(
            seen(&mut look, &places),
            [Evidence::Presented("pb-1-1".into())]
        );
        assert_eq!(seen(&mut look, &places), []);
        let (begin, end) = ANSWER.split_at(20);
        append(&new, begin);
        assert_eq!(seen(&mut look, &places), []);
        append(&new, end);
        assert_eq!(
            seen(&mut look, &places),
            [Evidence::Answered("pb-1-1".into())]
        );
    }

    #[test]
    fn the_first_look_goes_back_a_little_and_not_to_the_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let file = dir.path().join("s.jsonl");
        append(&file, USER);
        append(
            &file,
            &format!("{{\"x\":\"{}\"}}\n", "x".repeat(BACK as usize)),
        );
        let mut look = Look::default();
        look.begin(&places);
        assert_eq!(seen(&mut look, &places), []);
        append(&file, USER);
        let mut later = Look::default();
        assert_eq!(
            seen(&mut later, &places),
            [Evidence::Presented("pb-1-1".into())]
        );
    }

    #[test]
    fn what_grew_long_before_a_rare_look_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let file = dir.path().join("s.jsonl");
        let mut look = Look::default();
        look.begin(&places);
        look.last = SystemTime::now().checked_sub(Duration::from_secs(60));
        append(&file, USER);
        let at = SystemTime::now()
            .checked_sub(Duration::from_secs(50))
            .unwrap();
        File::options()
            .append(true)
            .open(&file)
            .unwrap()
            .set_modified(at)
            .unwrap();
        assert_eq!(
            seen(&mut look, &places),
            [Evidence::Presented("pb-1-1".into())]
        );
        append(&file, ANSWER);
        assert_eq!(
            seen(&mut look, &places),
            [Evidence::Answered("pb-1-1".into())]
        );
    }

    #[test]
    fn a_file_that_was_replaced_is_read_anew() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let file = dir.path().join("s.jsonl");
        append(&file, &"{}\n".repeat(1_000));
        let mut look = Look::default();
        look.begin(&places);
        seen(&mut look, &places);
        std::fs::write(&file, USER).unwrap();
        assert_eq!(
            seen(&mut look, &places),
            [Evidence::Presented("pb-1-1".into())]
        );
    }
}
