//! `peerbus acp`, between a stand-in for an agent and this test, which is the editor.

mod odd;

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::path::Path;
use std::process::{ChildStdin, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use super::{Driven, send, state, told};
use crate::support::{Broker, Home, PATIENCE, eventually};

/// An editor, whose sessions are on the bus as `driven`, `driven-2` and so on.
struct Editor {
    driven: Driven,
    input: Option<ChildStdin>,
    last: Cell<u64>,
    /// What it was told and did not look for.
    seen: RefCell<Vec<Value>>,
}

impl Editor {
    fn start(home: &Home, traits: &[&str]) -> Self {
        Self::start_in(home, home.path(), &[], traits)
    }

    fn start_in(home: &Home, directory: &Path, more: &[&str], traits: &[&str]) -> Self {
        let program = home.path().join("agent.py");
        std::fs::write(&program, include_bytes!("agent.py")).expect("written");
        let mut command = home.peerbus(&["acp", "--name", "driven"]);
        command.args(more).args(["--", "python3"]).arg(program);
        command.current_dir(directory);
        let mut child = command
            .args(traits)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("peerbus starts");
        let input = child.stdin.take();
        let editor = Self {
            driven: Driven::of(child),
            input,
            last: Cell::default(),
            seen: RefCell::default(),
        };
        let hello = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        let hello = editor.ask("initialize", hello);
        let who = editor.answer(hello);
        assert_eq!(who["result"]["agentInfo"]["name"], "stand-in");
        editor
    }

    /// One with a session that mail can wake, and that others may interrupt and answer.
    fn with_session(home: &Home) -> Self {
        let gates = home.credentials().with_file_name("sessions.toml");
        std::fs::write(gates, "interrupt = true\napprove = true\n").expect("written");
        let editor = Self::start(home, &[]);
        editor.open(home);
        is_woken_as(home, "driven");
        editor
    }

    fn open(&self, home: &Home) -> String {
        let opened = self.ask(
            "session/new",
            json!({ "cwd": home.path(), "mcpServers": [{ "name": "own" }] }),
        );
        let opened = self.answer(opened);
        let id = opened["result"]["sessionId"].as_str();
        id.expect("a session").to_owned()
    }

    fn write(&self, line: &str) {
        let mut input = self.input.as_ref().expect("open");
        input
            .write_all(format!("{line}\n").as_bytes())
            .expect("written");
    }

    fn say(&self, message: Value) {
        let mut message = message;
        message["jsonrpc"] = "2.0".into();
        self.write(&message.to_string());
    }

    fn ask(&self, method: &str, params: Value) -> u64 {
        self.last.set(self.last.get() + 1);
        self.say(json!({ "id": self.last.get(), "method": method, "params": params }));
        self.last.get()
    }

    fn prompt(&self, text: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.ask(
            "session/prompt",
            json!({ "sessionId": "session-1", "prompt": prompt }),
        )
    }

    fn cancel(&self) {
        self.say(json!({ "method": "session/cancel", "params": { "sessionId": "session-1" } }));
    }

    /// The first that is told to it, or was, of which this is true.
    #[track_caller]
    fn hears(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut seen = self.seen.borrow_mut();
        if let Some(at) = seen.iter().position(&is_it) {
            return seen.remove(at);
        }
        while let Some(line) = self.driven.out.next(PATIENCE) {
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if is_it(&message) {
                return message;
            }
            seen.push(message);
        }
        panic!("never heard: {what}; but {seen:?}");
    }

    #[track_caller]
    fn answer(&self, id: u64) -> Value {
        self.hears("an answer", |it| it["id"] == id && it["method"].is_null())
    }

    #[track_caller]
    fn ends(&self, prompt: u64, reason: &str) {
        assert_eq!(self.answer(prompt)["result"]["stopReason"], reason);
    }

    /// A piece of a text of this kind with this in it.
    #[track_caller]
    fn shows(&self, kind: &str, text: &str) -> String {
        let of = |it: &Value| {
            let update = &it["params"]["update"];
            let shown = update["content"]["text"].as_str().unwrap_or_default();
            (update["sessionUpdate"] == kind && shown.contains(text)).then(|| shown.to_owned())
        };
        of(&self.hears(text, |it| of(it).is_some())).expect("a text")
    }

    #[track_caller]
    fn asks(&self, id: u64) -> Value {
        self.hears("a question", |it| {
            it["id"] == id && it["method"] == "session/request_permission"
        })["params"]
            .take()
    }

    fn allows(&self, id: u64, option: &str) {
        let outcome = json!({ "outcome": "selected", "optionId": option });
        self.say(json!({ "id": id, "result": { "outcome": outcome } }));
    }
}

fn is_woken_as(home: &Home, name: &str) {
    eventually("it can be woken", || {
        let peer = peer(home, name)?.to_string();
        peer.contains("\"acp\"").then_some(())
    });
}

fn peer(home: &Home, name: &str) -> Option<Value> {
    let peers = home.run(&["peers", "--json"]).ok();
    let peers: Value = serde_json::from_str(&peers).expect("JSON");
    let mut peers = peers["peers"].as_array().expect("peers").iter();
    peers.find(|peer| peer["name"] == name).cloned()
}

#[track_caller]
fn is_seen(home: &Home, id: &str) {
    eventually("it is seen", || state(home, id, "seen"));
}

fn is_busy(home: &Home) {
    eventually("it is busy", || {
        let peers = home.run(&["peers", "--json"]).ok();
        peers.contains("\"busy\"").then_some(())
    });
}

/// The texts of the agent's prompts, where each of these words is one of them.
fn prompts(home: &Home, words: &[&str]) -> Vec<String> {
    let prompts = told(home).into_iter();
    let prompts = prompts.filter(|told| told["method"] == "session/prompt");
    let texts = prompts.map(|told| told["params"]["prompt"][0]["text"].to_string());
    texts
        .filter_map(|text| words.iter().find(|word| text.contains(**word)))
        .map(|word| (*word).to_owned())
        .collect()
}

fn noted(home: &Home, what: &str) -> Vec<Value> {
    let told = told(home).into_iter();
    told.filter_map(|told| told.get(what).cloned()).collect()
}

#[test]
fn the_editors_turns_pass_and_mail_becomes_turns_that_its_user_sees() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let editor = Editor::with_session(&home);
    let prompt = editor.prompt("hello");
    editor.shows("agent_message_chunk", "heard it");
    editor.ends(prompt, "end_turn");
    let id = send(&home, "are you <there>?");
    is_seen(&home, &id);
    let shown = editor.shows("user_message_chunk", &id[24..]);
    assert!(
        shown.contains("\"are you \\u003cthere\\u003e?\""),
        "{shown}"
    );
    editor.shows("agent_message_chunk", "heard it");
    let more = editor.prompt("and now?");
    editor.ends(more, "end_turn");
    // The turn of the mail is none of the editor's: no answer to it is among what was told.
    let seen = editor.seen.borrow();
    let answers = seen.iter().filter(|it| it["method"].is_null());
    assert_eq!(answers.collect::<Vec<_>>(), [] as [&Value; 0]);
    let servers = told(&home)
        .into_iter()
        .find(|told| told["method"] == "session/new");
    let servers = servers.expect("a session")["params"]["mcpServers"].take();
    assert_eq!(
        (&servers[0], &servers[1]["name"], &servers[2]),
        (&json!({ "name": "own" }), &json!("peerbus"), &Value::Null)
    );
    let methods = noted(&home, "method");
    assert!(!methods.contains(&json!("session/set_mode")), "{methods:?}");
}

