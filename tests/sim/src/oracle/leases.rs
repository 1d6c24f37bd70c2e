//! Leases, as the model has them: messages for one member of a group, and requests.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_core::TokenHash;
use peerbus_core::store::{ANSWERS, LeaseRow, Lessee, NOBODY, PeerId, PeerKind};
use peerbus_wire::{
    Address, Carried, ClientFrame, Conversation, MessageId, Seq, Stage, body_of, sender_of,
};

use super::tables::Message;
use super::{End, Oracle};
use crate::disk::Write;
use crate::failure::{Verdict, ensure};
use crate::plan::{TOKEN, token};

/// So much later than its time something may happen.
const LATE_MS: u64 = 1_000;

/// Nobody has more leases of groups at a time.
const HELD_MAX: usize = 16;

/// No message has more bytes.
const MOST: u64 = 1_048_576;

/// Who had leases, and since when.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// When the broker started.
    started_ms: u64,
    /// Who has each lease, and since when.
    held: BTreeMap<Seq, (PeerId, u64)>,
    /// Since when a peer is here in these groups, speaks the extension and has room.
    free: BTreeMap<PeerId, (u64, BTreeSet<peerbus_wire::GroupName>)>,
    /// Requests that the open transaction ends.
    ending: BTreeSet<Seq>,
    /// A message that is accepted now and answers a request.
    answer: Option<(MessageId, Seq)>,
}

impl Oracle {
    /// It is, or was, a message for one member of a group, or a request.
    pub(super) fn is_lease(&self, seq: Seq) -> bool {
        self.view.leased.contains(&seq)
    }

    /// Another process may have read it, or have it.
    pub(super) fn leases_started(&mut self, now_ms: u64) {
        self.leases.started_ms = now_ms;
        self.leases.held.clear();
        self.leases.free.clear();
        self.leases.ending.clear();
        self.leases.answer = None;
    }

    /// Who has a lease from now on instead of `peer`.
    pub(super) fn next_holder(&self, peer: PeerId, seq: Seq, writes: &[Write]) -> Option<PeerId> {
        if !self.is_lease(seq) {
            return None;
        }
        let mut owed = writes.iter().filter_map(|write| match write {
            Write::Owed(to, owed, _) if *owed == seq && *to != peer => Some(*to),
            _ => None,
        });
        owed.next()
    }

    /// A peer is not owed a message any more, which another one gets.
    pub(super) fn passes(&mut self, peer: PeerId, heir: PeerId, seq: Seq) {
        let models = self.conns.values_mut();
        for model in models.filter(|model| model.peer == Some(peer)) {
            model.flights.remove(&seq);
        }
        if peer == ANSWERS {
            // Another process of that name is yet to read it.
            self.acked.remove(&(heir, seq));
        }
    }

    /// A lease is delivered: as one that may have been shown, if anybody else had it.
    pub(super) fn lease_delivered(&mut self, peer: PeerId, seq: Seq, again: bool) -> Verdict {
        let to_one = self.view.leases.get(&seq).and_then(LeaseRow::group);
        if to_one.is_none() {
            return Ok(());
        }
        let others = self.left.keys();
        let shown = others.filter(|(of, what)| *what == seq && *of != peer);
        let shown = shown.count();
        ensure(again || shown == 0, "lease", || {
            let name = self.name_of(peer);
            format!(
                "lease {} comes to {name} as new, and {shown} others had it",
                seq.0
            )
        })
    }

    /// What a client says that ends a request, or will have it answered.
    pub(super) fn about_request(&mut self, peer: PeerId, frame: &ClientFrame) {
        match frame {
            ClientFrame::Reject { key, .. } => {
                let seq = key.seq().unwrap_or_default();
                let row = self.view.leases.get(&seq);
                if row.is_some_and(|row| row.holder == peer && row.work().is_some()) {
                    self.causes.insert((ANSWERS, seq), End::Dead);
                }
            }
            ClientFrame::Withdraw { id } => {
                let seq = self.view.ids.get(&(peer, id.clone()));
                let row = seq.and_then(|seq| self.view.leases.get(seq));
                if let Some(row) = row.filter(|row| row.request.is_some()) {
                    self.causes
                        .insert((row.queue(), row.head.seq), End::Expired);
                }
            }
            _ => {}
        }
    }

