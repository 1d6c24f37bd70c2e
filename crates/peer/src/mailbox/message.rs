//! What the mailbox knows of a message and of an attempt.

use std::sync::Arc;

use peerbus_wire::{NameKey, PeerName, Priority};

use crate::session::Key;

use super::governor::Starter;
use super::transcript::Transcript;
use super::types::{AskId, AttemptId, Content, Mail, No, Path, Portion};

/// Attempts with a message over waking paths, whatever happens.
pub(super) const WAKING_SHOWINGS_MAX: usize = 3;

/// An attempt that was not taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Showing {
    pub(super) attempt: AttemptId,
    pub(super) path: Path,
    pub(super) whole: bool,
}

/// Where a message stands. Times are of the clock that stands still while the session works, see
/// [`Sent::shows_over_dialogs`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Never shown: due.
    New,
    /// Shown last in this attempt; evidence may come until then. `presented`: its text is known to
    /// have reached the conversation.
    Shown {
        attempt: AttemptId,
        presented: bool,
        until_ms: u64,
    },
    /// No evidence came in time. Due over the next path, unless it stands in the conversation.
    Overdue { attempt: AttemptId, presented: bool },
    /// The client keeps this attempt until its user decides. No other path gets the message.
    Kept(AttemptId),
    /// The user decides about it first. No path and no tool knows of it.
    Withheld,
    /// The governor keeps it out of the agent's sight, for this reason.
    Held(Arc<str>),
    /// Somebody waits for it as the answer to this question. It is shown to nobody else.
    Expected(AskId),
}

/// A message or a notice that is not seen.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) content: Content,
    pub(super) from: Option<NameKey>,
    pub(super) priority: Priority,
    /// It may have been shown before, by an earlier session of this name, by another member of its
    /// group, or in a result of which nobody knows.
    pub(super) again: bool,
    /// The agent named it when not all of it was shown: the rest goes along with results of tools.
    pub(super) wanted: bool,
    /// The agent named it when the client had taken all of it.
    pub(super) named: bool,
    /// It said that it works at it: its sender hears that when it is seen.
    pub(super) said: Option<String>,
    /// So many replies led to it, as far as this session knows by itself.
    pub(super) known_hops: u32,
    /// So many characters of it were read, part by part.
    pub(super) read: usize,
    /// So many of them are known to have reached the conversation.
    pub(super) stood: usize,
    pub(super) place: Place,
    /// It is in this attempt, whose outcome is open: a push that is under way, or checked out by a tool
    /// or a hook.
    pub(super) out: Option<AttemptId>,
    pub(super) shown: Vec<Showing>,
    /// Waking paths whose client gave it back unshown.
    pub(super) dropped: Vec<Path>,
    /// How often that happened.
    pub(super) drops: u32,
    /// How many turns failed that had it.
    pub(super) failures: u32,
    /// Paths whose presentation the sender was told, of all of it or of less.
    pub(super) presented_over: Vec<(Path, bool)>,
    /// When it may go once more over a path that it went over, on the clock of [`Place`].
    pub(super) again_at_ms: Option<u64>,
    /// That time has come.
    pub(super) once_more: bool,
    /// That was done.
    pub(super) done_once_more: bool,
    /// Since when it waits and should wake the session, on the clock of [`Place`].
    pub(super) waits_ms: Option<u64>,
    /// It is this session's until then, by its own clock; what is not this session's any more waits so
    /// long for proof.
    pub(super) lease_ms: Option<u64>,
    /// It is not this session's any more.
    pub(super) lapsed: bool,
    /// A request: until when its result is wanted.
    pub(super) until_ms: u64,
    /// A reminder of what the session owes: whose mail it counts as.
    pub(super) reminds: Option<Starter>,
}

impl Message {
    /// What arrived, or was put in here.
    pub(super) fn of(mail: &Arc<Mail>) -> Self {
        let from = PeerName::parse(&mail.inbound.from).ok();
        let content = Content::Mail(Arc::clone(mail));
        Self {
            from: from.map(|name| name.key()),
            again: mail.inbound.again,
            ..Self::new(content, mail.talk.priority)
        }
    }

