//! How much mail waits, in bytes of its envelopes: for each recipient, and from each token.
//!
//! The sums commit together with the queue, so they are right after any end of the process, and
//! nothing is counted at the start.

use std::collections::BTreeMap;

use peerbus_wire::{Refusal, RefusalCode};

use super::mutation::BrokerMutation;
use super::{Broker, Caller};
use crate::TokenHash;
use crate::store::{OwedRow, PeerId, Result, Txn};

/// The sums, by peer and by token. Peers that are forgotten stay as long as mail of theirs waits.
#[derive(Debug, Default)]
pub(super) struct Owed {
    rows: BTreeMap<PeerId, OwedRow>,
    by_token: BTreeMap<TokenHash, u64>,
    /// What the transaction under way changed: the rows as they are on disk.
    changed: BTreeMap<PeerId, OwedRow>,
}

impl Owed {
    pub(super) fn new(rows: Vec<OwedRow>) -> Self {
        let mut owed = Self::default();
        for row in rows {
            owed.charge(row.token, row.by);
            owed.rows.insert(row.peer, row);
        }
        owed
    }

    /// Bytes that are owed to a peer.
    pub(super) fn to(&self, peer: PeerId) -> u64 {
        self.rows.get(&peer).map_or(0, |row| row.to)
    }

    /// Bytes that a peer sent and that are owed to anybody.
    fn by_peer(&self, peer: PeerId) -> u64 {
        self.rows.get(&peer).map_or(0, |row| row.by)
    }

    /// Bytes that were sent with a token and are owed to anybody.
    pub(super) fn by(&self, token: &TokenHash) -> u64 {
        self.by_token.get(token).copied().unwrap_or_default()
    }

    /// The token that what a peer sent counts for, while some of it is owed to anybody.
    pub(super) fn token(&self, peer: PeerId) -> Option<TokenHash> {
        self.rows.get(&peer)?.token
    }

    /// A message of so many bytes is owed to a recipient, sent with this token.
    pub(super) fn add(
        &mut self,
        (recipient, sender): (PeerId, PeerId),
        token: TokenHash,
        bytes: u64,
    ) {
        self.change(recipient, |row| row.to += bytes);
        self.change(sender, |row| {
            row.token = Some(token);
            row.by += bytes;
        });
        self.charge(Some(token), bytes);
    }

    /// It is not owed to that recipient any more.
    pub(super) fn subtract(&mut self, (recipient, sender): (PeerId, PeerId), bytes: u64) {
        self.change(recipient, |row| row.to = row.to.saturating_sub(bytes));
        let mut token = None;
        self.change(sender, |row| {
            row.by = row.by.saturating_sub(bytes);
            token = row.token;
        });
        self.discharge(token, bytes);
    }

    /// It is owed to another peer instead.
    pub(super) fn pass(&mut self, from: PeerId, to: PeerId, bytes: u64) {
        self.change(from, |row| row.to = row.to.saturating_sub(bytes));
        self.change(to, |row| row.to += bytes);
    }

    /// All that is owed to one peer is owed to another one instead.
    pub(super) fn pass_all(&mut self, from: PeerId, to: PeerId) {
        self.pass(from, to, self.to(from));
    }

    /// What a name sent counts for the token that has it now.
    pub(super) fn claim(&mut self, peer: PeerId, token: TokenHash) {
        let Some(&OwedRow {
            token: last, by, ..
        }) = self.rows.get(&peer)
        else {
            return;
        };
        if by > 0 && last != Some(token) {
            self.change(peer, |row| row.token = Some(token));
            self.discharge(last, by);
            self.charge(Some(token), by);
        }
    }

    /// Writes what the transaction changed.
    pub(super) fn write(&mut self, txn: &mut dyn Txn) -> Result {
        for (peer, before) in std::mem::take(&mut self.changed) {
            let row = self.rows.get(&peer).copied();
            let row = row.unwrap_or(OwedRow::none(peer));
            if row != before {
                txn.put_owed(&row)?;
            }
        }
        Ok(())
    }

    fn change(&mut self, peer: PeerId, change: impl FnOnce(&mut OwedRow)) {
        let row = self.rows.entry(peer).or_insert(OwedRow::none(peer));
        self.changed.entry(peer).or_insert(*row);
        change(row);
        if row.by == 0 {
            row.token = None;
        }
        if *row == OwedRow::none(peer) {
            self.rows.remove(&peer);
        }
    }

    fn charge(&mut self, token: Option<TokenHash>, bytes: u64) {
        if let Some(token) = token
            && bytes > 0
        {
            *self.by_token.entry(token).or_default() += bytes;
        }
    }

    fn discharge(&mut self, token: Option<TokenHash>, bytes: u64) {
        if let Some(token) = token
            && let Some(sum) = self.by_token.get_mut(&token)
        {
            *sum = sum.saturating_sub(bytes);
            if *sum == 0 {
                self.by_token.remove(&token);
            }
        }
    }

    /// Whether what counts by token adds up, and nothing is kept of nothing.
    pub(super) fn adds_up(&self) -> bool {
        let mut sums = BTreeMap::new();
        for row in self.rows.values() {
            if let Some(token) = row.token {
                *sums.entry(token).or_default() += row.by;
            }
            if row.to + row.by == 0 {
                return false;
            }
        }
        sums == self.by_token
    }
}

impl Broker {
    /// Whether a peer may be owed so many bytes more.
    pub(super) fn has_byte_room(&self, peer: PeerId, bytes: u64) -> bool {
        self.owed.to(peer) + bytes <= self.config.owed_to_max
    }

    /// Refuses what would take more than the sender's token may have waiting, each copy counted. All
    /// bridges may have one token: what comes from a domain counts for that domain alone.
    pub(super) fn check_quota(
        &self,
        caller: Caller,
        bytes: u64,
        recipients: &[PeerId],
    ) -> Result<(), Refusal> {
        let session = self.conns.session(caller.conn);
        let own = session.and_then(|session| session.grant.quotas.bytes);
        let max = own.unwrap_or(self.config.owed_by_max);
        let (waits, sent) = match session.and_then(|session| session.bridge.as_ref()) {
            Some(_) => (self.owed.by_peer(caller.peer), "came from this domain"),
            None => (self.owed.by(&caller.token), "were sent with this token"),
        };
        let more = bytes * recipients.len() as u64;
        if more == 0 || waits + more <= max {
            return Ok(());
        }
        Err(RefusalCode::Quota.because(format!(
            "{waits} bytes that {sent} wait to be read, this would be {more} \
                 more, and {max} may wait; send again when some of it was read"
        )))
    }

    /// A delivery has ended.
    pub(super) fn not_owed(&mut self, pair: (PeerId, PeerId), bytes: u64) {
        if !self.mutations.broken(BrokerMutation::ForgetOwed) {
            self.owed.subtract(pair, bytes);
        }
    }
}
