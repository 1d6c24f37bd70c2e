//! A peer: it sends until it has its receipts, and says of what it gets what becomes of it.

use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::{
    Carried, Conversation, Decoded, Envelope, How, PROTOCOL_VERSION, Register, Stage, Token,
};

use super::home::TOKENS;
use super::oracle::Key;
use crate::rng::Rng;

/// One peer of one domain.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) home: usize,
    pub(super) name: String,
    pub(super) conn: Option<u64>,
    pub(super) greeted: bool,
    /// It has left for a while.
    pub(super) away: bool,
    /// How many processes had its name before this one.
    pub(super) process: u32,
    /// It is going to send again what has no receipt.
    pub(super) resends: bool,
    /// What has no receipt, in order.
    pub(super) outbox: VecDeque<(Key, Carried)>,
    /// What it says of each message at the end, the same each time.
    verdicts: BTreeMap<Key, Stage>,
}

impl Peer {
    pub(super) fn new(home: usize, name: String) -> Self {
        Self {
            home,
            name,
            conn: None,
            greeted: false,
            away: false,
            process: 0,
            resends: false,
            outbox: VecDeque::new(),
            verdicts: BTreeMap::new(),
        }
    }

    /// What it says of a message in the end.
    pub(super) fn verdict(&mut self, key: &Key, rng: &mut Rng) -> Stage {
        let known = self.verdicts.entry(key.clone());
        let path = || "channel".to_owned();
        let drawn = known.or_insert_with(|| match rng.range(0, 9) {
            0 => Stage::Dead {
                why: "its user does not want it".into(),
            },
            1 | 2 => Stage::Acked(None),
            3 | 4 => Stage::Acked(Some(How::Pushed { path: path() })),
            _ => Stage::Acked(Some(How::Seen {
                path: path(),
                evidence: "transcript".into(),
            })),
        });
        drawn.clone()
    }
}

/// A registration of a process.
pub(super) fn register(name: &str, process: u32, token: usize) -> Register {
    Register {
        protocol_version: PROTOCOL_VERSION.into(),
        token: Token::parse(TOKENS[token]),
        name: name.into(),
        renaming: None,
        ext: 1,
        instance: peerbus_wire::Instance::parse(&format!("process-{process}-of-{name}")),
        ephemeral: false,
        generated: false,
        window: None,
        presence: None,
        bridge: None,
    }
}

/// A message as it is carried.
pub(super) fn letter(from: &str, to: &str, id: &str, body: &str) -> Option<Carried> {
    let envelope = Envelope {
        protocol_version: PROTOCOL_VERSION.into(),
        id: id.into(),
        from: from.into(),
        to: to.into(),
        ts: "2026-05-18T12:00:00Z".into(),
        source: "peer-bus".into(),
        kind: "msg".into(),
        body: body.as_bytes().to_vec(),
        hmac: "0".repeat(64),
    };
    let irregular = None;
    let decoded = Decoded {
        envelope,
        irregular,
    };
    let mut carried = decoded.carry().ok()?;
    carried.within_ms = Conversation::of(body).within_ms;
    Some(carried)
}