    /// The request that a message of this peer's ends, if the broker takes it.
    pub(super) fn answers(&self, peer: PeerId, carried: &Carried) -> Option<&LeaseRow> {
        let Address::Peer(to) = &carried.to else {
            return None;
        };
        let talk = Conversation::of(body_of(&carried.text));
        let id = talk.reply_to.filter(|_| carried.within_ms.is_none())?;
        let asker = self.view.resolve(to.as_str());
        let asked = |row: &&LeaseRow, by: &dyn Fn(&Message) -> bool| {
            let message = self.view.messages.get(&row.head.seq);
            message.is_some_and(|it| it.head.id == id && by(it))
        };
        // Who has left is known by name.
        let gone = |message: &Message| {
            let known = self.view.peers.get(&message.head.sender);
            known.is_none_or(|row| row.kind != PeerKind::Peer)
                && sender_of(&message.envelope).eq_ignore_ascii_case(to.as_str())
        };
        let held = self.view.leases.values();
        let held = held.filter(|row| row.holder == peer && row.request.is_some());
        let mut own = held.clone();
        let own = own.find(|row| asked(row, &|message| Some(message.head.sender) == asker));
        let mut gones = held;
        own.or_else(|| gones.find(|row| asked(row, &gone)))
    }

    /// It answers a message of one who is not called so any more, or never was.
    pub(super) fn answers_another(&self, carried: &Carried) -> bool {
        let Address::Peer(to) = &carried.to else {
            return false;
        };
        let id = Conversation::of(body_of(&carried.text)).reply_to;
        let asker = self.view.resolve(to.as_str());
        let mut asked = self.view.ids.keys();
        id.is_some_and(|id| asked.any(|(sender, of)| *of == id && Some(*sender) != asker))
    }

    /// It is taken: the request ends.
    pub(super) fn answers_request(&mut self, peer: PeerId, carried: &Carried) {
        if let Some(row) = self.answers(peer, carried) {
            let (queue, seq) = (row.queue(), row.head.seq);
            self.causes.insert((queue, seq), End::Acked);
            self.leases.answer = Some((carried.id.clone(), seq));
        }
    }

    /// This message answers a request.
    pub(super) fn is_answer(&self, id: &str) -> bool {
        let answer = self.leases.answer.as_ref();
        answer.is_some_and(|(answer, _)| answer.as_str() == id)
    }

    /// A request ends with an accepted answer, with the same commit.
    pub(super) fn answer_taken(&mut self, writes: &[Write]) -> Verdict {
        let Some((id, seq)) = self.leases.answer.take() else {
            return Ok(());
        };
        let stored = |write: &Write| matches!(write, Write::Message { head, .. } if head.id == id);
        let taken = writes.iter().any(stored);
        let open = self.view.leases.contains_key(&seq);
        ensure(!taken || !open, "request", || {
            format!("request {} was answered by {id} and goes on", seq.0)
        })
    }

    /// Why a request may end that its holder did not end: its time is over, or the name that it is for is.
    pub(super) fn may_be_unanswered(&self, steady_ms: u64, seq: Seq, writes: &[Write]) -> bool {
        let Some(row) = self.view.leases.get(&seq) else {
            return false;
        };
        let over = row.request.as_ref();
        let over = over.is_some_and(|request| request.until_ms <= steady_ms);
        let ends = |peer: PeerId| {
            let known = self.view.peers.get(&peer);
            known.is_none_or(|row| row.kind != PeerKind::Peer)
                || writes.iter().any(|write| match write {
                    Write::PeerGone(gone) => *gone == peer,
                    Write::Peer(row) => row.id == peer && row.kind != PeerKind::Peer,
                    _ => false,
                })
        };
        over || matches!(row.to, Lessee::Peer(to) if ends(to))
    }

