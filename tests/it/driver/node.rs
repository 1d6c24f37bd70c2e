//! A driven session as a node, and away from its terminal.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Driven, gates, home, told};
use crate::sessions::{Node, listed};
use crate::support::{Broker, Home, Lines, eventually};

/// Whether the session is in the list, and what it does.
pub(super) fn status(home: &Home) -> Option<String> {
    let listed: Value =
        serde_json::from_str(&home.run(&["session", "list", "--json"]).ok()).ok()?;
    let session = &listed["sessions"][0];
    assert!(
        session.is_null() || session["client"] == "claude-code",
        "{listed}"
    );
    session["status"].as_str().map(str::to_owned)
}

#[test]
fn a_driven_session_is_watched_and_put_into_like_any_other() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &[]);
    eventually("it is listed, and idle", || {
        (status(&home)? == "idle").then_some(())
    });
    let mut watch = home.peerbus(&["session", "watch", "driven", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("it starts");
    let events = Lines::of(watch.stdout.take().expect("a pipe"));
    let event = |what: &str, wanted: &dyn Fn(&Value) -> bool| {
        events.find(what, |line| {
            let event: Value = serde_json::from_str(line).expect("JSON");
            wanted(&event).then_some(event)
        })
    };
    // It subscribes at some moment.
    eventually("somebody watches", || {
        home.run(&["session", "inject", "driven", "are you there?"])
            .ok();
        events.next(Duration::from_millis(500))
    });
    let said = home
        .run(&[
            "session", "inject", "driven", "and now?", "--wait", "answer",
        ])
        .ok();
    assert_eq!(said.lines().last(), Some("heard it"), "{said}");
    event("its words", &|e| {
        e["type"] == "message" && e["role"] == "assistant"
    });
    let failed = home
        .run(&[
            "session",
            "inject",
            "driven",
            "fail after the answer",
            "--wait",
            "answer",
        ])
        .fails(1);
    assert!(failed.contains("error_max_turns"), "{failed}");
    driven.stop();
    event("its end", &|e| e["status"] == "ended");
    assert!(watch.wait().expect("it ends").success());
    assert_eq!(status(&home), None);
    broker.stop();
}

/// What the driven session asks, once it does.
pub(super) fn asked(home: &Home) -> Value {
    eventually("it asks", || {
        let said = home.run(&["session", "approve", "--json"]).ok();
        let mut said: Value = serde_json::from_str(&said).expect("JSON");
        Some(said["approvals"].get_mut(0)?.take())
    })
}

/// The verdicts that it got.
fn verdicts(home: &Home) -> Vec<Value> {
    let told = told(home).into_iter();
    let verdicts = told.filter_map(|told| told.get("verdict").cloned());
    verdicts
        .map(|verdict| verdict["response"].clone())
        .collect()
}

#[test]
fn a_question_is_answered_from_elsewhere_and_not_allowed() {
    let home = home();
    let broker = Broker::start(&home);
    let file = gates(&home, "approve = true");
    let driven = Driven::start(&home, &["--gates", &file, "ask your user"]);
    let question = asked(&home);
    let id = question["request_id"].as_str().expect("an id");
    let shown = home.run(&["session", "answer", id]).ok();
    assert!(
        shown.contains("Which colour?\n      1 Red\n      2 Blue"),
        "{shown}"
    );
    let overview = home.run(&["status"]).ok();
    let way = format!("`peerbus session answer {id} NUMBER`");
    assert!(overview.contains(&way), "{overview}");
    let why = home.run(&["session", "approve", id]).fails(1);
    assert!(why.contains("is a question"), "{why}");
    let why = home.run(&["session", "answer", id, "3"]).fails(1);
    assert!(why.contains("no option 3: the last is 2"), "{why}");
    let why = home.run(&["session", "answer", id, "NUMBER"]).fails(2);
    assert!(why.contains("NUMBER is no answer"), "{why}");
    assert_eq!(verdicts(&home), [] as [Value; 0]);
    let said = home.run(&["session", "answer", id, "2"]).ok();
    assert!(said.contains("answered"), "{said}");
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    let [verdict] = &verdicts(&home)[..] else {
        panic!("{:?}", verdicts(&home))
    };
    assert_eq!(verdict["behavior"], "allow", "{verdict}");
    let answers = &verdict["updatedInput"]["answers"];
    assert_eq!(*answers, json!({ "Which colour?": "Blue" }), "{verdict}");
    driven.stop();
    broker.stop();
}

#[test]
fn what_it_asks_is_answered_from_elsewhere_with_one_of_its_rules_and_no_mode() {
    let home = home();
    let broker = Broker::start(&home);
    let file = gates(&home, "approve = true");
    let driven = Driven::start(&home, &["--gates", &file, "use a tool"]);
    let asked = asked(&home);
    assert_eq!(asked["tool"], "Bash", "{asked}");
    assert_eq!(asked["suggestions"][0]["rule"], "Bash(ls:*)", "{asked}");
    eventually("it waits", || {
        (status(&home)? == "waiting_approval").then_some(())
    });
    let id = asked["request_id"].as_str().expect("an id");
    let said = home.run(&["session", "approve", id, "--always"]).ok();
    assert!(said.contains("Bash(ls:*)"), "{said}");
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    let rule = json!({ "type": "addRules", "behavior": "allow", "destination": "session",
        "rules": [{ "toolName": "Bash", "ruleContent": "ls:*" }] });
    let allowed = json!({ "behavior": "allow", "updatedInput": { "command": "ls", "n": 1.5 },
        "updatedPermissions": [rule] });
    assert_eq!(verdicts(&home), [allowed]);
    driven.stop();
    broker.stop();
}

/// What was changed is audited, and commands do the same: the turn ends with a denial, and another input
/// is allowed.
fn by_command(home: &Home) {
    let audited = eventually("it is audited", || {
        let said = home.run(&["audit", "sessions"]).ok();
        said.contains("allow_changed").then_some(said)
    });
    assert!(audited.contains(r#"source "me""#), "{audited}");
    let ask = || {
        home.run(&["session", "inject", "driven", "use a tool"])
            .ok();
        asked(home)["request_id"]
            .as_str()
            .expect("an id")
            .to_owned()
    };
    let id = ask();
    let why = home
        .run(&["session", "approve", &id, "--input", "[]"])
        .fails(2);
    assert!(why.contains("a JSON object"), "{why}");
    let deny = ["session", "deny", &id, "--interrupt", "--message", "stop"];
    let said = home.run(&deny).ok();
    assert!(said.contains("its turn ends"), "{said}");
    let denied = eventually("it is denied", || verdicts(home).get(1).cloned());
    let wanted = json!({ "behavior": "deny", "message": "stop", "interrupt": true });
    assert_eq!(denied, wanted);
    let id = ask();
    let input = r#"{"command":"a\u001b"}"#;
    let said = home
        .run(&["session", "approve", &id, "--input", input])
        .ok();
    assert!(said.contains(&format!("gets {input}")), "{said}");
    let allowed = eventually("it is allowed", || verdicts(home).get(2).cloned());
    assert_eq!(allowed["updatedInput"], json!({ "command": "a\u{1b}" }));
}

#[test]
fn what_runs_is_what_its_user_put_in_the_place_of_what_was_asked() {
    let home = home();
    let broker = Broker::start(&home);
    let file = gates(&home, "approve = true");
    let driven = Driven::start(&home, &["--gates", &file, "use a tool"]);
    let request = asked(&home);
    let mut node = Node::of(&listed(&home)[0]);
    let input = json!({ "command": "echo CHANGED" });
    let update = json!({ "type": "addRules", "behavior": "allow", "destination": "session",
        "rules": [{ "toolName": "Bash", "ruleContent": "echo:*" }] });
    let approve = |more: Value| {
        let mut params = json!({ "request_id": request["request_id"], "source": "me", "decision": "allow",
            "digest": request["digest"] });
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().cloned().unwrap());
        params
    };
    let changed = approve(json!({ "updatedInput": input, "updatedPermissions": [update] }));
    let closed = node.call("session/approve", changed.clone());
    assert_eq!(closed["error"]["data"]["gate"], "control", "{closed}");
    gates(&home, "approve = true\ncontrol = true");
    for (more, why) in [
        (
            json!({ "updatedinput": input }),
            "unknown field `updatedinput`",
        ),
        (json!({ "updatedInput": "ls" }), "updatedInput"),
        (
            json!({ "interrupt": true }),
            "`interrupt` goes with a denial",
        ),
        (
            json!({ "decision": "deny", "updatedInput": input }),
            "go with `allow`",
        ),
        (
            json!({ "updatedPermissions": [{ "type": "setMode", "destination": "session",
            "mode": "bypass-permissions" }] }),
            "bypassPermissions",
        ),
        (
            json!({ "updatedPermissions": [{ "type": "grantAll" }] }),
            "grantAll",
        ),
        (
            json!({ "updatedPermissions": [{ "type": "addRules", "destination": "session" }] }),
            "lacks a member",
        ),
    ] {
        let refused = node.call("session/approve", approve(more.clone()));
        let said = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(said.contains(why), "{more}: {refused}");
    }
    assert_eq!(verdicts(&home), [] as [Value; 0]);
    let answer = node.call("session/approve", changed);
    assert_eq!(answer["result"]["updatedInput"], input, "{answer}");
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    let allowed =
        json!({ "behavior": "allow", "updatedInput": input, "updatedPermissions": [update] });
    assert_eq!(verdicts(&home), [allowed]);

    by_command(&home);
    driven.stop();
    broker.stop();
}

#[test]
fn what_the_stream_has_is_told_and_pieces_only_to_who_asks_for_them() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &["hello"]);
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    let (mut all, mut pieces) = (Node::of(&listed(&home)[0]), Node::of(&listed(&home)[0]));
    let answer = all.call("session/subscribe", json!({}));
    let kinds = answer["result"]["events"]
        .as_array()
        .expect("kinds")
        .clone();
    assert!(!kinds.contains(&json!("partial")), "{answer}");
    pieces.call(
        "session/subscribe",
        json!({ "events": ["partial", "result"] }),
    );
    home.run(&["session", "inject", "driven", "tell all"]).ok();
    let told = |node: &mut Node| {
        let events = std::iter::from_fn(|| Some(node.hear()?["params"].clone()));
        let mut told = Vec::new();
        for event in events {
            let kind = event["type"].as_str().expect("a type").to_owned();
            told.push((kind.clone(), event));
            if kind == "result" {
                break;
            }
        }
        told
    };
    let said = told(&mut pieces);
    let words: Vec<_> = said
        .iter()
        .map(|(kind, it)| (kind.as_str(), &it["content"]))
        .collect();
    let (he, ard) = (json!("he"), json!("ard"));
    assert_eq!(
        words[..2],
        [("partial", &he), ("partial", &ard)],
        "{said:?}"
    );
    assert_eq!(words[2].0, "result");
    let said = told(&mut all);
    let new = [
        "compaction",
        "compaction",
        "task",
        "tool_progress",
        "hook",
        "auth",
        "retry",
        "files",
    ];
    let kinds: Vec<_> = said.iter().map(|(kind, _)| kind.as_str()).collect();
    let at = kinds
        .iter()
        .position(|kind| *kind == "compaction")
        .expect("there");
    assert_eq!(kinds[at..at + new.len()], new);
    // The client says what it works with in each turn: it is told once.
    assert!(!kinds.contains(&"settings"), "{kinds:?}");
    let since = json!({ "since": 0, "events": ["settings"] });
    pieces.call("session/subscribe", since);
    let settings = pieces.hear().expect("settings");
    assert_eq!(settings["params"]["model"], "m", "{settings}");
    driven.stop();
    broker.stop();
}

