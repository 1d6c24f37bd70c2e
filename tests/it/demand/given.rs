//! Sockets that a service manager passes.

use std::process::Stdio;

use rustix::process::{Signal, kill_process};

use super::World;
use crate::support::{Lines, eventually};

/// Listens at the path and at a port, as systemd does for a unit with `Sockets=`, and becomes the
/// program. With `stream` the first descriptor is no listener.
const GIVER: &str = r#"
import os, socket, sys
path, listens = sys.argv[1], sys.argv[2] == "listens"
os.makedirs(os.path.dirname(path), exist_ok=True)
unix = socket.socket(socket.AF_UNIX)
unix.bind(path)
if listens:
    unix.listen()
tcp = socket.create_server(("127.0.0.1", 0))
for number, given in ((3, os.dup(unix.fileno())), (4, os.dup(tcp.fileno()))):
    os.dup2(os.dup2(given, number + 100), number, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2", LISTEN_FDNAMES="unix:tcp")
os.execv(sys.argv[3], sys.argv[3:])
"#;

#[test]
fn a_broker_serves_sockets_that_it_is_given() {
    let world = World::new();
    let socket = world.state("peerbus.sock");
    let peerbus = env!("CARGO_BIN_EXE_peerbus");
    let start = |listens: &str| {
        let mut giver = world.home.command("python3");
        giver
            .args(["-c", GIVER])
            .arg(&socket)
            .args([listens, peerbus, "serve"]);
        giver
            .stderr(Stdio::piped())
            .spawn()
            .expect("python3 starts")
    };
    let mut broker = start("listens");
    let lines = Lines::of(broker.stderr.take().expect("a pipe"));
    let address = lines.find("address", |line| {
        Some(line.strip_prefix("listening on ws://")?.to_owned())
    });
    assert!(!address.ends_with(":47821"), "{address}");
    world.register("bob");
    let said = world.run(&["peers"]);
    assert!(
        said.stderr
            .contains("by systemd, for a connection to its sockets"),
        "{}",
        said.stderr
    );
    let token = world.home.credential("token");
    let secret = world.home.credential("hmac_secret");
    let mut over_tcp = world.peerbus(&["send", "bob", "over TCP"]);
    over_tcp.env("PEERBUS_URL", format!("ws://{address}"));
    over_tcp
        .env("PEERBUS_TOKEN", token)
        .env("PEERBUS_HMAC_SECRET", secret);
    assert!(over_tcp.output().expect("it starts").status.success());
    kill_process(rustix::process::Pid::from_child(&broker), Signal::TERM).expect("it is ours");
    assert!(broker.wait().expect("it ends").success());
    assert!(socket.exists(), "it is its giver's");

    std::fs::remove_file(&socket).expect("a socket");
    let broker = start("does not listen");
    let output = broker.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("cannot be used: it does not listen"),
        "{said}"
    );
    eventually("nothing is left", || {
        world.brokers().is_empty().then_some(())
    });
}
