//! `peerbus run --acp`, with a stand-in for an agent. `tests/acp/run.py` has the real ones.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::stream::{PICTURE, picture};
use super::{Driven, send, state, told};
use crate::sessions::{Node, listed};
use crate::support::{Broker, Home, PATIENCE, eventually};

/// A driver of the stand-in, on the bus as `driven`.
struct Acp {
    home: Home,
    _broker: Broker,
    driven: Driven,
}

impl Acp {
    fn start(traits: &[&str]) -> Self {
        Self::start_with(traits, &[])
    }

    fn start_with(traits: &[&str], more: &[&str]) -> Self {
        let home = Home::new();
        let broker = Broker::start(&home);
        let gates = home.credentials().with_file_name("sessions.toml");
        std::fs::write(gates, "interrupt = true\n").expect("written");
        let driven = drive(&home, traits, more);
        let acp = Self {
            home,
            _broker: broker,
            driven,
        };
        eventually("it can be woken", || {
            let peers = acp.home.run(&["peers", "--json"]).ok();
            peers.contains("\"acp\"").then_some(())
        });
        acp
    }

    /// What is told of it.
    fn peer(&self) -> Value {
        let told = self.home.run(&["peers", "--json"]).ok();
        let told: Value = serde_json::from_str(&told).expect("JSON");
        told["peers"][0].clone()
    }

    #[track_caller]
    fn send(&self, text: &str) -> String {
        send(&self.home, text)
    }

    #[track_caller]
    fn is_seen(&self, id: &str) {
        let seen = eventually("it is seen", || state(&self.home, id, "seen"));
        assert_eq!(
            (&seen["path"], &seen["evidence"]),
            (&json!("acp"), &json!("transcript"))
        );
    }

    /// No more is claimed of it than that it was taken.
    #[track_caller]
    fn is_taken(&self, id: &str) {
        eventually("it is acked as pushed", || {
            let told = self.home.run(&["status", id, "--json"]).ok();
            let claimed = "as pushed over acp; the ack does not show that it was read";
            told.contains(claimed).then_some(())
        });
        assert_eq!(state(&self.home, id, "seen"), None);
    }

    /// The texts of the prompts that have this in them.
    fn prompts(&self, with: &str) -> Vec<String> {
        let told = told(&self.home).into_iter();
        let prompts = told.filter(|told| told["method"] == "session/prompt");
        let texts = prompts.map(|told| told["params"]["prompt"][0]["text"].clone());
        let texts = texts.map(|text| text.as_str().expect("a text").to_owned());
        texts.filter(|text| text.contains(with)).collect()
    }

    fn methods(&self) -> Vec<String> {
        let told = told(&self.home).into_iter();
        let methods = told.filter_map(|told| Some(told["method"].as_str()?.to_owned()));
        methods.collect()
    }

    fn noted(&self, what: &str) -> Vec<Value> {
        let told = told(&self.home).into_iter();
        told.filter_map(|told| told.get(what).cloned()).collect()
    }

    /// Shown twice, the second time as a repeat.
    #[track_caller]
    fn is_shown_again(&self, id: &str) {
        let shown = self.prompts(&id[24..]);
        let [one, again] = &shown[..] else {
            panic!("{shown:?}")
        };
        assert!(!one.contains("(shown before)"), "{one}");
        assert!(again.contains("(shown before)"), "{again}");
    }
}

fn drive(home: &Home, traits: &[&str], more: &[&str]) -> Driven {
    let program = home.path().join("agent.py");
    std::fs::write(&program, include_bytes!("agent.py")).expect("written");
    let mut command = home.peerbus(&["run", "--acp", "--name", "driven"]);
    command.args(more).args(["--", "python3"]).arg(program);
    let child = command
        .args(traits)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("peerbus starts");
    Driven::of(child)
}

#[test]
fn what_an_agent_cannot_know_it_is_told_once_and_what_it_answers_is_seen() {
    let acp = Acp::start_with(&[], &["hello", "--permission-mode", "default"]);
    acp.driven.out.find("what the model says", |line| {
        (line == "heard it").then_some(())
    });
    let id = acp.send("are you <there> with @all?");
    acp.is_seen(&id);
    let prompts = acp.prompts("");
    let [hello, message] = &prompts[..] else {
        panic!("{prompts:?}")
    };
    assert!(hello.starts_with("peerbus connects you"), "{hello}");
    assert!(hello.ends_with("\n\nhello"), "{hello}");
    assert!(message.starts_with("<peerbus_messages>\n"), "{message}");
    assert!(message.contains("\\u0040all"), "{message}");
    let mode = json!({ "sessionId": "session-1", "modeId": "default" });
    let set = told(&acp.home);
    let set = set.iter().find(|told| told["method"] == "session/set_mode");
    assert_eq!(set.expect("a mode")["params"], mode);
    let peers = acp.home.run(&["peers", "--json"]).ok();
    assert!(peers.contains("stand-in 7"), "{peers}");
}

