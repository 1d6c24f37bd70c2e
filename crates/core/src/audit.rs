//! The audit chain as data: what happened, in blocks, one per commit, each chained to the one
//! before by a keyed hash.
//!
//! The chain is keyed so that nobody without the key can write a block, and the head is
//! authenticated apart from the chain so that a chain cut short, or emptied, does not verify.

use std::fmt::{self, Display, Formatter, Write as _};

use peerbus_wire::{AuditRecord, EnvelopeHash, How, MessageId, Seq};

use crate::Stamp;
use crate::peer_id::PeerId;

mod said;

pub use said::AuditRemark;

/// The key of a database's chain.
#[derive(Clone)]
pub struct AuditKey(pub [u8; 32]);

impl std::fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuditKey(…)")
    }
}

/// A chain hash.
pub type Hash = [u8; 32];

/// What is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditEvent<'a> {
    /// A message was accepted.
    Accept {
        /// Its number.
        seq: Seq,
        /// Who sent it.
        sender: PeerId,
        /// The sender's id for it.
        id: &'a MessageId,
        /// How many recipients it is owed to.
        recipients: u32,
        /// The hash of its envelope.
        hash: &'a EnvelopeHash,
    },
    /// A message for a group is owed to this member.
    Owe {
        /// The message.
        seq: Seq,
        /// The member.
        recipient: PeerId,
    },
    /// A recipient's connection was given a message. Best effort: may be lost in a crash.
    Deliver {
        /// The message.
        seq: Seq,
        /// The recipient.
        recipient: PeerId,
    },
    /// A recipient acked a message.
    Ack {
        /// The message.
        seq: Seq,
        /// The recipient.
        recipient: PeerId,
        /// What the ack claims.
        how: Option<&'a How>,
    },
    /// A message is not owed to a recipient any more, unread.
    Expire {
        /// The message.
        seq: Seq,
        /// The recipient.
        recipient: PeerId,
    },
    /// A recipient rejected a message.
    Dead {
        /// The message.
        seq: Seq,
        /// The recipient.
        recipient: PeerId,
    },
    /// A peer registered.
    Register {
        /// The peer.
        peer: PeerId,
        /// The name it registered.
        name: &'a str,
    },
    /// A peer's new connection took the name from a live one.
    Takeover {
        /// The peer.
        peer: PeerId,
    },
    /// The operator freed a name.
    Release {
        /// The peer.
        peer: PeerId,
    },
    /// A peer goes by another name.
    Rename {
        /// The peer.
        peer: PeerId,
        /// The new name.
        name: &'a str,
    },
    /// A name ended for good.
    Retire {
        /// The peer that had it.
        peer: PeerId,
        /// Who gets its mail.
        successor: Option<PeerId>,
    },
    /// A message is owed to another peer instead.
    Move {
        /// The message.
        seq: Seq,
        /// To whom it was owed.
        from: PeerId,
        /// To whom it is owed.
        to: PeerId,
    },
    /// A peer was forgotten.
    Forget {
        /// The peer.
        peer: PeerId,
    },
    /// A peer says that something was done to its session.
    Said {
        /// The peer.
        peer: PeerId,
        /// Its name.
        name: &'a str,
        /// What it says.
        record: &'a AuditRecord,
    },
    /// A peer said more of that than is written down.
    Unsaid {
        /// The peer.
        peer: PeerId,
        /// Its name.
        name: &'a str,
        /// So many records more.
        records: u64,
    },
}

/// One commit's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Counts from 1.
    pub number: u64,
    /// When it was sealed. The hash covers the wall clock only.
    pub at: Stamp,
    /// One line an event (see [`AuditLog::push`]).
    pub events: String,
    /// The chain hash over the previous hash, the number, the time and the events.
    pub hash: Hash,
}

/// The end of the chain, authenticated, and the counters that must never go back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainHead {
    /// Number of the last block; 0 in a new chain.
    pub blocks: u64,
    /// Its hash; [`GENESIS`] in a new chain.
    pub hash: Hash,
    /// Number of the last block that retention dropped; 0 while the chain is whole.
    pub anchor: u64,
    /// Its hash; [`GENESIS`] while the chain is whole.
    pub anchor_hash: Hash,
    /// The next message's number.
    pub next_seq: u64,
    /// The next peer's number.
    pub next_peer: u32,
    /// The next notice's number.
    pub next_notice: u64,
    /// Keyed hash over all the members above.
    pub mac: Hash,
}

