//! How deliveries ended: packed rows, and the heads of messages that are deleted.
//!
//! The engine has no room for a row for each ack. The fates of one commit stand in one row for each
//! run of 256 message numbers that they touch, which is mostly one; rows come and go in order. The
//! head of a message stays in `messages` until that is deleted, ten minutes after it is settled,
//! and moves to `past` then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peerbus_core::store::{Fate, MessageHead, PeerId};
use peerbus_wire::{BrokerFrame, EnvelopeHash, MessageId, Receipt, Received, Seq, Stage};
use rusqlite::types::Type;
use rusqlite::{Connection, Error, OptionalExtension as _, Result};

use crate::read::{TEXT_BYTES, bound, int, limit, message_head, unsigned};

/// Message numbers that share a row of a commit.
const CHUNK: u64 = 256;
/// Bytes of a fate in `ends`: its number in the chunk, and which group it belongs to.
const END_BYTES: usize = 5;
/// What a fate costs on disk besides its part of the row: the head, the index, what pages waste.
const HEAD_BYTES: usize = 128;

/// The fates of a run of message numbers, oldest first.
const BY_CHUNK: &str =
    "SELECT ends, recipients, told FROM fates WHERE chunk = ?1 AND number > ?2 ORDER BY number";

/// Fates of one commit in one chunk. What is said of several, alike but for the message, is said
/// once for the group: as a frame of receipts whose ids mean nothing.
#[derive(Default)]
struct Packed {
    ends: Vec<u8>,
    recipients: Vec<u8>,
    groups: Vec<Receipt>,
}

impl Packed {
    fn of<'a>(fates: impl Iterator<Item = &'a Fate>) -> Result<Self> {
        let id =
            MessageId::parse("m").map_err(|error| Error::ToSqlConversionFailure(error.into()))?;
        let mut packed = Self::default();
        let mut newest = BTreeMap::<PeerId, (&Fate, u32)>::new();
        let alike = |a: &Fate, b: &Fate| (a.at_ms, &a.stage, &a.to) == (b.at_ms, &b.stage, &b.to);
        for fate in fates {
            let group = match newest.get(&fate.recipient) {
                Some((same, group)) if alike(same, fate) => *group,
                _ => {
                    let group = u32::try_from(packed.groups.len()).unwrap_or(u32::MAX);
                    newest.insert(fate.recipient, (fate, group));
                    packed.recipients.extend(fate.recipient.0.to_le_bytes());
                    packed.groups.push(Receipt {
                        at_ms: Some(fate.at_ms),
                        to: Some(fate.to.to_string()),
                        ..Receipt::new(id.clone(), Stage::clone(&fate.stage))
                    });
                    group
                }
            };
            let [low, ..] = fate.seq.0.to_le_bytes();
            packed.ends.push(low);
            packed.ends.extend(group.to_le_bytes());
        }
        Ok(packed)
    }
}

/// The messages of a chunk in `ends`, and their groups.
fn ends(chunk: u64, ends: &[u8]) -> impl Iterator<Item = (Seq, usize)> {
    let (all, _) = ends.as_chunks::<END_BYTES>();
    all.iter().map(move |[low, group @ ..]| {
        let group = u32::from_le_bytes(*group);
        // Of a damaged row, a message that there is not.
        let seq = chunk.saturating_mul(CHUNK).saturating_add((*low).into());
        (Seq(seq), group as usize)
    })
}

