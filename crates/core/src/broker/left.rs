//! Temporary names that were forgotten a moment ago. An answer may be under way to one.
//!
//! Their rows stay as long, so that a broker that starts again knows them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerbus_wire::{Address, Carried, Conversation, NameKey, PeerName, Refusal, RefusalCode};

use super::{Broker, CommitNeed, Cx};
use crate::TokenHash;
use crate::store::{PeerId, PeerRow, Result};
use peerbus_wire::body_of;

/// A name is remembered for so long: ids of messages are known for as long at least.
const LEFT_MS: u64 = 600_000;

/// Peers of one token that are remembered, the last ones.
const PEERS_MAX: usize = 4_096;

/// The same of one name and token.
const NAMESAKES_MAX: usize = 32;

/// Peers that had a temporary name.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// By token, too: no other one makes the broker forget a name.
    names: BTreeSet<(NameKey, TokenHash, PeerId)>,
    /// By token, the oldest first, with the end of their time (steady). May have peers that gave way to
    /// namesakes.
    order: BTreeMap<TokenHash, VecDeque<(u64, NameKey, PeerId)>>,
}

impl Left {
    /// Takes the rows of names that have ended.
    pub(super) fn new<'a>(ended: impl Iterator<Item = &'a PeerRow>) -> Self {
        let mut left = Self::default();
        let mut ended: Vec<_> = ended.collect();
        ended.sort_by_key(|row| row.last_seen.steady_ms);
        for row in ended {
            left.keep(row);
        }
        left
    }

    /// Remembers who had a name, if that was temporary. Gives those that it does not remember, or no
    /// longer.
    fn keep(&mut self, row: &PeerRow) -> Vec<PeerId> {
        let Some((key, token)) = key_of(row) else {
            return vec![row.id];
        };
        self.names.insert((key.clone(), token, row.id));
        let namesakes = self.range((&key, token), (&key, token));
        let oldest = namesakes.cloned().collect::<Vec<_>>();
        let surplus = oldest.len().saturating_sub(NAMESAKES_MAX);
        let mut gone: Vec<_> = oldest.into_iter().take(surplus).collect();
        let order = self.order.entry(token).or_default();
        order.push_back((row.last_seen.steady_ms + LEFT_MS, key, row.id));
        if order.len() > PEERS_MAX
            && let Some((_, key, peer)) = order.pop_front()
        {
            gone.push((key, token, peer));
        }
        gone.retain(|it| self.names.remove(it));
        gone.into_iter().map(|(_, _, peer)| peer).collect()
    }

    /// Forgets those whose time is over, and gives them.
    fn forget(&mut self, steady_ms: u64) -> Vec<PeerId> {
        let (names, mut gone) = (&mut self.names, Vec::new());
        self.order.retain(|token, order| {
            while let Some((_, key, peer)) = order.pop_front_if(|(until, ..)| *until <= steady_ms) {
                if names.remove(&(key, *token, peer)) {
                    gone.push(peer);
                }
            }
            !order.is_empty()
        });
        gone
    }

    /// Whether the row of a name that has ended is to stay.
    pub(super) fn has(&self, row: &PeerRow) -> bool {
        key_of(row).is_some_and(|(key, token)| self.names.contains(&(key, token, row.id)))
    }

    /// Who had this name.
    fn peers(&self, key: &NameKey) -> impl Iterator<Item = (TokenHash, PeerId)> {
        let all = self.range((key, TokenHash([0; 32])), (key, TokenHash([255; 32])));
        all.map(|(_, token, peer)| (*token, *peer))
    }

    fn range(
        &self,
        (first, from): (&NameKey, TokenHash),
        (last, to): (&NameKey, TokenHash),
    ) -> impl Iterator<Item = &(NameKey, TokenHash, PeerId)> {
        let from = (first.clone(), from, PeerId(0));
        self.names
            .range(from..=(last.clone(), to, PeerId(u32::MAX)))
    }
}

/// Under what a row is remembered, if its name was temporary and of a token.
fn key_of(row: &PeerRow) -> Option<(NameKey, TokenHash)> {
    let name = PeerName::parse(&row.name).ok().filter(|_| row.ephemeral)?;
    Some((name.key(), row.owner?))
}

impl Broker {
    /// A name has ended: its row stays while it has mail or, if it was temporary, an answer may be under
    /// way.
    pub(super) fn keep_left(&mut self, cx: &mut Cx<'_>, row: &PeerRow) -> Result {
        let gone = self.left.keep(row);
        if self.left.has(row) || self.registry.ended.contains_key(&row.id) {
            cx.txn.put_peer(row)?;
        }
        self.drop_rows(cx, gone)
    }

    /// Forgets temporary names whose time is over.
    pub(super) fn forget_left(&mut self, cx: &mut Cx<'_>) -> Result {
        let gone = self.left.forget(cx.at.steady_ms);
        self.drop_rows(cx, gone)
    }

    fn drop_rows(&mut self, cx: &mut Cx<'_>, peers: Vec<PeerId>) -> Result {
        for peer in peers {
            // Those that have mail go with it.
            if !self.registry.ended.contains_key(&peer) {
                cx.txn.delete_peer(peer)?;
                self.outbox.want(CommitNeed::Soon);
            }
        }
        Ok(())
    }

    /// Refuses an answer to who had the recipient's name before.
    pub(super) fn check_answer(
        &self,
        cx: &mut Cx<'_>,
        carried: &Carried,
        recipient: PeerId,
    ) -> Result<Result<(), Refusal>> {
        let Address::Peer(name) = &carried.to else {
            return Ok(Ok(()));
        };
        // What goes to another domain is its bridge's, and nobody left under that name.
        if self.left.names.is_empty() || self.is_bridge(recipient) {
            return Ok(Ok(()));
        }
        let key = name
            .address()
            .map_or_else(|| name.key(), |(name, _)| name.key());
        let mut former = self.left.peers(&key).peekable();
        if former.peek().is_none() {
            return Ok(Ok(()));
        }
        let Some(id) = Conversation::of(body_of(&carried.text)).reply_to else {
            return Ok(Ok(()));
        };
        let sent = cx.txn.find_message(recipient, &id)?;
        let owner = self
            .registry
            .get(recipient)
            .and_then(|known| known.row.owner);
        for (token, peer) in former {
            // Another token may say again what it saw, or wait until the message is forgotten; one's own
            // command says it again in vain.
            let others = owner != Some(token);
            let is_its = match (&sent, cx.txn.find_message(peer, &id)?) {
                (Some(own), Some(head)) => others && head.seq < own.seq,
                (Some(_), None) => false,
                (None, head) => others || head.is_some(),
            };
            if peer != recipient && is_its {
                return Ok(Err(RefusalCode::UnknownRecipient.because(format!(
                        "the peer named {name} that {id} answers has left, and another one has the name now; \
                         nobody waits for this answer"
                    ))));
            }
        }
        Ok(Ok(()))
    }
}
