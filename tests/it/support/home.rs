//! An empty home directory, and processes that know no other.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A fresh user: nothing configured, no variables but the directories.
pub(crate) struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("pb")
            .tempdir()
            .expect("a temporary directory");
        Self { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A command with this home and nothing else in its environment; it starts no broker by itself.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("PEERBUS_AUTOSTART", "off")
            .env("RUST_BACKTRACE", "1")
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    /// The `peerbus` binary with arguments.
    pub(crate) fn peerbus(&self, args: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_peerbus"));
        command.args(args);
        command
    }

    /// Runs `peerbus` to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        Finished::of(&mut self.peerbus(args))
    }

    /// Runs `peerbus` to its end in a terminal of its user's: not below this process, which counts as an
    /// agent where it started an adapter itself.
    pub(crate) fn apart(&self, args: &[&str]) -> Finished {
        let status = self.path().join("status");
        let mut shell = self.command("/bin/sh");
        // Until the shell has gone it stands below this process, which has agents.
        let alone =
            r#"while read -r _ _ _ above _ </proc/self/stat && [ "$above" = $$ ]; do :; done"#;
        let script = format!(r#"{{ {alone}; "$@"; echo $? > status; }} &"#);
        shell.args(["-c", &script, "sh"]);
        shell.arg(env!("CARGO_BIN_EXE_peerbus")).args(args);
        let mut finished = Finished::of(&mut shell);
        let code = std::fs::read_to_string(status).expect("what it ended with");
        finished.code = code.trim().parse().ok();
        finished
    }

    /// Runs `peerbus` to its end, with a stdout that has lost its reader.
    pub(crate) fn run_unread(&self, args: &[&str]) -> Finished {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        Finished::of(self.peerbus(args).stdout(writer))
    }

    /// Where `serve` keeps its database.
    pub(crate) fn database(&self) -> PathBuf {
        self.path().join(".local/state/peerbus/peerbus.db")
    }

    /// Where `serve` keeps its credentials.
    pub(crate) fn credentials(&self) -> PathBuf {
        self.path().join(".config/peerbus/credentials.toml")
    }

    /// A member of the credentials file.
    pub(crate) fn credential(&self, member: &str) -> String {
        let text = std::fs::read_to_string(self.credentials()).expect("a credentials file");
        let line = text
            .lines()
            .find(|line| line.starts_with(member))
            .expect("the member");
        line.split('"').nth(1).expect("a quoted value").to_owned()
    }
}

/// A process that has ended.
pub(crate) struct Finished {
    what: String,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// Runs `peerbus` to its end.
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command.output().expect("peerbus starts");
        let args = command.get_args().map(OsStr::to_string_lossy);
        let args: Vec<_> = args.collect();
        Self {
            what: args.join(" "),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks that it succeeded and gives its stdout.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(
            self.code,
            Some(0),
            "peerbus {} failed\nstdout: {}\nstderr: {}",
            self.what,
            self.stdout,
            self.stderr
        );
        self.stdout
    }

    /// Checks that it failed with `code` and gives its stderr.
    #[track_caller]
    pub(crate) fn fails(self, code: i32) -> String {
        assert_eq!(
            self.code,
            Some(code),
            "peerbus {}\nstdout: {}\nstderr: {}",
            self.what,
            self.stdout,
            self.stderr
        );
        self.stderr
    }
}
