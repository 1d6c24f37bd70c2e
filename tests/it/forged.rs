//! A client asks more than a list has room for, or what another one asks.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::{Value, json};

use crate::orphans::Session;
use crate::sessions::{listed, names};
use crate::support::{Broker, Home, eventually};

/// Room for what one client asks.
const LISTED: usize = 8;

/// A session that asks to run a command for each of these hooks.
fn asking(home: &Home, hooks: usize) -> Session {
    let mut bob = Session::start(home, "bob");
    eventually("bob is listed", || (names(home) == ["bob"]).then_some(()));
    for hook in 1..=hooks {
        let asks = json!({
            "hook_event_name": "PermissionRequest",
            "tool_name": "Bash",
            "tool_input": { "command": format!("true {hook}") },
        });
        bob.tell(&format!("hook {hook} {asks}"));
    }
    bob.tell("status waiting");
    bob
}

/// What `session approve` lists.
fn asked(home: &Home) -> Vec<Value> {
    let told = home.run(&["session", "approve", "--json"]).ok();
    let told: Value = serde_json::from_str(&told).expect("JSON");
    told["approvals"].as_array().expect("a list").clone()
}

#[test]
fn a_list_that_has_no_room_says_that_more_is_asked() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = asking(&home, LISTED + 1);
    let said = eventually("one has no room", || {
        let said = home.run(&["session", "approve"]).stderr;
        said.contains("more than is listed").then_some(said)
    });
    let more = "bob asks more than is listed: answer the rest where it is asked";
    assert!(said.contains(more), "{said}");
    assert_eq!(asked(&home).len(), LISTED);
    let status = home.run(&["status"]).ok();
    assert!(
        status.contains("not all that it asks is listed"),
        "{status}"
    );
    broker.stop();
}

/// A session that says it asks this.
fn forges(dir: &Path, beside: &Session, request: Value) {
    // This process is to look like no agent.
    let numbers = format!("{}.{}.9.sock", beside.process(), beside.adapter());
    let socket = dir.join(numbers);
    let listener = UnixListener::bind(&socket).expect("a free path");
    let index = dir.join("index.json");
    let lock = File::open(dir.join("index.lock")).expect("the list's lock");
    lock.lock().expect("whoever writes it is soon done");
    let text = fs::read_to_string(&index).expect("a list");
    let mut list: Value = serde_json::from_str(&text).expect("JSON");
    let all = list["sessions"].as_array_mut().expect("a list");
    let mut eve = all[0].clone();
    eve["name"] = "eve".into();
    eve["socket"] = json!(socket);
    eve["started_at"] = "2020".into();
    all.push(eve);
    fs::write(&index, list.to_string()).expect("our home");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines();
            while let Some(Ok(line)) = lines.next() {
                let call: Value = serde_json::from_str(&line).expect("JSON");
                let told = json!({ "name": "eve", "approvals": [request] });
                let answer = json!({ "jsonrpc": "2.0", "id": call["id"], "result": told });
                // Who asked may be gone.
                let _ = writeln!(&stream, "{answer}");
            }
        }
    });
}

#[test]
fn an_answer_to_what_two_sessions_ask_goes_to_the_one_that_is_named() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let gates = home.credentials().with_file_name("sessions.toml");
    fs::write(gates, "approve = true").expect("it is written");
    let bob = asking(&home, 1);
    let request = eventually("bob asks", || asked(&home).pop());
    let id = request["request_id"].as_str().expect("an id").to_owned();
    let socket = listed(&home)[0]["socket"].clone();
    let socket = Path::new(socket.as_str().expect("a path"));
    let mut forged = request.clone();
    forged["input"] = json!({ "command": "rm -r /" });
    let dir = socket.parent().expect("a directory");
    forges(dir, &bob, forged);
    assert_eq!(asked(&home).len(), 2);
    for verb in ["approve", "deny"] {
        let why = home.run(&["session", verb, &id]).fails(2);
        let both = ["bob", "eve", &id, "name the session"];
        assert!(both.iter().all(|part| why.contains(part)), "{why}");
    }
    home.run(&["session", "approve", "bob"]).ok();
    let heard = bob.hear("hook 1");
    assert!(heard.contains(r#""behavior":"allow""#), "{heard}");
    broker.stop();
}
