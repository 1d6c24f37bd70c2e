//! The first of two brakes: it ends conversations that would go on for ever, of two agents that
//! answer each other or of a ring of sessions. The other one bounds the turns that peers' mail
//! starts, see [`super::turns`].
//!
//! Each message has hops: so many replies led to it. Its sender says how many, between two bounds
//! that it cannot move: one more than what this session last sent to it, and what is possible after
//! what this session sent. What is between them only its sender says, and it lifts what this
//! session sends to a peer as far as one way round by that peer can. A message above the limit is
//! paused: it is kept and can be read, and starts nothing. A peer to which nothing was sent, in a session that answers nobody, is never
//! paused, however much it sends and whatever it says.

use std::collections::BTreeMap;

use peerbus_wire::{Conversation, NameKey};

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
        let from = from.as_str();
        Some(format!(
            "paused: {hops} replies led to this message of {from}, budget {limit} (the recipient's \
             PEERBUS_BUDGET); it begins anew when the recipient has sent nothing for ten minutes"
        ))
    }
}
