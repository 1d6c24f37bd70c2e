//! The witness of an audit chain: what a file beside the database says of the chain's head, so that
//! a database which has lost its newest commits, or was exchanged for an older one, is noticed.
//!
//! It follows the database by a second or so and never precedes it. Whoever sets both back notices
//! nothing.

use std::fmt;

use peerbus_wire::{Mark, hex, utc};

use crate::audit::{AuditKey, ChainHead, Hash};

/// What separates the witness' key from that of the chain.
const PURPOSE: &str = "peerbus 2026-11-22 witness of the audit chain";
/// The first word of the file.
const FORMAT: &str = "witness-1";

/// What is known of a chain apart from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// Number of the last block that was durable.
    pub blocks: u64,
    /// Its hash.
    pub hash: Hash,
    /// When this was written down, wall clock.
    pub at_ms: u64,
    /// How many losses the operator has acknowledged.
    pub epoch: u64,
    /// Tells the life of the database apart from others: a random word, the same until it loses
    /// something, is brought back from a backup, or is another one. Older files have none.
    pub life: Option<Mark>,
    /// The loss that he has not.
    pub missing: Option<Missing>,
}

/// Blocks that were durable and are not in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// How many at least.
    pub blocks: u64,
    /// When the last block before them was sealed, wall clock; 0: there is none.
    pub from_ms: u64,
    /// When the last of them was known to be durable, wall clock.
    pub until_ms: u64,
}

/// Why a text is no witness of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not whole, was altered, or is another database's")]
pub struct NotAuthentic;

impl Witness {
    /// A witness of the chain that ends at `head`.
    #[must_use]
    pub fn of(head: &ChainHead, at_ms: u64) -> Self {
        Self {
            blocks: head.blocks,
            hash: head.hash,
            at_ms,
            epoch: 0,
            life: None,
            missing: None,
        }
    }

    /// The file's text: one line, authenticated.
    #[must_use]
    pub fn encode(&self, key: &AuditKey) -> String {
        let (blocks, hash) = (self.blocks, hex::encode(&self.hash));
        let mut text = format!("{FORMAT} {blocks} {hash} {} {}", self.at_ms, self.epoch);
        if let Some(life) = &self.life {
            text += &format!(" {}", life.as_str());
        }
        if let Some(lost) = self.missing {
            text += &format!(" {} {} {}", lost.blocks, lost.from_ms, lost.until_ms);
        }
        let mac = hex::encode(mac(key, &text).as_bytes());
        format!("{text} {mac}\n")
    }

    /// Reads the file's text.
    ///
    /// # Errors
    ///
    /// When it is not what [`Witness::encode`] gives with this key.
    pub fn decode(key: &AuditKey, text: &str) -> Result<Self, NotAuthentic> {
        let parse = || {
            let (text, found) = text.strip_suffix('\n')?.rsplit_once(' ')?;
            if mac(key, text) != hex::decode(found)? {
                return None;
            }
            let words: Vec<&str> = text.split(' ').collect();
            let ([FORMAT, blocks, hash, at_ms, epoch], rest) = words.split_first_chunk()? else {
                return None;
            };
            let (life, rest) = match rest {
                [] | [_, _, _] => (None, rest),
                [life, rest @ ..] => (Some(Mark::parse(life)?), rest),
            };
            let missing = match rest {
                [] => None,
                [blocks, from_ms, until_ms] => Some(Missing {
                    blocks: blocks.parse().ok()?,
                    from_ms: from_ms.parse().ok()?,
                    until_ms: until_ms.parse().ok()?,
                }),
                _ => return None,
            };
            Some(Self {
                blocks: blocks.parse().ok()?,
                hash: hex::decode(hash)?,
                at_ms: at_ms.parse().ok()?,
                epoch: epoch.parse().ok()?,
                life,
                missing,
            })
        };
        parse().ok_or(NotAuthentic)
    }

    /// What this witness saw and the database has not: beside what was missing before. `found` is
    /// the hash of the database's block of this witness' number, `last_ms` the time of its last
    /// block. Of a chain whose retention has passed the witness nothing can be said.
    #[must_use]
    pub fn missing_in(
        &self,
        head: &ChainHead,
        found: Option<&Hash>,
        last_ms: u64,
    ) -> Option<Missing> {
        let found = match self.blocks {
            blocks if blocks < head.anchor => return self.missing,
            blocks if blocks == head.anchor => Some(&head.anchor_hash),
            _ => found,
        };
        if head.blocks >= self.blocks && found == Some(&self.hash) {
            return self.missing;
        }
        let lost = Missing {
            blocks: self.blocks.saturating_sub(head.blocks).max(1),
            from_ms: last_ms,
            until_ms: self.at_ms,
        };
        Some(self.missing.map_or(lost, |before| Missing {
            blocks: before.blocks.saturating_add(lost.blocks),
            from_ms: before.from_ms.min(lost.from_ms),
            until_ms: before.until_ms.max(lost.until_ms),
        }))
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.blocks;
        let (noun, were, are) = match blocks {
            1 => ("block", "was", "is"),
            _ => ("blocks", "were", "are"),
        };
        write!(
            f,
            "at least {blocks} {noun} that {were} on the disk {are} missing, of the time "
        )?;
        if self.from_ms > 0 {
            write!(f, "from {}Z ", utc(self.from_ms / 1_000))?;
        }
        write!(f, "until {}Z", utc(self.until_ms / 1_000))
    }
}

