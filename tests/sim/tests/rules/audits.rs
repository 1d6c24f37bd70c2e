//! What peers say was done to their sessions, in the audit chain.

use peerbus_core::audit::AuditRemark;
use peerbus_core::broker::{BrokerInput, ConnId};
use peerbus_wire::{AuditAction, AuditRecord, ClientFrame, EXT_AUDIT, Register};

use crate::rig::{Rig, SECOND, ext};

fn joined(rig: &mut Rig, name: &str, level: u32) -> ConnId {
    rig.join(Register {
        ext: level,
        ..ext(name, &format!("instance-of-{name}"))
    })
}

fn says(rig: &mut Rig, conn: ConnId, times: usize) {
    for _ in 0..times {
        let record = AuditRecord {
            source: "a\ntool".into(),
            ..AuditRecord::new(AuditAction::Inject, "done")
        };
        rig.frame(conn, ClientFrame::Audit(record));
    }
}

/// What the chain has: records as 1, and how many more came than that.
fn written(rig: &Rig) -> Vec<u64> {
    let blocks = rig.store.tables().audit.values();
    let lines = blocks.flat_map(|block| block.events.lines());
    let said = lines.filter_map(AuditRemark::read).map(|said| match said {
        AuditRemark::Record {
            name,
            action,
            outcome,
            source,
            ..
        } => {
            let words = (name, action, outcome, source);
            assert_eq!(words, ("bob", "inject", "done", r"a\u000atool"));
            1
        }
        AuditRemark::Excess { name, records } => {
            assert_eq!(name, "bob");
            records
        }
        AuditRemark::Join { .. } | AuditRemark::Joins { .. } => panic!("nobody was invited"),
    });
    said.collect()
}

#[test]
fn what_a_peer_says_is_written_as_said_by_it() {
    let mut rig = Rig::new();
    let bob = joined(&mut rig, "bob", 7);
    says(&mut rig, bob, 1);
    assert_eq!(written(&rig), [1]);
    let v1 = r#""protocol_version":"v1","type":"audit""#;
    for wrong in [
        format!(r#"{{{v1},"action":"format","outcome":"done"}}"#),
        format!(r#"{{{v1},"action":"inject"}}"#),
        format!(r#"{{{v1},"action":"inject","outcome":"done","uid":-1}}"#),
        format!(r#"{{{v1},"action":"inject","outcome":"done","source":7}}"#),
    ] {
        rig.text(bob, &wrong);
    }
    assert_eq!(written(&rig), [1]);
    assert!(rig.closed(bob).is_none(), "it goes on");
}

#[test]
fn only_a_connection_that_agreed_on_it_is_heard() {
    for level in [0, EXT_AUDIT - 1] {
        let mut rig = Rig::new();
        let bob = joined(&mut rig, "bob", level);
        says(&mut rig, bob, 1);
        assert_eq!(written(&rig), [0; 0], "{level}");
    }
    let mut rig = Rig::new();
    for (asked, level) in [(0, None), (1, Some(1)), (2, Some(2)), (9, Some(2))] {
        let name = format!("peer{asked}");
        let conn = rig.ask(Register {
            ext: asked,
            ..ext(&name, &name)
        });
        assert_eq!(rig.take(conn).peers[0].ext, level, "{asked}");
    }
}

#[test]
fn a_flood_is_one_entry_beside_a_minutes_share() {
    let mut rig = Rig::new();
    let bob = joined(&mut rig, "bob", EXT_AUDIT);
    says(&mut rig, bob, 75);
    assert_eq!(written(&rig), [1; 60]);
    // It is told although nothing more comes.
    rig.pass(130 * SECOND);
    assert_eq!(written(&rig)[60..], [15]);
    says(&mut rig, bob, 61);
    rig.close(bob, true);
    assert_eq!(written(&rig)[61..121], [1; 60]);
    assert_eq!(written(&rig)[121..], [1]);
}

#[test]
fn what_a_broker_only_counted_is_told_when_it_stops_and_when_another_takes_the_name() {
    for stop in [true, false] {
        let mut rig = Rig::new();
        let bob = joined(&mut rig, "bob", EXT_AUDIT);
        says(&mut rig, bob, 62);
        match stop {
            true => rig.input(BrokerInput::Shutdown),
            false => {
                rig.join(ext("bob", "instance-of-bob"));
            }
        }
        assert_eq!(written(&rig)[60..], [2], "{stop}");
        says(&mut rig, bob, 1);
        assert_eq!(written(&rig).len(), 61);
    }
}

#[test]
fn a_nearly_full_disk_takes_no_records_and_says_so_later() {
    let mut rig = Rig::new();
    let bob = joined(&mut rig, "bob", EXT_AUDIT);
    let total = 1 << 40;
    rig.input(BrokerInput::Space { free: 0, total });
    says(&mut rig, bob, 3);
    assert_eq!(written(&rig), [0; 0]);
    rig.input(BrokerInput::Space { free: total, total });
    says(&mut rig, bob, 1);
    rig.close(bob, true);
    assert_eq!(written(&rig), [1, 3]);
}
