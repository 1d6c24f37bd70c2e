//! How much mail waits, in bytes of its envelopes: for each recipient, and from each token.
//!
//! The sums commit together with the queue, so they are right after any end of the process, and
//! nothing is counted at the start. Shares of what one peer is owed are in memory only, and counted
//! when somebody wants to know.

use std::collections::BTreeMap;

use peerbus_wire::{Refusal, RefusalCode};

use super::mutation::BrokerMutation;
use super::{Broker, Caller, Cx};
use crate::TokenHash;
use crate::store::{OwedRow, PeerId, Result, Txn};

/// Messages that peers of one token hand over to successors within [`HANDED_MS`] when they end their
/// own names: those of a name go in one transaction, behind which everybody waits.
pub(super) const HANDED_MAX: u64 = 4_096;
const HANDED_MS: u64 = 60_000;

/// What peers of each token handed over, and since when that counts (monotonic).
#[derive(Debug, Default)]
pub(super) struct Handed(BTreeMap<TokenHash, (u64, u64)>);

impl Handed {
    /// Whether so many more may go now.
    pub(super) fn take(&mut self, now_ms: u64, token: TokenHash, messages: u64) -> bool {
        self.0
            .retain(|_, (since_ms, _)| now_ms < *since_ms + HANDED_MS);
        let (_, handed) = self.0.entry(token).or_insert((now_ms, 0));
        let fits = *handed + messages <= HANDED_MAX;
        *handed += if fits { messages } else { 0 };
        fits
    }
}

/// Who shares what may be owed to one peer with others: a token with all its names, or another domain,
/// whatever token its bridge has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    Token(Option<TokenHash>),
    Domain(PeerId),
}

/// So much waits, or may wait.
#[derive(Debug, Clone, Copy, Default)]
struct Waits {
    messages: u64,
    bytes: u64,
}

impl Waits {
    fn add(&mut self, more: Self) {
        self.messages += more.messages;
        self.bytes += more.bytes;
    }

    /// Why so many bytes more do not fit, of what waits as `of` says.
    fn full(self, of: &str, bytes: u64, max: Self) -> Option<String> {
        if self.messages >= max.messages {
            return Some(format!("{} messages{of}", max.messages));
        }
        (self.bytes + bytes > max.bytes).then(|| {
            format!(
                "{} bytes{of} wait, this has {bytes}, and {} fit",
                self.bytes, max.bytes
            )
        })
    }
}

/// The sums, by peer and by token. Peers that are forgotten stay as long as mail of theirs waits.
#[derive(Debug, Default)]
pub(super) struct Owed {
    rows: BTreeMap<PeerId, OwedRow>,
    by_token: BTreeMap<TokenHash, u64>,
    /// Of each peer's mail, where that is known.
    parts: BTreeMap<PeerId, BTreeMap<Party, Waits>>,
    /// What went to successors of late.
    pub(super) handed: Handed,
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

    /// A message of so many bytes of a party's is owed to a recipient, sent with this token.
    pub(super) fn add(
        &mut self,
        (recipient, sender): (PeerId, PeerId),
        (party, token): (Option<Party>, TokenHash),
        bytes: u64,
    ) {
        self.enter(recipient, party, Waits { messages: 1, bytes });
        self.change(sender, |row| {
            row.token = Some(token);
            row.by += bytes;
        });
        self.charge(Some(token), bytes);
    }

    /// It is not owed to that recipient any more.
    pub(super) fn subtract(
        &mut self,
        (recipient, sender): (PeerId, PeerId),
        party: Option<Party>,
        bytes: u64,
    ) {
        self.leave(recipient, party, bytes);
        let mut token = None;
        self.change(sender, |row| {
            row.by = row.by.saturating_sub(bytes);
            token = row.token;
        });
        self.discharge(token, bytes);
    }

    /// It is owed to another peer instead.
    pub(super) fn pass(&mut self, (from, to): (PeerId, PeerId), party: Party, bytes: u64) {
        self.leave(from, Some(party), bytes);
        self.enter(to, Some(party), Waits { messages: 1, bytes });
    }

    /// All that is owed to one peer is owed to another one instead.
    pub(super) fn pass_all(&mut self, from: PeerId, to: PeerId) {
        let bytes = self.to(from);
        if bytes == 0 {
            return;
        }
        self.change(from, |row| row.to = 0);
        let parts = self.parts.remove(&from);
        if parts.is_none() {
            self.change(to, |row| row.to += bytes);
            self.parts.remove(&to);
        }
        for (party, waits) in parts.into_iter().flatten() {
            self.enter(to, Some(party), waits);
        }
    }

