//! What goes into a [`MailboxMachine`](super::MailboxMachine) and what comes out of it.

use std::sync::Arc;

use peerbus_wire::{Conversation, MessageId, Stage};

use crate::session::{Inbound, NoticeId};

/// Names a message or a notice in the mailbox, ascending in order of arrival. It keeps its number
/// wherever it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct No(pub u64);

/// Names one attempt to show something over one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId(pub u64);

/// Names a question whose answer somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AskId(pub u64);

/// How much an attempt may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit {
    /// Messages and notices.
    pub messages: usize,
    /// Bytes of text; one message goes whatever its size.
    pub bytes: usize,
}

/// A way by which text reaches the agent, as data. The machine knows no client: it asks this.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathSpec {
    /// The word for it in receipts, presence and settings; unique.
    pub word: &'static str,
    /// Where it stands among the waking paths when nothing else decides: low goes first.
    pub rank: u8,
    /// Text that goes there can start a turn of an idle agent.
    pub wakes: bool,
    /// It takes one push, and has to be found ready again for the next.
    pub one_shot: bool,
    /// What it brings to a busy session queues up in the client for that turn: a second push
    /// before the first was taken would only stand behind it.
    pub joins_busy_turn: bool,
    /// What it brings is shown while a dialog waits for the user.
    pub shows_over_dialogs: bool,
    /// A long-lived process below the client carries its text.
    pub passes_below: bool,
    /// Its text stands in the result of a tool: a sign of life of the client shows that the client
    /// took it.
    pub in_result: bool,
    /// What one attempt holds at most.
    pub limit: Limit,
    /// A text that was put in here goes whole up to so many bytes as it is shown. `usize::MAX`: its client
    /// is driven, and takes any number of such texts at once, too.
    pub text_bytes: usize,
    /// The pause after a push, in milliseconds. A text that was put in here does not wait for it.
    pub gap_ms: u64,
}

/// A path.
pub type Path = &'static PathSpec;

impl PathSpec {
    /// A path that wakes nobody: text goes along with something that is shown anyway.
    const PASSIVE: Self = Self {
        word: "",
        rank: 0,
        wakes: false,
        one_shot: false,
        joins_busy_turn: false,
        shows_over_dialogs: false,
        passes_below: false,
        in_result: true,
        limit: Limit {
            messages: usize::MAX,
            bytes: usize::MAX,
        },
        text_bytes: 0,
        gap_ms: 0,
    };

    /// A path that wakes, with the limit of an ordinary push and such a pause after each.
    #[must_use]
    pub const fn waking(gap_ms: u64) -> Self {
        Self {
            wakes: true,
            in_result: false,
            limit: Limit {
                messages: 20,
                bytes: 12_000,
            },
            gap_ms,
            ..Self::PASSIVE
        }
    }

    /// Whether a process that the agent could run, too, carries the text to the client.
    pub(super) const fn is_by_hook(&self) -> bool {
        self.passes_below || !self.in_result && (self.one_shot || !self.wakes)
    }
}

/// Part of the result of a bus tool that was called for something else.
pub static PIGGYBACK: PathSpec = PathSpec {
    word: "piggyback",
    limit: Limit {
        messages: 5,
        bytes: 8 * 1024,
    },
    ..PathSpec::PASSIVE
};

/// Context that a hook adds to the turn under way. Clients cut the text of one after 10,000
/// characters.
pub static HOOK: PathSpec = PathSpec {
    word: "hook",
    in_result: false,
    limit: Limit {
        messages: 10,
        bytes: 8 * 1024,
    },
    ..PathSpec::PASSIVE
};

/// The inbox tool, which the agent called to read.
pub static INBOX: PathSpec = PathSpec {
    word: "inbox",
    ..PathSpec::PASSIVE
};

/// The drain tool, which the agent called to read.
pub static DRAIN: PathSpec = PathSpec {
    word: "drain",
    ..PathSpec::PASSIVE
};

/// The answer to a question that the agent waits for.
pub static ASK: PathSpec = PathSpec {
    word: "ask",
    ..PathSpec::PASSIVE
};

/// Who a text comes from that was put in here and did not come over the bus. No peer can have this
/// name.
pub const HERE: &str = "peerbus";

