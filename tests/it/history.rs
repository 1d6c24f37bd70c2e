//! What is known of a message outlives the processes through which it went.

use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, Raw, eventually};

/// The last step of the message as `peer` is told it, once it is `state`.
#[track_caller]
fn last_step(peer: &mut Mcp, id: &str, state: &str) -> Value {
    eventually(state, || {
        let status = peer.call("bus.status", json!({ "id": id }));
        let last = status["messages"][0]["steps"].as_array()?.last()?.clone();
        (last["state"] == state).then_some(last)
    })
}

#[test]
fn that_a_message_was_seen_is_known_after_kills_of_broker_and_sender() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Raw::register(&home, &broker, "bob");
    let mut alice = Mcp::start(&home, "generic", "alice", "some-bot");
    let sent = alice.call("bus.send", json!({ "to": "bob", "body": "hi" }));
    let id = sent["id"].as_str().expect("an id").to_owned();
    let delivery = bob.delivery()["delivery_key"].clone();
    let ack = json!({
        "protocol_version": "v1", "type": "ack", "id": delivery,
        "how": "seen", "path": "inbox", "evidence": "tool_call",
    });
    bob.say(&ack.to_string());
    let seen = last_step(&mut alice, &id, "seen");
    assert_eq!(
        (&seen["path"], &seen["evidence"]),
        (&json!("inbox"), &json!("tool_call"))
    );

    drop(alice);
    broker.kill();
    let broker = Broker::start(&home);
    let mut alice = Mcp::start(&home, "generic", "alice", "some-bot");
    assert_eq!(last_step(&mut alice, &id, "seen"), seen, "also when");
    let status = home.run(&["status", &id]).ok();
    let line = status
        .lines()
        .find(|line| line.contains("seen"))
        .expect("a step");
    assert!(
        line.starts_with(seen["at"].as_str().expect("a time")),
        "{line}"
    );
    assert!(line.ends_with("bob  by inbox  (tool_call)"), "{line}");
    assert!(status.contains("from alice to bob"), "{status}");
    assert!(
        status.contains("bob's model has seen it")
            && status.contains("by inbox, which named it in a tool call"),
        "{status}"
    );
    let again = home.run(&["status", &id, "--json"]).ok();
    let again: Value = serde_json::from_str(&again).expect("JSON");
    let steps = again["messages"][0]["trail"]["steps"].as_array();
    assert_eq!(steps.and_then(|steps| steps.last()), Some(&seen));
    broker.stop();
}
