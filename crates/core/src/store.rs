//! What the core asks of durable storage.
//!
//! All writes of one batch of inputs happen in one transaction; its outputs leave after the
//! commit. The core numbers peers, messages and notices itself, so a store only keeps rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peerbus_wire::{GroupName, Mark, MessageId, Presence, Seq, Stage};

use crate::audit::{Block, ChainHead};
pub use crate::delivered::PeerId;
pub use crate::delivery_history::{DeliveryHistory, STEP_BYTES};
pub use crate::waiting::{
    ANSWERS, LeaseRow, Lessee, MessageHead, NOBODY, OwedRow, RequestRow, Work,
};
use crate::{Delivered, Stamp, TokenHash};

/// Storage failed. Memory may be ahead of the disk: roll back and stop the broker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("storage failed: {0}")]
pub struct StoreError(pub String);

/// What is asked of storage, unless that failed.
pub type Result<T = (), E = StoreError> = std::result::Result<T, E>;

/// A peer that has registered at least once (ephemeral peers while they are connected).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerRow {
    /// Its number.
    pub id: PeerId,
    /// What the row stands for.
    pub kind: PeerKind,
    /// Its name as last registered; unique among peers without regard to ASCII case.
    pub name: String,
    /// The token that owns the name; `None` after the operator released it.
    pub owner: Option<TokenHash>,
    /// The name was made up by its adapter.
    pub generated: bool,
    /// It is forgotten when it leaves.
    pub ephemeral: bool,
    /// It was connected at the last commit that said anything about it.
    pub online: bool,
    /// When it was last connected.
    pub last_seen: Stamp,
    /// What was delivered to it on connections that ended; `None` while it is connected, and
    /// thereby after a broker that was not stopped.
    pub delivered: Option<Delivered>,
    /// Of a bridge: how far it is with what it takes, in its own words. Of what it has forwarded: the
    /// epoch of the broker that remembers it.
    pub mark: Option<Mark>,
    /// The groups of which it is a member: at most [`peerbus_wire::limits::GROUPS_MAX`].
    pub groups: BTreeSet<GroupName>,
    /// What program it said last that it is: `client`, `version` and `adapter` of its presence.
    pub program: Option<Presence>,
}

/// What a row with a name and a queue stands for. Stores keep the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerKind {
    /// A peer, or a bridge.
    Peer = 0,
    /// A name that has ended, until its mail has: others may have that name.
    Ended = 1,
    /// What the bridge of that name has forwarded. Nobody can register it.
    Forwarded = 2,
}

impl PeerRow {
    /// The queue of what a bridge has forwarded to a broker of this epoch.
    #[must_use]
    pub fn forwarded(id: PeerId, bridge: String, epoch: Mark, at: Stamp) -> Self {
        Self {
            id,
            kind: PeerKind::Forwarded,
            name: bridge,
            owner: None,
            generated: false,
            ephemeral: false,
            online: false,
            last_seen: at,
            delivered: None,
            mark: Some(epoch),
            groups: BTreeSet::new(),
            program: None,
        }
    }
}

/// An old name, which leads to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasRow {
    /// The name, as it was registered; unique without regard to ASCII case.
    pub name: String,
    /// To whom it leads.
    pub peer: PeerId,
    /// That peer had the name itself, and may have signed messages under it.
    pub own: bool,
    /// When mail last came for it, about, steady clock.
    pub used_ms: u64,
}

/// A message in a recipient's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// All but its text.
    pub head: MessageHead,
    /// The carried envelope text.
    pub envelope: Arc<str>,
    /// When it was accepted, steady clock.
    pub steady_ms: u64,
}

/// The outcome of [`Txn::insert_message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// The row is new.
    New,
    /// The sender used the id before; nothing was written.
    Known {
        /// The earlier message's number.
        seq: Seq,
        /// Its envelope text is the same, byte for byte.
        same: bool,
        /// How many recipients it was owed to.
        recipients: u32,
    },
}

/// What a rejected message takes of the disk besides its envelope and the reason, in bytes, about.
pub const DEAD_BYTES: u64 = 128;

/// How a delivery ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// The message.
    pub seq: Seq,
    /// To whom it was owed.
    pub recipient: PeerId,
    /// The recipient's name at that time.
    pub to: Arc<str>,
    /// How it ended.
    pub stage: Arc<Stage>,
    /// When, wall clock.
    pub at_ms: u64,
    /// What happened before, as far as it is known.
    pub way: DeliveryHistory,
    /// It is not the last one of its message: that was recalled, or is a request that was read.
    pub goes_on: bool,
}

impl Fate {
    /// What stands for the end of a message that was owed to nobody.
    #[must_use]
    pub fn of_nobody(seq: Seq, at_ms: u64) -> Self {
        Self {
            seq,
            recipient: PeerId(0),
            to: Arc::from(""),
            stage: Arc::new(Stage::Settled { recipients: 0 }),
            at_ms,
            way: DeliveryHistory::default(),
            goes_on: false,
        }
    }

