//! What a store must hold, built from the writes alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peerbus_core::store::{MessageHead, Notice, PeerId, PeerRow};
use peerbus_wire::{MessageId, Seq};

use crate::disk::Write;

/// A message as the store holds it.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) head: MessageHead,
    pub(crate) envelope: Arc<str>,
}

/// One image of the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables {
    pub(crate) peers: BTreeMap<PeerId, PeerRow>,
    /// Lower-case names.
    pub(crate) names: BTreeMap<String, PeerId>,
    pub(crate) messages: BTreeMap<Seq, Message>,
    pub(crate) ids: BTreeMap<(PeerId, MessageId), Seq>,
    pub(crate) debts: BTreeSet<(PeerId, Seq)>,
    pub(crate) notices: BTreeMap<(PeerId, u64), Notice>,
}

impl Tables {
    pub(crate) fn apply(&mut self, write: &Write) {
        match write {
            Write::Peer(row) => {
                self.names.insert(row.name.to_ascii_lowercase(), row.id);
                self.peers.insert(row.id, row.clone());
            }
            Write::PeerGone(id) => {
                if let Some(row) = self.peers.remove(id) {
                    self.names.remove(&row.name.to_ascii_lowercase());
                }
            }
            Write::Message { head, envelope } => {
                self.ids.insert((head.sender, head.id.clone()), head.seq);
                let message = Message {
                    head: head.clone(),
                    envelope: envelope.clone(),
                };
                self.messages.insert(head.seq, message);
            }
            Write::MessagesGone(seqs) => {
                for message in seqs.iter().filter_map(|seq| self.messages.remove(seq)) {
                    self.ids.remove(&(message.head.sender, message.head.id));
                }
            }
            Write::Owed(peer, seq) => {
                self.debts.insert((*peer, *seq));
            }
            Write::Settled(peer, seq) => {
                self.debts.remove(&(*peer, *seq));
            }
            Write::Notice(notice) => {
                self.notices
                    .insert((notice.sender, notice.number), notice.clone());
            }
            Write::NoticeGone(sender, number) => {
                self.notices.remove(&(*sender, *number));
            }
            Write::NoticesAged(before_ms) => {
                self.notices.retain(|_, notice| notice.at_ms >= *before_ms);
            }
            Write::Alias(_) | Write::AliasGone(_) => {}
            Write::Dead(..) | Write::Audit(_) | Write::AuditGone(_) => {}
        }
    }

    pub(crate) fn peer_named(&self, name: &str) -> Option<&PeerRow> {
        self.peers.get(self.names.get(&name.to_ascii_lowercase())?)
    }

    /// What is owed to `peer` after `after` and before `before`.
    pub(crate) fn owed_between(
        &self,
        peer: PeerId,
        after: Seq,
        before: Seq,
    ) -> impl Iterator<Item = Seq> {
        let range = (peer, Seq(after.0 + 1))..(peer, before.max(Seq(after.0 + 1)));
        self.debts.range(range).map(|(_, seq)| *seq)
    }
}
