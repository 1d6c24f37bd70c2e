//! The dashboard in a real browser, see `tests/web/dashboard.py`.

use std::process::Command;

use crate::support::python;

#[test]
fn a_browser_sees_mail_arrive_and_be_seen_decides_what_waits_and_outlives_a_broker() {
    let mut scenario = Command::new("python3");
    scenario
        .arg(python::script("web/dashboard.py"))
        .arg(env!("CARGO_BIN_EXE_peerbus"));
    python::passes_or_skips(&mut scenario, python::in_ci());
}
