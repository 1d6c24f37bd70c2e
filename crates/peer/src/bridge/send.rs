//! What the own broker owes the other domain: sent until the other side confirms it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peerbus_wire::bridge::{ENVELOPE_BYTES_MAX, StreamHead};
use peerbus_wire::{MessageId, Stage};

use super::mutation::BridgeMutation;
use super::take::too_large;
use super::{Barrier, Bridge, BridgeEvent, BridgeOutput};

/// What is not confirmed is sent again after so long, at first.
const RESEND_MIN_MS: u64 = 2_000;
/// And at most after so long.
const RESEND_MAX_MS: u64 = 30_000;
/// What is asked for again is sent again at most so often.
const WANTED_MS: u64 = 500;
/// And what follows messages that were given up.
const GIVEN_UP_MS: u64 = 100;

#[derive(Debug)]
struct Message {
    id: MessageId,
    envelope: Arc<str>,
}

/// What was sent on this connection to the own broker and is not confirmed, by number.
#[derive(Debug, Default)]
pub(super) struct Sending {
    messages: BTreeMap<u64, Message>,
    /// Those whose end was said at home and may not be on disk there yet.
    giving_up: BTreeSet<u64>,
    /// The largest number that was delivered on this connection.
    last: u64,
    due_ms: u64,
    wait_ms: u64,
    resent_ms: u64,
    /// The stream did not take some of what was sent last.
    full: bool,
}

impl Sending {
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn due_ms(&self) -> Option<u64> {
        (!self.messages.is_empty()).then_some(self.due_ms)
    }

    /// The other side is there again: what it did not confirm goes again if it does not soon.
    pub(super) fn again_soon(&mut self, now_ms: u64) {
        self.wait_ms = RESEND_MIN_MS;
        self.due_ms = now_ms + self.wait_ms;
    }

    /// Some of it was confirmed: the rest goes again if it is not soon, and without a pause if the stream,
    /// which has room now, did not take it.
    fn went_on(&mut self, now_ms: u64) {
        self.again_soon(now_ms);
        if self.full {
            self.due_ms = now_ms.max(self.resent_ms + WANTED_MS);
        }
    }

    pub(super) fn holds(&self, number: u64) -> bool {
        self.messages.contains_key(&number)
    }

    pub(super) fn id(&self, number: u64) -> Option<&MessageId> {
        Some(&self.messages.get(&number)?.id)
    }

    /// A message of this id is not confirmed.
    pub(super) fn has(&self, id: &MessageId) -> bool {
        self.messages.values().any(|message| message.id == *id)
    }

    /// It needs not be sent any more.
    pub(super) fn forget(&mut self, number: u64) -> bool {
        self.messages.remove(&number).is_some()
    }
}

impl Bridge {
    /// The own broker delivers a message: it is sent, and held until it is confirmed.
    pub(super) fn deliver(&mut self, now_ms: u64, number: u64, id: MessageId, envelope: Arc<str>) {
        if number <= self.sending.last {
            if !self.sending.holds(number) {
                // What was sent since says that nothing stands before it: start over, in order.
                self.register();
            }
            return;
        }
        self.sending.last = number;
        if envelope.len() > ENVELOPE_BYTES_MAX {
            let why = self.own_word(&too_large(envelope.len()));
            return self.tell_home(number, Stage::Dead { why });
        }
        if self.sending.messages.is_empty() {
            self.sending.again_soon(now_ms);
        }
        self.sending
            .messages
            .insert(number, Message { id, envelope });
        self.publish(number);
        self.event(BridgeEvent::Sent);
    }

    fn publish(&mut self, number: u64) {
        let (Some(epoch), Some(far)) = (&self.own, &self.far.epoch) else {
            return;
        };
        let before = self.sending.messages.range(..number).next_back();
        let Some(message) = self.sending.messages.get(&number) else {
            return;
        };
        let head = StreamHead {
            epoch: epoch.clone(),
            meant_for: far.clone(),
            number,
            after: before.map_or(0, |(number, _)| *number),
        };
        self.outputs.push_back(BridgeOutput::Publish {
            number,
            head: head.encode(),
            envelope: Arc::clone(&message.envelope),
        });
    }

