//! Verifying the audit chain of a database that a broker may have open.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use peerbus_core::audit::{AuditKey, Block, Break, ChainHead, Hash, Verifier};
use peerbus_core::witness::{Missing, Witness};
use peerbus_os::uri;
use peerbus_wire::{hex, utc};
use rusqlite::{Connection, Error, OpenFlags, Row};

use crate::bodies::{self, Bodies};
use crate::owed::{Owed, QueueBreak};
use crate::schema::{self, STEPS, SchemaError};
use crate::{KeyError, files, key, read, witness};

/// What a chain that verifies holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditReport {
    /// The database, without symbolic links.
    pub path: PathBuf,
    /// Number of the last block that retention dropped, where verification started; 0: none.
    pub anchor: u64,
    /// The hash that the chain starts from.
    pub anchor_hash: Hash,
    /// Number of the last block; equal to `anchor` when the chain is empty.
    pub last: u64,
    /// Its hash.
    pub head_hash: Hash,
    /// How many blocks were verified.
    pub blocks: u64,
    /// How many events they hold.
    pub events: u64,
    /// When the first of them was sealed, in milliseconds since the Unix epoch.
    pub first_ms: Option<u64>,
    /// When the last of them was sealed, in milliseconds since the Unix epoch.
    pub last_ms: Option<u64>,
    /// How many deliveries wait whose acceptance retention dropped: the chain says nothing of them.
    pub older: u64,
    /// How many stored messages are as they were accepted.
    pub intact: u64,
    /// How many stored messages were accepted before the chain kept their hashes, or before its
    /// first block: whether they are as they were accepted is not known.
    pub unhashed: u64,
    /// What the witness file says of the chain's end.
    pub witness: Witnessed,
}

/// What a witness file says of a chain that verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Witnessed {
    /// The chain holds what the witness saw.
    Whole(Witness),
    /// There is no witness: commits that are missing at the end are not noticed.
    None,
    /// It is of no use, and why: as without one.
    Unreadable(String),
}

impl fmt::Display for Witnessed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNKNOWN: &str = "whether the end was cut off cannot be known";
        match self {
            Self::Whole(witness) => {
                let (block, at) = (witness.blocks, zulu(witness.at_ms));
                write!(f, "the witness saw block {block} at {at}")?;
                match witness.epoch {
                    0 => Ok(()),
                    losses => write!(f, "; losses acknowledged: {losses}"),
                }
            }
            Self::None => write!(f, "there is no witness: {UNKNOWN}"),
            Self::Unreadable(why) => {
                write!(f, "warning: the witness is of no use ({why}): {UNKNOWN}")
            }
        }
    }
}

/// `1 block`, `2 blocks`.
fn plural(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = |hash: &Hash| hex::encode(hash);
        write!(
            f,
            "{}: {}, {}",
            self.path.display(),
            plural(self.blocks, "block"),
            plural(self.events, "event")
        )?;
        if let (Some(first), Some(last)) = (self.first_ms, self.last_ms) {
            write!(f, ", from {} to {}", zulu(first), zulu(last))?;
        }
        match self.anchor {
            0 => write!(f, "; whole")?,
            anchor => {
                let start = hash(&self.anchor_hash);
                write!(
                    f,
                    "; blocks up to {anchor} were dropped by retention (anchor {start})"
                )?;
            }
        }
        f.write_str("; the queue agrees")?;
        match self.older {
            0 => {}
            1 => f.write_str(", but for 1 delivery that is older than the chain")?,
            older => write!(
                f,
                ", but for {older} deliveries that are older than the chain"
            )?,
        }
        match (self.intact, self.unhashed) {
            (0, 0) => {}
            (1, _) => f.write_str("; 1 stored message is as it was accepted")?,
            (intact, _) => write!(f, "; {intact} stored messages are as they were accepted")?,
        }
        if self.unhashed > 0 {
            let older = plural(self.unhashed, "older one");
            write!(f, ", of {older} that is not known")?;
        }
        let (last, end, witness) = (self.last, hash(&self.head_hash), &self.witness);
        write!(f, "; ends at block {last} with {end}; {witness}")
    }
}

