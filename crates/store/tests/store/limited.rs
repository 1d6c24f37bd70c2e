//! A file that may not grow any further, as on a full disk.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use peerbus_core::store::{MessageHead, PeerId, Store as _, Txn as _};
use peerbus_wire::{MessageId, Seq};
use rusqlite::Connection;

use crate::{open, place};

/// Set in the child: the database that it writes.
const CHILD: &str = "PEERBUS_LIMITED_CHILD";
/// What a file may have, in blocks of 512 bytes (1,024 in some shells).
const BLOCKS: usize = 4_096;
/// Messages that do not fit a file of so many blocks, but two: the database and its WAL.
const MESSAGES: u64 = BLOCKS as u64 * 512 / 100_000 + 8;

#[test]
fn a_checkpoint_that_fails_costs_nothing_that_was_committed() {
    let (_directory, path) = place();
    let child = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"",
            "sh",
        ])
        .arg(BLOCKS.to_string())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "limited::writer", "--nocapture"])
        .env(CHILD, &path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(child.status.success(), "{said}");
    let store = open(&path);
    let db = Connection::open(&path).unwrap();
    let count = "SELECT count(*) FROM messages";
    let count = db.query_row(count, [], |row| row.get::<_, i64>(0));
    assert_eq!(count.unwrap(), MESSAGES.cast_signed());
    store.close().unwrap();
}

/// Not a test of its own: what the child process of the test above runs.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let mut store = open(&path);
    let envelope = "x".repeat(100_000);
    for seq in 1..=MESSAGES {
        store.begin().unwrap();
        let id = MessageId::parse(&format!("m{seq}")).unwrap();
        let message = MessageHead {
            seq: Seq(seq),
            sender: PeerId(1),
            id: id.clone(),
            recipients: 1,
            accepted_ms: seq,
            bytes: envelope.len() as u64,
        };
        store.insert_message(&message, &envelope).unwrap();
        store.commit().unwrap();
        while store.maintain().unwrap() {}
    }
    store.close().unwrap();
}
