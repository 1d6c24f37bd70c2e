//! What Claude Code's stream takes and asks besides turns and tools.

use serde_json::{Value, json};

use super::{Driven, gates, home, told};
use crate::sessions::{Node, listed};
use crate::support::{Broker, Home, Mcp, eventually};

/// A driven session whose gate `control` is open, and that had its first turn.
fn controlled(home: &Home, more: &[&str]) -> Driven {
    let file = gates(home, "approve = true\ncontrol = true");
    let words = ["--gates", &file, "hello"];
    let driven = Driven::start(home, &[&words[..], more].concat());
    heard(&driven);
    driven
}

#[track_caller]
fn heard(driven: &Driven) {
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
}

/// The next event of a node, of one that subscribed.
#[track_caller]
fn event(node: &mut Node) -> Value {
    node.hear().expect("an event")["params"].take()
}

#[test]
fn a_client_is_set_up_with_what_its_user_wrote_and_with_the_bus() {
    let home = home();
    let broker = Broker::start(&home);
    let file = home.path().join("setup.json");
    let hooks = json!({ "PreToolUse": [{ "matcher": "Bash", "hookCallbackIds": ["mine"] }] });
    let setup = json!({ "hooks": hooks, "appendSystemPrompt": "Be terse.",
        "agents": { "critic": { "description": "d", "prompt": "p" } } });
    std::fs::write(&file, setup.to_string()).expect("written");
    let path = file.to_str().expect("a path");
    let driven = Driven::start(&home, &["--initialize", path, "hello"]);
    heard(&driven);
    let told = told(&home);
    let hello = told.iter().find(|told| told["type"] == "control_request");
    let hello = &hello.expect("a hello")["request"];
    assert_eq!(
        (&hello["hooks"], &hello["agents"]),
        (&hooks, &setup["agents"])
    );
    assert_eq!(hello["sdkMcpServers"], json!(["peerbus"]));
    let about = hello["appendSystemPrompt"].as_str().expect("a text");
    assert!(
        about.starts_with("Be terse.\n\npeerbus connects you"),
        "{about}"
    );
    driven.stop();
    std::fs::write(&file, r#"{"hook":{}}"#).expect("written");
    let said = home.run(&["run", "--initialize", path]).fails(2);
    assert!(
        said.contains("unknown field `hook`") && said.contains("setup.json"),
        "{said}"
    );
    let said = home
        .run(&["run", "--acp", "--initialize", path, "--", "true"])
        .fails(2);
    assert!(
        said.contains("--initialize is for Claude Code's own stream"),
        "{said}"
    );
    broker.stop();
}

/// Has the session meet a hook, and gives what the client was answered, and what everybody is told of that.
fn hooked(home: &Home, watch: &mut Node, answer: impl FnOnce()) -> (Value, Value) {
    let before = told(home).len();
    home.run(&["session", "inject", "driven", "call a hook"])
        .ok();
    answer();
    let told_of = event(watch);
    let verdict = eventually("it is answered", || {
        let told = told(home).split_off(before);
        told.into_iter()
            .find_map(|told| Some(told.get("verdict")?["response"].clone()))
    });
    (verdict, told_of)
}

/// Closes one gate of a session's after the other: an answer can allow a tool, and change what it gets.
fn needs_both_gates(home: &Home, watch: &mut Node, guard: &mut Node) {
    // A gate that is closed now counts at once.
    let gates = home.path().join("own.toml");
    for (open, closed) in [("approve", "control"), ("control", "approve")] {
        std::fs::write(&gates, format!("{open} = true")).expect("written");
        let (answer, told_of) = hooked(home, watch, || {});
        assert_eq!((&answer, &told_of["by"]), (&json!({}), &json!("nobody")));
        let answer = json!({ "request_id": "x", "response": {} });
        let events = json!({ "events": ["hook_callback"] });
        for (method, params) in [("session/hook", answer), ("session/subscribe", events)] {
            let refused = guard.call(method, params);
            assert_eq!(refused["error"]["data"]["gate"], closed, "{refused}");
        }
    }
}

#[test]
fn a_hook_is_answered_by_who_asked_for_that_and_else_with_nothing() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = controlled(&home, &[]);
    let session = &listed(&home)[0];
    let (mut watch, mut guard) = (Node::of(session), Node::of(session));
    let all = Node::of(session).call("session/subscribe", json!({}));
    let kinds = all["result"]["events"].as_array().expect("kinds");
    assert!(!kinds.contains(&json!("hook_callback")), "{all}");
    watch.call("session/subscribe", json!({ "events": ["hook"] }));

    let (answer, told_of) = hooked(&home, &mut watch, || {});
    assert_eq!((&answer, &told_of["by"]), (&json!({}), &json!("nobody")));

    guard.call("session/subscribe", json!({ "events": ["hook_callback"] }));
    let wanted = json!({ "hookSpecificOutput": { "hookEventName": "PreToolUse",
        "permissionDecision": "deny", "permissionDecisionReason": "no" } });
    let (answer, told_of) = hooked(&home, &mut watch, || {
        let asked = event(&mut guard);
        assert_eq!(
            (&asked["callback_id"], &asked["hook_event"]),
            (&json!("mine"), &json!("PreToolUse"))
        );
        let input = json!({ "hook_event_name": "PreToolUse", "tool_name": "Bash",
            "left_out": ["tool_response"] });
        assert_eq!(asked["input"], input, "{asked}");
        let id = &asked["request_id"];
        let mode = json!({ "type": "setMode", "mode": "bypassPermissions" });
        for (id, response, code) in [
            (id, json!([]), -32602),
            (id, json!({ "reason": "x".repeat(70_000) }), -32602),
            (id, json!({ "updatedPermissions": [mode] }), -32003),
            (&json!("another"), json!({}), -32000),
        ] {
            let params = json!({ "request_id": id, "response": response });
            let refused = guard.call("session/hook", params);
            assert_eq!(refused["error"]["code"], code, "{refused}");
        }
        let params = json!({ "request_id": id, "response": wanted });
        let taken = guard.call("session/hook", params.clone());
        assert_eq!(taken["result"]["accepted"], true, "{taken}");
        let late = guard.call("session/hook", params);
        assert_eq!(late["error"]["code"], -32000, "{late}");
    });
    assert_eq!((&answer, &told_of["response"]), (&wanted, &wanted));
    assert_eq!(
        (&told_of["subtype"], &told_of["by"], &told_of["tool_use_id"]),
        (&json!("hook_callback"), &json!("node"), &json!("t"))
    );

    home.run(&["session", "inject", "driven", "leave a hook open"])
        .ok();
    let asked = event(&mut guard);
    assert_eq!(asked["request_id"], "gone", "{asked}");
    home.run(&["session", "inject", "driven", "take it back"])
        .ok();
    assert_eq!(event(&mut watch)["by"], "client");

    eventually("it is audited", || {
        let said = home.run(&["audit", "sessions"]).ok();
        said.lines()
            .any(|line| line.contains("control") && line.contains("hook"))
            .then_some(())
    });

    needs_both_gates(&home, &mut watch, &mut guard);
    driven.stop();
    broker.stop();
}