#[test]
fn mail_in_a_turn_of_the_editors_waits_for_its_end() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let editor = Editor::with_session(&home);
    let prompt = editor.prompt("hold on");
    editor.shows("agent_message_chunk", "I begin");
    is_busy(&home);
    let id = send(&home, "mail");
    eventually("it is there", || state(&home, &id, "delivered"));
    editor.cancel();
    editor.ends(prompt, "cancelled");
    is_seen(&home, &id);
    assert_eq!(prompts(&home, &["hold", "mail"]), ["hold", "mail"]);
    assert_eq!(noted(&home, "second"), [] as [Value; 0]);
}

#[test]
fn a_prompt_of_the_editors_waits_for_a_turn_of_mail_and_goes_before_more_mail() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let editor = Editor::with_session(&home);
    let held = send(&home, "hold on");
    editor.shows("agent_message_chunk", "I begin");
    let later = send(&home, "later");
    eventually("it is there", || state(&home, &later, "delivered"));
    let [first, second] = ["first", "second"].map(|text| editor.prompt(text));
    // What is answered at once shows that both were read.
    editor.say(json!({ "method": "_agent/say", "params": { "line": "{}" } }));
    editor.hears("an empty object", |it| *it == json!({}));
    home.run(&["session", "interrupt", "driven"]).ok();
    editor.ends(first, "end_turn");
    editor.ends(second, "end_turn");
    is_seen(&home, &later);
    let all = ["hold", "first", "second", "later"];
    assert_eq!(prompts(&home, &all), all);
    assert_eq!(noted(&home, "second"), [] as [Value; 0]);
    assert_eq!(state(&home, &held, "seen"), None);
}

