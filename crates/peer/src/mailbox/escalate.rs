//! Deadlines: what has no evidence in time goes over the next path.

use super::MailboxMachine;
use super::clock::IdleClock;
use super::message::{Cause, Message, Place, Sent, WAKING_SHOWINGS_MAX};
use super::mutation::MailboxMutation;
use super::types::AttemptId;

/// How long a push may take into the conversation of an idle session.
pub(super) const PRESENT_MS: u64 = 10_000;

/// How long an answer may take after that.
pub(super) const ANSWER_MS: u64 = 120_000;

/// After so long without evidence a message goes once more over a path that it went over.
pub(super) const ONCE_MORE_MS: u64 = 600_000;

/// The first pause after a client gave a message back unshown; it doubles, up to [`ONCE_MORE_MS`].
pub(super) const DROPPED_MS: u64 = 30_000;

impl MailboxMachine {
    /// Notes which deadlines have passed.
    pub(super) fn advance(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.expire(now_ms);
        if self.mutations.broken(MailboxMutation::NeverEscalate) {
            return;
        }
        let idle_ms = self.clock.at(now_ms);
        let asked_ms = self.dialogs.at(now_ms);
        for message in self.messages.values_mut() {
            if message.again_at_ms.is_some_and(|at| at <= idle_ms) {
                message.again();
            }
            let Place::Shown {
                attempt,
                presented,
                until_ms,
            } = message.place
            else {
                continue;
            };
            let Some(sent) = self.attempts.get_mut(&attempt) else {
                continue;
            };
            let past_ms = if sent.shows_over_dialogs() {
                asked_ms
            } else {
                idle_ms
            };
            if until_ms > past_ms {
                continue;
            }
            message.place = Place::Overdue { attempt, presented };
            // Without a transcript nobody knows whether it arrived.
            if self.transcript.shows() && !sent.presented && !sent.missed {
                sent.missed = true;
                self.paths.missed(sent.path);
                if sent.path.in_result {
                    self.transcript.cut(attempt, AttemptId(self.next_attempt));
                }
                if sent.cause == Cause::Push || sent.path.in_result {
                    self.lost_sight |= self.transcript.missed(attempt);
                }
            }
        }
    }

    /// When the next deadline passes that is of use to anybody.
    pub(super) fn escalate_at(&self) -> Option<u64> {
        if self.mutations.broken(MailboxMutation::NeverEscalate) {
            return None;
        }
        let loud = self.messages.values().filter(|m| !m.is_quiet());
        let deadlines = loud.filter_map(|message| {
            let until = match message.place {
                Place::Shown { until_ms, .. } => self.evidence_clock(message).when(until_ms),
                _ => None,
            };
            let again = message.again_at_ms.and_then(|at| self.clock.when(at));
            until.into_iter().chain(again).min()
        });
        deadlines.min()
    }

    /// The clock of the deadline in [`Place::Shown`].
    pub(super) fn evidence_clock(&self, message: &Message) -> &IdleClock {
        let attempt = match message.place {
            Place::Shown { attempt, .. } => self.attempts.get(&attempt),
            _ => None,
        };
        self.clock_of(attempt.is_some_and(Sent::shows_over_dialogs))
    }

    /// The clock that counts against an attempt.
    pub(super) fn clock_of(&self, over_dialogs: bool) -> &IdleClock {
        match over_dialogs {
            true => &self.dialogs,
            false => &self.clock,
        }
    }
}

impl Message {
    /// From now on the message waits for evidence of this showing.
    pub(super) fn await_evidence(&mut self, place: Place, idle_ms: u64) {
        self.place = place;
        self.once_more = false;
        self.again_at_ms = self.may_once_more().then_some(idle_ms + ONCE_MORE_MS);
    }

    fn may_once_more(&self) -> bool {
        !self.done_once_more && self.woken() < WAKING_SHOWINGS_MAX
    }

    /// The time has come to go over a path again.
    fn again(&mut self) {
        self.again_at_ms = None;
        if self.is_fresh() {
            self.dropped.clear();
        } else {
            self.once_more = self.may_once_more();
        }
    }

    /// The client gave the message back unshown.
    pub(super) fn give_back(&mut self, idle_ms: u64) {
        let pause = if self.is_fresh() {
            (DROPPED_MS << self.drops.min(5)).min(ONCE_MORE_MS)
        } else {
            ONCE_MORE_MS
        };
        self.drops = self.drops.saturating_add(1);
        self.again_at_ms = Some(idle_ms + pause);
    }
}
