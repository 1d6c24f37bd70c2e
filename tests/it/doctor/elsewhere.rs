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
fn a_broker_whose_socket_is_not_found_is_told_from_none() {
    let home = Home::new();
    let socket = home.path().join("other.sock");
    let socket = socket.to_str().expect("UTF-8");
    let broker = Broker::start_with(&home, &["--socket", socket]);
    let tried = ".local/state/peerbus/peerbus.sock";
    let remedy = "remedy: set XDG_RUNTIME_DIR as it is for the broker, or PEERBUS_URL=unix:PATH";

    let line = said(&home, "127.0.0.1:1");
    let pid = format!("a broker runs (process {} has ", broker.pid().as_raw_pid());
    for part in [pid.as_str(), tried, remedy] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains("start `peerbus serve`"), "{line}");

    // One whose state is elsewhere shows at its port.
    let other = Home::new();
    std::fs::create_dir_all(other.path().join(".config/peerbus")).expect("a directory");
    std::fs::copy(home.credentials(), other.credentials()).expect("a file");
    let line = said(&other, &broker.address);
    let port = format!("a broker runs (it answers at {})", broker.url());
    for part in [port.as_str(), tried, remedy] {
        assert!(line.contains(part), "{part}: {line}");
    }
    broker.stop();

    let line = said(&home, "127.0.0.1:1");
    assert!(
        line.contains("no broker is running here") && line.contains("start `peerbus serve`"),
        "{line}"
    );
}
