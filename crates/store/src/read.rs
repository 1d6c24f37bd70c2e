//! From rows to the core's types, and the reads that take more than one statement.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::error::Error as StdError;

use peerbus_core::audit::{Block, ChainHead};
use peerbus_core::store::{
    AliasRow, MessageHead, Notice, OwedRow, PeerId, PeerKind, PeerRow, Queued,
};
use peerbus_core::{Delivered, Stamp, TokenHash};
use peerbus_wire::{EnvelopeHash, GroupName, Mark, MessageId, Presence, Seq, Stage};
use rusqlite::types::{FromSql, Type};
use rusqlite::{Connection, Error, OptionalExtension as _, Params, Result, Row, Rows};

/// A number to compare stored ones with, or of rows: those are all at most `i64::MAX`.
pub(crate) fn bound(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// The number of a message. The highest that a column holds is none: it ends every range.
pub(crate) fn seq(row: &Row<'_>, column: usize) -> Result<Seq> {
    let number = row.get(column)?;
    if bound(number) == i64::MAX {
        return Err(Error::IntegralValueOutOfRange(column, i64::MAX));
    }
    Ok(Seq(number))
}

/// The columns of a time on the wall clock and on the steady clock.
fn stamp(row: &Row<'_>, wall: usize, steady: usize) -> Result<Stamp> {
    Ok(Stamp {
        wall_ms: row.get(wall)?,
        steady_ms: row.get(steady)?,
    })
}

pub(crate) fn peer(row: &Row<'_>, column: usize) -> Result<PeerId> {
    row.get(column).map(PeerId)
}

fn message_id(row: &Row<'_>, column: usize) -> Result<MessageId> {
    let text = row.get_ref(column)?.as_str()?;
    MessageId::parse(text).map_err(|error| no_text(column, error))
}

/// The columns `seq, sender, id, recipients, accepted_ms`, and the bytes of the envelope.
pub(crate) fn message_head(row: &Row<'_>) -> Result<MessageHead> {
    Ok(MessageHead {
        seq: seq(row, 0)?,
        sender: peer(row, 1)?,
        id: message_id(row, 2)?,
        recipients: row.get(3)?,
        accepted_ms: row.get(4)?,
        bytes: row.get(5)?,
    })
}

/// A message's head by its number. The length of the envelope stands in front of the row: its pages
/// are not read.
pub(crate) const MESSAGE_BY_SEQ: &str =
    "SELECT seq, sender, id, recipients, accepted_ms, octet_length(envelope)
     FROM messages WHERE seq = ?1";

/// Whether what is stored of an envelope, its text or its hash, is of this one.
pub(crate) fn is_text(stored: &str, envelope: &str) -> bool {
    stored == envelope
        || stored.len() == EnvelopeHash::LETTERS
            && stored == EnvelopeHash::of(envelope.as_bytes()).as_str()
}

/// How a message ended of which a notice says so, as the columns `dead` and `reason` have it.
pub(crate) fn ended(stage: &Stage) -> (u8, &str) {
    match stage {
        Stage::Dead { why } => (1, why),
        Stage::Declined { why } => (2, why),
        Stage::Unanswered { why } => (3, why),
        Stage::Done { reply } => (4, reply.as_str()),
        Stage::Failed { reply } => (5, reply.as_str()),
        Stage::Expired { why } => (0, why),
        _ => (0, ""),
    }
}

/// The columns `number, sender, id, recipient, dead, reason, at_ms, steady_ms`.
pub(crate) fn notice(row: &Row<'_>) -> Result<Notice> {
    let why = row.get(5)?;
    let stage = match row.get(4)? {
        1 => Stage::Dead { why },
        2 => Stage::Declined { why },
        3 => Stage::Unanswered { why },
        4 => Stage::Done {
            reply: message_id(row, 5)?,
        },
        5 => Stage::Failed {
            reply: message_id(row, 5)?,
        },
        _ => Stage::Expired { why },
    };
    Ok(Notice {
        number: row.get(0)?,
        sender: peer(row, 1)?,
        id: message_id(row, 2)?,
        to: row.get(3)?,
        stage,
        at: stamp(row, 6, 7)?,
    })
}

pub(crate) fn peers(db: &Connection) -> Result<Vec<PeerRow>> {
    let sql = "SELECT id, name, owner, generated, ephemeral, online, last_seen_ms, kind,
             delivered, last_seen_steady_ms, mark, groups, program
         FROM peers ORDER BY id";
    all(db, sql, |row| {
        Ok(PeerRow {
            id: peer(row, 0)?,
            kind: kind(row, 7)?,
            name: row.get(1)?,
            owner: row.get::<_, Option<[u8; 32]>>(2)?.map(TokenHash),
            generated: row.get(3)?,
            ephemeral: row.get(4)?,
            online: row.get(5)?,
            last_seen: stamp(row, 6, 9)?,
            delivered: delivered(row, 8)?,
            mark: row.get_ref(10)?.as_str_or_null()?.and_then(Mark::parse),
            groups: groups(row.get_ref(11)?.as_str()?),
            program: row.get_ref(12)?.as_str_or_null()?.and_then(Presence::parse),
        })
    })
}

/// The value in the first column of the first row, if there is one.
pub(crate) fn one<T: FromSql>(
    db: &Connection,
    sql: &str,
    values: impl Params,
) -> Result<Option<T>> {
    let mut statement = db.prepare_cached(sql)?;
    statement.query_row(values, |row| row.get(0)).optional()
}

/// Every row of a table.
pub(crate) fn all<T>(
    db: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    db.prepare(sql)?.query_map([], read)?.collect()
}

/// Group names, separated by spaces.
fn groups(text: &str) -> BTreeSet<GroupName> {
    let names = text.split_ascii_whitespace();
    names
        .filter_map(|name| GroupName::parse(name).ok())
        .collect()
}

fn delivered(row: &Row<'_>, column: usize) -> Result<Option<Delivered>> {
    let Some(text) = row.get_ref(column)?.as_str_or_null()? else {
        return Ok(None);
    };
    let why = "not the number of a message, with exceptions by sender";
    Delivered::parse(text).map_or_else(|| Err(no_text(column, why)), |it| Ok(Some(it)))
}

/// What stands in a column is not what it should be.
pub(crate) fn no_text(column: usize, why: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    Error::FromSqlConversionFailure(column, Type::Text, why.into())
}

fn kind(row: &Row<'_>, column: usize) -> Result<PeerKind> {
    match row.get(column)? {
        0 => Ok(PeerKind::Peer),
        1 => Ok(PeerKind::Ended),
        2 => Ok(PeerKind::Forwarded),
        other => Err(Error::IntegralValueOutOfRange(column, other)),
    }
}

pub(crate) fn aliases(db: &Connection) -> Result<Vec<AliasRow>> {
    let sql = "SELECT name, peer, own, used_ms FROM aliases ORDER BY name";
    all(db, sql, |row| {
        Ok(AliasRow {
            name: row.get(0)?,
            peer: peer(row, 1)?,
            own: row.get(2)?,
            used_ms: row.get(3)?,
        })
    })
}

pub(crate) fn owed(db: &Connection) -> Result<Vec<OwedRow>> {
    let sql = "SELECT peer, token, owed_to, owed_by FROM owed";
    all(db, sql, |row| {
        Ok(OwedRow {
            peer: peer(row, 0)?,
            token: row.get::<_, Option<[u8; 32]>>(1)?.map(TokenHash),
            to: row.get(2)?,
            by: row.get(3)?,
        })
    })
}

pub(crate) fn head(db: &Connection) -> Result<Option<ChainHead>> {
    db.query_row(
        "SELECT blocks, hash, anchor, anchor_hash, next_seq, next_peer, next_notice, mac FROM head",
        [],
        |row| {
            Ok(ChainHead {
                blocks: row.get(0)?,
                hash: row.get(1)?,
                anchor: row.get(2)?,
                anchor_hash: row.get(3)?,
                next_seq: row.get(4)?,
                next_peer: row.get(5)?,
                next_notice: row.get(6)?,
                mac: row.get(7)?,
            })
        },
    )
    .optional()
}

/// When the last audit block was sealed.
pub(crate) fn sealed(db: &Connection) -> Result<Option<Stamp>> {
    let last = "SELECT at_ms, coalesce(steady_ms, at_ms) FROM audit ORDER BY number DESC LIMIT 1";
    db.query_row(last, [], |row| stamp(row, 0, 1)).optional()
}

/// The block in the columns `number, at_ms, hash, events`, and its steady time.
pub(crate) fn block(row: &Row<'_>) -> Result<Block> {
    Ok(Block {
        number: row.get(0)?,
        at: stamp(row, 1, 4)?,
        hash: row.get(2)?,
        events: row.get(3)?,
    })
}

/// The messages of a queue, by sender and number, and those of one sender in it. LEFT: a delivery
/// whose message is gone is damage, and must not be passed over in silence.
pub(crate) const QUEUE: &str = "SELECT d.seq, d.sender, m.id, m.recipients, m.accepted_ms,
        octet_length(m.envelope), m.envelope, d.steady_ms
    FROM deliveries d LEFT JOIN messages m ON m.seq = d.seq
    WHERE d.recipient = ?1 ORDER BY d.sender, d.seq LIMIT ?2";
pub(crate) const RUN: &str = "SELECT d.seq, d.sender, m.id, m.recipients, m.accepted_ms,
        octet_length(m.envelope), m.envelope, d.steady_ms
    FROM deliveries d LEFT JOIN messages m ON m.seq = d.seq
    WHERE d.recipient = ?1 AND d.sender = ?2 AND d.seq >= ?3 AND d.seq < ?4
    ORDER BY d.seq LIMIT ?5";

/// Reads messages until so many bytes of text are reached.
pub(crate) fn queue(mut rows: Rows<'_>, bytes: usize) -> Result<Vec<Queued>> {
    let (mut queue, mut total) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let Some(envelope) = row.get_ref(6)?.as_str_or_null()? else {
            let seq = seq(row, 0)?.0;
            let damage = format!("message {seq} is owed but not stored: damaged database");
            return Err(no_text(6, damage));
        };
        total += envelope.len();
        queue.push(Queued {
            head: message_head(row)?,
            envelope: envelope.into(),
            steady_ms: row.get(7)?,
        });
        if total >= bytes {
            break;
        }
    }
    Ok(queue)
}

