//! The generic adapter between a scripted broker and agents that can be woken, as far as it sees
//! them: their sockets and files.

#![cfg(unix)]
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a failure ends the test"
)]

mod codex;
mod copilot;
mod opencode;
mod qwen;
mod unwoken;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use peerbus_adapter::mailbox::WakeList;
use peerbus_adapter::{BusConfig, Flags, How, connect};
use peerbus_mcp::wake::{Surroundings, waking};
use peerbus_mcp::{AdapterOptions, Exit};
use peerbus_test_support::mcp::{Client, client};
use peerbus_test_support::scripted::{Broker, Seen};
use peerbus_wire::Stage;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Where an adapter runs: variables, and a home.
fn around(variables: &[(&str, &str)], home: &Path) -> Surroundings {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let variables: BTreeMap<_, _> = variables.iter().map(owned).collect();
    Surroundings {
        variables: Arc::new(move |name| variables.get(name).cloned()),
        home: Some(home.to_owned()),
        cwd: Some("/nonexistent/project".into()),
        ancestors: Vec::new(),
        wake: WakeList::default(),
        paths: None,
    }
}

fn only(words: &str) -> WakeList {
    WakeList::read(words, &waking().collect::<Vec<_>>()).unwrap()
}

/// A generic adapter that is registered, with its client. `name`: what the client calls itself.
async fn start(
    broker: &mut Broker,
    name: &str,
    around: Surroundings,
) -> (Client, Value, JoinHandle<Exit>) {
    let started = begin(broker, name, around).await;
    broker.registered().await;
    started
}

/// One that registers soon.
async fn begin(
    broker: &Broker,
    name: &str,
    around: Surroundings,
) -> (Client, Value, JoinHandle<Exit>) {
    let flags = Flags {
        credentials: Some("/nonexistent/peerbus-test".into()),
        ..Flags::default()
    };
    let config = BusConfig::resolve_with(&flags, |name| broker.variable(name)).unwrap();
    let (bus, link) = connect(BusConfig {
        sockets: Vec::new(),
        sessions: None,
        ..config
    });
    tokio::spawn(link.run());
    let (mut client, input, output) = client(1 << 20);
    let (profile, begin) = peerbus_mcp::wake::adapter(around);
    let options = AdapterOptions::default();
    let adapter = peerbus_mcp::run_over(bus, profile, options, input, output, begin);
    let adapter = tokio::spawn(adapter);
    let greeting = client.greet(name).await;
    (client, greeting, adapter)
}

/// Waits until peers are told something of this session.
async fn presence<T>(broker: &mut Broker, what: &str, pick: impl Fn(&Value) -> Option<T>) -> T {
    let told = |seen| match seen {
        Seen::Registered(register) => {
            let about = register.presence?;
            pick(&serde_json::from_str(about.as_str()).unwrap())
        }
        Seen::Presence(about) => pick(&about),
        _ => None,
    };
    broker.saw(what, told).await
}

fn seen(path: &str) -> Option<How> {
    Some(How::Seen {
        path: path.into(),
        evidence: "transcript".into(),
    })
}

/// The path over which a message is presented, before anything is acked.
async fn presented(broker: &mut Broker) -> String {
    let presented = |seen| match seen {
        Seen::Progress {
            stage: Stage::Presented { path },
            ..
        } => Some(path),
        Seen::Ack { .. } => panic!("nobody has seen it"),
        _ => None,
    };
    broker.saw("that it is presented", presented).await
}

async fn rejected(broker: &mut Broker) -> String {
    let rejected = |seen| match seen {
        Seen::Reject(key) => Some(key),
        Seen::Ack { .. } => panic!("nobody has seen it"),
        _ => None,
    };
    broker.saw("that it is rejected", rejected).await
}

async fn held(broker: &mut Broker) -> String {
    let held = |seen| match seen {
        Seen::Progress { key, stage } => matches!(stage, Stage::Held { .. }).then_some(key),
        Seen::Ack { .. } => panic!("nobody has seen it"),
        _ => None,
    };
    broker.saw("that it is held", held).await
}

/// What waits now, as the agent reads it.
async fn waiting(client: &mut Client) -> Vec<Value> {
    let result = client.call("bus_drain", json!({})).await;
    peerbus_test_support::mcp::messages(&result)
}

/// What waits, once something does.
async fn drained(client: &mut Client) -> Vec<Value> {
    loop {
        let messages = waiting(client).await;
        if !messages.is_empty() {
            return messages;
        }
    }
}
