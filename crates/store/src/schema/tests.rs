mod kinds;

use peerbus_core::audit::{AuditLog, ChainHead};
use peerbus_core::store::{
    DeliveryHistory, Fate, Inserted, Keep, MessageHead, OwedRow, PeerId, PeerKind, PeerRow,
    Store as _, Txn as _,
};
use peerbus_core::{Stamp, TokenHash};

use std::process::{Command, Stdio};

use peerbus_test_support::power::{self, Disk};
use peerbus_wire::{EnvelopeHash, MessageId, Seq, Stage};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;
use crate::open::{OpenError, open_with};

const AT: Stamp = Stamp {
    wall_ms: 40,
    steady_ms: 40,
};
const KNOWN: u32 = STEPS.len() as u32;

fn next(step: fn(&Connection) -> rusqlite::Result<()>) -> Vec<Step> {
    [STEPS, &[Step::Code(step)]].concat()
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
    let (id, owner, last_seen) = (PeerId(1), None, Stamp::default());
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
            last_seen,
            kind: PeerKind::Peer,
            delivered: None,
            mark: None,
            groups: Default::default(),
            program: None,
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

const TEXTS: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

/// A database with [`VERSION_2`] in it, and its audit chain.
fn version_2_database() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bus.db");
    let store = open_with(&path, &STEPS[..2]).unwrap();
    store.db.execute_batch(VERSION_2).unwrap();
    let key = store.audit_key().clone();
    let (mut head, mut log) = (ChainHead::new(&key), AuditLog::default());
    for number in 1..=6 {
        let text = TEXTS[number as usize - 1];
        let head = MessageHead {
            seq: Seq(number),
            sender: PeerId(1),
            id: MessageId::parse(&format!("m{number}")).unwrap(),
            recipients: if number < 5 { 1 } else { 2 },
            accepted_ms: 0,
            bytes: text.len() as u64,
        };
        log.accept(&head, &EnvelopeHash::of(text.as_bytes()));
    }
    for (seq, recipient) in [(1, 1), (2, 2), (4, 1)] {
        let (seq, recipient, how) = (Seq(seq), PeerId(recipient), None);
        log.ack(seq, recipient, how);
    }
    (head.next_seq, head.next_peer, head.next_notice) = (7, 4, 2);
    let block = log.seal(&key, &mut head, AT);
    let row = (1, 40, block.hash, block.events);
    let sql = "INSERT INTO audit VALUES(?1, ?2, ?3, ?4)";
    store.db.execute(sql, row).unwrap();
    let row = (head.hash, head.anchor_hash, head.mac);
    let sql = "INSERT OR REPLACE INTO head VALUES(1, 1, ?1, 0, ?2, 7, 4, 2, ?3)";
    store.db.execute(sql, row).unwrap();
    store.close().unwrap();
    (directory, path)
}

#[test]
fn mail_in_every_state_is_brought_up() {
    let (_directory, path) = version_2_database();
    is_brought_up(&path);
}

/// Brings the database of [`version_2_database`] up and looks what is in it then.
fn is_brought_up(path: &Path) {
    let mut store = open_with(path, STEPS).unwrap();
    let loaded = store.load().unwrap();
    let delivered: Vec<_> = loaded.peers.into_iter().map(|row| row.delivered).collect();
    let up_to = |seq| Some(peerbus_core::Delivered::parse(&format!("{seq}")).unwrap());
    // Cleo's mail is anna's, and all of it may be old now.
    assert_eq!(delivered, [None, None, up_to(0)]);
    assert_eq!(loaded.aliases.len(), 1);
    store.begin().unwrap();
    let mut queue = |peer| {
        let queue = store.read_queue(PeerId(peer), 10, 1_000).unwrap();
        let queued = queue.into_iter();
        queued
            .map(|message| {
                (
                    message.head.sender.0,
                    message.head.seq.0,
                    message.envelope.to_string(),
                )
            })
            .collect::<Vec<_>>()
    };
    let (three, five, six) = (
        (2, 3, "three".into()),
        (3, 5, "five".into()),
        (1, 6, "six".into()),
    );
    assert_eq!(queue(1), [six.clone(), three, five.clone()]);
    assert_eq!(queue(2), [six, five]);
    assert_eq!(queue(3), []);
    let gone = store.forget_ended(ALL, 10).unwrap();
    assert_eq!(gone.messages, [Seq(1), Seq(4)]);
    assert_eq!(store.notices(PeerId(1), 0, 10).unwrap().len(), 1);
    let old = store.old_deliveries(33, 10).unwrap();
    let old: Vec<_> = old
        .into_iter()
        .map(|(peer, head)| (peer.0, head.seq.0))
        .collect();
    assert_eq!(old, [(1, 3), (1, 5), (2, 5)]);
}

