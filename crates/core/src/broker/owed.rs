//! How much mail waits, in bytes of its envelopes: for each recipient, and from each token.
//!
//! The sums commit together with the queue, so they are right after any end of the process, and
//! nothing is counted at the start. Of what is owed to one peer the shares of tokens are counted when it
//! is much, and kept while any of it waits.

use std::collections::BTreeMap;

use peerbus_wire::{Carried, Refusal, RefusalCode};

use super::mutation::BrokerMutation;
use super::{Broker, BusEvent, Caller, Cx};
use crate::grant::is_of_gateway;
use crate::store::{OwedRow, PeerId, Result, Txn};
use crate::{Now, TokenHash};

/// Messages that peers of one token hand over to successors within [`HANDED_MS`] when they end their
/// own names: those of a name go in one transaction, behind which everybody waits.
pub(super) const HANDED_MAX: u64 = 4_096;
const HANDED_MS: u64 = 60_000;

/// How much waits, or may wait: messages and bytes.
type Waits = [u64; 2];

/// Why so many bytes more do not fit, of what waits as `of` says.
fn full([messages, bytes]: Waits, of: &str, more: u64, [most, max]: Waits) -> Option<String> {
    if messages >= most {
        return Some(format!("{most} messages{of}"));
    }
    (bytes + more > max).then(|| format!("{bytes} bytes{of} wait, this has {more}, and {max} fit"))
}

/// Of what is owed to one peer what was sent with each token.
type Shares = BTreeMap<Option<TokenHash>, Waits>;

fn change(
    shares: &mut Shares,
    token: Option<TokenHash>,
    by: impl Fn(u64, u64) -> u64,
    other: Waits,
) {
    let share = shares.entry(token).or_default();
    *share = [by(share[0], other[0]), by(share[1], other[1])];
}

/// The sums, by peer and by token. Peers that are forgotten stay as long as mail of theirs waits.
#[derive(Debug, Default)]
pub(super) struct Owed {
    rows: BTreeMap<PeerId, OwedRow>,
    by_token: BTreeMap<TokenHash, u64>,
    /// By recipient, where they were counted.
    pub(super) shares: BTreeMap<PeerId, Shares>,
    /// Since when (monotonic) peers of a token handed over so many messages.
    handed: BTreeMap<TokenHash, (u64, u64)>,
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
        self.count(recipient, Some(token), u64::saturating_add, bytes);
        self.change(sender, |row| {
            row.token = Some(token);
            row.by += bytes;
        });
        self.charge(Some(token), bytes);
    }

    /// It is not owed to that recipient any more.
    pub(super) fn subtract(&mut self, (recipient, sender): (PeerId, PeerId), bytes: u64) {
        let mut token = None;
        self.change(sender, |row| {
            row.by = row.by.saturating_sub(bytes);
            token = row.token;
        });
        self.count(recipient, token, u64::saturating_sub, bytes);
        self.discharge(token, bytes);
    }

    /// It is owed to another peer instead.
    pub(super) fn pass(&mut self, (from, to): (PeerId, PeerId), sender: PeerId, bytes: u64) {
        let token = self.token(sender);
        self.count(from, token, u64::saturating_sub, bytes);
        self.count(to, token, u64::saturating_add, bytes);
    }

    /// All that is owed to one peer is owed to another one instead.
    pub(super) fn pass_all(&mut self, from: PeerId, to: PeerId) {
        let bytes = self.to(from);
        let moved = self.shares.remove(&from).unwrap_or_default();
        if let Some(shares) = self.shares.get_mut(&to) {
            for (token, more) in moved {
                change(shares, token, u64::saturating_add, more);
            }
        }
        self.change(from, |row| row.to = 0);
        self.change(to, |row| row.to += bytes);
    }

    /// A message comes to what is owed to a peer, or goes.
    fn count(
        &mut self,
        recipient: PeerId,
        token: Option<TokenHash>,
        by: impl Fn(u64, u64) -> u64,
        bytes: u64,
    ) {
        self.change(recipient, |row| row.to = by(row.to, bytes));
        if let Some(shares) = self.shares.get_mut(&recipient) {
            change(shares, token, by, [1, bytes]);
            if self.to(recipient) == 0 {
                self.shares.remove(&recipient);
            }
        }
    }

    /// Whether peers of a token may hand over so many messages more now: then they count.
    pub(super) fn hand_over(&mut self, now_ms: u64, token: TokenHash, messages: u64) -> bool {
        let recent = |since_ms: u64| now_ms < since_ms + HANDED_MS;
        self.handed.retain(|_, (since_ms, _)| recent(*since_ms));
        let (since_ms, handed) = self.handed.get(&token).copied().unwrap_or((now_ms, 0));
        let fits = handed + messages <= HANDED_MAX;
        if fits && messages > 0 {
            self.handed.insert(token, (since_ms, handed + messages));
        }
        fits
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
            // It has shares of what is owed to anybody.
            self.shares.clear();
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
        let bytes = |shares: &Shares| shares.values().map(|[_, bytes]| bytes).sum::<u64>();
        let mut shares = self.shares.iter();
        sums == self.by_token && shares.all(|(peer, shares)| bytes(shares) == self.to(*peer))
    }
}