#[test]
fn the_bus_tools_stay_whatever_is_set() {
    let home = home();
    let broker = Broker::start(&home);
    let file = home.path().join("own.toml");
    std::fs::write(&file, "control = true").expect("written");
    let file = file.to_str().expect("a path");
    let driven = Driven::start(&home, &["--gates", file, "hello"]);
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    let mut node = Node::of(&listed(&home)[0]);
    for wrong in [
        json!({ "subtype": "mcp_set_servers", "servers": [{ "command": "true" }] }),
        json!({ "subtype": "mcp_set_servers" }),
        json!({ "subtype": "mcp_toggle", "serverName": "peerbus", "enabled": false }),
        json!({ "subtype": "mcp_toggle", "serverName": "peerbus" }),
    ] {
        let answer = node.call("session/control", wrong);
        assert_eq!(answer["error"]["code"], -32000, "{answer}");
    }
    let servers = json!({ "peerbus": { "command": "true" }, "own": { "command": "true" } });
    let params = json!({ "subtype": "mcp_set_servers", "servers": servers });
    let answer = node.call("session/control", params);
    assert_eq!(answer["result"]["subtype"], "mcp_set_servers", "{answer}");
    let asked = told(&home).into_iter().filter_map(|told| {
        let asked = told.get("request")?;
        let mcp = asked["subtype"].as_str()?.starts_with("mcp_");
        (mcp && told["type"] == "control_request").then(|| asked["servers"].clone())
    });
    let ours = json!({ "type": "sdk", "name": "peerbus" });
    let set = json!({ "peerbus": ours, "own": { "command": "true" } });
    assert_eq!(asked.collect::<Vec<_>>(), [set]);
    driven.stop();
    broker.stop();
}