#[test]
fn how_much_mail_waits_in_an_older_database_is_counted_once() {
    let (_directory, path) = version_2_database();
    let token = |last: u8| TokenHash([last; 32]);
    let older = open_with(&path, &STEPS[..5]).unwrap();
    // Anna and cleo have owners. A temporary sender, number 9, is forgotten, and ben holds its mail.
    for (peer, last) in [(1, 1), (3, 2)] {
        let sql = "UPDATE peers SET owner = ?2 WHERE id = ?1";
        older.db.execute(sql, (peer, token(last).0)).unwrap();
    }
    let more = "INSERT INTO messages VALUES(7, 9, 'm7', 1, 34, '£££');
        INSERT INTO deliveries(recipient, sender, seq, steady_ms) VALUES(2, 9, 7, 34);";
    older.db.execute_batch(more).unwrap();
    older.close().unwrap();
    let mut store = open_with(&path, STEPS).unwrap();
    let row = |peer, token, to, by| OwedRow {
        peer: PeerId(peer),
        token,
        to,
        by,
    };
    // 3 `three` is owed to anna, 5 `five` to anna and ben, 6 `six` to ben, and to anna after cleo; 2 is
    // dead.
    let expected = [
        row(1, Some(token(1)), 5 + 4 + 3, 3 + 3),
        row(2, None, 4 + 3 + 6, 5),
        row(3, Some(token(2)), 0, 4 + 4),
        row(9, None, 0, 6),
    ];
    assert_eq!(store.load().unwrap().owed, expected);
    store.begin().unwrap();
    let bytes = |head: MessageHead| head.bytes;
    assert_eq!(store.message(Seq(7)).unwrap().map(bytes), Some(6));
}

#[test]
fn ages_of_an_older_database_go_on_from_its_last_block() {
    let (_directory, path) = version_2_database();
    let older = open_with(&path, &STEPS[..4]).unwrap();
    let dropped = "UPDATE messages SET accepted_ms = 90 WHERE seq = 6";
    older.db.execute_batch(dropped).unwrap();
    older.close().unwrap();
    let mut store = open_with(&path, STEPS).unwrap();
    let loaded = store.load().unwrap();
    assert_eq!(loaded.sealed, Some(AT));
    let seen: Vec<_> = loaded.peers.iter().map(|row| row.last_seen).collect();
    let same = |ms| Stamp {
        wall_ms: ms,
        steady_ms: ms,
    };
    assert_eq!(seen, [30, 10, 5].map(same));
    store.begin().unwrap();
    let mut old = |before_ms| store.old_deliveries(before_ms, 10).unwrap().len();
    assert_eq!([30, 31, 33, 90, 91].map(&mut old), [0, 1, 3, 3, 5]);
    let queued = store.read_queue(PeerId(1), 10, 1_000).unwrap();
    assert_eq!((queued[0].head.seq, queued[0].steady_ms), (Seq(6), 90));
    for (before_ms, gone) in [(21, 0), (22, 1)] {
        assert_eq!(
            store.delete_dead(before_ms, u64::MAX, 10).unwrap().rows,
            gone
        );
        assert_eq!(store.delete_notices(before_ms, 0, 10).unwrap(), gone);
    }
    assert_eq!(store.old_audit(40, 10).unwrap(), None);
    assert_eq!(store.old_audit(41, 10).unwrap().unwrap().at, AT);
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
        goes_on: false,
        way: DeliveryHistory::delivered(7),
    };
    store.begin().unwrap();
    let again = MessageHead {
        seq: Seq(7),
        sender: PeerId(2),
        id: id("m4"),
        recipients: 1,
        accepted_ms: 41,
        bytes: "{}".len() as u64,
    };
    let known = store.insert_message(&again, "{}").unwrap();
    assert!(
        matches!(known, Inserted::Known { same: false, .. }),
        "{known:?}"
    );
    let pair = (PeerId(1), PeerId(2));
    assert!(store.delete_delivery(pair, Seq(3)).unwrap());
    let (mut head, mut log) = (store.load().unwrap().head.unwrap(), AuditLog::default());
    let (seq, recipient, how) = (Seq(3), PeerId(1), None);
    log.ack(seq, recipient, how);
    let block = log.seal(&store.audit_key().clone(), &mut head, AT);
    store.append_audit(&block, &head).unwrap();
    store
        .insert_fates(std::slice::from_ref(&fate), 0, 41)
        .unwrap();
    store.commit().unwrap();
    store.close().unwrap();

    let mut store = open_with(&path, STEPS).unwrap();
    store.begin().unwrap();
    // How the others had ended before is not known.
    let fates = store.fates_of(&[Seq(1), Seq(3)], usize::MAX).unwrap();
    assert_eq!(fates.into_values().flatten().collect::<Vec<_>>(), [fate]);
    store.rollback();
    store.close().unwrap();
    assert_eq!(crate::verify_audit(&path).unwrap().events, 10);
}

