//! What Claude Code's stream takes and asks besides turns and tools.

use serde_json::json;

use super::{Driven, home, told};
use crate::support::Broker;

#[track_caller]
fn heard(driven: &Driven) {
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
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
