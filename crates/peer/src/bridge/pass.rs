//! What the other side says of messages: passed on to the own broker, and noted when it is on disk.

use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::bridge::{ITEMS_MAX, Inquiry, Saying, StreamItem, Told};
use peerbus_wire::{MessageId, Stage};

use super::mutation::BridgeMutation;
use super::{Barrier, Bridge, BridgeEvent};

/// Most ends that wait to be on disk. More are not noted, and come again.
const ENDS_MAX: usize = 4_096;

/// Ends are seen to the disk so many at once, or after so long: each time costs the own broker a commit.
const SEEN_AT_ONCE: usize = 256;
const SEEN_AFTER_MS: u64 = 50;

/// Most ends without a number that are kept. More come again.
const UNPLACED_MAX: usize = 1_024;

/// Ends that were passed on.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// Those that may not be on disk yet, oldest first.
    ends: VecDeque<Told>,
    /// So many of them were passed on since the last barrier.
    fresh: usize,
    /// When the own broker is asked about these at the latest.
    due_ms: Option<u64>,
    /// The own broker was asked to say when those before them are on disk.
    asked: bool,
    /// Ends whose number the other side does not know (any more), by id, and in which round of
    /// questions they came.
    unplaced: BTreeMap<MessageId, (StreamItem, u64)>,
}

impl Passing {
    /// An end waits to be on disk.
    fn wait(&mut self, now_ms: u64, told: Told) {
        self.ends.push_back(told);
        self.fresh += 1;
        self.due_ms.get_or_insert(now_ms + SEEN_AFTER_MS);
    }

    /// When the own broker is to be asked, if it was not.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.due_ms.filter(|_| !self.asked)
    }
}

impl Bridge {
    /// The other side says what became of messages; an answer to a question is not noted.
    pub(super) fn pass_on(&mut self, now_ms: u64, items: Vec<StreamItem>, answer: bool) {
        let mut noted = Vec::new();
        let early = self.mutations.broken(BridgeMutation::NoteEarly);
        for item in items {
            let number = item.told.number;
            if number == 0 {
                // Ids are each sender's own: only of what was forwarded one is known to be meant.
                match item.told.end && !answer {
                    true => self.keep_unplaced(now_ms, item),
                    false => noted.push(item.told),
                }
                continue;
            }
            let StreamItem { told, stage } = item;
            if told.end && self.passing.ends.len() >= ENDS_MAX {
                self.event(BridgeEvent::Crowded);
                continue;
            }
            self.pass_one(now_ms, number, &told, stage);
            match told.end && !answer && !early {
                true => self.passing.wait(now_ms, told),
                false if answer => {}
                false => noted.push(told),
            }
        }
        self.note(noted);
    }

    /// Keeps an end until the own broker has said whether it still owes the message.
    fn keep_unplaced(&mut self, now_ms: u64, item: StreamItem) {
        let Some(id) = item.told.id.clone() else {
            return;
        };
        let (known, round) = (&mut self.passing.unplaced, self.asking.round);
        if known.len() >= UNPLACED_MAX || known.contains_key(&id) {
            return;
        }
        known.insert(id, (item, round));
        self.asking.hurry(now_ms);
    }

    /// The own broker names what it has forwarded: now the number is known.
    pub(super) fn placed(&mut self, now_ms: u64, messages: &[Inquiry]) {
        for Inquiry { number, id } in messages {
            if let Some((item, _)) = self.passing.unplaced.remove(id) {
                let StreamItem { told, stage } = item;
                self.pass_one(now_ms, *number, &told, stage);
                self.passing.wait(now_ms, told);
            }
        }
    }

    /// The own broker has named all that it has forwarded since a round began: what was kept before
    /// that, was not named and does not wait here to be confirmed has ended.
    pub(super) fn all_placed(&mut self, round: u64) {
        let (passing, sending) = (&mut self.passing, &self.sending);
        let ended: Vec<_> = passing
            .unplaced
            .extract_if(.., |id, (_, of)| *of < round && !sending.has(id))
            .map(|(_, (item, _))| item.told)
            .collect();
        let more = !passing.unplaced.is_empty();
        self.note(ended);
        if more {
            self.asking.again = true;
        }
    }

    fn pass_one(&mut self, now_ms: u64, number: u64, told: &Told, stage: Stage) {
        if let Some(id) = self.sending.id(number)
            && told.id.as_ref().is_some_and(|said| said != id)
        {
            let why = format!("it says of message {number} what is about another one");
            return self.refused(told.id.clone(), why);
        }
        let stage = match stage {
            // The far broker had it, or it would not have been asked about, and does not know (any
            // more) how it ended.
            Stage::Unknown | Stage::Settled { .. } => {
                if !self.asking.page.contains(&number) || self.sending.holds(number) {
                    return;
                }
                Stage::Acked(None)
            }
            stage => stage,
        };
        if matches!(stage, Stage::Dead { .. }) && self.sending.holds(number) {
            return self.give_up(number, stage);
        }
        if self.confirmed_one(now_ms, number) && !told.end {
            self.tell_home(number, Stage::Forwarded);
        }
        self.tell_home(number, stage);
    }

    /// Asks the own broker to say when the ends are on disk, once it is time.
    pub(super) fn see_ends(&mut self, now_ms: u64) {
        let due = self.passing.due_ms().is_some_and(|at| at <= now_ms);
        if due || (self.passing.fresh >= SEEN_AT_ONCE && !self.passing.asked) {
            self.passing.due_ms = None;
            self.passing.asked = true;
            let count = std::mem::take(&mut self.passing.fresh);
            self.ask_barrier(Barrier::Ends(count));
        }
    }

    /// So many ends are on disk.
    pub(super) fn note_ends(&mut self, count: usize) {
        self.passing.asked = false;
        let count = count.min(self.passing.ends.len());
        let ends = self.passing.ends.drain(..count).collect();
        self.note(ends);
    }

    fn note(&mut self, told: Vec<Told>) {
        for told in told.chunks(ITEMS_MAX) {
            self.say(Saying::Noted(told.to_vec()));
        }
    }
}