#[test]
fn what_an_older_broker_kept_of_deleted_messages_is_known_and_goes_in_its_time() {
    let (_directory, path) = version_2_database();
    let older = open_with(&path, &STEPS[..7]).unwrap();
    let told = r#"{"protocol_version":"v1","type":"receipts","receipts":[{"id":"m","state":"acked","to":"anna","at":20}]}"#;
    let kept = format!(
        "DELETE FROM messages WHERE seq = 1;
         INSERT INTO past VALUES(1, 2, 'gone', 1, 11);
         INSERT INTO fates(chunk, at_ms, total, ends, recipients, told)
             VALUES(0, 20, 200, x'0100000000', x'01000000', '{told}');"
    );
    older.db.execute_batch(&kept).unwrap();
    older.close().unwrap();
    let mut store = open_with(&path, STEPS).unwrap();
    store.begin().unwrap();
    let id = MessageId::parse("gone").unwrap();
    let head = store.find_message(PeerId(2), &id).unwrap().unwrap();
    assert_eq!((head.seq, head.accepted_ms, head.bytes), (Seq(1), 11, 0));
    let fates = &store.fates_of(&[Seq(1)], usize::MAX).unwrap()[&Seq(1)];
    assert_eq!(
        (fates.len(), &*fates[0].to, fates[0].at_ms),
        (1, "anna", 20)
    );
    let old = Keep {
        from_ms: 21,
        ..Keep {
            bytes: u64::MAX,
            ..ALL
        }
    };
    assert_eq!(store.forget_ended(old, 10).unwrap().messages, [Seq(1)]);
    store.commit().unwrap();
    store.close().unwrap();
    crate::verify_audit(&path).unwrap();
}

/// Keeps nothing of what ended.
const ALL: Keep = Keep {
    from_ms: u64::MAX,
    bytes: 0,
    ids_from_ms: u64::MAX,
};

/// Set in the child: the database that it brings up.
const CHILD: &str = "PEERBUS_MIGRATION_CHILD";

/// Not a test of its own: what the child process of the test below runs.
#[test]
fn migrator() {
    if let Some(path) = std::env::var_os(CHILD) {
        open_with(Path::new(&path), STEPS).unwrap();
        // As a kill would end it.
        std::process::exit(0);
    }
}

#[test]
fn a_power_cut_at_any_moment_leaves_a_database_that_can_be_brought_up() {
    let (directory, path) = version_2_database();
    let directory = directory.path().canonicalize().unwrap();
    let tools = tempfile::tempdir().unwrap();
    let trace = tools.path().join("trace");
    let mut disk = Disk::of(&directory);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "schema::tests::migrator"])
        .env(CHILD, directory.join(path.file_name().unwrap()))
        .stdout(Stdio::null());
    power::trace(tools.path(), &mut command, &directory, &trace);
    assert!(command.status().unwrap().success());
    let entries = power::read(&trace);
    assert!(entries.len() > 40, "{}", entries.len());
    let mut rng = StdRng::seed_from_u64(2);
    for entry in entries {
        disk.apply(&entry);
        let found = tempfile::tempdir().unwrap();
        disk.cut(found.path(), &mut |n| rng.random_range(0..n));
        is_brought_up(&found.path().join("bus.db"));
    }
}