#[test]
fn a_client_gets_variables_and_says_which_it_took_where_it_does() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = controlled(&home, &[]);
    let mut node = Node::of(&listed(&home)[0]);
    let mut set = |variables: Value| {
        let params = json!({ "subtype": "update_environment_variables", "variables": variables });
        node.call("session/control", params)
    };
    for (variables, code) in [
        (json!({ "A B": "x" }), -32602),
        (json!({ "A": 1 }), -32602),
        (json!({ "PEERBUS_DRIVER": "1" }), -32000),
        (json!({ "CLAUDE_CODE_SESSION_ACCESS_TOKEN": "x" }), -32000),
        (json!({ "NO_PROXY": "" }), -32000),
        (json!({ "MY_TOKEN": "x", "no_proxy": "" }), -32000),
    ] {
        let refused = set(variables);
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    let own = json!({ "MY_TOKEN": "x" });
    assert_eq!(set(own.clone())["result"]["response"], json!({}));
    let oauth = json!({ "CLAUDE_CODE_OAUTH_TOKEN": "y" });
    let taken = json!({ "applied": ["CLAUDE_CODE_OAUTH_TOKEN"] });
    assert_eq!(set(oauth.clone())["result"]["response"], taken);
    let told = told(&home).into_iter();
    let told = told.filter(|told| told["type"] == "update_environment_variables");
    let variables: Vec<_> = told.map(|told| told["variables"].clone()).collect();
    assert_eq!(variables, [own, oauth]);
    driven.stop();
    broker.stop();
}

/// What is in it, in base64.
pub(super) const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAAA=";

/// A file that begins as an image does.
pub(super) fn picture(home: &Home) -> String {
    let file = home.path().join("picture.png");
    let header = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0";
    std::fs::write(&file, header).expect("written");
    file.to_str().expect("a path").to_owned()
}

#[test]
fn an_image_stands_behind_the_text_that_it_was_put_in_with() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = controlled(&home, &[]);
    let picture = picture(&home);
    let put = |more: &[&str]| {
        let inject = ["session", "inject", "driven", "what is this?"];
        home.run(&[&inject[..], more].concat())
    };
    put(&["--image", &picture, "--image", &picture, "--wait", "seen"]).ok();
    let told = told(&home);
    let turn = told.iter().rfind(|told| told["type"] == "user");
    let content = turn.expect("a turn")["message"]["content"].as_array();
    let [text, one, two] = &content.expect("blocks")[..] else {
        panic!("{turn:?}")
    };
    let text = text["text"].as_str().expect("a text");
    assert!(
        text.contains("\"what is this? [image 1] [image 2]\"")
            && text.contains("The images behind this are those that it names"),
        "{text}"
    );
    let source = json!({ "type": "base64", "media_type": "image/png", "data": PICTURE });
    assert_eq!(*one, json!({ "type": "image", "source": source }));
    assert_eq!(one, two);
    let script = home.path().join("claude.py");
    std::fs::write(&script, "no image").expect("written");
    let said = put(&["--image", script.to_str().expect("a path")]).fails(2);
    assert!(said.contains("is no image in PNG"), "{said}");
    let said = put(&["--image", "/nonexistent"]).fails(2);
    assert!(said.contains("cannot read /nonexistent"), "{said}");
    // From here on what this process runs stands below an agent.
    let mut agent = Mcp::start(&home, "generic", "bob", "some-bot");
    agent.call("bus.peers", json!({}));
    let said = put(&["--image", &picture]).fails(1);
    assert!(said.contains("may not put images"), "{said}");
    put(&[]).ok();
    std::fs::write(&picture, vec![0; 3 << 20]).expect("written");
    let said = put(&["--image", &picture]).fails(2);
    assert!(said.contains("make the image smaller"), "{said}");
    driven.stop();
    broker.stop();
}
