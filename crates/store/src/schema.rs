//! The tables, and how a database gets from an older schema to this one.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// "pbus" in the header of every peerbus database.
pub(crate) const APPLICATION_ID: i32 = 0x7062_7573;

/// Brings a database one schema version further. Runs in a transaction.
pub(crate) type Step = fn(&Connection) -> rusqlite::Result<()>;

/// Step `n` (from 0) leads from schema version `n` to `n + 1`. A step that has been released is
/// never changed; a new version is a new step at the end.
pub(crate) const STEPS: &[Step] = &[version_1, version_2, version_3];

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

#[cfg(test)]
mod tests {
    use peerbus_core::TokenHash;
    use peerbus_core::audit::{Event, Head, Log};
    use peerbus_core::store::{
        AliasRow, Ending, Fate, Inserted, NewMessage, Notice, PeerId, PeerRow, Store as _, Txn as _,
    };
    use peerbus_wire::{MessageId, Seq, Stage};

    use super::*;
    use crate::open::{OpenError, open_with};

    const NEXT: &[Step] = &[version_1, version_2, version_3, add_colour];

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
            let store = open_with(&path, NEXT).unwrap();
            assert_eq!(colours(&store).unwrap(), "anna red");
            assert_eq!(version(&store.db, &path, 4).unwrap(), 4);
        }
        let error = open_with(&path, STEPS).unwrap_err();
        assert!(
            matches!(
                error,
                OpenError::Schema(SchemaError::Newer {
                    found: 4,
                    known: 3,
                    ..
                })
            ),
            "{error}"
        );
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let (_directory, path) = old_database();
        let error = open_with(&path, &[version_1, version_2, version_3, fail_half_way])
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

    /// Everything that can be asked of mail in the database of
    /// [`mail_of_the_previous_version_is_kept_in_every_state`].
    fn mail(store: &mut crate::SqliteStore) -> String {
        let loaded = store.load().unwrap();
        store.begin().unwrap();
        let mut all = format!("{loaded:?}");
        for number in 0..6 {
            let (peer, seq) = (PeerId(u32::try_from(number).unwrap()), Seq(number));
            let queue = store.read_queue(peer, Seq(0), 9, 9_999).unwrap();
            let (head, pending) = (store.message(seq).unwrap(), store.pending_for(seq).unwrap());
            let notices = store.notices(peer, 0, 9).unwrap();
            all += &format!("{queue:?} {head:?} {pending:?} {notices:?}");
        }
        all += &format!("{:?}", store.settled(Seq(0), 9).unwrap());
        all += &format!("{:?}", store.old_audit(u64::MAX, 9).unwrap());
        store.rollback();
        all
    }

    fn write_mail(store: &mut crate::SqliteStore) {
        let key = store.audit_key().clone();
        let (mut head, mut log) = (Head::new(&key), Log::default());
        store.begin().unwrap();
        // A sender, a recipient, a temporary one, a name that ended with mail.
        for (id, ending) in [(1, None), (2, None), (3, None), (4, Some(Ending::Expire))] {
            let row = PeerRow {
                id: PeerId(id),
                name: format!("peer-{id}"),
                owner: Some(TokenHash([7; 32])),
                generated: id == 2,
                ephemeral: id == 3,
                online: id == 1,
                last_seen_ms: 5,
                ending,
            };
            store.put_peer(&row).unwrap();
        }
        let (name, peer) = ("peer-old".to_owned(), PeerId(2));
        let (own, used_ms) = (true, 3);
        let alias = AliasRow {
            name,
            peer,
            own,
            used_ms,
        };
        store.put_alias(&alias).unwrap();
        // Queued or in flight; acked; rejected; a broadcast that one of two has acked; for the
        // name that ended.
        let owed: [&[u32]; 5] = [&[2], &[], &[], &[3], &[4]];
        for (number, owed) in (1..).zip(owed) {
            let id = MessageId::parse(&format!("m{number}")).unwrap();
            let (seq, sender, envelope) = (Seq(number), PeerId(1), r#"{"id":"m"}"#);
            let (recipients, accepted_ms) = (if number == 4 { 2 } else { 1 }, number);
            let message = NewMessage {
                seq,
                sender,
                id: &id,
                envelope,
                recipients,
                accepted_ms,
            };
            store.insert_message(&message).unwrap();
            for recipient in owed {
                store.insert_delivery(PeerId(*recipient), seq).unwrap();
            }
            let id = &id;
            log.push(&Event::Accept {
                seq,
                sender,
                id,
                recipients,
            });
        }
        store.insert_dead(PeerId(2), Seq(3), "forged", 8).unwrap();
        let notice = Notice {
            number: 1,
            sender: PeerId(1),
            id: MessageId::parse("m3").unwrap(),
            to: "peer-2".into(),
            dead: true,
            reason: "forged".into(),
            at_ms: 8,
        };
        store.insert_notice(&notice).unwrap();
        (head.next_seq, head.next_peer, head.next_notice) = (6, 5, 2);
        let block = log.seal(&key, &mut head, 9);
        store.append_audit(&block, &head).unwrap();
        store.commit().unwrap();
    }

    #[test]
    fn mail_of_the_previous_version_is_kept_in_every_state() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bus.db");
        let mut store = open_with(&path, &[version_1, version_2]).unwrap();
        write_mail(&mut store);
        let before = mail(&mut store);
        store.close().unwrap();

        let mut store = crate::SqliteStore::open(&path).unwrap();
        assert_eq!(mail(&mut store), before);
        // How its mail ends is kept from now on; what had ended is not known.
        let id = |id: &str| MessageId::parse(id).unwrap();
        let fate = Fate {
            seq: Seq(1),
            recipient: PeerId(2),
            to: "peer-2".into(),
            stage: Stage::Acked(None),
            at_ms: 12,
        };
        store.begin().unwrap();
        let again = NewMessage {
            seq: Seq(6),
            sender: PeerId(1),
            id: &id("m2"),
            envelope: "{}",
            recipients: 1,
            accepted_ms: 11,
        };
        let known = store.insert_message(&again).unwrap();
        assert!(
            matches!(known, Inserted::Known { same: false, .. }),
            "{known:?}"
        );
        assert!(store.delete_delivery(PeerId(2), Seq(1)).unwrap());
        store.insert_fates(std::slice::from_ref(&fate), 12).unwrap();
        store.delete_messages(&[Seq(1), Seq(2)]).unwrap();
        store.commit().unwrap();
        store.close().unwrap();
        let mut store = crate::SqliteStore::open(&path).unwrap();
        store.begin().unwrap();
        assert_eq!(store.fates(Seq(1)).unwrap(), [fate]);
        let head = store.find_past(PeerId(1), &id("m1")).unwrap();
        assert_eq!(head.map(|head| head.seq), Some(Seq(1)));
        assert_eq!(store.find_past(PeerId(1), &id("m2")).unwrap(), None);
        store.rollback();
        store.close().unwrap();
        assert_eq!(crate::verify_audit(&path).unwrap().events, 5);
    }

    #[test]
    fn a_new_database_takes_every_step() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bus.db");
        let store = open_with(&path, NEXT).unwrap();
        assert_eq!(version(&store.db, &path, 4).unwrap(), 4);
    }
}
