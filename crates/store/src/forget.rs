//! What ended goes, the oldest first, and only when nothing needs it any more.

use std::collections::BTreeSet;

use peerbus_core::store::{FATES_RUN, Forgotten, Keep};
use peerbus_wire::{EnvelopeHash, Receipt, Received, Seq, Stage};
use rusqlite::{Connection, OptionalExtension as _, Result, Row};

use crate::contents;
use crate::fates::{GOES_ON, ends};
use crate::read::{self, PENDING_FOR, bound};

/// Bytes, texts included, that one call goes through, about.
const BYTES: i64 = 4 * 1_048_576;

/// A row of `fates`.
struct Ends {
    number: i64,
    chunk: u64,
    /// The bytes up to its end.
    total: i64,
    /// With whether it may have gone on to another recipient.
    messages: Vec<(Seq, bool)>,
}

/// What [`ends_of`] reads.
const ENDS: &str = "SELECT number, chunk, ends, total,
     CASE WHEN instr(told, '\"recalled\"') OR instr(told, '\"id\":\"o\"') THEN told END FROM";

fn ends_of(row: &Row<'_>) -> Result<Ends> {
    let chunk = row.get(1)?;
    let told = row.get_ref(4)?.as_bytes_or_null()?.map(Received::parse);
    let recalled = |group| match &told {
        None => false,
        Some(Received::Receipts(told)) => told.get(group).is_none_or(|said: &Receipt| {
            said.id.as_str() == GOES_ON || matches!(said.stage, Stage::Recalled { .. })
        }),
        Some(_) => true,
    };
    let ends = ends(chunk, row.get_ref(2)?.as_blob()?);
    Ok(Ends {
        number: row.get(0)?,
        chunk,
        total: row.get(3)?,
        messages: ends.map(|(seq, group)| (seq, recalled(group))).collect(),
    })
}

/// Forgets ends beyond what is to be kept. `texts_gone`: the texts of all rows up to this one are
/// gone.
pub(crate) fn ended(
    db: &Connection,
    keep: Keep,
    ends_max: usize,
    texts_gone: &mut i64,
) -> Result<Forgotten> {
    let mut gone = Forgotten::default();
    let total = "SELECT total FROM fates ORDER BY number DESC LIMIT 1";
    let Some(total) = read::one::<i64>(db, total, [])? else {
        *texts_gone = 0;
        return Ok(gone);
    };
    let over = total.saturating_sub(bound(keep.bytes));
    let mut looked_at = rows(db, keep, over, ends_max, &mut gone)?;
    if looked_at < ends_max {
        looked_at += texts(
            db,
            keep,
            (over, ends_max - looked_at),
            texts_gone,
            &mut gone,
        )?;
    }
    let empty = !db
        .prepare_cached("SELECT 1 FROM fates LIMIT 1")?
        .exists([])?;
    if empty {
        // Their numbers begin anew.
        *texts_gone = 0;
    }
    gone.more = looked_at >= ends_max;
    gone.messages.sort_unstable();
    Ok(gone)
}

/// Deletes rows from the oldest on, and with the last fate of a message the message.
fn rows(
    db: &Connection,
    keep: Keep,
    over: i64,
    ends_max: usize,
    gone: &mut Forgotten,
) -> Result<usize> {
    let mut oldest = db.prepare_cached(&format!(
        "{ENDS} (SELECT * FROM fates ORDER BY number LIMIT 1)
         WHERE (at_ms < ?1 OR total <= ?2) AND at_ms < ?3"
    ))?;
    let mut delete = db.prepare_cached("DELETE FROM fates WHERE number = ?1")?;
    let mut alone = db.prepare_cached(
        "DELETE FROM messages WHERE seq = ?1 AND recipients <= 1
         AND NOT EXISTS(SELECT 1 FROM dead WHERE seq = ?1)",
    )?;
    let (mut looked_at, mut began) = (0, None);
    let bounds = (bound(keep.from_ms), over, bound(keep.ids_from_ms));
    while looked_at < ends_max {
        let first = oldest.query_row(bounds, ends_of).optional()?;
        let Some(row) = first else {
            break;
        };
        if row.total > *began.get_or_insert(row.total) + BYTES {
            return Ok(ends_max);
        }
        delete.execute([row.number])?;
        looked_at += row.messages.len();
        gone.rows += row.messages.len();
        let mut shared = BTreeSet::new();
        for (seq, recalled) in row.messages {
            if !recalled && alone.execute([seq.0])? == 1 {
                gone.messages.push(seq);
            } else {
                shared.insert(seq);
            }
        }
        messages(db, (row.chunk, row.number), &shared, gone)?;
        contents::forget(db, row.chunk)?;
    }
    Ok(looked_at)
}

/// A text that is there and not kept as dead, and how many have it.
const TEXT: &str = "SELECT envelope, recipients FROM messages m
     WHERE seq = ?1 AND octet_length(envelope) > 22
     AND NOT EXISTS(SELECT 1 FROM dead WHERE dead.seq = m.seq)";
const PUT_TEXT: &str = "UPDATE messages SET envelope = ?2 WHERE seq = ?1";