/// A message from the bus and what it says of its conversation, or a text that was put in here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The message.
    pub inbound: Inbound,
    /// Its place in a conversation.
    pub talk: Conversation,
    /// Size of its text as it is shown, in bytes.
    pub bytes: usize,
    /// Length of its text, in characters.
    pub chars: usize,
    /// So many of them are shown where only its beginning is.
    pub beginning: usize,
    /// Most of them in one part, where it is read part by part.
    pub part: usize,
    /// Of a request: what the agent is told besides.
    pub wanted: Wanted,
    /// Its sender got the message of this session's that it says to answer. Known once it has arrived.
    pub answers: bool,
    /// Of a text that was put in here: its images, which only a push brings.
    pub images: Vec<Image>,
}

/// An image that was put in with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Such as `image/png`.
    pub media_type: &'static str,
    /// Its bytes in base64.
    pub data: String,
}

/// What the agent is told of a request, besides its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The beginning of its text, as it came: a few words.
    pub gist: String,
    /// Until when its result is wanted, in words.
    pub until: String,
}

impl Mail {
    /// It wants a result, which its recipient owes once it is read.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.inbound.within_ms > 0 && !self.is_local()
    }

    /// It has this id, and this sender if one is named.
    pub(super) fn is_meant(&self, id: &str, from: Option<&str>) -> bool {
        let sender = &self.inbound.from;
        self.inbound.id == id && from.is_none_or(|from| sender.eq_ignore_ascii_case(from))
    }

    /// It was put in here.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.inbound.from == HERE
    }
}

/// What is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A peer's message, owed until it is acked, or a text that was put in here.
    Mail(Arc<Mail>),
    /// A sentence of the bus itself. What it repeats of a peer stands in quotes.
    Notice {
        /// The sentence.
        sentence: Arc<str>,
        /// The broker keeps it until it is told.
        token: Option<NoticeId>,
    },
}

impl Content {
    /// The message, if it is one.
    #[must_use]
    pub fn mail(&self) -> Option<&Arc<Mail>> {
        match self {
            Self::Mail(mail) => Some(mail),
            Self::Notice { .. } => None,
        }
    }

    /// Size of its text as it is shown, in bytes: what peers mention, or a mark that they quote, stands
    /// escaped in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Mail(mail) => mail.bytes,
            Self::Notice { sentence, .. } => {
                let escaped = |what: &str| 5 * sentence.matches(what).count();
                sentence.len() + escaped("@") + escaped("pb-")
            }
        }
    }
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

/// Why nothing comes of what waits in a session that does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    /// Its client's process is stopped.
    Stopped,
    /// Its last turn failed, for this reason, and left mail unread.
    Failed(Arc<str>),
    /// Its mail came back unread.
    GivenBack,
    /// Mail went over these paths, none if there was no way, and stayed unseen.
    Unseen(Vec<&'static str>),
}

/// What happened to an attempt. A push says [`Outcome::Written`] or [`Outcome::Failed`] once; what
/// its client says later may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The client has it: its bytes left, or, in the result of a tool, the client went on after it.
    Written,
    /// The client lives on after its bytes, in the result of a tool: that it understood them nothing
    /// shows.
    Reached,
    /// It did not get there: nothing of it was shown.
    Failed,
    /// The client keeps it until its user decides.
    Kept,
    /// The user decided against it. No other path gets it.
    Denied,
    /// The client did not show it and will not, for a reason that is not its user's decision.
    Dropped,
    /// It left, and whether it was shown will never be known. It is shown again, as a repeat.
    Doubtful,
}

/// Something to show over one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its name.
    pub id: AttemptId,
    /// Where it goes.
    pub path: Path,
    /// What is in it, in order of arrival; in what no push brings, urgent messages first. Never
    /// empty.
    pub items: Vec<AttemptItem>,
    /// So many more could have been in it, were there room.
    pub rest: usize,
}

/// A message or notice in an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptItem {
    /// Which.
    pub no: No,
    /// It may have been shown before: its text says so.
    pub repeat: bool,
    /// How much of it is shown.
    pub portion: Portion,
    /// What it says.
    pub content: Content,
    /// It goes before what came earlier.
    pub first: bool,
    /// Why the governor held it until now.
    pub held: Option<Arc<str>>,
}

