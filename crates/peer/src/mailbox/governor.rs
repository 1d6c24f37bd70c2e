//! Two brakes. The first ends conversations that would go on for ever, of two agents that answer each
//! other or of a ring of sessions. The other one bounds the turns that peers' mail starts.
//!
//! Each message has hops: so many replies led to it. Its sender says how many, between two bounds
//! that it cannot move: one more than what this session last sent to it, and what is possible after
//! what this session sent. What is between them only its sender says, and it lifts what this
//! session sends to a peer as far as one way round by that peer can. A message above the limit is
//! paused: it is kept and can be read, and starts nothing. The result of an open request never is: each
//! request has one, and is judged itself. A peer to which nothing was sent, in a session that answers nobody, is never
//! paused, however much it sends and whatever it says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerbus_wire::{Conversation, NameKey, PeerName, Receipt, Stage, limits, names_id};

use super::MailboxMachine;
use super::mutation::MailboxMutation;

/// What was sent so long ago counts no more, and a pause is told again after so long without one.
pub(super) const RECENT_MS: u64 = 600_000;

/// A limit above this is none.
pub(super) const LIMIT_MAX: u32 = 1_000;

/// A message can have so many hops more than what this session sent: it went to another one and to
/// a third before it came back.
pub(super) const WAY_ROUND: u32 = 2;

/// Names of which it is remembered that something was told of them.
const TOLD_MAX: usize = 256;

/// Of whom something was told lately.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<String, u64>);

impl Told {
    /// It happened again. True: it did not in the last ten minutes.
    pub(super) fn is_news(&mut self, now_ms: u64, name: &str) -> bool {
        let news = self.is_due(now_ms, name);
        if let Some(at_ms) = self.0.get_mut(name) {
            *at_ms = now_ms;
        }
        news
    }

    /// It is to be told. True: it was not in the last ten minutes.
    pub(super) fn is_due(&mut self, now_ms: u64, name: &str) -> bool {
        self.0.retain(|_, at_ms| is_recent(now_ms, *at_ms));
        let due = !self.0.contains_key(name) && self.0.len() < TOLD_MAX;
        if due {
            self.0.insert(name.to_owned(), now_ms);
        }
        due
    }
}

pub(super) fn is_recent(now_ms: u64, at_ms: u64) -> bool {
    now_ms.saturating_sub(at_ms) < RECENT_MS
}

/// So many replies led to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Hops {
    /// As its sender says, as far as that counts.
    pub(super) said: u32,
    /// As this session knows by what it sent.
    pub(super) known: u32,
}

impl Hops {
    /// The most of both.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            said: self.said.max(other.said),
            known: self.known.max(other.known),
        }
    }
}

impl MailboxMachine {
    /// So many replies led to a message of this peer's that says this of itself.
    pub(super) fn hops_of(&self, now_ms: u64, from: &NameKey, talk: &Conversation) -> Hops {
        let question = talk.reply_to.as_ref();
        let question = question.and_then(|id| self.sent.question(id.as_str(), from));
        // An answer is led to by its question, and by nothing that others said.
        let answer = question.map(|hops| talk.hops.min(hops.saturating_add(1)));
        let said = answer.unwrap_or_else(|| talk.hops.min(self.most_hops(now_ms)));
        let least = match self.sent.last_to(now_ms, from) {
            Some(hops) if !self.mutations.broken(MailboxMutation::TrustHops) => {
                hops.saturating_add(1)
            }
            _ => 0,
        };
        let (said, known) = (said.max(least), answer.unwrap_or(0).max(least));
        Hops { said, known }
    }

    /// Whether a message of this peer's answers one that it was sent.
    pub(super) fn is_answer(&self, from: &NameKey, talk: &Conversation) -> bool {
        let mut question = talk.reply_to.iter();
        question.any(|id| self.sent.question(id.as_str(), from).is_some())
    }

    /// A message of others can have so many hops, and so can one of this session's.
    pub(super) fn most_hops(&self, now_ms: u64) -> u32 {
        self.sent.most(now_ms).saturating_add(WAY_ROUND)
    }

