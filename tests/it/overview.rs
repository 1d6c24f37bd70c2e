//! What the person is told who owns ten agents: the same of each, everywhere.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::orphans::Session;
use crate::requests::Holder;
use crate::sessions::listed;
use crate::support::{Broker, Home, eventually};

/// What each does, and what is said beside that.
const STATES: [(&str, &str, &str); 10] = [
    ("asks", "waits for you", "Bash: npm test"),
    (
        "questions",
        "waits for you",
        "AskUserQuestion: Red or blue?",
    ),
    ("frozen", "stuck", "its process is stopped"),
    ("unread", "stuck", "sent by socket"),
    ("loops", "idle", ""),
    ("holds", "busy", ""),
    ("owes", "idle", ""),
    ("fine-1", "idle", ""),
    ("fine-2", "busy", ""),
    ("fine-3", "online", ""),
];

fn asks(session: &mut Session, hook: usize, asked: &Value) {
    let mut asks = asked.clone();
    asks["hook_event_name"] = "PermissionRequest".into();
    session.tell(&format!("hook {hook} {asks}"));
    session.tell("status waiting");
}

fn signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    kill_process(process.expect("a process"), signal).expect("our child");
}

/// What a list of peers in JSON says of a name.
fn of<'a>(peers: &'a Value, name: &str) -> &'a Value {
    let mut all = peers.as_array().expect("a list").iter();
    let found = all.find(|peer| peer["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {peers}"))
}