/// The hash before the first block.
pub const GENESIS: Hash = [0; 32];

impl ChainHead {
    /// The head of a new chain.
    #[must_use]
    pub fn new(key: &AuditKey) -> Self {
        let mut head = Self {
            blocks: 0,
            hash: GENESIS,
            anchor: 0,
            anchor_hash: GENESIS,
            next_seq: 1,
            next_peer: 1,
            next_notice: 1,
            mac: GENESIS,
        };
        head.mac = head.expected_mac(key);
        head
    }

    /// The authentication that the head must carry.
    #[must_use]
    pub fn expected_mac(&self, key: &AuditKey) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&key.0);
        hasher.update(b"peerbus audit head");
        for number in [self.blocks, self.anchor, self.next_seq, self.next_notice] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(&self.next_peer.to_le_bytes());
        hasher.update(&self.hash).update(&self.anchor_hash);
        hasher.finalize().into()
    }
}

/// The chain hash of a block that follows `previous`.
#[must_use]
pub fn chain(key: &AuditKey, previous: &Hash, number: u64, at_ms: u64, events: &str) -> Hash {
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    hasher.update(b"peerbus audit block");
    hasher.update(previous);
    hasher
        .update(&number.to_le_bytes())
        .update(&at_ms.to_le_bytes());
    hasher.update(events.as_bytes());
    hasher.finalize().into()
}

/// Collects the events of the commit under way.
#[derive(Debug, Default)]
pub struct AuditLog {
    lines: String,
}

impl AuditLog {
    /// Adds an event as one line: a letter, then its members separated by spaces.
    ///
    /// `A seq sender id recipients hash` (no hash in older blocks), `O seq recipient` (to a member of a
    /// group), `D seq recipient`,
    /// `K seq recipient [how path evidence]`, `E seq recipient`, `X seq recipient`, `R peer name`,
    /// `T peer`, `F peer` (freed by the operator), `N peer name` (renamed), `V peer [successor]`
    /// (ended), `M seq from to`, `Z peer` (forgotten), `S peer name action outcome uid pid by
    /// request source` (its own words, see [`AuditRemark`]), `U peer name records` (said besides).
    pub fn push(&mut self, event: &AuditEvent<'_>) {
        let out = &mut self.lines;
        // Writing to a String cannot fail.
        let _ = match event {
            AuditEvent::Accept {
                seq,
                sender,
                id,
                recipients,
                hash,
            } => {
                let (seq, sender, hash) = (seq.0, sender.0, hash.as_str());
                writeln!(out, "A {seq} {sender} {id} {recipients} {hash}")
            }
            AuditEvent::Owe { seq, recipient } => writeln!(out, "O {} {}", seq.0, recipient.0),
            AuditEvent::Deliver { seq, recipient } => writeln!(out, "D {} {}", seq.0, recipient.0),
            AuditEvent::Ack {
                seq,
                recipient,
                how,
            } => match how {
                None => writeln!(out, "K {} {}", seq.0, recipient.0),
                Some(How::Pushed { path }) => {
                    writeln!(out, "K {} {} pushed {}", seq.0, recipient.0, Word(path))
                }
                Some(How::Seen { path, evidence }) => {
                    let (path, evidence) = (Word(path), Word(evidence));
                    writeln!(out, "K {} {} seen {path} {evidence}", seq.0, recipient.0)
                }
            },
            AuditEvent::Expire { seq, recipient } => writeln!(out, "E {} {}", seq.0, recipient.0),
            AuditEvent::Dead { seq, recipient } => writeln!(out, "X {} {}", seq.0, recipient.0),
            AuditEvent::Register { peer, name } => writeln!(out, "R {} {name}", peer.0),
            AuditEvent::Takeover { peer } => writeln!(out, "T {}", peer.0),
            AuditEvent::Release { peer } => writeln!(out, "F {}", peer.0),
            AuditEvent::Rename { peer, name } => writeln!(out, "N {} {name}", peer.0),
            AuditEvent::Retire { peer, successor } => match successor {
                None => writeln!(out, "V {}", peer.0),
                Some(successor) => writeln!(out, "V {} {}", peer.0, successor.0),
            },
            AuditEvent::Move { seq, from, to } => writeln!(out, "M {} {} {}", seq.0, from.0, to.0),
            AuditEvent::Forget { peer } => writeln!(out, "Z {}", peer.0),
            AuditEvent::Said { peer, name, record } => said::write(out, peer.0, name, record),
            AuditEvent::Unsaid {
                peer,
                name,
                records,
            } => writeln!(out, "U {} {name} {records}", peer.0),
        };
    }

