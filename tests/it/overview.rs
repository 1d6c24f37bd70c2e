//! What the person is told who owns ten agents: the same of each, everywhere.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::orphans::Session;
use crate::requests::Holder;
use crate::sessions::{listed, names};
use crate::support::{Broker, Home, Mcp, eventually};

/// What each does, and what is said beside that.
const STATES: [(&str, &str, &str); 10] = [
    ("asks", "waits for you", "Bash: \"npm test\""),
    ("questions", "waits for you", "\"Red or blue?\" (1 Red)"),
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

fn npm_test() -> Value {
    json!({ "tool_name": "Bash", "tool_input": { "command": "npm test" } })
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

fn json(home: &Home, args: &[&str]) -> Value {
    serde_json::from_str(&home.run(args).ok()).expect("JSON")
}

/// Ten agents at a broker.
struct World {
    home: Home,
    broker: Broker,
    permission: Session,
    frozen: Session,
    _sessions: [Session; 2],
    _peers: [Holder; 6],
}

impl World {
    fn new() -> Self {
        let home = Home::new();
        let broker = Broker::start(&home);
        let mut permission = Session::start(&home, "asks");
        let mut question = Session::start(&home, "questions");
        let frozen = Session::start(&home, "frozen");
        let mut loops = Session::start_with(&home, "loops", &[("PEERBUS_BUDGET", "1")]);
        let mut peers = ["unread", "holds", "owes", "fine-1", "fine-2", "fine-3"]
            .map(|name| Holder::new(&home, &broker, name));
        eventually("the sessions are on the bus", || {
            (names(&home).iter().filter(|name| !name.is_empty()).count() == 4).then_some(())
        });
        let stuck = json!({ "activity": "stuck", "tried": "sent by socket", "wake": ["socket"] });
        peers[0].shows(stuck);
        let does = ["busy", "idle", "idle", "busy"];
        for (peer, does) in peers[1..].iter_mut().zip(does) {
            peer.does(does);
        }
        for (at, to) in [(1, "holds"), (2, "owes")] {
            let ask = ["ask", to, "ready?", "--within", "2h", "--detach"];
            home.run(&ask).ok();
            peers[at].gets();
            peers[at].reads();
        }
        asks(&mut permission, 1, &npm_test());
        let questions = json!([{ "question": "Red or blue?", "options": [{ "label": "Red" }] }]);
        let input = json!({ "questions": questions });
        let asked = json!({ "tool_name": "AskUserQuestion", "tool_input": input });
        asks(&mut question, 2, &asked);
        loops.tell("send fine-1 hello");
        peers[3].gets();
        peers[3].sends("r1", "loops", &json!({ "text": "Thank you!", "hops": 2 }));
        signal(frozen.process(), Signal::STOP);
        Self {
            home,
            broker,
            permission,
            frozen,
            _sessions: [question, loops],
            _peers: peers,
        }
    }

    /// What `status` tells once all of it is known.
    fn known(&self) -> Value {
        eventually("all is known", || {
            let told = json(&self.home, &["status", "--json"]);
            let peers = told["peers"].as_array().expect("a list");
            let is = |(name, state, _): &(&str, &str, &str)| {
                let is = |it: &Value| it["name"] == *name && it["state"] == *state;
                peers.iter().any(is)
            };
            let paused = peers.iter().any(|peer| peer["paused"] == 1);
            (paused && STATES.iter().all(is)).then_some(told)
        })
    }

    /// Everything that tells of a session tells this.
    fn all_tell(&self, (name, state, beside): (&str, &str, &str), doctor: &str) {
        let run = |args: &[&str]| self.home.run(args).ok();
        let peers = json(&self.home, &["peers", "--json"]);
        assert_eq!(of(&peers["peers"], name)["state"], state, "{name}");
        let lines = run(&["status"]);
        for table in [&run(&["peers"]), &lines] {
            let row = |line: &&str| line.trim_start().starts_with(&format!("{name} "));
            let row = table.lines().rfind(row);
            assert!(row.is_some_and(|it| it.contains(state)), "{name}: {table}");
        }
        if listed(&self.home).iter().any(|it| it["name"] == name) {
            // The file is written by one session at a time.
            eventually("the list says so, too", || {
                let list = run(&["session", "list"]);
                let row = list.lines().find(|line| line.contains(name))?;
                row.contains(state).then_some(())
            });
        }
        let alarms = ["waits for you", "stuck"].contains(&state);
        let mut said = lines.lines().filter(|line| line.starts_with(name));
        let said = said.any(|line| !beside.is_empty() && line.contains(beside));
        assert_eq!(said, alarms, "{name}: {lines}");
        let told = |line: &str| line.contains(&format!(" {name} ")) && line.contains(state);
        assert_eq!(doctor.lines().any(told), alarms, "{name}: {doctor}");
    }
}

#[test]
fn of_ten_agents_everything_tells_the_same() {
    let world = World::new();
    let overview = world.known();
    let requests = overview["requests"].as_array().expect("a list");
    assert_eq!(requests.len(), 2, "{overview}");
    let doctor = world.home.run(&["doctor"]).stdout;
    for row in STATES {
        world.all_tell(row, &doctor);
    }
    let held = world.home.run(&["held"]);
    assert_eq!(held.stdout, "no mail waits for you\n");
    let (at, why) = held
        .stderr
        .split_once(", paused: ")
        .expect("what is paused");
    assert!(
        at.starts_with("at loops ") && why.starts_with("2 replies led"),
        "{}",
        held.stderr
    );
    let sent = world.home.run(&["send", "unread", "hello"]).ok();
    let stuck = ["unread says that it is stuck", r#""sent by socket""#];
    assert!(stuck.iter().all(|part| sent.contains(part)), "{sent}");
    signal(world.frozen.process(), Signal::CONT);
    eventually("it goes on", || {
        let told = json(&world.home, &["peers", "--json"]);
        (of(&told["peers"], "frozen")["state"] == "idle").then_some(())
    });
    world.broker.stop();
}

#[test]
fn a_closed_gate_is_named_everywhere_and_counts_at_once_when_it_opens() {
    let world = World::new();
    world.known();
    let home = &world.home;
    let gates = home.credentials().with_file_name("sessions.toml");
    let asked = home.run(&["session", "approve"]);
    assert!(asked.stdout.contains("npm test"), "{}", asked.stdout);
    let (status, doctor) = (home.run(&["status"]).ok(), home.run(&["doctor"]).stdout);
    for said in [&asked.stderr, &status, &doctor] {
        assert!(said.contains("gate `approve` is closed"), "{said}");
        assert!(said.contains(&gates.display().to_string()), "{said}");
    }
    fs::write(&gates, "approve = true").expect("it is written");
    let lines = home.run(&["status"]).ok();
    let id = lines.split("`peerbus session approve ").nth(1);
    let id = id.and_then(|rest| rest.split('`').next()).expect(&lines);
    home.run(&["session", "approve", id]).ok();
    let heard = world.permission.hear("hook 1");
    assert!(heard.contains(r#""behavior":"allow""#), "{heard}");
    signal(world.frozen.process(), Signal::CONT);
    world.broker.stop();
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
    asks(&mut bob, 1, &npm_test());
    eventually("bob waits", || {
        let peers = home.run(&["peers"]).ok();
        peers.contains("waits for you").then_some(())
    });
    let why = home.run(&["ask", "bob", "?", "--timeout", "1"]).fails(1);
    let out = "Bash: \"npm test\": answer in its own window; the gate `approve` is closed";
    assert!(
        why.contains("bob waits for you") && why.contains(out),
        "{why}"
    );
    let sent = home.run(&["send", "bob", "hello"]).ok();
    assert!(
        sent.contains("bob waits for you") && sent.contains(out),
        "{sent}"
    );
    let sent = home
        .run(&["send", "bob", "hello", "--wait", "seen=1"])
        .fails(1);
    assert!(
        sent.contains("bob waits for you") && sent.contains(out),
        "{sent}"
    );
    let mut ann = Mcp::start(&home, "generic", "ann", "some-bot");
    let sent = ann.call("bus.send", json!({ "to": "bob", "body": "hello" }));
    let note = sent["note"].as_str().expect("a sentence");
    let to_peers = "bob says that it waits for its user";
    assert!(note.contains(to_peers) && !note.contains("npm"), "{note}");
    broker.stop();
}

#[test]
fn a_stopped_adapter_is_told_everywhere_in_one_word() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    let adapter = bob.adapter();
    signal(adapter, Signal::STOP);
    eventually("it is stopped", || {
        let peers = json(&home, &["peers", "--json"]);
        (of(&peers["peers"], "bob")["state"] == "stuck").then_some(())
    });
    let why = "its adapter is stopped";
    let sent = home.run(&["send", "bob", "hello", "--json"]).ok();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    let id = sent["id"].as_str().expect("an id");
    let run = |args: &[&str]| home.run(args).stdout;
    for said in [
        run(&["send", "bob", "hello"]),
        run(&["status", id]),
        run(&["status"]),
        run(&["doctor"]),
        run(&["peers", "--json"]),
    ] {
        assert!(said.contains("stuck") && said.contains(why), "{said}");
        assert!(!said.contains("bob says that it is stuck"), "{said}");
    }
    for said in [run(&["peers"]), run(&["session", "list"])] {
        let row = said.lines().find(|line| line.starts_with("bob "));
        assert!(row.is_some_and(|row| row.contains("stuck")), "{said}");
    }
    let mut ann = Mcp::start(&home, "generic", "ann", "some-bot");
    let peers = ann.call("bus.peers", json!({}))["details"].clone();
    let sent = ann.call("bus.send", json!({ "to": "bob", "body": "hello" }));
    let status = ann.call("bus.status", json!({ "id": sent["id"] }));
    for said in [of(&peers, "bob"), &sent["note"], &status] {
        let said = said.to_string();
        assert!(said.contains("stuck") && said.contains(why), "{said}");
    }
    signal(adapter, Signal::CONT);
    broker.stop();
}

#[test]
fn a_broker_that_is_started_anew_says_what_it_said_of_mail_under_way() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    let sent = home.run(&["send", "bob", "hello", "--json"]).ok();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    let id = sent["id"].as_str().expect("an id");
    let path = || {
        let status = json(&home, &["status", id, "--json"]);
        let steps = status["messages"][0]["trail"]["steps"]
            .as_array()
            .expect("steps");
        let pushed = steps.iter().find(|step| step["state"] == "pushed");
        pushed.map(|step| step["path"].clone())
    };
    let before = eventually("it is pushed", path);
    broker.kill();
    let broker = Broker::start(&home);
    assert_eq!(eventually("it is told again", path), before);
    broker.stop();
}
