//! The generic adapter between a client and a scripted broker.

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

mod adapter;
mod conversation;
mod length;
mod receipts;
mod requests;

use peerbus_adapter::mailbox::AgentLink;
use peerbus_adapter::{Bus, BusConfig, Flags, connect};
use peerbus_mcp::{AdapterOptions, Exit, generic, run_over};
use peerbus_test_support::mcp::{Client, client};
use peerbus_test_support::scripted::Broker;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A bus at this broker, its link running.
fn bus(broker: &Broker) -> Bus {
    let flags = Flags {
        credentials: Some("/nonexistent/peerbus-test".into()),
        ..Flags::default()
    };
    let config = BusConfig::resolve_with(&flags, |name| broker.variable(name)).unwrap();
    let (bus, link) = connect(BusConfig {
        sessions: None,
        ..config
    });
    tokio::spawn(link.run());
    bus
}

/// An adapter that is running, with its client. `room`: bytes that it can write ahead of the
/// client's reading.
fn start_with(broker: &Broker, options: AdapterOptions, room: usize) -> (Client, JoinHandle<Exit>) {
    let (client, input, output) = client(room);
    let start = |_, _| std::future::ready(AgentLink::default());
    let adapter = run_over(
        bus(broker),
        generic(|_| false),
        options,
        input,
        output,
        start,
    );
    (client, tokio::spawn(adapter))
}

fn start(broker: &Broker) -> (Client, JoinHandle<Exit>) {
    start_with(broker, AdapterOptions::default(), 1 << 20)
}

/// A client that has introduced itself.
async fn greeted(broker: &Broker) -> Client {
    let (mut client, _adapter) = start(broker);
    client.greet("some-bot").await;
    // What is delivered before the registration is lost.
    client.call("bus.peers", json!({})).await;
    client
}

/// Drains until something comes.
async fn drain(client: &mut Client) -> Value {
    for _ in 0..10_000 {
        let result = client.call("bus.drain", json!({})).await;
        if result["structuredContent"]["messages"] != json!([]) {
            return result;
        }
        tokio::task::yield_now().await;
    }
    panic!("nothing was ever drained");
}
