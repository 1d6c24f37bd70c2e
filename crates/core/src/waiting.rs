//! What is kept of mail that waits, besides the mail.

use std::collections::BTreeSet;

use peerbus_wire::{GroupName, MessageId, Seq};

use crate::TokenHash;
use crate::delivered::PeerId;

/// What is kept of a message besides its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageHead {
    /// Its number; greater than every earlier one.
    pub seq: Seq,
    /// Its sender.
    pub sender: PeerId,
    /// The sender's id for it.
    pub id: MessageId,
    /// How many recipients it was owed to when it was accepted.
    pub recipients: u32,
    /// When it was accepted, wall clock.
    pub accepted_ms: u64,
    /// Bytes of its envelope; 0 once that was deleted, and those of its hash when only that is left.
    pub bytes: u64,
}

/// How much mail of a peer waits, in bytes of envelopes: each copy of a broadcast counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwedRow {
    /// The peer; known or not any more.
    pub peer: PeerId,
    /// The token that what it sent counts for; `None` while nothing of it waits, and when that is
    /// not known: it was sent under an older broker by a name that is gone.
    pub token: Option<TokenHash>,
    /// What is owed to it.
    pub to: u64,
    /// What it sent that is owed to anybody.
    pub by: u64,
}

impl OwedRow {
    /// The row of a peer of which nothing waits. A store keeps none.
    #[must_use]
    pub const fn none(peer: PeerId) -> Self {
        Self {
            peer,
            token: None,
            to: 0,
            by: 0,
        }
    }
}

/// Whom a lease is owed to while nobody has it: no peer's number.
pub const NOBODY: PeerId = PeerId(u32::MAX);

/// Whom a request is owed to that its holder has read: no peer's number.
pub const ANSWERS: PeerId = PeerId(u32::MAX - 1);

/// Members that had a message for one of them and are remembered; after so many they are asked anew.
const HAD_MAX: usize = 256;

/// Who may have a lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lessee {
    /// A member of this group of the owner's: one at a time.
    One(GroupName),
    /// This peer.
    Peer(PeerId),
}

/// What a message wants besides being read, and how far that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRow {
    /// Until when a result is waited for, steady clock.
    pub until_ms: u64,
    /// Its holder has read it and works at it; `None`: it is yet to be read.
    pub work: Option<Work>,
}

/// How far the holder of a request is with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Work {
    /// The process that read it, as [`Broker`](crate::Broker) tells them apart: another one of the same
    /// name does not know of it. `None`: version 1, which is never delivered again what it read.
    pub process: Option<String>,
    /// What the holder said of it last, and when, wall clock.
    pub said: Option<(String, u64)>,
}

/// A message that one peer at a time has: for one member of a group, until it is read, or a request, until
/// it has its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// The message.
    pub head: MessageHead,
    /// The token that it was sent with.
    pub owner: TokenHash,
    /// Who may have it.
    pub to: Lessee,
    /// Who has it: such a peer, or [`NOBODY`].
    pub holder: PeerId,
    /// Somebody who had it may have been shown it.
    pub again: bool,
    /// Who has it, or had it.
    pub had: BTreeSet<PeerId>,
    /// Who did not want it.
    pub rejected: BTreeSet<PeerId>,
    /// The result that it wants, if it wants one.
    pub request: Option<RequestRow>,
}

impl LeaseRow {
    /// One that nobody had.
    #[must_use]
    pub fn new(head: MessageHead, owner: TokenHash, to: Lessee) -> Self {
        Self {
            head,
            owner,
            to,
            holder: NOBODY,
            again: false,
            had: BTreeSet::new(),
            rejected: BTreeSet::new(),
            request: None,
        }
    }

    /// The group that it is for one member of.
    #[must_use]
    pub fn group(&self) -> Option<&GroupName> {
        match &self.to {
            Lessee::One(group) => Some(group),
            Lessee::Peer(_) => None,
        }
    }

    /// Whether this peer, of this token and in these groups, may have it.
    #[must_use]
    pub fn is_for(
        &self,
        peer: PeerId,
        owner: Option<TokenHash>,
        groups: &BTreeSet<GroupName>,
    ) -> bool {
        match &self.to {
            Lessee::One(group) => owner == Some(self.owner) && groups.contains(group),
            Lessee::Peer(to) => *to == peer,
        }
    }

    /// How far its holder is, of a request that was read.
    #[must_use]
    pub fn work(&self) -> Option<&Work> {
        self.request.as_ref()?.work.as_ref()
    }

    /// In whose queue the message is.
    #[must_use]
    pub fn queue(&self) -> PeerId {
        match self.work() {
            Some(_) => ANSWERS,
            None => self.holder,
        }
    }

    /// Another one has it from now on, and is yet to read it.
    pub fn give(&mut self, holder: PeerId) {
        self.holder = holder;
        if let Some(request) = &mut self.request {
            request.work = None;
        }
        if holder != NOBODY {
            if self.had.len() >= HAD_MAX {
                self.had.clear();
            }
            self.had.insert(holder);
        }
    }
}
