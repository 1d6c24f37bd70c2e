//! The picture of the guide.

use std::process::Command;

use crate::support::python;

#[test]
fn the_picture_shows_what_commands_say() {
    let mut command = Command::new("python3");
    command
        .arg(python::script("pictures/record.py"))
        .arg(env!("CARGO_BIN_EXE_peerbus"))
        .arg("--check");
    let output = command.output().expect("python3 starts");
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}
