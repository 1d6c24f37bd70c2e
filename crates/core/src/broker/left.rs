//! Temporary names that were forgotten a moment ago. An answer may be under way to one.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};

use peerbus_wire::{Address, Carried, Conversation, NameKey, Refusal, RefusalCode};

use super::{Broker, Cx};
use crate::store::{PeerId, Result};
use crate::{Now, TokenHash};
use peerbus_wire::body_of;

/// A name is remembered for so long: ids of messages are known for as long at least.
const LEFT_MS: u64 = 600_000;

/// Names of one token that are remembered, the last ones.
const NAMES_MAX: usize = 4_096;

/// Peers of one name and token that are remembered, the last ones.
const PEERS_MAX: usize = 32;

/// Names that temporary peers had.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// By token, too: no other one makes the broker forget a name.
    names: BTreeMap<(NameKey, TokenHash), Former>,
    /// By token, the oldest first. May have names whose time began anew since.
    order: BTreeMap<TokenHash, VecDeque<(u64, NameKey)>>,
}

/// Who had a name, of one token.
#[derive(Debug, Default)]
struct Former {
    peers: VecDeque<PeerId>,
    until_ms: u64,
}

impl Left {
    fn keep(&mut self, key: NameKey, (token, peer): (TokenHash, PeerId), now_ms: u64) {
        self.forget(now_ms);
        let until_ms = now_ms + LEFT_MS;
        let former = self.names.entry((key.clone(), token)).or_default();
        former.until_ms = until_ms;
        former.peers.push_back(peer);
        if former.peers.len() > PEERS_MAX {
            former.peers.pop_front();
        }
        let order = self.order.entry(token).or_default();
        order.push_back((until_ms, key));
        if order.len() > NAMES_MAX
            && let Some((until_ms, key)) = order.pop_front()
        {
            Former::drop_from(&mut self.names, (key, token), until_ms);
        }
    }

    fn forget(&mut self, now_ms: u64) {
        let names = &mut self.names;
        self.order.retain(|token, order| {
            while let Some((until_ms, key)) = order.pop_front_if(|(until, _)| *until <= now_ms) {
                Former::drop_from(names, (key, *token), until_ms);
            }
            !order.is_empty()
        });
    }

    /// Who had this name.
    fn peers(&self, key: &NameKey, now_ms: u64) -> impl Iterator<Item = PeerId> {
        let all = (key.clone(), TokenHash([0; 32]))..=(key.clone(), TokenHash([255; 32]));
        let named = self.names.range(all).map(|(_, former)| former);
        let known = named.filter(move |former| now_ms < former.until_ms);
        known.flat_map(|former| former.peers.iter().copied())
    }
}

impl Former {
    /// Forgets a name, unless its time began anew.
    fn drop_from<K: Ord>(names: &mut BTreeMap<K, Self>, key: K, until_ms: u64) {
        if let Entry::Occupied(former) = names.entry(key)
            && former.get().until_ms == until_ms
        {
            former.remove();
        }
    }
}

impl Broker {
    /// A temporary peer is about to be forgotten.
    pub(super) fn keep_left(&mut self, now: Now, peer: PeerId) {
        if let Some(known) = self.registry.get(peer)
            && known.row.ephemeral
            && let Some(token) = known.row.owner
        {
            let key = known.key.clone();
            self.left.keep(key, (token, peer), now.mono_ms);
        }
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
        let mut former = self.left.peers(&key, cx.now.mono_ms).peekable();
        if former.peek().is_none() {
            return Ok(Ok(()));
        }
        let Some(id) = Conversation::of(body_of(&carried.text)).reply_to else {
            return Ok(Ok(()));
        };
        if cx.txn.find_message(recipient, &id)?.is_some() {
            return Ok(Ok(()));
        }
        for peer in former {
            if peer != recipient && cx.txn.find_message(peer, &id)?.is_some() {
                return Ok(Err(RefusalCode::UnknownRecipient.because(format!(
                        "the peer named {name} that sent {id} has left, and another one has the name now; \
                         nobody waits for this answer"
                    ))));
            }
        }
        Ok(Ok(()))
    }
}