    pub(super) fn new(content: Content, priority: Priority) -> Self {
        Self {
            content,
            from: None,
            priority,
            again: false,
            wanted: false,
            named: false,
            said: None,
            known_hops: 0,
            read: 0,
            stood: 0,
            place: Place::New,
            out: None,
            shown: Vec::new(),
            dropped: Vec::new(),
            drops: 0,
            failures: 0,
            presented_over: Vec::new(),
            again_at_ms: None,
            once_more: false,
            done_once_more: false,
            waits_ms: None,
            lease_ms: None,
            lapsed: false,
            until_ms: 0,
            reminds: None,
        }
    }

    /// Whose it is.
    pub(super) fn starter(&self) -> Starter {
        if let Some(starter) = &self.reminds {
            return starter.clone();
        }
        let mail = self.content.mail();
        let party = mail.and_then(|mail| mail.inbound.party());
        Starter {
            from: self.from.clone(),
            party,
        }
    }

    /// It starts nothing by itself.
    pub(super) fn is_quiet(&self) -> bool {
        self.priority == Priority::Quiet
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.shown.is_empty()
    }

    /// This much of it may have been shown before.
    pub(super) fn is_repeat(&self, portion: Portion) -> bool {
        let before = match portion {
            Portion::Part { from, .. } if from > 0 => from < self.read || self.is_whole(),
            _ => self.read > 0 || !self.is_fresh(),
        };
        self.again || before
    }

    /// All of it was shown.
    pub(super) fn is_whole(&self) -> bool {
        self.shown.iter().any(|showing| showing.whole)
    }

    /// Something of it was shown, not a list only.
    pub(super) fn is_begun(&self) -> bool {
        self.read > 0 || !self.is_fresh()
    }

    /// Its next part goes along with the result of a tool.
    pub(super) fn wants_rest(&self) -> bool {
        self.wanted && self.is_begun() && !self.is_whole() && self.is_free()
    }

    /// What is read by the agent has it before what came earlier.
    pub(super) fn is_first(&self) -> bool {
        self.priority == Priority::Now && self.held().is_none()
    }

    /// The part of it that was not read yet, or the next of several, as large as one may be.
    pub(super) fn next_part(&self, transcript: &Transcript) -> Portion {
        let mail = self.content.mail();
        let (chars, most) = mail.map_or((0, 0), |mail| (mail.chars, mail.part));
        Portion::part(self.read, chars, transcript.room(most))
    }

    /// The word for a path, and how much of this was shown where that is not all: `inbox
    /// 16384/40000`.
    pub(super) fn over(&self, path: Path, portion: Portion) -> String {
        let mail = self.content.mail();
        let shown = match portion {
            Portion::Beginning => mail.map(|mail| mail.beginning),
            Portion::Part { .. } if !portion.completes(self.read) => Some(self.read),
            _ => None,
        };
        match (shown, mail) {
            (Some(shown), Some(mail)) => format!("{} {shown}/{}", path.word, mail.chars),
            _ => path.word.to_owned(),
        }
    }

    /// No path had it.
    pub(super) fn is_new(&self) -> bool {
        self.is_fresh() && self.drops == 0
    }

    /// Paths may take it: nobody keeps it from the agent.
    pub(super) fn is_open(&self) -> bool {
        let shown = matches!(self.place, Place::Shown { .. } | Place::Overdue { .. });
        (shown || self.place == Place::New) && !self.lapsed
    }

    /// A path may take it now.
    pub(super) fn is_free(&self) -> bool {
        self.is_open() && self.out.is_none()
    }

    /// It should go over a waking path that has not had it, or once more over any.
    pub(super) fn is_due(&self) -> bool {
        let overdue = matches!(self.place, Place::Overdue { presented, .. } if !presented);
        let escalates = overdue || self.place == Place::New;
        self.is_free() && (escalates || self.once_more)
    }

    /// It was shown, and escalates at that time unless there is evidence before.
    pub(super) fn is_overdue_at(&self, idle_ms: u64) -> bool {
        let Place::Shown {
            presented,
            until_ms,
            ..
        } = self.place
        else {
            return false;
        };
        !presented && until_ms <= idle_ms && self.is_free()
    }