#[test]
fn there_is_never_a_second_prompt_in_a_turn() {
    let acp = Acp::start(&[]);
    let held = acp.send("hold on");
    eventually("it is a turn", || {
        (acp.prompts("hold on").len() == 1).then_some(())
    });
    let more: Vec<_> = ["one", "two", "three"].map(|text| acp.send(text)).into();
    acp.home.run(&["session", "interrupt", "driven"]).ok();
    for id in &more {
        acp.is_seen(id);
    }
    assert_eq!(acp.noted("second"), [] as [Value; 0]);
    assert_eq!(state(&acp.home, &held, "seen"), None);
    // What waited went together.
    assert_eq!(acp.prompts("📨").len(), 2, "{:?}", acp.prompts("📨"));
}

#[test]
fn a_turn_that_failed_proves_nothing_and_its_message_goes_again() {
    for how in ["no service", "same sum"] {
        let acp = Acp::start(&[]);
        let id = acp.send(how);
        let why = "a turn failed";
        if how == "no service" {
            acp.driven
                .errors
                .find(why, |line| line.contains(why).then_some(()));
            assert_eq!(state(&acp.home, &id, "seen"), None, "{how}");
            acp.is_seen(&id);
            acp.is_shown_again(&id);
        } else {
            // The sum of a session that is new is its first turn's; the next repeats it.
            acp.is_seen(&id);
            let id = acp.send(how);
            acp.is_taken(&id);
        }
    }
}

#[test]
fn one_whose_turn_failed_is_stuck_until_one_ends_well_and_mail_wakes_it() {
    let acp = Acp::start(&[]);
    let (home, why) = (&acp.home, "its last turn failed, and the next begins");
    acp.send("no credit");
    eventually("it is stuck", || {
        let peer = acp.peer();
        assert_eq!(peer["wake"], json!(["acp"]), "{peer}");
        let says = peer["tried"].as_str().is_some_and(|it| it.contains(why));
        (peer["state"] == "stuck" && says).then_some(())
    });
    let status = home.run(&["status"]).ok();
    assert!(status.contains(why), "{status}");
    let doctor = home.run(&["doctor"]).stdout;
    assert!(
        doctor.contains(why) && !doctor.contains("nothing wakes"),
        "{doctor}"
    );
    let list = home.run(&["session", "list"]).ok();
    assert!(list.contains("stuck"), "{list}");
    let tried = acp.prompts("").len();
    let sent = home.run(&["send", "driven", "hello again"]).ok();
    assert!(!sent.contains("nothing wakes"), "{sent}");
    eventually("it is tried at once", || {
        (acp.prompts("").len() > tried).then_some(())
    });
}

#[test]
fn an_interrupt_of_another_turn_ends_what_a_failed_one_began() {
    let acp = Acp::start(&[]);
    acp.send("no credit");
    // It goes alone from then on.
    for _ in 0..2 {
        let is_it = |line: &str| line.contains("a turn failed").then_some(());
        acp.driven.errors.find("a turn failed", is_it);
    }
    eventually("it names the pause of that", || {
        let peer = acp.peer();
        let tried = peer["tried"].as_str().unwrap_or_default();
        tried
            .contains("the next begins 60 s after it")
            .then_some(())
    });
    acp.send("hold on");
    eventually("it is a turn", || {
        (acp.prompts("hold on").len() == 1).then_some(())
    });
    acp.home.run(&["session", "interrupt", "driven"]).ok();
    eventually("its user has acted", || {
        (acp.peer()["state"] == "idle").then_some(())
    });
}

#[test]
fn of_an_agent_of_which_nothing_is_known_words_alone_are_no_proof() {
    let acp = Acp::start(&[]);
    for text in ["words alone", "a false end"] {
        let id = acp.send(text);
        acp.is_taken(&id);
    }
}