    /// A lease is not kept any more.
    pub(super) fn lease_gone(&mut self, seq: Seq) {
        let row = self.view.leases.get(&seq);
        if row.is_some_and(|row| row.request.is_some()) {
            self.leases.ending.insert(seq);
        }
    }

    /// Requests that end with this commit end once, with a result or a reason.
    pub(super) fn requests_ended(&mut self, writes: &[Write]) -> Verdict {
        for seq in std::mem::take(&mut self.leases.ending) {
            let ends = writes.iter().filter_map(|write| match write {
                Write::Fate(fate) if fate.seq == seq => Some(&*fate.stage),
                _ => None,
            });
            let unread = |stage: &Stage| stage.is_lost();
            let ends: Vec<_> = ends
                .filter(|stage| stage.is_end() || unread(stage))
                .collect();
            ensure(ends.len() == 1, "request", || {
                format!("request {} ends as {ends:?}", seq.0)
            })?;
            let all = self.durable.fates.get(&seq).into_iter().flatten();
            let all = all.filter(|fate| fate.stage.is_end() || unread(&fate.stage));
            ensure(all.count() == 1, "request", || {
                format!("request {} has ended before", seq.0)
            })?;
        }
        Ok(())
    }

    /// Each lease that is open is owed in one queue, as it says; nobody has one of a group for long who has
    /// left, and no request is open beyond its time.
    pub(super) fn check_leases(&mut self, now_ms: u64, tick: bool) -> Verdict {
        self.look_at_holders(now_ms);
        for (peer, seq) in self
            .view
            .debts
            .iter()
            .filter(|(_, seq)| self.is_lease(*seq))
        {
            let row = self.view.leases.get(seq);
            ensure(row.is_some_and(|row| row.queue() == *peer), "lease", || {
                format!(
                    "lease {} is owed to {}, and kept is {row:?}",
                    seq.0,
                    self.name_of(*peer)
                )
            })?;
        }
        let steady_ms = self.clock.steady_ms(now_ms);
        for (seq, row) in &self.view.leases {
            ensure(
                self.view.debts.contains(&(row.queue(), *seq)),
                "lease",
                || format!("lease {} has ended, and kept is {row:?}", seq.0),
            )?;
            let settled = now_ms > self.leases.started_ms + self.rules.grace_ms + LATE_MS;
            let over = row.request.as_ref().filter(|_| tick && settled);
            let over = over.is_some_and(|it| it.until_ms + LATE_MS < steady_ms);
            ensure(!over, "request", || {
                format!("request {} is open beyond its time: {row:?}", seq.0)
            })?;
            ensure(!row.rejected.contains(&row.holder), "lease", || {
                let name = self.name_of(row.holder);
                format!("lease {} is owed to {name}, who rejected it", seq.0)
            })?;
            if row.group().is_none() {
                continue;
            }
            let left_ms = self.last_online.get(&row.holder).copied().unwrap_or(0);
            let away_ms = steady_ms.saturating_sub(left_ms);
            let late = tick
                && settled
                && row.holder != NOBODY
                && !self.online.contains(&row.holder)
                && away_ms > self.rules.recall_ms + LATE_MS;
            ensure(!late, "lease", || {
                let name = self.name_of(row.holder);
                format!(
                    "lease {} stays with {name}, who left {away_ms} ms ago",
                    seq.0
                )
            })?;
            if tick && row.work().is_none() {
                self.not_kept_from_others(now_ms, *seq, row)?;
            }
        }
        Ok(())
    }