/// Compares in constant time.
fn mac(key: &AuditKey, text: &str) -> blake3::Hash {
    let key = blake3::derive_key(PURPOSE, &key.0);
    blake3::keyed_hash(&key, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(key: &AuditKey, blocks: u64, hash: u8) -> ChainHead {
        let mut head = ChainHead::new(key);
        (head.blocks, head.hash) = (blocks, [hash; 32]);
        head
    }

    #[test]
    fn it_is_read_as_it_was_written_and_by_its_key_alone() {
        let key = AuditKey([7; 32]);
        let mut witness = Witness::of(&head(&key, 5, 5), 1_000);
        let missing = Some(Missing {
            blocks: 3,
            from_ms: 0,
            until_ms: 9,
        });
        let lives = [None, Mark::parse("19f3d2")];
        for (life, missing) in lives
            .iter()
            .flat_map(|life| [(life, None), (life, missing)])
        {
            (witness.life, witness.missing) = (life.clone(), missing);
            let text = witness.encode(&key);
            assert_eq!(Witness::decode(&key, &text), Ok(witness.clone()));
            for other in [
                text.replacen(" 5 ", " 6 ", 1),
                text.replacen(" 0 ", " 1 ", 1),
                text[..text.len() - 2].to_owned(),
                String::new(),
            ] {
                assert_eq!(Witness::decode(&key, &other), Err(NotAuthentic), "{other}");
            }
            assert_eq!(
                Witness::decode(&AuditKey([8; 32]), &text),
                Err(NotAuthentic)
            );
        }
    }

    #[test]
    fn what_it_saw_and_a_database_has_not_is_missing() {
        let key = AuditKey([7; 32]);
        let witness = Witness::of(&head(&key, 5, 5), 9_000);
        let missing = |head: &ChainHead, found: Option<u8>| {
            let found = found.map(|found| [found; 32]);
            witness.missing_in(head, found.as_ref(), 4_000)
        };
        let lost = |blocks| {
            Some(Missing {
                blocks,
                from_ms: 4_000,
                until_ms: 9_000,
            })
        };
        assert_eq!(missing(&head(&key, 5, 5), Some(5)), None);
        assert_eq!(missing(&head(&key, 9, 9), Some(5)), None, "it has gone on");
        assert_eq!(missing(&head(&key, 3, 3), None), lost(2));
        assert_eq!(missing(&head(&key, 0, 0), None), lost(5));
        assert_eq!(
            missing(&head(&key, 5, 6), Some(6)),
            lost(1),
            "another fifth block"
        );
        assert_eq!(missing(&head(&key, 9, 9), Some(6)), lost(1), "another past");

        let mut dropped = head(&key, 9, 9);
        (dropped.anchor, dropped.anchor_hash) = (5, [5; 32]);
        assert_eq!(missing(&dropped, None), None);
        dropped.anchor_hash = [6; 32];
        assert_eq!(missing(&dropped, None), lost(1));
        dropped.anchor = 6;
        assert_eq!(missing(&dropped, None), None, "that cannot be known");
        let fresh = Witness::of(&ChainHead::new(&key), 1);
        assert_eq!(fresh.missing_in(&head(&key, 3, 3), None, 3), None);
    }

    #[test]
    fn losses_that_nobody_acknowledged_add_up() {
        let key = AuditKey([7; 32]);
        let mut witness = Witness::of(&head(&key, 5, 5), 9_000);
        witness.missing = Some(Missing {
            blocks: 2,
            from_ms: 2_000,
            until_ms: 3_000,
        });
        let all = witness.missing_in(&head(&key, 3, 3), None, 4_000);
        assert_eq!(
            all,
            Some(Missing {
                blocks: 4,
                from_ms: 2_000,
                until_ms: 9_000
            })
        );
        assert_eq!(
            witness.missing_in(&head(&key, 5, 5), Some(&[5; 32]), 1),
            witness.missing
        );
    }
}
