//! `PEERBUS_NAME`: whose it is, and who has it.

use crate::support::{Home, Mcp};

use super::{OTHER_SECRET, Setup};

#[test]
fn a_name_of_another_token_and_one_in_use_are_told_apart() {
    let home = Home::new();
    let socket = home.path().join("b.sock");
    let mut serve = home.peerbus(&["serve", "--listen", "127.0.0.1:0", "--socket"]);
    serve
        .arg(&socket)
        .env("PEERBUS_TOKENS", "token-one,token-two");
    let mut broker = serve
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("serve starts");
    crate::support::eventually("the broker listens", || socket.exists().then_some(()));
    let run = |args: &[&str], token: &str, name: &str| {
        let mut command = home.peerbus(args);
        command
            .env("PEERBUS_TOKEN", token)
            .env("PEERBUS_HMAC_SECRET", OTHER_SECRET);
        command.env("PEERBUS_URL", format!("unix:{}", socket.display()));
        let output = command
            .env("PEERBUS_NAME", name)
            .output()
            .expect("peerbus starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(
        &["recv", "--name", "bob", "--timeout", "0.1"],
        "token-one",
        "",
    );
    let said = run(&["doctor"], "token-two", "bob");
    let line = said.lines().find(|line| line.starts_with("failed  name: "));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.contains("another token") && line.contains("`peerbus names release bob`"),
        "{line}"
    );
    let said = run(&["doctor"], "token-one", "bob");
    assert!(said.contains("name: bob can be used"), "{said}");
    broker.kill().expect("the broker is ours");
    broker.wait().expect("the broker ends");
}

#[test]
fn who_has_a_name_is_told() {
    let setup = Setup::new();
    let carol = Mcp::start(&setup.home, "generic", "carol", "some-bot");
    crate::support::eventually("carol is there", || {
        let (lines, _) = setup.doctor(&[("PEERBUS_NAME", "carol")]);
        let told = |line: &String| line.starts_with("ok      name: carol is in use by some-bot");
        lines.iter().any(told).then_some(())
    });
    drop(carol);
}
