//! What others may do to a session: `sessions.toml` beside the credentials, which a person writes.
//! It is read again for each request, and nothing of ours writes it.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::protocol::Error;

/// The file's name.
pub const FILE: &str = "sessions.toml";
/// More than it ever has.
const BYTES_MAX: u64 = 65_536;

/// The gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gates {
    /// `inject`: programs of the same user may put texts in.
    pub inject: bool,
}

/// The file. Its other keys belong to gates of later versions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default = "open")]
    inject: bool,
    #[serde(default, rename = "interrupt")]
    _interrupt: bool,
    #[serde(default, rename = "approve")]
    _approve: bool,
    #[serde(default, rename = "control")]
    _control: bool,
    #[serde(default, rename = "remote")]
    _remote: Vec<String>,
}

const fn open() -> bool {
    true
}

impl Gates {
    /// As they are without a file.
    const DEFAULT: Self = Self { inject: true };

    /// All closed.
    const CLOSED: Self = Self { inject: false };

    /// Reads the file. One that is not there says nothing; one that cannot be read as it should be
    /// closes everything: `Err` says what is wrong with it.
    ///
    /// # Errors
    ///
    /// With a sentence.
    pub fn read(file: &Path) -> Result<Self, String> {
        let metadata = match std::fs::metadata(file) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return match std::fs::symlink_metadata(file) {
                    Ok(_) => Err("it is a link to a file that is not there".into()),
                    Err(_) => Ok(Self::DEFAULT),
                };
            }
            Err(error) => return Err(format!("it cannot be read: {error}")),
        };
        let owner = metadata.uid();
        if owner != 0 && owner != peerbus_os::user::id() {
            return Err(format!("it belongs to another user (number {owner})"));
        }
        let mode = metadata.permissions().mode();
        if mode & 0o022 != 0 {
            return Err(format!(
                "others can write it (mode {:04o}): run `chmod go-w` on it",
                mode & 0o7777
            ));
        }
        let text = peerbus_os::file::read_small(file, BYTES_MAX);
        let text = text.ok_or("it is no text file of at most 64 KiB that can be read")?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let written: Written = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            format!("line {line}: {}", error.message())
        })?;
        Ok(Self {
            inject: written.inject,
        })
    }

    /// As [`Gates::read`]; a broken file closes everything.
    #[must_use]
    pub fn effective(file: &Path) -> Self {
        Self::read(file).unwrap_or(Self::CLOSED)
    }
}

/// Lets an inject pass.
///
/// # Errors
///
/// When the gate is closed: which, and where.
pub fn may_inject(file: &Path) -> Result<(), Error> {
    let shown = file.display().to_string();
    let why = match Gates::read(file) {
        Ok(Gates { inject: true }) => return Ok(()),
        Ok(Gates { inject: false }) => format!("{shown} has `inject = false`"),
        Err(why) => format!("{shown} closes every gate until it is mended ({why})"),
    };
    Err(Error::closed("inject", &shown, &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_as_its_file_says_and_a_broken_file_closes_it() {
        for (text, inject) in [
            ("", Ok(true)),
            (
                "inject = true\napprove = true\nremote = [\"phone\"]",
                Ok(true),
            ),
            ("inject = false", Ok(false)),
            ("inject = \"yes\"", Err("line 1")),
            ("\ninjekt = true", Err("line 2: unknown field `injekt`")),
            ("inject =", Err("line 1")),
            ("inject = true\ninject = true", Err("line 2")),
            ("remote = true", Err("line 1")),
        ] {
            let found = Gates::parse(text).map(|gates| gates.inject);
            match (found, inject) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(why), Err(says)) => assert!(why.contains(says), "{why}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn the_file_counts_only_while_its_user_alone_can_write_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        assert_eq!(Gates::read(&file), Ok(Gates::DEFAULT));
        std::fs::write(&file, "inject = true").unwrap();
        peerbus_os::file::set_mode(&file, 0o644).unwrap();
        assert_eq!(Gates::read(&file), Ok(Gates { inject: true }));
        peerbus_os::file::set_mode(&file, 0o664).unwrap();
        assert!(Gates::read(&file).unwrap_err().contains("0664"));
        assert_eq!(Gates::effective(&file), Gates::CLOSED);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert!(Gates::read(&file).is_err());
    }

    #[test]
    fn a_link_to_nowhere_and_another_users_file_close_the_gate() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        std::os::unix::fs::symlink(dir.path().join("away"), &file).unwrap();
        assert!(Gates::read(&file).unwrap_err().contains("a link"));
        std::fs::write(dir.path().join("away"), "inject = true").unwrap();
        peerbus_os::file::set_mode(&file, 0o644).unwrap();
        assert_eq!(Gates::read(&file), Ok(Gates { inject: true }));
        // Only root can give a file away.
        if std::os::unix::fs::chown(&file, Some(12_345), None).is_ok() {
            assert!(Gates::read(&file).unwrap_err().contains("12345"));
        }
    }
}
