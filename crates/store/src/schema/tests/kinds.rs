//! Databases of version 12 and before: what stood behind a name in words.

use peerbus_wire::Mark;

use super::*;

/// Names that have ended, and what bridges have forwarded, as version 12 keeps them: ben's mail goes to
/// cleo, who is owed 2 herself; dan's expires; 4 and 5 were forwarded, 5 by a bridge whose name has ended.
const VERSION_12: &str = "
    INSERT INTO peers(id, name, generated, ephemeral, online, last_seen_ms, ending, delivered, mark, groups)
        VALUES(1, 'anna', 0, 0, 0, 30, NULL, '5', NULL, 'shop'),
        (2, 'ben ended 2', 0, 0, 0, 30, 3, '1', NULL, ''),
        (3, 'cleo', 0, 0, 0, 30, NULL, '2', NULL, ''),
        (4, 'dan ended 4', 0, 1, 0, 30, 0, '0', NULL, ''),
        (5, 'bridge@beta', 0, 0, 0, 30, NULL, '0', 'near:7', ''),
        (16, 'bridge@beta forwarded 16 far:1', 0, 0, 0, 30, NULL, NULL, NULL, ''),
        (17, 'bridge@gamma forwarded 17 far:2', 0, 0, 0, 30, 0, NULL, NULL, '');
    INSERT INTO deliveries(recipient, sender, seq, steady_ms)
        VALUES(2, 1, 1, 11), (2, 1, 2, 12), (3, 1, 2, 12), (4, 1, 3, 13), (16, 1, 4, 14), (17, 1, 5, 15);
    INSERT INTO owed VALUES(1, NULL, 0, 22), (2, NULL, 6, 0), (3, NULL, 3, 0), (4, NULL, 5, 0),
        (16, NULL, 4, 0), (17, NULL, 4, 0);";

/// A database with [`VERSION_12`] in it, its messages and its audit chain.
fn version_12_database() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bus.db");
    let mut older = open_with(&path, &STEPS[..12]).unwrap();
    older.db.execute_batch(VERSION_12).unwrap();
    let (mut head, mut log) = (
        crate::read::head(&older.db).unwrap().unwrap(),
        AuditLog::default(),
    );
    older.begin().unwrap();
    for (number, text) in TEXTS[..5].iter().enumerate() {
        let seq = Seq(number as u64 + 1);
        let id = &MessageId::parse(&format!("m{}", seq.0)).unwrap();
        let recipients = if seq.0 == 2 { 2 } else { 1 };
        let sender = PeerId(1);
        let message = MessageHead {
            seq,
            sender,
            id: id.clone(),
            recipients,
            accepted_ms: 10 + seq.0,
            bytes: text.len() as u64,
        };
        assert_eq!(older.insert_message(&message, text).unwrap(), Inserted::New);
        let hash = &EnvelopeHash::of(text.as_bytes());
        log.accept(&message, hash);
    }
    (head.next_seq, head.next_peer) = (6, 18);
    let block = log.seal(&older.audit_key().clone(), &mut head, AT);
    older.append_audit(&block, &head).unwrap();
    older.commit().unwrap();
    older.close().unwrap();
    (directory, path)
}

#[test]
fn names_that_had_ended_and_what_was_forwarded_are_known_by_their_kind() {
    let (_directory, path) = version_12_database();
    let mut store = open_with(&path, STEPS).unwrap();
    let loaded = store.load().unwrap();
    let rows = loaded.peers.iter().map(|row| {
        let mark = row.mark.as_ref().map(Mark::as_str);
        (
            row.id.0,
            row.kind,
            &*row.name,
            mark,
            row.delivered.is_some(),
        )
    });
    let rows: Vec<_> = rows.collect();
    use PeerKind::{Ended, Forwarded, Peer};
    let expected = [
        (1, Peer, "anna", None, true),
        (2, Ended, "ben", None, true),
        (3, Peer, "cleo", None, false),
        (4, Ended, "dan", None, true),
        (5, Peer, "bridge@beta", Some("near:7"), true),
        (16, Forwarded, "bridge@beta", Some("far:1"), false),
        (17, Ended, "bridge@gamma", Some("far:2"), false),
    ];
    assert_eq!(rows, expected);
    assert_eq!(loaded.peers[0].groups.len(), 1);
    assert!(loaded.peers[3].ephemeral);
}

#[test]
fn what_was_on_its_way_to_a_successor_is_owed_to_it_and_nothing_is_lost() {
    let (_directory, path) = version_12_database();
    let mut store = open_with(&path, STEPS).unwrap();
    let loaded = store.load().unwrap();
    let sums = loaded.owed.iter().map(|row| (row.peer.0, row.to, row.by));
    let sums: Vec<_> = sums.collect();
    let expected = [
        (1, 0, 22),
        (2, 3, 0),
        (3, 6, 0),
        (4, 5, 0),
        (16, 4, 0),
        (17, 4, 0),
    ];
    assert_eq!(sums, expected);
    store.begin().unwrap();
    let mut queue = |peer| {
        let queue = store.read_queue(PeerId(peer), 10, 1_000).unwrap();
        let queue = queue.iter().map(|it| (it.head.seq.0, it.steady_ms));
        queue.collect::<Vec<_>>()
    };
    let queues = [2, 3, 4, 16, 17].map(&mut queue);
    let expected: [&[_]; 5] = [
        &[(2, 12)],
        &[(1, 11), (2, 12)],
        &[(3, 13)],
        &[(4, 14)],
        &[(5, 15)],
    ];
    assert_eq!(queues, expected);
    // Others may have the name of one that has ended, and nobody that of one that is there.
    let mut row = loaded.peers[2].clone();
    (row.id, row.name) = (PeerId(18), "Ben".into());
    store.put_peer(&row).unwrap();
    (row.id, row.name) = (PeerId(19), "ANNA".into());
    store.put_peer(&row).unwrap_err();
    store.rollback();
    store.close().unwrap();
    crate::verify_audit(&path).unwrap();
}
