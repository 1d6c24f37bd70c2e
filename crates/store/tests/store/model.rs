//! The store in memory, to compare the real one with.

use std::collections::BTreeMap;
use std::path::Path;

use peerbus_core::audit::{Block, ChainHead};
use peerbus_core::store::{
    AliasRow, DeliveryHistory, Fate, LeaseRow, Lessee, MessageHead, Notice, OwedRow, PeerId,
    PeerKind, PeerRow, RequestRow, StoreError, Txn, Work,
};
use peerbus_core::testing::{FateRow, MemoryStore, Stored, Tables};
use peerbus_core::{Delivered, Stamp, TokenHash};
use peerbus_store::SqliteStore;
use peerbus_wire::{GroupName, Mark, MessageId, Presence, Received, Seq, Stage};
use rusqlite::{Connection, OpenFlags, Row};

type Result<T> = std::result::Result<T, StoreError>;

/// Reads a database table by table.
pub(crate) fn dump(path: &Path) -> Tables {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let messages = rows(&db, "SELECT * FROM messages", |row| {
        let envelope: String = get(row, "envelope");
        let head = message_head(row, envelope.len());
        (
            head.seq,
            Stored {
                head,
                envelope: envelope.into(),
            },
        )
    });
    let deliveries = rows(&db, "SELECT * FROM deliveries", |row| {
        let pair = (PeerId(get(row, "recipient")), PeerId(get(row, "sender")));
        let row_of = (pair.0, pair.1, Seq(number(row, "seq")));
        (row_of, number(row, "steady_ms"))
    });
    let dead = rows(&db, "SELECT * FROM dead", |row| {
        let key = (Seq(number(row, "seq")), PeerId(get(row, "recipient")));
        (key, (stamp(row, "at_ms", "steady_ms"), get(row, "reason")))
    });
    let notices = rows(&db, "SELECT * FROM notices", |row| {
        let notice = Notice {
            number: number(row, "number"),
            sender: PeerId(get(row, "sender")),
            id: MessageId::parse(&get::<String>(row, "id")).unwrap(),
            to: get(row, "recipient"),
            stage: ended(get(row, "dead"), get(row, "reason")),
            at: stamp(row, "at_ms", "steady_ms"),
        };
        ((notice.sender, notice.number), notice)
    });
    let audit = rows(&db, "SELECT * FROM audit", |row| {
        let events = get(row, "events");
        let block = Block {
            number: number(row, "number"),
            at: stamp(row, "at_ms", "steady_ms"),
            events,
            hash: get(row, "hash"),
        };
        (block.number, block)
    });
    let head: Vec<ChainHead> = rows(&db, "SELECT * FROM head", |row| ChainHead {
        blocks: number(row, "blocks"),
        hash: get(row, "hash"),
        anchor: number(row, "anchor"),
        anchor_hash: get(row, "anchor_hash"),
        next_seq: number(row, "next_seq"),
        next_peer: get(row, "next_peer"),
        next_notice: number(row, "next_notice"),
        mac: get(row, "mac"),
    });
    Tables {
        peers: peers(&db),
        aliases: aliases(&db),
        owed: owed(&db),
        leases: leases(&db),
        messages,
        deliveries,
        dead,
        notices,
        fates: fates(&db),
        audit,
        head: head.into_iter().next(),
    }
}

/// A time, told and steady.
fn stamp(row: &Row<'_>, wall: &str, steady: &str) -> Stamp {
    Stamp {
        wall_ms: number(row, wall),
        steady_ms: number(row, steady),
    }
}

fn message_head(row: &Row<'_>, bytes: usize) -> MessageHead {
    MessageHead {
        seq: Seq(number(row, "seq")),
        sender: PeerId(get(row, "sender")),
        id: MessageId::parse(&get::<String>(row, "id")).unwrap(),
        recipients: get(row, "recipients"),
        accepted_ms: number(row, "accepted_ms"),
        bytes: bytes as u64,
    }
}

