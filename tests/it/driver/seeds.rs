//! Demands of Claude Code's stream on its driver that no other test shows. The whole table is
//! docs/SEEDS.md.

use serde_json::{Value, json};

use super::node::asked;
use super::{Driven, home, is_ready, is_seen, send, told};
use crate::sessions::{Node, listed};
use crate::support::{Broker, Home, eventually};

fn gates(home: &Home, text: &str) -> String {
    let file = home.path().join("own.toml");
    std::fs::write(&file, text).expect("written");
    file.to_str().expect("a path").to_owned()
}

/// A mode can be set by its name, and nothing of what the driver itself carries can be asked for.
fn programs_set_modes_and_carry_nothing(home: &Home) {
    let mut node = Node::of(&listed(home)[0]);
    let mode = json!({ "subtype": "set_permission_mode", "mode": "delegate" });
    let set = node.call("session/control", mode);
    assert_eq!(set["result"]["subtype"], "set_permission_mode", "{set}");
    for none in ["mcp_message", "can_use_tool"] {
        let refused = node.call("session/control", json!({ "subtype": none }));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
}

#[test]
fn a_client_has_the_flags_variables_and_turns_of_the_protocol() {
    let home = home();
    let broker = Broker::start(&home);
    let gates = gates(&home, "control = true");
    let own = [
        "--fork",
        "before",
        "--model",
        "m",
        "--permission-mode",
        "plan",
        "--gates",
        &gates,
    ];
    let clients = [
        "--allowedTools",
        "Bash",
        "--max-turns",
        "3",
        "--resume-session-at",
        "line",
    ];
    let args = [&own[..], &["hello", "--"], &clients].concat();
    let kept = [
        "CLAUDE_CODE_ENVIRONMENT_RUNNER_VERSION",
        "CLAUDE_CODE_CONTAINER_ID",
    ];
    let taken = [
        "CLAUDE_CODE_WEBSOCKET_AUTH_FILE_DESCRIPTOR",
        "CLAUDE_CODE_SESSION_ACCESS_TOKEN",
    ];
    let environment = [kept[0], kept[1], taken[0], taken[1]].map(|name| (name, "7"));
    let driven = Driven::start_with(&home, &args, &environment);
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    let told = told(&home);
    let started = told.iter().find(|told| told["argv"].is_array());
    let started = started.expect("it is started");
    let words = started["argv"].as_array().expect("words").iter();
    let line = words.map(|word| word.as_str().expect("a word"));
    let line = line.collect::<Vec<_>>().join(" ");
    for flags in [
        "--print --input-format stream-json --output-format stream-json --verbose",
        "--permission-prompt-tool stdio",
        "--fork-session --resume before --model m --permission-mode plan",
        &clients.join(" "),
    ] {
        assert!(line.contains(flags), "{flags}: {line}");
    }
    let environment = &started["environment"];
    assert_eq!(kept.map(|name| &environment[name]), [&json!("7"); 2]);
    assert_eq!(taken.map(|name| &environment[name]), [&Value::Null; 2]);
    let mut turn = told
        .iter()
        .find(|told| told["type"] == "user")
        .expect("a turn")
        .clone();
    let uuid = turn["uuid"].take();
    assert_eq!(uuid.as_str().map(str::len), Some(36), "{uuid}");
    let message = json!({ "role": "user", "content": "hello" });
    let wanted = json!({ "type": "user", "message": message, "parent_tool_use_id": null,
        "session_id": "", "uuid": null });
    assert_eq!(turn, wanted);

    programs_set_modes_and_carry_nothing(&home);
    driven.stop();
    broker.stop();
}

#[test]
fn what_a_client_asks_is_told_with_all_of_it_until_it_takes_that_back() {
    let home = home();
    let broker = Broker::start(&home);
    let gates = gates(&home, "approve = true");
    let driven = Driven::start(&home, &["--gates", &gates, "ask and take back"]);
    let request = asked(&home);
    for (member, value) in [
        ("tool", "Bash"),
        ("description", "Lists"),
        ("blocked_path", "/etc"),
        ("decision_reason", "a hook"),
        ("agent_id", "helper"),
    ] {
        assert_eq!(request[member], value, "{request}");
    }
    let mut node = Node::of(&listed(&home)[0]);
    node.call(
        "session/subscribe",
        json!({ "events": ["approval_resolved"] }),
    );
    home.run(&["session", "inject", "driven", "go on"]).ok();
    let over = node.hear().expect("an event")["params"].take();
    assert_eq!(over["request_id"], request["request_id"], "{over}");
    assert_eq!(
        (&over["by"], &over["decision"]),
        (&json!("client"), &Value::Null)
    );
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    driven.stop();
    broker.stop();
}

#[test]
fn a_client_pings_and_has_several_lines_in_one_frame() {
    let home = home();
    let broker = Broker::start(&home);
    let args = ["--transport", "sdk-url", "hello", "--", "--odd-frames"];
    let driven = Driven::start(&home, &args);
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    is_ready(&home);
    let id = send(&home, "still there?");
    is_seen(&home, &id);
    eventually("its ping is answered", || {
        let pong = |told: &Value| told["pong"] == "there?";
        told(&home).iter().any(pong).then_some(())
    });
    driven.stop();
    broker.stop();
}
