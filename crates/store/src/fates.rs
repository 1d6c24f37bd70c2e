//! How deliveries ended, in packed rows, with which the messages go.
//!
//! The engine has no room for a row for each ack. The fates of one commit stand in one row for each
//! run of 256 message numbers that they touch, which is mostly one, or in several where much is said;
//! rows come and go in order. A message stays where it is until its last fate goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peerbus_core::store::{DeliveryHistory, FATE_BYTES, FATES_RUN, Fate, PeerId, STEP_BYTES};
use peerbus_wire::{BrokerFrame, MessageId, Receipt, Received, Seq, Stage};
use rusqlite::{Connection, Error, OptionalExtension as _, Result, Row};

use crate::read::{bound, no_text};

/// Bytes of a fate in `ends`: its number in the chunk, and which group it belongs to.
const END_BYTES: usize = 5;

/// What is said in a row ends it when it takes so many bytes, about: who asks for one of its ends has all
/// of that read.
const ROW_BYTES: u64 = 8 * 1_024;

/// The id in a group of fates whose messages go on.
pub(crate) const GOES_ON: &str = "o";

/// The fates of a run of message numbers, the newest first.
const BY_CHUNK: &str = "SELECT ends, recipients, told, delivered, steps FROM fates
     WHERE chunk = ?1 ORDER BY number DESC";

/// Fates of one commit in one chunk, or the first of them. What is said of several, alike but for the
/// message, is said once for the group: as a frame of receipts whose ids say whether the message goes on. What was said
/// before stands in another, in which the ids are the numbers of the groups.
#[derive(Default)]
struct Packed {
    ends: Vec<u8>,
    recipients: Vec<u8>,
    groups: Vec<Receipt>,
    /// When each group was delivered; 0 for those of which that is not known.
    delivered: Vec<u8>,
    steps: Vec<Receipt>,
}

impl Packed {
    fn of<'a>(fates: &mut impl Iterator<Item = &'a Fate>) -> Result<Self> {
        let id = |text: &str| {
            MessageId::parse(text).map_err(|error| Error::ToSqlConversionFailure(error.into()))
        };
        let (last, goes_on) = (id("m")?, id(GOES_ON)?);
        let mut packed = Self::default();
        let mut newest = BTreeMap::<PeerId, (&Fate, u32)>::new();
        let alike = |a: &Fate, b: &Fate| {
            (a.at_ms, &a.stage, &a.to, &a.way, a.goes_on)
                == (b.at_ms, &b.stage, &b.to, &b.way, b.goes_on)
        };
        let mut bytes = 0;
        while bytes < ROW_BYTES
            && let Some(fate) = fates.next()
        {
            let group = match newest.get(&fate.recipient) {
                Some((same, group)) if alike(same, fate) => *group,
                _ => {
                    let group = u32::try_from(packed.groups.len()).unwrap_or(u32::MAX);
                    newest.insert(fate.recipient, (fate, group));
                    bytes += STEP_BYTES + fate.bytes();
                    packed.recipients.extend(fate.recipient.0.to_le_bytes());
                    let delivered = fate.way.delivered_ms().unwrap_or_default();
                    packed.delivered.extend(delivered.to_le_bytes());
                    packed.note_steps(group, fate)?;
                    let stage = Stage::clone(&fate.stage);
                    let id = if fate.goes_on { &goes_on } else { &last };
                    let said = Receipt::at_one(id.clone(), &*fate.to, stage, fate.at_ms);
                    packed.groups.push(said);
                    group
                }
            };
            let [low, ..] = fate.seq.0.to_le_bytes();
            packed.ends.push(low);
            packed.ends.extend(group.to_le_bytes());
        }
        Ok(packed)
    }

    fn note_steps(&mut self, group: u32, fate: &Fate) -> Result<()> {
        if fate.way.steps().is_empty() {
            return Ok(());
        }
        let id = MessageId::parse(&group.to_string());
        let id = id.map_err(|error| Error::ToSqlConversionFailure(error.into()))?;
        for (stage, at_ms) in fate.way.steps() {
            let step = Receipt::at_one(id.clone(), &*fate.to, stage.clone(), *at_ms);
            self.steps.push(step);
        }
        Ok(())
    }
}

/// The messages of a chunk in `ends`, and their groups.
pub(crate) fn ends(chunk: u64, ends: &[u8]) -> impl Iterator<Item = (Seq, usize)> {
    let (all, _) = ends.as_chunks::<END_BYTES>();
    all.iter().map(move |[low, group @ ..]| {
        let group = u32::from_le_bytes(*group);
        // Of a damaged row, a message that there is not.
        let seq = chunk
            .saturating_mul(FATES_RUN)
            .saturating_add((*low).into());
        (Seq(seq), group as usize)
    })
}