/// Why a chain does not verify, or could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// There is no such file, or it cannot be reached.
    #[error("cannot read {}: {}; give the path of a peerbus database", .0.display(), .1)]
    File(PathBuf, #[source] io::Error),
    /// The file is something else: what was found in it.
    #[error("{} is no peerbus database (found {}); give the path of one", .0.display(), .1)]
    Foreign(PathBuf, String),
    /// A newer peerbus wrote the file.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The schema version of the database is older than this program's.
    #[error(
        "{} has schema version {}, this peerbus reads {}; start the broker once, which \
         migrates it",
        .0.display(),
        .1,
        .2
    )]
    Older(PathBuf, u32, u32),
    /// The audit key is missing or unusable.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// SQLite cannot read what is there.
    #[error("{} is damaged or unreadable: {}", .0.display(), .1)]
    Damaged(PathBuf, #[source] Error),
    /// The chain is whole, and nothing was ever written to it.
    #[error("{}: nothing yet; the audit chain begins with the first registration", .0.display())]
    Nothing(PathBuf),
    /// The chain holds and is not all that there was.
    #[error(
        "{} is not all that there was: {missing}; put the files back if you have them, or run \
         `peerbus audit acknowledge`",
        .path.display()
    )]
    Missing {
        /// The database.
        path: PathBuf,
        /// What is known of the rest.
        missing: Missing,
    },
    /// The chain holds and the queue does not agree with it: where.
    #[error("the queue of {} was changed outside the broker: {}", .0.display(), .1)]
    Queue(PathBuf, #[source] QueueBreak),
    /// The chain does not hold: where.
    #[error("the audit chain of {} is broken: {}", .0.display(), .1)]
    Broken(PathBuf, #[source] Break),
}

/// Verifies the audit chain of the database at `path`, block by block, from one snapshot. A broker
/// may have the database open; it is not held up, but its WAL grows until the reading ends.
/// Changes nothing and takes no lock. (A WAL whose `-shm` is gone, in a copy for instance, makes
/// SQLite rebuild that index.)
///
/// # Errors
///
/// Names the file that is missing or unusable, or the block at which the chain breaks.
pub fn verify_audit(path: &Path) -> Result<AuditReport, ChainError> {
    read_audit(path, &mut |_| ())
}

/// As [`verify_audit`], and gives each block that verifies. When a broker begins meanwhile, those
/// that were given already come again.
///
/// # Errors
///
/// As [`verify_audit`]; the blocks before a break were given.
pub fn read_audit(path: &Path, each: &mut dyn FnMut(&Block)) -> Result<AuditReport, ChainError> {
    let unreadable = |source| ChainError::File(path.to_owned(), source);
    let path = path.canonicalize().map_err(unreadable)?;
    files::regular(&path).map_err(unreadable)?;
    // Before the database: what it names is in any later snapshot.
    let text = witness::text(&path);
    // Without a WAL nobody has the database open: it is read as it lies there. Through the WAL,
    // SQLite would leave files beside it.
    if !wal_exists(&path) {
        let before = stamp(&path).map_err(unreadable)?;
        let result = verify(&path, Access::Quiet, &text, each);
        if !wal_exists(&path) && stamp(&path).map_err(unreadable)? == before {
            return result;
        }
    }
    verify(&path, Access::Live, &text, each)
}

pub(crate) enum Access {
    /// No broker has the database open.
    Quiet,
    /// One may.
    Live,
}

fn wal_exists(path: &Path) -> bool {
    files::beside(path, "-wal").exists()
}

/// Tells whether the file was written to in the meantime.
fn stamp(path: &Path) -> io::Result<(u64, SystemTime)> {
    let metadata = path.metadata()?;
    Ok((metadata.len(), metadata.modified()?))
}

fn verify(
    path: &Path,
    access: Access,
    witness: &io::Result<Option<String>>,
    each: &mut dyn FnMut(&Block),
) -> Result<AuditReport, ChainError> {
    let damaged = damaged(path);
    let db = connect(path, access).map_err(&damaged)?;
    check_schema(&db, path)?;
    let key = key::read(path)?;
    db.execute_batch("BEGIN").map_err(&damaged)?;
    let report = follow(&db, path, &key, each)?;
    let witness = match witness::decode(&key, witness) {
        Ok(None) => Witnessed::None,
        Ok(Some(witness)) => Witnessed::Whole(witness),
        Err(why) => Witnessed::Unreadable(why.to_string()),
    };
    let report = AuditReport { witness, ..report };
    if let Witnessed::Whole(witness) = &report.witness {
        let head = read::head(&db).map_err(&damaged)?;
        let head = head.unwrap_or_else(|| ChainHead::new(&key));
        if let Some(missing) = witness::missing(&db, &head, witness).map_err(&damaged)? {
            let path = path.to_owned();
            return Err(ChainError::Missing { path, missing });
        }
    }
    match report.last {
        0 => Err(ChainError::Nothing(path.to_owned())),
        _ => Ok(report),
    }
}

/// What is said when SQLite cannot read the database at `path`.
fn damaged(path: &Path) -> impl Fn(Error) -> ChainError {
    let path = path.to_owned();
    move |source| ChainError::Damaged(path.clone(), source)
}

/// Fails unless a database has the schema that this program reads.
pub(crate) fn check_schema(db: &Connection, path: &Path) -> Result<(), ChainError> {
    let known = u32::try_from(STEPS.len()).unwrap_or(u32::MAX);
    let version = schema::version(db, path, known).map_err(|error| match error {
        SchemaError::Sqlite(_, _, source) => damaged(path)(source),
        SchemaError::Foreign(path, found) => ChainError::Foreign(path, found),
        newer @ SchemaError::Newer { .. } => newer.into(),
    })?;
    match version {
        0 => Err(ChainError::Foreign(path.to_owned(), "nothing in it".into())),
        found if found < known => Err(ChainError::Older(path.to_owned(), found, known)),
        _ => Ok(()),
    }
}

pub(crate) fn connect(path: &Path, access: Access) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match access {
        Access::Live => Connection::open_with_flags(path, flags),
        Access::Quiet => {
            let path = uri::encode(path.as_os_str().as_encoded_bytes());
            let uri = format!("file:{path}?immutable=1");
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
        }
    }
}

