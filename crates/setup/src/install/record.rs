//! What install did, so that uninstall can give the bytes back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use peerbus_adapter::Failure;
use peerbus_adapter::paths::Paths;
use peerbus_os as os;
use serde::{Deserialize, Serialize};

/// How long another install is waited for, and between two looks.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// More than the originals of all configurations have.
const BYTES_MAX: u64 = 256 * 1_024 * 1_024;

/// All that was done as this user.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    files: BTreeMap<PathBuf, Done>,
    /// The credentials file that `peerbus join` has changed, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) joined: Option<(PathBuf, Done)>,
    /// The invitation by which this machine asks to be let in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) asking: Option<Asking>,
}

/// The token that this machine shows with a code, again until it has an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Asking {
    /// The hash of the code.
    pub(crate) code: String,
    /// The token that this machine made.
    pub(crate) token: String,
}

/// What was done to one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Done {
    /// There was no file.
    pub(crate) created: bool,
    /// The agent whose own configuration it is, for all projects. `None`: a project's, or made by an
    /// older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// Directories that were made for it, the outermost first.
    pub(crate) dirs: Vec<PathBuf>,
    /// The text as it was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) original: Option<String>,
    /// The hash of the text that was written. `None`: its user had changed the file since, and
    /// `original` is another's.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<String>,
    /// Texts that version 0.4 put in; it kept no original.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inserted: Vec<String>,
    /// Objects and lists that version 0.4 made, as paths such as `hooks/Stop`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) made: BTreeSet<String>,
}

impl Done {
    /// A file was changed, or made.
    pub(crate) fn new(created: bool, before: &str, after: &str) -> Self {
        Self {
            created,
            original: Some(before.to_owned()),
            written: Some(hash(after)),
            ..Self::default()
        }
    }

    /// A file that was changed earlier is changed again.
    pub(crate) fn updated(&self, before: &str, after: &str) -> Self {
        if before == after {
            return self.clone();
        }
        let original = self.original_of(before);
        let mut next = self.clone();
        next.written = original.is_some().then(|| hash(after));
        next.original = original.or(next.original);
        next.inserted = Vec::new();
        next
    }

    /// The text as it was before, if this is the text that was written.
    pub(crate) fn original_of(&self, text: &str) -> Option<String> {
        match (&self.written, &self.original) {
            (Some(written), Some(original)) => (*written == hash(text)).then(|| original.clone()),
            _ => self.without_inserted(text),
        }
    }

    /// Takes every remembered text out again. `None`: one of them is no longer there as it was put
    /// in, or cannot be told from another text.
    fn without_inserted(&self, text: &str) -> Option<String> {
        // The longest first: a shorter one may be a piece of it.
        let mut counts = BTreeMap::new();
        for part in self.inserted.iter().filter(|part| !part.is_empty()) {
            *counts.entry((Reverse(part.len()), part)).or_insert(0) += 1;
        }
        let mut text = Some(text.to_owned()).filter(|_| !counts.is_empty())?;
        for ((_, part), count) in counts {
            if text.matches(part).count() != count {
                return None;
            }
            text = text.replace(part, "");
        }
        Some(text)
    }
}

pub(crate) fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

impl Record {
    /// Looks into the record. One that cannot be read counts as empty.
    pub(crate) fn load() -> Self {
        let text = place().and_then(|path| os::file::read_small(&path, BYTES_MAX));
        let parsed = text.and_then(|text| serde_json::from_str(&text).ok());
        parsed.unwrap_or_default()
    }

    /// Reads the record, to write another one: what it says stands nowhere else. Without one uninstall works
    /// from what stands in the files.
    pub(crate) fn read() -> Result<Self, Failure> {
        let Some(path) = place().filter(|path| path.symlink_metadata().is_ok()) else {
            return Ok(Self::default());
        };
        let text = os::file::read_small(&path, BYTES_MAX);
        let parsed = text.and_then(|text| serde_json::from_str(&text).ok());
        parsed.ok_or_else(|| {
            let path = path.display();
            Failure::failed(format!(
                "{path} has what was here before `peerbus install` and `peerbus join`, and cannot be read; nothing \
                 was done: put a copy of it back. If there is none, move it away: `peerbus uninstall` has nothing to \
                 put back then"
            ))
        })
    }

    /// What was done to a file.
    pub(crate) fn of(&self, path: &Path) -> Option<&Done> {
        self.files.get(path)
    }

    /// The files that are an agent's own configuration, for all projects.
    pub(crate) fn files_of(&self, agent: &str) -> impl Iterator<Item = &Path> {
        let is = move |done: &Done| done.owner.as_deref() == Some(agent);
        let files = self.files.iter().filter(move |(_, done)| is(done));
        files.map(|(path, _)| path.as_path())
    }

    /// All files but those that are an agent's own.
    pub(crate) fn projects(&self) -> impl Iterator<Item = &Path> {
        let files = self.files.iter().filter(|(_, done)| done.owner.is_none());
        files.map(|(path, _)| path.as_path())
    }

    /// Remembers it; `None` forgets it.
    pub(crate) fn set(&mut self, path: &Path, done: Option<Done>) {
        match done {
            Some(done) => self.files.insert(path.to_owned(), done),
            None => self.files.remove(path),
        };
    }

    /// Writes the record; an empty one is taken away.
    pub(crate) fn save(&self) -> Result<(), Failure> {
        let Some(path) = place() else {
            return Ok(());
        };
        let saved = if *self == Self::default() {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        } else {
            let text = serde_json::to_vec_pretty(self).map_err(Failure::failed)?;
            os::dir::create_private(path.parent().unwrap_or(Path::new(".")))
                .and_then(|()| os::file::behind_link(&path))
                .and_then(|path| os::file::replace_private(&path, &text))
        };
        saved.map_err(|error| {
            let path = path.display();
            Failure::failed(format!(
                "cannot write {path}, which uninstall reads: {error}"
            ))
        })
    }
}

/// Writes the file and makes its directories, for this user alone: the broker's state lies there,
/// and originals hold what their users keep secret.
/// Waits until no other install or uninstall of this user is under way, and keeps others waiting until
/// the home is dropped, whose lock it is: nothing needs to be made for it. None on a file system
/// without locks of directories.
pub(crate) fn lock() -> Result<Option<File>, Failure> {
    let home = peerbus_agents::home();
    let Some(lock) = home.and_then(|home| File::open(home).ok()) else {
        return Ok(None);
    };
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match lock.try_lock() {
            Ok(()) => return Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
    Err(Failure::failed(
        "another install or uninstall is under way: let it end, and try again",
    ))
}

fn place() -> Option<PathBuf> {
    let paths = Paths::find().ok()?;
    Some(paths.state_dir.join("installed.json"))
}
