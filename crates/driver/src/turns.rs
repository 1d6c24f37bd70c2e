//! What is known of the turns of a session: what it does, and which texts its model has answered.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_adapter::mailbox::{Activity, Evidence};

use crate::protocol::TurnEnd;

/// Texts in the conversation of which an answer is waited for.
const MARKS_MAX: usize = 256;

/// The turns of one client. Messages that come while one is under way join it, or are merged into
/// the next, where the client takes them: it repeats each of them before the turn that has it ends.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Messages that were written and that no turn has ended with, in order.
    open: Vec<Open>,
    /// A turn is under way that did not begin here.
    pub(crate) elsewhere: bool,
    /// Texts that stand in the conversation.
    shown: BTreeMap<String, Shown>,
    /// The model's last answer.
    last: Option<String>,
    found: Vec<Evidence>,
}

#[derive(Debug)]
struct Open {
    uuid: String,
    marks: Vec<String>,
    /// The client repeated it.
    repeated: bool,
}

#[derive(Debug)]
struct Shown {
    /// The answer before it: the rest of that is none to it.
    after: Option<String>,
    answered: bool,
}

/// Words that may be marks of a push. The mailbox knows which are.
pub(crate) fn marks(text: &str) -> Vec<String> {
    let words = text.match_indices("pb-").map(|(at, _)| {
        let word = &text[at..];
        let end = word.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        word[..end.unwrap_or(word.len())].to_owned()
    });
    let mut found: Vec<String> = words.collect();
    found.dedup();
    found
}

impl Turns {
    /// A message goes to the client.
    pub(crate) fn wrote(&mut self, uuid: &str, text: &str) {
        self.open.push(Open {
            uuid: uuid.to_owned(),
            marks: marks(text),
            repeated: false,
        });
    }

    /// It did not get there.
    pub(crate) fn failed(&mut self, uuid: &str) {
        self.open.retain(|open| open.uuid != uuid);
    }

    pub(crate) fn activity(&self) -> Activity {
        match self.open.is_empty() && !self.elsewhere {
            true => Activity::Idle,
            false => Activity::Busy,
        }
    }

    /// A text for the model stands in the conversation, with these marks; with an id where the
    /// client repeats a message.
    pub(crate) fn shown(&mut self, id: Option<&str>, marks: Vec<String>) {
        if let Some(open) = self.open.iter_mut().find(|open| Some(&*open.uuid) == id) {
            open.repeated = true;
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
            self.found.push(Evidence::Presented(mark));
        }
    }

    /// The model says something, which is part of this answer.
    pub(crate) fn answer(&mut self, answer: String) {
        for shown in self.shown.values_mut() {
            shown.answered |= shown.after.as_deref() != Some(&answer);
        }
        self.last = Some(answer);
    }

    /// A turn ended, which names these messages. Gives the messages that it ended with.
    pub(crate) fn ended(&mut self, named: &[String], end: &TurnEnd) -> BTreeSet<String> {
        let is_over = |open: &Open| open.repeated || named.contains(&open.uuid);
        // They are taken in order: a cut can take the repeat of one that was merged.
        let over = self.open.iter().rposition(is_over).map_or(0, |at| at + 1);
        let over: Vec<_> = self.open.drain(..over).collect();
        let shown = std::mem::take(&mut self.shown);
        let told = match end {
            TurnEnd::Well => {
                for (mark, shown) in shown {
                    match shown.answered {
                        true => self.found.push(Evidence::Answered(mark)),
                        false => drop(self.shown.insert(mark, shown)),
                    }
                }
                None
            }
            TurnEnd::Stopped => Some(Evidence::Stopped as fn(_) -> _),
            TurnEnd::Failed(_) => Some(Evidence::Doubtful as fn(_) -> _),
            TurnEnd::Unshown => Some(Evidence::Unshown as fn(_) -> _),
            TurnEnd::Unproven => Some(Evidence::Unproven as fn(_) -> _),
        };
        if let Some(told) = told {
            let marks = over.iter().flat_map(|open| open.marks.iter().cloned());
            self.found.extend(marks.map(told));
        }
        over.into_iter().map(|open| open.uuid).collect()
    }

    /// Takes what was found.
    pub(crate) fn take(&mut self) -> Vec<Evidence> {
        std::mem::take(&mut self.found)
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
            turns.wrote(uuid, "");
        }
        turns.shown(Some("two"), Vec::new());
        let over = turns.ended(&[], &TurnEnd::Well);
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
        turns.ended(&[], &TurnEnd::Well);
        assert_eq!(turns.take(), [Evidence::Presented("pb-1".into())]);
        turns.answer("c".to_owned());
        assert_eq!(turns.take(), []);
        turns.ended(&[], &TurnEnd::Well);
        assert_eq!(turns.take(), [Evidence::Answered("pb-1".into())]);
    }

    #[test]
    fn what_a_turn_that_did_not_go_well_had_is_told_of_once() {
        let mut turns = Turns::default();
        let mut of = |end: TurnEnd| {
            turns.wrote("one", "pb-1 and pb-2");
            turns.shown(Some("one"), owned(&["pb-1"]));
            turns.answer("a".to_owned());
            turns.ended(&owned(&["one"]), &end);
            turns.take()
        };
        let found = of(TurnEnd::Failed("why".to_owned()));
        let doubtful = |mark: &str| Evidence::Doubtful(mark.to_owned());
        let presented = Evidence::Presented("pb-1".to_owned());
        assert_eq!(
            found,
            [presented.clone(), doubtful("pb-1"), doubtful("pb-2")]
        );
        let stopped = ["pb-1", "pb-2"].map(|mark| Evidence::Stopped(mark.to_owned()));
        assert_eq!(of(TurnEnd::Stopped)[1..], stopped);
        assert_eq!(of(TurnEnd::Unproven).len(), 3);
    }
}
