//! Who a session is, over time: its name comes back with it, changes, and ends.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, eventually};

/// An adapter of the client's session `id`, and the name it goes by.
fn session(home: &Home, id: &str) -> (Mcp, String) {
    start(home.peerbus(&["adapter"]).env("CLAUDE_CODE_SESSION_ID", id))
}

fn start(command: &mut Command) -> (Mcp, String) {
    let mut mcp = Mcp::spawn(command);
    mcp.initialize("some-bot");
    let name = me(&mut mcp);
    (mcp, name)
}

/// Its own name, once it is registered.
fn me(mcp: &mut Mcp) -> String {
    let peers = mcp.call("bus.peers", json!({}));
    peers["self"].as_str().expect("a name").to_owned()
}

fn bodies(mcp: &mut Mcp) -> Vec<Value> {
    let drained = mcp.call("bus.drain", json!({}));
    let messages = drained["messages"].as_array().expect("messages").iter();
    messages.map(|message| message["body"].clone()).collect()
}

#[test]
fn a_resumed_session_gets_its_name_and_its_queue_back() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (first, name) = session(&home, "s-1");
    first.close();
    home.run(&["send", &name, "while you were away"]).ok();

    let (mut resumed, again) = session(&home, "s-1");
    assert_eq!(again, name);
    eventually("the mail comes", || {
        (bodies(&mut resumed) == [json!("while you were away")]).then_some(())
    });
    let (twin, other) = session(&home, "s-1");
    assert_ne!(other, name, "the name is in use");
    let (stranger, third) = session(&home, "s-2");
    assert!(third != name && third != other);
    twin.close();
    stranger.close();
    resumed.close();

    let (resumed, again) = session(&home, "s-1");
    assert_eq!(again, name, "the twin did not take it");
    resumed.close();
    let file = home.path().join(".local/state/peerbus/sessions.json");
    let metadata = std::fs::metadata(&file).expect("the bindings");
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(!file.with_extension("json.new").exists());
    broker.stop();
}

#[test]
fn a_renamed_session_keeps_its_mail_and_is_found_under_both_names() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (mut agent, old) = session(&home, "s-1");
    agent.call("bus.rename", json!({ "name": "reviewer" }));
    assert_eq!(me(&mut agent), "reviewer");
    home.run(&["send", &old, "to the old name"]).ok();
    home.run(&["send", "reviewer", "to the new one"]).ok();
    let mut all = Vec::new();
    eventually("both arrive", || {
        all.extend(bodies(&mut agent));
        (all == [json!("to the old name"), json!("to the new one")]).then_some(())
    });
    agent.close();
    let (agent, resumed) = session(&home, "s-1");
    assert_eq!(resumed, "reviewer", "the session has the name it chose");
    agent.close();
    broker.stop();
}

#[test]
fn a_name_is_put_together_from_where_the_session_runs() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let project = home.path().join("my project");
    std::fs::create_dir_all(project.join(".git")).expect("a project");
    std::fs::write(project.join(".git/HEAD"), "ref: refs/heads/fix/it\n").expect("a branch");
    let mut command = home.peerbus(&["adapter"]);
    command
        .current_dir(&project)
        .env("USER", "ann")
        .env("PEERBUS_NAME", "{user}.{project}.{branch}");
    let (agent, name) = start(&mut command);
    assert_eq!(name, "ann.my-project.fix-it");
    agent.close();
    let said = home.run(&["adapter", "--name", "x-{porject}"]).fails(2);
    assert!(
        said.contains("{porject}") && said.contains("--name or PEERBUS_NAME"),
        "{said}"
    );
    broker.stop();
}

#[test]
fn the_operator_ends_a_name_and_nothing_is_lost_in_silence() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for name in ["old", "gone", "heir"] {
        home.run(&["recv", "--name", name, "--timeout", "0.1"]).ok();
    }
    let mut ada = Mcp::start(&home, "generic", "ada", "some-bot");
    ada.call("bus.send", json!({ "to": "old", "body": "for the heir" }));
    ada.call("bus.send", json!({ "to": "gone", "body": "for nobody" }));
    let said = home.run(&["names", "retire", "old", "--to", "heir"]).ok();
    assert!(said.contains("heir"), "{said}");
    home.run(&["names", "retire", "gone"]).ok();
    let said = home.run(&["names", "retire", "nobody"]).fails(1);
    assert!(said.contains("no peer named nobody"), "{said}");

    let received = home
        .run(&["recv", "--name", "heir", "--count", "1", "--timeout", "30"])
        .ok();
    assert!(received.contains("for the heir"), "{received}");
    eventually("ada is told", || {
        let drained = ada.call("bus.drain", json!({})).to_string();
        drained.contains("gone ended for good").then_some(())
    });
    let refused = ada.call_fails("bus.send", json!({ "to": "gone", "body": "late" }));
    assert!(refused.contains("no peer named gone"), "{refused}");
    broker.stop();
}