pub(crate) fn insert(
    db: &Connection,
    fates: &[Fate],
    mut bytes: u64,
    steady_ms: u64,
) -> Result<()> {
    if fates.is_empty() {
        return Ok(());
    }
    let chunks: BTreeSet<u64> = fates.iter().map(|fate| fate.seq.0 / FATES_RUN).collect();
    let mut last =
        db.prepare_cached("SELECT at_ms, total FROM fates ORDER BY number DESC LIMIT 1")?;
    let last = last.query_row([], |row| Ok((row.get(0)?, row.get(1)?)));
    let (newest_ms, mut total): (u64, i64) = last.optional()?.unwrap_or_default();
    let at_ms = newest_ms.max(steady_ms);
    let mut insert = db.prepare_cached(
        "INSERT INTO fates(chunk, at_ms, total, ends, recipients, told, delivered, steps)
         VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    for chunk in chunks {
        let of_chunk = fates.iter().filter(|fate| fate.seq.0 / FATES_RUN == chunk);
        let mut of_chunk = of_chunk.peekable();
        while of_chunk.peek().is_some() {
            let Packed {
                ends,
                recipients,
                groups,
                delivered,
                steps,
            } = Packed::of(&mut of_chunk)?;
            let told = BrokerFrame::Receipts(groups).encode();
            let steps = (!steps.is_empty()).then(|| BrokerFrame::Receipts(steps).encode());
            total = total.saturating_add(bound(std::mem::take(&mut bytes)));
            insert.execute((
                chunk,
                at_ms,
                total,
                ends,
                recipients,
                &*told,
                delivered,
                steps.as_deref(),
            ))?;
        }
    }
    Ok(())
}

/// Gives messages that ended a fate of nobody, as of the last commit.
pub(crate) fn end_all(db: &Connection) -> Result<()> {
    let now = "SELECT coalesce(max(coalesce(steady_ms, at_ms)), 0) FROM audit";
    let now_ms = db.query_row(now, [], |row| row.get(0))?;
    let ended: Vec<(Seq, u64)> = db
        .prepare(
            "SELECT seq, octet_length(envelope) FROM messages
             WHERE seq NOT IN (SELECT seq FROM deliveries) ORDER BY seq",
        )?
        .query_map([], |row| Ok((crate::read::seq(row, 0)?, row.get(1)?)))?
        .collect::<Result<_>>()?;
    for run in ended.chunk_by(|(a, _), (b, _)| a.0 / FATES_RUN == b.0 / FATES_RUN) {
        let fates = run.iter().map(|(seq, _)| Fate::of_nobody(*seq, now_ms));
        let bytes = run.iter().map(|(_, bytes)| bytes + FATE_BYTES).sum();
        insert(db, &fates.collect::<Vec<_>>(), bytes, now_ms)?;
    }
    Ok(())
}

/// The fates of these messages, in order, of each the `last` ones.
pub(crate) fn of(db: &Connection, seqs: &[Seq], last: usize) -> Result<BTreeMap<Seq, Vec<Fate>>> {
    let mut found: BTreeMap<_, _> = seqs.iter().map(|seq| (*seq, Vec::new())).collect();
    let chunks: BTreeSet<u64> = seqs.iter().map(|seq| seq.0 / FATES_RUN).collect();
    let mut statement = db.prepare_cached(BY_CHUNK)?;
    for chunk in chunks {
        let mut rows = statement.query([bound(chunk)])?;
        while let Some(row) = rows.next()? {
            take(row, chunk, last, &mut found)?;
        }
    }
    found.values_mut().for_each(|fates| fates.reverse());
    Ok(found)
}

/// Adds what a row has of these messages, the newest first. Most rows have nothing: their words are not
/// looked at.
fn take(
    row: &Row<'_>,
    chunk: u64,
    last: usize,
    found: &mut BTreeMap<Seq, Vec<Fate>>,
) -> Result<()> {
    let ends = ends(chunk, row.get_ref(0)?.as_blob()?);
    let wanted = |of: &Seq| found.get(of).is_some_and(|fates| fates.len() < last);
    let ends: Vec<_> = ends.filter(|(of, _)| wanted(of)).collect();
    if ends.is_empty() {
        return Ok(());
    }
    let (recipients, _) = row.get_ref(1)?.as_blob()?.as_chunks::<4>();
    let Received::Receipts(told) = Received::parse(row.get_ref(2)?.as_bytes()?) else {
        return Err(damaged());
    };
    // Older brokers kept neither.
    let delivered = row.get_ref(3)?.as_blob_or_null()?.unwrap_or_default();
    let (delivered, _) = delivered.as_chunks::<8>();
    let steps = match row.get_ref(4)?.as_bytes_or_null()?.map(Received::parse) {
        None => Vec::new(),
        Some(Received::Receipts(steps)) => steps,
        Some(_) => return Err(damaged()),
    };
    let steps = steps.chunk_by(|a, b| a.id == b.id);
    let steps = steps.filter_map(|of| Some((of.first()?.id.as_str().parse().ok()?, of)));
    let steps: BTreeMap<usize, _> = steps.collect();
    for (seq, group) in ends.into_iter().rev() {
        let said = told.get(group).zip(recipients.get(group));
        let (said, recipient) = said.ok_or_else(damaged)?;
        let recipient = PeerId(u32::from_le_bytes(*recipient));
        let fates = found.get_mut(&seq).filter(|fates| fates.len() < last);
        let Some(fates) = fates.filter(|_| recipient != PeerId(0)) else {
            continue;
        };
        let at = delivered.get(group).map(|at| u64::from_le_bytes(*at));
        let mut way = DeliveryHistory::delivered(at.unwrap_or_default());
        for step in steps.get(&group).copied().unwrap_or_default() {
            way.step(&step.stage, step.at_ms.unwrap_or_default());
        }
        fates.push(Fate {
            seq,
            recipient,
            to: said.to.as_deref().unwrap_or_default().into(),
            stage: Arc::new(said.stage.clone()),
            at_ms: said.at_ms.unwrap_or_default(),
            way,
            // Older brokers did not say so.
            goes_on: said.id.as_str() == GOES_ON || matches!(said.stage, Stage::Recalled { .. }),
        });
    }
    Ok(())
}

fn damaged() -> Error {
    no_text(2, "a fate cannot be read: damaged database")
}
