//! Tokens that some of the peers have for themselves, so that they can be revoked and given back.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use crate::support::Home;

/// Who has one: a sender and a receiver without an adapter, and an adapter.
pub(crate) const HOLDERS: [&str; 3] = ["ann", "bin", "drainer"];
/// How a name begins with which somebody looks whether a holder's token admits connections.
pub(crate) const PROBE: &str = "probe-";

pub(crate) struct Tokens {
    each: BTreeMap<&'static str, String>,
    file: PathBuf,
    /// What stands in the file while nothing is revoked.
    whole: String,
}

impl Tokens {
    /// Makes them. The broker is not running.
    pub(crate) fn make(home: &Home) -> Self {
        let make = |name| {
            let rights = ["--rights", "send,broadcast,observe"];
            let said = home.run(&[&["token", "add", name], &rights[..]].concat());
            (name, said.ok().trim().to_owned())
        };
        let each = HOLDERS.map(make).into();
        let file = home.path().join(".config/peerbus/tokens.toml");
        let whole = fs::read_to_string(&file).expect("a tokens file");
        Self { each, file, whole }
    }

    /// The token of a name, if it has one of its own.
    pub(crate) fn of(&self, name: &str) -> Option<&str> {
        let name = name.strip_prefix(PROBE).unwrap_or(name);
        self.each.get(name).map(String::as_str)
    }

    /// Writes the file as it was, at once, as an editor does.
    pub(crate) fn restore(&self) {
        let new = self.file.with_extension("new");
        let mut options = fs::File::options();
        let made = options.write(true).create(true).truncate(true).mode(0o600);
        let mut written = made.open(&new).expect("a file of ours");
        written.write_all(self.whole.as_bytes()).expect("room");
        fs::rename(&new, &self.file).expect("a directory of ours");
    }
}
