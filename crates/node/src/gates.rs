//! What others may do to a session: `sessions.toml` beside the credentials, which a person writes.
//! It is read again for each request, and nothing of ours writes it.

use std::path::Path;

use peerbus_adapter::PeerName;
use peerbus_os::dir;
use peerbus_os::private::{self, PrivateFile};
use serde::{Deserialize, Serialize};

use crate::protocol::NodeError;

const FILE: PrivateFile<Gates> = PrivateFile {
    what: "sessions file",
    bytes_max: 65_536,
    readable: true,
    heading: "",
    instead: "",
    parse: Gates::parse,
};

const REMOTE_MAX: usize = 16;

/// The gates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gates {
    /// Programs of the same user may put texts in.
    pub inject: bool,
    /// They may stop a turn.
    pub interrupt: bool,
    /// They may answer what the session asks its user.
    pub approve: bool,
    /// They may change how a driven session works: its model, its mode, its MCP servers.
    pub control: bool,
    /// The peers that are asked, too, and whose word counts, by their names on the bus.
    pub remote: Vec<String>,
}

/// A gate by its word in the file, and whether it is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate(&'static str, fn(&Gates) -> bool);

pub(crate) const INJECT: Gate = Gate("inject", |gates| gates.inject);
pub(crate) const INTERRUPT: Gate = Gate("interrupt", |gates| gates.interrupt);
pub(crate) const APPROVE: Gate = Gate("approve", |gates| gates.approve);
pub(crate) const CONTROL: Gate = Gate("control", |gates| gates.control);

/// As they are where the file says nothing.
impl Default for Gates {
    fn default() -> Self {
        Self {
            inject: true,
            ..Self::CLOSED
        }
    }
}

impl Gates {
    const CLOSED: Self = Self {
        inject: false,
        interrupt: false,
        approve: false,
        control: false,
        remote: Vec::new(),
    };

    /// Whether anybody but the user at the client can answer what the session asks.
    #[must_use]
    pub const fn has_approvers(&self) -> bool {
        self.approve || !self.remote.is_empty()
    }

    /// Whether this peer's word counts. Names are alike in any case of their letters.
    #[must_use]
    pub fn names(&self, peer: &str) -> bool {
        let is = |name: &String| name.eq_ignore_ascii_case(peer);
        self.remote.iter().any(is)
    }

    /// Reads the file. One that is not there says nothing; one that cannot be read as it should be
    /// closes everything: `Err` says what is wrong with it.
    ///
    /// # Errors
    ///
    /// With a sentence.
    pub fn read(file: &Path) -> Result<Self, String> {
        if let Some(gates) = FILE.read(file)? {
            return Ok(gates);
        }
        // Whoever can take the file away can write it.
        let above = dir::above(file);
        if above.is_dir() {
            let untrusted = |error| FILE.says(file, format_args!("cannot be trusted: {error}"));
            dir::check_replacing(above).map_err(untrusted)?;
        }
        Ok(Self::default())
    }

    fn parse(text: &str) -> Result<Self, String> {
        let gates: Self = private::toml(text)?;
        if gates.remote.len() > REMOTE_MAX {
            return Err(format!(
                "has more than {REMOTE_MAX} peers in `remote`: take some out"
            ));
        }
        let mut wrong = gates
            .remote
            .iter()
            .filter(|name| PeerName::parse(name).is_err());
        match wrong.next() {
            Some(name) => Err(format!(
                "has {name:?} in `remote`, which is no name of a peer: correct it"
            )),
            None => Ok(gates),
        }
    }

    /// As [`Gates::read`]; a broken file closes everything.
    #[must_use]
    pub fn effective(file: &Path) -> Self {
        Self::read(file).unwrap_or(Self::CLOSED)
    }
}

/// Lets something pass that needs this gate. An error says which, and where.
pub(crate) fn may(file: &Path, gate: Gate) -> Result<(), NodeError> {
    let (shown, Gate(word, is_open)) = (file.display().to_string(), gate);
    let why = match Gates::read(file) {
        Ok(gates) if is_open(&gates) => return Ok(()),
        Ok(_) if is_open(&Gates::default()) => format!("{shown} has `{word} = false`"),
        Ok(_) => format!("a person opens it with `{word} = true` in {shown}"),
        Err(why) => closed_until_mended(&why),
    };
    Err(NodeError::closed(word, &shown, &why))
}

