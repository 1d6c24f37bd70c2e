//! Looks messages up, those that ended too, beside the broker that writes.

use std::path::Path;
use std::time::Duration;

use peerbus_core::store::{self, FATE_BYTES, FATES_RUN, Fate, MessageHead};
use peerbus_wire::{EnvelopeHash, MessageId, Seq, names_id};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Result, Row};

use crate::contents::{self, Labels, RUNS};
use crate::read::{self, bound, message_head};
use crate::{fates, sqlite};

/// How long a lock of others is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// After so many messages in a row that are too old, none is looked for further: the wall clock may
/// have been wrong for some.
const TOO_OLD_MAX: usize = 256;
/// Bytes of texts after which a page is complete, and of what is said of their ends.
const PAGE_BYTES: usize = 4 * 1_048_576;
/// Messages whose ends are read at once: those of a run stand together.
const ENDS_AT_ONCE: usize = 16;

/// What is looked for; all of it must hold.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Sent by, or to, this name, in whatever case.
    pub with: Option<String>,
    /// Not acked yet by the peer of this name, in whatever case, or that had it before.
    pub owed: Option<String>,
    /// Of this conversation, its first message included.
    pub thread: Option<String>,
    /// Accepted at this time or later, wall clock.
    pub since_ms: Option<u64>,
    /// With a lower number.
    pub before: Option<Seq>,
}

/// A message that was found.
#[derive(Debug, Clone)]
pub struct HistoryRow {
    /// All but its text.
    pub head: MessageHead,
    /// The envelope as it was accepted, unless that is gone.
    pub envelope: Option<String>,
    /// How its deliveries ended.
    pub fates: Vec<Fate>,
}

/// Messages that were found, the newest first.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The messages.
    pub messages: Vec<HistoryRow>,
    /// There may be more before this one.
    pub before: Option<Seq>,
}

/// A database that is read while a broker may have it.
#[derive(Debug)]
pub struct History {
    db: Connection,
    path: std::path::PathBuf,
}

impl History {
    /// Opens the database at `path`, which must be of this version.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn open(path: &Path) -> store::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(path, flags).and_then(|db| {
            db.busy_timeout(LOCK_WAIT)?;
            Ok(db)
        });
        let path = path.to_owned();
        let db = opened.map_err(|error| sqlite::failed(&path, "opening the history", &error))?;
        Ok(Self { db, path })
    }

    /// The newest messages that are meant, at most `limit`.
    ///
    /// # Errors
    ///
    /// When the database cannot be read.
    pub fn find(&self, query: &Query, limit: usize) -> store::Result<Page> {
        self.run(|db| Search::new(db, query, limit).page())
    }

    /// The newest messages that go by an id, at most `limit`, with a lower number than `before`.
    ///
    /// # Errors
    ///
    /// When the database cannot be read.
    pub fn by_id(&self, id: &MessageId, before: Option<Seq>, limit: usize) -> store::Result<Page> {
        let query = Query {
            before,
            ..Query::default()
        };
        self.run(|db| {
            let mut search = Search::new(db, &query, limit);
            let mut seqs = candidates_by_id(db, id)?;
            seqs.retain(|seq| *seq < search.before);
            while !search.is_over()
                && let Some(seq) = seqs.pop()
            {
                if let Some(found) = message(db, seq)?.filter(|found| found.head.id == *id) {
                    search.bytes += found.envelope.as_ref().map_or(0, String::len);
                    search.page.push(found);
                }
            }
            search.finish(!seqs.is_empty())
        })
    }

    /// The ids that are meant by one, or [a part of one](names_id). At most `limit`.
    ///
    /// # Errors
    ///
    /// When the database cannot be read.
    pub fn ids(&self, text: &MessageId, limit: usize) -> store::Result<Vec<String>> {
        self.run(|db| {
            // Ids stand in an index by sender: it is read through.
            let found = "SELECT DISTINCT id FROM messages WHERE instr(id, ?1)";
            let mut found = db.prepare_cached(found)?;
            let mut rows = found.query([text.as_str()])?;
            let mut ids: Vec<String> = Vec::new();
            while let Some(row) = rows.next()? {
                let id = row.get_ref(0)?.as_str()?;
                let is_meant = id == text.as_str() || names_id(text.as_str(), id);
                if ids.len() < limit && is_meant {
                    ids.push(id.to_owned());
                }
            }
            Ok(ids)
        })
    }

    /// These messages, as far as they are kept.
    ///
    /// # Errors
    ///
    /// When the database cannot be read.
    pub fn of(&self, seqs: &[Seq]) -> store::Result<Page> {
        let query = Query::default();
        self.run(|db| {
            let mut search = Search::new(db, &query, seqs.len());
            for seq in seqs {
                search.page.extend(message(db, seq.0)?);
            }
            search.finish(false)
        })
    }

    fn run<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> store::Result<T> {
        // One state of the database, however many statements it takes.
        let all = || {
            let transaction = self.db.unchecked_transaction()?;
            read(&transaction)
        };
        all().map_err(|error| sqlite::failed(&self.path, "reading the history", &error))
    }
}

