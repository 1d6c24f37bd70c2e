//! What is known of the turns of a session: what it does, and which texts its model has answered.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_adapter::mailbox::{Activity, Evidence};
use serde_json::Value;

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
    /// Texts that tools gave, of which it is open whether they were read.
    returned: Vec<Returned>,
    /// The model's last answer.
    last: Option<String>,
    found: Vec<Evidence>,
}

#[derive(Debug)]
struct Open {
    uuid: String,
    /// The mark of the push that it is.
    mark: Option<String>,
    /// Ids of the peers' messages in it.
    ids: Vec<String>,
    /// The client repeated it.
    repeated: bool,
}

#[derive(Debug)]
struct Returned {
    mark: String,
    whole: [String; 2],
    /// The tool's result stands in the conversation, with the text: the client may have given up the call.
    here: bool,
    /// The answer that it may have been in the middle of.
    after: Option<String>,
}

#[derive(Debug)]
struct Shown {
    /// The answer before it: the rest of that is none to it.
    after: Option<String>,
    answered: bool,
}

impl Turns {
    /// A message goes to the client.
    pub(crate) fn wrote(&mut self, uuid: &str, mark: Option<&str>, ids: &[String]) {
        self.open.push(Open {
            uuid: uuid.to_owned(),
            mark: mark.map(str::to_owned),
            ids: ids.to_vec(),
            repeated: false,
        });
    }

    /// Ids of the peers' messages in the turn under way: messages join it in order.
    pub(crate) fn messages(&self) -> Vec<String> {
        let last = self.open.iter().rposition(|open| open.repeated);
        let joined = self.open.iter().take(1 + last.unwrap_or(0));
        joined.flat_map(|open| open.ids.clone()).collect()
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

    /// The text of this message stands in the conversation, and so do those before it: they are taken in
    /// order, and a cut can take the repeat of one.
    pub(crate) fn shown(&mut self, uuid: &str) {
        let Some(at) = self.open.iter().position(|open| open.uuid == uuid) else {
            return;
        };
        self.open[at].repeated = true;
        for mark in self.open[..=at].iter().filter_map(|open| open.mark.clone()) {
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

    /// What came of the text with this mark.
    pub(crate) fn known(&mut self, mark: String, end: &TurnEnd) {
        self.found.push(match end {
            TurnEnd::Well => Evidence::Answered(mark),
            TurnEnd::Unproven => Evidence::Unproven(mark),
            _ => Evidence::Doubtful(mark),
        });
    }

    /// A tool gave the text with this mark.
    pub(crate) fn returned(&mut self, mark: String, line: &str) {
        if self.returned.len() < MARKS_MAX {
            self.returned.push(Returned {
                whole: whole(&mark, line),
                mark,
                here: false,
                after: None,
            });
        }
    }

    /// The result of a tool stands in the conversation.
    pub(crate) fn result(&mut self, text: &str) {
        for returned in &mut self.returned {
            let is_there = returned.whole.iter().any(|whole| text.contains(whole));
            if !returned.here && is_there {
                (returned.here, returned.after) = (true, self.last.clone());
            }
        }
    }

    /// The model says something, which is part of this answer.
    pub(crate) fn answer(&mut self, answer: String) {
        let is_answered = |it: &mut Returned| it.here && it.after.as_deref() != Some(&answer);
        let answered = self.returned.extract_if(.., is_answered);
        self.found
            .extend(answered.map(|it| Evidence::Answered(it.mark)));
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
        self.returned.clear();
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
            TurnEnd::Stopped(_) => Some(Evidence::Stopped as fn(_) -> _),
            TurnEnd::Failed(_) => Some(Evidence::Doubtful as fn(_) -> _),
            TurnEnd::Unshown => Some(Evidence::Unshown as fn(_) -> _),
            TurnEnd::Unproven => Some(Evidence::Unproven as fn(_) -> _),
        };
        if let Some(told) = told {
            let marks = over.iter().filter_map(|open| open.mark.clone());
            self.found.extend(marks.map(told));
        }
        over.into_iter().map(|open| open.uuid).collect()
    }

    /// Takes what was found.
    pub(crate) fn take(&mut self) -> Vec<Evidence> {
        std::mem::take(&mut self.found)
    }
}

/// All of the text with a mark in a tool's answer, as it stands there, and within JSON.
pub(crate) fn whole(mark: &str, line: &str) -> [String; 2] {
    let answer: Value = serde_json::from_str(line).unwrap_or_default();
    let whole = find(&answer, &|text| text.contains(mark)).unwrap_or(line);
    let within = Value::from(whole.trim()).to_string();
    let within = within.get(1..within.len() - 1).unwrap_or_default();
    [whole.trim().to_owned(), within.to_owned()]
}

/// The first text in a value that is so.
pub(crate) fn find<'a>(value: &'a Value, is: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    match value {
        Value::String(text) => Some(&**text).filter(|text| is(text)),
        Value::Array(all) => all.iter().find_map(|value| find(value, is)),
        Value::Object(members) => members.values().find_map(|value| find(value, is)),
        _ => None,
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
            turns.wrote(uuid, None, &[]);
        }
        turns.shown("two");
        let over = turns.ended(&[], &TurnEnd::Well);
        assert_eq!(over, ["one", "two"].map(str::to_owned).into());
        assert_eq!(turns.activity(), Activity::Busy);
        turns.failed("three");
        assert_eq!(turns.activity(), Activity::Idle);
    }

