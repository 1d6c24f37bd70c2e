//! The tables, and how a database gets from an older schema to this one.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use peerbus_os::file;
use rusqlite::{Connection, Transaction, TransactionBehavior};

/// "pbus" in the header of every peerbus database.
pub(crate) const APPLICATION_ID: i32 = 0x7062_7573;

/// Brings a database one schema version further. Runs in a transaction.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Sql(&'static str),
    Code(fn(&Connection) -> rusqlite::Result<()>),
}

/// Step `n` (from 0) leads from schema version `n` to `n + 1`. A step that has been released is
/// never changed; a new version is a new step at the end.
pub(crate) const STEPS: &[Step] = &[
    // Envelope, events and the like stand last: what stands before them is read without the
    // overflow pages. A row of `deliveries` is owed; an ack deletes it and touches nothing else.
    Step::Sql(
        "CREATE TABLE peers(
             id INTEGER PRIMARY KEY,
             name TEXT NOT NULL COLLATE NOCASE UNIQUE,
             owner BLOB,
             generated INTEGER NOT NULL,
             ephemeral INTEGER NOT NULL,
             online INTEGER NOT NULL,
             last_seen_ms INTEGER NOT NULL
         ) STRICT;
         CREATE TABLE messages(
             seq INTEGER PRIMARY KEY,
             sender INTEGER NOT NULL,
             id TEXT NOT NULL,
             recipients INTEGER NOT NULL,
             accepted_ms INTEGER NOT NULL,
             envelope TEXT NOT NULL,
             UNIQUE(sender, id)
         ) STRICT;
         CREATE TABLE deliveries(
             recipient INTEGER NOT NULL,
             seq INTEGER NOT NULL,
             PRIMARY KEY(recipient, seq)
         ) STRICT, WITHOUT ROWID;
         CREATE TABLE dead(
             seq INTEGER NOT NULL,
             recipient INTEGER NOT NULL,
             at_ms INTEGER NOT NULL,
             reason TEXT NOT NULL,
             PRIMARY KEY(seq, recipient)
         ) STRICT, WITHOUT ROWID;
         CREATE INDEX dead_by_time ON dead(at_ms);
         CREATE TABLE notices(
             sender INTEGER NOT NULL,
             number INTEGER NOT NULL,
             id TEXT NOT NULL,
             recipient TEXT NOT NULL,
             dead INTEGER NOT NULL,
             at_ms INTEGER NOT NULL,
             reason TEXT NOT NULL,
             PRIMARY KEY(sender, number)
         ) STRICT, WITHOUT ROWID;
         CREATE INDEX notices_by_time ON notices(at_ms);
         CREATE TABLE audit(
             number INTEGER PRIMARY KEY,
             at_ms INTEGER NOT NULL,
             hash BLOB NOT NULL,
             events TEXT NOT NULL
         ) STRICT;
         CREATE TABLE head(
             one INTEGER PRIMARY KEY CHECK(one = 1),
             blocks INTEGER NOT NULL,
             hash BLOB NOT NULL,
             anchor INTEGER NOT NULL,
             anchor_hash BLOB NOT NULL,
             next_seq INTEGER NOT NULL,
             next_peer INTEGER NOT NULL,
             next_notice INTEGER NOT NULL,
             mac BLOB NOT NULL
         ) STRICT;",
    ),
    // `ending`: 0 for a name that ended and whose mail expires, a peer's number for one whose mail
    // goes there.
    Step::Sql(
        "ALTER TABLE peers ADD COLUMN ending INTEGER;
         CREATE TABLE aliases(
             name TEXT NOT NULL COLLATE NOCASE PRIMARY KEY,
             peer INTEGER NOT NULL,
             own INTEGER NOT NULL,
             used_ms INTEGER NOT NULL
         ) STRICT, WITHOUT ROWID;",
    ),
    // `fates`: how deliveries ended, those of one commit together, apart by `seq / 256` so that a
    // message's are found by a seek (fates.rs has the columns); `total` is the bytes of this row
    // and of all before it. `past`: the heads of messages that were deleted since.
    Step::Sql(
        "CREATE TABLE fates(
             number INTEGER PRIMARY KEY,
             chunk INTEGER NOT NULL,
             at_ms INTEGER NOT NULL,
             total INTEGER NOT NULL,
             ends BLOB NOT NULL,
             recipients BLOB NOT NULL,
             told TEXT NOT NULL
         ) STRICT;
         CREATE INDEX fates_by_chunk ON fates(chunk);
         CREATE TABLE past(
             seq INTEGER PRIMARY KEY,
             sender INTEGER NOT NULL,
             id TEXT NOT NULL,
             recipients INTEGER NOT NULL,
             accepted_ms INTEGER NOT NULL
         ) STRICT;
         CREATE INDEX past_by_id ON past(sender, id);",
    ),
    // The key leads with both peers, so that the first message of each sender is one seek away.
    // `delivered`: what was delivered, as text; NULL while the peer is connected. Of a peer that was
    // not connected it may be all that was accepted before it left.
    Step::Sql(
        "ALTER TABLE deliveries RENAME TO old_deliveries;
         CREATE TABLE deliveries(
             recipient INTEGER NOT NULL,
             sender INTEGER NOT NULL,
             seq INTEGER NOT NULL,
             PRIMARY KEY(recipient, sender, seq)
         ) STRICT, WITHOUT ROWID;
         INSERT INTO deliveries(recipient, sender, seq)
             SELECT d.recipient, coalesce(m.sender, 0), d.seq
             FROM old_deliveries d LEFT JOIN messages m ON m.seq = d.seq
             ORDER BY 1, 2, 3;
         DROP TABLE old_deliveries;
         ALTER TABLE peers ADD COLUMN delivered TEXT;
         UPDATE peers SET delivered =
             (SELECT CAST(coalesce(max(d.seq), 0) AS TEXT)
              FROM deliveries d JOIN messages m ON m.seq = d.seq
              WHERE d.recipient = peers.id AND m.accepted_ms <= peers.last_seen_ms)
         WHERE online = 0;",
    ),
    // `steady_ms`: what ages go by; what stands beside it is told to people. What was written before
    // counts as if the wall clock had been right. Blocks are too many to be rewritten: NULL in those.
    // `used_ms` and the `at_ms` of fates are of the steady clock, too.
    Step::Sql(
        "ALTER TABLE deliveries ADD COLUMN steady_ms INTEGER NOT NULL DEFAULT 0;
         UPDATE deliveries SET steady_ms =
             coalesce((SELECT accepted_ms FROM messages m WHERE m.seq = deliveries.seq), 0);
         ALTER TABLE peers ADD COLUMN last_seen_steady_ms INTEGER NOT NULL DEFAULT 0;
         UPDATE peers SET last_seen_steady_ms = last_seen_ms;
         ALTER TABLE dead ADD COLUMN steady_ms INTEGER NOT NULL DEFAULT 0;
         UPDATE dead SET steady_ms = at_ms;
         DROP INDEX dead_by_time;
         CREATE INDEX dead_by_time ON dead(steady_ms);
         ALTER TABLE notices ADD COLUMN steady_ms INTEGER NOT NULL DEFAULT 0;
         UPDATE notices SET steady_ms = at_ms;
         DROP INDEX notices_by_time;
         CREATE INDEX notices_by_time ON notices(steady_ms);
         ALTER TABLE audit ADD COLUMN steady_ms INTEGER;",
    ),
    // How many bytes of mail wait for a peer, and from it; `token` is what the latter counts for. Of
    // senders that were forgotten the token is not known.
    Step::Sql(
        "CREATE TABLE owed(
             peer INTEGER PRIMARY KEY,
             token BLOB,
             owed_to INTEGER NOT NULL,
             owed_by INTEGER NOT NULL
         ) STRICT;
         WITH sums AS MATERIALIZED (
             SELECT d.recipient, d.sender, sum(octet_length(m.envelope)) AS bytes
             FROM deliveries d JOIN messages m ON m.seq = d.seq
             GROUP BY d.recipient, d.sender),
         sides AS (
             SELECT recipient AS peer, bytes AS owed_to, 0 AS owed_by FROM sums
             UNION ALL SELECT sender, 0, bytes FROM sums)
         INSERT INTO owed
             SELECT s.peer, iif(sum(s.owed_by) > 0, p.owner, NULL), sum(s.owed_to), sum(s.owed_by)
             FROM sides s LEFT JOIN peers p ON p.id = s.peer GROUP BY s.peer;",
    ),
    // `total`: about what this row and all before it take of the disk. What was there before counts
    // for nothing, and goes first.
    Step::Sql(
        "ALTER TABLE dead ADD COLUMN total INTEGER NOT NULL DEFAULT 0;",
    ),
    Step::Code(version_8),
    // Which messages of a run are whose (contents.rs); of those that are there it is written later.
    Step::Sql(
        "CREATE TABLE contents(
             run INTEGER PRIMARY KEY,
             entries TEXT NOT NULL
         ) STRICT;",
    ),
    // How far a bridge is with what it takes, in its own words.
    Step::Sql(
        "ALTER TABLE peers ADD COLUMN mark TEXT;",
    ),
    // The groups of which a peer is a member, separated by spaces.
    Step::Sql(
        "ALTER TABLE peers ADD COLUMN groups TEXT NOT NULL DEFAULT '';",
    ),
    // What is for one member of a group, while it is owed. `had`: the members that have it or had it,
    // separated by spaces, with a `!` those that did not want it.
    Step::Sql(
        "CREATE TABLE jobs(
             seq INTEGER PRIMARY KEY,
             owner BLOB NOT NULL,
             name TEXT NOT NULL,
             holder INTEGER NOT NULL,
             again INTEGER NOT NULL,
             had TEXT NOT NULL
         ) STRICT;",
    ),
    // `kind` (read.rs) says what names said, as `bob ended 17` and `bridge@beta forwarded 18 EPOCH`, whose
    // epoch is its mark now. Mail on its way to a successor (`ending`) is owed to the successor. That one's
    // `delivered` is NULL then: any of its mail may have been delivered.
    Step::Sql(
        "CREATE TEMP TABLE heirs AS SELECT p.id, h.id AS heir
             FROM peers p JOIN peers h ON h.id = p.ending AND h.ending IS NULL;
         UPDATE OR IGNORE deliveries
             SET recipient = (SELECT heir FROM heirs WHERE id = recipient)
             WHERE recipient IN (SELECT id FROM heirs);
         UPDATE peers SET delivered = NULL WHERE id IN (SELECT heir FROM heirs);
         CREATE TEMP TABLE changed AS SELECT id FROM heirs UNION SELECT heir FROM heirs;
         INSERT INTO owed SELECT id, NULL, 0, 0 FROM changed WHERE true ON CONFLICT DO NOTHING;
         UPDATE owed SET owed_to = coalesce(
             (SELECT sum(octet_length(m.envelope)) FROM deliveries d JOIN messages m ON m.seq = d.seq
              WHERE d.recipient = owed.peer), 0)
             WHERE peer IN (SELECT id FROM changed);
         DELETE FROM owed WHERE owed_to = 0 AND owed_by = 0;
         DROP TABLE heirs;
         DROP TABLE changed;
         CREATE TABLE new_peers(
             id INTEGER PRIMARY KEY,
             kind INTEGER NOT NULL,
             name TEXT NOT NULL COLLATE NOCASE,
             owner BLOB,
             generated INTEGER NOT NULL,
             ephemeral INTEGER NOT NULL,
             online INTEGER NOT NULL,
             last_seen_ms INTEGER NOT NULL,
             delivered TEXT,
             last_seen_steady_ms INTEGER NOT NULL,
             mark TEXT,
             groups TEXT NOT NULL
         ) STRICT;
         INSERT INTO new_peers
             SELECT id,
                 CASE WHEN ending IS NOT NULL THEN 1 WHEN instr(name, ' forwarded ') THEN 2 ELSE 0 END,
                 iif(instr(name, ' '), substr(name, 1, instr(name, ' ') - 1), name),
                 owner, generated, ephemeral, online, last_seen_ms, delivered, last_seen_steady_ms,
                 iif(instr(name, ' forwarded '),
                     substr(name, instr(name, ' forwarded ') + length(' forwarded ') + length(id) + 1),
                     mark),
                 groups
             FROM peers;
         DROP TABLE peers;
         ALTER TABLE new_peers RENAME TO peers;
         CREATE UNIQUE INDEX peers_by_name ON peers(name) WHERE kind = 0;",
    ),
    // Leases are for one member of a group (`name`) or for one peer (`peer`); those with a time
    // (`until_ms`, steady clock) are requests. `had`: who has it or had it, separated by spaces, with a `!`
    // those that did not want it. `process`: which one read it, `said`: what its holder said of it last.
    Step::Sql(
        "CREATE TABLE leases(
             seq INTEGER PRIMARY KEY,
             owner BLOB NOT NULL,
             name TEXT,
             peer INTEGER,
             holder INTEGER NOT NULL,
             again INTEGER NOT NULL,
             had TEXT NOT NULL,
             until_ms INTEGER,
             read INTEGER NOT NULL,
             process TEXT,
             said TEXT,
             said_ms INTEGER
         ) STRICT;
         INSERT INTO leases SELECT seq, owner, name, NULL, holder, again, had, NULL, 0, NULL, NULL, NULL
             FROM jobs;
         DROP TABLE jobs;",
    ),
    // What program a peer said last that it is, as JSON.
    Step::Sql("ALTER TABLE peers ADD COLUMN program TEXT;"),
];

