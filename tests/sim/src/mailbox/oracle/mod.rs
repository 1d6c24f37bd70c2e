//! What the mailbox does is compared with what it was told, and with what the model of the client
//! shows.

mod hear;
mod judge;
mod local;
mod named;
mod owed;
mod place;
mod senders;

use std::collections::{BTreeMap, BTreeSet};

use peerbus_peer::mailbox::{
    Activity, AskId, Attempt, AttemptId, AttemptItem, Mail, No, Outcome, Path, Policy, Portion,
};
use peerbus_peer::session::Key;
use peerbus_wire::Priority;

/// A message by its number, in order of arrival; a notice by [`NOTICE`] and its own number.
type Which = usize;

/// Above every number of a message.
const NOTICE: Which = 1 << 40;

/// A message, whatever sessions it goes through.
#[derive(Debug)]
struct Letter {
    mail: Mail,
    burst: bool,
    /// An adapter had it.
    delivered: bool,
    /// It stood in a conversation without the mark of a repeat.
    shown_as_new: bool,
    /// So much of it stood there, part by part.
    shown_to: usize,
    /// So much of it stands in this conversation, from its beginning on.
    stands_to: usize,
    /// All of it stood in one conversation.
    stood_whole: bool,
    /// How it was acked; the broker may not know that yet.
    acked: Option<String>,
    /// Another one has it, as far as the broker told.
    away: bool,
    end: Option<String>,
}

/// A showing that was not given back.
#[derive(Debug, Clone, Copy)]
struct Stand {
    attempt: AttemptId,
    path: Path,
    whole: bool,
}

/// What an adapter did with a message or a notice.
#[derive(Debug, Default)]
struct Entry {
    no: Option<No>,
    /// The how many-eth it was to come here: what is put in comes before what the broker owes still.
    came: u64,
    again: bool,
    standing: Vec<Stand>,
    /// It went over a waking path, or was shown otherwise.
    had_first: bool,
    open: Option<AttemptId>,
    /// The client's user keeps it.
    kept: Option<AttemptId>,
    /// The governor holds it.
    held: bool,
    /// It may have been released while it was being read.
    perhaps_free: bool,
    /// It was released, or read while it was held: it starts nothing.
    quiet: bool,
    expected: Option<AskId>,
    denied: bool,
    /// So much of it was read.
    read: usize,
    /// So much of it stood in the conversation.
    stood: usize,
    evidence: BTreeSet<(String, String)>,
    /// What may be claimed without evidence.
    pushed: BTreeSet<String>,
    /// It is for one member of a group: until when it is this one's.
    lease_ms: Option<u64>,
    /// It is not any more, since then.
    lapsed_ms: Option<u64>,
    /// Until when its result is wanted.
    until_ms: u64,
}

/// What is known of an attempt.
#[derive(Debug, Clone)]
struct Showing {
    attempt: Attempt,
    /// The agent asked for it.
    reading: bool,
    /// Mail for an idle session, and nothing of the bus itself: a budget bounds how many start
    /// turns.
    starts: bool,
    told: Option<Outcome>,
    presented: bool,
}

/// A question that somebody waits for.
#[derive(Debug)]
struct Ask {
    ask: AskId,
    question: String,
    from: &'static str,
    answered: bool,
}

/// Knows what was promised.
#[derive(Debug, Default)]
pub(in crate::mailbox) struct Oracle {
    now_ms: u64,
    policy: Policy,
    /// So many replies may lead to a message; with a limit there is a budget of turns, too.
    hops_max: Option<u32>,
    letters: Vec<Letter>,
    numbers: BTreeMap<Key, Which>,
    /// What was acked while the broker was away.
    unheard: Vec<Which>,
    /// What happened, in words.
    ends: Vec<String>,
    healed: bool,
    pushes_healed: usize,
    pushes_of_burst: usize,
    turns_of_burst: usize,
    /// Hooks and results that took some of it.
    others_of_burst: usize,
    /// Messages of the agent.
    own: usize,
    session: Session,
}

/// What is known of a session.
#[derive(Debug, Default)]
struct Session {
    open: bool,
    /// It was told its name, and has not announced it.
    nameless: bool,
    readable: bool,
    activity: Activity,
    /// An answer would be noticed, as the mailbox has it.
    evidence: bool,
    /// Attempts since a mark was found.
    unfound: usize,
    /// The window is nearly full.
    full: bool,
    entries: BTreeMap<Which, Entry>,
    attempts: BTreeMap<AttemptId, Showing>,
    asks: Vec<Ask>,
    /// What the user keeps out, and which of it was declined.
    outside: BTreeMap<Which, Entry>,
    /// What it has read and owes, in that order.
    owed: Vec<owed::Debt>,
    declined: Option<Which>,
    /// It was let in, which its sender is to be told.
    released: Option<Which>,
    /// Ids that were acked, and whose.
    recent: BTreeSet<(String, String)>,
    /// What is arriving.
    arriving: Option<Which>,
    arrivals: u64,
    /// When each path took its last push.
    took_ms: BTreeMap<Path, u64>,
    /// When a path took first showings last.
    first_ms: Option<u64>,
    pushes_ms: Vec<u64>,
    turns_ms: Vec<u64>,
    /// What each peer was sent last: when, and how many replies led to it.
    sent: BTreeMap<&'static str, (u64, u32)>,
    /// The most hops of what was shown.
    hops: u32,
    /// A peer's message was among it.
    shown: bool,
}

impl Oracle {
    pub(in crate::mailbox) fn new(policy: Policy, hops_max: Option<u32>) -> Self {
        Self {
            policy,
            hops_max,
            ..Self::default()
        }
    }

