//! A session that can be woken, its client and its broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use peerbus_adapter::How;
use peerbus_adapter::wake::{Outcome, Path};
use peerbus_mcp::{BoxFuture, Desk, Host, Letter, Options, Profile, WakePath, run_over};
use serde_json::{Map, Value, json};

use crate::support::{Broker, Client, Seen, client};

/// Longer than a push may go without a sign of it.
pub(crate) const OVERDUE: Duration = Duration::from_secs(11);

const PROFILE: Profile = Profile {
    kind: "test",
    instructions: "",
    experimental: &[],
    drain: false,
};

/// Writes letters as notifications.
struct Pushes {
    host: Host,
    usable: Arc<AtomicBool>,
    last: Arc<AtomicU64>,
}

impl WakePath for Pushes {
    fn path(&self) -> Path {
        Path::Channel
    }

    fn needs(&self) -> &'static str {
        "a test"
    }

    fn evidence(&self) -> &'static str {
        "none"
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        let usable = self.usable.load(Ordering::Relaxed);
        Box::pin(async move {
            usable
                .then_some(())
                .ok_or_else(|| "switched off".to_owned())
        })
    }

    fn wake<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            self.last.store(letter.parcel.0, Ordering::Relaxed);
            let (content, meta) = letter.channel();
            let meta: Map<String, Value> = meta
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.into()))
                .collect();
            let params = json!({ "content": content, "meta": meta, "text": letter.text() });
            match self
                .host
                .notify("notifications/claude/channel", params)
                .await
            {
                Ok(()) => Outcome::Written,
                Err(_) => Outcome::Failed,
            }
        })
    }

    fn announce<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let params = json!({ "content": format!("connected as {name}") });
            let _ = self
                .host
                .notify("notifications/claude/channel", params)
                .await;
        })
    }
}

/// A session that can be woken.
pub(crate) struct Session {
    pub(crate) broker: Broker,
    pub(crate) client: Client,
    pub(crate) desk: Desk,
    pub(crate) usable: Arc<AtomicBool>,
    /// What was pushed last.
    pub(crate) last: Arc<AtomicU64>,
}

impl Session {
    pub(crate) async fn start(options: Options) -> Self {
        let broker = Broker::start(true).await;
        let (client, input, output) = client(1 << 20);
        let usable = Arc::new(AtomicBool::new(true));
        let (tell, desk) = tokio::sync::oneshot::channel();
        let switch = usable.clone();
        let last = Arc::new(AtomicU64::new(0));
        let noted = last.clone();
        let bus = broker.bus();
        tokio::spawn(run_over(
            bus,
            PROFILE,
            options,
            input,
            output,
            |host, desk| {
                assert!(tell.send(desk).is_ok());
                let usable = switch;
                let last = noted;
                let path: Box<dyn WakePath> = Box::new(Pushes { host, usable, last });
                (vec![path], async {})
            },
        ));
        Self {
            broker,
            client,
            desk: desk.await.unwrap_or_else(|_| panic!("it does not start")),
            usable,
            last,
        }
    }

    /// The same, its client greeted and told its name.
    pub(crate) async fn greeted(options: Options) -> Self {
        let mut session = Self::start(options).await;
        session.broker.registered().await;
        session.client.greet("some-bot").await;
        let announced = session.client.push().await;
        assert_eq!(announced["content"], "connected as me");
        session
    }

    /// Waits until everything that the broker sent so far has arrived; gives what came along.
    pub(crate) async fn settle(&mut self) -> Option<String> {
        let result = self.client.call("bus.peers", json!({})).await;
        along(&result)
    }
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

pub(crate) fn is_ack(seen: &Seen) -> bool {
    matches!(seen, Seen::Ack { .. })
}