/// Why a file's schema is not ours to use. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The file is something else: what was found in it.
    #[error(
        "{} is no peerbus database (found {}); give the path of one, or of a file that does \
         not exist yet",
        .0.display(),
        .1
    )]
    Foreign(PathBuf, String),
    /// A newer peerbus wrote it.
    #[error(
        "{} has schema version {found}, and this peerbus knows versions up to {known}; use the \
         newer peerbus that wrote it, or another database",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// SQLite failed at what was tried, a verb, with the file.
    #[error("cannot {} {}: {}", .0, .1.display(), .2)]
    Sqlite(&'static str, PathBuf, #[source] rusqlite::Error),
}

/// The schema version of the database at `path`; 0 when it has nothing in it yet.
pub(crate) fn version(db: &Connection, path: &Path, known: u32) -> Result<u32, SchemaError> {
    let path = path.to_owned();
    let (application, version, objects) = match marks(db) {
        Ok(found) => found,
        Err(source) => {
            return Err(match source.sqlite_error_code() {
                Some(rusqlite::ErrorCode::NotADatabase) => foreign(path, "no SQLite header"),
                _ => SchemaError::Sqlite("read", path, source),
            });
        }
    };
    if (application, version, objects) == (0, 0, 0) {
        return Ok(0);
    }
    if application != i64::from(APPLICATION_ID) {
        let found = format!("an SQLite database with application id {application}");
        return Err(foreign(path, found));
    }
    match u32::try_from(version) {
        Ok(version) if version <= known => Ok(version),
        Ok(found) => Err(SchemaError::Newer { path, found, known }),
        Err(_) => {
            let found = format!("our application id, but schema version {version}");
            Err(foreign(path, found))
        }
    }
}

