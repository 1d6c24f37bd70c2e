//! What is left of sessions that ended: nothing.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Broker, Home, Lines, Mcp, eventually, python};

/// Ten times the second in which everything must be gone.
const GONE: Duration = Duration::from_secs(10);
const ROUNDS: usize = 5;
/// Every way twice in a round.
const WAYS: [&str; 10] = [
    "eof", "int", "term", "kill", "kill", "eof", "int", "term", "kill", "kill",
];

/// A stand-in for Claude Code, see `session.py`. It is killed when dropped.
pub(crate) struct Session {
    client: Child,
    said: Lines,
    name: String,
}

impl Session {
    pub(crate) fn start(home: &Home, name: &str) -> Self {
        Self::start_with(home, name, &[])
    }

    pub(crate) fn start_with(home: &Home, name: &str, variables: &[(&str, &str)]) -> Self {
        let mut client = home.command("python3");
        Self::spawn(client.envs(variables.iter().copied()), name)
    }

    /// Starts it with `python3`.
    pub(crate) fn spawn(python: &mut Command, name: &str) -> Self {
        let mut client = python
            .arg(python::script("it/session.py"))
            .arg(env!("CARGO_BIN_EXE_peerbus"))
            .env("PEERBUS_NAME", name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let said = Lines::of(client.stdout.take().expect("a pipe"));
        Self {
            client,
            said,
            name: name.to_owned(),
        }
    }

    /// Ends it, or its adapter only.
    fn end(&mut self, way: &str) {
        if way == "kill" {
            self.client.kill().expect("our child");
            self.client.wait().expect("our child");
            return;
        }
        self.tell(way);
    }

    /// The client's process.
    pub(crate) fn process(&self) -> u32 {
        self.client.id()
    }

    /// The adapter's process, which it says first.
    pub(crate) fn adapter(&self) -> u32 {
        self.said.find("its adapter", |line| line.parse().ok())
    }

    /// Has it do something.
    pub(crate) fn tell(&mut self, command: &str) {
        let stdin = self.client.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{command}").expect("the client reads");
    }

    /// What stands behind this word in the next line that begins with it.
    pub(crate) fn hear(&self, word: &str) -> String {
        let begin = format!("{word} ");
        self.said
            .find(word, |line| line.strip_prefix(&begin).map(str::to_owned))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

/// The command lines of `peerbus` processes of this home, except those that the test keeps.
fn left(home: &Home) -> Vec<String> {
    let own = format!("HOME={}", home.path().display());
    let entries = fs::read_dir("/proc").expect("Linux").flatten();
    let processes = entries.filter_map(|entry| {
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let ours = environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == own.as_bytes());
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let wanted = line.contains(" hook") || line.contains("--adapter=cc");
        (ours && wanted && !line.starts_with("python3")).then_some(line)
    });
    processes.collect()
}

/// What is in a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The sockets of adapters that know their client. The worker's knows none, and the list of sessions
/// stays.
fn of_sessions(dir: &Path) -> Vec<PathBuf> {
    let mut all = files(dir);
    all.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".sock") && !name.starts_with("0.")
    });
    all
}

/// The sessions that a hook can rewake.
fn rewakable(worker: &mut Mcp) -> Vec<String> {
    let peers = worker.call("bus.peers", json!({}));
    let details = peers["details"].as_array().cloned().unwrap_or_default();
    let waits = |peer: &&Value| {
        let wake = peer["wake"].as_array();
        peer["online"] == true && wake.is_some_and(|paths| paths.contains(&json!("rewake")))
    };
    let names = details.iter().filter(waits);
    names
        .filter_map(|peer| Some(peer["name"].as_str()?.to_owned()))
        .collect()
}

#[test]
fn sessions_that_end_in_any_way_leave_no_process_and_no_file() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut worker = Mcp::start(&home, "generic", "worker", "some-bot");
    let sockets = home.path().join(".local/state/peerbus/sessions");
    let messages = home.path().join("messages");
    for round in 0..ROUNDS {
        let name = |at: usize| format!("s{round}-{at}");
        let mut sessions: Vec<_> = (0..WAYS.len())
            .map(|at| Session::start(&home, &name(at)))
            .collect();
        for session in &sessions {
            session
                .said
                .find("adapter", |line| line.parse::<u32>().ok());
        }
        eventually("a hook waits in every session", || {
            let names = rewakable(&mut worker);
            sessions
                .iter()
                .all(|session| names.contains(&session.name))
                .then_some(())
        });
        assert_eq!(of_sessions(&sockets).len(), WAYS.len(), "a socket each");
        // An adapter that posts to its session listens for what becomes of it.
        worker.call("bus.broadcast", json!({ "body": "are you there?" }));
        eventually("every adapter has posted", || {
            (files(&messages).len() == 2 * WAYS.len()).then_some(())
        });

        let start = Instant::now();
        for (session, way) in sessions.iter_mut().zip(WAYS) {
            session.end(way);
        }
        eventually("no process is left", || {
            left(&home).is_empty().then_some(())
        });
        assert!(start.elapsed() < GONE, "{:?}", start.elapsed());
        assert_eq!(of_sessions(&sockets), Vec::<PathBuf>::new());
        for (session, way) in sessions.iter().zip(WAYS) {
            if way != "kill" {
                session
                    .said
                    .find("end", |line| (line == "ended").then_some(()));
            }
            // The client's own goes with the client, where that is not killed.
            let own = messages.join(format!("{}.sock", session.client.id()));
            fs::remove_file(own).expect("the client's socket");
        }
        assert_eq!(files(&messages), Vec::<PathBuf>::new());
    }
    broker.stop();
}
