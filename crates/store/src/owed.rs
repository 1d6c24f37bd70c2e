//! Whether the queue holds what the audit chain says is owed.

use std::collections::BTreeMap;

use peerbus_core::audit::ChainHead;
use rusqlite::Connection;

/// What a chain says is owed, read block by block.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// To how many recipients each message is owed that is owed to any.
    open: BTreeMap<u64, u64>,
    /// The first message whose acceptance the chain still holds.
    first: Option<u64>,
}

/// Where queue and chain do not agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueBreak {
    /// Deliveries were added or removed outside the broker.
    #[error("message {seq} is owed to {owed} by the audit chain, and to {queued} in the queue")]
    Owed {
        /// The message's number.
        seq: u64,
        /// To how many recipients, by the chain.
        owed: u64,
        /// To how many, in the queue.
        queued: u64,
    },
    /// The message of this number was removed outside the broker.
    #[error("message {0} is owed and not stored")]
    Gone(u64),
    /// What stands in the message of this number was changed outside the broker.
    #[error("message {0} is not as it was accepted: its envelope was altered")]
    Altered(u64),
    /// The message of this number was added outside the broker.
    #[error("message {0} is stored, and by the audit chain it was never accepted")]
    Foreign(u64),
}

impl Owed {
    /// Takes the events of the next block. A line that is none of ours says nothing of the queue.
    pub(crate) fn block(&mut self, events: &str) {
        for line in events.lines() {
            let mut words = line.split(' ');
            let (kind, seq) = (words.next(), words.next());
            let Some(seq) = seq.and_then(|seq| seq.parse().ok()) else {
                continue;
            };
            match kind {
                Some("A") => {
                    self.first.get_or_insert(seq);
                    let recipients = words.nth(2).and_then(|count| count.parse().ok());
                    self.open.insert(seq, recipients.unwrap_or(0));
                }
                Some("K" | "E" | "X") => {
                    if let Some(left) = self.open.get_mut(&seq) {
                        *left = left.saturating_sub(1);
                    }
                }
                _ => continue,
            }
            if self.open.get(&seq) == Some(&0) {
                self.open.remove(&seq);
            }
        }
    }

    /// Compares with the queue. Gives how many of its deliveries are older than the chain, of which
    /// nothing can be said.
    pub(crate) fn compare(
        mut self,
        db: &Connection,
        head: &ChainHead,
    ) -> rusqlite::Result<Result<u64, QueueBreak>> {
        let first = match (head.anchor, self.first) {
            (0, _) => 1,
            (_, Some(first)) => first,
            (_, None) => head.next_seq,
        };
        let mut older = 0;
        let mut statement = db.prepare(
            "SELECT d.seq, d.queued, m.seq IS NULL
             FROM (SELECT seq, count(*) AS queued FROM deliveries GROUP BY seq) d
             LEFT JOIN messages m ON m.seq = d.seq",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (seq, queued) = (row.get(0)?, row.get(1)?);
            if row.get(2)? {
                return Ok(Err(QueueBreak::Gone(seq)));
            }
            if seq < first {
                older += queued;
                continue;
            }
            let owed = self.open.remove(&seq).unwrap_or(0);
            if owed != queued {
                return Ok(Err(QueueBreak::Owed { seq, owed, queued }));
            }
        }
        Ok(match self.open.pop_first() {
            Some((seq, owed)) => Err(QueueBreak::Owed {
                seq,
                owed,
                queued: 0,
            }),
            None => Ok(older),
        })
    }
}