/// Numbers of messages that may have this id, in order.
fn candidates_by_id(db: &Connection, id: &MessageId) -> Result<Vec<u64>> {
    let key = contents::of_id(id.as_str());
    let mark = format!("\n{key}\t");
    let mut seqs: Vec<u64> = db
        .prepare_cached("SELECT seq FROM messages WHERE seq >= ?1 AND id = ?2")?
        .query_map((bound(tail(db)?), id.as_str()), |row| row.get(0))?
        .collect::<Result<_>>()?;
    let mut runs = db.prepare_cached(RUNS)?;
    let mut rows = runs.query((i64::MAX, &mark, &mark))?;
    while let Some(row) = rows.next()? {
        let run = row.get(0)?;
        let entries = row.get_ref(1)?.as_str()?;
        seqs.extend(contents::under(run, entries, std::slice::from_ref(&key)));
    }
    seqs.sort_unstable();
    Ok(seqs)
}

/// The first message of which there are no contents yet.
fn tail(db: &Connection) -> Result<u64> {
    Ok(contents::next_run(db)? * FATES_RUN)
}

const COLUMNS: &str = "seq, sender, id, recipients, accepted_ms, octet_length(envelope), envelope";

fn found(row: &Row<'_>) -> Result<HistoryRow> {
    let envelope = row.get_ref(6)?.as_str()?;
    let whole = envelope.len() > EnvelopeHash::LETTERS;
    Ok(HistoryRow {
        head: message_head(row)?,
        envelope: whole.then(|| envelope.to_owned()),
        fates: Vec::new(),
    })
}

fn message(db: &Connection, seq: u64) -> Result<Option<HistoryRow>> {
    db.prepare_cached(&format!("SELECT {COLUMNS} FROM messages WHERE seq = ?1"))?
        .query_row([bound(seq)], found)
        .optional()
}

/// Adds how deliveries ended. Says of how many messages: of no more once that takes so many bytes.
fn with_fates(db: &Connection, messages: &mut [HistoryRow], max: u64) -> Result<usize> {
    let (mut done, mut bytes) = (0, 0);
    for some in messages.chunks_mut(ENDS_AT_ONCE) {
        let seqs: Vec<Seq> = some.iter().map(|found| found.head.seq).collect();
        let mut of = fates::of(db, &seqs, usize::MAX)?;
        for found in some {
            if bytes >= max {
                return Ok(done);
            }
            found.fates = of.remove(&found.head.seq).unwrap_or_default();
            bytes += found
                .fates
                .iter()
                .map(|fate| FATE_BYTES + fate.bytes())
                .sum::<u64>();
            done += 1;
        }
    }
    Ok(done)
}

/// One look for a page.
struct Search<'d> {
    db: &'d Connection,
    query: &'d Query,
    limit: usize,
    /// Messages with a lower number are meant.
    before: u64,
    page: Vec<HistoryRow>,
    bytes: usize,
    too_old: usize,
}

impl<'d> Search<'d> {
    fn new(db: &'d Connection, query: &'d Query, limit: usize) -> Self {
        Self {
            db,
            query,
            limit: limit.max(1),
            before: query.before.map_or(u64::MAX, |seq| seq.0),
            page: Vec::new(),
            bytes: 0,
            too_old: 0,
        }
    }

    fn page(mut self) -> Result<Page> {
        let mut keys = Vec::new();
        if let Some(name) = &self.query.with {
            keys.push(vec![contents::of_peer(name), contents::of_peer("*")]);
        }
        if let Some(thread) = &self.query.thread {
            keys.push(vec![contents::of_thread(thread)]);
        }
        let all = keys.is_empty();
        let from = if all { 0 } else { tail(self.db)? };
        let more = match &self.query.owed {
            Some(name) => self.wait_for(name)?,
            None => self.scan(from)? || !all && self.look_up(&keys, from)?,
        };
        self.finish(more)
    }

    /// The page, as far as it has room for how deliveries ended. `more`: older ones are meant, too.
    fn finish(mut self, more: bool) -> Result<Page> {
        let whole = with_fates(self.db, &mut self.page, PAGE_BYTES as u64)?;
        let more = more || whole < self.page.len();
        self.page.truncate(whole);
        let last = self.page.last().map(|found| found.head.seq);
        Ok(Page {
            messages: self.page,
            before: last.filter(|_| more),
        })
    }

