//! What peers say was done to their sessions: each record is written once and in order, or counted
//! among those that are told as one, and no connection has more written than its share.

use std::collections::{BTreeMap, VecDeque};

use peerbus_core::audit::Block;
use peerbus_core::broker::ConnId;
use peerbus_core::store::PeerId;
use peerbus_wire::AuditRecord;

use crate::failure::{Verdict, ensure};

/// Records of one connection that may be written within a minute, which may lie across two shares.
const MINUTE_MAX: usize = 120;

#[derive(Debug, Default)]
struct Count {
    handled: u64,
    written: u64,
    /// What was not written although something later of the same connection was.
    passed: u64,
    told: u64,
}

/// The world's records. Each has a `uid` of its own.
#[derive(Debug, Default)]
pub(super) struct Audits {
    /// What the broker was given: when, and what.
    given: BTreeMap<ConnId, (PeerId, VecDeque<(u64, AuditRecord)>)>,
    /// When something of a connection was written.
    written: BTreeMap<ConnId, VecDeque<u64>>,
    counts: BTreeMap<PeerId, Count>,
}

impl Audits {
    pub(super) fn given(&mut self, now_ms: u64, conn: ConnId, peer: PeerId, record: &AuditRecord) {
        let (_, given) = self.given.entry(conn).or_insert((peer, VecDeque::new()));
        given.push_back((now_ms, record.clone()));
        self.counted(peer);
    }

    /// It came while the disk was nearly full, and must not be written.
    pub(super) fn counted(&mut self, peer: PeerId) {
        self.counts.entry(peer).or_default().handled += 1;
    }

    /// The broker died.
    pub(super) fn crashed(&mut self) {
        self.given.clear();
        self.written.clear();
    }

    pub(super) fn committed(&mut self, block: &Block) -> Verdict {
        for line in block.events.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let peer = || PeerId(words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0));
            match words.first() {
                Some(&"S") => self.wrote(peer(), &words)?,
                Some(&"U") => {
                    let records = words.get(3).and_then(|word| word.parse().ok());
                    self.told(peer(), records.unwrap_or(0))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn wrote(&mut self, peer: PeerId, words: &[&str]) -> Verdict {
        let uid = words.get(5).and_then(|word| word.parse::<u32>().ok());
        let found = self.given.iter_mut().find_map(|(conn, (theirs, given))| {
            let at = given.iter().position(|(_, record)| record.uid == uid)?;
            let passed = given.drain(..at).count();
            let (at_ms, record) = given.pop_front()?;
            (*theirs == peer).then_some((*conn, passed, at_ms, record))
        });
        let Some((conn, passed, at_ms, record)) = found else {
            return ensure(false, "audit", || {
                format!("{words:?} was not said, or not then")
            });
        };
        let same = words.get(3) == Some(&record.action.word())
            && words.get(4) == Some(&record.outcome.as_str());
        ensure(same, "audit", || {
            format!("{words:?} was written of {record:?}")
        })?;
        let times = self.written.entry(conn).or_default();
        times.push_back(at_ms);
        while times.front().is_some_and(|first| first + 60_000 <= at_ms) {
            times.pop_front();
        }
        ensure(times.len() <= MINUTE_MAX, "audit", || {
            format!("{} records of {conn:?} within a minute", times.len())
        })?;
        let count = self.counts.entry(peer).or_default();
        count.written += 1;
        count.passed += passed as u64;
        ensure(count.told >= count.passed, "audit", || {
            format!("{count:?}: records of {peer:?} are neither written nor told")
        })
    }

    fn told(&mut self, peer: PeerId, records: u64) -> Verdict {
        let count = self.counts.entry(peer).or_default();
        count.told += records;
        let fits = records > 0 && count.told + count.written <= count.handled;
        ensure(fits, "audit", || {
            format!("{count:?}: too many records of {peer:?} are told")
        })
    }
}