    #[test]
    fn a_turn_has_the_messages_that_joined_it_and_none_that_waits_behind_it() {
        let mut turns = Turns::default();
        assert_eq!(turns.messages(), [""; 0]);
        for (uuid, ids) in [("one", &["a", "b"][..]), ("two", &["c"]), ("three", &["d"])] {
            turns.wrote(uuid, None, &owned(ids));
        }
        assert_eq!(turns.messages(), ["a", "b"]);
        turns.shown("two");
        assert_eq!(turns.messages(), ["a", "b", "c"]);
        turns.ended(&[], &TurnEnd::Well);
        assert_eq!(turns.messages(), ["d"]);
    }

    #[test]
    fn the_rest_of_an_answer_answers_nothing() {
        let mut turns = Turns::default();
        turns.answer("a".to_owned());
        turns.wrote("one", Some("pb-1"), &[]);
        turns.shown("one");
        turns.answer("a".to_owned());
        turns.ended(&[], &TurnEnd::Well);
        assert_eq!(turns.take(), [Evidence::Presented("pb-1".into())]);
        turns.answer("c".to_owned());
        assert_eq!(turns.take(), []);
        turns.ended(&[], &TurnEnd::Well);
        assert_eq!(turns.take(), [Evidence::Answered("pb-1".into())]);
    }

    #[test]
    fn what_a_tool_gave_is_answered_by_another_answer_than_the_one_that_called_it() {
        let mut turns = Turns::default();
        turns.answer("a".to_owned());
        turns.returned("pb-1".to_owned(), "1 message [pb-1]");
        turns.answer("b".to_owned());
        assert_eq!(turns.take(), [], "its result is not there");
        turns.result("of another tool, which has [pb-1]");
        turns.result("1 message [pb-1]");
        turns.answer("b".to_owned());
        assert_eq!(turns.take(), []);
        for _ in 0..2 {
            turns.answer("c".to_owned());
        }
        assert_eq!(turns.take(), [Evidence::Answered("pb-1".into())]);
        turns.returned("pb-2".to_owned(), "1 message [pb-2]");
        turns.ended(&[], &TurnEnd::Failed("it broke".into()));
        turns.result("1 message [pb-2]");
        turns.answer("d".to_owned());
        assert_eq!(turns.take(), [], "another turn's");
    }

    #[test]
    fn what_was_taken_before_one_that_is_repeated_stands_there_too() {
        let mut turns = Turns::default();
        turns.wrote("one", Some("pb-1"), &[]);
        turns.wrote("two", Some("pb-2"), &[]);
        turns.wrote("three", Some("pb-3"), &[]);
        turns.shown("two");
        turns.shown("of another session");
        let presented = ["pb-1", "pb-2"].map(|mark| Evidence::Presented(mark.to_owned()));
        assert_eq!(turns.take(), presented);
    }

    #[test]
    fn what_a_turn_that_did_not_go_well_had_is_told_of_once() {
        let mut turns = Turns::default();
        let mut of = |end: TurnEnd| {
            turns.wrote("one", Some("pb-1"), &[]);
            turns.shown("one");
            turns.answer("a".to_owned());
            turns.ended(&owned(&["one"]), &end);
            turns.take()
        };
        let presented = Evidence::Presented("pb-1".to_owned());
        for (end, told) in [
            (
                TurnEnd::Failed("why".to_owned()),
                Evidence::Doubtful as fn(_) -> _,
            ),
            (
                TurnEnd::Stopped(String::new()),
                Evidence::Stopped as fn(_) -> _,
            ),
            (TurnEnd::Unproven, Evidence::Unproven as fn(_) -> _),
            (TurnEnd::Unshown, Evidence::Unshown as fn(_) -> _),
        ] {
            assert_eq!(of(end), [presented.clone(), told("pb-1".to_owned())]);
        }
    }
}
