//! The contract of a store in the plainest terms, to compare the real one with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use peerbus_core::TokenHash;
use peerbus_core::audit::{Block, Head};
use peerbus_core::store::{
    AliasRow, Ending, Inserted, MessageHead, NewMessage, Notice, PeerId, PeerRow, Queued,
    StoreError, Txn,
};
use peerbus_store::SqliteStore;
use peerbus_wire::{MessageId, Seq};
use rusqlite::{Connection, OpenFlags, Row};

type Result<T> = std::result::Result<T, StoreError>;

/// Everything that a database holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) peers: BTreeMap<PeerId, PeerRow>,
    /// By lower-case name.
    pub(crate) aliases: BTreeMap<String, AliasRow>,
    pub(crate) messages: BTreeMap<Seq, (MessageHead, String)>,
    pub(crate) debts: BTreeSet<(PeerId, Seq)>,
    pub(crate) dead: BTreeMap<(Seq, PeerId), (u64, String)>,
    pub(crate) notices: BTreeMap<(PeerId, u64), Notice>,
    pub(crate) blocks: BTreeMap<u64, Block>,
    pub(crate) head: Option<Head>,
}

impl Model {
    fn queue(&self, recipient: PeerId) -> impl DoubleEndedIterator<Item = Seq> {
        self.debts
            .range((recipient, Seq(0))..=(recipient, Seq(u64::MAX)))
            .map(|debt| debt.1)
    }

    fn owed(&self, seq: Seq) -> Vec<PeerId> {
        self.debts
            .iter()
            .filter(|debt| debt.1 == seq)
            .map(|debt| debt.0)
            .collect()
    }

    /// Reads a database table by table.
    pub(crate) fn dump(path: &Path) -> Self {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let messages = rows(&db, "SELECT * FROM messages", |row| {
            let head = MessageHead {
                seq: Seq(number(row, "seq")),
                sender: PeerId(get(row, "sender")),
                id: MessageId::parse(&get::<String>(row, "id")).unwrap(),
                recipients: get(row, "recipients"),
                accepted_ms: number(row, "accepted_ms"),
            };
            (head.seq, (head, get(row, "envelope")))
        });
        let debts = rows(&db, "SELECT * FROM deliveries", |row| {
            (PeerId(get(row, "recipient")), Seq(number(row, "seq")))
        });
        let dead = rows(&db, "SELECT * FROM dead", |row| {
            let key = (Seq(number(row, "seq")), PeerId(get(row, "recipient")));
            (key, (number(row, "at_ms"), get(row, "reason")))
        });
        let notices = rows(&db, "SELECT * FROM notices", |row| {
            let notice = Notice {
                number: number(row, "number"),
                sender: PeerId(get(row, "sender")),
                id: MessageId::parse(&get::<String>(row, "id")).unwrap(),
                to: get(row, "recipient"),
                dead: get(row, "dead"),
                reason: get(row, "reason"),
                at_ms: number(row, "at_ms"),
            };
            ((notice.sender, notice.number), notice)
        });
        let blocks = rows(&db, "SELECT * FROM audit", |row| {
            let (at_ms, events) = (number(row, "at_ms"), get(row, "events"));
            let block = Block {
                number: number(row, "number"),
                at_ms,
                events,
                hash: get(row, "hash"),
            };
            (block.number, block)
        });
        let head: Vec<Head> = rows(&db, "SELECT * FROM head", |row| Head {
            blocks: number(row, "blocks"),
            hash: get(row, "hash"),
            anchor: number(row, "anchor"),
            anchor_hash: get(row, "anchor_hash"),
            next_seq: number(row, "next_seq"),
            next_peer: get(row, "next_peer"),
            next_notice: number(row, "next_notice"),
            mac: get(row, "mac"),
        });
        Self {
            peers: peers(&db),
            aliases: rows(&db, "SELECT * FROM aliases", |row| {
                let row = AliasRow {
                    name: get(row, "name"),
                    peer: PeerId(get(row, "peer")),
                    own: get(row, "own"),
                    used_ms: number(row, "used_ms"),
                };
                (row.name.to_ascii_lowercase(), row)
            }),
            messages,
            debts,
            dead,
            notices,
            blocks,
            head: head.into_iter().next(),
        }
    }
}

