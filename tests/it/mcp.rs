//! The bus tools through MCP, with our own client.

use serde_json::json;

use crate::support::{Broker, Home, Mcp, python};

#[test]
fn a_message_goes_from_a_generic_adapter_to_a_channel_and_back() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut worker = Mcp::start(&home, "generic", "worker", "some-bot");
    let mut session = Mcp::start(&home, "cc", "session", "claude-code");
    session.notification("announcement", |n| {
        (n["params"]["meta"]["self"] == "session").then_some(())
    });

    let sent = worker.call(
        "bus.send",
        json!({ "to": "session", "body": { "text": "hi\n<b>" } }),
    );
    assert_eq!(
        (&sent["sent"], &sent["to"]),
        (&json!(true), &json!("session"))
    );
    assert_eq!(
        (&sent["status"], &sent["recipients"]),
        (&json!("accepted"), &json!(1))
    );
    let mut push = session.notification("push", |n| {
        (n["params"]["meta"]["kind"] == "msg").then(|| n["params"].clone())
    });
    let mark = push["meta"]["push"].take();
    assert!(
        mark.as_str().is_some_and(|mark| mark.starts_with("pb-")),
        "{mark}"
    );
    assert_eq!(push["content"], "📨 worker: \"hi\\u000a\\u003cb\\u003e\"");
    assert_eq!(
        push["meta"],
        json!({
            "from": "worker", "source": "peer-bus", "msg_id": sent["id"], "kind": "msg",
            "push": null,
        })
    );

    session.call("bus.send", json!({ "to": "worker", "body": "seen" }));
    let drained = crate::support::eventually("the reply is there", || {
        let drained = worker.call("bus.drain", json!({}));
        (drained["messages"] != json!([])).then_some(drained)
    });
    // What a push made the session send says how many replies led to it.
    let body = &drained["messages"][0]["body"];
    assert_eq!(body, &json!({ "text": "seen", "hops": 1 }));
    assert_eq!(worker.call("bus.drain", json!({}))["messages"], json!([]));
    broker.stop();
}

#[test]
fn a_drain_that_was_not_answered_loses_nothing() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut reader = Mcp::start(&home, "generic", "reader", "some-bot");
    reader.call("bus.peers", json!({}));
    for n in 0..5 {
        home.run(&["send", "reader", &format!("message {n}")]).ok();
    }
    // Killed before it was asked to drain: everything was fetched, nothing was answered.
    drop(reader);
    let mut reader = Mcp::start(&home, "generic", "reader", "some-bot");
    let mut texts = Vec::new();
    crate::support::eventually("all five are drained", || {
        let drained = reader.call("bus.drain", json!({}));
        let messages = drained["messages"].as_array().expect("a list").clone();
        texts.extend(
            messages
                .iter()
                .map(|m| m["body"]["text"].as_str().expect("text").to_owned()),
        );
        (texts.len() >= 5).then_some(())
    });
    assert_eq!(
        texts,
        (0..5).map(|n| format!("message {n}")).collect::<Vec<_>>()
    );
    broker.stop();
}

#[test]
fn an_answer_in_the_pipe_of_a_client_that_dies_is_not_seen_and_the_next_one_gets_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut alice = Mcp::start(&home, "generic", "alice", "some-bot");
    let mut bob = Mcp::start(&home, "generic", "bob", "some-bot");
    bob.call("bus.peers", json!({}));
    let sent = alice.call("bus.send", json!({ "to": "bob", "body": "are you there?" }));
    let mut state = |wanted: &str| {
        crate::support::eventually("the message gets there", || {
            let status = alice.call("bus.status", json!({ "id": sent["id"] }));
            let steps = status["messages"][0]["steps"].as_array()?.clone();
            let last = steps.last()?["state"].as_str()?.to_owned();
            (last == wanted).then_some(last)
        })
    };
    state("delivered");
    // The broker has sent it, and the adapter may not have read it yet.
    crate::support::eventually("it has come", || {
        let listed = bob.call("bus.inbox", json!({ "peek": true }));
        (listed["messages"] != json!([])).then_some(())
    });
    // Its client takes the answer and says no more, not even that it lives.
    let ask = bob.ask_tool("bus.inbox", json!({ "ids": [sent["id"]] }));
    bob.mute();
    let answer = bob.next(crate::support::PATIENCE).expect("an answer");
    assert_eq!(answer["id"], ask);
    assert!(answer.to_string().contains("are you there?"), "{answer}");
    bob.close();
    let mut bob = Mcp::start(&home, "generic", "bob", "some-bot");
    let read = crate::support::eventually("it comes again", || {
        let read = bob.call("bus.inbox", json!({}));
        (read["messages"] != json!([])).then(|| read["messages"][0].clone())
    });
    assert_eq!(read["shown_before"], true, "{read}");
    // This one goes on.
    bob.call("bus.peers", json!({}));
    state("pushed");
    broker.stop();
}

