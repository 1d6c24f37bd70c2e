//! The real CLIs of other agents after `peerbus install`, see `tests/other-agents/run.py`.

use std::process::Command;

use crate::support::python;

/// The script's exit code when something that it needs is missing.
const CANNOT_RUN: i32 = 3;

#[test]
fn real_agents_read_their_mail_and_answer_after_an_install() {
    // They are more than a gigabyte: whoever has run the script by hand has them, CI has not.
    let output = Command::new("python3")
        .arg(python::script("other-agents/run.py"))
        .arg(env!("CARGO_BIN_EXE_peerbus"))
        .args(["all", "--cached"])
        .output()
        .expect("python3 is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(CANNOT_RUN) {
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