    /// Why a message with so many hops is paused, for both sides and the human; `None`: it passes.
    pub(super) fn pause(&self, now_ms: u64, from: &NameKey, hops: u32) -> Option<String> {
        let limit = self.hops_max.filter(|&limit| hops > limit)?;
        let answered = self.sent.last_to(now_ms, from).is_some();
        if !answered && self.sent.most(now_ms) == 0 {
            return None;
        }
        // Its new name is known by what it was sent alone.
        let renamed = match self.sent.last_alone(from) {
            Some(_) => ", whatever its name then,",
            None => "",
        };
        let from = from.as_str();
        Some(format!(
            "paused: {hops} replies led to this message of {from}, budget {limit} (the recipient's \
             PEERBUS_BUDGET); after ten minutes of the recipient's silence the next message of \
             {from}{renamed} brings it"
        ))
    }

    /// The broker says who got a message of this session's to one peer: that answers under its present name,
    /// and what is paused of it is mail of that name.
    pub fn learn_name(&mut self, receipt: &Receipt) {
        let Some((old, new)) = self.sent.answers_as(receipt) else {
            return;
        };
        for no in self.held_of(&old) {
            if let Some(message) = self.messages.get_mut(&no) {
                message.from = Some(new.clone());
            }
        }
    }

    /// What this session sent to each peer of which mail is paused, if a message of another name arrives:
    /// the broker's word about it [tells](Self::learn_name) whether that is such a peer's new name.
    #[must_use]
    pub fn sent_to_paused(&self, from: &str) -> Vec<String> {
        let held = self.messages.values().filter(|it| it.held().is_some());
        let held: BTreeSet<&NameKey> = held.filter_map(|it| it.from.as_ref()).collect();
        if held.iter().any(|it| it.as_str().eq_ignore_ascii_case(from)) {
            return Vec::new();
        }
        let sent = held.into_iter().filter_map(|it| self.sent.last_alone(it));
        sent.map(str::to_owned)
            .take(limits::STATUS_IDS_MAX)
            .collect()
    }
}

/// Turns that peers' mail may start in [`TURNS_MS`].
const TURNS: usize = 60;

/// So many of them are kept for mail that is urgent: one for each sender.
const URGENT_TURNS: usize = 10;

/// So many of them mail of one sender may start, or of all senders with one token.
const TURNS_OF_ONE: usize = TURNS / 2;

/// The sliding time of that budget.
const TURNS_MS: u64 = 600_000;

/// Where nobody tells what the session does, a turn that peers' mail started is over after so long.
const TURN_MS: u64 = 600_000;

/// Whose mail starts a turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Starter {
    pub(super) from: Option<NameKey>,
    /// Who answers for it, where that is not this session's token.
    pub(super) party: Option<String>,
}

/// A turn that peers' mail started.
#[derive(Debug)]
struct Started {
    at_ms: u64,
    by: Starter,
    /// One of those that are kept for what is urgent.
    kept: bool,
}

/// Until when mail may start no turn, and whether that is because of its sender's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Free {
    pub(super) at_ms: u64,
    pub(super) of_one: bool,
}

#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The last ones that peers' mail started.
    started: VecDeque<Started>,
    /// Peers' mail led to what the agent does now: when it was shown that, and the most replies that
    /// led to it.
    led: Option<(u64, Hops)>,
}

impl Turns {
    /// When mail of this sender may start the next turn.
    pub(super) fn free_at(&self, urgent: bool, by: &Starter) -> Free {
        let all = |_: &&Started| true;
        let kept = |started: &&Started| started.kept;
        let ordinary_ms = self.below(TURNS - URGENT_TURNS, all);
        let all_ms = match urgent {
            true => ordinary_ms.min(self.below(TURNS, all)),
            false => ordinary_ms,
        };
        let own = |started: &&Started| started.by.from == by.from;
        let party = |started: &&Started| by.party.is_some() && started.by.party == by.party;
        let shares = [
            self.below(TURNS_OF_ONE, own),
            self.below(TURNS_OF_ONE, party),
            ordinary_ms.min(self.below(1, |s| kept(s) && own(s))),
            ordinary_ms.min(self.below(1, |s| kept(s) && party(s))),
        ];
        let one_ms = shares.into_iter().max().unwrap_or(0);
        Free {
            at_ms: all_ms.max(one_ms),
            of_one: one_ms > all_ms,
        }
    }