/// A sentence for a file that cannot be understood.
#[must_use]
pub fn closed_until_mended(why: &str) -> String {
    format!("every gate is closed until this is mended: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_as_its_file_says_and_a_broken_file_closes_all() {
        for (text, open) in [
            ("", Ok(vec!["inject"])),
            (
                "inject = true\napprove = true\nremote = [\"phone\"]",
                Ok(vec!["inject", "approve", "phone"]),
            ),
            ("inject = false\ncontrol = true", Ok(vec!["control"])),
            ("interrupt = true", Ok(vec!["inject", "interrupt"])),
            ("inject = \"yes\"", Err("line 1")),
            ("\ninjekt = true", Err("line 2: unknown field `injekt`")),
            ("inject =", Err("line 1")),
            ("inject = true\ninject = true", Err("line 2")),
            ("remote = true", Err("line 1")),
            ("remote = [\"a b\"]", Err("\"a b\"")),
        ] {
            match (Gates::parse(text), open) {
                (Ok(gates), Ok(open)) => {
                    for gate in [INJECT, INTERRUPT, APPROVE, CONTROL] {
                        let named = open.contains(&gate.0);
                        assert_eq!(gate.1(&gates), named, "{text}: {gate:?}");
                    }
                    assert_eq!(gates.names("Phone"), open.contains(&"phone"), "{text}");
                }
                (Err(why), Err(says)) => assert!(why.contains(says), "{why}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn the_file_counts_only_while_its_user_alone_can_write_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sessions.toml");
        assert_eq!(Gates::read(&file), Ok(Gates::default()));
        std::fs::write(&file, "inject = true").unwrap();
        peerbus_os::file::set_mode(&file, 0o644).unwrap();
        assert_eq!(Gates::read(&file), Ok(Gates::default()));
        peerbus_os::file::set_mode(&file, 0o664).unwrap();
        assert!(Gates::read(&file).unwrap_err().contains("0664"));
        assert_eq!(Gates::effective(&file), Gates::CLOSED);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert!(Gates::read(&file).is_err());
    }

    #[test]
    fn a_directory_in_which_others_can_replace_the_file_closes_the_gates() {
        let dir = tempfile::tempdir().unwrap();
        let (open, real) = (dir.path().join("open"), dir.path().join("real"));
        for made in [&open, &real] {
            std::fs::create_dir(made).unwrap();
        }
        let file = open.join("sessions.toml");
        std::fs::write(&file, "approve = true").unwrap();
        peerbus_os::file::set_mode(&file, 0o600).unwrap();
        std::os::unix::fs::symlink(&file, real.join("sessions.toml")).unwrap();
        for place in [&open, &real] {
            let file = place.join("sessions.toml");
            peerbus_os::file::set_mode(&open, 0o777).unwrap();
            let why = Gates::read(&file).unwrap_err();
            assert!(why.contains("chmod o-w"), "{why}");
            assert_eq!(Gates::effective(&file), Gates::CLOSED);
            // There others can make files, and replace none.
            peerbus_os::file::set_mode(&open, 0o1777).unwrap();
            assert!(Gates::effective(&file).approve);
        }
    }

    #[test]
    fn a_link_to_nowhere_and_another_users_file_close_the_gate() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sessions.toml");
        std::os::unix::fs::symlink(dir.path().join("away"), &file).unwrap();
        assert!(Gates::read(&file).unwrap_err().contains("link to nothing"));
        std::fs::write(dir.path().join("away"), "inject = true").unwrap();
        peerbus_os::file::set_mode(&file, 0o644).unwrap();
        assert_eq!(Gates::read(&file), Ok(Gates::default()));
        // Only root can give a file away.
        if std::os::unix::fs::chown(&file, Some(12_345), None).is_ok() {
            assert!(Gates::read(&file).unwrap_err().contains("12345"));
        }
    }
}