/// The messages of one sender in a queue, and which follows them.
pub(crate) fn run(
    db: &Connection,
    (recipient, sender): (PeerId, PeerId),
    (from, until): (Seq, Seq),
    messages: usize,
    bytes: usize,
) -> Result<(Vec<Queued>, Option<Seq>)> {
    let mut statement = db.prepare_cached(RUN)?;
    let rows = statement.query((
        recipient.0,
        sender.0,
        bound(from.0),
        bound(until.0),
        bound(messages),
    ))?;
    let messages = queue(rows, bytes)?;
    let after = messages
        .last()
        .map_or(from.0.saturating_sub(1), |last| last.head.seq.0);
    let next = db
        .prepare_cached(NEXT_OF_PAIR)?
        .query_row((recipient.0, sender.0, bound(after)), |row| seq(row, 0))
        .optional()?;
    Ok((messages, next))
}

const NEXT_OF_PAIR: &str = "SELECT seq, steady_ms FROM deliveries
    WHERE recipient = ?1 AND sender = ?2 AND seq > ?3 ORDER BY seq LIMIT 1";

/// The first delivery of the next sender of a recipient, and of the next pair of the two. The key
/// leads with both, so each is a seek.
const NEXT_SENDER: &str = "SELECT sender, seq FROM deliveries
    WHERE recipient = ?1 AND sender > ?2 ORDER BY sender, seq LIMIT 1";
