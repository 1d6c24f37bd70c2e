//! Messages for one member of a group, as the model has them.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_core::TokenHash;
use peerbus_core::store::{JobRow, NOBODY, PeerId};
use peerbus_wire::{GroupName, Seq, recipient_of};

use super::Oracle;
use crate::disk::Write;
use crate::failure::{Verdict, ensure};
use crate::plan::{TOKEN, token};

/// So much later than its time something may happen.
const LATE_MS: u64 = 1_000;

/// Nobody has more jobs at a time.
const HELD_MAX: usize = 16;

/// No message has more bytes.
const MOST: u64 = 1_048_576;

/// Whom a message for one member of a group is for, if it is one.
pub(super) fn job_for(envelope: &str) -> Option<GroupName> {
    let group = recipient_of(envelope)
        .strip_prefix('#')?
        .strip_suffix('!')?;
    GroupName::parse(group).ok()
}

/// Who had jobs, and how they gave them up.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Given back as not shown, and not given to the same one again since.
    unshown: BTreeSet<(PeerId, Seq)>,
    /// When the broker started.
    started_ms: u64,
    /// Who has each job, and since when.
    held: BTreeMap<Seq, (PeerId, u64)>,
    /// Since when a peer is here in these groups, speaks the extension and has room.
    free: BTreeMap<PeerId, (u64, BTreeSet<GroupName>)>,
}

impl Oracle {
    pub(super) fn is_job(&self, seq: Seq) -> bool {
        let message = self.view.messages.get(&seq);
        message.is_some_and(|message| job_for(&message.envelope).is_some())
    }

    pub(super) fn jobs_started(&mut self, now_ms: u64) {
        self.jobs.started_ms = now_ms;
        self.jobs.held.clear();
        self.jobs.free.clear();
    }

    /// A peer gives a job back.
    pub(super) fn job_released(&mut self, peer: PeerId, seq: Seq, again: bool) {
        if self.is_job(seq) && !again {
            self.jobs.unshown.insert((peer, seq));
        }
    }

    /// A peer gave this job back as not shown, and did not get it again since.
    pub(super) fn is_unshown(&self, peer: PeerId, seq: Seq) -> bool {
        self.jobs.unshown.contains(&(peer, seq))
    }

    /// Who has a job from now on instead of `peer`.
    pub(super) fn next_holder(&self, peer: PeerId, seq: Seq, writes: &[Write]) -> Option<PeerId> {
        if !self.is_job(seq) {
            return None;
        }
        let mut owed = writes.iter().filter_map(|write| match write {
            Write::Owed(to, owed, _) if *owed == seq && *to != peer => Some(*to),
            _ => None,
        });
        owed.next()
    }

    /// A peer is not owed a message any more, which another one gets.
    pub(super) fn passes(&mut self, peer: PeerId, seq: Seq) {
        let models = self.conns.values_mut();
        for model in models.filter(|model| model.peer == Some(peer)) {
            model.flights.remove(&seq);
        }
    }

    /// A job is delivered: as one that may have been shown, if anybody else had it who did not say that
    /// it was not.
    pub(super) fn job_delivered(&mut self, peer: PeerId, seq: Seq, again: bool) -> Verdict {
        if !self.is_job(seq) {
            return Ok(());
        }
        self.jobs.unshown.remove(&(peer, seq));
        let others = self
            .left
            .keys()
            .filter(|(of, what)| *what == seq && *of != peer);
        let shown = others
            .filter(|had| !self.jobs.unshown.contains(had))
            .count();
        ensure(again || shown == 0, "job", || {
            let name = self.name_of(peer);
            format!(
                "job {} comes to {name} as new, and {shown} others had it",
                seq.0
            )
        })
    }

    /// Each job that is owed is owed to one, who is said to have it; and nobody has one for long who has
    /// left.
    pub(super) fn check_jobs(&mut self, now_ms: u64, tick: bool) -> Verdict {
        self.look_at_holders(now_ms);
        for (peer, seq) in self.view.debts.iter().filter(|(_, seq)| self.is_job(*seq)) {
            let row = self.view.jobs.get(seq);
            ensure(row.is_some_and(|row| row.holder == *peer), "job", || {
                format!(
                    "job {} is owed to {}, and kept is {row:?}",
                    seq.0,
                    self.name_of(*peer)
                )
            })?;
        }
        for (seq, row) in &self.view.jobs {
            ensure(self.view.debts.contains(&(row.holder, *seq)), "job", || {
                format!("job {} has ended, and kept is {row:?}", seq.0)
            })?;
            let since = self.jobs.started_ms + self.rules.grace_ms + LATE_MS;
            let steady_ms = self.clock.steady_ms(now_ms);
            let left_ms = self.last_online.get(&row.holder).copied().unwrap_or(0);
            let away_ms = steady_ms.saturating_sub(left_ms);
            let late = tick
                && row.holder != NOBODY
                && !self.online.contains(&row.holder)
                && now_ms > since
                && away_ms > self.rules.recall_ms + LATE_MS;
            ensure(!late, "job", || {
                let name = self.name_of(row.holder);
                format!("job {} stays with {name}, who left {away_ms} ms ago", seq.0)
            })?;
            ensure(!row.rejected.contains(&row.holder), "job", || {
                let name = self.name_of(row.holder);
                format!("job {} is owed to {name}, who rejected it", seq.0)
            })?;
            if tick {
                self.not_kept_from_others(now_ms, *seq, row)?;
            }
        }
        Ok(())
    }

