//! What install did, so that uninstall can give the bytes back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use peerbus_adapter::paths::Paths;
use peerbus_os as os;
use serde::{Deserialize, Serialize};

use super::files;
use crate::error::Error;

/// All that was done as this user.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    files: BTreeMap<PathBuf, Done>,
}

/// What was done to one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Done {
    /// There was no file.
    pub(crate) created: bool,
    /// Directories that were made for it, the outermost first.
    pub(crate) dirs: Vec<PathBuf>,
    /// Texts that were put in.
    pub(crate) inserted: Vec<String>,
    /// Objects and lists that were made.
    pub(crate) made: BTreeSet<String>,
}

impl Record {
    /// Reads the record. One that cannot be read counts as empty: uninstall then works from what
    /// stands in the files.
    pub(crate) fn load() -> Self {
        let text = place().and_then(|path| std::fs::read_to_string(path).ok());
        let parsed = text.and_then(|text| serde_json::from_str(&text).ok());
        parsed.unwrap_or_default()
    }

    /// What was done to a file.
    pub(crate) fn of(&self, path: &Path) -> Option<&Done> {
        self.files.get(path)
    }

    /// Remembers it; `None` forgets it.
    pub(crate) fn set(&mut self, path: &Path, done: Option<Done>) {
        match done {
            Some(done) => self.files.insert(path.to_owned(), done),
            None => self.files.remove(path),
        };
    }

    /// Writes the record; an empty one is taken away.
    pub(crate) fn save(&self) -> Result<(), Error> {
        let Some(path) = place() else {
            return Ok(());
        };
        let saved = if self.files.is_empty() {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        } else {
            let text = serde_json::to_vec_pretty(self).map_err(Error::failed)?;
            write_private(&path, &text)
        };
        saved.map_err(|error| {
            let path = path.display();
            Error::failed(format!(
                "cannot write {path}, which uninstall reads: {error}"
            ))
        })
    }
}

/// Writes the file and makes its directories, for this user alone: the broker's state lies there.
fn write_private(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let made = files::make_parents(path)?;
    for dir in &made {
        os::file::set_mode(dir, 0o700)?;
    }
    os::file::replace(path, text)?;
    os::file::set_mode(path, 0o600)
}

fn place() -> Option<PathBuf> {
    let paths = Paths::find().ok()?;
    Some(paths.state_dir.join("installed.json"))
}