const NEXT_PAIR: &str = "SELECT recipient, sender, seq, steady_ms FROM deliveries
    WHERE (recipient, sender) > (?1, ?2) ORDER BY recipient, sender, seq LIMIT 1";

pub(crate) fn queue_heads(db: &Connection, recipient: PeerId) -> Result<Vec<(PeerId, Seq)>> {
    let mut next = db.prepare_cached(NEXT_SENDER)?;
    let mut heads = Vec::new();
    let mut last = -1;
    while let Some((sender, first)) = next
        .query_row((recipient.0, last), |row| Ok((peer(row, 0)?, seq(row, 1)?)))
        .optional()?
    {
        heads.push((sender, first));
        last = i64::from(sender.0);
    }
    Ok(heads)
}

/// Each recipient and sender between whom something is pending, with the first of it and
/// its time. There are far fewer of them than deliveries, and mostly than peers.
fn pairs(db: &Connection) -> Result<Vec<(Seq, PeerId, PeerId, u64)>> {
    let mut next = db.prepare_cached(NEXT_PAIR)?;
    let mut pairs = Vec::new();
    let mut last = (-1, -1);
    let read = |row: &Row<'_>| {
        let (recipient, sender) = (peer(row, 0)?, peer(row, 1)?);
        Ok((seq(row, 2)?, recipient, sender, row.get(3)?))
    };
    while let Some(pair) = next.query_row(last, read).optional()? {
        pairs.push(pair);
        let (_, recipient, sender, _) = pair;
        last = (i64::from(recipient.0), i64::from(sender.0));
    }
    Ok(pairs)
}