    /// When fewer of these than so many are in the time that counts.
    fn below(&self, budget: usize, of: impl Fn(&&Started) -> bool) -> u64 {
        let mut last = self.started.iter().rev().filter(of);
        let at = last.nth(budget - 1).map(|started| started.at_ms);
        at.map_or(0, |at| at + TURNS_MS)
    }

    /// Peers' mail starts a turn.
    pub(super) fn start(&mut self, now_ms: u64, by: Starter) {
        let kept = self.below(TURNS - URGENT_TURNS, |_| true) > now_ms;
        if self.started.len() >= TURNS {
            self.started.pop_front();
        }
        let at_ms = now_ms;
        self.started.push_back(Started { at_ms, by, kept });
        self.led = Some((at_ms, Hops::default()));
    }

    /// The agent was shown a message to which so many replies led. `unknown`: nobody tells what
    /// started the turn. Then its mail counts as what did.
    pub(super) fn shown(&mut self, now_ms: u64, hops: Hops, unknown: bool) {
        let before = self.led(now_ms);
        if before.is_some() || unknown {
            let hops = before.map_or(hops, |before| before.max(hops));
            self.led = Some((now_ms, hops));
        }
    }

    /// The replies that led to what the agent does now; `None`: nothing of peers did.
    pub(super) fn led(&self, now_ms: u64) -> Option<Hops> {
        let (at_ms, hops) = self.led?;
        (now_ms.saturating_sub(at_ms) < TURN_MS).then_some(hops)
    }

    /// The turn ended, or the user has the word.
    pub(super) fn end(&mut self) {
        self.led = None;
    }
}

/// So many messages are remembered.
const SENT_MAX: usize = 1_024;

/// A message of the agent.
#[derive(Debug)]
struct Sent {
    id: String,
    /// Its recipient, which may have another name than it was sent to; `None`: everybody.
    to: Option<NameKey>,
    /// So many replies led to it.
    hops: u32,
    at_ms: u64,
    /// It is a request, and no result came yet.
    is_open: bool,
}

/// The last ones, oldest first.
#[derive(Debug, Default)]
pub(super) struct SentMail {
    sent: VecDeque<Sent>,
}

impl SentMail {
    /// The hops of the message with this id, if this peer got it.
    pub(super) fn question(&self, id: &str, from: &NameKey) -> Option<u32> {
        let of = |sent: &&Sent| sent.id == id && sent.is_to(from);
        self.sent.iter().rfind(of).map(|sent| sent.hops)
    }

    /// Whether a message of this peer's is the result of an open request, which that ends.
    pub(super) fn takes_result(&mut self, from: &NameKey, talk: &Conversation) -> bool {
        // A question back is no result.
        let answers = talk.reply_to.as_ref().filter(|_| talk.within_ms.is_none());
        let Some(id) = answers else { return false };
        let mut sent = self.sent.iter_mut().rev();
        let question = sent.find(|sent| sent.id == id.as_str() && sent.is_to(from));
        question.is_some_and(|sent| std::mem::take(&mut sent.is_open))
    }

    /// A request ended in another way than with a result.
    pub(super) fn ended(&mut self, receipt: &Receipt) {
        if receipt.stage.is_end() && !matches!(receipt.stage, Stage::Done { .. }) {
            let is_it = |sent: &&mut Sent| sent.id == receipt.id.as_str();
            self.sent
                .iter_mut()
                .filter(is_it)
                .for_each(|it| it.is_open = false);
        }
    }

