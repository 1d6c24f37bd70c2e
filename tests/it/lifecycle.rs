//! Adapters as processes: how they start, wait and end.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::support::{Broker, Home, Mcp};

/// Ten times the 100 ms in which an adapter must be gone.
const GONE: Duration = Duration::from_secs(1);

#[test]
fn an_adapter_is_gone_soon_after_eof_and_after_either_signal() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for adapter in ["cc", "generic"] {
        for signal in [None, Some(Signal::INT), Some(Signal::TERM)] {
            let mut mcp = Mcp::start(&home, adapter, "leaver", "kill-test");
            mcp.call("bus.peers", json!({}));
            let start = Instant::now();
            let status = match signal {
                Some(signal) => {
                    kill_process(mcp.pid(), signal).expect("our child");
                    mcp.wait()
                }
                None => mcp.close(),
            };
            assert!(status.success(), "{adapter} on {signal:?}: {status}");
            assert!(
                start.elapsed() < GONE,
                "{adapter} on {signal:?}: {:?}",
                start.elapsed()
            );
        }
    }
    broker.stop();
}

#[test]
fn an_adapter_without_a_broker_answers_at_once_and_says_why_nothing_works() {
    let home = Home::new();
    let mut mcp = Mcp::spawn(&mut home.peerbus(&["adapter", "--adapter", "cc"]));
    let discover = mcp.request("server/discover", json!({}));
    assert_eq!(discover["error"]["code"], -32601);
    let result = mcp.initialize("claude-code");
    assert_eq!(
        result["capabilities"]["experimental"]["claude/channel"],
        json!({})
    );
    let said = mcp.call_fails("bus.peers", json!({}));
    assert!(said.contains("peerbus serve"), "{said}");

    let broker = Broker::start(&home);
    let connected = mcp.notification("announcement", |n| {
        (n["params"]["meta"]["kind"] == "system").then(|| n["params"].clone())
    });
    let name = connected["meta"]["self"]
        .as_str()
        .expect("a name")
        .to_owned();
    assert_eq!(connected["content"], format!("📡 connected as {name}"));
    assert_eq!(mcp.call("bus.peers", json!({}))["self"], json!(name));
    broker.stop();
}

#[test]
fn a_session_whose_name_is_held_can_take_another_one_by_itself() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut holder = Mcp::start(&home, "generic", "shared", "first-client");
    holder.call("bus.peers", json!({}));
    let mut second = Mcp::start(&home, "generic", "shared", "second-client");
    let said = second.call_fails("bus.send", json!({ "to": "shared", "body": "hi" }));
    assert!(said.contains("shared"), "{said}");
    let taken = crate::support::eventually("it has another name", || {
        let arguments = json!({ "name": "bus.rename", "arguments": { "name": "other" } });
        let result = second.request("tools/call", arguments);
        (result["isError"] != true).then(|| result["structuredContent"]["self"].clone())
    });
    assert_eq!(taken, "other");
    assert_eq!(second.call("bus.peers", json!({}))["self"], "other");
    holder.call("bus.send", json!({ "to": "other", "body": "hi" }));
    assert_eq!(holder.call("bus.peers", json!({}))["self"], "shared");
    broker.stop();
}

#[test]
fn a_second_claim_on_a_live_name_is_told_who_holds_it_and_takes_it_over_later() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut holder = Mcp::start(&home, "generic", "shared", "first-client");
    holder.call("bus.peers", json!({}));
    let mut second = Mcp::start(&home, "generic", "shared", "second-client");
    let said = crate::support::eventually("the second is refused", || {
        let result = second.request(
            "tools/call",
            json!({ "name": "bus.peers", "arguments": {} }),
        );
        let text = result["content"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        text.contains("shared").then_some(text)
    });
    assert!(said.contains("is in use by \"first-client in "), "{said}");
    assert_eq!(
        holder.call("bus.peers", json!({}))["self"],
        "shared",
        "the holder is undisturbed"
    );
    holder.close();
    crate::support::eventually("the second gets the name", || {
        let result = second.request(
            "tools/call",
            json!({ "name": "bus.peers", "arguments": {} }),
        );
        (result["structuredContent"]["self"] == "shared" && result["isError"] != true).then_some(())
    });
    broker.stop();
}
