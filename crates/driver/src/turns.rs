//! What the stream shows of the turns of a session: what it does, and which texts its model has
//! answered. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerbus_adapter::mailbox::{Activity, Evidence};

/// Texts in the conversation of which an answer is waited for.
const MARKS_MAX: usize = 256;
/// Evidence that nobody has asked for yet.
const FOUND_MAX: usize = 256;

/// The turns of one client. Messages that come while one is under way join it, or are merged into
/// the next: the client repeats each of them before the turn that has it ends.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Messages that were written and that no turn has ended with, in order. True: the client
    /// repeated it.
    open: Vec<(String, bool)>,
    /// Texts that stand in the conversation.
    shown: BTreeMap<String, Shown>,
    /// The model's last answer.
    last: Option<String>,
    found: VecDeque<Evidence>,
}

#[derive(Debug)]
struct Shown {
    /// The answer before it: the rest of that is none to it.
    after: Option<String>,
    answered: bool,
}

impl Turns {
    /// A message goes to the client.
    pub(crate) fn wrote(&mut self, uuid: &str) {
        self.open.push((uuid.to_owned(), false));
    }

    /// It did not get there.
    pub(crate) fn failed(&mut self, uuid: &str) {
        self.open.retain(|(open, _)| open != uuid);
    }

    pub(crate) fn activity(&self) -> Activity {
        match self.open.is_empty() {
            true => Activity::Idle,
            false => Activity::Busy,
        }
    }

    /// A text for the model stands in the conversation, with these marks; with an id where the
    /// client repeats a message.
    pub(crate) fn shown(&mut self, id: Option<&str>, marks: Vec<String>) {
        if let Some((_, repeated)) = self.open.iter_mut().find(|(open, _)| Some(&**open) == id) {
            *repeated = true;
        }
        for mark in marks {
            if self.shown.contains_key(&mark) || self.shown.len() == MARKS_MAX {
                continue;
            }
            let shown = Shown {
                after: self.last.clone(),
                answered: false,
            };
            self.shown.insert(mark.clone(), shown);
            self.find(Evidence::Presented(mark));
        }
    }

    /// The model says something, which is part of this answer.
    pub(crate) fn answer(&mut self, answer: String) {
        for shown in self.shown.values_mut() {
            shown.answered |= shown.after.as_deref() != Some(&answer);
        }
        self.last = Some(answer);
    }

    /// A turn ended, which names these messages. One that failed proves nothing. Gives the messages
    /// that it ended with.
    pub(crate) fn ended(&mut self, named: &[String], failed: bool) -> BTreeSet<String> {
        let is_over = |(uuid, repeated): &(String, bool)| *repeated || named.contains(uuid);
        // They are taken in order: a cut can take the repeat of one that was merged.
        let over = self.open.iter().rposition(is_over).map_or(0, |at| at + 1);
        let over: BTreeSet<_> = self.open.drain(..over).map(|(uuid, _)| uuid).collect();
        for (mark, shown) in std::mem::take(&mut self.shown) {
            match shown.answered {
                _ if failed => {}
                true => self.find(Evidence::Answered(mark)),
                false => drop(self.shown.insert(mark, shown)),
            }
        }
        over
    }

    /// Takes what is known of these marks.
    pub(crate) fn take(&mut self, marks: &[String]) -> Vec<Evidence> {
        let asked = |evidence: &Evidence| {
            let (Evidence::Presented(mark) | Evidence::Answered(mark)) = evidence;
            marks.contains(mark)
        };
        let all = std::mem::take(&mut self.found).into_iter();
        let (taken, rest): (Vec<_>, Vec<_>) = all.partition(asked);
        self.found = rest.into();
        taken
    }

    fn find(&mut self, evidence: Evidence) {
        if self.found.len() == FOUND_MAX {
            self.found.pop_front();
        }
        self.found.push_back(evidence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn messages_before_the_last_of_a_turn_end_with_it_and_none_after_it() {
        let mut turns = Turns::default();
        for uuid in ["one", "two", "three"] {
            turns.wrote(uuid);
        }
        turns.shown(Some("two"), Vec::new());
        let over = turns.ended(&[], false);
        assert_eq!(over, ["one", "two"].map(str::to_owned).into());
        assert_eq!(turns.activity(), Activity::Busy);
        turns.failed("three");
        assert_eq!(turns.activity(), Activity::Idle);
    }

    #[test]
    fn the_rest_of_an_answer_answers_nothing() {
        let mark = owned(&["pb-1"]);
        let mut turns = Turns::default();
        turns.answer("a".to_owned());
        turns.shown(None, mark.clone());
        turns.answer("a".to_owned());
        turns.ended(&[], false);
        assert_eq!(turns.take(&mark), [Evidence::Presented("pb-1".into())]);
        turns.answer("c".to_owned());
        assert_eq!(turns.take(&mark), []);
        turns.ended(&[], false);
        assert_eq!(turns.take(&mark), [Evidence::Answered("pb-1".into())]);
    }
}
