//! What a store must hold, built from the writes alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peerbus_core::TokenHash;
use peerbus_core::store::{
    AliasRow, Fate, LeaseRow, MessageHead, Notice, OwedRow, PeerId, PeerKind, PeerRow,
};
use peerbus_wire::{EnvelopeHash, MessageId, Seq};

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
    /// Old names, by their lower case: as they were spelled, and to whom they lead.
    pub(crate) aliases: BTreeMap<String, AliasRow>,
    pub(crate) messages: BTreeMap<Seq, Message>,
    pub(crate) ids: BTreeMap<(PeerId, MessageId), Seq>,
    pub(crate) debts: BTreeSet<(PeerId, Seq)>,
    /// Who has what is for one member of a group.
    pub(crate) leases: BTreeMap<Seq, LeaseRow>,
    /// What was a lease, ever.
    pub(crate) leased: BTreeSet<Seq>,
    pub(crate) notices: BTreeMap<(PeerId, u64), Notice>,
    /// The token of each peer's last owner.
    pub(crate) tokens: BTreeMap<PeerId, TokenHash>,
    /// No world lasts so long that one is forgotten.
    pub(crate) fates: BTreeMap<Seq, Vec<Fate>>,
}

impl Tables {
    pub(crate) fn apply(&mut self, write: &Write) {
        match write {
            Write::Peer(row) => {
                if let Some(owner) = row.owner {
                    self.tokens.insert(row.id, owner);
                }
                self.names.retain(|_, peer| *peer != row.id);
                if row.kind == PeerKind::Peer {
                    self.names.insert(row.name.to_ascii_lowercase(), row.id);
                }
                self.peers.insert(row.id, row.clone());
            }
            Write::PeerGone(id) => {
                self.peers.remove(id);
                self.names.retain(|_, peer| peer != id);
            }
            Write::Message { head, envelope } => {
                self.ids.insert((head.sender, head.id.clone()), head.seq);
                let message = Message {
                    head: head.clone(),
                    envelope: envelope.clone(),
                };
                self.messages.insert(head.seq, message);
            }
            Write::TextGone(seq) => {
                if let Some(message) = self.messages.get_mut(seq) {
                    message.head.bytes = EnvelopeHash::LETTERS as u64;
                }
            }
            Write::MessagesGone(seqs) => {
                for message in seqs.iter().filter_map(|seq| self.messages.remove(seq)) {
                    self.ids.remove(&(message.head.sender, message.head.id));
                }
            }
            Write::Owed(peer, seq, _) => {
                self.debts.insert((*peer, *seq));
            }
            Write::Settled(peer, seq) => {
                self.debts.remove(&(*peer, *seq));
            }
            Write::Fate(fate) => {
                self.fates.entry(fate.seq).or_default().push(fate.clone());
            }
            Write::Notice(notice) => {
                self.notices
                    .insert((notice.sender, notice.number), notice.clone());
            }
            Write::NoticeGone(sender, number) => {
                self.notices.remove(&(*sender, *number));
            }
            Write::NoticesAged(before_ms, before) => {
                self.notices.retain(|_, notice| {
                    notice.at.steady_ms >= *before_ms && notice.number >= *before
                });
            }
            Write::Alias(row) => {
                self.aliases
                    .insert(row.name.to_ascii_lowercase(), row.clone());
            }
            Write::AliasGone(name) => {
                self.aliases.remove(&name.to_ascii_lowercase());
            }
            Write::Lease(row) => {
                self.leased.insert(row.head.seq);
                self.leases.insert(row.head.seq, row.clone());
            }
            Write::LeaseGone(seq) => {
                self.leases.remove(seq);
            }
            Write::Dead(..) | Write::Audit(_) | Write::AuditGone(_) => {}
        }
    }

    /// To whom mail for a name is owed.
    pub(crate) fn resolve(&self, name: &str) -> Option<PeerId> {
        let name = name.to_ascii_lowercase();
        let alias = || self.aliases.get(&name).map(|row| row.peer);
        self.names.get(&name).copied().or_else(alias)
    }

    /// Whether `from` is a name that `peer` itself had, spelled as it was.
    pub(crate) fn was_called(&self, peer: Option<PeerId>, from: &str) -> bool {
        let alias = self.aliases.get(&from.to_ascii_lowercase());
        alias.is_some_and(|row| row.own && row.name == from && Some(row.peer) == peer)
    }

    /// How much mail waits, for and from each peer, as the queues have it.
    pub(crate) fn sums(&self) -> BTreeMap<PeerId, OwedRow> {
        let mut sums = BTreeMap::new();
        for (recipient, seq) in &self.debts {
            if let Some(message) = self.messages.get(seq) {
                let (sender, bytes) = (message.head.sender, message.envelope.len() as u64);
                let row = |peer| OwedRow::none(peer);
                sums.entry(*recipient).or_insert_with(|| row(*recipient)).to += bytes;
                let by = sums.entry(sender).or_insert_with(|| row(sender));
                by.by += bytes;
                by.token = self.tokens.get(&sender).copied();
            }
        }
        sums
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
