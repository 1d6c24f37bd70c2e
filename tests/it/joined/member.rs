//! A peer that writes, acks what it is shown, and comes back when its broker does.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use peerbus_test_support::message::envelope;
use peerbus_test_support::socket::{Socket, registration};
use peerbus_wire::limits::STATUS_IDS_MAX;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::ledger::Ledger;
use super::machine::Machine;

/// What waits to be written, at most.
const WAITING: usize = 4_096;
/// Between two attempts to reach the broker.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Member {
    /// `NAME@DOMAIN`.
    pub(super) address: String,
    texts: mpsc::Sender<(String, String)>,
    secret: String,
}

struct Life {
    at: SocketAddr,
    register: String,
    me: String,
    ledger: Arc<Ledger>,
    texts: mpsc::Receiver<(String, String)>,
    /// What was not accepted yet: ids and texts.
    open: VecDeque<(String, String)>,
    /// What was accepted and has not ended, as far as this one was told.
    under_way: BTreeSet<String>,
}

impl Member {
    pub(super) fn start(on: &Handle, machine: &Machine, name: &str, ledger: &Arc<Ledger>) -> Self {
        let mut register = registration(name, &machine.home.credential("token"));
        register["ext"] = 2.into();
        register["instance"] = format!("instance-of-{name}").into();
        let (texts, come) = mpsc::channel(WAITING);
        let address = format!("{name}@{}", machine.domain);
        let life = Life {
            at: machine.address.parse().expect("an address"),
            register: register.to_string(),
            me: address.clone(),
            ledger: Arc::clone(ledger),
            texts: come,
            open: VecDeque::new(),
            under_way: BTreeSet::new(),
        };
        on.spawn(life.run());
        Self {
            address,
            texts,
            secret: machine.home.credential("hmac_secret"),
        }
    }

    /// Writes to an address; at home to the name alone, and from it.
    pub(super) fn write(&self, ledger: &Ledger, to: &str, id: &str, hopeless: bool) {
        ledger.write(id, &self.address, to, hopeless);
        let bare = |address: &str| address.split('@').next().unwrap_or_default().to_owned();
        let home = self.address.rsplit('@').next() == to.rsplit('@').next();
        let (from, to) = match home {
            true => (bare(&self.address), bare(to)),
            false => (self.address.clone(), to.to_owned()),
        };
        let text = envelope(&self.secret, id, &from, &to, r#""hello""#);
        let sent = self.texts.try_send((id.to_owned(), text));
        sent.expect("fewer wait than may");
    }
}

impl Life {
    async fn run(mut self) {
        while !self.texts.is_closed() {
            // Errors of a connection end it, and nothing else.
            if let Ok(socket) = Socket::connect(self.at).await {
                self.connected(socket, Instant::now()).await;
            }
            if let Ok(text) = timeout(PAUSE, self.texts.recv()).await {
                match text {
                    Some(text) => self.open.push_back(text),
                    None => return,
                }
            }
        }
    }

    async fn connected(&mut self, mut socket: Socket, since: Instant) -> Option<()> {
        socket
            .ws
            .send(Message::text(self.register.clone()))
            .await
            .ok()?;
        for (_, text) in &self.open {
            socket.ws.feed(Message::text(text.clone())).await.ok()?;
        }
        // What ended while the broker was away it tells who asks.
        let open = self.open.iter().map(|(id, _)| id);
        let ids: Vec<_> = self.under_way.iter().chain(open).collect();
        for ids in ids.chunks(STATUS_IDS_MAX) {
            let ask = json!({ "protocol_version": "v1", "type": "status", "ids": ids });
            socket.ws.feed(Message::text(ask.to_string())).await.ok()?;
        }
        socket.ws.flush().await.ok()?;
        loop {
            tokio::select! {
                text = self.texts.recv() => {
                    let (id, text) = text?;
                    self.open.push_back((id, text.clone()));
                    socket.ws.send(Message::text(text)).await.ok()?;
                }
                heard = socket.ws.next() => {
                    if let Message::Text(text) = heard?.ok()? {
                        let frame: Value = serde_json::from_str(&text).expect("JSON");
                        if let Some(ack) = self.hear(since, &frame) {
                            socket.ws.send(Message::text(ack)).await.ok()?;
                        }
                    }
                }
            }
        }
    }

    /// Gives the ack of what it was shown.
    fn hear(&mut self, since: Instant, frame: &Value) -> Option<String> {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        for receipt in frame["receipts"].as_array().into_iter().flatten() {
            let (id, state) = (text(&receipt["id"]), text(&receipt["state"]));
            self.ledger
                .told(since, &id, (&state, receipt["how"] == "seen"));
            if state != "unknown" {
                self.open.retain(|(open, _)| *open != id);
            }
            match ["acked", "dead"].contains(&&*state) {
                true => self.under_way.remove(&id),
                false => self.under_way.insert(id),
            };
        }
        if frame["type"] != "deliver" {
            return None;
        }
        let envelope = &frame["envelope"];
        let (mut from, id) = (text(&envelope["from"]), text(&envelope["id"]));
        if !from.contains('@') {
            let home = self.me.rsplit('@').next().unwrap_or_default();
            from = format!("{from}@{home}");
        }
        let again = frame["again"] == true;
        self.ledger.shown(since, (&self.me, &from), (&id, again));
        let ack = json!({
            "protocol_version": "v1", "type": "ack", "id": frame["delivery_key"],
            "how": "seen", "path": "test", "evidence": "transcript",
        });
        Some(ack.to_string())
    }
}
