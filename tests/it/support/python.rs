//! The Python scripts under `tests/`, run by the `python3` of the PATH.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Home, Lines};

/// A file below `tests/`.
pub(crate) fn script(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests")
        .join(path)
}

/// A script that drives the binary for this home.
pub(crate) fn driver(home: &Home, path: &str) -> Command {
    let mut command = home.command("python3");
    command
        .arg(script(path))
        .arg(env!("CARGO_BIN_EXE_peerbus"))
        .arg("--home")
        .arg(home.path());
    command
}

/// Whether nothing is to be skipped, because `.ci/run` has installed everything.
pub(crate) fn in_ci() -> bool {
    std::env::var_os("CI").is_some()
}

/// Runs a script to its end and shows what it printed if it fails.
#[track_caller]
pub(crate) fn passes(command: &mut Command) {
    passes_or_skips(command, true);
}

/// The same. Exit code 3 says that something is missing: that skips the test, with the reason,
/// unless it must run.
#[track_caller]
pub(crate) fn passes_or_skips(command: &mut Command, must_run: bool) {
    let output = command.output().expect("python3 is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    if output.status.code() == Some(3) && !must_run {
        println!("skipped: {stderr}");
        return;
    }
    assert!(
        output.status.success(),
        "{}\n{stdout}\n{stderr}",
        output.status
    );
}

/// A broker that speaks v1 and nothing else.
pub(crate) struct V1Broker {
    child: Child,
    pub(crate) url: String,
}

impl V1Broker {
    pub(crate) fn start(home: &Home, token: &str) -> Self {
        let mut child = home
            .command("python3")
            .arg(script("v1/broker.py"))
            .args(["--listen", "127.0.0.1:0", "--tokens", token])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let lines = Lines::of(child.stdout.take().expect("a pipe"));
        let port = lines.find("port", |line| {
            line.rsplit([':', ' '])
                .next()
                .and_then(|port| port.trim().parse::<u16>().ok())
        });
        Self {
            child,
            url: format!("ws://127.0.0.1:{port}"),
        }
    }
}

impl Drop for V1Broker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