#[test]
fn what_a_gate_does_not_allow_is_denied_for_once_and_bus_tools_are_allowed_for_once() {
    let acp = Acp::start(&[]);
    let id = acp.send("use tools");
    acp.is_seen(&id);
    let chosen = |id: &str| json!({ "outcome": "selected", "optionId": id });
    assert_eq!(acp.noted("outcome"), [chosen("once"), chosen("no")]);
}

#[test]
fn a_line_of_fifty_megabytes_ends_nothing_but_where_somebody_waits_for_it() {
    let acp = Acp::start(&[]);
    let id = acp.send("a long line");
    acp.is_seen(&id);
    assert_eq!(acp.noted("argv").len(), 1);
    let id = acp.send("a long answer");
    acp.is_seen(&id);
    acp.is_shown_again(&id);
    assert_eq!(acp.noted("argv").len(), 2);
}

#[test]
fn a_session_is_gone_on_with_and_its_history_shows_what_was_answered() {
    let acp = Acp::start(&[]);
    let first = acp.send("hello");
    acp.is_seen(&first);
    let id = acp.send("die after the answer");
    acp.is_seen(&id);
    assert_eq!(acp.prompts(&id[24..]).len(), 1);
    let id = acp.send("die at once");
    acp.is_seen(&id);
    acp.is_shown_again(&id);
    let methods = acp.methods();
    let loads = methods.iter().filter(|it| *it == "session/load");
    assert_eq!(loads.count(), 2, "{methods:?}");
}

