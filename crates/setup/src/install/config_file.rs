//! Files of others: read whole, replaced in one step, and never behind anybody's back.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use peerbus_adapter::Failure;
use peerbus_os as os;

use super::record::Done;

/// Largest configuration that is edited.
const BYTES_MAX: u64 = 64 * 1_024 * 1_024;
/// The mark that some editors put before UTF-8.
pub(crate) const BOM: &str = "\u{feff}";

/// A file as it was found, or that there is none.
#[derive(Debug, Clone)]
pub(crate) struct ConfigFile {
    /// Where it was looked for.
    pub(crate) asked: PathBuf,
    /// Where it is: another place if `asked` is a symbolic link.
    pub(crate) path: PathBuf,
    pub(crate) bytes: Option<Vec<u8>>,
}

impl ConfigFile {
    /// Reads a file, through a symbolic link if it is one.
    pub(crate) fn read(asked: &Path) -> Result<Self, Failure> {
        let linked = fs::symlink_metadata(asked).is_ok_and(|found| found.is_symlink());
        let path = if linked {
            fs::canonicalize(asked).map_err(|error| {
                let asked = asked.display();
                Failure::failed(format!(
                    "{asked} is a symbolic link to nothing ({error}): remove it, or make the file \
                     that it leads to"
                ))
            })?
        } else {
            asked.to_owned()
        };
        let refuse = |why: String| Failure::failed(format!("{} {why}", path.display()));
        let unread = |error: std::io::Error| {
            refuse(format!(
                "cannot be read: {error}: make it one that you can read"
            ))
        };
        let bytes = match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(unread(error)),
            Ok(found) if !found.is_file() => {
                return Err(refuse("is not a file: move what lies there away".into()));
            }
            Ok(found) if found.len() > BYTES_MAX => {
                return Err(refuse(format!("is larger than {BYTES_MAX} bytes")));
            }
            Ok(_) => {
                let read = fs::read(&path);
                Some(read.map_err(unread)?)
            }
        };
        Ok(Self {
            asked: asked.to_owned(),
            path,
            bytes,
        })
    }

    /// The text, without the mark before it, and the mark.
    pub(crate) fn text(&self) -> Result<(&str, &'static str), Failure> {
        let bytes = self.bytes.as_deref().unwrap_or_default();
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let (path, at) = (self.path.display(), error.valid_up_to());
            Failure::failed(format!(
                "{path} is not UTF-8 (byte {at}); nothing was changed: save it as UTF-8 and try again"
            ))
        })?;
        Ok(match text.strip_prefix(BOM) {
            Some(text) => (text, BOM),
            None => (text, ""),
        })
    }

    /// Checks that it can be replaced, before anything is.
    pub(crate) fn check_writable(&self) -> Result<(), Failure> {
        let mut dirs = self.path.ancestors().skip(1);
        let dir = dirs.find(|dir| dir.exists()).unwrap_or(Path::new("."));
        let file = self.bytes.is_some().then_some(self.path.as_path());
        for path in file.into_iter().chain([dir]) {
            os::file::may_write(path).map_err(|error| {
                let path = path.display();
                Failure::failed(format!(
                    "{path} cannot be written: {error}: make it one that you can write"
                ))
            })?;
        }
        Ok(())
    }

    /// Puts other bytes in place of what was found, or takes the file away. Only its owner can read
    /// a new one that is `private`: its program may put secrets there. `false`: somebody else
    /// changed it meanwhile, and nothing was done.
    pub(crate) fn replace(&self, bytes: Option<&[u8]>, private: bool) -> Result<bool, Failure> {
        let now = Self::read(&self.asked)?;
        if now.bytes != self.bytes || now.path != self.path {
            return Ok(false);
        }
        let done = match bytes {
            Some(bytes) if private && self.bytes.is_none() => {
                os::file::replace_private(&self.path, bytes)
            }
            Some(bytes) => os::file::replace(&self.path, bytes),
            None => fs::remove_file(&self.path),
        };
        done.map(|()| true).map_err(|error| {
            let path = self.path.display();
            Failure::failed(format!("cannot write {path}: {error}"))
        })
    }
}

/// A change to one file.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) file: ConfigFile,
    /// What the file will hold; `None`: it goes away.
    pub(crate) after: Option<String>,
    /// What to remember of it.
    pub(crate) done: Option<Done>,
    /// What of somebody else's looks like ours and stays, in sentences.
    pub(crate) stays: Vec<String>,
}

impl Edit {
    /// No change to what was found.
    pub(crate) fn none(file: ConfigFile, stays: Vec<String>) -> Self {
        let text = file.bytes.clone().map(String::from_utf8);
        Self {
            file,
            after: text.and_then(Result::ok),
            done: None,
            stays,
        }
    }

    /// Whether there is anything to do.
    pub(crate) fn differs(&self) -> bool {
        self.file.bytes.as_deref() != self.after.as_deref().map(str::as_bytes)
    }
}

/// Makes the directories above a file and tells which were made, the outermost first.
pub(crate) fn make_parents(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let missing = os::dir::missing_above(path);
    for dir in &missing {
        fs::create_dir(dir)?;
    }
    Ok(missing)
}

/// Removes directories, the innermost first. One that holds something of others stays.
pub(crate) fn remove_parents(dirs: &[PathBuf]) {
    for dir in dirs.iter().rev() {
        let _ = fs::remove_dir(dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_writes_meanwhile_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("settings.json");
        for (first, then) in [
            (Some("{}"), Some("{\"theirs\": 1}")),
            (None, Some("{}")),
            (Some("{}"), None),
        ] {
            let put = |text: Option<&str>| match text {
                Some(text) => fs::write(&path, text).expect("a file"),
                None => drop(fs::remove_file(&path)),
            };
            put(first);
            let found = ConfigFile::read(&path).expect("a file or none");
            put(then);
            for bytes in [Some(&b"ours"[..]), None] {
                assert!(!found.replace(bytes, true).expect("nothing is written"));
                assert_eq!(fs::read_to_string(&path).ok().as_deref(), then);
            }
        }
        assert!(
            fs::read_dir(dir.path())
                .expect("a directory")
                .next()
                .is_none()
        );
    }
}