/// For whom a message is pending: peers, or last [`ANSWERS`](peerbus_core::store::ANSWERS) and
/// [`NOBODY`](peerbus_core::store::NOBODY), which are none.
pub(crate) const PENDING_FOR: &str = "SELECT p.id FROM messages m CROSS JOIN peers p
    CROSS JOIN deliveries d ON d.recipient = p.id AND d.sender = m.sender AND d.seq = m.seq
    WHERE m.seq = ?1
    UNION ALL SELECT d.recipient FROM messages m
    CROSS JOIN deliveries d ON d.recipient IN (4294967294, 4294967295) AND d.sender = m.sender AND d.seq = m.seq
    WHERE m.seq = ?1 ORDER BY 1";

/// Merges the queues by message number, so that what is settled is never looked at.
pub(crate) fn old_deliveries(
    db: &Connection,
    before_ms: u64,
    limit: usize,
) -> Result<Vec<(PeerId, MessageHead)>> {
    let mut next = db.prepare_cached(NEXT_OF_PAIR)?;
    let mut message = db.prepare_cached(MESSAGE_BY_SEQ)?;
    let mut heap: BinaryHeap<_> = pairs(db)?.into_iter().map(Reverse).collect();
    let mut old: Vec<(PeerId, MessageHead)> = Vec::new();
    while old.len() < limit {
        let Some(Reverse((number, recipient, sender, steady_ms))) = heap.pop() else {
            break;
        };
        if steady_ms >= before_ms {
            break;
        }
        let head = match old.last() {
            Some((_, head)) if head.seq == number => head.clone(),
            _ => message.query_row([number.0], message_head)?,
        };
        old.push((recipient, head));
        let following = next
            .query_row((recipient.0, sender.0, bound(number.0)), |row| {
                Ok(Reverse((seq(row, 0)?, recipient, sender, row.get(1)?)))
            })
            .optional()?;
        heap.extend(following);
    }
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_are_found_without_a_scan() {
        let directory = tempfile::tempdir().unwrap();
        let store = crate::SqliteStore::open(&directory.path().join("bus.db")).unwrap();
        let pair = "recipient=? AND sender=?";
        for (sql, key) in [
            (QUEUE, "recipient=?".to_owned()),
            (RUN, format!("{pair} AND seq>? AND seq<?")),
            (NEXT_OF_PAIR, format!("{pair} AND seq>?")),
            (NEXT_SENDER, "recipient=? AND sender>?".to_owned()),
            (NEXT_PAIR, "(recipient,sender)>(?,?)".to_owned()),
            (PENDING_FOR, format!("{pair} AND seq=?")),
        ] {
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
            let table = if sql.contains(" d ") {
                "d"
            } else {
                "deliveries"
            };
            let wanted = format!("SEARCH {table} USING PRIMARY KEY ({key})");
            assert!(plan.contains(&wanted), "{wanted}: {plan:#?}");
            let sorts = plan.iter().any(|step| step.contains("TEMP B-TREE"));
            assert!(!sorts, "{plan:#?}");
        }
    }
}
