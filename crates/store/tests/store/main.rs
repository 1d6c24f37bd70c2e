//! The store as its users see it: the contract, the files, housekeeping, the audit, crashes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod audit;
mod bodies;
mod contract;
mod crash;
mod files;
mod limited;
mod model;
mod power;
mod shrink;
mod witness;
mod workload;

use std::path::PathBuf;

use peerbus_store::SqliteStore;
use tempfile::TempDir;

/// A directory for a database, and the database's path in it.
fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bus.db");
    (directory, path)
}

fn open(path: &std::path::Path) -> SqliteStore {
    SqliteStore::open(path).unwrap()
}
