//! Real agents that speak ACP in the hands of `peerbus run`, see `tests/acp/README.md`.

use std::process::Command;

use crate::support::python;

#[test]
fn gemini_is_a_peer_that_mail_wakes() {
    holds("gemini");
}

#[test]
fn opencode_is_a_peer_that_mail_wakes() {
    holds("opencode");
}

/// Runs the scenario with an agent. `.ci/run` installs these two; elsewhere the agent may be missing,
/// which skips the test, with the reason.
#[track_caller]
fn holds(agent: &str) {
    let mut command = Command::new("python3");
    command
        .arg(python::script("acp/run.py"))
        .arg(env!("CARGO_BIN_EXE_peerbus"))
        .args([agent, "--no-table"]);
    python::passes_or_skips(&mut command, python::in_ci());
}
