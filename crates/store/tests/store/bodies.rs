//! `verify_audit`: what it says of queue and bodies beside the chain.

use std::fs;
use std::path::Path;

use peerbus_core::audit::{self, AuditLog, ChainHead};
use peerbus_core::store::{Fate, Inserted, Keep, MessageHead, PeerId, Store as _, Txn as _};
use peerbus_store::{SqliteStore, verify_audit};
use peerbus_wire::{EnvelopeHash, MessageId, Seq};
use rusqlite::Connection;

use crate::audit::{START_MS, at, refusal};
use crate::{open, place};

/// A database in which message 1 is owed to two peers and 2 to one, and 3 was acked.
fn queue(path: &Path) -> SqliteStore {
    let mut store = open(path);
    let key = store.audit_key().clone();
    let (mut head, mut log) = (ChainHead::new(&key), AuditLog::default());
    store.begin().unwrap();
    for (seq, recipients) in [(1, 3), (2, 1), (3, 1)] {
        let id = MessageId::parse(&format!("m{seq}")).unwrap();
        let (seq, sender) = (Seq(seq), PeerId(9));
        let message = MessageHead {
            seq,
            sender,
            id: id.clone(),
            recipients,
            accepted_ms: START_MS,
            bytes: "{}".len() as u64,
        };
        store.insert_message(&message, "{}").unwrap();
        for recipient in 1..=recipients {
            store
                .insert_delivery((PeerId(recipient), sender), seq, 0)
                .unwrap();
        }
        log.accept(&message, &EnvelopeHash::of(b"{}"));
    }
    for (seq, recipient) in [(1, 2), (3, 1)] {
        let (seq, recipient) = (Seq(seq), PeerId(recipient));
        store.delete_delivery((recipient, PeerId(9)), seq).unwrap();
        let how = None;
        log.ack(seq, recipient, how);
    }
    head.next_seq = 4;
    let block = log.seal(&key, &mut head, at(START_MS));
    store.append_audit(&block, &head).unwrap();
    store.commit().unwrap();
    store
}

#[test]
fn a_queue_that_was_changed_outside_the_broker_is_told() {
    let (_directory, path) = place();
    queue(&path).close().unwrap();
    let report = verify_audit(&path).unwrap().to_string();
    assert!(
        report.contains("; the queue agrees; 3 stored messages are as they were accepted; "),
        "{report}"
    );
    for (damage, says) in [
        (
            "DELETE FROM deliveries WHERE recipient = 3",
            "message 1 is owed to 2 by the audit chain, and to 1 in the queue",
        ),
        (
            "DELETE FROM deliveries",
            "message 1 is owed to 2 by the audit chain, and to 0 in the queue",
        ),
        (
            "DELETE FROM deliveries WHERE seq = 2",
            "message 2 is owed to 1 by the audit chain, and to 0 in the queue",
        ),
        (
            "INSERT INTO deliveries(recipient, sender, seq) VALUES(1, 9, 3)",
            "message 3 is owed to 0 by the audit chain, and to 1 in the queue",
        ),
        (
            "DELETE FROM messages WHERE seq = 2",
            "message 2 is owed and not stored",
        ),
        (
            "UPDATE messages SET envelope = '{ }' WHERE seq = 1",
            "message 1 is not as it was accepted: its envelope was altered",
        ),
        (
            "UPDATE messages SET envelope = '[]' WHERE seq = 3",
            "message 3 is not as it was accepted: its envelope was altered",
        ),
        (
            "INSERT INTO messages SELECT 4, sender, 'm4', 1, accepted_ms, '{}' FROM messages \
             WHERE seq = 3",
            "message 4 is stored, and by the audit chain it was never accepted",
        ),
    ] {
        let (_directory, copy) = place();
        fs::copy(&path, &copy).unwrap();
        fs::copy(
            path.with_extension("db.audit-key"),
            copy.with_extension("db.audit-key"),
        )
        .unwrap();
        let db = Connection::open(&copy).unwrap();
        db.execute_batch(damage).unwrap();
        drop(db);
        let said = refusal(&copy);
        assert!(
            said.contains("was changed outside the broker") && said.ends_with(says),
            "{said}"
        );
    }
}