    /// What is said in it takes so many bytes, about, besides [`FATE_BYTES`].
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.stage.bytes() as u64 + self.way.bytes()
    }

    /// Whether it is that of nobody: 0 is no peer's number.
    #[must_use]
    pub fn is_of_nobody(&self) -> bool {
        self.recipient == PeerId(0)
    }
}

/// Ends of one commit are kept, and forgotten, together by runs of so many message numbers.
pub const FATES_RUN: u64 = 256;

/// What an end takes of the disk besides the text of its message, in bytes, about: the head of the
/// message, its index, and what is said of the end.
pub const FATE_BYTES: u64 = 256;

/// What is kept of mail that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// What ended from this time on, steady clock,
    pub from_ms: u64,
    /// as far as it takes about so many bytes of the disk: the oldest go first;
    pub bytes: u64,
    /// and of what ended from this time on at least its id, and a hash in the place of its text:
    /// what comes again under the id is compared with that.
    pub ids_from_ms: u64,
}

/// What was forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Rows and texts that are gone.
    pub rows: usize,
    /// There may be more to forget.
    pub more: bool,
    /// The messages of which nothing is left.
    pub messages: Vec<Seq>,
}

/// A statement to a sender that is kept until the sender has acked it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Its number; greater than every earlier one.
    pub number: u64,
    /// The peer to tell.
    pub sender: PeerId,
    /// The message, by the sender's id.
    pub id: MessageId,
    /// The recipient's name.
    pub to: String,
    /// How it ended: [`Stage::Expired`], [`Stage::Dead`], or as a request does.
    pub stage: Stage,
    /// When it was written.
    pub at: Stamp,
}

/// What a store holds when the broker starts.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// Every known peer.
    pub peers: Vec<PeerRow>,
    /// Every old name.
    pub aliases: Vec<AliasRow>,
    /// The audit chain's head, which also holds the counters; `None` in a new database.
    pub head: Option<ChainHead>,
    /// How much mail waits.
    pub owed: Vec<OwedRow>,
    /// The leases that are open.
    pub leases: Vec<LeaseRow>,
    /// When the last audit block was sealed: from there the steady clock goes on.
    pub sealed: Option<Stamp>,
}

/// Reads and writes inside the open transaction. Reads see its own writes. A `pair` is a recipient
/// and a sender; `steady_ms` and `before_ms` are times of the steady clock.
pub trait Txn {
    /// Writes a peer's row, new or changed.
    ///
    /// # Errors
    ///
    /// Every method of this trait fails only when storage does.
    fn put_peer(&mut self, row: &PeerRow) -> Result;

    /// Forgets a peer. Its queue is empty.
    fn delete_peer(&mut self, id: PeerId) -> Result;

    /// Writes an old name, new or changed.
    fn put_alias(&mut self, row: &AliasRow) -> Result;

    /// Forgets an old name.
    fn delete_alias(&mut self, name: &str) -> Result;

    /// Keeps how much mail of a peer waits; forgets the row when that is none.
    fn put_owed(&mut self, row: &OwedRow) -> Result;

    /// Keeps a lease, new or changed; but not its head, which is that of the message.
    fn put_lease(&mut self, row: &LeaseRow) -> Result;

    /// A lease has ended.
    fn delete_lease(&mut self, seq: Seq) -> Result;

    /// Stores a message, with the carried envelope text, unless its sender used the id before.
    fn insert_message(&mut self, head: &MessageHead, envelope: &str) -> Result<Inserted>;

    /// Owes message `seq`, accepted at `steady_ms`, to the recipient.
    fn insert_delivery(&mut self, pair: (PeerId, PeerId), seq: Seq, steady_ms: u64) -> Result;

    /// Settles the delivery; `false` when there was none.
    fn delete_delivery(&mut self, pair: (PeerId, PeerId), seq: Seq) -> Result<bool>;

    /// Owes to `to` what is owed to `from` and not to `to` itself. Gives the sender and the number of
    /// each message that it moved, in this order.
    fn move_queue(&mut self, from: PeerId, to: PeerId) -> Result<Vec<(PeerId, Seq)>>;

    /// The message of this delivery, as it waits.
    fn delivery(&mut self, pair: (PeerId, PeerId), seq: Seq) -> Result<Option<Queued>> {
        let (mut run, _) = self.read_run(pair, seq, Seq(seq.0.saturating_add(1)), 1, 1)?;
        Ok(run.pop())
    }

    /// Messages pending for `recipient`, by sender and number: at most `messages`, and no more once
    /// `bytes` of text are reached (so at least one when there is one).
    fn read_queue(
        &mut self,
        recipient: PeerId,
        messages: usize,
        bytes: usize,
    ) -> Result<Vec<Queued>>;

