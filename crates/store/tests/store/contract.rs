//! Every call answers as the model does, in and across transactions and reopenings.

use peerbus_core::audit::ChainHead;
use peerbus_core::store::{
    DeliveryHistory, Fate, Keep, LeaseRow, MessageHead, PeerId, Store as _, Txn as _,
};
use peerbus_core::testing::{MemoryStore, Tables};
use peerbus_store::{SqliteStore, verify_audit};
use peerbus_wire::{MessageId, Seq, Stage};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::model::{Pair, dump};
use crate::{open, place, workload};

#[test]
fn answers_as_the_model_does() {
    for seed in 0..12 {
        let (_directory, path) = place();
        let (mut store, mut model) = (open(&path), MemoryStore::default());
        let mut rng = StdRng::seed_from_u64(seed);
        let key = store.audit_key().clone();
        for _ in 0..60 {
            store.begin().unwrap();
            model.begin().unwrap();
            let mut pair = Pair {
                store: &mut store,
                model: &mut model,
            };
            workload::batch(rng.random(), &key, &mut pair);
            workload::probe(rng.random(), &mut pair);
            if rng.random_ratio(1, 6) {
                store.rollback();
                model.rollback();
            } else {
                store.commit().unwrap();
                model.commit().unwrap();
            }
            if rng.random_ratio(1, 6) {
                while store.maintain().unwrap() {}
            }
            if rng.random_ratio(1, 10) {
                store = reopen(store, &mut rng);
                assert_loaded(&mut store, model.tables());
            }
        }
        assert!(
            dump(&path) == *model.tables(),
            "seed {seed}: the tables differ from the model"
        );
        let head = model.tables().head.clone().unwrap();
        let report = verify_audit(&path).unwrap();
        assert_eq!((report.last, report.anchor), (head.blocks, head.anchor));
    }
}

fn reopen(store: SqliteStore, rng: &mut StdRng) -> SqliteStore {
    let path = store.path().to_owned();
    if rng.random() {
        store.close().unwrap();
    } else {
        drop(store);
    }
    open(&path)
}

fn assert_loaded(store: &mut SqliteStore, model: &Tables) {
    let loaded = store.load().unwrap();
    assert_eq!(loaded.head, model.head);
    assert_eq!(
        loaded.peers,
        model.peers.values().cloned().collect::<Vec<_>>()
    );
    assert_eq!(
        loaded.aliases,
        model.aliases.values().cloned().collect::<Vec<_>>()
    );
    let leases = model.leases.iter().filter_map(|(seq, row)| {
        let head = model.messages.get(seq)?.head.clone();
        Some(LeaseRow {
            head,
            ..row.clone()
        })
    });
    assert_eq!(loaded.leases, leases.collect::<Vec<_>>());
}

#[test]
fn a_new_database_is_empty() {
    let (_directory, path) = place();
    let mut store = open(&path);
    let loaded = store.load().unwrap();
    let head = ChainHead::new(store.audit_key());
    assert_eq!((loaded.peers, loaded.head), (vec![], Some(head)));
}

/// What is kept within so many bytes, of whatever age.
fn within(bytes: u64) -> Keep {
    Keep {
        from_ms: 0,
        bytes,
        ids_from_ms: u64::MAX,
    }
}

#[test]
fn the_oldest_ends_go_when_they_take_too_much_and_their_messages_with_them() {
    let (_directory, path) = place();
    let mut store = open(&path);
    let id = |seq: u64| MessageId::parse(&format!("m{seq}")).unwrap();
    store.begin().unwrap();
    for seq in 1..=1_000 {
        let message = MessageHead {
            seq: Seq(seq),
            sender: PeerId(1),
            id: id(seq),
            recipients: 1,
            accepted_ms: 1,
            bytes: "{}".len() as u64,
        };
        store.insert_message(&message, "{}").unwrap();
        let fate = Fate {
            seq: Seq(seq),
            recipient: PeerId(2),
            to: "bob".into(),
            stage: Stage::Acked(None).into(),
            at_ms: 1,
            goes_on: false,
            way: DeliveryHistory::default(),
        };
        store.insert_fates(&[fate], 100, 1).unwrap();
    }
    let known = |store: &mut SqliteStore| {
        let is_known = |seq: &u64| {
            let head = store.find_message(PeerId(1), &id(*seq)).unwrap().is_some();
            let fates = store.fates_of(&[Seq(*seq)], 1);
            assert_eq!(head, !fates.unwrap()[&Seq(*seq)].is_empty(), "{seq}");
            head
        };
        (1..=1_000).filter(is_known).collect::<Vec<_>>()
    };
    let all = store.forget_ended(within(1 << 20), usize::MAX).unwrap();
    assert_eq!(all.rows, 0);
    let slice = store.forget_ended(within(50_000), 10).unwrap();
    assert_eq!((slice.rows, slice.more), (10, true), "in slices");
    assert_eq!(known(&mut store), (11..=1_000).collect::<Vec<_>>());
    store.forget_ended(within(50_000), usize::MAX).unwrap();
    assert_eq!(known(&mut store), (501..=1_000).collect::<Vec<_>>());
    let young = Keep {
        from_ms: 2,
        bytes: u64::MAX,
        ids_from_ms: 2,
    };
    store.forget_ended(young, usize::MAX).unwrap();
    assert!(known(&mut store).is_empty());
}