    /// Goes through messages as they are, down to `from`. Says whether the page is full.
    fn scan(&mut self, from: u64) -> Result<bool> {
        let db = self.db;
        let mut statement = db.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM messages WHERE seq >= ?1 AND seq < ?2 ORDER BY seq DESC"
        ))?;
        let mut rows = statement.query((bound(from), bound(self.before)))?;
        while let Some(row) = rows.next()? {
            if self.is_over() {
                return Ok(!self.is_past());
            }
            let found = found(row)?;
            self.take(found)?;
        }
        Ok(false)
    }

    /// Goes through what waits for the peer of a name.
    fn wait_for(&mut self, name: &str) -> Result<bool> {
        let db = self.db;
        let mut statement = db.prepare_cached(
            "SELECT seq FROM deliveries WHERE seq < ?1 AND recipient IN
                 (SELECT id FROM peers WHERE name = ?2 AND kind = 0
                  UNION SELECT peer FROM aliases WHERE name = ?2)
             ORDER BY seq DESC",
        )?;
        let mut rows = statement.query((bound(self.before), name))?;
        while let Some(row) = rows.next()? {
            if self.is_over() {
                return Ok(!self.is_past());
            }
            if let Some(found) = message(db, row.get(0)?)? {
                self.take(found)?;
            }
        }
        Ok(false)
    }

    /// Goes through what the contents say, below `tail`.
    fn look_up(&mut self, keys: &[Vec<String>], tail: u64) -> Result<bool> {
        let (db, before) = (self.db, self.before);
        let Some(first) = keys.first() else {
            return Ok(false);
        };
        let mark = |n: usize| {
            let key = first.get(n).or(first.first()).map(String::as_str);
            format!("\n{}\t", key.unwrap_or_default())
        };
        let last = self.before.min(tail).saturating_sub(1) / FATES_RUN;
        let mut runs = db.prepare_cached(RUNS)?;
        let mut rows = runs.query((bound(last), mark(0), mark(1)))?;
        while let Some(row) = rows.next()? {
            let run = row.get(0)?;
            let entries = row.get_ref(1)?.as_str()?;
            let mut seqs = contents::under(run, entries, first);
            for others in keys.iter().skip(1) {
                let others = contents::under(run, entries, others);
                seqs.retain(|seq| others.contains(seq));
            }
            for seq in seqs.into_iter().rev().filter(|seq| *seq < before) {
                if self.is_over() {
                    return Ok(!self.is_past());
                }
                if let Some(found) = message(db, seq)? {
                    self.take(found)?;
                }
            }
        }
        Ok(false)
    }

    fn is_over(&self) -> bool {
        self.page.len() >= self.limit || self.bytes >= PAGE_BYTES || self.is_past()
    }

    /// Whether what follows is too old.
    fn is_past(&self) -> bool {
        self.too_old >= TOO_OLD_MAX
    }

    /// Takes a message that is meant. Of what has no text nobody knows whom it is with.
    fn take(&mut self, found: HistoryRow) -> Result<()> {
        if self
            .query
            .since_ms
            .is_some_and(|since| found.head.accepted_ms < since)
        {
            self.too_old += 1;
            return Ok(());
        }
        self.too_old = 0;
        let labels = found
            .envelope
            .as_ref()
            .and_then(|text| Labels::of(text.as_bytes()));
        let Some(labels) = labels else {
            return Ok(());
        };
        if let Some(with) = &self.query.with
            && !self.is_with(with, &labels, &found.head)?
        {
            return Ok(());
        }
        if self.query.thread.is_some() && labels.thread != self.query.thread {
            return Ok(());
        }
        self.bytes += found.envelope.as_ref().map_or(0, String::len);
        self.page.push(found);
        Ok(())
    }

    /// Whether a message is from a name or to it; what is for many is to whom it was owed.
    fn is_with(&self, name: &str, labels: &Labels, head: &MessageHead) -> Result<bool> {
        let same = |other: &str| other.eq_ignore_ascii_case(name);
        if same(&labels.from) || same(&labels.to) {
            return Ok(true);
        }
        if !labels.is_for_many() {
            return Ok(false);
        }
        let ended = fates::of(self.db, &[head.seq], usize::MAX)?;
        if ended.values().flatten().any(|fate| same(&fate.to)) {
            return Ok(true);
        }
        let peer = "SELECT id FROM peers WHERE name = ?1 AND kind = 0";
        let Some(peer) = read::one::<u32>(self.db, peer, [name])? else {
            return Ok(false);
        };
        self.db
            .prepare_cached(
                "SELECT 1 FROM deliveries WHERE recipient = ?1 AND sender = ?2 AND seq = ?3",
            )?
            .exists((peer, head.sender.0, bound(head.seq.0)))
    }
}