#[test]
fn of_deliveries_that_are_older_than_the_chain_nothing_is_claimed() {
    let (_directory, path) = place();
    let mut store = queue(&path);
    let key = store.audit_key().clone();
    let mut head = store.load().unwrap().head.unwrap();
    let first = head.hash;
    store.begin().unwrap();
    let block = AuditLog::default().seal(&key, &mut head, at(START_MS));
    store.drop_audit(1).unwrap();
    (head.anchor, head.anchor_hash) = (1, first);
    head.mac = head.expected_mac(&key);
    store.append_audit(&block, &head).unwrap();
    store.commit().unwrap();
    let report = verify_audit(&path).unwrap();
    assert_eq!((report.older, report.intact, report.unhashed), (3, 0, 3));
    let text = report.to_string();
    for says in [
        "3 deliveries that are older than the chain",
        "; 0 stored messages are as they were accepted, of 3 older ones that is not known; ",
    ] {
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn blocks_without_hashes_are_valid_and_what_they_do_not_know_is_said() {
    let (_directory, path) = place();
    let mut store = queue(&path);
    let key = store.audit_key().clone();
    let mut head = store.load().unwrap().head.unwrap();
    // As an older broker wrote it.
    let events = "A 1 9 m1 3\nA 2 9 m2 1\nA 3 9 m3 1\nK 1 2\nK 3 1\n";
    head.hash = audit::chain(&key, &audit::GENESIS, 1, at(START_MS).wall_ms, events);
    let sql = "UPDATE audit SET events = ?1, hash = ?2";
    let db = Connection::open(&path).unwrap();
    db.execute(sql, (events, head.hash)).unwrap();
    store.begin().unwrap();
    let id = MessageId::parse("m4").unwrap();
    let (seq, sender, recipients) = (Seq(4), PeerId(9), 1);
    let message = MessageHead {
        seq,
        sender,
        id: id.clone(),
        recipients,
        accepted_ms: START_MS,
        bytes: "[4]".len() as u64,
    };
    store.insert_message(&message, "[4]").unwrap();
    store.insert_delivery((PeerId(1), sender), seq, 0).unwrap();
    let mut log = AuditLog::default();
    log.accept(&message, &EnvelopeHash::of(b"[4]"));
    head.next_seq = 5;
    let block = log.seal(&key, &mut head, at(START_MS));
    store.append_audit(&block, &head).unwrap();
    store.commit().unwrap();
    store.close().unwrap();

    let report = verify_audit(&path).unwrap();
    assert_eq!((report.older, report.intact, report.unhashed), (0, 1, 3));
    let alter = |seq: u32| {
        let sql = "UPDATE messages SET envelope = 'altered' WHERE seq = ?1";
        db.execute(sql, [seq]).unwrap();
    };
    alter(1);
    assert_eq!(verify_audit(&path).unwrap(), report);
    alter(4);
    assert!(refusal(&path).contains("message 4 is not as it was accepted"));
}

#[test]
fn a_text_that_was_dropped_is_known_by_its_hash_and_only_of_mail_that_ended() {
    let (_directory, path) = place();
    let mut store = open(&path);
    let key = store.audit_key().clone();
    let (mut head, mut log) = (ChainHead::new(&key), AuditLog::default());
    let (id, sender, seq) = (MessageId::parse("m1").unwrap(), PeerId(9), Seq(1));
    let text = format!("{{\"body\":\"{}\"}}", "x".repeat(9_000));
    let message = MessageHead {
        seq,
        sender,
        id: id.clone(),
        recipients: 0,
        accepted_ms: START_MS,
        bytes: text.len() as u64,
    };
    log.accept(&message, &EnvelopeHash::of(text.as_bytes()));
    head.next_seq = 2;
    store.begin().unwrap();
    store.insert_message(&message, &text).unwrap();
    let block = log.seal(&key, &mut head, at(START_MS));
    store.append_audit(&block, &head).unwrap();
    let fate = Fate::of_nobody(seq, START_MS);
    store.insert_fates(&[fate], 9_000, START_MS).unwrap();
    let keep = Keep {
        from_ms: 0,
        bytes: 0,
        ids_from_ms: 0,
    };
    assert_eq!(store.forget_ended(keep, 10).unwrap().rows, 1);
    assert_eq!(store.forget_ended(keep, 10).unwrap().rows, 0, "once");
    for (envelope, is_same) in [(&*text, true), ("{}", false)] {
        let again = MessageHead {
            seq: Seq(2),
            ..message.clone()
        };
        let known = store.insert_message(&again, envelope).unwrap();
        assert!(matches!(known, Inserted::Known { same, .. } if same == is_same));
    }
    store.commit().unwrap();
    store.close().unwrap();
    let report = verify_audit(&path).unwrap().to_string();
    let intact = "; 1 stored message is as it was accepted; ";
    assert!(report.contains(intact), "{report}");
    let db = Connection::open(&path).unwrap();
    let owed = "INSERT INTO deliveries(recipient, sender, seq) VALUES(1, 9, 1)";
    db.execute_batch(owed).unwrap();
    let error = verify_audit(&path).unwrap_err().to_string();
    assert!(error.contains("message 1 is owed to 0"), "{error}");
}
