//! How much may wait, as the model has it.

use peerbus_core::TokenHash;
use peerbus_core::store::PeerId;
use peerbus_wire::{Carried, Conversation, Seq};

use super::Oracle;

/// Messages that may be owed to an ephemeral peer.
const EPHEMERAL_QUEUE_MAX: u64 = 4_096;

/// Of what may be owed to a peer the part that is kept for answers.
const KEPT: u64 = 8;

impl Oracle {
    /// Bytes that wait and were sent with the token of this sender.
    pub(super) fn sent_like(&self, sender: PeerId) -> u64 {
        let token = self.view.tokens.get(&sender);
        let sums = self.view.sums().into_values();
        sums.filter(|row| row.token.as_ref() == token)
            .map(|row| row.by)
            .sum()
    }

    pub(super) fn with_room(
        &self,
        mut peers: Vec<PeerId>,
        sender: PeerId,
        bytes: u64,
    ) -> Vec<PeerId> {
        let token = self.view.tokens.get(&sender);
        peers.retain(|peer| !self.is_full(*peer, token, bytes));
        peers
    }

    /// Whether a message for one peer fits. What answers one of its own, which is known, takes what is
    /// kept, too.
    pub(super) fn has_room(&self, peer: PeerId, sender: PeerId, carried: &Carried) -> bool {
        let body = carried.text.split_once(r#"","body":"#);
        let body = body.and_then(|(_, rest)| rest.rsplit_once(r#","hmac":""#));
        let question = body.and_then(|(body, _)| Conversation::of(body).reply_to);
        let answers = question.is_some_and(|id| self.view.ids.contains_key(&(peer, id)));
        let (token, bytes) = (self.view.tokens.get(&sender), carried.text.len() as u64);
        match answers {
            true => !self.exceeds(peer, token, bytes, |max| max),
            false => !self.is_full(peer, token, bytes),
        }
    }

    /// Whether a queue has no room for so many bytes of a token's mail that answers nothing.
    pub(super) fn is_full(&self, peer: PeerId, token: Option<&TokenHash>, bytes: u64) -> bool {
        self.exceeds(peer, token, bytes, |max| max - max / KEPT)
    }

    /// Whether so many bytes more are above what may be owed to a peer, or above half of it for one
    /// token.
    fn exceeds(
        &self,
        peer: PeerId,
        token: Option<&TokenHash>,
        bytes: u64,
        part: fn(u64) -> u64,
    ) -> bool {
        let ephemeral = self.view.peers.get(&peer).is_some_and(|row| row.ephemeral);
        let max = match ephemeral {
            true => EPHEMERAL_QUEUE_MAX,
            false => self.rules.queue_max,
        };
        let max = (part(max), part(self.rules.owed_to_max));
        let all = self.view.owed_between(peer, Seq(0), Seq(u64::MAX));
        let (mut waits, mut own) = ((0, bytes), (0, bytes));
        for message in all.filter_map(|seq| self.view.messages.get(&seq)) {
            let more = message.envelope.len() as u64;
            waits = (waits.0 + 1, waits.1 + more);
            if self.view.tokens.get(&message.head.sender) == token {
                own = (own.0 + 1, own.1 + more);
            }
        }
        let above = |waits: (u64, u64), max: (u64, u64)| waits.0 >= max.0 || waits.1 > max.1;
        above(waits, max) || above(own, (max.0.div_ceil(2), max.1.div_ceil(2)))
    }
}
