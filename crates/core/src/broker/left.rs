//! Temporary names that were forgotten a moment ago. An answer may be under way to one.

use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::{Address, Carried, Conversation, NameKey, Refusal, RefusalCode};

use super::{Broker, Cx};
use crate::peer::body_of;
use crate::store::{PeerId, StoreError};
use crate::{Now, TokenHash};

/// A name is remembered for so long: ids of messages are known for as long at least.
const LEFT_MS: u64 = 600_000;

/// Names of one token that are remembered, the last ones.
const NAMES_MAX: usize = 4_096;

/// Peers of one name that are remembered, the last ones.
const PEERS_MAX: usize = 8;

/// Names that temporary peers had.
#[derive(Debug, Default)]
pub(super) struct Left {
    names: BTreeMap<NameKey, Former>,
    /// By token, the oldest first. May have names whose time began anew since.
    order: BTreeMap<TokenHash, VecDeque<(u64, NameKey)>>,
}

/// Who had a name.
#[derive(Debug, Default)]
struct Former {
    peers: VecDeque<PeerId>,
    until_ms: u64,
}

impl Left {
    fn keep(&mut self, key: NameKey, (token, peer): (TokenHash, PeerId), now_ms: u64) {
        self.forget(now_ms);
        let until_ms = now_ms + LEFT_MS;
        let former = self.names.entry(key.clone()).or_default();
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
            Self::drop_name(&mut self.names, until_ms, &key);
        }
    }

    fn forget(&mut self, now_ms: u64) {
        let names = &mut self.names;
        self.order.retain(|_, order| {
            while let Some((until_ms, key)) = order.front()
                && *until_ms <= now_ms
            {
                Self::drop_name(names, *until_ms, key);
                order.pop_front();
            }
            !order.is_empty()
        });
    }

    fn drop_name(names: &mut BTreeMap<NameKey, Former>, until_ms: u64, key: &NameKey) {
        if names.get(key).is_some_and(|it| it.until_ms == until_ms) {
            names.remove(key);
        }
    }

    fn get(&self, key: &NameKey, now_ms: u64) -> Option<&Former> {
        let former = self.names.get(key);
        former.filter(|former| now_ms < former.until_ms)
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
    ) -> Result<Result<(), Refusal>, StoreError> {
        let Address::Peer(name) = &carried.to else {
            return Ok(Ok(()));
        };
        if self.left.names.is_empty() {
            return Ok(Ok(()));
        }
        // Where this is another domain's, its bridge is the recipient, and nobody left under that name.
        let known = self
            .registry
            .get(recipient)
            .filter(|_| name.address().is_some());
        let key = known.map_or_else(|| name.key(), |known| known.key.clone());
        let Some(former) = self.left.get(&key, cx.now.mono_ms) else {
            return Ok(Ok(()));
        };
        let Some(id) = Conversation::of(body_of(&carried.text)).reply_to else {
            return Ok(Ok(()));
        };
        if cx.txn.find_message(recipient, &id)?.is_some() {
            return Ok(Ok(()));
        }
        for peer in &former.peers {
            if *peer != recipient && cx.txn.find_message(*peer, &id)?.is_some() {
                return Ok(Err(Refusal {
                    code: RefusalCode::UnknownRecipient,
                    reason: format!(
                        "the peer named {name} that sent {id} has left, and another one has the name now; \
                         nobody waits for this answer"
                    ),
                }));
            }
        }
        Ok(Ok(()))
    }
}
