//! A session of Claude Code, its adapter and its broker.

use std::time::Duration;

use peerbus_adapter::mailbox::{AgentLink, WakeList};
use peerbus_adapter::{Bus, BusConfig, Flags, How, connect};
use peerbus_cc_adapter::{ClaudeSurroundings, WAKING};
use peerbus_mcp::{AdapterOptions, Exit, run_over};
use peerbus_test_support::mcp::{Client, client};
use peerbus_test_support::scripted::Broker;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::home::Home;

/// Longer than a push may go without a sign of it.
pub(crate) const OVERDUE: Duration = Duration::from_secs(11);

/// Settings as a user makes them: names and values of environment variables.
pub(crate) type Settings<'a> = &'a [(&'a str, &'a str)];

/// For a session that nothing wakes.
pub(crate) const DEAF: (&str, &str) = ("PEERBUS_WAKE", "none");

/// A session that takes channels, unless its settings say otherwise.
pub(crate) struct Session {
    pub(crate) broker: Broker,
    pub(crate) bus: Bus,
    pub(crate) client: Client,
    pub(crate) home: Home,
}

impl Session {
    /// A session without a transcript: nothing shows what its model saw.
    pub(crate) async fn start(settings: Settings<'_>) -> Self {
        Self::start_in(Home::new(), false, settings).await
    }

    pub(crate) async fn start_in(home: Home, transcript: bool, settings: Settings<'_>) -> Self {
        let variable = |name: &str| {
            let found = settings.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let wake = variable("PEERBUS_WAKE").unwrap_or_else(|| "channel".to_owned());
        let around = if transcript {
            home.around(&wake)
        } else {
            ClaudeSurroundings {
                wake: WakeList::read(&wake, &WAKING).unwrap(),
                ..ClaudeSurroundings::default()
            }
        };
        let around = ClaudeSurroundings {
            hooks: Some(home.paths()),
            ancestors: vec![home.does("idle")],
            ..around
        };
        let options = AdapterOptions::read(variable).unwrap();
        let broker = Broker::start(true).await;
        let bus = bus(|name| broker.variable(name));
        let (client, _adapter) = start(bus.clone(), options, around);
        Self {
            broker,
            bus,
            client,
            home,
        }
    }

    /// The same, its client greeted and told its name.
    pub(crate) async fn greeted(settings: Settings<'_>) -> Self {
        Self::start(settings).await.greet(settings).await
    }

    /// A session with a transcript, a socket of its own, and a file that says what it does.
    pub(crate) async fn at_home(settings: Settings<'_>) -> Self {
        let session = Self::start_in(Home::new(), true, settings).await;
        session.greet(settings).await
    }

    async fn greet(mut self, settings: Settings<'_>) -> Self {
        self.broker.registered().await;
        self.client.greet("claude-code").await;
        let wake = settings.iter().find(|(name, _)| *name == "PEERBUS_WAKE");
        if wake.is_none_or(|(_, paths)| paths.contains("channel")) {
            let announced = self.client.push().await;
            assert_eq!(announced["content"], "📡 connected as me");
        }
        self
    }

    /// Delivers a message from bob.
    pub(crate) fn deliver(&mut self, body: &str) {
        self.broker.deliver(body);
    }

    /// Calls a tool and gives the result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.client.call(tool, arguments).await
    }

    /// Waits until everything that the broker sent so far has arrived; gives what came along.
    pub(crate) async fn settle(&mut self) -> Option<String> {
        let result = self.client.call("bus.peers", Value::Null).await;
        along(&result)
    }

    /// Reads the inbox and gives the result.
    pub(crate) async fn inbox(&mut self, arguments: Value) -> Value {
        let result = self.client.call("bus.inbox", arguments).await;
        assert_eq!(along(&result), None, "what is read is enough");
        result["structuredContent"].clone()
    }

    /// Waits until so many messages and notices wait, without looking at one.
    pub(crate) async fn waiting(&mut self, count: u64) {
        let nothing = serde_json::json!({ "ids": ["no-such-id"] });
        for _ in 0..100_000 {
            if self.inbox(nothing.clone()).await["remaining"] == count {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("not {count} ever wait");
    }
}

/// A bus whose environment is this, its link running.
pub(crate) fn bus(env: impl Fn(&str) -> Option<String>) -> Bus {
    let flags = Flags {
        credentials: Some("/nonexistent/peerbus-test".into()),
        ..Flags::default()
    };
    let config = BusConfig::resolve_with(&flags, env).unwrap();
    let (bus, link) = connect(BusConfig {
        sockets: Vec::new(),
        sessions: None,
        ..config
    });
    tokio::spawn(link.run());
    bus
}

/// An adapter of Claude Code that is running, with its client.
pub(crate) fn start(
    bus: Bus,
    options: AdapterOptions,
    around: ClaudeSurroundings,
) -> (Client, JoinHandle<Exit>) {
    let (client, input, output) = client(1 << 20);
    let (profile, begin) = peerbus_cc_adapter::adapter(around);
    let adapter = run_over(bus, profile, options, input, output, begin);
    (client, tokio::spawn(adapter))
}

/// The client of a generic adapter on this bus, greeted.
pub(crate) async fn generic(bus: Bus, options: AdapterOptions) -> Client {
    let (mut client, input, output) = client(4 << 20);
    let profile = peerbus_mcp::generic(|_| false);
    let start = |_, _| std::future::ready(AgentLink::default());
    tokio::spawn(run_over(bus, profile, options, input, output, start));
    client.greet("some-bot").await;
    client
}

/// The mail that came along with a result; the same in both places.
pub(crate) fn along(result: &Value) -> Option<String> {
    let text = result["content"][1]["text"].as_str().map(str::to_owned);
    if result["isError"] == false {
        let unseen = result["structuredContent"]["unseen"].as_str();
        assert_eq!(unseen, text.as_deref(), "{result}");
    }
    text
}

/// The mark of a text that was shown.
pub(crate) fn mark(text: &str) -> &str {
    let mut words = text.split(['[', ' ', ']']);
    words.find(|word| word.starts_with("pb-")).expect("a mark")
}

pub(crate) async fn advance(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

pub(crate) fn seen(path: &str, evidence: &str) -> Option<How> {
    Some(How::Seen {
        path: path.into(),
        evidence: evidence.into(),
    })
}

pub(crate) fn pushed(path: &str) -> Option<How> {
    Some(How::Pushed { path: path.into() })
}