fn fates(db: &Connection) -> BTreeMap<u64, FateRow> {
    rows(db, "SELECT * FROM fates", |row| {
        let kept = FateRow {
            at_ms: number(row, "at_ms"),
            total: number(row, "total"),
            fates: unpacked(row),
        };
        (number(row, "number"), kept)
    })
}

fn unpacked(row: &Row<'_>) -> Vec<Fate> {
    let numbers = |blob: &[u8]| -> Vec<u32> {
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        blob.chunks(4).map(number).collect()
    };
    let (ends, recipients): (Vec<u8>, Vec<u8>) = (get(row, "ends"), get(row, "recipients"));
    let told: String = get(row, "told");
    let Received::Receipts(told) = Received::parse(told.as_bytes()) else {
        panic!("{told}");
    };
    let steps: Option<String> = get(row, "steps");
    let steps = steps.map(|steps| match Received::parse(steps.as_bytes()) {
        Received::Receipts(steps) => steps,
        other => panic!("{other:?}"),
    });
    let delivered: Vec<u8> = get(row, "delivered");
    let recipients = numbers(&recipients);
    let way = |group: usize| {
        let at = delivered[8 * group..][..8].try_into().unwrap();
        let mut way = DeliveryHistory::delivered(u64::from_le_bytes(at));
        for step in steps.iter().flatten() {
            if step.id.as_str() == group.to_string() {
                way.step(&step.stage, step.at_ms.unwrap());
            }
        }
        way
    };
    let fate = |end: &[u8]| {
        let group = numbers(&end[1..])[0] as usize;
        let receipt = told[group].clone();
        let goes_on = receipt.id.as_str() == "o" || matches!(receipt.stage, Stage::Recalled { .. });
        Fate {
            seq: Seq(number(row, "chunk") * 256 + u64::from(end[0])),
            recipient: PeerId(recipients[group]),
            to: receipt.to.unwrap_or_default().into(),
            stage: receipt.stage.into(),
            at_ms: receipt.at_ms.unwrap(),
            goes_on,
            way: way(group),
        }
    };
    ends.chunks(5).map(fate).collect()
}

fn aliases(db: &Connection) -> BTreeMap<String, AliasRow> {
    rows(db, "SELECT * FROM aliases", |row| {
        let row = AliasRow {
            name: get(row, "name"),
            peer: PeerId(get(row, "peer")),
            own: get(row, "own"),
            used_ms: number(row, "used_ms"),
        };
        (row.name.to_ascii_lowercase(), row)
    })
}

fn owed(db: &Connection) -> BTreeMap<PeerId, OwedRow> {
    rows(db, "SELECT * FROM owed", |row| {
        let peer = PeerId(get(row, "peer"));
        let token: Option<[u8; 32]> = get(row, "token");
        let row = OwedRow {
            peer,
            token: token.map(TokenHash),
            to: number(row, "owed_to"),
            by: number(row, "owed_by"),
        };
        (peer, row)
    })
}

pub(crate) fn ended(code: i64, reason: String) -> Stage {
    let reply = || MessageId::parse(&reason).unwrap();
    match code {
        0 => Stage::Expired { why: reason },
        1 => Stage::Dead { why: reason },
        2 => Stage::Declined { why: reason },
        3 => Stage::Unanswered { why: reason },
        4 => Stage::Done { reply: reply() },
        _ => Stage::Failed { reply: reply() },
    }
}

/// What a lease says of its message is not kept with it, but read from that message.
pub(crate) fn lease_head(seq: Seq) -> MessageHead {
    MessageHead {
        seq,
        sender: PeerId(0),
        id: MessageId::parse("m").unwrap(),
        recipients: 1,
        accepted_ms: 0,
        bytes: 0,
    }
}