/// A driver that is nobody's child. Nothing is left of it after a test that failed.
struct Detached(Pid);

impl Detached {
    fn of(home: &Home) -> Self {
        let listed = home.run(&["session", "list", "--json"]).ok();
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        let socket = listed["sessions"][0]["socket"].as_str().expect("a path");
        let name = socket.rsplit('/').next().expect("a name");
        let number = name.split('.').next().expect("a number");
        Self(Pid::from_raw(number.parse().expect("a number")).expect("a pid"))
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

#[test]
fn one_that_was_detached_goes_on_in_the_list_until_it_is_stopped() {
    let home = home();
    let broker = Broker::start(&home);
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = home.path().join("bin");
    let run = |more: &[&str]| {
        let mut command = home.peerbus(&["run", "--detach", "--name", "driven"]);
        command.env("PATH", format!("{}:{path}", bin.display()));
        let output = command.args(more).output().expect("it ends");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, said, hint) = run(&[]);
    assert_eq!(code, Some(0), "{hint}");
    let _detached = Detached::of(&home);
    let log = said
        .split("its output goes to ")
        .nth(1)
        .expect("a log")
        .trim();
    assert!(hint.contains("peerbus session stop driven"), "{hint}");
    home.run(&["session", "inject", "driven", "hello", "--wait", "answer"])
        .ok();
    let written = std::fs::read_to_string(log).expect("a log");
    assert!(written.contains("heard it"), "{written}");
    home.run(&["session", "stop", "driven"]).ok();
    eventually("it is in no list", || status(&home).is_none().then_some(()));
    let (code, _, why) = run(&["--", "--bad-start"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("No conversation found"), "{why}");
    broker.stop();
}
