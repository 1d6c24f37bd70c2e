//! The real CLIs of other agents after `peerbus install`, see `tests/other-agents/run.py`.

use std::process::Command;

use crate::support::python;

#[test]
fn real_agents_read_their_mail_and_answer_after_an_install() {
    // They are more than a gigabyte: whoever has run the script by hand has them, CI has not.
    let mut command = Command::new("python3");
    command
        .arg(python::script("other-agents/run.py"))
        .arg(env!("CARGO_BIN_EXE_peerbus"))
        .args(["all", "--cached"]);
    python::passes_or_skips(&mut command, false);
}