fn foreign(path: PathBuf, found: impl Into<String>) -> SchemaError {
    SchemaError::Foreign(path, found.into())
}

/// Where a database's header has how many pages there are, and whose it is.
const PAGES_AT: usize = 28;
const APPLICATION_AT: usize = 68;

/// Fails when the first bytes of a file show that it is none of ours: before anything is made
/// private, or made beside it. What they do not tell, [`version`] does.
pub(crate) fn check_header(path: &Path) -> Result<(), SchemaError> {
    let mut header = Vec::new();
    let read = file::open_regular(path).and_then(|file| file.take(100).read_to_end(&mut header));
    // Whatever is wrong with the file itself is told where it is used.
    if read.is_err() || header.is_empty() {
        return Ok(());
    }
    let number = |at: usize| {
        let bytes = header
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, i32::from_be_bytes)
    };
    let found = match number(APPLICATION_AT) {
        _ if !header.starts_with(b"SQLite format 3\0") => "no SQLite header".to_owned(),
        APPLICATION_ID => return Ok(()),
        // One that was being made has its first page alone.
        0 if number(PAGES_AT) < 2 => return Ok(()),
        other => format!("an SQLite database with application id {other}"),
    };
    Err(foreign(path.to_owned(), found))
}

/// Application id, user version, and how many tables and the like there are.
fn marks(db: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    db.query_row(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
         FROM pragma_application_id, pragma_user_version",
        [],
        |row| row.try_into(),
    )
}

