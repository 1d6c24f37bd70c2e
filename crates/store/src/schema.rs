//! The tables, and how a database gets from an older schema to this one.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// "pbus" in the header of every peerbus database.
pub(crate) const APPLICATION_ID: i32 = 0x7062_7573;

/// Brings a database one schema version further. Runs in a transaction.
pub(crate) type Step = fn(&Connection) -> rusqlite::Result<()>;

/// Step `n` (from 0) leads from schema version `n` to `n + 1`. A step that has been released is
/// never changed; a new version is a new step at the end.
pub(crate) const STEPS: &[Step] = &[version_1, version_2, version_3, version_4];

/// Why a file's schema is not ours to use. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The file is something else.
    #[error(
        "{} is no peerbus database (found {found}); give the path of one, or of a file that does \
         not exist yet",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What was found in it.
        found: String,
    },
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
    /// SQLite failed.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Sqlite {
        /// What was tried, as a verb.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

/// The schema version of the database at `path`; 0 when it has nothing in it yet.
pub(crate) fn version(db: &Connection, path: &Path, known: u32) -> Result<u32, SchemaError> {
    let path = path.to_owned();
    let (application, version, objects) = match marks(db) {
        Ok(found) => found,
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => {
            return Err(SchemaError::Foreign {
                path,
                found: "no SQLite header".into(),
            });
        }
        Err(source) => {
            return Err(SchemaError::Sqlite {
                doing: "read",
                path,
                source,
            });
        }
    };
    match (application, version, objects) {
        (0, 0, 0) => Ok(0),
        (application, version, _) if application == i64::from(APPLICATION_ID) => {
            match u32::try_from(version) {
                Ok(version) if version <= known => Ok(version),
                Ok(found) => Err(SchemaError::Newer { path, found, known }),
                Err(_) => Err(SchemaError::Foreign {
                    path,
                    found: format!("our application id, but schema version {version}"),
                }),
            }
        }
        _ => Err(SchemaError::Foreign {
            path,
            found: format!("an SQLite database with application id {application}"),
        }),
    }
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
        take(db, *step, to).map_err(|source| SchemaError::Sqlite {
            doing: "migrate",
            path: path.to_owned(),
            source,
        })?;
        tracing::info!(path = %path.display(), version = to, "database schema brought up");
    }
    Ok(())
}

fn take(db: &Connection, step: Step, to: u32) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    step(&transaction)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", to)?;
    transaction.commit()
}

fn version_1(db: &Connection) -> rusqlite::Result<()> {
    // Envelope, events and the like stand last: what stands before them is read without the
    // overflow pages. A row of `deliveries` is owed; an ack deletes it and touches nothing else.
    db.execute_batch(
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
    )
}

fn version_2(db: &Connection) -> rusqlite::Result<()> {
    // `ending`: 0 for a name that ended and whose mail expires, a peer's number for one whose mail
    // goes there.
    db.execute_batch(
        "ALTER TABLE peers ADD COLUMN ending INTEGER;
         CREATE TABLE aliases(
             name TEXT NOT NULL COLLATE NOCASE PRIMARY KEY,
             peer INTEGER NOT NULL,
             own INTEGER NOT NULL,
             used_ms INTEGER NOT NULL
         ) STRICT, WITHOUT ROWID;",
    )
}

fn version_3(db: &Connection) -> rusqlite::Result<()> {
    // `fates`: how deliveries ended, those of one commit together, apart by `seq / 256` so that a
    // message's are found by a seek (fates.rs has the columns); `total` is the bytes of this row
    // and of all before it. `past`: the heads of messages that were deleted since.
    db.execute_batch(
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
    )
}

fn version_4(db: &Connection) -> rusqlite::Result<()> {
    // The key leads with both peers, so that the first message of each sender is one seek away.
    // `delivered`: what was delivered, as text; NULL while the peer is connected. Of a peer that was
    // not connected it may be all that was accepted before it left.
    db.execute_batch(
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
    )
}

#[cfg(test)]
mod tests {
    use peerbus_core::audit::{Event, Head, Log};
    use peerbus_core::store::{Fate, Inserted, NewMessage, PeerId, PeerRow, Store as _, Txn as _};