    /// Who has what, and who could.
    fn look_at_holders(&mut self, now_ms: u64) {
        let jobs = &self.view.jobs;
        let mut held = std::mem::take(&mut self.jobs.held);
        held.retain(|seq, (holder, _)| jobs.get(seq).is_some_and(|row| row.holder == *holder));
        for (seq, row) in jobs {
            held.entry(*seq).or_insert((row.holder, now_ms));
        }
        self.jobs.held = held;
        let here = self.conns.values().filter(|model| {
            model.ext && model.greeted.is_some() && !model.evicted && !model.closed
        });
        let here = here.filter_map(|model| Some((model.peer?, model.window?.messages)));
        let here: BTreeMap<_, _> = here.collect();
        let mut before = std::mem::take(&mut self.jobs.free);
        // Nobody else may send.
        let token = TokenHash::of(&token(TOKEN));
        let free = |(peer, most): (PeerId, u32)| {
            let held = jobs.values().filter(|row| row.holder == peer).count();
            let room =
                held < HELD_MAX.min(most as usize) && !self.is_full(peer, Some(&token), MOST);
            room.then_some(peer)
        };
        for peer in here.into_iter().filter_map(free).collect::<Vec<_>>() {
            let groups = self.view.peers.get(&peer).map(|row| row.groups.clone());
            let groups = groups.unwrap_or_default();
            let same = before.remove(&peer).filter(|(_, of)| *of == groups);
            let since_ms = same.map_or(now_ms, |(since_ms, _)| since_ms);
            self.jobs.free.insert(peer, (since_ms, groups));
        }
    }

    /// Nobody keeps a job beyond the time for it while a member is free that has not had it.
    fn not_kept_from_others(&self, now_ms: u64, seq: Seq, row: &JobRow) -> Verdict {
        let Some((_, since_ms)) = self.jobs.held.get(&seq) else {
            return Ok(());
        };
        let (Some(message), true) = (self.view.messages.get(&seq), row.holder != NOBODY) else {
            return Ok(());
        };
        let limit_ms = self.rules.patience_ms + 2 * self.rules.recall_ms + LATE_MS;
        let since_ms = *since_ms.max(&(self.jobs.started_ms + self.rules.grace_ms));
        if now_ms.saturating_sub(since_ms) <= limit_ms {
            return Ok(());
        }
        let members = self.members(now_ms, message.head.sender, &row.group);
        let mut others = members.iter().filter(|it| {
            let long = |(at, _): &(u64, _)| now_ms.saturating_sub(*at) > limit_ms;
            let free = self.jobs.free.get(it).is_some_and(long);
            free && **it != row.holder && !row.had.contains(it) && !row.rejected.contains(it)
        });
        let other = others.next().map(|it| self.name_of(*it));
        ensure(other.is_none(), "job", || {
            let name = self.name_of(row.holder);
            format!(
                "{name} keeps job {} for too long, and {other:?} is free",
                seq.0
            )
        })
    }

    /// Every member that is left has rejected this job, and its holder is none of them.
    pub(super) fn is_unwanted(&self, now_ms: u64, seq: Seq) -> bool {
        let row = self.view.jobs.get(&seq);
        let Some((row, message)) = row.zip(self.view.messages.get(&seq)) else {
            return false;
        };
        let left = self.members(now_ms, message.head.sender, &row.group);
        !row.rejected.is_empty() && left.iter().all(|it| row.rejected.contains(it))
    }

    /// A job is owed to a member who is here, or to nobody yet.
    pub(super) fn job_given(&self, now_ms: u64, writes: &[Write]) -> Verdict {
        let stored = writes.iter().find_map(|write| match write {
            Write::Message { head, envelope } => Some((head, job_for(envelope)?)),
            _ => None,
        });
        let Some((head, group)) = stored else {
            return Ok(());
        };
        let mut members = self.members(now_ms, head.sender, &group);
        members.push(NOBODY);
        let owed = writes.iter().filter_map(|write| match write {
            Write::Owed(peer, seq, _) if *seq == head.seq => Some(*peer),
            _ => None,
        });
        let owed: Vec<_> = owed.collect();
        let one = owed.len() == 1 && members.contains(&owed[0]);
        ensure(one, "job", || {
            format!(
                "job {} for one of {members:?} is owed to {owed:?}",
                head.seq.0
            )
        })
    }
}