    /// It may be shown by something that shows text anyway.
    pub(super) fn is_for_passive(&self, path: Path) -> bool {
        let in_time = matches!(self.place, Place::Shown { .. });
        self.is_free() && !in_time && !self.was_over(path) && !self.has_images()
    }

    /// The agent may ask for it.
    pub(super) fn is_readable(&self) -> bool {
        let held = || self.held().is_some() && self.out.is_none() && !self.lapsed;
        (self.is_free() || held()) && !self.has_images()
    }

    /// The result of a tool would be its text alone.
    fn has_images(&self) -> bool {
        self.content
            .mail()
            .is_some_and(|mail| !mail.images.is_empty())
    }

    pub(super) fn was_over(&self, path: Path) -> bool {
        self.shown.iter().any(|showing| showing.path == path)
    }

    pub(super) fn woken(&self) -> usize {
        self.shown.iter().filter(|s| s.path.wakes).count()
    }

    /// This waking path may have it now.
    pub(super) fn may_go_over(&self, path: Path) -> bool {
        let had = self.was_over(path) || self.dropped.contains(&path);
        self.woken() < WAKING_SHOWINGS_MAX && (self.once_more || !had)
    }

    /// No path has it any more, and it may have been shown.
    pub(super) fn start_over(&mut self) {
        if self.is_free() && !self.is_fresh() {
            self.place = Place::New;
            self.shown.clear();
            self.dropped.clear();
            (self.again, self.once_more, self.again_at_ms) = (true, false, None);
        }
    }

    /// It may be why turns fail: it goes alone, and at its own pace.
    pub(super) fn is_suspect(&self) -> bool {
        self.failures > 1
    }

    /// It is for one member of a group.
    pub(super) fn is_leased(&self) -> bool {
        self.content.mail().is_some_and(|mail| mail.inbound.one)
    }

    pub(super) fn is_of(&self, key: Key) -> bool {
        let mail = self.content.mail();
        mail.is_some_and(|mail| mail.inbound.key == key)
    }

    pub(super) fn is_local(&self) -> bool {
        self.content.mail().is_some_and(|mail| mail.is_local())
    }

    pub(super) fn is_withheld(&self) -> bool {
        self.place == Place::Withheld
    }

    /// The bus has it until it is acked.
    pub(super) fn is_owed(&self) -> bool {
        !self.is_local() && !self.is_notice()
    }

    pub(super) fn is_notice(&self) -> bool {
        self.content.mail().is_none()
    }

    pub(super) fn held(&self) -> Option<&Arc<str>> {
        match &self.place {
            Place::Held(why) => Some(why),
            _ => None,
        }
    }
}

/// How far an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Its outcome is not told.
    InFlight,
    Written,
    Kept,
}

/// Who wanted an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The mailbox, by an output.
    Push,
    /// Something that shows text anyway.
    Along,
    /// The agent, to read it.
    Read,
}

/// An attempt whose outcome or evidence is still of use.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) path: Path,
    pub(super) cause: Cause,
    pub(super) step: Step,
    /// It is mail for a session that does nothing, as far as is known: this sender's starts a turn.
    pub(super) starts: Option<Starter>,
    /// Its mark was found in the conversation.
    pub(super) presented: bool,
    /// Its deadline passed without evidence: counted against its path.
    pub(super) missed: bool,
    pub(super) items: Vec<(No, Portion)>,
}

impl Sent {
    /// It would stand in the conversation by now, even if a dialog is open: time counts against it
    /// then, too. What waits for a boundary between tools is not late.
    pub(super) fn shows_over_dialogs(&self) -> bool {
        self.path.shows_over_dialogs && !self.presented
    }
}

impl Portion {
    /// What is shown next of a message of so many characters of which so many were read, `most` at once.
    #[must_use]
    pub fn part(from: usize, chars: usize, most: usize) -> Self {
        let to = chars.min(from.saturating_add(most));
        let last = to == chars;
        Self::Part { from, to, last }
    }

    pub(super) fn is_part(self) -> bool {
        matches!(self, Self::Part { .. })
    }
}
