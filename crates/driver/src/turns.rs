//! What the stream shows of the turns of a session: what it does, and which texts its model has
//! answered. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerbus_adapter::mailbox::{Activity, Evidence};

use crate::stream::{Assistant, TurnEnd, User};

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

/// A text in the conversation.
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

    /// What the session does.
    pub(crate) fn activity(&self) -> Activity {
        match self.open.is_empty() {
            true => Activity::Idle,
            false => Activity::Busy,
        }
    }

    /// A text for the model stands in the conversation.
    pub(crate) fn user(&mut self, user: &User) {
        if user.parent_tool_use_id.is_some() {
            return;
        }
        let mut open = self.open.iter_mut();
        if let Some((_, repeated)) = open.find(|(open, _)| user.uuid.as_ref() == Some(open)) {
            *repeated |= user.is_replay == Some(true);
        }
        for mark in &user.marks {
            if self.shown.contains_key(mark) || self.shown.len() == MARKS_MAX {
                continue;
            }
            let shown = Shown {
                after: self.last.clone(),
                answered: false,
            };
            self.shown.insert(mark.clone(), shown);
            self.find(Evidence::Presented(mark.clone()));
        }
    }

    /// The model says something, or the client in its place.
    pub(crate) fn assistant(&mut self, said: &Assistant) {
        let Some(answer) = said.answer() else { return };
        if said.parent_tool_use_id.is_some() {
            return;
        }
        for shown in self.shown.values_mut() {
            shown.answered |= shown.after.as_deref() != Some(answer);
        }
        self.last = Some(answer.to_owned());
    }

    /// A turn ended. One that failed proves nothing. Gives the messages that it ended with.
    pub(crate) fn ended(&mut self, end: &TurnEnd) -> BTreeSet<String> {
        let named = end.user_message_uuids.as_deref().unwrap_or_default();
        let is_over = |(uuid, repeated): &(String, bool)| *repeated || named.contains(uuid);
        // They are taken in order: a cut can take the repeat of one that was merged.
        let over = self.open.iter().rposition(is_over).map_or(0, |at| at + 1);
        let over: BTreeSet<_> = self.open.drain(..over).map(|(uuid, _)| uuid).collect();
        let proves = end.failed().is_none();
        for (mark, shown) in std::mem::take(&mut self.shown) {
            if proves && shown.answered {
                self.find(Evidence::Answered(mark));
            } else if proves {
                self.shown.insert(mark, shown);
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
    use crate::stream::Said;

    /// What the stream of a real client shows, line by line, after everything was written.
    fn shown(lines: &str) -> (Vec<Evidence>, Vec<String>, Activity) {
        let all: Vec<_> = lines
            .lines()
            .map(|line| Said::read(line).unwrap())
            .collect();
        let (mut turns, mut failed) = (Turns::default(), Vec::new());
        for said in &all {
            match said {
                Said::User(user) if user.is_replay == Some(true) => {
                    turns.wrote(user.uuid.as_ref().unwrap());
                }
                _ => {}
            }
        }
        assert_eq!(turns.activity(), Activity::Busy);
        for said in &all {
            match said {
                Said::User(user) => turns.user(user),
                Said::Assistant(said) => turns.assistant(said),
                Said::Result(end) => {
                    failed.extend(end.failed());
                    turns.ended(end);
                }
                _ => {}
            }
        }
        let marks = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let asked = marks(
            "pb-0000000a-1 pb-0000000a-2 pb-0000000a-3 pb-0000000a-4 pb-0000000b-5 pb-0000000b-6 \
             pb-0000000c-7 pb-0000000d-8",
        );
        (turns.take(&asked), failed, turns.activity())
    }

    #[test]
    fn real_streams_prove_what_was_merged_and_joined_and_nothing_of_turns_that_failed() {
        for lines in [
            include_str!("../testdata/2.1.330.ndjson"),
            include_str!("../testdata/2.1.114.ndjson"),
        ] {
            let (found, failed, activity) = shown(lines);
            let numbers = |answered: bool| -> String {
                let number = |evidence: &Evidence| match evidence {
                    Evidence::Answered(mark) if answered => mark.chars().last(),
                    Evidence::Presented(mark) if !answered => mark.chars().last(),
                    _ => None,
                };
                found.iter().filter_map(number).collect()
            };
            assert_eq!(numbers(false), "12345678");
            assert_eq!(numbers(true), "123456");
            let [service, stopped] = &failed[..] else {
                panic!("{failed:?}")
            };
            assert!(service.starts_with("success: API Error: 400"), "{service}");
            assert!(stopped.starts_with("error_during_execution: "), "{stopped}");
            assert_eq!(activity, Activity::Idle);
        }
    }

    #[test]
    fn messages_before_the_last_of_a_turn_end_with_it_and_none_after_it() {
        let mut turns = Turns::default();
        for uuid in ["one", "two", "three"] {
            turns.wrote(uuid);
        }
        turns.user(&User {
            uuid: Some("two".to_owned()),
            is_replay: Some(true),
            ..User::default()
        });
        let over = turns.ended(&well());
        assert_eq!(over, ["one", "two"].map(str::to_owned).into());
        assert_eq!(turns.activity(), Activity::Busy);
        turns.failed("three");
        assert_eq!(turns.activity(), Activity::Idle);
    }

    fn user(mark: &str) -> User {
        User {
            marks: vec![mark.to_owned()],
            ..User::default()
        }
    }

    fn read(line: &str) -> Assistant {
        match Said::read(line).unwrap() {
            Said::Assistant(said) => said,
            other => panic!("{other:?}"),
        }
    }

    fn well() -> TurnEnd {
        match Said::read(r#"{"type":"result","subtype":"success"}"#).unwrap() {
            Said::Result(end) => end,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_rest_of_an_answer_and_an_agent_inside_answer_nothing() {
        let mark = vec!["pb-1".to_owned()];
        let one = read(r#"{"type":"assistant","message":{"id":"a","content":[]}}"#);
        let inside = read(
            r#"{"type":"assistant","parent_tool_use_id":"t","message":{"id":"b","content":[]}}"#,
        );
        let other = read(r#"{"type":"assistant","message":{"id":"c","content":[]}}"#);
        let mut turns = Turns::default();
        turns.assistant(&one);
        turns.user(&user("pb-1"));
        turns.assistant(&one);
        turns.assistant(&inside);
        turns.ended(&well());
        assert_eq!(turns.take(&mark), [Evidence::Presented("pb-1".into())]);
        turns.assistant(&other);
        assert_eq!(turns.take(&mark), []);
        turns.ended(&well());
        assert_eq!(turns.take(&mark), [Evidence::Answered("pb-1".into())]);
    }
}
