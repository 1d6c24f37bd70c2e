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

/// Runs a script to its end and shows what it printed if it fails.
#[track_caller]
pub(crate) fn passes(command: &mut Command) -> String {
    let output = command.output().expect("python3 is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{:?}\n{stdout}\n{stderr}",
        output.status
    );
    stdout
}

/// Runs a script that needs a package (exit code 3 says that it is missing). Outside CI that skips
/// the test, with the reason; in CI, where `.ci/run` installs it, it fails.
#[track_caller]
pub(crate) fn passes_if_installed(command: &mut Command) {
    let output = command.output().expect("python3 is installed");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(3) && std::env::var_os("CI").is_none() {
        println!("skipped: {said}");
        return;
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{:?}\n{stdout}\n{said}",
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
