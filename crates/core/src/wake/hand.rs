//! Handing entries to something that shows them anyway, and to the agent that asks for them.

use super::entries::{Cause, Unseen};
use super::push::within;
use super::types::{EntryId, Limit, Parcel, Path};
use super::{Ladder, WHOLE_BYTES_MAX};

impl Ladder {
    /// Gives unseen entries to something that shows them anyway (a hook, the result of a tool):
    /// those that were never shown, then those whose evidence is overdue and that this path has
    /// not shown. Each goes at most once over each of these paths. An entry that is larger than
    /// `limit` allows goes with its beginning. Say what came of it by [`Ladder::told`].
    pub fn hand_over(&mut self, now_ms: u64, path: Path, limit: Limit) -> Option<Parcel> {
        self.advance(now_ms);
        let fits = |u: &&Unseen| u.is_for_passive(path);
        let fresh = self.unseen.values().filter(|u| u.is_fresh());
        let overdue = self.unseen.values().filter(|u| !u.is_fresh());
        let candidates: Vec<_> = fresh.chain(overdue).filter(fits).collect();
        let ids = within(limit, candidates.iter().copied());
        let rest = candidates.len() - ids.len();
        let whole_max = WHOLE_BYTES_MAX.min(limit.bytes);
        (!ids.is_empty()).then(|| self.send(path, &ids, rest, whole_max, Cause::HandOver))
    }

    /// Gives unseen entries to the agent that asked for them, oldest first, shown before or not:
    /// all of them within `limit`, or those in `only`. When it is told to be written they are
    /// settled as seen.
    pub fn read(
        &mut self,
        now_ms: u64,
        path: Path,
        only: Option<&[EntryId]>,
        limit: Limit,
    ) -> Option<Parcel> {
        self.advance(now_ms);
        let wanted = |u: &&Unseen| only.is_none_or(|ids| ids.contains(&u.entry.id)) && u.is_free();
        let candidates: Vec<_> = self.unseen.values().filter(wanted).collect();
        let ids = within(limit, candidates.iter().copied());
        let rest = candidates.len() - ids.len();
        (!ids.is_empty()).then(|| self.send(path, &ids, rest, usize::MAX, Cause::Read))
    }
}