pub(crate) fn follow(
    db: &Connection,
    path: &Path,
    key: &AuditKey,
    each: &mut dyn FnMut(&Block),
) -> Result<AuditReport, ChainError> {
    let damaged = damaged(path);
    let broken = |source| ChainError::Broken(path.to_owned(), source);
    let head = match read::head(db) {
        Err(Error::FromSqlConversionFailure(..) | Error::IntegralValueOutOfRange(..)) => {
            return Err(broken(Break::Head));
        }
        head => head.map_err(&damaged)?,
    };
    let mut stored = db.prepare(bodies::STORED).map_err(&damaged)?;
    let stored = stored.query([]).map_err(&damaged)?;
    let mut bodies = Bodies::new(stored, head.as_ref()).map_err(&damaged)?;
    let mut verifier = Verifier::new(key, head).map_err(broken)?;
    let (mut blocks, mut events) = (0, 0);
    let mut owed = Owed::default();
    let (mut first_ms, mut last_ms) = (None, None);
    let mut statement = db
        .prepare(
            "SELECT number, at_ms, hash, events, coalesce(steady_ms, at_ms)
             FROM audit ORDER BY number",
        )
        .map_err(&damaged)?;
    let mut rows = statement.query([]).map_err(&damaged)?;
    while let Some(row) = rows.next().map_err(&damaged)? {
        let block = block(row).map_err(&damaged)?.map_err(broken)?;
        verifier.block(&block).map_err(broken)?;
        each(&block);
        blocks += 1;
        events += block.events.lines().count() as u64;
        owed.block(&block.events);
        bodies.block(&block.events).map_err(&damaged)?;
        first_ms = first_ms.or(Some(block.at.wall_ms));
        last_ms = Some(block.at.wall_ms);
    }
    let head = verifier.finish().map_err(broken)?;
    let compared = owed.compare(db, &head).map_err(&damaged)?;
    let changed = |source| ChainError::Queue(path.to_owned(), source);
    let older = compared.map_err(changed)?;
    let seq = db.query_row(bodies::OWED_WITHOUT_TEXT, [], |row| row.get(0));
    let seq = seq.map_err(&damaged)?;
    if seq > 0 {
        return Err(changed(QueueBreak::Altered(seq)));
    }
    let (intact, unhashed) = bodies.finish().map_err(&damaged)?.map_err(changed)?;
    Ok(AuditReport {
        path: path.to_owned(),
        anchor: head.anchor,
        anchor_hash: head.anchor_hash,
        last: head.blocks,
        head_hash: head.hash,
        blocks,
        events,
        first_ms,
        last_ms,
        older,
        intact,
        unhashed,
        witness: Witnessed::None,
    })
}

/// A row that no broker can have written is an altered block, not an unreadable database.
fn block(row: &Row<'_>) -> rusqlite::Result<Result<Block, Break>> {
    let number = row.get(0)?;
    Ok(read::block(row).map_err(|_| Break::Block { number }))
}

/// A time in milliseconds as `2026-01-31T23:59:59Z`.
fn zulu(at_ms: u64) -> String {
    utc(at_ms / 1_000) + "Z"
}