#[test]
fn a_number_is_not_used_twice_in_silence() {
    let (_directory, path) = place();
    let mut store = open(&path);
    store.begin().unwrap();
    let first = MessageId::parse("first").unwrap();
    let second = MessageId::parse("second").unwrap();
    let message = |id| MessageHead {
        seq: Seq(1),
        sender: PeerId(1),
        id,
        recipients: 1,
        accepted_ms: 1,
        bytes: "{}".len() as u64,
    };
    store.insert_message(&message(first), "{}").unwrap();
    store.insert_message(&message(second), "{}").unwrap_err();
}

#[test]
fn a_delivery_without_its_message_is_said() {
    let (_directory, path) = place();
    let mut store = open(&path);
    store.begin().unwrap();
    store
        .insert_delivery((PeerId(1), PeerId(2)), Seq(7), 1)
        .unwrap();
    let error = store.read_queue(PeerId(1), 10, 10).unwrap_err().to_string();
    assert!(
        error.contains("message 7 is owed but not stored"),
        "{error}"
    );
    assert!(error.contains("bus.db"), "{error}");
}

#[test]
fn errors_name_the_file_and_the_act() {
    let (_directory, path) = place();
    let mut store = open(&path);
    let error = store.commit().unwrap_err().to_string();
    assert!(
        error.contains("committing") && error.contains("bus.db"),
        "{error}"
    );
    store.begin().unwrap();
    let error = store.maintain().unwrap_err().to_string();
    assert!(error.contains("inside a transaction"), "{error}");
}

#[test]
fn who_asks_for_one_end_has_few_bytes_of_others_read() {
    const FATES: u32 = 200;
    let (_directory, path) = place();
    let mut store = open(&path);
    let fate = |number: u32| {
        let mut way = DeliveryHistory::delivered(1);
        let why = format!("{number} {}", "x".repeat(500));
        way.step(&Stage::Held { why }, 2);
        Fate {
            seq: Seq(u64::from(number % 2) + 1),
            recipient: PeerId(number),
            to: "bob".into(),
            stage: Stage::Acked(None).into(),
            at_ms: 3,
            goes_on: false,
            way,
        }
    };
    let fates: Vec<_> = (1..=FATES).map(fate).collect();
    store.begin().unwrap();
    store.insert_fates(&fates, 100, 1).unwrap();
    let found = store.fates_of(&[Seq(1), Seq(2), Seq(3)], 3).unwrap();
    let last = |odd: bool| -> Vec<_> {
        let of = fates.iter().filter(|fate| (fate.seq == Seq(2)) == odd);
        of.skip(FATES as usize / 2 - 3).cloned().collect()
    };
    assert_eq!(found[&Seq(1)], last(false));
    assert_eq!(found[&Seq(2)], last(true));
    assert!(found[&Seq(3)].is_empty());
    let found = store.fates_of(&[Seq(1)], usize::MAX).unwrap();
    assert_eq!(found[&Seq(1)].len(), FATES as usize / 2);
    store.commit().unwrap();
    store.close().unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    let longest = "SELECT max(octet_length(told) + octet_length(steps)) FROM fates";
    let longest: u64 = db.query_row(longest, [], |row| row.get(0)).unwrap();
    assert!(longest < 32 * 1_024, "{longest} bytes are read for one end");
}
