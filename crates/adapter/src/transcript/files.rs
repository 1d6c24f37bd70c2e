//! Reads what transcripts grow by, for as long as somebody wants to know.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Found, LineReader, TranscriptReader};
use crate::mailbox::{Evidence, EvidenceSource, Readable, Snapshot};

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

/// Where transcripts of a session can be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The session's id: its transcript's name in a directory, before `.jsonl`.
    pub id: Option<String>,
    /// Directories of transcripts.
    pub directories: Vec<PathBuf>,
    /// The transcript itself, where somebody told it.
    pub file: Option<PathBuf>,
}

/// A file is there, and no link to one elsewhere.
fn is_own(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Finds out where the transcripts of a session are.
type Find = Box<dyn Fn(&Snapshot) -> Places + Send>;
/// Makes what reads a file.
type Reader = fn() -> Box<dyn LineReader>;

/// The transcripts of a session: one, and another where the client begins anew; and how far each was
/// read.
pub struct Transcripts {
    places: Find,
    reader: Reader,
    files: BTreeMap<PathBuf, Reading>,
    last: Option<SystemTime>,
}

struct Reading {
    at: u64,
    transcript: TranscriptReader,
}

impl Transcripts {
    /// Transcripts in these places, in lines that such a reader understands.
    pub fn new(places: impl Fn(&Snapshot) -> Places + Send + 'static, reader: Reader) -> Self {
        Self {
            places: Box::new(places),
            reader,
            files: BTreeMap::new(),
            last: None,
        }
    }

    /// The transcripts that grew since the last look, with their lengths.
    fn grown(&mut self, session: &Snapshot) -> Vec<(PathBuf, u64)> {
        let now = SystemTime::now();
        let since = self.last.replace(now).unwrap_or(now);
        let since = since.checked_sub(GREW_WITHIN).unwrap_or(since);
        let grew = |path: PathBuf| {
            let found = std::fs::symlink_metadata(&path).ok()?;
            let lately = found.modified().is_ok_and(|at| at >= since);
            (found.is_file() && lately).then_some((path, found.len()))
        };
        (self.places)(session).files().filter_map(grew).collect()
    }
}

impl EvidenceSource for Transcripts {
    fn readable(&self, session: &Snapshot) -> Readable {
        let places = (self.places)(session);
        match (places.there(), places.readable_in_time()) {
            (true, _) => Readable::Now,
            (false, true) => Readable::Expected,
            (false, false) => Readable::No,
        }
    }

    fn begin(&mut self, session: &Snapshot) {
        self.files.clear();
        self.last = None;
        for (path, length) in self.grown(session) {
            let reading = Reading::near_end(length, self.reader);
            self.files.insert(path, reading);
        }
    }

    fn watch(
        &mut self,
        session: &Snapshot,
        marks: &[String],
        found: &mut dyn FnMut(Evidence),
    ) -> bool {
        let mut grown = false;
        for (path, length) in self.grown(session) {
            if self.files.len() >= FILES_MAX && !self.files.contains_key(&path) {
                continue;
            }
            let begin = || Reading::near_end(length, self.reader);
            let reading = self.files.entry(path.clone()).or_insert_with(begin);
            if length < reading.at {
                // Another file under this name.
                *reading = begin();
            }
            if length > reading.at {
                grown = true;
                if let Err(error) = reading.on(&path, marks, found) {
                    tracing::debug!(%error, "a transcript cannot be read");
                }
            }
        }
        grown
    }
}

impl Places {
    /// Whether transcripts are, or can be expected, there. A project's first one is only written
    /// with its first turn.
    fn readable_in_time(&self) -> bool {
        let parent = |dir: &PathBuf| dir.parent().and_then(Path::parent).map(Path::is_dir);
        let expected = |dir: &PathBuf| dir.is_dir() || parent(dir) == Some(true);
        self.file.is_some() || self.directories.iter().any(expected)
    }

    /// Whether the session's transcript is there, or any where the session's id is not known.
    fn there(&self) -> bool {
        self.files().any(|path| is_own(&path))
    }

    /// The session's transcript, or all where the session's id is not known: a copy of one, or another
    /// session's, shows nothing of this session.
    fn files(&self) -> Box<dyn Iterator<Item = PathBuf> + '_> {
        let Some(id) = &self.id else {
            return Box::new(self.all());
        };
        let name = format!("{id}.jsonl");
        let told = self.file.clone().filter(|file| file.ends_with(&name));
        let named = self.directories.iter().map(move |dir| dir.join(&name));
        Box::new(told.into_iter().chain(named))
    }

    fn all(&self) -> impl Iterator<Item = PathBuf> {
        let entries = self.directories.iter().flat_map(std::fs::read_dir);
        let entries = entries.flatten().take(ENTRIES_MAX).flatten();
        let entries = entries.map(|entry| entry.path());
        let transcripts = entries.filter(|path| path.extension().is_some_and(|e| e == "jsonl"));
        transcripts.chain(self.file.clone())
    }
}

impl Reading {
    fn near_end(length: u64, reader: Reader) -> Self {
        let at = length.saturating_sub(BACK);
        let transcript = if at > 0 {
            TranscriptReader::in_mid_line(reader())
        } else {
            TranscriptReader::new(reader())
        };
        Self { at, transcript }
    }