    /// Sends everything again that is not confirmed.
    fn resend(&mut self, now_ms: u64) {
        if self.mutations.broken(BridgeMutation::NeverResend) {
            self.sending.due_ms = u64::MAX;
            return;
        }
        let numbers: Vec<_> = self.sending.messages.keys().copied().collect();
        for number in &numbers {
            self.publish(*number);
        }
        self.sending.resent_ms = now_ms;
        self.sending.full = false;
        self.event(BridgeEvent::Resent(numbers.len() as u64));
    }

    /// Sends again what was not confirmed in time, while the other side is there.
    pub(super) fn resend_due(&mut self, now_ms: u64) {
        let due = self.sending.due_ms().is_some_and(|at| at <= now_ms);
        if due && self.far.is_here() {
            self.sending.wait_ms = (2 * self.sending.wait_ms).min(RESEND_MAX_MS);
            self.sending.due_ms = now_ms + self.sending.wait_ms;
            self.resend(now_ms);
        }
    }

    /// The far broker has everything up to a number on disk.
    pub(super) fn confirmed(&mut self, now_ms: u64, taken: u64) {
        let rest = match taken.checked_add(1) {
            Some(next) => self.sending.messages.split_off(&next),
            None => BTreeMap::new(),
        };
        let done = std::mem::replace(&mut self.sending.messages, rest);
        if done.is_empty() {
            return;
        }
        self.sending.went_on(now_ms);
        self.event(BridgeEvent::Confirmed(done.len() as u64));
        for number in done.into_keys() {
            self.tell_home(number, Stage::Forwarded);
        }
    }

    /// The far broker has this one, for it says how far that is. Says whether it was not confirmed.
    pub(super) fn confirmed_one(&mut self, now_ms: u64, number: u64) -> bool {
        let known = self.sending.forget(number);
        if known {
            self.sending.went_on(now_ms);
            self.event(BridgeEvent::Confirmed(1));
        }
        known
    }

    /// The other side misses something.
    pub(super) fn wanted(&mut self, now_ms: u64) {
        let lately = now_ms < self.sending.resent_ms + WANTED_MS;
        if self.sending.len() > 0 && !lately {
            self.sending.due_ms = now_ms + self.sending.wait_ms;
            self.resend(now_ms);
        }
    }

    /// The stream did not take a message.
    pub(super) fn unpublished(&mut self, number: u64, never: Option<String>) {
        match never {
            Some(why) => {
                if self.sending.holds(number) {
                    let why = self.own_word(&why);
                    self.give_up(number, Stage::Dead { why });
                }
            }
            // It goes again when it is due.
            None => {
                self.sending.full = true;
                self.event(BridgeEvent::Full);
            }
        }
    }

    /// A message was not taken, and will not be. Until that is on disk at home nothing is sent that
    /// passes over it: after a crash it would be sent again, and what was taken since would seem to
    /// confirm it.
    pub(super) fn give_up(&mut self, number: u64, stage: Stage) {
        if !self.sending.giving_up.insert(number) {
            return;
        }
        self.tell_home(number, stage);
        if self.mutations.broken(BridgeMutation::GiveUpEarly) {
            self.sending.forget(number);
        }
        self.ask_barrier(Barrier::GivenUp(number));
    }

    /// The end of a message that was not taken is on disk.
    pub(super) fn given_up(&mut self, now_ms: u64, number: u64) {
        self.sending.giving_up.remove(&number);
        self.sending.forget(number);
        if self.sending.giving_up.is_empty() {
            // What follows said that it comes first. All of it goes again, so not for each end by itself.
            self.sending.due_ms = now_ms.max(self.sending.resent_ms + GIVEN_UP_MS);
        }
    }
}