#[test]
fn the_editors_cancel_ends_a_turn_of_mail_which_stays_owed_and_what_waits_behind_it() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let editor = Editor::with_session(&home);
    let id = send(&home, "hold on");
    editor.shows("agent_message_chunk", "I begin");
    let waits = editor.prompt("never");
    editor.cancel();
    editor.ends(waits, "cancelled");
    let next = editor.prompt("next");
    editor.ends(next, "end_turn");
    assert_eq!(prompts(&home, &["hold", "never", "next"]), ["hold", "next"]);
    assert_eq!(state(&home, &id, "seen"), None);
    assert_eq!(peer(&home, "driven").expect("a peer")["unacked"], 1);
}

#[test]
fn a_question_in_a_turn_of_mail_says_what_led_to_it_and_is_answered_once() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let editor = Editor::with_session(&home);
    let chosen = |id: &str| json!({ "outcome": "selected", "optionId": id });

    let id = send(&home, "use tools");
    let asked = editor.asks(72);
    assert_eq!(
        asked["toolCall"]["title"],
        "A message of a peer led to this: run"
    );
    assert_eq!(asked["toolCall"]["rawInput"]["command"], "ls");
    let kinds = asked["options"].as_array().expect("options").iter();
    let kinds: Vec<_> = kinds.map(|option| option["kind"].clone()).collect();
    assert_eq!(kinds, ["allow_once", "allow_once", "reject_once"]);
    editor.allows(72, "once-and-switch");
    is_seen(&home, &id);
    assert_eq!(
        noted(&home, "outcome"),
        [chosen("once"), chosen("once-and-switch")]
    );

    // Somebody else is faster, and the editor's user is told so.
    send(&home, "use tools again");
    editor.asks(72);
    let open = eventually("it is listed", || {
        let said = home.run(&["session", "approve", "--json"]).ok();
        let said: Value = serde_json::from_str(&said).ok()?;
        Some(said["approvals"][0]["request_id"].as_str()?.to_owned())
    });
    home.run(&["session", "approve", &open]).ok();
    let gone = editor.hears("it is withdrawn", |it| it["method"] == "$/cancel_request");
    assert_eq!(gone["params"], json!({ "requestId": 72 }));
    editor.allows(72, "no");
    let next = editor.prompt("next");
    editor.ends(next, "end_turn");
    assert_eq!(
        noted(&home, "outcome")[2..],
        [chosen("once"), chosen("once")]
    );

    // In the editor's own turn nothing is changed.
    let own = editor.prompt("use tools");
    let asked = editor.asks(71);
    assert_eq!(asked["options"][0]["kind"], "allow_always");
    editor.allows(71, "always");
    assert_eq!(editor.asks(72)["toolCall"]["title"], "run");
    editor.allows(72, "always");
    editor.ends(own, "end_turn");
}

#[test]
fn what_is_not_known_passes_both_ways_as_it_was_written() {
    let home = Home::new();
    let editor = Editor::start(&home, &[]);
    editor.open(&home);
    let agents = r#"{ "method":"fs/read_text_file",  "id": 1.50, "jsonrpc" : "2.0", "params":{"b":1,"a":"é","sessionId":"session-1"}, "more":{}} "#;
    let asked = json!({ "jsonrpc": "2.0", "id": "x", "method": "_agent/say", "params": { "line": agents } });
    let editors = format!("{asked} \t");
    editor.write(&editors);
    let line = editor.driven.out.next(PATIENCE);
    assert_eq!(line.as_deref(), Some(agents));
    assert_eq!(noted(&home, "raw"), [json!(format!("{editors}\n"))]);
    let noise = "no JSON at all";
    editor.say(json!({ "method": "_agent/say", "params": { "line": noise } }));
    assert_eq!(editor.driven.out.next(PATIENCE).as_deref(), Some(noise));
    // Longer than anything that is read.
    let prompt = editor.prompt("a long line");
    let long = editor.driven.out.next(PATIENCE).expect("a line");
    assert!(
        long.len() > 50 << 20 && long.ends_with("}}}"),
        "{}",
        long.len()
    );
    editor.ends(prompt, "end_turn");
}