    /// Who has what, and who could.
    fn look_at_holders(&mut self, now_ms: u64) {
        let leases = &self.view.leases;
        let mut held = std::mem::take(&mut self.leases.held);
        held.retain(|seq, (holder, _)| leases.get(seq).is_some_and(|row| row.holder == *holder));
        for (seq, row) in leases {
            held.entry(*seq).or_insert((row.holder, now_ms));
        }
        self.leases.held = held;
        let here = self.conns.values().filter(|model| {
            model.ext && model.greeted.is_some() && !model.evicted && !model.closed
        });
        let here = here.filter_map(|model| Some((model.peer?, model.window?.messages)));
        let here: BTreeMap<_, _> = here.collect();
        let mut before = std::mem::take(&mut self.leases.free);
        // Nobody else may send.
        let token = TokenHash::of(&token(TOKEN));
        let free = |(peer, most): (PeerId, u32)| {
            let own = leases.values().filter(|row| row.group().is_some());
            let held = own.filter(|row| row.holder == peer).count();
            let room =
                held < HELD_MAX.min(most as usize) && !self.is_full(peer, Some(&token), MOST);
            room.then_some(peer)
        };
        for peer in here.into_iter().filter_map(free).collect::<Vec<_>>() {
            let groups = self.view.peers.get(&peer).map(|row| row.groups.clone());
            let groups = groups.unwrap_or_default();
            let same = before.remove(&peer).filter(|(_, of)| *of == groups);
            let since_ms = same.map_or(now_ms, |(since_ms, _)| since_ms);
            self.leases.free.insert(peer, (since_ms, groups));
        }
    }

    /// Nobody keeps a lease of a group beyond the time for it while a member is free that has not had it.
    fn not_kept_from_others(&self, now_ms: u64, seq: Seq, row: &LeaseRow) -> Verdict {
        let Some((_, since_ms)) = self.leases.held.get(&seq) else {
            return Ok(());
        };
        let (Some(message), true) = (self.view.messages.get(&seq), row.holder != NOBODY) else {
            return Ok(());
        };
        let limit_ms = self.rules.patience_ms + 2 * self.rules.recall_ms + LATE_MS;
        let since_ms = *since_ms.max(&(self.leases.started_ms + self.rules.grace_ms));
        if now_ms.saturating_sub(since_ms) <= limit_ms {
            return Ok(());
        }
        let group = row
            .group()
            .map(|group| self.members(now_ms, message.head.sender, group));
        let members = group.unwrap_or_default();
        let mut others = members.iter().filter(|it| {
            let long = |(at, _): &(u64, _)| now_ms.saturating_sub(*at) > limit_ms;
            let free = self.leases.free.get(it).is_some_and(long);
            free && **it != row.holder && !row.had.contains(it) && !row.rejected.contains(it)
        });
        let other = others.next().map(|it| self.name_of(*it));
        ensure(other.is_none(), "lease", || {
            let name = self.name_of(row.holder);
            format!(
                "{name} keeps lease {} for too long, and {other:?} is free",
                seq.0
            )
        })
    }

    /// Every member that is left has rejected this lease, and its holder is none of them.
    pub(super) fn is_unwanted(&self, now_ms: u64, seq: Seq) -> bool {
        let row = self.view.leases.get(&seq);
        let Some((row, message)) = row.zip(self.view.messages.get(&seq)) else {
            return false;
        };
        let group = row
            .group()
            .map(|group| self.members(now_ms, message.head.sender, group));
        let left = group.unwrap_or_default();
        !row.rejected.is_empty() && left.iter().all(|it| row.rejected.contains(it))
    }

    /// A lease is owed to somebody who may have it, or to nobody yet.
    pub(super) fn lease_given(&self, now_ms: u64, writes: &[Write]) -> Verdict {
        let stored = writes.iter().find_map(|write| match write {
            Write::Message { head, .. } => Some(head),
            _ => None,
        });
        let Some(head) = stored else {
            return Ok(());
        };
        let row = writes.iter().find_map(|write| match write {
            Write::Lease(row) if row.head.seq == head.seq => Some(row),
            _ => None,
        });
        let Some(row) = row else {
            return Ok(());
        };
        let mut may = match &row.to {
            Lessee::One(group) => self.members(now_ms, head.sender, group),
            Lessee::Peer(peer) => vec![*peer],
        };
        may.push(NOBODY);
        let owed = writes.iter().filter_map(|write| match write {
            Write::Owed(peer, seq, _) if *seq == head.seq => Some(*peer),
            _ => None,
        });
        let owed: Vec<_> = owed.collect();
        let one = owed.len() == 1 && may.contains(&owed[0]);
        ensure(one, "lease", || {
            format!(
                "lease {} for one of {may:?} is owed to {owed:?}",
                head.seq.0
            )
        })
    }
}