/// Brings the database at `path` to the newest version of `steps`, one transaction a step.
pub(crate) fn migrate(db: &Connection, path: &Path, steps: &[Step]) -> Result<(), SchemaError> {
    let known = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    let from = version(db, path, known)?;
    for (to, step) in (1..=known).zip(steps).skip(from as usize) {
        take(db, *step, to)
            .map_err(|source| SchemaError::Sqlite("migrate", path.to_owned(), source))?;
        // A new file has nothing that was brought anywhere.
        if from > 0 {
            tracing::info!(path = %path.display(), version = to, "database schema brought up");
        }
    }
    Ok(())
}

fn take(db: &Connection, step: Step, to: u32) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    match step {
        Step::Sql(sql) => transaction.execute_batch(sql)?,
        Step::Code(code) => code(&transaction)?,
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", to)?;
    transaction.commit()
}

fn version_8(db: &Connection) -> rusqlite::Result<()> {
    // Messages stay until their last fate goes. Those that ended before get one of nobody, as of now;
    // of those that were deleted, the heads come back without a text. `delivered` and `steps`: what
    // is known of the time before the end (fates.rs).
    db.execute_batch(
        "ALTER TABLE fates ADD COLUMN delivered BLOB;
         ALTER TABLE fates ADD COLUMN steps TEXT;",
    )?;
    crate::fates::end_all(db)?;
    db.execute_batch(
        "INSERT OR IGNORE INTO messages(seq, sender, id, recipients, accepted_ms, envelope)
             SELECT seq, sender, id, recipients, accepted_ms, '' FROM past ORDER BY seq DESC;
         DROP TABLE past;",
    )
}

#[cfg(test)]
mod tests;
