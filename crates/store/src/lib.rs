//! SQLite behind the core's [`Store`](peerbus_core::store::Store) trait. All SQL of peerbus lives
//! in this crate.
//!
//! [`SqliteStore`] is the broker's one writer. Beside the database `bus.db` lie `bus.db-wal` and
//! `bus.db-shm` (SQLite's own), `bus.db.lock` (who has it open for writing), `bus.db.reserve` (room for bad times),
//! `bus.db.audit-key` (what the audit chain is keyed with) and `bus.db.witness` (how far the chain
//! was durable a moment ago). [`verify_audit`] reads a database that
//! a broker may have open, and changes nothing.
//!
//! # Durability
//!
//! The database is in WAL mode with `synchronous=FULL`: `commit` returns after the WAL is on the
//! disk. A commit that fails is final: the caller stops, since its memory may be ahead.
//!
//! # Checkpoints
//!
//! SQLite cannot stop a checkpoint half-way and go on later, but a checkpoint costs no more than
//! the frames written since the last one. So [`SqliteStore::maintain`], called between
//! transactions, checkpoints as soon as 256 frames are waiting. That is a slice of about a
//! millisecond, it happens after the outputs of a commit have left instead of inside the commit,
//! and the WAL stays at a few MiB, which recovers in milliseconds. SQLite's own
//! checkpoint (`wal_autocheckpoint=8000`) is left on for callers that never call `maintain`. A
//! checkpoint that fails is a warning: the WAL has everything.
//!
//! # Locks of others
//!
//! A lock that another program holds on the database is waited for, at most 30 s, with a warning.

mod backup;
mod bodies;
mod contents;
mod fates;
mod files;
mod forget;
mod history;
mod key;
mod leases;
mod lock;
mod maintain;
mod open;
mod owed;
mod read;
mod schema;
mod space;
mod sqlite;
mod txn;
mod verify;
mod watch;
mod witness;

pub use backup::{BackupError, Restored, backup, restore};
pub use history::{History, HistoryRow, Page, Query};
pub use key::KeyError;
pub use lock::name_socket;
pub use open::OpenError;
pub use owed::QueueBreak;
pub use schema::SchemaError;
pub use sqlite::SqliteStore;
pub use verify::{AuditReport, ChainError, Witnessed, read_audit, verify_audit};
pub use witness::WitnessFile;
