//! Both directions of v1: a v1 client at our broker, our adapters at a v1 broker.

use serde_json::json;

use crate::support::{Broker, Home, Mcp, python};

#[test]
fn a_v1_client_that_knows_no_extension_is_at_home_at_our_broker() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (token, secret) = (home.credential("token"), home.credential("hmac_secret"));
    let mut script = home.command("python3");
    script.arg(python::script("v1/client.py")).args([
        "scenario",
        "--url",
        &broker.url(),
        "--token",
        &token,
        "--secret",
        &secret,
    ]);
    python::passes(&mut script);
    broker.stop();
}

#[test]
fn our_adapters_work_at_a_v1_broker_and_say_written() {
    let home = Home::new();
    let broker = python::V1Broker::start(&home, "v1-token");
    let adapter = |name: &str, kind: &str| {
        let mut command = home.peerbus(&["adapter", "--adapter", kind, "--name", name]);
        command
            .env("PEERBUS_URL", &broker.url)
            .env("PEERBUS_TOKEN", "v1-token")
            .env(
                "PEERBUS_HMAC_SECRET",
                "a secret that is at least 32 bytes long",
            );
        let mut mcp = Mcp::spawn(&mut command);
        mcp.initialize("claude-code");
        mcp
    };
    let (mut alice, mut bob) = (adapter("alice", "generic"), adapter("bob", "generic"));
    let mut carol = adapter("carol", "cc");
    for mcp in [&mut bob, &mut carol] {
        crate::support::eventually("registered", || {
            let peers = mcp.request(
                "tools/call",
                json!({ "name": "bus.peers", "arguments": {} }),
            );
            (peers["isError"] != true).then_some(())
        });
    }
    let sent = alice.call("bus.send", json!({ "to": "bob", "body": "hello" }));
    assert_eq!(
        (&sent["status"], &sent["to"]),
        (&json!("written"), &json!("bob"))
    );
    let drained = crate::support::eventually("the message is drained", || {
        let drained = bob.call("bus.drain", json!({}));
        let any = drained["messages"]
            .as_array()
            .is_some_and(|m| !m.is_empty());
        any.then(|| drained["messages"].clone())
    });
    assert_eq!(
        (&drained[0]["from"], &drained[0]["body"]),
        (&json!("alice"), &json!("hello"))
    );
    alice.call(
        "bus.send",
        json!({ "to": "carol", "body": { "text": "wake up" } }),
    );
    let pushed = carol.notification("push", |n| {
        (n["params"]["meta"]["from"] == "alice").then(|| n["params"]["content"].clone())
    });
    assert_eq!(pushed, "📨 alice: \"wake up\"");
    let all = alice.call("bus.broadcast", json!({ "body": "all" }));
    assert_eq!(all["status"], "written");
}
