//! What goes into a [`Ladder`](super::Ladder) and what comes out of it.

use peerbus_wire::How;

/// Names something that the agent should see: a message, or a notice of the bus. Given by the
/// host, ascending in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub u64);

/// Names one showing of some entries over one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParcelId(pub u64);

/// A way by which text reaches the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// The socket at which the session itself takes messages. Wakes.
    Socket,
    /// A hook that waits in the background and rewakes its session. Wakes, once.
    Rewake,
    /// A `claude/channel` notification. Wakes, or is dropped without a word.
    Channel,
    /// Context that a hook adds to the turn under way.
    Hook,
    /// Part of the result of a bus tool that was called for something else.
    Piggyback,
    /// The inbox tool, which the agent called to read.
    Inbox,
    /// The drain tool, which the agent called to read.
    Drain,
}

impl Path {
    /// The paths that wake the agent, best first.
    pub const WAKING: [Self; 3] = [Self::Socket, Self::Rewake, Self::Channel];

    /// The word for it in receipts and presence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Rewake => "rewake",
            Self::Channel => "channel",
            Self::Hook => "hook",
            Self::Piggyback => "piggyback",
            Self::Inbox => "inbox",
            Self::Drain => "drain",
        }
    }

    /// Text that goes there can start a turn of an idle agent.
    #[must_use]
    pub fn wakes(self) -> bool {
        Self::WAKING.contains(&self)
    }

    /// The agent asked for the text: once it has the answer, the text is seen.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Inbox | Self::Drain)
    }
}

/// How soon an entry wants to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum Priority {
    /// Never starts a turn: it goes along with the next thing that is shown.
    Quiet,
    /// Wakes an idle agent; at the next opportunity of a busy one.
    #[default]
    Next,
    /// As [`Priority::Next`], without the pause in which a burst becomes one push.
    Now,
}

/// Something to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its name; greater than those of all earlier entries.
    pub id: EntryId,
    /// How soon.
    pub priority: Priority,
    /// Size of its text as it is shown, in bytes.
    pub bytes: usize,
    /// An earlier session of this name may have been shown it: its first showing says so.
    pub again: bool,
}

/// Whether a path can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathState {
    /// It is there.
    Ready,
    /// It is not there, or not any more.
    #[default]
    Absent,
}

/// What the session is doing, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activity {
    /// Nothing: a push starts a turn.
    Idle,
    /// A turn is under way: a push waits for a boundary in it.
    Busy,
    /// It waits for its user, who has a dialog open.
    Waiting,
    /// Nobody says.
    #[default]
    Unknown,
}

/// What happened to a parcel. A waking path says [`Outcome::Written`] or [`Outcome::Failed`] once;
/// what its client says later may follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Its bytes left for the client.
    Written,
    /// They did not: nothing of it was shown.
    Failed,
    /// The client keeps it until its user decides.
    Held,
    /// The user decided against it. No other path gets it.
    Denied,
    /// The client did not show it and will not, for a reason that is not its user's decision.
    Dropped,
    /// The client took it and wants to know nothing of it any more: whether it was shown is not
    /// known. It is shown again, as a repeat.
    Doubtful,
}

/// A showing of entries over one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// Its name.
    pub id: ParcelId,
    /// Where it goes.
    pub path: Path,
    /// What is in it, in order of arrival; never empty.
    pub items: Vec<Item>,
    /// So many more could have been in it, were there room.
    pub rest: usize,
}

/// An entry in a parcel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// The entry.
    pub entry: EntryId,
    /// It may have been shown before: its text says so.
    pub repeat: bool,
    /// All of it is shown. Otherwise its beginning, and an answer after it does not count as
    /// having seen it.
    pub whole: bool,
}

/// How much a parcel may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Entries.
    pub entries: usize,
    /// Bytes of text; one entry goes whatever its size.
    pub bytes: usize,
}

/// A step of an entry on its way that is worth telling its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Handed to the agent's runtime.
    Pushed(Path),
    /// Its text is in the session's conversation.
    Presented(Path),
    /// The client keeps it until its user decides.
    Held(Path),
}

/// When an entry is settled without evidence: `PEERBUS_ACK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// With evidence. Where the session's transcript cannot be read, or shows none of the last
    /// eight pushes: as pushed, once a tool result with its text was delivered and the agent called
    /// another tool after it, or when what was shown and not proven nearly fills the window (the
    /// oldest then).
    #[default]
    Auto,
    /// With evidence only.
    Seen,
    /// As pushed, as soon as any path took all of it.
    Pushed,
}

/// What the host has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Show this over its waking path, then say what came of it by [`Ladder::told`](super::Ladder::told).
    Push(Parcel),
    /// Done with the entry: ack it with this. Once for each entry, unless it was rejected.
    Settle {
        /// The entry.
        entry: EntryId,
        /// What the ack may claim.
        how: How,
    },
    /// The recipient's user does not want it: reject it with this reason.
    Reject {
        /// The entry.
        entry: EntryId,
        /// A sentence for its sender.
        reason: &'static str,
    },
    /// Tell the sender.
    Progress {
        /// The entry.
        entry: EntryId,
        /// How far it is.
        step: Step,
    },
    /// What is held nearly fills the window: say that so many wait, and where to read them.
    Crowded {
        /// Unseen entries, those included that the host holds back.
        waiting: usize,
    },
}

/// Why a ladder wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The pause after a push is over.
    Gap,
    /// No evidence came in time: the next path is due.
    Climb,
    /// It is still crowded.
    Crowd,
}