fn peers(db: &Connection) -> BTreeMap<PeerId, PeerRow> {
    rows(db, "SELECT * FROM peers", |row| {
        let id = PeerId(get(row, "id"));
        let owner: Option<[u8; 32]> = get(row, "owner");
        let peer = PeerRow {
            id,
            name: get(row, "name"),
            owner: owner.map(TokenHash),
            generated: get(row, "generated"),
            ephemeral: get(row, "ephemeral"),
            online: get(row, "online"),
            last_seen_ms: number(row, "last_seen_ms"),
            ending: get::<Option<u32>>(row, "ending").map(|heir| match heir {
                0 => Ending::Expire,
                heir => Ending::Move(PeerId(heir)),
            }),
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

/// Removes the `limit` entries with the lowest rank among those that `old` picks.
fn prune<K: Ord + Copy, V>(
    map: &mut BTreeMap<K, V>,
    limit: usize,
    at_ms: impl Fn(&V) -> u64,
    before_ms: u64,
) -> usize {
    let mut old: Vec<(u64, K)> = map
        .iter()
        .map(|(key, value)| (at_ms(value), *key))
        .collect();
    old.retain(|(at_ms, _)| *at_ms < before_ms);
    old.sort();
    old.truncate(limit);
    old.iter().for_each(|(_, key)| drop(map.remove(key)));
    old.len()
}

impl Txn for Model {
    fn put_peer(&mut self, row: &PeerRow) -> Result<()> {
        self.peers.insert(row.id, row.clone());
        Ok(())
    }

    fn delete_peer(&mut self, id: PeerId) -> Result<()> {
        self.peers.remove(&id);
        Ok(())
    }

    fn put_alias(&mut self, row: &AliasRow) -> Result<()> {
        let key = row.name.to_ascii_lowercase();
        self.aliases.insert(key, row.clone());
        Ok(())
    }

    fn delete_alias(&mut self, name: &str) -> Result<()> {
        self.aliases.remove(&name.to_ascii_lowercase());
        Ok(())
    }

    fn insert_message(&mut self, message: &NewMessage<'_>) -> Result<Inserted> {
        let known = self
            .messages
            .values()
            .find(|(head, _)| head.sender == message.sender && head.id == *message.id);
        if let Some((head, envelope)) = known {
            let same = envelope == message.envelope;
            return Ok(Inserted::Known {
                seq: head.seq,
                same,
                recipients: head.recipients,
            });
        }
        let head = MessageHead {
            seq: message.seq,
            sender: message.sender,
            id: message.id.clone(),
            recipients: message.recipients,
            accepted_ms: message.accepted_ms,
        };
        self.messages
            .insert(message.seq, (head, message.envelope.to_owned()));
        Ok(Inserted::New)
    }

    fn insert_debt(&mut self, recipient: PeerId, seq: Seq) -> Result<()> {
        self.debts.insert((recipient, seq));
        Ok(())
    }

    fn delete_debt(&mut self, recipient: PeerId, seq: Seq) -> Result<bool> {
        Ok(self.debts.remove(&(recipient, seq)))
    }

    fn has_debt(&mut self, recipient: PeerId, seq: Seq) -> Result<bool> {
        Ok(self.debts.contains(&(recipient, seq)))
    }

    fn read_queue(
        &mut self,
        recipient: PeerId,
        after: Seq,
        messages: usize,
        bytes: usize,
    ) -> Result<Vec<Queued>> {
        let mut total = 0;
        let mut queue = Vec::new();
        for seq in self.queue(recipient).filter(|seq| *seq > after) {
            if queue.len() == messages || (total >= bytes && !queue.is_empty()) {
                break;
            }
            let (head, envelope) = &self.messages[&seq];
            total += envelope.len();
            queue.push(Queued {
                seq,
                sender: head.sender,
                id: head.id.clone(),
                envelope: envelope.as_str().into(),
                accepted_ms: head.accepted_ms,
            });
        }
        Ok(queue)
    }

    fn count_queue(&mut self, recipient: PeerId) -> Result<u64> {
        Ok(self.queue(recipient).count() as u64)
    }

    fn last_debt(&mut self, recipient: PeerId) -> Result<Option<Seq>> {
        Ok(self.queue(recipient).next_back())
    }

    fn message(&mut self, seq: Seq) -> Result<Option<MessageHead>> {
        Ok(self.messages.get(&seq).map(|(head, _)| head.clone()))
    }

    fn find_message(&mut self, sender: PeerId, id: &MessageId) -> Result<Option<MessageHead>> {
        let mut heads = self.messages.values().map(|(head, _)| head);
        Ok(heads
            .find(|head| head.sender == sender && head.id == *id)
            .cloned())
    }

    fn find_by_id(&mut self, id: &MessageId) -> Result<Vec<MessageHead>> {
        let heads = self.messages.values().map(|(head, _)| head);
        let mut found: Vec<_> = heads.filter(|head| head.id == *id).cloned().collect();
        found.sort_by_key(|head| head.sender);
        Ok(found)
    }

    fn owed_to(&mut self, seq: Seq) -> Result<Vec<PeerId>> {
        Ok(self.owed(seq))
    }

    fn settled(&mut self, after: Seq, limit: usize) -> Result<(Vec<Seq>, Option<Seq>)> {
        let looked_at: Vec<Seq> = self
            .messages
            .keys()
            .filter(|seq| **seq > after)
            .take(limit)
            .copied()
            .collect();
        let last = looked_at.last().copied();
        let mut kept: BTreeSet<Seq> = self.debts.iter().map(|debt| debt.1).collect();
        kept.extend(self.dead.keys().map(|key| key.0));
        let settled = |seq: &Seq| !kept.contains(seq);
        Ok((looked_at.into_iter().filter(settled).collect(), last))
    }

    fn delete_messages(&mut self, seqs: &[Seq]) -> Result<()> {
        seqs.iter().for_each(|seq| drop(self.messages.remove(seq)));
        Ok(())
    }

    fn old_debts(&mut self, before_ms: u64, limit: usize) -> Result<Vec<(PeerId, MessageHead)>> {
        let by_seq: BTreeSet<(Seq, PeerId)> =
            self.debts.iter().map(|debt| (debt.1, debt.0)).collect();
        let debts = by_seq
            .into_iter()
            .map(|(seq, peer)| (peer, self.messages[&seq].0.clone()));
        Ok(debts
            .take_while(|(_, head)| head.accepted_ms < before_ms)
            .take(limit)
            .collect())
    }

    fn insert_dead(&mut self, peer: PeerId, seq: Seq, reason: &str, at_ms: u64) -> Result<()> {
        self.dead.insert((seq, peer), (at_ms, reason.to_owned()));
        Ok(())
    }

    fn delete_dead(&mut self, before_ms: u64, limit: usize) -> Result<usize> {
        Ok(prune(&mut self.dead, limit, |dead| dead.0, before_ms))
    }

    fn insert_notice(&mut self, notice: &Notice) -> Result<()> {
        self.notices
            .insert((notice.sender, notice.number), notice.clone());
        Ok(())
    }

    fn notices(&mut self, sender: PeerId, after: u64, limit: usize) -> Result<Vec<Notice>> {
        let kept = self.notices.values();
        let wanted = kept.filter(|notice| notice.sender == sender && notice.number > after);
        Ok(wanted.take(limit).cloned().collect())
    }

    fn delete_notice(&mut self, sender: PeerId, number: u64) -> Result<bool> {
        Ok(self.notices.remove(&(sender, number)).is_some())
    }

    fn delete_notices(&mut self, before_ms: u64, limit: usize) -> Result<usize> {
        Ok(prune(
            &mut self.notices,
            limit,
            |notice| notice.at_ms,
            before_ms,
        ))
    }

    fn append_audit(&mut self, block: &Block, head: &Head) -> Result<()> {
        self.blocks.insert(block.number, block.clone());
        self.head = Some(head.clone());
        Ok(())
    }

    fn old_audit(&mut self, before_ms: u64, limit: usize) -> Result<Option<Block>> {
        let first: Vec<&Block> = self.blocks.values().take(limit).collect();
        let old = first.iter().all(|block| block.at_ms < before_ms);
        Ok(first.last().filter(|_| old).map(|block| (*block).clone()))
    }

    fn drop_audit(&mut self, number: u64) -> Result<()> {
        self.blocks.retain(|block, _| *block > number);
        Ok(())
    }
}

/// A store and its model: every call goes to both, and both must answer alike.
pub(crate) struct Pair<'a> {
    pub(crate) store: &'a mut SqliteStore,
    pub(crate) model: &'a mut Model,
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

both! {
    put_peer(row: &PeerRow) -> ();
    delete_peer(id: PeerId) -> ();
    put_alias(row: &AliasRow) -> ();
    delete_alias(name: &str) -> ();
    insert_message(message: &NewMessage<'_>) -> Inserted;
    insert_debt(recipient: PeerId, seq: Seq) -> ();
    delete_debt(recipient: PeerId, seq: Seq) -> bool;
    has_debt(recipient: PeerId, seq: Seq) -> bool;
    read_queue(recipient: PeerId, after: Seq, messages: usize, bytes: usize) -> Vec<Queued>;
    count_queue(recipient: PeerId) -> u64;
    last_debt(recipient: PeerId) -> Option<Seq>;
    message(seq: Seq) -> Option<MessageHead>;
    find_message(sender: PeerId, id: &MessageId) -> Option<MessageHead>;
    find_by_id(id: &MessageId) -> Vec<MessageHead>;
    owed_to(seq: Seq) -> Vec<PeerId>;
    settled(after: Seq, limit: usize) -> (Vec<Seq>, Option<Seq>);
    delete_messages(seqs: &[Seq]) -> ();
    old_debts(before_ms: u64, limit: usize) -> Vec<(PeerId, MessageHead)>;
    insert_dead(recipient: PeerId, seq: Seq, reason: &str, at_ms: u64) -> ();
    delete_dead(before_ms: u64, limit: usize) -> usize;
    insert_notice(notice: &Notice) -> ();
    notices(sender: PeerId, after: u64, limit: usize) -> Vec<Notice>;
    delete_notice(sender: PeerId, number: u64) -> bool;
    delete_notices(before_ms: u64, limit: usize) -> usize;
    append_audit(block: &Block, head: &Head) -> ();
    old_audit(before_ms: u64, limit: usize) -> Option<Block>;
    drop_audit(number: u64) -> ();
}

/// What a workload runs against.
pub(crate) trait Target: Txn {
    fn model(&self) -> &Model;
}

impl Target for Model {
    fn model(&self) -> &Model {
        self
    }
}

impl Target for Pair<'_> {
    fn model(&self) -> &Model {
        self.model
    }
}