/// Puts its hash in the place of one text, unless somebody is owed it, or the operator keeps it.
pub(crate) fn text(db: &Connection, seq: Seq) -> Result<bool> {
    let hash = |row: &Row<'_>| Ok(EnvelopeHash::of(row.get_ref(0)?.as_bytes()?));
    let mut text = db.prepare_cached(TEXT)?;
    let found = text.query_row([seq.0], hash).optional()?;
    let Some(hash) = found else { return Ok(false) };
    if is_pending(db, seq)? {
        return Ok(false);
    }
    let mut put = db.prepare_cached(PUT_TEXT)?;
    Ok(put.execute((seq.0, hash.as_str()))? == 1)
}

/// Puts hashes in the place of texts, in rows whose messages must stay.
fn texts(
    db: &Connection,
    keep: Keep,
    (over, ends_max): (i64, usize),
    texts_gone: &mut i64,
    gone: &mut Forgotten,
) -> Result<usize> {
    let mut next = db.prepare_cached(&format!(
        "{ENDS} (SELECT * FROM fates WHERE number > ?3 ORDER BY number LIMIT 1)
         WHERE at_ms < ?1 OR total <= ?2"
    ))?;
    let mut text = db.prepare_cached(TEXT)?;
    let mut put = db.prepare_cached(PUT_TEXT)?;
    let (mut looked_at, mut began) = (0, None);
    while looked_at < ends_max {
        let bounds = (bound(keep.from_ms), over, *texts_gone);
        let row = next.query_row(bounds, ends_of).optional()?;
        let Some(row) = row else {
            break;
        };
        if row.total > *began.get_or_insert(row.total) + BYTES {
            return Ok(ends_max);
        }
        looked_at += row.messages.len();
        let mut later = None;
        for (seq, recalled) in row.messages {
            let found = text.query_row([seq.0], |row| {
                let hash = EnvelopeHash::of(row.get_ref(0)?.as_bytes()?);
                Ok((hash, row.get::<_, u32>(1)?))
            });
            let Some((hash, recipients)) = found.optional()? else {
                continue;
            };
            if recipients > 1 || recalled {
                if later.is_none() {
                    later = Some(seqs(db, row.chunk, row.number)?);
                }
                let ends_later = later.as_ref().is_some_and(|later| later.contains(&seq));
                if ends_later || is_pending(db, seq)? {
                    continue;
                }
            }
            put.execute((seq.0, hash.as_str()))?;
            gone.rows += 1;
        }
        *texts_gone = row.number;
    }
    Ok(looked_at)
}

/// Deletes those of these messages of a chunk of which nothing else is kept, but for rows of fates up
/// to `number`.
fn messages(
    db: &Connection,
    (chunk, number): (u64, i64),
    candidates: &BTreeSet<Seq>,
    gone: &mut Forgotten,
) -> Result<()> {
    if candidates.is_empty() {
        return Ok(());
    }
    let later = seqs(db, chunk, number)?;
    let mut delete = db.prepare_cached(
        "DELETE FROM messages WHERE seq = ?1 AND NOT EXISTS(SELECT 1 FROM dead WHERE seq = ?1)",
    )?;
    for seq in candidates.difference(&later) {
        if !is_pending(db, *seq)? && delete.execute([seq.0])? == 1 {
            gone.messages.push(*seq);
        }
    }
    Ok(())
}

/// The messages of a chunk that have fates in rows after `after`.
fn seqs(db: &Connection, chunk: u64, after: i64) -> Result<BTreeSet<Seq>> {
    let mut statement =
        db.prepare_cached("SELECT ends FROM fates WHERE chunk = ?1 AND number > ?2")?;
    let mut rows = statement.query((bound(chunk), after))?;
    let mut seqs = BTreeSet::new();
    while let Some(row) = rows.next()? {
        seqs.extend(ends(chunk, row.get_ref(0)?.as_blob()?).map(|(seq, _)| seq));
    }
    Ok(seqs)
}

fn is_pending(db: &Connection, seq: Seq) -> Result<bool> {
    db.prepare_cached(PENDING_FOR)?.exists([seq.0])
}

/// Forgets rejected messages.
pub(crate) fn dead(
    db: &Connection,
    before_ms: u64,
    bytes_max: u64,
    rows: usize,
) -> Result<Forgotten> {
    let old: Vec<(Seq, u32)> = db
        .prepare_cached(
            "SELECT seq, recipient FROM
                  (SELECT * FROM dead ORDER BY steady_ms, seq, recipient LIMIT ?2)
             WHERE steady_ms < ?1 OR total <= -?3 +
                 (SELECT max(total) FROM dead
                  WHERE steady_ms = (SELECT max(steady_ms) FROM dead))",
        )?
        .query_map((bound(before_ms), bound(rows), bound(bytes_max)), |row| {
            Ok((read::seq(row, 0)?, row.get(1)?))
        })?
        .collect::<Result<_>>()?;
    let mut delete = db.prepare_cached("DELETE FROM dead WHERE seq = ?1 AND recipient = ?2")?;
    let mut gone = Forgotten {
        rows: old.len(),
        more: old.len() == rows,
        ..Forgotten::default()
    };
    let mut messages_of = BTreeSet::new();
    for (seq, recipient) in old {
        delete.execute((seq.0, recipient))?;
        messages_of.insert(seq);
    }
    let all: Vec<Seq> = messages_of.into_iter().collect();
    for run in all.chunk_by(|a, b| a.0 / FATES_RUN == b.0 / FATES_RUN) {
        let Some(first) = run.first() else { continue };
        let candidates = run.iter().copied().collect();
        messages(db, (first.0 / FATES_RUN, 0), &candidates, &mut gone)?;
        contents::forget(db, first.0 / FATES_RUN)?;
    }
    Ok(gone)
}