#[test]
fn a_history_without_anything_is_another_sessions() {
    let acp = Acp::start(&["empty load"]);
    let first = acp.send("hello");
    acp.is_seen(&first);
    let id = acp.send("die at once");
    acp.is_seen(&id);
    let methods = acp.methods();
    let anew = methods.iter().filter(|it| *it == "session/new");
    assert_eq!(anew.count(), 2, "{methods:?}");
    // The model that knows nothing is told of the bus again.
    let told = acp.prompts("peerbus connects you");
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn an_agent_that_never_answers_is_busy_and_can_be_stopped() {
    let acp = Acp::start(&[]);
    acp.send("stay silent");
    eventually("it is busy", || {
        let peers = acp.home.run(&["peers", "--json"]).ok();
        peers.contains("\"busy\"").then_some(())
    });
    acp.home.run(&["session", "interrupt", "driven"]).ok();
    let id = acp.send("and now?");
    acp.is_seen(&id);
}

#[test]
fn the_server_that_the_agent_is_told_to_start_is_the_drivers_and_no_peer() {
    let acp = Acp::start(&[]);
    let id = acp.send("call a tool of the bus");
    acp.is_seen(&id);
    let called = &acp.noted("called")[0];
    assert_eq!(
        called["result"]["structuredContent"]["self"], "driven",
        "{called}"
    );
    assert_eq!(acp.noted("ended"), [json!(0)]);
}

#[test]
fn mail_that_a_tool_gave_is_seen_once_the_model_answers_after_it() {
    let acp = Acp::start(&[]);
    acp.send("call a tool of the bus, once told to");
    eventually("it is in a turn", || {
        (!acp.noted("waits").is_empty()).then_some(())
    });
    let id = acp.send("more of it");
    std::fs::write(acp.home.path().join("go"), "").expect("it reads");
    let seen = eventually("it is seen", || state(&acp.home, &id, "seen"));
    assert_eq!(
        (&seen["path"], &seen["evidence"]),
        (&json!("piggyback"), &json!("transcript"))
    );
    let called = acp.noted("called")[0].to_string();
    assert!(called.contains("more of it"), "{called}");
    assert_eq!(acp.prompts("more of it"), [""; 0], "it needed no turn");
}

#[test]
fn an_agent_whose_process_is_stopped_is_stuck_until_it_goes_on() {
    let acp = Acp::start(&[]);
    acp.send("hold on");
    let does = |word: &str| {
        eventually(word, || {
            let peers = acp.home.run(&["peers"]).ok();
            let mut rows = peers.lines().filter(|line| line.starts_with("driven "));
            let row = rows.next_back()?.to_owned();
            row.contains(&format!(" {word} ")).then_some(peers)
        })
    };
    does("busy");
    let pid = acp.noted("pid")[0].as_i64();
    let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let pid = pid.expect("its process");
    kill_process(pid, Signal::STOP).expect("it runs");
    does("stuck");
    let status = acp.home.run(&["status"]).ok();
    let why = format!(
        "its process is stopped, as by Ctrl-Z\": `kill -CONT {}` lets it go on",
        pid.as_raw_nonzero()
    );
    assert!(status.contains(&why), "{status}");
    kill_process(pid, Signal::CONT).expect("it is there");
    does("busy");
}

#[test]
fn an_agent_below_the_agents_shell_is_a_peer_of_its_own() {
    let acp = Acp::start(&[]);
    let id = acp.send("start another agent in a shell");
    acp.is_seen(&id);
    let called = &acp.noted("called")[0];
    let own = &called["result"]["structuredContent"]["self"];
    assert!(own.is_string() && own != "driven", "{called}");
}

#[test]
fn who_waits_for_the_answer_to_a_text_gets_it() {
    let acp = Acp::start(&[]);
    let waits = [
        "session",
        "inject",
        "driven",
        "say hi",
        "--wait",
        "answer=30",
    ];
    let answer = acp.home.run(&waits).ok();
    assert_eq!(answer.trim(), "heard it");
}

#[test]
fn what_a_turn_came_to_is_what_its_answer_says() {
    let acp = Acp::start(&[]);
    let wait = ["--wait", "result=60", "--json"];
    let said = acp
        .home
        .run(&[&["session", "inject", "driven", "with its cost"], &wait[..]].concat());
    let said: Value = serde_json::from_str(&said.ok()).expect("one JSON");
    for (member, value) in [
        ("subtype", json!("success")),
        ("result", json!("heard it")),
        ("stop_reason", json!("end_turn")),
        ("usage", json!({ "totalTokens": 9 })),
    ] {
        assert_eq!(said[member], value, "{said}");
    }
}

#[test]
fn a_session_finds_its_name_again_and_another_one_of_its_id_does_not() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let program = home.path().join("agent.py");
    std::fs::write(&program, include_bytes!("agent.py")).expect("written");
    let name = |directory: &str, args: &[&str]| {
        let directory = home.path().join(directory);
        std::fs::create_dir_all(&directory).expect("a directory");
        let mut command = home.peerbus(&["run", "--acp"]);
        command.args(args).args(["--", "python3"]).arg(&program);
        let child = command
            .current_dir(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("peerbus starts");
        let mut driven = Driven::of(child);
        driven
            .out
            .find("the answer", |line| (line == "heard it").then_some(()));
        let pid = Pid::from_child(&driven.child);
        kill_process(pid, Signal::TERM).expect("it runs");
        driven.child.wait().expect("it ends");
        let mut names = std::iter::from_fn(|| driven.errors.next(PATIENCE));
        let last = names.by_ref().filter_map(|line| {
            let (_, name) = line.split_once("peerbus: connected as ")?;
            Some(name.to_owned())
        });
        last.last().expect("a name")
    };
    let first = name("one", &["hello"]);
    assert_ne!(name("two", &["hello"]), first);
    assert_eq!(name("one", &["--resume", "session-1", "hello"]), first);
    assert_ne!(name("two", &["--resume", "session-1", "hello"]), first);
    assert_ne!(name("one", &["hello"]), first);
}

#[test]
fn an_image_goes_to_an_agent_that_says_it_takes_one_and_to_no_other() {
    let put = |acp: &Acp| {
        let picture = picture(&acp.home);
        let inject = [
            "session",
            "inject",
            "driven",
            "what is this?",
            "--wait",
            "seen",
        ];
        acp.home
            .run(&[&inject[..], &["--image", &picture]].concat())
    };
    let said = put(&Acp::start(&[])).fails(1);
    assert!(said.contains("does not say that it takes images"), "{said}");
    let acp = Acp::start(&["images"]);
    put(&acp).ok();
    let told = told(&acp.home);
    let asked = told.iter().rfind(|told| told["method"] == "session/prompt");
    let image = json!({ "type": "image", "mimeType": "image/png", "data": PICTURE });
    assert_eq!(asked.expect("a turn")["params"]["prompt"][1], image);
    let gates = acp.home.credentials().with_file_name("sessions.toml");
    std::fs::write(gates, "control = true\n").expect("written");
    let params = json!({ "subtype": "update_environment_variables", "variables": {} });
    let answer = Node::of(&listed(&acp.home)[0]).call("session/control", params);
    let why = answer["error"]["message"].as_str().expect("a sentence");
    assert!(
        why.contains("takes set_permission_mode and set_model"),
        "{why}"
    );
}