/// How much of a message an attempt shows. Only when all of it was shown does an answer count as
/// having seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Portion {
    /// All.
    All,
    /// Its beginning.
    Beginning,
    /// From a place that was reached before up to this one, in characters.
    Part {
        /// Where it begins.
        from: usize,
        /// Where it ends.
        to: usize,
        /// That is the end of the message.
        last: bool,
    },
}

/// A message that waits, for somebody who looks.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Which.
    pub no: No,
    /// The message.
    pub mail: Arc<Mail>,
    /// It may have been shown before.
    pub shown: bool,
    /// Why the governor holds it.
    pub held: Option<Arc<str>>,
    /// It goes before what came earlier.
    pub first: bool,
    /// So many characters of it were read, where that is not all.
    pub read: usize,
}

/// A message that can be replied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Its sender's id for it.
    pub id: MessageId,
    /// Its sender.
    pub from: String,
    /// Its place in a conversation.
    pub talk: Conversation,
}

/// A request that was read and has no result yet. Times are of the mailbox's clock.
#[derive(Debug)]
pub struct Owed {
    /// The request, without its body.
    pub mail: Arc<Mail>,
    /// When it was read.
    pub since_ms: u64,
    /// Until when its result is wanted.
    pub until_ms: u64,
    /// What the agent said last of its work at it.
    pub said: Option<String>,
    pub(super) said_ms: Option<u64>,
    /// When it was read, on the clock that stands still while the session works.
    pub(super) idle_ms: u64,
    /// How often the agent was reminded of it.
    pub(super) reminded: usize,
}

/// Why it is not known which request is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotOwed {
    /// None with this id is owed, or waits here.
    Unknown,
    /// Several senders used this id.
    Several,
}

/// What it says that a tool call names a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// It was unseen, and is seen now.
    Seen,
    /// The client took all of it: it is seen when the conversation shows an answer after it.
    Awaited,
    /// It was unseen, and is acked as pushed: one for a member of a group, or where the conversation that can be
    /// read shows nothing of the last attempts.
    Pushed,
    /// Only a part of it was shown: it stays unseen, and its rest goes along with results of tools.
    InPart,
    /// It waits, and was not shown yet in this life of the adapter: the id is known from a list, or
    /// from elsewhere.
    NotShown,
    /// No unseen message has this id.
    Unknown,
    /// Several senders used this id: which of their messages is meant is not known.
    Several,
}

/// When a message is acked without evidence: `PEERBUS_ACK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// With evidence. Where the session's transcript cannot be read, or shows none of the last
    /// eight attempts: as pushed, once the client took a tool result with all of its text and the
    /// agent called another tool after it, or when what was shown and not proven nearly fills the
    /// window (the oldest then).
    #[default]
    Auto,
    /// With evidence only.
    Seen,
    /// As pushed, as soon as any path took all of it.
    Pushed,
}

/// What the shell has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailboxOutput {
    /// Tell the session its name, before anything that follows.
    Announce(String),
    /// Show this over its waking path, then say what came of it by
    /// [`MailboxMachine::outcome`](super::MailboxMachine::outcome).
    Push(Attempt),
    /// A message of a peer's is so far: the bus is told. It ends once: it is acked, with nothing claimed
    /// if the recipient's user does not want its sender to know more, or dead, as it is not wanted. A
    /// request that was acked may be worked at, and declined once.
    Reached {
        /// The message.
        mail: Arc<Mail>,
        /// How far.
        stage: Stage,
    },
    /// The message was not shown while it was this session's: give it back.
    GiveBack {
        /// The message.
        mail: Arc<Mail>,
    },
    /// A text that was put in here is so far. The bus knows nothing of it.
    Local {
        /// The text.
        mail: Arc<Mail>,
        /// How far.
        stage: Stage,
    },
    /// The statement that the broker keeps was told.
    Told(NoticeId),
    /// The answer to this question is here: [`MailboxMachine::take_answer`](super::MailboxMachine::take_answer).
    Answered(AskId),
    /// A message claims to answer this question, and the broker has not said who has it: ask, and say so by
    /// [`MailboxMachine::heard`](super::MailboxMachine::heard).
    Claimed(AskId),
    /// A line for the human's log: mail of a peer is held back, or peers may start no more turns.
    Warn(Arc<str>),
}