    /// The hops of what this peer was sent last, if that was in the last ten minutes.
    pub(super) fn last_to(&self, now_ms: u64, peer: &NameKey) -> Option<u32> {
        self.recent(now_ms)
            .find(|sent| sent.is_to(peer))
            .map(|sent| sent.hops)
    }

    /// As many hops as a message to this peer, or to everybody, can have by what others say: the last one
    /// that went there has come round.
    fn round(&self, now_ms: u64, to: Option<&NameKey>) -> u32 {
        let there = |sent: &&Sent| to.map_or(sent.to.is_none(), |to| sent.is_to(to));
        let last = self.recent(now_ms).find(there);
        last.map_or(0, |sent| sent.hops)
            .saturating_add(WAY_ROUND + 1)
    }

    /// The most hops of what was sent in the last ten minutes.
    pub(super) fn most(&self, now_ms: u64) -> u32 {
        self.recent(now_ms).map(|sent| sent.hops).max().unwrap_or(0)
    }

    /// The newest first.
    fn recent(&self, now_ms: u64) -> impl Iterator<Item = &Sent> {
        let newest = self.sent.iter().rev();
        newest.take_while(move |sent| is_recent(now_ms, sent.at_ms))
    }

    /// The last message that went to this peer and nobody else.
    fn last_alone(&self, peer: &NameKey) -> Option<&str> {
        let mut sent = self.sent.iter().rev();
        let last = sent.find(|sent| sent.to.as_ref() == Some(peer));
        last.map(|sent| &*sent.id)
    }

    /// The broker says who got a message: that peer answers under its present name. Both names, where
    /// they differ.
    fn answers_as(&mut self, receipt: &Receipt) -> Option<(NameKey, NameKey)> {
        let at = PeerName::parse(receipt.to.as_deref()?).ok()?.key();
        let is_it = |sent: &&mut Sent| sent.id == receipt.id.as_str() && sent.to.is_some();
        let sent = self.sent.iter_mut().find(is_it)?;
        let old = sent.to.replace(at.clone())?;
        (old != at).then_some((old, at))
    }
}

impl Sent {
    fn is_to(&self, peer: &NameKey) -> bool {
        self.to.as_ref().is_none_or(|to| to == peer)
    }
}

impl MailboxMachine {
    /// So many replies lead to what the agent sends to a peer now, or to everybody, a reply excepted: one
    /// more than to what it was shown in this turn, if peers' mail may have started it, and that only as
    /// far as it can have led there where nothing but its senders says so. `claimed`: it says so many
    /// itself.
    #[must_use]
    pub fn hops(&self, now_ms: u64, to: Option<&NameKey>, claimed: u32) -> u32 {
        let led = self.turns.led(now_ms).map_or(0, |led| {
            let said = led.said.saturating_add(1);
            said.min(self.sent.round(now_ms, to))
                .max(led.known.saturating_add(1))
        });
        claimed.min(self.most_hops(now_ms)).max(led)
    }

    /// Each of the messages that the agent sent lately and that are meant by an id, or a part of one.
    #[must_use]
    pub fn sent_as(&self, id: &str) -> Vec<String> {
        let sent = self.sent.sent.iter().filter(|sent| names_id(id, &sent.id));
        let mut ids: Vec<_> = sent.map(|sent| sent.id.clone()).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// The agent sent the message `id`, to which so many replies led, to one peer; `None`: to
    /// everybody, or to a group.
    pub fn sent(&mut self, now_ms: u64, to: Option<&NameKey>, id: &str, hops: u32) {
        let sent = &mut self.sent.sent;
        if sent.len() >= SENT_MAX {
            sent.pop_front();
        }
        sent.push_back(Sent {
            id: id.to_owned(),
            to: to.cloned(),
            hops,
            at_ms: now_ms,
            is_open: false,
        });
    }

    /// The message that was sent as `id` is a request.
    pub fn asked(&mut self, id: &str) {
        let mut sent = self.sent.sent.iter_mut().rev();
        if let Some(sent) = sent.find(|sent| sent.id == id) {
            sent.is_open = true;
        }
    }
}
