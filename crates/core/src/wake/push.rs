//! Which entries go over which waking path, and when.

use std::collections::BTreeSet;

use super::entries::{Cause, Sent, Stage, Unseen};
use super::mutation::Mutation;
use super::types::{Action, Activity, EntryId, Item, Limit, Parcel, ParcelId, Path, Priority};
use super::{Ladder, WHOLE_BYTES_MAX};

/// What one push holds at most.
pub(super) const PUSH: Limit = Limit {
    entries: 20,
    bytes: 12_000,
};

/// Pushes in [`RECENT_MS`] beyond which even urgent entries wait for the pause.
const RECENT_MAX: usize = 20;

/// See [`RECENT_MAX`].
const RECENT_MS: u64 = 60_000;

/// How long a working session that has not taken a push yet is given no other.
const BATCH_MS: u64 = 10_000;

/// What was pushed within this time of each other climbs together: one turn, not two.
const SOON_MS: u64 = 3_000;

/// What to push.
struct Choice {
    path: Path,
    /// The entry that is the cause.
    head: EntryId,
}

impl Ladder {
    /// Pushes what is due, if its path is free. One push at a time waits for its outcome, so that
    /// what returns unshown still goes before what came after it.
    pub(super) fn pump(&mut self, now_ms: u64) {
        self.gap_at_ms = None;
        let waits = |s: &Sent| s.cause == Cause::Push && s.stage == Stage::InFlight;
        let careless = self.mutations.broken(Mutation::ShowInFlight);
        if self.parcels.values().any(waits) && !careless {
            return;
        }
        match self.choose(now_ms) {
            Ok(choice) => self.push(now_ms, &choice),
            Err(free_at_ms) => self.gap_at_ms = free_at_ms,
        }
    }

    /// The oldest entry whose path is free, or when the next path will be.
    fn choose(&self, now_ms: u64) -> Result<Choice, Option<u64>> {
        let urgent = self.is_urgent(now_ms);
        let mut free_at_ms: Option<u64> = None;
        // A first showing does not overtake another.
        let mut first_waits = false;
        let oldest_first = !self.mutations.broken(Mutation::NewestFirst);
        let mut candidates: Vec<_> = self.unseen.values().filter(|u| !u.is_quiet()).collect();
        if !oldest_first {
            candidates.reverse();
        }
        for unseen in candidates {
            let fresh = unseen.is_fresh();
            if fresh && unseen.flying.is_some() {
                first_waits = true;
            }
            if !self.is_due(unseen) || fresh && first_waits {
                continue;
            }
            let Some(path) = self.next_path(now_ms, unseen) else {
                continue;
            };
            let at = self.free_at(unseen, path, urgent);
            if at <= now_ms {
                let head = unseen.entry.id;
                return Ok(Choice { path, head });
            }
            free_at_ms = Some(free_at_ms.map_or(at, |other| other.min(at)));
            first_waits |= fresh;
        }
        Err(free_at_ms)
    }

    fn is_due(&self, unseen: &Unseen) -> bool {
        let careless = self.mutations.broken(Mutation::ShowInFlight);
        unseen.is_due() || careless && unseen.flying.is_some()
    }

    /// An urgent entry is due, and not too many of its kind went before it.
    fn is_urgent(&self, now_ms: u64) -> bool {
        let many = self.recent_ms.len() >= RECENT_MAX
            && self
                .recent_ms
                .front()
                .is_some_and(|&at| at + RECENT_MS > now_ms);
        let wants = |u: &Unseen| {
            let now = u.entry.priority == Priority::Now && u.is_due();
            let path = self.next_path(now_ms, u).filter(|_| now);
            path.is_some_and(|path| self.paths.free_at(path, true) <= now_ms)
        };
        !many && self.unseen.values().any(wants)
    }

    /// The waking path that an entry goes over next.
    fn next_path(&self, now_ms: u64, unseen: &Unseen) -> Option<Path> {
        self.paths.best(now_ms, |path| unseen.may_go_over(path))
    }

    /// When a push with this head may go over this path.
    fn free_at(&self, head: &Unseen, path: Path, urgent: bool) -> u64 {
        if self.mutations.broken(Mutation::SkipPause) {
            return 0;
        }
        let mut free = self.paths.free_at(path, urgent);
        if head.is_new() && !urgent {
            // Else a burst would be one push for each path and then a digest.
            free = free.max(self.digest_at_ms);
        }
        let works = matches!(self.activity, Activity::Busy | Activity::Waiting);
        if urgent || !works || path != Path::Socket {
            return free;
        }
        // It would queue up in the client behind the one before.
        let open = |&(id, _): &(ParcelId, u64)| self.parcels.get(&id).is_some_and(|s| !s.presented);
        let batch = self.last_socket.filter(open);
        batch.map_or(free, |(_, at_ms)| free.max(at_ms + BATCH_MS))
    }