fn leases(db: &Connection) -> BTreeMap<Seq, LeaseRow> {
    rows(db, "SELECT * FROM leases", |row| {
        let to = match get::<Option<u32>>(row, "peer") {
            Some(peer) => Lessee::Peer(PeerId(peer)),
            None => Lessee::One(GroupName::parse(&get::<String>(row, "name")).unwrap()),
        };
        let owner = TokenHash(get(row, "owner"));
        let mut lease = LeaseRow::new(lease_head(Seq(number(row, "seq"))), owner, to);
        for word in get::<String>(row, "had").split_ascii_whitespace() {
            let (peer, rejected) = match word.strip_suffix('!') {
                Some(peer) => (peer, true),
                None => (word, false),
            };
            let peer = PeerId(peer.parse().unwrap());
            lease.had.insert(peer);
            if rejected {
                lease.rejected.insert(peer);
            }
        }
        lease.holder = PeerId(get(row, "holder"));
        lease.again = get(row, "again");
        let said: Option<String> = get(row, "said");
        let work = Work {
            process: get(row, "process"),
            said: said.map(|said| (said, number(row, "said_ms"))),
        };
        let until: Option<i64> = get(row, "until_ms");
        lease.request = until.map(|until| RequestRow {
            until_ms: u64::try_from(until).unwrap(),
            work: get::<bool>(row, "read").then_some(work),
        });
        (lease.head.seq, lease)
    })
}

fn peers(db: &Connection) -> BTreeMap<PeerId, PeerRow> {
    rows(db, "SELECT * FROM peers", |row| {
        let id = PeerId(get(row, "id"));
        let owner: Option<[u8; 32]> = get(row, "owner");
        let peer = PeerRow {
            id,
            kind: match get(row, "kind") {
                0 => PeerKind::Peer,
                1 => PeerKind::Ended,
                2 => PeerKind::Forwarded,
                other => panic!("{other} is no kind"),
            },
            name: get(row, "name"),
            owner: owner.map(TokenHash),
            generated: get(row, "generated"),
            ephemeral: get(row, "ephemeral"),
            online: get(row, "online"),
            last_seen: stamp(row, "last_seen_ms", "last_seen_steady_ms"),
            delivered: get::<Option<String>>(row, "delivered")
                .map(|text| Delivered::parse(&text).unwrap()),
            mark: get::<Option<String>>(row, "mark").and_then(|text| Mark::parse(&text)),
            groups: get::<String>(row, "groups")
                .split_ascii_whitespace()
                .filter_map(|name| GroupName::parse(name).ok())
                .collect(),
            program: get::<Option<String>>(row, "program").and_then(|it| Presence::parse(&it)),
        };
        (id, peer)
    })
}

fn rows<T, C: FromIterator<T>>(db: &Connection, sql: &str, read: impl Fn(&Row<'_>) -> T) -> C {
    let mut statement = db.prepare(sql).unwrap();
    statement
        .query_map([], |row| Ok(read(row)))
        .unwrap()
        .map(|row| row.unwrap())
        .collect()
}

fn get<T: rusqlite::types::FromSql>(row: &Row<'_>, column: &str) -> T {
    row.get(column).unwrap()
}

fn number(row: &Row<'_>, column: &str) -> u64 {
    u64::try_from(get::<i64>(row, column)).unwrap()
}

/// A store and its model: every call goes to both, and both must answer alike.
pub(crate) struct Pair<'a> {
    pub(crate) store: &'a mut SqliteStore,
    pub(crate) model: &'a mut MemoryStore,
}

macro_rules! both {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl Txn for Pair<'_> {
            $(fn $name(&mut self, $($argument: $type),*) -> Result<$answer> {
                let expected = self.model.$name($($argument),*);
                let found = self.store.$name($($argument),*);
                if found != expected {
                    let asked = format!("{}{:?}", stringify!($name), ($(&$argument,)*));
                    panic!("{asked}\n found {found:?}\n expected {expected:?}");
                }
                found
            })*
        }
    };
}

peerbus_core::txn_methods!(both);

/// What a workload runs against.
pub(crate) trait Target: Txn {
    fn model(&self) -> &Tables;
}

impl Target for MemoryStore {
    fn model(&self) -> &Tables {
        self.tables()
    }
}

impl Target for Pair<'_> {
    fn model(&self) -> &Tables {
        self.model.tables()
    }
}