impl Broker {
    /// Why a peer may not be owed so many bytes more that are sent with this token, if it may not. An
    /// eighth is kept for answers, and one token has at most half of what its kind of mail may take. What a
    /// bridge has forwarded counts with what waits for it: its domain has no room without end.
    pub(super) fn full_for(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        (token, bytes): (TokenHash, u64),
        answer: bool,
    ) -> Result<Option<String>> {
        let max = [self.queue_max(peer), self.config.owed_to_max];
        let max = max.map(|max| if answer { max } else { max - max / 8 });
        let half = max.map(|max| max.div_ceil(2));
        let beside = self.registry.forwarded_by(peer).map(|row| row.id);
        let queues = [Some(peer), beside].into_iter().flatten();
        let to = queues.clone().map(|queue| self.owed.to(queue)).sum();
        let waits = [self.pending(cx, peer)?, to];
        if full(waits, "", bytes, half).is_none() {
            return Ok(None);
        }
        let whole = full(waits, "", bytes, max);
        if whole.is_some() || self.mutations.broken(BrokerMutation::FillQueue) {
            return Ok(whole);
        }
        let mut share = Waits::default();
        for queue in queues {
            self.count_shares(cx, queue)?;
            let shares = self.owed.shares.get(&queue);
            let [messages, bytes] = shares
                .and_then(|shares| shares.get(&Some(token)))
                .unwrap_or(&[0; 2]);
            // Of messages those that wait here count, as in `waits`.
            let here = u64::from(queue == peer);
            share = [share[0] + here * messages, share[1] + bytes];
        }
        Ok(full(share, " that were sent with this token", bytes, half))
    }

    /// Counts the shares of what a peer is owed, if that was not done.
    pub(super) fn count_shares(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result {
        if self.owed.shares.contains_key(&peer) {
            return Ok(());
        }
        let mut shares = Shares::new();
        for (sender, waits) in cx.txn.queue_sums(peer)? {
            let token = self.owed.token(sender);
            change(&mut shares, token, u64::saturating_add, waits);
        }
        self.owed.shares.insert(peer, shares);
        Ok(())
    }

    /// Refuses what would take more than the sender's token may have waiting, each copy counted. All
    /// bridges may have one token: what comes from a domain counts for that domain alone. So may all names
    /// of the gateway, of which one has at most half.
    pub(super) fn check_quota(
        &self,
        caller: Caller,
        carried: &Carried,
        recipients: &[PeerId],
    ) -> Result<(), Refusal> {
        let Some(session) = self.conns.session(caller.conn) else {
            return Ok(());
        };
        let (own, all) = (self.owed.by_peer(caller.peer), self.owed.by(&caller.token));
        let more = (carried.text.len() * recipients.len()) as u64;
        let max = session.grant.quotas.bytes;
        let max = max.unwrap_or(self.config.owed_by_max);
        let half = max.div_ceil(2);
        let of_gateway = is_of_gateway(session.name.as_str());
        let (waits, max, sent) = match session.bridge {
            Some(_) => (own, max, "came from this domain"),
            None if of_gateway && own + more > half => (own, half, "were sent by this name"),
            None => (all, max, "were sent with this token"),
        };
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

/// The part of a small disk that stays free: one in so many bytes.
const FLOOR_PART: u64 = 8;
/// By which part of the floor more must be free before mail is taken again, so that a single
/// message does not turn it over.
const RISE_PART: u64 = 8;

impl Broker {
    /// The disk has so many bytes in all, of which so many are free.
    pub(super) fn note_space(&mut self, now: Now, free: u64, total: u64) {
        let floor = self.config.disk_floor.min(total / FLOOR_PART);
        let needed = if self.full {
            floor + floor / RISE_PART
        } else {
            floor
        };
        let full = free < needed;
        if full != self.full {
            self.full = full;
            self.sweep.forget_soon(now);
            let event = BusEvent::DiskFull { full, free };
            self.outbox.event(event);
        }
    }

    /// Whether new mail is refused for want of room. Who cannot be told should not be read from
    /// meanwhile.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Refuses new mail while the disk is nearly full. What a v1 sender had under way is taken: it
    /// could not be told, and is not read from any more.
    pub(super) fn check_space(&self, caller: Caller) -> Result<(), Refusal> {
        if !self.full || !caller.ext {
            return Ok(());
        }
        Err(RefusalCode::DiskFull
            .because("the broker's disk is nearly full; send again when there is room on it"))
    }
}
