//! Adapters below a driver.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, ChildStdin, Stdio};

use serde_json::{Value, json};

use super::{Driven, home, is_ready, is_seen, send, told};
use crate::support::{Broker, Home, Lines};

#[test]
fn an_adapter_of_the_driven_clients_stays_out_and_another_agents_joins() {
    let home = home();
    let broker = Broker::start(&home);
    let adapter = [("ADAPTER", env!("CARGO_BIN_EXE_peerbus"))];
    let driven = Driven::start_with(&home, &[], &adapter);
    is_ready(&home);
    is_seen(&home, &send(&home, "start adapters"));
    let told = told(&home);
    let said = told.iter().find_map(|told| told["adapters"].as_array());
    let said: Vec<_> = said.expect("adapters").iter().map(Value::as_str).collect();
    let [Some(own), Some(with_few_variables), Some(others)] = said[..] else {
        panic!("{said:?}")
    };
    for said in [own, with_few_variables] {
        assert!(said.contains("is on the bus already"), "{said}");
    }
    assert!(others.contains("serverInfo"), "{others}");
    driven.stop();
    broker.stop();
}

/// The socket at which this process is a driver, for adapters of this home.
fn socket(home: &Home) -> UnixListener {
    let dir = home.path().join(".local/state/peerbus/sessions");
    std::fs::create_dir_all(&dir).expect("a directory");
    let id = std::process::id();
    UnixListener::bind(dir.join(format!("{id}.{id}.sock"))).expect("a socket")
}

/// An adapter that this process drives.
struct Adapter {
    child: Child,
    to: Option<ChildStdin>,
    out: Lines,
    errors: Lines,
}

impl Adapter {
    fn start(home: &Home) -> Self {
        let mut command = home.peerbus(&["adapter"]);
        let mut child = command
            .env("PEERBUS_DRIVER", std::process::id().to_string())
            .env("PEERBUS_RELAY", "the token")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("peerbus starts");
        let out = Lines::of(child.stdout.take().expect("a pipe"));
        let errors = Lines::of(child.stderr.take().expect("a pipe"));
        let to = child.stdin.take();
        Self {
            child,
            to,
            out,
            errors,
        }
    }

    fn say(&mut self, line: &str) {
        let to = self.to.as_mut().expect("open");
        to.write_all(format!("{line}\n").as_bytes())
            .expect("it reads");
    }

    #[track_caller]
    fn hears(&self, id: u64) -> Value {
        self.out.find("an answer", |line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            (line["id"] == id).then_some(line)
        })
    }

    fn begin(&mut self) {
        let probe = json!({ "jsonrpc": "2.0", "id": 8, "method": "server/discover" });
        self.say(&probe.to_string());
        assert_eq!(self.hears(8)["error"]["code"], -32_601);
        self.say(HELLO);
    }
}

impl Drop for Adapter {
    /// Nothing is left of a test that failed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const HELLO: &str = r#"{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"codex","version":"7"}}}"#;

/// Takes an adapter's connection, and tells it what it is to be.
fn tell(driver: &UnixListener, part: &str) -> (BufReader<UnixStream>, UnixStream) {
    let (mut write, _) = driver.accept().expect("an adapter");
    let mut read = BufReader::new(write.try_clone().expect("a socket"));
    let asked = next(&mut read);
    assert_eq!(asked["method"], "session/tools", "{asked}");
    let client = json!({ "name": "codex", "version": "7" });
    let params = json!({ "client": client, "token": "the token" });
    assert_eq!(asked["params"], params);
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": part });
    writeln!(write, "{answer}").expect("it reads");
    (read, write)
}

fn next(read: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    read.read_line(&mut line).expect("a line");
    serde_json::from_str(&line).expect("JSON")
}

#[test]
fn a_relay_passes_lines_on_as_they_are_until_either_end_closes() {
    let home = Home::new();
    let driver = socket(&home);
    for closes_first in ["the driver", "the client"] {
        let mut adapter = Adapter::start(&home);
        adapter.begin();
        let (mut read, mut write) = tell(&driver, "relay");
        let mut line = String::new();
        read.read_line(&mut line).expect("a line");
        assert_eq!(line.trim_end(), HELLO);
        writeln!(write, r#"{{"id":9,"result":{{}}}}"#).expect("it reads");
        assert_eq!(adapter.hears(9)["result"], json!({}));
        let long = json!({ "id": 10, "x": "x".repeat(20_000) });
        adapter.say(&long.to_string());
        assert_eq!(next(&mut read), long);
        match closes_first {
            "the driver" => drop((read, write)),
            _ => drop(adapter.to.take()),
        }
        assert_eq!(adapter.child.wait().expect("it ends").code(), Some(0));
    }
}

#[test]
fn an_adapter_that_a_driver_does_not_know_is_a_peer_and_loses_no_line() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let driver = socket(&home);
    let mut adapter = Adapter::start(&home);
    adapter.begin();
    drop(tell(&driver, "peer"));
    assert_eq!(adapter.hears(9)["result"]["serverInfo"]["name"], "peerbus");
    adapter.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let call = json!({ "name": "bus.peers", "arguments": {} });
    let call = json!({ "jsonrpc": "2.0", "id": 10, "method": "tools/call", "params": call });
    adapter.say(&call.to_string());
    assert_eq!(adapter.hears(10)["result"]["isError"], false);
    drop(adapter.to.take());
    assert_eq!(adapter.child.wait().expect("it ends").code(), Some(0));
    broker.stop();
}

#[test]
fn an_adapter_stays_out_where_its_driver_wants_none_or_cannot_be_asked() {
    let home = Home::new();
    let driver = socket(&home);
    for answers in [true, false] {
        let mut adapter = Adapter::start(&home);
        adapter.begin();
        if answers {
            tell(&driver, "nothing");
        } else {
            drop(driver.accept().expect("an adapter"));
        }
        adapter.errors.find("why", |line| {
            line.contains("is on the bus already").then_some(())
        });
        assert_eq!(adapter.child.wait().expect("it ends").code(), Some(1));
    }
}
