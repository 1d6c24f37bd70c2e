//! The dashboard in a real browser, see `tests/web`.

use std::process::Command;

use crate::support::python;

fn passes(script: &str) {
    let mut scenario = Command::new("python3");
    scenario
        .arg(python::script(script))
        .arg(env!("CARGO_BIN_EXE_peerbus"));
    python::passes_or_skips(&mut scenario, python::in_ci());
}

#[test]
fn a_browser_sees_mail_arrive_and_be_seen_decides_what_waits_and_outlives_a_broker() {
    passes("web/dashboard.py");
}

#[test]
fn the_owner_of_agents_is_told_who_waits_who_is_stuck_and_what_is_late() {
    passes("web/owner.py");
}
