//! What came of an attempt.

use peerbus_wire::{Priority, Stage};

use super::MailboxMachine;
use super::escalate::PRESENT_MS;
use super::evidence::{pushed, seen};
use super::governor::Hops;
use super::message::{Cause, Message, Place, Sent, Showing, Step};
use super::mutation::MailboxMutation;
use super::types::{Activity, AttemptId, No, Outcome, Policy, Portion};

/// After a push of what is new, so long what comes then waits for more to come.
const DIGEST_MS: u64 = 2_000;

/// For the sender of a message that the user turned away.
const DENIED: &str = "the recipient's user denied this message at its client";

/// For the sender of a message that the client keeps.
const KEPT: &str = "the recipient's client keeps it until its user decides in the dialog there";

impl MailboxMachine {
    /// What came of an attempt. Of one that is not known any more it says nothing new.
    pub fn outcome(&mut self, now_ms: u64, attempt: AttemptId, outcome: Outcome) {
        self.advance(now_ms);
        match outcome {
            Outcome::Written => {
                self.written(now_ms, attempt);
                self.relieve();
            }
            Outcome::Reached => self.reached(attempt),
            Outcome::Failed => self.failed(now_ms, attempt),
            Outcome::Kept => self.kept(now_ms, attempt),
            Outcome::Dropped => self.dropped(now_ms, attempt, false),
            Outcome::Doubtful => self.doubtful(now_ms, attempt),
            Outcome::Denied if self.mutations.broken(MailboxMutation::OverruleDenial) => {
                self.dropped(now_ms, attempt, false);
            }
            Outcome::Denied => self.denied(now_ms, attempt),
        }
        self.finish(now_ms);
    }

    /// A result is with the client, which may not be able to read it: it stays in its hands until
    /// something shows what came of it.
    fn reached(&mut self, attempt: AttemptId) {
        let open = |sent: &&Sent| sent.step == Step::InFlight && sent.path.in_result;
        let Some(path) = self.attempts.get(&attempt).filter(open).map(|s| s.path) else {
            return;
        };
        for (no, portion) in self.items(attempt) {
            if let Some(message) = self.messages.get(&no) {
                let path = message.over(path, portion);
                self.progress(no, Stage::Pushed { path });
            }
        }
    }

    pub(super) fn written(&mut self, now_ms: u64, attempt: AttemptId) {
        let Some(sent) = self.attempts.get_mut(&attempt) else {
            return;
        };
        let before = std::mem::replace(&mut sent.step, Step::Written);
        if before == Step::Written {
            return;
        }
        let path = sent.path;
        let over_dialogs = sent.shows_over_dialogs();
        if before == Step::InFlight {
            self.took(now_ms, attempt);
        }
        let idle_ms = self.clock.at(now_ms);
        let until_ms = self.clock_of(over_dialogs).at(now_ms) + PRESENT_MS;
        for (no, portion) in self.items(attempt) {
            let Some(message) = self.messages.get_mut(&no) else {
                continue;
            };
            if message.reminds.is_some() {
                // It is told once.
                self.ack(no, pushed(path));
                continue;
            }
            if let Portion::Part { from, to, .. } = portion
                && !portion.completes(message.read)
            {
                if from <= message.read && to > message.read {
                    message.read = to;
                    let path = message.over(path, portion);
                    self.progress(no, Stage::Presented { path });
                }
                continue;
            }
            if path.in_result {
                if self.mutations.broken(MailboxMutation::TrustPipe) {
                    self.ack(no, seen(path, "tool_result"));
                    continue;
                }
                if message.held().is_some() {
                    // It was read; it starts no turn even so.
                    message.priority = Priority::Quiet;
                }
                self.in_view(now_ms, no, attempt, (path, portion));
            } else {
                if before == Step::InFlight || message.place == Place::Kept(attempt) {
                    let place = Place::Shown {
                        attempt,
                        presented: false,
                        until_ms,
                    };
                    message.await_evidence(place, idle_ms);
                }
                let path = message.over(path, portion);
                self.progress(no, Stage::Pushed { path });
            }
            let notice = self.messages.get(&no).is_some_and(Message::is_notice);
            if notice && path.in_result && !self.transcript.shows() {
                // Nothing is claimed of it: what was taken was told.
                self.ack(no, pushed(path));
            } else if self.policy == Policy::Pushed && portion != Portion::Beginning {
                self.ack(no, pushed(path));
            }
        }
    }