#[test]
fn each_session_is_a_peer_with_its_own_tools() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let editor = Editor::with_session(&home);
    assert_eq!(editor.open(&home), "session-2");
    is_woken_as(&home, "driven-2");
    for name in ["driven-2", "driven"] {
        let sent = home
            .run(&["send", name, "call a tool of the bus", "--json"])
            .ok();
        let sent: Value = serde_json::from_str(&sent).expect("JSON");
        let id = sent["id"].as_str().expect("an id");
        is_seen(&home, id);
        let called = noted(&home, "called").pop().expect("a call");
        assert_eq!(called["result"]["structuredContent"]["self"], name);
        let shown = editor.hears("whose it is", |it| it.to_string().contains(&id[24..]));
        let session = if name == "driven" {
            "session-1"
        } else {
            "session-2"
        };
        assert_eq!(shown["params"]["sessionId"], session);
    }
    let is_said = |line: &str| line.contains("connected as driven-2").then_some(());
    editor.driven.errors.find("its name", is_said);
    // A session that is closed is no peer any more.
    editor.ask("session/close", json!({ "sessionId": "session-2" }));
    eventually("it has gone", || {
        let online = peer(&home, "driven-2").is_some_and(|peer| peer["online"] == true);
        (!online).then_some(())
    });
}

#[test]
fn a_turn_of_the_editors_proves_nothing_of_mail() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let editor = Editor::with_session(&home);
    let prompt = editor.prompt("used 30");
    editor.ends(prompt, "end_turn");
    // The sum is the same: the model had nothing to do with it.
    let id = send(&home, "used 30");
    eventually("no more is claimed", || {
        let told = home.run(&["status", &id, "--json"]).ok();
        let claimed = "as pushed over acp; the ack does not show that it was read";
        told.contains(claimed).then_some(())
    });
    assert_eq!(state(&home, &id, "seen"), None);
}

#[test]
fn without_a_broker_the_agent_works_and_joins_when_there_is_one() {
    let home = Home::new();
    let editor = Editor::start(&home, &[]);
    editor.open(&home);
    let prompt = editor.prompt("hello");
    editor.ends(prompt, "end_turn");
    let _broker = Broker::start(&home);
    is_woken_as(&home, "driven");
}

#[test]
fn a_version_that_is_not_known_passes_without_the_bus() {
    let home = Home::new();
    let editor = Editor::start(&home, &["version 3"]);
    editor.open(&home);
    let prompt = editor.prompt("hello");
    editor.ends(prompt, "end_turn");
    let is_said = |line: &str| line.contains("version 3 of ACP is not known").then_some(());
    editor.driven.errors.find("why", is_said);
    let opened = told(&home)
        .into_iter()
        .find(|told| told["method"] == "session/new");
    let servers = &opened.expect("a session")["params"]["mcpServers"];
    assert_eq!(*servers, json!([{ "name": "own" }]));
}

/// Nothing is left of the agent and of the peer.
#[track_caller]
fn is_gone(home: &Home) {
    let agent = noted(home, "pid").pop().expect("a number");
    let agent = Pid::from_raw(i32::try_from(agent.as_i64().expect("one")).expect("small"));
    assert!(test_kill_process(agent.expect("a pid")).is_err());
    let online = peer(home, "driven").is_some_and(|peer| peer["online"] == true);
    assert!(!online);
}

#[test]
fn nothing_is_left_when_the_editor_goes_or_a_signal_comes_and_the_agents_end_is_its() {
    for how in ["closed", "signal", "in a turn", "exit with 7"] {
        let home = Home::new();
        let _broker = Broker::start(&home);
        let mut editor = Editor::with_session(&home);
        let code = match how {
            "closed" => 0,
            "exit with 7" => {
                editor.prompt(how);
                7
            }
            _ => {
                editor.prompt("hold on");
                editor.shows("agent_message_chunk", "I begin");
                0
            }
        };
        if how == "signal" {
            let own = Pid::from_child(&editor.driven.child);
            kill_process(own, Signal::TERM).expect("it runs");
        } else if code == 0 {
            editor.input.take();
        }
        let ended = editor.driven.child.wait().expect("it ends");
        assert_eq!(ended.code(), Some(code), "{how}");
        is_gone(&home);
    }
}
