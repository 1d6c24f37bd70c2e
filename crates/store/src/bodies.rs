//! Whether what is stored of messages is what was accepted.

use peerbus_core::audit::ChainHead;
use peerbus_wire::EnvelopeHash;
use rusqlite::{Result, Rows};

use crate::owed::QueueBreak;

/// The first message that is owed and of which there is no text, or 0: what is as long as a hash, or
/// empty, is none.
pub(crate) const OWED_WITHOUT_TEXT: &str = "SELECT coalesce(min(m.seq), 0) FROM deliveries d
     JOIN messages m ON m.seq = d.seq WHERE octet_length(m.envelope) IN (0, 22)";

/// The columns that [`Bodies`] reads. Of what ended under an older broker there may be neither text
/// nor hash.
pub(crate) const STORED: &str =
    "SELECT seq, envelope FROM messages WHERE envelope <> '' ORDER BY seq";

/// The stored messages beside a chain, which is read block by block. Both are in the order of the
/// messages' numbers, so one of each is in memory.
pub(crate) struct Bodies<'s> {
    rows: Rows<'s>,
    next: Option<(u64, EnvelopeHash)>,
    /// Stored messages that are as they were accepted.
    agree: u64,
    /// Stored messages without a hash in the chain.
    unknown: u64,
    broken: Option<QueueBreak>,
    /// What comes now is not older than the chain.
    covered: bool,
}

impl<'s> Bodies<'s> {
    /// Takes the rows of [`STORED`].
    pub(crate) fn new(rows: Rows<'s>, head: Option<&ChainHead>) -> Result<Self> {
        let mut bodies = Self {
            rows,
            next: None,
            agree: 0,
            unknown: 0,
            broken: None,
            covered: head.is_none_or(|head| head.anchor == 0),
        };
        bodies.step()?;
        Ok(bodies)
    }

    fn step(&mut self) -> Result<()> {
        self.next = match self.rows.next()? {
            Some(row) => {
                let stored = row.get_ref(1)?.as_bytes()?;
                // Of mail that ended perhaps the hash only.
                let hash = EnvelopeHash::parse(stored);
                let hash = hash.unwrap_or_else(|| EnvelopeHash::of(stored));
                Some((row.get(0)?, hash))
            }
            None => None,
        };
        Ok(())
    }

    /// Takes the events of the next block. A line that is none of ours says nothing of messages.
    pub(crate) fn block(&mut self, events: &str) -> Result<()> {
        for line in events.lines() {
            let mut words = line.split(' ');
            let (kind, seq) = (words.next(), words.next());
            if kind == Some("A")
                && let Some(seq) = seq.and_then(|seq| seq.parse().ok())
            {
                self.accepted(seq, words.nth(3))?;
            }
        }
        Ok(())
    }

    /// A message was accepted, with this hash; older blocks have none.
    fn accepted(&mut self, accepted: u64, hash: Option<&str>) -> Result<()> {
        while let Some((seq, stored)) = self.next
            && seq <= accepted
        {
            match hash {
                _ if seq < accepted => self.not_accepted(seq),
                Some(hash) if hash == stored.as_str() => self.agree += 1,
                Some(_) => self.break_at(QueueBreak::Altered(seq)),
                None => self.unknown += 1,
            }
            self.step()?;
        }
        self.covered = true;
        Ok(())
    }

    /// The chain does not say that a stored message was accepted.
    fn not_accepted(&mut self, seq: u64) {
        match self.covered {
            true => self.break_at(QueueBreak::Foreign(seq)),
            false => self.unknown += 1,
        }
    }

    fn break_at(&mut self, found: QueueBreak) {
        self.broken.get_or_insert(found);
    }

    /// Of how many stored messages the chain has the hash, and of how many not.
    pub(crate) fn finish(mut self) -> Result<std::result::Result<(u64, u64), QueueBreak>> {
        while let Some((seq, _)) = self.next {
            self.not_accepted(seq);
            self.step()?;
        }
        Ok(match self.broken {
            Some(broken) => Err(broken),
            None => Ok((self.agree, self.unknown)),
        })
    }
}
