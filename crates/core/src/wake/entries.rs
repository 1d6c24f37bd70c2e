//! What the ladder knows of an entry and of a parcel.

use super::types::{Entry, EntryId, ParcelId, Path, Priority};

/// Showings of an entry over waking paths, whatever happens.
pub(super) const WAKING_SHOWINGS_MAX: usize = 3;

/// Some paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PathSet(u8);

impl PathSet {
    pub(super) fn insert(&mut self, path: Path) -> bool {
        let new = !self.contains(path);
        self.0 |= Self::bit(path);
        new
    }

    pub(super) fn remove(&mut self, path: Path) {
        self.0 &= !Self::bit(path);
    }

    pub(super) fn clear(&mut self) {
        self.0 = 0;
    }

    pub(super) fn contains(self, path: Path) -> bool {
        self.0 & Self::bit(path) != 0
    }

    const fn bit(path: Path) -> u8 {
        1 << path as u8
    }
}

/// A showing that was not taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Showing {
    pub(super) parcel: ParcelId,
    pub(super) path: Path,
    pub(super) whole: bool,
}

/// How far an entry is. Times are of the clock that stands still while the session works, see
/// [`Sent::shows_in_dialogs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Never shown: due.
    Waiting,
    /// Shown last in this parcel; evidence may come until then.
    Shown {
        parcel: ParcelId,
        presented: bool,
        until_ms: u64,
    },
    /// The client keeps this parcel until its user decides. No other path gets the entry.
    Held(ParcelId),
    /// No evidence came in time. Due over the next path, unless it stands in the conversation.
    Overdue { parcel: ParcelId, presented: bool },
}

/// An entry that is not settled.
#[derive(Debug)]
pub(super) struct Unseen {
    pub(super) entry: Entry,
    pub(super) phase: Phase,
    /// The parcel whose outcome it waits for.
    pub(super) flying: Option<ParcelId>,
    pub(super) shown: Vec<Showing>,
    /// Waking paths whose client gave it back unshown.
    pub(super) dropped: PathSet,
    /// How often that happened.
    pub(super) drops: u32,
    /// Paths whose presentation the sender was told.
    pub(super) presented_over: PathSet,
    /// When it may go once more over a path that it went over, on the clock of [`Phase`].
    pub(super) again_at_ms: Option<u64>,
    /// That time has come.
    pub(super) once_more: bool,
    /// That was done.
    pub(super) done_once_more: bool,
}

impl Unseen {
    pub(super) fn new(entry: Entry) -> Self {
        Self {
            entry,
            phase: Phase::Waiting,
            flying: None,
            shown: Vec::new(),
            dropped: PathSet::default(),
            drops: 0,
            presented_over: PathSet::default(),
            again_at_ms: None,
            once_more: false,
            done_once_more: false,
        }
    }

    /// It starts nothing by itself.
    pub(super) fn is_quiet(&self) -> bool {
        self.entry.priority == Priority::Quiet
    }

    /// No showing of it is known.
    pub(super) fn is_fresh(&self) -> bool {
        self.shown.is_empty()
    }

    /// No path had it.
    pub(super) fn is_new(&self) -> bool {
        self.is_fresh() && self.drops == 0
    }

    /// A path may take it now.
    pub(super) fn is_free(&self) -> bool {
        self.flying.is_none() && !matches!(self.phase, Phase::Held(_))
    }

    /// It should go over a waking path that has not had it, or once more over any.
    pub(super) fn is_due(&self) -> bool {
        let climbs = match self.phase {
            Phase::Waiting => true,
            Phase::Overdue { presented, .. } => !presented,
            Phase::Shown { .. } | Phase::Held(_) => false,
        };
        self.is_free() && (climbs || self.once_more)
    }

    /// It was shown, and climbs at that time unless there is evidence before.
    pub(super) fn is_overdue_at(&self, idle_ms: u64) -> bool {
        let due = match self.phase {
            Phase::Shown {
                presented: false,
                until_ms,
                ..
            } => until_ms <= idle_ms,
            _ => false,
        };
        due && self.is_free()
    }

    /// It may be shown by something that shows text anyway.
    pub(super) fn is_for_passive(&self, path: Path) -> bool {
        let in_time = matches!(self.phase, Phase::Shown { .. });
        self.is_free() && !in_time && !self.was_over(path)
    }

    /// It was shown over this path.
    pub(super) fn was_over(&self, path: Path) -> bool {
        self.shown.iter().any(|showing| showing.path == path)
    }

    /// Showings over waking paths.
    pub(super) fn woken(&self) -> usize {
        self.shown.iter().filter(|s| s.path.wakes()).count()
    }

    /// This waking path may have it now.
    pub(super) fn may_go_over(&self, path: Path) -> bool {
        let had = self.was_over(path) || self.dropped.contains(path);
        self.woken() < WAKING_SHOWINGS_MAX && (self.once_more || !had)
    }
}

/// How far a parcel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its outcome is not told.
    InFlight,
    /// Its bytes left.
    Written,
    /// The client keeps it.
    Held,
}

/// Who wanted a parcel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The ladder, by an action.
    Push,
    /// Something that shows text anyway.
    HandOver,
    /// The agent, to read it.
    Read,
}

/// A parcel whose outcome or evidence is still of use.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) path: Path,
    pub(super) cause: Cause,
    pub(super) stage: Stage,
    pub(super) presented: bool,
    /// Its deadline passed without evidence: counted against its path.
    pub(super) missed: bool,
    /// The entries, and whether all of each is in it.
    pub(super) items: Vec<(EntryId, bool)>,
}

impl Sent {
    /// It would stand in the conversation by now, even if a dialog is open: time counts against it
    /// then, too. What waits for a boundary between tools is not late.
    pub(super) fn shows_in_dialogs(&self) -> bool {
        self.path == Path::Channel && !self.presented
    }
}