#[test]
fn of_ten_agents_everything_tells_the_same() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut permission = Session::start(&home, "asks");
    let mut question = Session::start(&home, "questions");
    let frozen = Session::start(&home, "frozen");
    let mut loops = Session::start_with(&home, "loops", &[("PEERBUS_BUDGET", "1")]);
    let mut raw = ["unread", "holds", "owes", "fine-1", "fine-2", "fine-3"]
        .map(|name| Holder::new(&home, &broker, name));
    raw[0].shows(json!({ "activity": "stuck", "tried": "sent by socket", "wake": ["socket"] }));
    let does = ["busy", "idle", "idle", "busy"];
    for (peer, does) in raw[1..].iter_mut().zip(does) {
        peer.does(does);
    }
    for at in [1, 2] {
        let to = ["holds", "owes"][at - 1];
        home.run(&["ask", to, "ready?", "--within", "2h", "--detach"])
            .ok();
        raw[at].gets();
        raw[at].reads();
    }
    asks(
        &mut permission,
        1,
        &json!({ "tool_name": "Bash", "tool_input": { "command": "npm test" } }),
    );
    let questions = json!([{ "question": "Red or blue?", "options": [{ "label": "Red" }] }]);
    asks(
        &mut question,
        2,
        &json!({ "tool_name": "AskUserQuestion", "tool_input": { "questions": questions } }),
    );
    loops.tell("send fine-1 hello");
    raw[3].gets();
    raw[3].sends("r1", "loops", &json!({ "text": "Thank you!", "hops": 2 }));
    signal(frozen.process(), Signal::STOP);

    let overview = eventually("all is known", || {
        let told = home.run(&["status", "--json"]).ok();
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let is = |(name, state, _): &(&str, &str, &str)| {
            let peers = told["peers"].as_array().expect("a list");
            peers
                .iter()
                .any(|it| it["name"] == *name && it["state"] == *state)
        };
        let paused = told["peers"].as_array().expect("a list").iter();
        let paused = paused.filter(|peer| peer["paused"] == 1).count();
        (STATES.iter().all(is) && paused == 1).then_some(told)
    });
    assert_eq!(of(&overview["peers"], "loops")["paused"], 1);
    let requests = overview["requests"].as_array().expect("a list");
    assert_eq!(requests.len(), 2, "{overview}");

    let peers: Value = serde_json::from_str(&home.run(&["peers", "--json"]).ok()).expect("JSON");
    let shown = home.run(&["peers"]).ok();
    let lines = home.run(&["status"]).ok();
    let sessions = home.run(&["session", "list"]).ok();
    let doctor = home.run(&["doctor"]);
    for (name, state, beside) in STATES {
        assert_eq!(of(&peers["peers"], name)["state"], state, "{name}");
        for table in [&shown, &lines] {
            let row = |line: &&str| line.trim_start().starts_with(&format!("{name} "));
            let row = table
                .lines()
                .rfind(row)
                .unwrap_or_else(|| panic!("{name}: {table}"));
            assert!(row.contains(state), "{row}");
        }
        let here = listed(&home).iter().any(|session| session["name"] == name);
        if here {
            let row = sessions.lines().find(|line| line.contains(name));
            assert!(
                row.is_some_and(|row| row.contains(state)),
                "{name}: {sessions}"
            );
        }
        let alarms = ["waits for you", "stuck"].contains(&state);
        let mut said = lines.lines().filter(|line| line.starts_with(name));
        let said = said.any(|line| !beside.is_empty() && line.contains(beside));
        assert_eq!(said, alarms, "{name}: {lines}");
        let mut told = doctor.stdout.lines();
        let told = told.any(|line| line.contains(&format!(" {name} ")) && line.contains(state));
        assert_eq!(told, alarms, "{name}: {}", doctor.stdout);
    }
    let held = home.run(&["held"]);
    assert_eq!(held.stdout, "no mail waits for you\n");
    assert!(
        held.stderr.contains("at loops, paused: 2 replies led"),
        "{}",
        held.stderr
    );
    // With the gate closed, the way out is the terminal, and the file that has the gate is named.
    let gates = home.credentials().with_file_name("sessions.toml");
    let asked = home.run(&["session", "approve"]);
    assert!(asked.stdout.contains("npm test"), "{}", asked.stdout);
    for said in [&asked.stderr, &lines, &doctor.stdout] {
        assert!(said.contains("gate `approve` is closed"), "{said}");
        assert!(said.contains(&gates.display().to_string()), "{said}");
    }
    // Opened, it counts for what is asked already.
    fs::write(&gates, "approve = true").expect("it is written");
    let lines = home.run(&["status"]).ok();
    let id = lines
        .split("`peerbus session approve ")
        .nth(1)
        .expect(&lines);
    let id = id.split('`').next().expect("an id").to_owned();
    home.run(&["session", "approve", &id]).ok();
    let heard = permission.hear("hook 1");
    assert!(heard.contains(r#""behavior":"allow""#), "{heard}");
    signal(frozen.process(), Signal::CONT);
    eventually("it goes on", || {
        let told = home.run(&["peers", "--json"]).ok();
        let told: Value = serde_json::from_str(&told).expect("JSON");
        (of(&told["peers"], "frozen")["state"] == "idle").then_some(())
    });
    broker.stop();
}

#[test]
fn who_asks_one_that_waits_for_its_user_is_told_so_and_the_way_out() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Session::start(&home, "bob");
    eventually("bob is listed", || {
        listed(&home)
            .iter()
            .any(|it| it["name"] == "bob")
            .then_some(())
    });
    asks(
        &mut bob,
        1,
        &json!({ "tool_name": "Bash", "tool_input": { "command": "npm test" } }),
    );
    eventually("bob waits", || {
        let peers = home.run(&["peers"]).ok();
        peers.contains("waits for you").then_some(())
    });
    let why = home.run(&["ask", "bob", "?", "--timeout", "1"]).fails(1);
    let out = "Bash: npm test: answer in its own window; the gate `approve` is closed";
    assert!(
        why.contains("bob waits for you") && why.contains(out),
        "{why}"
    );
    let sent = home
        .run(&["send", "bob", "hello", "--wait", "seen=1"])
        .fails(1);
    assert!(
        sent.contains("bob waits for you") && sent.contains(out),
        "{sent}"
    );
    broker.stop();
}
