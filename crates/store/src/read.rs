//! From rows to the core's types, and the reads that take more than one statement.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use peerbus_core::TokenHash;
use peerbus_core::audit::{Block, Head};
use peerbus_core::store::{AliasRow, Ending, MessageHead, Notice, PeerId, PeerRow, Queued};
use peerbus_wire::{MessageId, Seq};
use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection, Error, OptionalExtension as _, Result, Row};

/// A number as SQLite stores it.
pub(crate) fn int(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|error| Error::ToSqlConversionFailure(error.into()))
}

/// A number to compare stored ones with: they are all at most `i64::MAX`.
pub(crate) fn bound(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A row limit.
pub(crate) fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(row: &Row<'_>, column: usize) -> Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| Error::IntegralValueOutOfRange(column, number))
}

pub(crate) fn seq(row: &Row<'_>, column: usize) -> Result<Seq> {
    unsigned(row, column).map(Seq)
}

pub(crate) fn peer(row: &Row<'_>, column: usize) -> Result<PeerId> {
    row.get(column).map(PeerId)
}

fn message_id(row: &Row<'_>, column: usize) -> Result<MessageId> {
    let text = row.get_ref(column)?.as_str()?;
    MessageId::parse(text)
        .map_err(|error| Error::FromSqlConversionFailure(column, Type::Text, error.into()))
}

/// The columns `seq, sender, id, recipients, accepted_ms`.
pub(crate) fn message_head(row: &Row<'_>) -> Result<MessageHead> {
    Ok(MessageHead {
        seq: seq(row, 0)?,
        sender: peer(row, 1)?,
        id: message_id(row, 2)?,
        recipients: row.get(3)?,
        accepted_ms: unsigned(row, 4)?,
    })
}

/// A message's head by its number.
pub(crate) const MESSAGE_BY_SEQ: &str =
    "SELECT seq, sender, id, recipients, accepted_ms FROM messages WHERE seq = ?1";

/// The messages in `TABLE` that go by an id, the newest of each sender. The index leads with the
/// sender: one step for each.
const BY_ID: &str = "WITH RECURSIVE senders(sender) AS (
         SELECT min(sender) FROM TABLE
         UNION ALL
         SELECT (SELECT min(sender) FROM TABLE WHERE sender > senders.sender) FROM senders
         WHERE senders.sender IS NOT NULL)
     SELECT max(seq), m.sender, id, recipients, accepted_ms
     FROM senders JOIN TABLE m ON m.sender = senders.sender AND id = ?1
     GROUP BY m.sender ORDER BY m.sender";

/// The messages that go by an id, the newest of each sender, by sender.
pub(crate) fn by_id(db: &Connection, id: &MessageId) -> Result<Vec<MessageHead>> {
    let mut newest = BTreeMap::new();
    for table in ["past", "messages"] {
        let mut statement = db.prepare_cached(&BY_ID.replace("TABLE", table))?;
        for head in statement.query_map([id.as_str()], message_head)? {
            let head = head?;
            newest.insert(head.sender, head);
        }
    }
    Ok(newest.into_values().collect())
}

/// The columns `number, sender, id, recipient, dead, reason, at_ms`.
pub(crate) fn notice(row: &Row<'_>) -> Result<Notice> {
    Ok(Notice {
        number: unsigned(row, 0)?,
        sender: peer(row, 1)?,
        id: message_id(row, 2)?,
        to: row.get(3)?,
        dead: row.get(4)?,
        reason: row.get(5)?,
        at_ms: unsigned(row, 6)?,
    })
}