    fn kept(&mut self, now_ms: u64, attempt: AttemptId) {
        let Some(sent) = self.attempts.get_mut(&attempt) else {
            return;
        };
        if sent.step == Step::Kept || sent.cause == Cause::Read || sent.presented {
            return;
        }
        let before = std::mem::replace(&mut sent.step, Step::Kept);
        let path = sent.path;
        if before == Step::InFlight {
            self.took(now_ms, attempt);
        }
        for (no, _) in self.items(attempt) {
            let Some(message) = self.messages.get_mut(&no) else {
                continue;
            };
            let last = message.shown.last().is_some_and(|s| s.attempt == attempt);
            // What was shown again since waits for the evidence of that.
            if last && message.out.is_none() {
                message.place = if self.mutations.broken(MailboxMutation::ShowKept) {
                    let presented = false;
                    Place::Overdue { attempt, presented }
                } else {
                    Place::Kept(attempt)
                };
                message.again_at_ms = None;
                message.once_more = false;
            }
            let reason = format!("{KEPT} ({})", path.word);
            self.progress(no, Stage::Held { why: reason });
        }
    }

    fn failed(&mut self, now_ms: u64, attempt: AttemptId) {
        let in_flight = |sent: &&Sent| sent.step == Step::InFlight;
        let Some(sent) = self.attempts.get(&attempt).filter(in_flight) else {
            return;
        };
        let left = |(no, _): &(No, Portion)| self.messages.contains_key(no);
        // Where everything was seen meanwhile there was nothing to show: that is no failure.
        if sent.cause == Cause::Push && sent.items.iter().any(left) {
            self.paths.failed(now_ms, sent.path);
        }
        let lose =
            sent.cause == Cause::Read && self.mutations.broken(MailboxMutation::LoseReturned);
        for (no, _) in self.items(attempt) {
            if lose {
                self.messages.remove(&no);
            }
        }
        self.land(attempt);
        self.attempts.remove(&attempt);
    }

    /// What left and was perhaps shown goes back to where it was, and counts as perhaps shown.
    fn doubtful(&mut self, now_ms: u64, attempt: AttemptId) {
        for (no, portion) in self.items(attempt) {
            let pushed = self.attempts.get(&attempt).map(|sent| sent.cause) == Some(Cause::Push);
            if let Some(message) = self.messages.get_mut(&no) {
                message.failures += u32::from(pushed);
                message.again |= !self.mutations.broken(MailboxMutation::ForgetDoubt);
                if let Portion::Part { from, .. } = portion {
                    message.read = message.read.min(from);
                }
                if message.reminds.is_some() {
                    self.messages.remove(&no);
                }
            }
        }
        let of = |sent: &Sent| (sent.cause, sent.step);
        match self.attempts.get(&attempt).map(of) {
            Some((Cause::Push, _)) | Some((_, Step::Written | Step::Kept)) => {
                self.dropped(now_ms, attempt, true);
            }
            Some(_) => {
                self.land(attempt);
                self.attempts.remove(&attempt);
            }
            None => {}
        }
    }

    /// What was not shown, or (`doubtful`) may have been shown to nobody who answers, goes back.
    fn dropped(&mut self, now_ms: u64, attempt: AttemptId, doubtful: bool) {
        let absent = |sent: &&Sent| doubtful || !sent.presented;
        let Some(sent) = self.attempts.get(&attempt).filter(absent) else {
            return;
        };
        if sent.step == Step::InFlight {
            self.took(now_ms, attempt);
        }
        for (no, _) in self.items(attempt) {
            self.goes_back(now_ms, no, attempt);
        }
        self.attempts.remove(&attempt);
    }