    /// The first messages of one sender that are pending for one recipient, `from` inclusive,
    /// `until` exclusive, within the limits of [`Txn::read_queue`]. Also the number of the next one behind them,
    /// in the range or not.
    fn read_run(
        &mut self,
        pair: (PeerId, PeerId),
        from: Seq,
        until: Seq,
        messages: usize,
        bytes: usize,
    ) -> Result<(Vec<Queued>, Option<Seq>)>;

    /// Each sender that has a message pending for `recipient`, with the number of its first one.
    /// One seek for each, however many messages there are.
    fn queue_heads(&mut self, recipient: PeerId) -> Result<Vec<(PeerId, Seq)>>;

    /// How many messages are owed to `recipient`.
    fn count_queue(&mut self, recipient: PeerId) -> Result<u64>;

    /// Each sender that has messages pending for `recipient`: how many, and of how many bytes.
    fn queue_sums(&mut self, recipient: PeerId) -> Result<Vec<(PeerId, [u64; 2])>>;

    /// A message by number.
    fn message(&mut self, seq: Seq) -> Result<Option<MessageHead>>;

    /// A message by its sender's id.
    fn find_message(&mut self, sender: PeerId, id: &MessageId) -> Result<Option<MessageHead>>;

    /// To whom `seq` is still owed.
    fn pending_for(&mut self, seq: Seq) -> Result<Vec<PeerId>>;

    /// Keeps how deliveries ended, in rows for each run of [`FATES_RUN`] message numbers. The first
    /// row counts for `bytes`, their messages included. When `steady_ms` is before the time of the
    /// newest fate, that counts.
    fn insert_fates(&mut self, fates: &[Fate], bytes: u64, steady_ms: u64) -> Result;

    /// How deliveries of each of these messages ended, in order, without that of nobody, of each the
    /// `last` ones: what is kept of several together is read once.
    fn fates_of(&mut self, seqs: &[Seq], last: usize) -> Result<BTreeMap<Seq, Vec<Fate>>>;

    /// Forgets the oldest ends beyond what is to be kept, about `limit` of them: first the fates, and
    /// with the last fate of a message the message, unless it is owed or kept as dead; then, of what
    /// ended of late, the texts.
    fn forget_ended(&mut self, keep: Keep, limit: usize) -> Result<Forgotten>;

    /// Puts its hash in the place of a message's text, unless that is owed or kept as dead. Says whether
    /// it did.
    fn forget_text(&mut self, seq: Seq) -> Result<bool>;

    /// The first deliveries by message number whose message was accepted before `before_ms`, at most
    /// `limit`. Stops at the first message that was accepted later.
    fn old_deliveries(
        &mut self,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<(PeerId, MessageHead)>>;

    /// Keeps a rejected message for the operator.
    fn insert_dead(&mut self, recipient: PeerId, seq: Seq, reason: &str, at: Stamp) -> Result;

    /// Forgets the oldest rejected messages, at most `limit`: those that were rejected before
    /// `before_ms`, and as many as must go for the rest to take about `bytes_max` on disk, each
    /// recipient's counted. With the last row of a message the message goes, unless it is owed or a
    /// fate of it is kept.
    fn delete_dead(&mut self, before_ms: u64, bytes_max: u64, limit: usize) -> Result<Forgotten>;

    /// Keeps a statement for a sender.
    fn insert_notice(&mut self, notice: &Notice) -> Result;

    /// The first `limit` statements kept for `sender` after number `after`, in order.
    fn notices(&mut self, sender: PeerId, after: u64, limit: usize) -> Result<Vec<Notice>>;

    /// Drops a statement; `false` when `sender` has no such one.
    fn delete_notice(&mut self, sender: PeerId, number: u64) -> Result<bool>;

    /// Drops the oldest statements, at most `limit`: those written before `before_ms`, and those
    /// with a number below `before`.
    fn delete_notices(&mut self, before_ms: u64, before: u64, limit: usize) -> Result<usize>;

    /// Appends a block to the audit chain and replaces the head.
    fn append_audit(&mut self, block: &Block, head: &ChainHead) -> Result;

    /// The last of the first `limit` audit blocks, if it is older than `before_ms`; none is sealed
    /// before the one in front of it.
    fn old_audit(&mut self, before_ms: u64, limit: usize) -> Result<Option<Block>>;

    /// Deletes the audit blocks up to and including `number`; the next append carries the head
    /// whose anchor says so.
    fn drop_audit(&mut self, number: u64) -> Result;
}

/// A store with transactions. [`Txn`]'s methods are called between `begin` and `commit` only.
pub trait Store: Txn {
    /// Reads what the broker needs to start.
    ///
    /// # Errors
    ///
    /// Every method of this trait fails only when storage does.
    fn load(&mut self) -> Result<Loaded>;

    /// Opens a transaction.
    fn begin(&mut self) -> Result;

    /// Makes the transaction durable: returns after the disk has confirmed it.
    fn commit(&mut self) -> Result;

    /// Gives the transaction up.
    fn rollback(&mut self);
}