pub(crate) fn peers(db: &Connection) -> Result<Vec<PeerRow>> {
    let mut statement = db.prepare(
        "SELECT id, name, owner, generated, ephemeral, online, last_seen_ms, ending
         FROM peers ORDER BY id",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(PeerRow {
            id: peer(row, 0)?,
            name: row.get(1)?,
            owner: row.get::<_, Option<[u8; 32]>>(2)?.map(TokenHash),
            generated: row.get(3)?,
            ephemeral: row.get(4)?,
            online: row.get(5)?,
            last_seen_ms: unsigned(row, 6)?,
            ending: row.get::<_, Option<u32>>(7)?.map(ending),
        })
    })?;
    rows.collect()
}

/// 0 is no peer's number.
pub(crate) fn ending_number(ending: Ending) -> u32 {
    match ending {
        Ending::Expire => 0,
        Ending::Move(successor) => successor.0,
    }
}

fn ending(number: u32) -> Ending {
    match number {
        0 => Ending::Expire,
        successor => Ending::Move(PeerId(successor)),
    }
}

pub(crate) fn aliases(db: &Connection) -> Result<Vec<AliasRow>> {
    let mut statement = db.prepare("SELECT name, peer, own, used_ms FROM aliases ORDER BY name")?;
    let rows = statement.query_map([], |row| {
        Ok(AliasRow {
            name: row.get(0)?,
            peer: peer(row, 1)?,
            own: row.get(2)?,
            used_ms: unsigned(row, 3)?,
        })
    })?;
    rows.collect()
}

pub(crate) fn head(db: &Connection) -> Result<Option<Head>> {
    db.query_row(
        "SELECT blocks, hash, anchor, anchor_hash, next_seq, next_peer, next_notice, mac FROM head",
        [],
        |row| {
            Ok(Head {
                blocks: unsigned(row, 0)?,
                hash: row.get(1)?,
                anchor: unsigned(row, 2)?,
                anchor_hash: row.get(3)?,
                next_seq: unsigned(row, 4)?,
                next_peer: row.get(5)?,
                next_notice: unsigned(row, 6)?,
                mac: row.get(7)?,
            })
        },
    )
    .optional()
}

/// The block in the columns `number, at_ms, hash, events`.
pub(crate) fn block(row: &Row<'_>) -> Result<Block> {
    Ok(Block {
        number: unsigned(row, 0)?,
        at_ms: unsigned(row, 1)?,
        hash: row.get(2)?,
        events: row.get(3)?,
    })
}

pub(crate) fn queue(
    db: &Connection,
    recipient: PeerId,
    after: Seq,
    messages: usize,
    bytes: usize,
) -> Result<Vec<Queued>> {
    // LEFT: a delivery whose message is gone is damage, and must not be passed over in silence.
    let mut statement = db.prepare_cached(
        "SELECT d.seq, m.sender, m.id, m.accepted_ms, m.envelope
         FROM deliveries d LEFT JOIN messages m ON m.seq = d.seq
         WHERE d.recipient = ?1 AND d.seq > ?2 ORDER BY d.seq LIMIT ?3",
    )?;
    let mut rows = statement.query((recipient.0, bound(after.0), limit(messages)))?;
    let (mut queue, mut total) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let seq = seq(row, 0)?;
        let Some(envelope) = row.get_ref(4)?.as_str_or_null()? else {
            let damage = format!("message {} is owed but not stored: damaged database", seq.0);
            return Err(Error::FromSqlConversionFailure(
                4,
                Type::Null,
                damage.into(),
            ));
        };
        let envelope: Arc<str> = envelope.into();
        total += envelope.len();
        queue.push(Queued {
            seq,
            sender: peer(row, 1)?,
            id: message_id(row, 2)?,
            envelope,
            accepted_ms: unsigned(row, 3)?,
        });
        if total >= bytes {
            break;
        }
    }
    Ok(queue)
}

/// Messages of a range that are owed or dead. One range of the key per peer: an index of the deliveries
/// by message would cost every ack.
const KEPT: &str = "SELECT d.seq FROM peers p CROSS JOIN deliveries d
    ON d.recipient = p.id AND d.seq BETWEEN ?1 AND ?2
    UNION SELECT seq FROM dead WHERE seq BETWEEN ?1 AND ?2";