    /// The session goes on in another conversation, which has no part of what was read or is being read: a
    /// long message is read from its beginning again.
    pub fn cleared(&mut self, now_ms: u64) {
        self.advance(now_ms);
        if self.mutations.broken(MailboxMutation::JoinConversations) {
            return self.finish(now_ms);
        }
        for message in self.messages.values_mut() {
            message.again |= message.read > 0;
            (message.read, message.stood, message.named) = (0, 0, false);
        }
        let mut parts = Vec::new();
        for (attempt, sent) in &mut self.attempts {
            let is_part = |it: &mut (No, Portion)| it.1.is_part() && !it.1.completes(0);
            let items = sent.items.extract_if(.., is_part);
            parts.extend(items.map(|(no, _)| (no, *attempt)));
        }
        for (no, attempt) in parts {
            if let Some(message) = self.messages.get_mut(&no) {
                message.again = true;
                message.out.take_if(|out| *out == attempt);
            }
            self.goes_back(now_ms, no, attempt);
        }
        self.finish(now_ms);
    }

    /// A message goes back to where it was before an attempt, if that counts as a showing.
    pub(super) fn goes_back(&mut self, now_ms: u64, no: No, attempt: AttemptId) {
        let idle_ms = self.clock.at(now_ms);
        let Some(message) = self.messages.get_mut(&no) else {
            return;
        };
        let of = |showing: &Showing| showing.attempt == attempt;
        let Some(at) = message.shown.iter().position(of) else {
            return;
        };
        let path = message.shown.remove(at).path;
        if !message.dropped.contains(&path) {
            message.dropped.push(path);
        }
        let current = match message.place {
            Place::New => true,
            Place::Kept(of)
            | Place::Shown { attempt: of, .. }
            | Place::Overdue { attempt: of, .. } => of == attempt,
            Place::Withheld | Place::Held(_) | Place::Expected(_) => false,
        };
        if !current {
            return;
        }
        let last = message.shown.last();
        let place = last.map_or(Place::New, |last| Place::Overdue {
            attempt: last.attempt,
            presented: false,
        });
        message.place = place;
        message.give_back(idle_ms);
    }

    fn denied(&mut self, now_ms: u64, attempt: AttemptId) {
        let step = self.attempts.get(&attempt).map(|sent| sent.step);
        if step == Some(Step::InFlight) {
            self.took(now_ms, attempt);
        }
        for (no, _) in self.items(attempt) {
            let why = DENIED.to_owned();
            self.ends(no, Stage::Dead { why });
        }
        self.attempts.remove(&attempt);
    }

    /// The client has the attempt: it counts as a showing, and is no longer in flight.
    fn took(&mut self, now_ms: u64, attempt: AttemptId) {
        self.land(attempt);
        let Some(sent) = self.attempts.get(&attempt) else {
            return;
        };
        let (path, cause) = (sent.path, sent.cause);
        if let Some(by) = sent.starts.clone() {
            self.turns.start(now_ms, by);
        }
        if cause == Cause::Push {
            self.paths.took(now_ms, path);
        }
        if path.joins_busy_turn {
            self.last_queued = Some((attempt, now_ms));
        }
        let unknown = self.activity == Activity::Unknown;
        let local_counts = self.counts(true);
        for (no, portion) in self.items(attempt) {
            let Some(message) = self.messages.get_mut(&no) else {
                // It was over before its client had it, as a notice that others replace.
                if cause == Cause::Push {
                    self.digest_at_ms = now_ms + DIGEST_MS;
                }
                continue;
            };
            let counts = local_counts || !message.is_local();
            if let Some(mail) = message.content.mail().filter(|_| counts) {
                let (said, known) = (mail.talk.hops, message.known_hops);
                self.turns.shown(now_ms, Hops { said, known }, unknown);
            }
            if portion.is_part() && !portion.completes(message.read) {
                continue;
            }
            if cause == Cause::Push && message.is_fresh() {
                self.digest_at_ms = now_ms + DIGEST_MS;
            }
            message.done_once_more |= message.once_more && path.wakes;
            message.once_more = false;
            message.shown.push(Showing {
                attempt,
                path,
                whole: portion != Portion::Beginning,
            });
        }
    }

    /// The attempt's messages are where they were before.
    fn land(&mut self, attempt: AttemptId) {
        for (no, _) in self.items(attempt) {
            if let Some(message) = self.messages.get_mut(&no) {
                message.out.take_if(|out| *out == attempt);
            }
        }
    }

    pub(super) fn items(&self, attempt: AttemptId) -> Vec<(No, Portion)> {
        let sent = self.attempts.get(&attempt);
        sent.map(|sent| sent.items.clone()).unwrap_or_default()
    }
}