    use peerbus_wire::{MessageId, Seq, Stage};

    use super::*;
    use crate::open::{OpenError, open_with};

    const KNOWN: u32 = STEPS.len() as u32;

    fn next(step: Step) -> Vec<Step> {
        [STEPS, &[step]].concat()
    }

    fn add_colour(db: &Connection) -> rusqlite::Result<()> {
        db.execute_batch("ALTER TABLE peers ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'")
    }

    fn fail_half_way(db: &Connection) -> rusqlite::Result<()> {
        add_colour(db)?;
        db.execute_batch("DROP TABLE there_is_none")
    }

    /// A database of the newest version with a peer in it.
    fn old_database() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bus.db");
        let mut store = open_with(&path, STEPS).unwrap();
        let name = "anna".to_owned();
        let (id, owner, last_seen_ms) = (PeerId(1), None, 1);
        let (generated, ephemeral, online) = (false, false, false);
        store.begin().unwrap();
        store
            .put_peer(&PeerRow {
                id,
                name,
                owner,
                generated,
                ephemeral,
                online,
                last_seen_ms,
                ending: None,
                delivered: None,
            })
            .unwrap();
        store.commit().unwrap();
        store.close().unwrap();
        (directory, path)
    }

    fn colours(store: &crate::SqliteStore) -> rusqlite::Result<String> {
        store
            .db
            .query_row("SELECT name || ' ' || colour FROM peers", [], |row| {
                row.get(0)
            })
    }

    #[test]
    fn an_older_database_is_brought_up_once_and_keeps_its_rows() {
        let (_directory, path) = old_database();
        for _ in 0..2 {
            let store = open_with(&path, &next(add_colour)).unwrap();
            assert_eq!(colours(&store).unwrap(), "anna red");
            assert_eq!(version(&store.db, &path, KNOWN + 1).unwrap(), KNOWN + 1);
        }
        let error = open_with(&path, STEPS).unwrap_err();
        assert!(
            matches!(
                error,
                OpenError::Schema(SchemaError::Newer { found, known, .. })
                    if (found, known) == (KNOWN + 1, KNOWN)
            ),
            "{error}"
        );
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let (_directory, path) = old_database();
        let error = open_with(&path, &next(fail_half_way))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("cannot migrate") && error.contains("there_is_none"),
            "{error}"
        );
        let mut store = open_with(&path, STEPS).unwrap();
        assert!(colours(&store).is_err());
        assert_eq!(store.load().unwrap().peers.len(), 1);
    }

    #[test]
    fn a_new_database_takes_every_step() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bus.db");
        let store = open_with(&path, &next(add_colour)).unwrap();
        assert_eq!(version(&store.db, &path, KNOWN + 1).unwrap(), KNOWN + 1);
    }

    /// Mail in every state, as version 2 keeps it: anna is away, ben was connected, cleo's name has
    /// ended. Messages 1 and 4 are settled, 2 is dead at ben, 3 and 5 are pending for anna, who left
    /// at 30, 5 and 6 for ben, and 6 for cleo.
    const VERSION_2: &str = "
        INSERT INTO peers VALUES(1, 'anna', NULL, 0, 0, 0, 30, NULL);
        INSERT INTO peers VALUES(2, 'ben', NULL, 0, 0, 1, 10, NULL);
        INSERT INTO peers VALUES(3, 'cleo ended 3', NULL, 0, 0, 0, 5, 1);
        INSERT INTO aliases VALUES('ann', 1, 1, 7);
        INSERT INTO messages VALUES(1, 2, 'm1', 1, 10, 'one'), (2, 1, 'm2', 1, 20, 'two'),
            (3, 2, 'm3', 1, 30, 'three'), (4, 2, 'm4', 1, 31, 'four'), (5, 3, 'm5', 2, 32, 'five'),
            (6, 1, 'm6', 2, 33, 'six');
        INSERT INTO deliveries VALUES(1, 3), (1, 5), (2, 5), (2, 6), (3, 6);
        INSERT INTO dead VALUES(2, 2, 21, 'forged');
        INSERT INTO notices VALUES(1, 1, 'm2', 'ben', 1, 21, 'forged');";

    /// A database with [`VERSION_2`] in it, and its audit chain.
    fn version_2_database() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bus.db");
        let mut store = open_with(&path, &[version_1, version_2]).unwrap();
        store.db.execute_batch(VERSION_2).unwrap();
        let key = store.audit_key().clone();
        let (mut head, mut log) = (Head::new(&key), Log::default());
        for number in 1..=6 {
            log.push(&Event::Accept {
                seq: Seq(number),
                sender: PeerId(1),
                id: &MessageId::parse(&format!("m{number}")).unwrap(),
                recipients: 1,
            });
        }
        (head.next_seq, head.next_peer, head.next_notice) = (7, 4, 2);
        let block = log.seal(&key, &mut head, 40);
        store.begin().unwrap();
        store.append_audit(&block, &head).unwrap();
        store.commit().unwrap();
        store.close().unwrap();
        (directory, path)
    }

    #[test]
    fn mail_in_every_state_is_brought_up() {
        let (_directory, path) = version_2_database();
        let mut store = open_with(&path, STEPS).unwrap();
        let loaded = store.load().unwrap();
        let delivered: Vec<_> = loaded.peers.into_iter().map(|row| row.delivered).collect();
        let up_to = |seq| Some(format!("{seq}").parse().unwrap());
        assert_eq!(delivered, [up_to(3), None, up_to(0)]);
        assert_eq!(loaded.aliases.len(), 1);
        store.begin().unwrap();
        let mut queue = |peer| {
            let queue = store.read_queue(PeerId(peer), 10, 1_000).unwrap();
            let queued = queue.into_iter();
            queued
                .map(|message| {
                    (
                        message.sender.0,
                        message.seq.0,
                        message.envelope.to_string(),
                    )
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(queue(1), [(2, 3, "three".into()), (3, 5, "five".into())]);
        assert_eq!(queue(2), [(1, 6, "six".into()), (3, 5, "five".into())]);
        assert_eq!(queue(3), [(1, 6, "six".into())]);
        let (settled, _) = store.settled(Seq(0), 10).unwrap();
        assert_eq!(settled, [Seq(1), Seq(4)]);
        assert_eq!(store.notices(PeerId(1), 0, 10).unwrap().len(), 1);
        let old = store.old_deliveries(33, 10).unwrap();
        let old: Vec<_> = old
            .into_iter()
            .map(|(peer, head)| (peer.0, head.seq.0))
            .collect();
        assert_eq!(old, [(1, 3), (1, 5), (2, 5)]);
    }

    #[test]
    fn how_mail_of_an_older_database_ends_is_kept_from_now_on() {
        let (_directory, path) = version_2_database();
        let mut store = open_with(&path, STEPS).unwrap();
        let id = |id: &str| MessageId::parse(id).unwrap();
        let fate = Fate {
            seq: Seq(3),
            recipient: PeerId(1),
            to: "anna".into(),
            stage: Stage::Acked(None).into(),
            at_ms: 41,
        };
        store.begin().unwrap();
        let again = NewMessage {
            seq: Seq(7),
            sender: PeerId(2),
            id: &id("m4"),
            envelope: "{}",
            recipients: 1,
            accepted_ms: 41,
        };
        let known = store.insert_message(&again).unwrap();
        assert!(
            matches!(known, Inserted::Known { same: false, .. }),
            "{known:?}"
        );
        let pair = (PeerId(1), PeerId(2));
        assert!(store.delete_delivery(pair, Seq(3)).unwrap());
        store.insert_fates(std::slice::from_ref(&fate), 41).unwrap();
        store.delete_messages(&[Seq(3), Seq(1)]).unwrap();
        store.commit().unwrap();
        store.close().unwrap();

        let mut store = open_with(&path, STEPS).unwrap();
        store.begin().unwrap();
        assert_eq!(store.fates(Seq(3)).unwrap(), [fate]);
        let head = store.find_past(PeerId(2), &id("m3")).unwrap();
        assert_eq!(head.map(|head| head.seq), Some(Seq(3)));
        // How it had ended before is not known.
        assert_eq!(store.find_past(PeerId(2), &id("m1")).unwrap(), None);
        store.rollback();
        store.close().unwrap();
        assert_eq!(crate::verify_audit(&path).unwrap().events, 6);
    }
}