/// Who is owed a message; by the same path.
pub(crate) const OWED_TO: &str = "SELECT p.id FROM peers p CROSS JOIN deliveries d
    ON d.recipient = p.id AND d.seq = ?1 ORDER BY p.id";

pub(crate) fn settled(
    db: &Connection,
    after: Seq,
    messages: usize,
) -> Result<(Vec<Seq>, Option<Seq>)> {
    let looked_at: Vec<Seq> = db
        .prepare_cached("SELECT seq FROM messages WHERE seq > ?1 ORDER BY seq LIMIT ?2")?
        .query_map((bound(after.0), limit(messages)), |row| seq(row, 0))?
        .collect::<Result<_>>()?;
    let (Some(first), Some(last)) = (looked_at.first(), looked_at.last()) else {
        return Ok((Vec::new(), None));
    };
    let kept: BTreeSet<Seq> = db
        .prepare_cached(KEPT)?
        .query_map((int(first.0)?, int(last.0)?), |row| seq(row, 0))?
        .collect::<Result<_>>()?;
    let last = *last;
    Ok((
        looked_at
            .into_iter()
            .filter(|seq| !kept.contains(seq))
            .collect(),
        Some(last),
    ))
}

/// Merges the peers' queues by message number, so that what is settled is never looked at.
pub(crate) fn old_deliveries(
    db: &Connection,
    before_ms: u64,
    limit: usize,
) -> Result<Vec<(PeerId, MessageHead)>> {
    let mut next = db.prepare_cached(
        "SELECT seq FROM deliveries WHERE recipient = ?1 AND seq > ?2 ORDER BY seq LIMIT 1",
    )?;
    let mut message = db.prepare_cached(MESSAGE_BY_SEQ)?;
    let mut heap = BinaryHeap::new();
    let peers: Vec<PeerId> = db
        .prepare_cached("SELECT id FROM peers")?
        .query_map([], |row| peer(row, 0))?
        .collect::<Result<_>>()?;
    for peer in peers {
        if let Some(first) = delivery_after(&mut next, peer, Seq(0))? {
            heap.push(Reverse((first, peer)));
        }
    }
    let mut old: Vec<(PeerId, MessageHead)> = Vec::new();
    while old.len() < limit {
        let Some(Reverse((number, peer))) = heap.pop() else {
            break;
        };
        let head = match old.last() {
            Some((_, head)) if head.seq == number => head.clone(),
            _ => message.query_row([int(number.0)?], message_head)?,
        };
        if head.accepted_ms >= before_ms {
            break;
        }
        old.push((peer, head));
        if let Some(following) = delivery_after(&mut next, peer, number)? {
            heap.push(Reverse((following, peer)));
        }
    }
    Ok(old)
}

fn delivery_after(next: &mut CachedStatement<'_>, peer: PeerId, after: Seq) -> Result<Option<Seq>> {
    next.query_row((peer.0, bound(after.0)), |row| seq(row, 0))
        .optional()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_by_message_are_found_without_a_scan_of_all() {
        let directory = tempfile::tempdir().unwrap();
        let store = crate::SqliteStore::open(&directory.path().join("bus.db")).unwrap();
        for (sql, range) in [(KEPT, "seq>? AND seq<?"), (OWED_TO, "seq=?")] {
            let mut statement = store
                .db
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
                .unwrap();
            let arguments = vec![0; statement.parameter_count()];
            let plan: Vec<String> = statement
                .query_map(rusqlite::params_from_iter(arguments), |row| {
                    row.get("detail")
                })
                .unwrap()
                .map(|row| row.unwrap())
                .collect();
            let wanted = format!("SEARCH d USING PRIMARY KEY (recipient=? AND {range})");
            assert!(plan.contains(&wanted), "{plan:#?}");
        }
    }
}