    /// Reads on from where it was.
    fn on(
        &mut self,
        path: &Path,
        marks: &[String],
        found: &mut dyn FnMut(Evidence),
    ) -> io::Result<()> {
        let mut file = peerbus_os::file::open_regular(path)?;
        file.seek(SeekFrom::Start(self.at))?;
        let mut rest = file.take(LOOK_MAX);
        let mut portion = vec![0; PORTION];
        loop {
            let read = rest.read(&mut portion)?;
            if read == 0 {
                return Ok(());
            }
            self.at += read as u64;
            let new = portion.get(..read).unwrap_or_default();
            let shown = self.transcript.take(new, marks);
            shown.into_iter().map(beside).for_each(&mut *found);
        }
    }
}

/// Readers of files tell a tool's result from all else.
fn beside((found, texts): Found) -> Evidence {
    match found {
        Evidence::InResult(_) | Evidence::Anew => found,
        found => Evidence::Beside(Box::new(found), texts),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;
    use crate::transcript::tests::reader;

    fn transcripts(dir: &Path) -> Transcripts {
        let dir = dir.to_owned();
        let places = move |_: &Snapshot| Places {
            directories: vec![dir.clone()],
            ..Places::default()
        };
        let mut transcripts = Transcripts::new(places, reader);
        transcripts.begin(&Snapshot::default());
        transcripts
    }

    fn append(path: &Path, text: &str) {
        let file = File::options().create(true).append(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn seen(look: &mut Transcripts) -> Vec<Evidence> {
        let mut found = Vec::new();
        let marks = ["pb-1-1".to_owned()];
        look.watch(&Snapshot::default(), &marks, &mut |evidence| {
            found.push(evidence);
        });
        found
    }

    fn before() -> Vec<String> {
        vec!["user 1 0 [".to_owned()]
    }

    fn presented() -> Evidence {
        beside((Evidence::Presented("pb-1-1".into()), before()))
    }

    fn answered() -> Evidence {
        beside((Evidence::Answered("pb-1-1".into()), before()))
    }

    const USER: &str = "user 1 0 [pb-1-1]\n";
    const ANSWER: &str = "assistant 2 1 with pleasure\n";

    #[test]
    fn what_is_appended_is_read_once_in_whichever_transcript() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old.jsonl"), dir.path().join("new.jsonl"));
        append(&old, "{}\n");
        append(&dir.path().join("notes.txt"), USER);
        let mut look = transcripts(dir.path());
        assert_eq!(seen(&mut look), []);
        // The session was cleared: it goes on in another file.
        append(&new, USER);
        assert_eq!(seen(&mut look), [presented()]);
        assert_eq!(seen(&mut look), []);
        let (begin, end) = ANSWER.split_at(20);
        append(&new, begin);
        assert_eq!(seen(&mut look), []);
        append(&new, end);
        assert_eq!(seen(&mut look), [answered()]);
    }

    #[test]
    fn the_first_look_goes_back_a_little_and_not_to_the_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s.jsonl");
        append(&file, USER);
        append(
            &file,
            &format!("{{\"x\":\"{}\"}}\n", "x".repeat(BACK as usize)),
        );
        let mut look = transcripts(dir.path());
        assert_eq!(seen(&mut look), []);
        append(&file, USER);
        let mut later = transcripts(dir.path());
        assert_eq!(seen(&mut later), [presented()]);
    }

    #[test]
    fn what_grew_long_before_a_rare_look_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s.jsonl");
        let mut look = transcripts(dir.path());
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
        assert_eq!(seen(&mut look), [presented()]);
        append(&file, ANSWER);
        assert_eq!(seen(&mut look), [answered()]);
    }

    #[test]
    fn a_file_that_was_replaced_is_read_anew() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s.jsonl");
        append(&file, &"{}\n".repeat(1_000));
        let mut look = transcripts(dir.path());
        seen(&mut look);
        std::fs::write(&file, USER).unwrap();
        assert_eq!(seen(&mut look), [presented()]);
    }

    #[test]
    fn only_the_file_of_a_known_session_shows_something() {
        let dir = tempfile::tempdir().unwrap();
        let own = |name: &str| dir.path().join(name);
        let places = |id: &str| Places {
            id: Some(id.to_owned()),
            directories: vec![dir.path().to_owned()],
            file: Some(own("old.jsonl")),
        };
        // A fork has copies of its lines, and somebody else's answer.
        append(&own("fork.jsonl"), &format!("{USER}{ANSWER}"));
        append(&own("elsewhere"), &format!("{USER}{ANSWER}"));
        append(&own("old.jsonl"), USER);
        #[cfg(unix)]
        std::os::unix::fs::symlink(own("elsewhere"), own("new.jsonl")).unwrap();
        assert!(places("old").there() && !places("new").there() && !places("x").there());
        let id = std::sync::Arc::new(std::sync::Mutex::new("new"));
        let (at, now) = (dir.path().to_owned(), id.clone());
        let find = move |_: &Snapshot| Places {
            id: Some((*now.lock().unwrap()).to_owned()),
            directories: vec![at.clone()],
            file: Some(at.join("old.jsonl")),
        };
        let mut look = Transcripts::new(find, reader);
        look.begin(&Snapshot::default());
        assert_eq!(seen(&mut look), []);
        *id.lock().unwrap() = "old";
        assert_eq!(seen(&mut look), [presented()]);
        append(&own("old.jsonl"), ANSWER);
        // After a switch the file of before shows nothing any more.
        *id.lock().unwrap() = "next";
        assert_eq!(seen(&mut look), []);
        append(&own("next.jsonl"), &format!("{USER}{ANSWER}"));
        assert_eq!(seen(&mut look), [presented(), answered()]);
    }
}
