//! What the other side says of messages: passed on to the own broker, and noted when it is on disk.

use std::collections::VecDeque;

use peerbus_wire::Stage;
use peerbus_wire::bridge::{ITEMS_MAX, Item, Saying, Told};

use super::mutation::Mutation;
use super::{Barrier, Bridge, Event, ToBroker};

/// Most ends that wait to be on disk. More are not noted, and come again.
const ENDS_MAX: usize = 4_096;

/// Ends that were passed on.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// Those that may not be on disk yet, oldest first.
    ends: VecDeque<Told>,
    /// So many of them were passed on since the last barrier.
    fresh: usize,
    /// The own broker was asked to say when those before them are on disk.
    asked: bool,
}

impl Bridge {
    /// The other side says what became of messages; an answer to a question is not noted.
    pub(super) fn pass_on(&mut self, items: Vec<Item>, answer: bool) {
        let mut noted = Vec::new();
        for item in items {
            let Item { told, stage } = item;
            if told.end && self.passing.ends.len() >= ENDS_MAX {
                self.event(Event::Crowded(1));
                continue;
            }
            self.pass_one(&told, stage);
            let early = self.mutations.broken(Mutation::NoteEarly);
            if answer || told.number == 0 && told.end {
                // What is asked about, and what is not known by its number, is asked about again.
                if !answer {
                    noted.push(told);
                }
            } else if told.end && !early {
                self.passing.ends.push_back(told);
                self.passing.fresh += 1;
            } else {
                noted.push(told);
            }
        }
        self.note(noted);
        self.see_ends();
    }

    fn pass_one(&mut self, told: &Told, stage: Stage) {
        let number = told.number;
        if number == 0 {
            return;
        }
        if let Some(id) = self.sending.id(number)
            && told.id.as_ref().is_some_and(|said| said != id)
        {
            return self.refused(format!(
                "it says of message {number} what is about another one"
            ));
        }
        let stage = match stage {
            // The far broker took it and does not know how it ended, or not any more.
            Stage::Unknown | Stage::Settled { .. } => {
                if number > self.sending.confirmed || self.sending.holds(number) {
                    return;
                }
                Stage::Acked(None)
            }
            stage => stage,
        };
        if self.sending.give_up(number) && !told.end {
            // Whoever says so has it.
            let stage = Stage::Forwarded;
            self.order(ToBroker::Says { number, stage });
        }
        self.order(ToBroker::Says { number, stage });
    }

    /// Asks the own broker to say when the ends are on disk.
    fn see_ends(&mut self) {
        if self.passing.fresh > 0 && !self.passing.asked {
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
        self.see_ends();
    }

    fn note(&mut self, told: Vec<Told>) {
        for told in told.chunks(ITEMS_MAX) {
            self.say(Saying::Noted(told.to_vec()));
        }
    }
}