    /// Whether shares of what this peer is owed are known: they are counted when it is much.
    pub(super) fn has_parts(&self, recipient: PeerId) -> bool {
        self.parts.contains_key(&recipient)
    }

    /// More waits for a recipient; a party where its shares are known.
    fn enter(&mut self, recipient: PeerId, party: Option<Party>, more: Waits) {
        self.change(recipient, |row| row.to += more.bytes);
        if let Some(party) = party
            && let Some(parts) = self.parts.get_mut(&recipient)
        {
            parts.entry(party).or_default().add(more);
        }
    }

    /// A message waits no more.
    fn leave(&mut self, recipient: PeerId, party: Option<Party>, bytes: u64) {
        self.change(recipient, |row| row.to = row.to.saturating_sub(bytes));
        let Some(party) = party else { return };
        let left = self.to(recipient);
        let parts = self.parts.get_mut(&recipient);
        let part = parts.and_then(|parts| parts.get_mut(&party));
        match part.filter(|part| part.messages > 0 && part.bytes >= bytes) {
            Some(part) if left > 0 => {
                part.messages -= 1;
                part.bytes -= bytes;
            }
            // It is empty, or a bridge sent it whose name is forgotten: then it is counted anew.
            _ => {
                self.parts.remove(&recipient);
            }
        }
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
            // It has a part of its recipients' mail, whoever they are.
            self.parts.clear();
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
        let bytes = |of: &BTreeMap<_, Waits>| of.values().map(|waits| waits.bytes).sum::<u64>();
        let mut parts = self.parts.iter();
        sums == self.by_token && parts.all(|(peer, of)| bytes(of) == self.to(*peer))
    }
}

impl Broker {
    /// Whose share it is that a sender's mail takes of what its recipients may be owed.
    pub(super) fn party(&self, sender: PeerId) -> Party {
        if self.is_bridge(sender) || self.registry.was_bridge(sender) {
            return Party::Domain(sender);
        }
        let owner = || self.registry.get(sender)?.row.owner;
        Party::Token(self.owed.token(sender).or_else(owner))
    }

    /// Why a peer may not be owed so many bytes more of this sender's, if it may not. One party has at most
    /// half of what it may be owed, and an eighth of all is for answers.
    pub(super) fn full_for(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        (sender, bytes): (PeerId, u64),
        answer: bool,
    ) -> Result<Option<String>> {
        let part = |max: u64| if answer { max } else { max - max / 8 };
        let all = Waits {
            messages: part(self.queue_max(peer)),
            bytes: part(self.config.owed_to_max),
        };
        let half = Waits {
            messages: all.messages.div_ceil(2),
            bytes: all.bytes.div_ceil(2),
        };
        let waits = Waits {
            messages: self.pending(cx, peer)?,
            bytes: self.owed.to(peer),
        };
        if let Some(full) = waits.full("", bytes, all) {
            return Ok(Some(full));
        }
        let none_has_more = waits.full("", bytes, half).is_none();
        if none_has_more || self.mutations.broken(BrokerMutation::FillQueue) {
            return Ok(None);
        }
        if !self.owed.parts.contains_key(&peer) {
            let mut parts = BTreeMap::<_, Waits>::new();
            for (sender, messages, bytes) in cx.txn.queue_sums(peer)? {
                let part = parts.entry(self.party(sender)).or_default();
                part.add(Waits { messages, bytes });
            }
            self.owed.parts.insert(peer, parts);
        }
        let party = self.party(sender);
        let parts = self.owed.parts.get(&peer);
        let part = parts.and_then(|parts| parts.get(&party));
        let of = match party {
            Party::Token(_) => " that were sent with this token",
            Party::Domain(_) => " that came from this domain",
        };
        Ok(part.copied().unwrap_or_default().full(of, bytes, half))
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
        let (waits, sent) = match self.party(caller.peer) {
            Party::Domain(bridge) => (self.owed.by_peer(bridge), "came from this domain"),
            Party::Token(_) => (self.owed.by(&caller.token), "were sent with this token"),
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
            let known = self.owed.has_parts(pair.0);
            let party = known.then(|| self.party(pair.1));
            self.owed.subtract(pair, party, bytes);
        }
    }
}
