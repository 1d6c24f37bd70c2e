//! Who is at home, as other domains are told.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use peerbus_os::sync::lock;
use peerbus_wire::{ClientFrame, PeerEntry, Presence};
use serde_json::{Map, Value};
use tokio::sync::watch;

/// How often the own broker is asked.
const ASKED: Duration = Duration::from_secs(15);
/// What others are told of a peer's own description.
const TOLD: [&str; 2] = ["client", "activity"];
/// Longest text of it, in bytes; longer ones are left out.
const TEXT_BYTES_MAX: usize = 80;

/// The list, shared by all joints.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// As it goes to the other domains: a `roster` frame, once one was [set](Self::set).
    pub(crate) text: watch::Sender<String>,
    asked: Mutex<Option<Instant>>,
}

impl Roster {
    /// Whether the own broker is to be asked now. Who is told so asks.
    pub(crate) fn is_due(&self) -> bool {
        let mut asked = lock(&self.asked);
        let due = asked.is_none_or(|asked| asked.elapsed() >= ASKED);
        if due {
            *asked = Some(Instant::now());
        }
        due
    }

    /// The own broker told.
    pub(crate) fn set(&self, peers: Vec<PeerEntry>) {
        let peers = peers.iter().filter(|peer| !peer.name.contains('@'));
        let frame = ClientFrame::Roster(peers.map(told).collect());
        let text = frame.encode();
        self.text
            .send_if_modified(|old| std::mem::replace(old, text.clone()) != text);
    }
}

/// What others are told of a peer.
fn told(peer: &PeerEntry) -> PeerEntry {
    let said = peer.presence.as_ref().map_or("{}", Presence::as_str);
    let mut said: Map<String, Value> = serde_json::from_str(said).unwrap_or_default();
    said.retain(|name, value| {
        let short = value.as_str().is_some_and(|it| it.len() <= TEXT_BYTES_MAX);
        short && TOLD.contains(&name.as_str())
    });
    PeerEntry {
        name: peer.name.clone(),
        online: peer.online,
        presence: Presence::parse(&Value::Object(said).to_string()),
        ..PeerEntry::default()
    }
}

/// What another domain told, if it is such a list.
pub(crate) fn read(payload: &[u8]) -> Option<ClientFrame> {
    let frame = ClientFrame::parse(payload);
    matches!(frame, ClientFrame::Roster(_)).then_some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_names_who_is_there_and_little_else() {
        let roster = Roster::default();
        assert!(roster.is_due() && !roster.is_due());
        assert!(read(roster.text.borrow().as_bytes()).is_none());
        let presence = r#"{"client":"claude-code","activity":"idle","pid":7,"project":"secret"}"#;
        let peer = |name: &str| PeerEntry {
            name: name.into(),
            online: true,
            unacked: Some(3),
            presence: Presence::parse(presence),
            ..PeerEntry::default()
        };
        roster.set(vec![peer("bob"), peer("bridge@beta")]);
        let Some(ClientFrame::Roster(told)) = read(roster.text.borrow().as_bytes()) else {
            panic!("{}", *roster.text.borrow());
        };
        let expected = PeerEntry {
            name: "bob".into(),
            online: true,
            presence: Presence::parse(r#"{"activity":"idle","client":"claude-code"}"#),
            ..PeerEntry::default()
        };
        assert_eq!(told, [expected]);
        assert!(read(br#"{"protocol_version":"v1","type":"peers"}"#).is_none());
    }
}