    /// Whether nothing was added since the last [`AuditLog::seal`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Makes the block that follows `head` and moves the head onto it.
    pub fn seal(&mut self, key: &AuditKey, head: &mut ChainHead, at: Stamp) -> Block {
        let events = std::mem::take(&mut self.lines);
        let number = head.blocks + 1;
        let hash = chain(key, &head.hash, number, at.wall_ms, &events);
        head.blocks = number;
        head.hash = hash;
        head.mac = head.expected_mac(key);
        Block {
            number,
            at,
            events,
            hash,
        }
    }
}

/// An ack's free text, kept to one word of the line.
struct Word<'a>(&'a str);

impl Display for Word<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-/".contains(&byte);
        match self.0 {
            "" => f.write_str("-"),
            text if text.bytes().all(plain) => f.write_str(text),
            text => text.chars().try_for_each(|c| {
                let plain = u8::try_from(c).is_ok_and(plain);
                f.write_char(if plain { c } else { '_' })
            }),
        }
    }
}

/// Follows a chain block by block.
#[derive(Debug)]
pub struct Verifier<'k> {
    key: &'k AuditKey,
    number: u64,
    hash: Hash,
    head: ChainHead,
}

/// Where a chain does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// The head record is absent: the chain was emptied.
    #[error("the head record is missing: the chain was emptied, or this is no peerbus database")]
    NoHead,
    /// The head record is not authentic.
    #[error("the head record is not authentic: it was altered, or the key is another database's")]
    Head,
    /// A block is missing from the middle or the front.
    #[error("block {expected} is missing (found block {found} in its place)")]
    Gap {
        /// The number that should have come.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// A block's hash does not follow from its content and the block before.
    #[error("block {number} does not verify: it, or the block before it, was altered")]
    Block {
        /// The block.
        number: u64,
    },
    /// Blocks are missing at the end.
    #[error("the chain ends at block {found}, but its head says {expected}: it was cut short")]
    Short {
        /// The head's number.
        expected: u64,
        /// The last block's number.
        found: u64,
    },
    /// There are blocks after the head.
    #[error("block {number} lies after the head (block {head}): it was added outside the broker")]
    Long {
        /// The first such block.
        number: u64,
        /// The head's number.
        head: u64,
    },
}

impl<'k> Verifier<'k> {
    /// Starts at the head's anchor.
    ///
    /// # Errors
    ///
    /// When the head is absent or not authentic.
    pub fn new(key: &'k AuditKey, head: Option<ChainHead>) -> Result<Self, Break> {
        let head = head.ok_or(Break::NoHead)?;
        if head.mac != head.expected_mac(key) {
            return Err(Break::Head);
        }
        Ok(Self {
            key,
            number: head.anchor,
            hash: head.anchor_hash,
            head,
        })
    }

    /// Checks the next block.
    ///
    /// # Errors
    ///
    /// Names the block at which the chain breaks.
    pub fn block(&mut self, block: &Block) -> Result<(), Break> {
        let expected = self.number + 1;
        if block.number != expected {
            return Err(Break::Gap {
                expected,
                found: block.number,
            });
        }
        if block.number > self.head.blocks {
            return Err(Break::Long {
                number: block.number,
                head: self.head.blocks,
            });
        }
        let hash = chain(
            self.key,
            &self.hash,
            block.number,
            block.at.wall_ms,
            &block.events,
        );
        if hash != block.hash {
            return Err(Break::Block {
                number: block.number,
            });
        }
        self.number = block.number;
        self.hash = hash;
        Ok(())
    }

    /// Checks that the chain ends where its head says, and gives the head.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub fn finish(self) -> Result<ChainHead, Break> {
        if self.number != self.head.blocks {
            return Err(Break::Short {
                expected: self.head.blocks,
                found: self.number,
            });
        }
        if self.hash != self.head.hash {
            return Err(Break::Block {
                number: self.number,
            });
        }
        Ok(self.head)
    }
}

#[cfg(test)]
mod tests;