    fn push(&mut self, now_ms: u64, choice: &Choice) {
        let ids = self.compose(now_ms, choice);
        let in_it = |id: &EntryId| ids.contains(id);
        let fresh = |u: &&Unseen| u.is_fresh() && u.is_free();
        let left = self.unseen.values().filter(fresh);
        let rest = left.filter(|u| !in_it(&u.entry.id)).count();
        let parcel = self.send(choice.path, &ids, rest, WHOLE_BYTES_MAX, Cause::Push);
        self.paths.used(choice.path);
        if self.recent_ms.len() >= RECENT_MAX {
            self.recent_ms.pop_front();
        }
        self.recent_ms.push_back(now_ms);
        self.actions.push_back(Action::Push(parcel));
    }

    /// What goes along with the head: in order of arrival what would start a push itself, then
    /// quiet entries in the space that is left.
    fn compose(&self, now_ms: u64, choice: &Choice) -> BTreeSet<EntryId> {
        let Some(head) = self.unseen.get(&choice.head) else {
            return BTreeSet::new();
        };
        let single = [Mutation::SkipPause, Mutation::NewestFirst];
        if single.into_iter().any(|m| self.mutations.broken(m)) {
            return [choice.head].into();
        }
        let mut along = Vec::new();
        // A first showing does not overtake another.
        let mut open = true;
        for unseen in self.unseen.values().filter(|u| !u.is_quiet()) {
            let fresh = unseen.is_fresh();
            open &= !(fresh && unseen.flying.is_some());
            let soon_ms = self.evidence_clock(unseen).at(now_ms) + SOON_MS;
            let climbs_soon = !head.is_fresh() && unseen.is_overdue_at(soon_ms);
            if !(self.is_due(unseen) || climbs_soon) || unseen.entry.id == choice.head {
                continue;
            }
            let here = if fresh && head.is_fresh() {
                unseen.may_go_over(choice.path)
            } else {
                // What was shown goes where it would go by itself.
                let next = self.next_path(now_ms, unseen);
                open &= !fresh || next.is_none_or(|path| path == choice.path);
                next == Some(choice.path)
            };
            if here && (open || !fresh) {
                along.push(unseen);
            }
        }
        let rides = |u: &&Unseen| u.is_quiet() && u.is_due() && u.may_go_over(choice.path);
        let mut ids = within(PUSH, [head].into_iter().chain(along));
        let size = |id: &EntryId| self.unseen.get(id).map_or(0, |u| u.entry.bytes);
        let mut bytes: usize = ids.iter().map(size).sum();
        for quiet in self.unseen.values().filter(rides) {
            if ids.len() < PUSH.entries && bytes + quiet.entry.bytes <= PUSH.bytes {
                bytes += quiet.entry.bytes;
                ids.insert(quiet.entry.id);
            }
        }
        ids
    }

    /// Makes a parcel of these entries and lets it fly.
    pub(super) fn send(
        &mut self,
        path: Path,
        ids: &BTreeSet<EntryId>,
        rest: usize,
        whole_max: usize,
        cause: Cause,
    ) -> Parcel {
        let id = ParcelId(self.next_parcel);
        self.next_parcel += 1;
        let hide = self.mutations.broken(Mutation::HideRepeat);
        let mut items = Vec::with_capacity(ids.len());
        for entry in ids {
            if let Some(unseen) = self.unseen.get_mut(entry) {
                unseen.flying = Some(id);
                items.push(Item {
                    entry: *entry,
                    repeat: (unseen.entry.again || !unseen.is_fresh()) && !hide,
                    whole: unseen.entry.bytes <= whole_max,
                });
            }
        }
        let sent = Sent {
            path,
            cause,
            stage: Stage::InFlight,
            presented: false,
            missed: false,
            items: items.iter().map(|item| (item.entry, item.whole)).collect(),
        };
        self.parcels.insert(id, sent);
        Parcel {
            id,
            path,
            items,
            rest,
        }
    }
}

/// The first of these that fit, at least one. What does not fit ends it: nothing overtakes.
pub(super) fn within<'a>(
    limit: Limit,
    unseen: impl Iterator<Item = &'a Unseen>,
) -> BTreeSet<EntryId> {
    let mut ids = BTreeSet::new();
    let mut bytes = 0_usize;
    for unseen in unseen {
        bytes = bytes.saturating_add(unseen.entry.bytes);
        if ids.len() >= limit.entries || !ids.is_empty() && bytes > limit.bytes {
            break;
        }
        ids.insert(unseen.entry.id);
    }
    ids
}
