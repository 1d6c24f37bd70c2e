//! The audit chain as data: what happened, in blocks, one per commit, each chained to the one
//! before by a keyed hash.
//!
//! The chain is keyed so that nobody without the key can write a block, and the head is
//! authenticated apart from the chain so that a chain cut short, or emptied, does not verify.

use std::fmt::{self, Display, Formatter, Write as _};

use peerbus_wire::{AuditRecord, EnvelopeHash, How, Seq, escape};

use crate::Stamp;
use crate::delivered::PeerId;
use crate::waiting::MessageHead;

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

/// Characters that a line keeps of what a program calls itself.
const SOURCE_CHARS: usize = 64;

/// A chain hash.
pub type Hash = [u8; 32];

/// One commit's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Counts from 1.
    pub number: u64,
    /// When it was sealed. The hash covers the wall clock only.
    pub at: Stamp,
    /// One line an event, as [`AuditLog`] writes them.
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

/// Collects the events of the commit under way: one line each, a letter and then words.
#[derive(Debug, Default)]
pub struct AuditLog {
    lines: String,
}

/// A line of this kind about what an ack claims. A macro, for the kind to be a part of the format: the line
/// is the most frequent one.
macro_rules! claim {
    ($log:ident, $kind:literal, ($seq:expr, $recipient:expr), $how:ident) => {{
        let (seq, recipient) = ($seq, $recipient);
        match $how {
            None => $log.line(format_args!(concat!($kind, " {} {}"), seq, recipient)),
            Some(How::Pushed { path }) => $log.line(format_args!(
                concat!($kind, " {} {} pushed {}"),
                seq,
                recipient,
                Word(path)
            )),
            Some(How::Seen { path, evidence }) => $log.line(format_args!(
                concat!($kind, " {} {} seen {} {}"),
                seq,
                recipient,
                Word(path),
                Word(evidence)
            )),
        }
    }};
}

impl AuditLog {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.lines.write_fmt(line);
        self.lines.push('\n');
    }

    /// `A seq sender id recipients hash`: a message was accepted. Older blocks have no hash.
    pub fn accept(&mut self, head: &MessageHead, hash: &EnvelopeHash) {
        let (seq, sender, recipients) = (head.seq.0, head.sender.0, head.recipients);
        let (id, hash) = (&head.id, hash.as_str());
        self.line(format_args!("A {seq} {sender} {id} {recipients} {hash}"));
    }

    /// `O seq recipient`: a message for a group is owed to this member.
    pub fn owe(&mut self, seq: Seq, recipient: PeerId) {
        self.line(format_args!("O {} {}", seq.0, recipient.0));
    }

    /// `D seq recipient`: a recipient's connection was given a message. Best effort: may be lost in
    /// a crash.
    pub fn deliver(&mut self, seq: Seq, recipient: PeerId) {
        self.line(format_args!("D {} {}", seq.0, recipient.0));
    }

    /// `K seq recipient [how path evidence]`: a recipient acked a message, and what the ack claims.
    pub fn ack(&mut self, seq: Seq, recipient: PeerId, how: Option<&How>) {
        claim!(self, "K", (seq.0, recipient.0), how);
    }

    /// `W seq recipient [how path evidence]`: a recipient acked a request, which is owed to
    /// [`ANSWERS`](crate::store::ANSWERS) from then on.
    pub fn read(&mut self, seq: Seq, recipient: PeerId, how: Option<&How>) {
        claim!(self, "W", (seq.0, recipient.0), how);
    }

    /// `E seq recipient`: a message is not owed to a recipient any more, unread.
    pub fn expire(&mut self, seq: Seq, recipient: PeerId) {
        self.line(format_args!("E {} {}", seq.0, recipient.0));
    }

    /// `X seq recipient`: a recipient rejected a message.
    pub fn reject(&mut self, seq: Seq, recipient: PeerId) {
        self.line(format_args!("X {} {}", seq.0, recipient.0));
    }

    /// `R peer name`: a peer registered under this name.
    pub fn register(&mut self, peer: PeerId, name: &str) {
        self.line(format_args!("R {} {name}", peer.0));
    }

    /// `T peer`: a peer's new connection took the name from a live one.
    pub fn take_over(&mut self, peer: PeerId) {
        self.line(format_args!("T {}", peer.0));
    }

    /// `F peer`: the operator freed a name.
    pub fn release(&mut self, peer: PeerId) {
        self.line(format_args!("F {}", peer.0));
    }

    /// `N peer name`: a peer goes by another name.
    pub fn rename(&mut self, peer: PeerId, name: &str) {
        self.line(format_args!("N {} {name}", peer.0));
    }

    /// `V peer [successor]`: a name ended for good, and who gets its mail.
    pub fn retire(&mut self, peer: PeerId, successor: Option<PeerId>) {
        match successor {
            None => self.line(format_args!("V {}", peer.0)),
            Some(successor) => self.line(format_args!("V {} {}", peer.0, successor.0)),
        }
    }

    /// `M seq from to`: a message is owed to another peer instead.
    pub fn pass(&mut self, seq: Seq, from: PeerId, to: PeerId) {
        self.line(format_args!("M {} {} {}", seq.0, from.0, to.0));
    }

    /// `Z peer`: a peer was forgotten.
    pub fn forget(&mut self, peer: PeerId) {
        self.line(format_args!("Z {}", peer.0));
    }

    /// `S peer name action outcome uid pid by request source`: a peer says that something was done to
    /// its session, in its own words (see [`AuditRemark`]).
    pub fn remark(&mut self, peer: PeerId, name: &str, record: &AuditRecord) {
        let number =
            |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
        let (peer, action, outcome) = (peer.0, record.action.word(), Word(&record.outcome));
        let (uid, pid) = (number(record.uid), number(record.pid));
        let (by, request) = (Word(&record.by), Word(&record.request_id));
        let source = escape(&record.source, SOURCE_CHARS);
        self.line(format_args!(
            "S {peer} {name} {action} {outcome} {uid} {pid} {by} {request} {source}"
        ));
    }

    /// `U peer name records`: a peer said so much more of that than is written down.
    pub fn excess(&mut self, peer: PeerId, name: &str, records: u64) {
        self.line(format_args!("U {} {name} {records}", peer.0));
    }

    /// `I name outcome from`: a machine that was invited under this name (`-`: no invitation is known)
    /// asked to be let in, and from where.
    pub fn join(&mut self, name: Option<&str>, outcome: &str, from: &str) {
        let (name, from) = (Word(name.unwrap_or_default()), Word(from));
        self.line(format_args!("I {name} {outcome} {from}"));
    }

    /// `J tries`: so many more tried that than is written down.
    pub fn more_joins(&mut self, tries: u64) {
        self.line(format_args!("J {tries}"));
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