pub(crate) fn insert(db: &Connection, fates: &[Fate], steady_ms: u64) -> Result<()> {
    if fates.is_empty() {
        return Ok(());
    }
    let chunks: BTreeSet<u64> = fates.iter().map(|fate| fate.seq.0 / CHUNK).collect();
    let mut last =
        db.prepare_cached("SELECT at_ms, total FROM fates ORDER BY number DESC LIMIT 1")?;
    let last = last.query_row([], |row| Ok((row.get(0)?, row.get(1)?)));
    let (newest_ms, mut total): (i64, i64) = last.optional()?.unwrap_or_default();
    let at_ms = newest_ms.max(int(steady_ms)?);
    let mut insert = db.prepare_cached(
        "INSERT INTO fates(chunk, at_ms, total, ends, recipients, told)
         VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for chunk in chunks {
        let Packed {
            ends,
            recipients,
            groups,
        } = Packed::of(fates.iter().filter(|fate| fate.seq.0 / CHUNK == chunk))?;
        let told = BrokerFrame::Receipts(groups).encode();
        let count = ends.len() / END_BYTES;
        let bytes = ends.len() + recipients.len() + told.len() + count * HEAD_BYTES;
        total = total.saturating_add(limit(bytes));
        insert.execute((int(chunk)?, at_ms, total, ends, recipients, &*told))?;
    }
    Ok(())
}

pub(crate) fn of(db: &Connection, seq: Seq) -> Result<Vec<Fate>> {
    let chunk = seq.0 / CHUNK;
    let mut statement = db.prepare_cached(BY_CHUNK)?;
    let mut rows = statement.query((bound(chunk), 0))?;
    let mut fates = Vec::new();
    while let Some(row) = rows.next()? {
        let groups: Vec<usize> = ends(chunk, row.get_ref(0)?.as_blob()?)
            .filter(|(of, _)| *of == seq)
            .map(|(_, group)| group)
            .collect();
        if groups.is_empty() {
            continue;
        }
        let (recipients, _) = row.get_ref(1)?.as_blob()?.as_chunks::<4>();
        let Received::Receipts(told) = Received::parse(row.get_ref(2)?.as_bytes()?) else {
            return Err(damaged());
        };
        for group in groups {
            let said = told.get(group).zip(recipients.get(group));
            let (said, recipient) = said.ok_or_else(damaged)?;
            fates.push(Fate {
                seq,
                recipient: PeerId(u32::from_le_bytes(*recipient)),
                to: said.to.as_deref().unwrap_or_default().into(),
                stage: Arc::new(said.stage.clone()),
                at_ms: said.at_ms.unwrap_or_default(),
            });
        }
    }
    Ok(fates)
}

fn damaged() -> Error {
    let damage = "a fate cannot be read: damaged database";
    Error::FromSqlConversionFailure(2, Type::Text, damage.into())
}

/// Forgets rows from the oldest on, at most about `fates` fates in them. Says how many.
pub(crate) fn delete(
    db: &Connection,
    before_ms: u64,
    bytes_max: u64,
    fates: usize,
) -> Result<usize> {
    let total = "SELECT total FROM fates ORDER BY number DESC LIMIT 1";
    let total: Option<i64> = db
        .prepare_cached(total)?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(total) = total else {
        return Ok(0);
    };
    let mut oldest = db.prepare_cached(
        "SELECT number, chunk, ends FROM (SELECT * FROM fates ORDER BY number LIMIT 1)
         WHERE at_ms < ?1 OR total <= ?2",
    )?;
    let mut delete = db.prepare_cached("DELETE FROM fates WHERE number = ?1")?;
    let mut gone = 0;
    let over = total.saturating_sub(bound(bytes_max));
    while gone < fates {
        let first = oldest.query_row((bound(before_ms), over), |row| {
            let chunk = crate::read::unsigned(row, 1)?;
            let ends = ends(chunk, row.get_ref(2)?.as_blob()?);
            Ok((row.get(0)?, chunk, ends.map(|(seq, _)| seq).collect()))
        });
        let first: Option<(i64, u64, Vec<Seq>)> = first.optional()?;
        let Some((number, chunk, messages)) = first else {
            break;
        };
        delete.execute([number])?;
        gone += messages.len();
        forget(db, (number, chunk), &messages)?;
    }
    Ok(gone)
}

/// Forgets the heads of messages whose last fate stood in row `number`.
fn forget(db: &Connection, (number, chunk): (i64, u64), messages: &[Seq]) -> Result<()> {
    let mut delete =
        db.prepare_cached("DELETE FROM past WHERE seq = ?1 AND (recipients = 1 OR ?2)")?;
    let mut delete = |seq: Seq, last: bool| delete.execute((int(seq.0)?, last));
    let mut shared = Vec::new();
    for seq in messages {
        if delete(*seq, false)? == 0 {
            shared.push(*seq);
        }
    }
    if shared.is_empty() {
        return Ok(());
    }
    let later = seqs(db, chunk, number)?;
    for seq in shared {
        delete(seq, !later.contains(&seq))?;
    }
    Ok(())
}

/// The messages of a chunk that have fates in rows after `after`.
fn seqs(db: &Connection, chunk: u64, after: i64) -> Result<BTreeSet<Seq>> {
    let mut statement = db.prepare_cached(BY_CHUNK)?;
    let mut rows = statement.query((bound(chunk), after))?;
    let mut seqs = BTreeSet::new();
    while let Some(row) = rows.next()? {
        seqs.extend(ends(chunk, row.get_ref(0)?.as_blob()?).map(|(seq, _)| seq));
    }
    Ok(seqs)
}

/// Deletes messages; of those that have fates the heads stay.
pub(crate) fn delete_messages(db: &Connection, messages: &[Seq]) -> Result<u64> {
    let mut keep = db.prepare_cached(
        "INSERT INTO past(seq, sender, id, recipients, accepted_ms)
         SELECT seq, sender, id, recipients, accepted_ms FROM messages WHERE seq = ?1",
    )?;
    let mut text = db.prepare_cached(TEXT_BYTES)?;
    let mut delete = db.prepare_cached("DELETE FROM messages WHERE seq = ?1")?;
    let mut freed = 0;
    let same_chunk = |a: &Seq, b: &Seq| a.0 / CHUNK == b.0 / CHUNK;
    for run in messages.chunk_by(same_chunk) {
        let Some(first) = run.first() else { continue };
        let known = seqs(db, first.0 / CHUNK, 0)?;
        for seq in run {
            if known.contains(seq) {
                keep.execute([int(seq.0)?])?;
            }
            let bytes = text.query_row([int(seq.0)?], |row| unsigned(row, 0));
            freed += bytes.optional()?.unwrap_or_default();
            delete.execute([int(seq.0)?])?;
        }
    }
    Ok(freed)
}

/// Puts hashes in the place of texts until so many bytes are free. Says how many messages it looked
/// at, and what that freed.
pub(crate) fn drop_texts(db: &Connection, messages: &[Seq], bytes: u64) -> Result<(usize, u64)> {
    let mut length = db.prepare_cached(TEXT_BYTES)?;
    let mut text = db.prepare_cached("SELECT envelope FROM messages WHERE seq = ?1")?;
    let mut put = db.prepare_cached("UPDATE messages SET envelope = ?2 WHERE seq = ?1")?;
    let (mut count, mut freed) = (0, 0);
    for seq in messages {
        if freed >= bytes {
            break;
        }
        count += 1;
        let seq = int(seq.0)?;
        let more = length.query_row([seq], |row| unsigned(row, 0));
        let more = more.optional()?.unwrap_or_default();
        if more > 0 {
            let hash = text.query_row([seq], |row| {
                Ok(EnvelopeHash::of(row.get_ref(0)?.as_bytes()?))
            })?;
            put.execute((seq, hash.as_str()))?;
        }
        freed += more;
    }
    Ok((count, freed))
}

pub(crate) fn find_past(
    db: &Connection,
    sender: PeerId,
    id: &MessageId,
) -> Result<Option<MessageHead>> {
    db.prepare_cached(
        "SELECT seq, sender, id, recipients, accepted_ms, 0 FROM past
         WHERE sender = ?1 AND id = ?2 ORDER BY seq DESC LIMIT 1",
    )?
    .query_row((sender.0, id.as_str()), message_head)
    .optional()
}
