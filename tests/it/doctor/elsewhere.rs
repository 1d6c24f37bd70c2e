//! A broker that runs where it is not looked for.

use crate::support::{Broker, Home};

/// The line about the broker.
fn said(home: &Home, listen: &str) -> String {
    let mut command = home.peerbus(&["doctor"]);
    let output = command.env("PEERBUS_LISTEN", listen).output();
    let text = String::from_utf8_lossy(&output.expect("peerbus starts").stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.starts_with("failed  broker: "));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn a_broker_with_a_socket_of_its_own_is_found_by_its_lock_file() {
    let home = Home::new();
    let socket = home.path().join("other.sock");
    let socket = socket.to_str().expect("UTF-8");
    let broker = Broker::start_with(&home, &["--socket", socket]);
    let doctor = home.run(&["doctor"]).stdout;
    let found = format!("ok      broker: registered at unix:{socket}");
    assert!(doctor.contains(&found), "{doctor}");
    assert!(home.run(&["peers"]).code == Some(0));
    broker.stop();
    let line = said(&home, "127.0.0.1:1");
    assert!(
        line.contains("no broker is running here") && line.contains("start `peerbus serve`"),
        "{line}"
    );
}

#[test]
fn a_port_is_a_hint_and_the_reason_of_the_start_comes_first() {
    let other = Home::new();
    let broker = Broker::start(&other);
    // Another user's would answer alike.
    let home = Home::new();
    let hint = format!("(a broker answers at {}: it may be another", broker.url());
    std::fs::create_dir_all(home.database()).expect("a directory in the way");
    let mut command = home.peerbus(&["doctor"]);
    command
        .env("PEERBUS_LISTEN", &broker.address)
        .env("PEERBUS_AUTOSTART", "on");
    let output = command.output().expect("peerbus starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.starts_with("failed  broker: "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let reason = "failed  broker: no broker is running, and none could be started: ";
    assert!(line.starts_with(reason), "{line}");
    assert!(line.contains(&hint), "{line}");
    assert!(
        line.contains("remedy: mend that, and the next command"),
        "{line}"
    );
    broker.stop();
}

#[test]
fn an_address_for_which_the_files_token_is_not_is_named() {
    let home = Home::new();
    Broker::start(&home).stop();
    let mut doctor = home.peerbus(&["doctor"]);
    let output = doctor.env("PEERBUS_URL", "ws://192.0.2.1:1").output();
    let text = String::from_utf8_lossy(&output.expect("peerbus starts").stdout).into_owned();
    let file = home.credentials().display().to_string();
    let line = text
        .lines()
        .find(|line| line.starts_with("failed  credentials: the token in "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    for part in [
        &*file,
        "was not sent to ws://192.0.2.1:1",
        "remedy: take that address away",
    ] {
        assert!(line.contains(part), "{line}");
    }
}