    /// A message is sent.
    pub(in crate::mailbox) fn sent(&mut self, mail: Mail, burst: bool) {
        self.numbers.insert(mail.inbound.key, self.letters.len());
        self.letters.push(Letter {
            mail,
            burst,
            delivered: false,
            shown_as_new: false,
            shown_to: 0,
            stands_to: 0,
            stood_whole: false,
            acked: None,
            away: false,
            end: None,
        });
    }

    /// Such a message was sent before.
    pub(in crate::mailbox) fn knows(&self, key: Key) -> bool {
        self.numbers.contains_key(&key)
    }

    /// The agent sends something to this peer: its id.
    pub(in crate::mailbox) fn says_something(
        &mut self,
        now_ms: u64,
        to: &'static str,
        hops: u32,
    ) -> String {
        self.session.sent.insert(to, (now_ms, hops));
        self.own += 1;
        format!("own{}", self.own)
    }

    /// An adapter begins.
    pub(in crate::mailbox) fn started(&mut self) {
        self.session = Session::default();
    }

    /// The adapter dies: what it knew is gone, what it acked and nobody heard, too.
    pub(in crate::mailbox) fn killed(&mut self) {
        self.leaves_debts();
        self.leaves_conversation();
        self.session = Session::default();
        self.unheard.clear();
        self.lose_local();
    }

    pub(in crate::mailbox) fn healed(&mut self) {
        self.healed = true;
    }

    /// Messages that are owed.
    pub(in crate::mailbox) fn owed(&self) -> Vec<usize> {
        let owed = |which: &usize| {
            let letter = &self.letters[*which];
            letter.end.is_none() && !letter.mail.is_local()
        };
        (0..self.letters.len()).filter(owed).collect()
    }

    /// Messages so far.
    pub(in crate::mailbox) fn count(&self) -> usize {
        self.letters.len()
    }

    /// The broker hears of an ack, or will when it is back.
    pub(in crate::mailbox) fn hears(&mut self, key: Key, up: bool) {
        let Some(&which) = self.numbers.get(&key) else {
            return;
        };
        if self.letters[which].away {
            return;
        }
        if up {
            self.letters[which].end = self.letters[which].acked.clone();
        } else {
            self.unheard.push(which);
        }
    }

    /// The broker is back.
    pub(in crate::mailbox) fn acks_again(&mut self) {
        for which in std::mem::take(&mut self.unheard) {
            let letter = &mut self.letters[which];
            letter.end = letter.end.take().or(letter.acked.clone());
        }
    }

    pub(in crate::mailbox) fn pushes_healed(&self) -> usize {
        self.pushes_healed
    }

    /// What happened, in words.
    pub(in crate::mailbox) fn take_ends(&mut self) -> Vec<String> {
        let ends = self.letters.iter().filter_map(|letter| letter.end.clone());
        let ends: Vec<_> = ends.collect();
        self.ends.extend(ends);
        std::mem::take(&mut self.ends)
    }

    fn note(&mut self, what: &str) {
        if !self.ends.iter().any(|noted| noted == what) {
            self.ends.push(what.into());
        }
    }

    fn which(&self, item: &AttemptItem) -> Option<Which> {
        match item.content.mail() {
            Some(mail) => self.numbers.get(&mail.inbound.key).copied(),
            None => Some(notice(item.no)),
        }
    }

    /// What is in an attempt, as far as it is here still, and did not go and come again since.
    fn items(&self, attempt: &Attempt) -> Vec<(Which, AttemptItem)> {
        let mut items = self.all_items(attempt);
        items.retain(|(which, item)| {
            let entry = self.session.entries.get(which);
            entry
                .and_then(|entry| entry.no)
                .is_none_or(|no| no == item.no)
        });
        items
    }

    fn all_items(&self, attempt: &Attempt) -> Vec<(Which, AttemptItem)> {
        let items = attempt.items.iter();
        let found = items.filter_map(|item| Some((self.which(item)?, item.clone())));
        found.collect()
    }

    /// How soon it wants to be seen. Notices may want to at once.
    fn priority(&self, which: Which) -> Priority {
        let quiet = self.session.entries.get(&which).is_some_and(|e| e.quiet);
        match self.letters.get(which) {
            Some(letter) if !quiet => letter.mail.talk.priority,
            Some(_) => Priority::Quiet,
            None => Priority::Next,
        }
    }

    fn from(&self, which: Which) -> Option<&str> {
        let letter = self.letters.get(which);
        letter.map(|letter| letter.mail.inbound.from.as_str())
    }

    fn bytes(&self, item: &AttemptItem) -> usize {
        match &item.content {
            peerbus_peer::mailbox::Content::Mail(mail) => mail.bytes,
            peerbus_peer::mailbox::Content::Notice { sentence, .. } => sentence.len(),
        }
    }
}

fn notice(no: No) -> Which {
    NOTICE + usize::try_from(no.0).unwrap_or(0)
}

impl Entry {
    fn is_fresh(&self) -> bool {
        self.standing.is_empty()
    }

    /// The portion may have been shown before.
    fn is_repeat(&self, portion: Portion) -> bool {
        let whole = self.standing.iter().any(|stand| stand.whole);
        let before = match portion {
            Portion::Part { from, .. } if from > 0 => from < self.read || whole,
            _ => self.read > 0 || !self.is_fresh(),
        };
        self.again || before
    }

    /// With this portion all of it was shown.
    fn completes(&self, portion: Portion) -> bool {
        match portion {
            Portion::All => true,
            Portion::Beginning => false,
            Portion::Part { from, last, .. } => last && from <= self.read,
        }
    }

    /// The portion stands in the conversation, and the parts before it do.
    fn is_proven(&self, portion: Portion) -> bool {
        match portion {
            Portion::Part { from, last, .. } => last && from <= self.stood,
            portion => self.completes(portion),
        }
    }
}
