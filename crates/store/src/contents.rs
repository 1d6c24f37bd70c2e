//! Which messages are whose: a table of contents for each run of 256 message numbers.
//!
//! It is written when nobody waits, once all numbers of a run are given, so that accepting a message
//! costs no index. Who looks something up reads the runs that come after the last one as they are.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use peerbus_core::store::FATES_RUN;
use peerbus_wire::{Conversation, Envelope, EnvelopeHash, MessageId};
use rusqlite::{Connection, Result, Transaction, TransactionBehavior};

use crate::read::{bound, one};

/// Letters of an id's hash that are kept: enough that few other messages are looked at.
const ID_LETTERS: usize = 6;

/// How far the contents are.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The first run that has none yet.
    next: u64,
    /// The highest number that was given to a message, or is about to be.
    pub(crate) last_seq: u64,
}

impl Progress {
    /// That of a database just opened.
    pub(crate) fn of(db: &Connection) -> Result<Self> {
        let last = one(db, "SELECT seq FROM messages ORDER BY seq DESC LIMIT 1", [])?;
        Ok(Self {
            next: next_run(db)?,
            last_seq: last.unwrap_or_default(),
        })
    }

    /// Whether a run waits.
    pub(crate) fn is_due(&self) -> bool {
        self.last_seq / FATES_RUN > self.next
    }

    /// Writes the contents of one run.
    pub(crate) fn step(&mut self, db: &Connection) -> Result<()> {
        let first = "SELECT coalesce(min(seq), 0) FROM messages WHERE seq >= ?1";
        let first = one(db, first, [bound(self.next * FATES_RUN)])?.unwrap_or(0);
        // Runs of which nothing is left are passed over.
        let run = first / FATES_RUN;
        if first == 0 || run >= self.last_seq / FATES_RUN {
            self.next = self.last_seq / FATES_RUN;
            return Ok(());
        }
        let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
        let entries = entries(&transaction, run)?;
        transaction
            .prepare_cached("INSERT OR REPLACE INTO contents(run, entries) VALUES(?1, ?2)")?
            .execute((run, entries))?;
        transaction.commit()?;
        self.next = run + 1;
        Ok(())
    }
}

/// The first run without contents.
pub(crate) fn next_run(db: &Connection) -> Result<u64> {
    let next = one(db, "SELECT coalesce(max(run) + 1, 0) FROM contents", []);
    Ok(next?.unwrap_or_default())
}

/// Forgets the contents of a run of which no message is left.
pub(crate) fn forget(db: &Connection, run: u64) -> Result<()> {
    let first = bound(run.saturating_mul(FATES_RUN));
    db.prepare_cached(
        "DELETE FROM contents WHERE run = ?1
         AND NOT EXISTS(SELECT 1 FROM messages WHERE seq BETWEEN ?2 AND ?2 + 255)",
    )?
    .execute((bound(run), first))?;
    Ok(())
}

/// Lines of a key, a tab, and the low bytes of the messages' numbers in hex; the first is empty.
fn entries(db: &Connection, run: u64) -> Result<String> {
    let mut keys = BTreeMap::<String, String>::new();
    let mut statement = db.prepare_cached(
        "SELECT seq, id, envelope FROM messages WHERE seq BETWEEN ?1 AND ?1 + 255 ORDER BY seq",
    )?;
    let mut rows = statement.query([bound(run * FATES_RUN)])?;
    while let Some(row) = rows.next()? {
        let low = row.get::<_, u64>(0)? % FATES_RUN;
        let mut note = |key: String| {
            // Writing to a text cannot fail.
            let _written = write!(keys.entry(key).or_default(), "{low:02x}");
        };
        note(of_id(row.get_ref(1)?.as_str()?));
        let Some(labels) = Labels::of(row.get_ref(2)?.as_bytes()?) else {
            continue;
        };
        note(of_peer(&labels.from));
        if labels.to != labels.from {
            note(of_peer(&labels.to));
        }
        if labels.to.starts_with('#') {
            note(of_peer("*"));
        }
        if let Some(thread) = labels.thread {
            note(of_thread(&thread));
        }
    }
    let mut text = String::from("\n");
    for (key, lows) in keys {
        // As above.
        let _written = writeln!(text, "{key}\t{lows}");
    }
    Ok(text)
}

/// The messages under these keys in the contents of a run: those under one of `keys`.
pub(crate) fn under(run: u64, entries: &str, keys: &[String]) -> Vec<u64> {
    let mut seqs = Vec::new();
    for key in keys {
        let Some((_, rest)) = entries.split_once(&format!("\n{key}\t")) else {
            continue;
        };
        let line = rest.lines().next().unwrap_or_default();
        let (pairs, _) = line.as_bytes().as_chunks::<2>();
        let lows = pairs.iter().filter_map(|pair| {
            let pair = std::str::from_utf8(pair).ok()?;
            u64::from_str_radix(pair, 16).ok()
        });
        seqs.extend(lows.map(|low| run * FATES_RUN + low));
    }
    seqs.sort_unstable();
    seqs.dedup();
    seqs
}

/// The contents of runs before `before` that have one of two keys, the newest first: run and text.
pub(crate) const RUNS: &str = "SELECT run, entries FROM contents WHERE run <= ?1
     AND (instr(entries, ?2) > 0 OR instr(entries, ?3) > 0) ORDER BY run DESC";

pub(crate) fn of_peer(name: &str) -> String {
    format!("p:{}", name.to_ascii_lowercase())
}

pub(crate) fn of_thread(thread: &str) -> String {
    format!("t:{thread}")
}

pub(crate) fn of_id(id: &str) -> String {
    let hash = EnvelopeHash::of(id.as_bytes());
    format!("i:{}", hash.as_str().get(..ID_LETTERS).unwrap_or_default())
}

/// What an envelope is found by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Labels {
    pub(crate) from: String,
    /// A name, `*`, or a group with its `#`, whether it is for all of it or for one.
    pub(crate) to: String,
    /// The conversation: the one that its body names, or the one that it may have begun.
    pub(crate) thread: Option<String>,
}

impl Labels {
    /// `None` of what is no envelope, such as a hash.
    pub(crate) fn of(envelope: &[u8]) -> Option<Self> {
        let envelope = Envelope::decode(envelope).ok()?.envelope;
        let body = std::str::from_utf8(&envelope.body).unwrap_or_default();
        let talk = Conversation::of(body);
        // Whoever answers it names it so, or what it answers.
        let begun = || MessageId::parse(&envelope.id).ok();
        let first = || talk.reply_to.or_else(begun);
        let thread = talk
            .thread
            .or_else(|| first().map(|id| id.as_str().to_owned()));
        let mut to = envelope.to;
        if to.starts_with('#') && to.ends_with('!') {
            to.pop();
        }
        Some(Self {
            from: envelope.from,
            to,
            thread,
        })
    }

    /// It is for whom the broker says, not for a name.
    pub(crate) fn is_for_many(&self) -> bool {
        self.to == "*" || self.to.starts_with('#')
    }
}
