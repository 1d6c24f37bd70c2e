//! The real Claude Code CLI as a client, see `tests/claude-code/README.md`.

use std::path::Path;
use std::process::Command;

use crate::support::python;

/// The script's exit code when something that it needs is missing.
const CANNOT_RUN: i32 = 3;

#[test]
fn peers_wake_the_real_cli_and_are_told_what_its_model_has_seen() {
    holds(&[]);
}

#[test]
fn hooks_wake_a_real_cli_that_offers_nothing_else() {
    holds(&["--version", "2.1.114", "--scenario", "hooks_scenario"]);
}

/// Runs a scenario, or tells why it cannot be run here.
#[track_caller]
fn holds(scenario: &[&str]) {
    // The user's own environment, for the cache of the installed CLI; the script scrubs it.
    let output = Command::new("python3")
        .arg(python::script("claude-code/run.py"))
        .arg(env!("CARGO_BIN_EXE_peerbus"))
        .args(scenario)
        .output()
        .expect("python3 is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(CANNOT_RUN) && !must_run() {
        println!("skipped: {said}");
        return;
    }
    assert!(
        output.status.success(),
        "{}\n{}\n{said}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    );
}

/// In CI nothing is skipped where npm and namespaces could be had.
fn must_run() -> bool {
    std::env::var_os("CI").is_some() && installed("npm") && installed("unshare")
}

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| Path::new(&dir).join(program).is_file())
}