#[test]
fn a_broadcast_reaches_everyone_who_is_registered_and_not_its_sender() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut all: Vec<_> = ["one", "two", "three"]
        .iter()
        .map(|n| Mcp::start(&home, "generic", n, "some-bot"))
        .collect();
    for mcp in &mut all {
        mcp.call("bus.peers", json!({}));
    }
    let sent = all[0].call("bus.broadcast", json!({ "body": "to all" }));
    assert_eq!(
        (&sent["broadcast"], &sent["recipients"]),
        (&json!(true), &json!(2))
    );
    for mcp in &mut all[1..] {
        let drained = crate::support::eventually("the broadcast is there", || {
            let drained = mcp.call("bus.drain", json!({}));
            (drained["messages"] != json!([])).then_some(drained)
        });
        assert_eq!(drained["messages"][0]["kind"], "broadcast");
    }
    assert_eq!(all[0].call("bus.drain", json!({}))["messages"], json!([]));
    broker.stop();
}

#[test]
fn what_cannot_be_sent_is_an_error_with_a_sentence() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut mcp = Mcp::start(&home, "generic", "sender", "some-bot");
    mcp.call("bus.peers", json!({}));
    let unknown = mcp.call_fails("bus.send", json!({ "to": "nobody-here", "body": "x" }));
    assert!(unknown.contains("nobody-here"), "{unknown}");
    let large = mcp.call_fails(
        "bus.send",
        json!({ "to": "sender", "body": "<".repeat(400_000) }),
    );
    assert!(large.contains("1048"), "{large}");
    let missing = mcp.call_fails("bus.send", json!({ "body": "x" }));
    assert!(missing.contains("to"), "{missing}");
    let name = mcp.call_fails("bus.send", json!({ "to": "*", "body": "x" }));
    assert!(name.contains("broadcast"), "{name}");
    broker.stop();
}

#[test]
fn dots_are_shown_only_to_clients_that_take_them_and_both_spellings_are_accepted() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let cases = [
        ("claude-code", "bus.send"),
        ("codex-mcp-client", "bus_send"),
        ("opencode", "bus_send"),
    ];
    for (client, expected) in cases {
        let mut mcp = Mcp::start(&home, "generic", "speller", client);
        let tools = mcp.request("tools/list", json!({}))["tools"].clone();
        let names: Vec<_> = tools
            .as_array()
            .expect("tools")
            .iter()
            .map(|t| t["name"].clone())
            .collect();
        assert!(names.contains(&json!(expected)), "{client}: {names:?}");
        assert_eq!(names.len(), 12, "{client}: {names:?}");
        mcp.call("bus.peers", json!({}));
        mcp.call("bus_peers", json!({}));
        mcp.close();
    }
    broker.stop();
}

#[test]
fn the_official_sdk_drives_both_adapters() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut script = python::driver(&home, "mcp/sdk_drive.py");
    python::passes_or_skips(&mut script, python::in_ci());
    broker.stop();
}

#[test]
fn the_inspector_drives_both_adapters() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut script = python::driver(&home, "mcp/inspector_drive.py");
    python::passes_or_skips(&mut script, python::in_ci());
    broker.stop();
}

#[test]
fn an_adapter_ends_with_its_session_however_its_pipes_are_made() {
    let home = Home::new();
    python::passes(&mut python::driver(&home, "mcp/lifecycle_drive.py"));
}
