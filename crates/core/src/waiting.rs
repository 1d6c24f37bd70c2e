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
    /// Who sent it.
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

/// Whom a message for one member of a group is owed to while no member has it: no peer's number.
pub const NOBODY: PeerId = PeerId(u32::MAX);

/// Members that had a message for one of them and are remembered; after so many they are asked anew.
const HAD_MAX: usize = 256;

/// A message for one member of a group, as long as it is owed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// The message.
    pub seq: Seq,
    /// The token whose group it is.
    pub owner: TokenHash,
    /// The group.
    pub group: GroupName,
    /// To whom it is owed: a member, or [`NOBODY`].
    pub holder: PeerId,
    /// Somebody who had it may have shown it.
    pub again: bool,
    /// Who has it, or had it.
    pub had: BTreeSet<PeerId>,
    /// Who did not want it.
    pub rejected: BTreeSet<PeerId>,
}

impl JobRow {
    /// One that nobody had.
    #[must_use]
    pub fn new(seq: Seq, owner: TokenHash, group: GroupName) -> Self {
        Self {
            seq,
            owner,
            group,
            holder: NOBODY,
            again: false,
            had: BTreeSet::new(),
            rejected: BTreeSet::new(),
        }
    }

    /// Whether a peer of this token and in these groups is in its group.
    #[must_use]
    pub fn is_for(&self, owner: Option<TokenHash>, groups: &BTreeSet<GroupName>) -> bool {
        owner == Some(self.owner) && groups.contains(&self.group)
    }

    /// Another one has it from now on.
    pub fn give(&mut self, holder: PeerId) {
        self.holder = holder;
        if holder != NOBODY {
            if self.had.len() >= HAD_MAX {
                self.had.clear();
            }
            self.had.insert(holder);
        }
    }
}
