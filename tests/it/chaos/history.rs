//! What everybody saw, and what must not be among it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use peerbus_wire::short_id;

/// Most violations that are told: one is too much.
const TOLD_MAX: usize = 20;

/// Names a message: its sender and its id.
pub(crate) type Id = (String, String);

/// A message that somebody was shown, as a process saw it.
pub(crate) struct Shown {
    pub(crate) from: String,
    pub(crate) id: String,
    /// What the sender numbered it with.
    pub(crate) number: Option<u64>,
    /// It was said to be perhaps no new one.
    pub(crate) repeat: bool,
}

/// What is true of a message before anybody may be shown it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Honest,
    /// It says that it is another's, or its signature is wrong: nobody may be shown it.
    Forged,
}

/// One process of an agent, or one connection of a peer without an adapter.
#[derive(Default)]
struct Process {
    seen: BTreeSet<Id>,
    /// The last number of each sender.
    last: BTreeMap<String, u64>,
}

/// What was sent.
struct Sent {
    to: String,
    kind: Kind,
    at: Instant,
}

#[derive(Default)]
struct State {
    /// What was sent: by sender and number.
    sent: BTreeMap<(String, u64), Sent>,
    /// Whose token is revoked, and since when the broker has confirmed it.
    revoked: BTreeMap<String, Instant>,
    /// How often that happened.
    revocations: BTreeMap<String, u64>,
    /// The one id that each of those has.
    ids: BTreeMap<(String, u64), String>,
    accepted: BTreeMap<Id, String>,
    refused: BTreeSet<Id>,
    /// Recipient and message: it was shown there, or it ended with a notice.
    shown: BTreeSet<(String, Id)>,
    ended: BTreeSet<(String, Id)>,
    /// A call named the message, so that `seen` is true.
    named: BTreeSet<(String, String)>,
    processes: BTreeMap<(String, u64), Process>,
    next_process: u64,
    /// What was sent again because its answer was lost, where an answer may have been a refusal: what
    /// is accepted then comes later than what was sent after it.
    sent_again: Option<BTreeSet<(String, u64)>>,
    violations: Vec<String>,
    progress: Option<Instant>,
    counts: Counts,
}

/// How much happened.
#[derive(Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) shown: u64,
    pub(crate) repeats: u64,
    pub(crate) seen: u64,
    pub(crate) processes: u64,
    pub(crate) probes: u64,
    pub(crate) statuses: u64,
}

/// What everybody saw, checked as it comes.
#[derive(Default)]
pub(crate) struct History(Mutex<State>);

impl History {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics here")
    }

    pub(crate) fn violate(&self, what: String) {
        self.state().violate(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// A sender is about to send this.
    pub(crate) fn sending(&self, from: &str, number: u64, to: &str, kind: Kind) {
        let key = (from.to_owned(), number);
        let (to, at) = (to.to_owned(), Instant::now());
        self.state().sent.insert(key, Sent { to, kind, at });
    }

    /// The broker has confirmed that the token of this name is revoked.
    pub(crate) fn revoked(&self, name: &str) {
        let mut state = self.state();
        state.revoked.insert(name.to_owned(), Instant::now());
        *state.revocations.entry(name.to_owned()).or_default() += 1;
    }

    /// The token of this name is about to hold again.
    pub(crate) fn given_back(&self, name: &str) {
        self.state().revoked.remove(name);
    }

    /// Since when the token of this name is revoked, if it is.
    pub(crate) fn revocation(&self, name: &str) -> Option<Instant> {
        self.state().revoked.get(name).copied()
    }

    /// How often it was.
    pub(crate) fn revocations(&self, name: &str) -> u64 {
        self.state().revocations.get(name).copied().unwrap_or(0)
    }

    /// The broker refuses at times: see [`State::sent_again`].
    pub(crate) fn expect_refusals(&self) {
        self.state().sent_again = Some(BTreeSet::new());
    }

    /// A sender sends this again.
    pub(crate) fn sending_again(&self, from: &str, number: u64) {
        if let Some(again) = &mut self.state().sent_again {
            again.insert((from.to_owned(), number));
        }
    }

    /// A sender was told that this is on disk.
    pub(crate) fn accepted(&self, from: &str, id: &str, to: &str) {
        let mut state = self.state();
        state.counts.accepted += 1;
        let id = (from.to_owned(), short_id(id).to_owned());
        state.accepted.insert(id, to.to_owned());
    }

    /// A sender was told that this was not taken.
    pub(crate) fn refused(&self, from: &str, id: &str) {
        let mut state = self.state();
        state.counts.refused += 1;
        let id = (from.to_owned(), short_id(id).to_owned());
        if let Some(to) = state.accepted.get(&id) {
            let what = format!("{id:?} to {to} was accepted, and refused later");
            return state.violate(what);
        }
        state.refused.insert(id);
    }

    /// The sender was told how a delivery ended without being shown.
    pub(crate) fn ended(&self, from: &str, id: &str, to: &str, how: &str) {
        let mut state = self.state();
        let id = (from.to_owned(), short_id(id).to_owned());
        if how == "expired" {
            state.violate(format!("{id:?} to {to} expired within minutes"));
        }
        state.ended.insert((to.to_owned(), id));
    }

    /// An agent is about to call a tool that names this message.
    pub(crate) fn naming(&self, to: &str, id: &str) {
        let named = (to.to_owned(), short_id(id).to_owned());
        self.state().named.insert(named);
    }

    /// The sender was told that the model behind `to` got it, because of `evidence`.
    pub(crate) fn seen(&self, id: &str, to: &str, evidence: &str) {
        let mut state = self.state();
        state.counts.seen += 1;
        let named = state
            .named
            .contains(&(to.to_owned(), short_id(id).to_owned()));
        if !named || evidence != "tool_call" {
            let what =
                format!("{id} is said to be seen by {to} ({evidence}), which never named it");
            state.violate(what);
        }
    }

    /// A process of `name`, or a connection, that has seen nothing yet.
    pub(crate) fn process(&self, name: &str) -> u64 {
        let mut state = self.state();
        state.counts.processes += 1;
        state.next_process += 1;
        let number = state.next_process;
        let key = (name.to_owned(), number);
        state.processes.insert(key, Process::default());
        number
    }

    /// A process of `to` was shown a message. `once`: no process may be shown one twice, whatever is
    /// said about it.
    pub(crate) fn show(&self, to: &str, process: u64, shown: &Shown, once: bool) {
        let mut state = self.state();
        state.counts.shown += 1;
        state.counts.repeats += u64::from(shown.repeat);
        state.progress = Some(Instant::now());
        let Shown {
            from,
            id,
            number,
            repeat,
        } = shown;
        // A line has the end of an id only.
        let id = short_id(id);
        let key = (from.clone(), id.to_owned());
        if let Err(what) = state.is_honest(to, shown) {
            return state.violate(what);
        }
        let first = state.shown.insert((to.to_owned(), key.clone()));
        if !first && !repeat {
            let what = format!("{to} (process {process}) was shown {from} {id} again as new");
            state.violate(what);
        }
        let Some(known) = state.processes.get_mut(&(to.to_owned(), process)) else {
            return state.violate(format!("{to} has no process {process}"));
        };
        if !known.seen.insert(key) {
            if once {
                let what = format!("one process of {to} was shown {from} {id} twice");
                state.violate(what);
            }
            return;
        }
        let number = number.unwrap_or_default();
        let last = known.last.entry(from.clone()).or_default();
        let before = *last;
        *last = before.max(number);
        // What an adapter sends again it does not tell.
        let late = state.sent_again.as_ref();
        let late = late.is_some_and(|s| from == "sender" || s.contains(&(from.clone(), number)));
        if before >= number && !late {
            let what = format!("{to} was shown number {number} of {from} after {before}");
            state.violate(what);
        }
    }

    /// Messages that were accepted and have neither been shown nor ended, some of them in words.
    pub(crate) fn missing(&self) -> (usize, Vec<String>) {
        let state = self.state();
        let open = |(id, to): &(&Id, &String)| {
            let key = ((*to).clone(), (*id).clone());
            !state.shown.contains(&key) && !state.ended.contains(&key)
        };
        let missing: Vec<_> = state.accepted.iter().filter(open).collect();
        let some = missing.iter().take(5);
        let words = some.map(|(id, to)| format!("{} {} to {to}", id.0, id.1));
        (missing.len(), words.collect())
    }

    /// Whether what a sender numbered so is a forgery.
    pub(crate) fn is_forged(&self, from: &str, number: Option<u64>) -> bool {
        let state = self.state();
        let sent = number.and_then(|number| state.sent.get(&(from.to_owned(), number)));
        sent.is_some_and(|sent| sent.kind == Kind::Forged)
    }

    /// When somebody was shown something last.
    pub(crate) fn progress(&self) -> Option<Instant> {
        self.state().progress
    }

    pub(crate) fn count(&self, what: impl FnOnce(&mut Counts)) {
        what(&mut self.state().counts);
    }
}

impl State {
    fn violate(&mut self, what: String) {
        if self.violations.len() < TOLD_MAX {
            self.violations.push(what);
        }
    }

    /// Whether somebody sent just this, to this recipient.
    fn is_honest(&mut self, to: &str, shown: &Shown) -> Result<(), String> {
        let Shown {
            from, id, number, ..
        } = shown;
        let id = short_id(id);
        let Some(number) = number else {
            return Err(format!("{to} was shown {from} {id}, which nobody wrote so"));
        };
        let key = (from.clone(), *number);
        match self.sent.get(&key) {
            None => Err(format!(
                "{to} was shown {from} {id}, which {from} never sent"
            )),
            Some(sent) if sent.kind == Kind::Forged => {
                Err(format!("{to} was shown {from} {id}, a forgery"))
            }
            Some(Sent { to: other, .. }) if other != to => {
                Err(format!("{to} was shown {from} {id}, which was for {other}"))
            }
            Some(sent) if self.revoked.get(to).is_some_and(|since| sent.at > *since) => {
                Err(format!(
                    "{to} was shown {from} {id}, and its token was revoked before that was sent"
                ))
            }
            Some(_) if self.refused.contains(&(from.clone(), id.to_owned())) => {
                Err(format!("{to} was shown {from} {id}, which was refused"))
            }
            Some(_) => {
                let known = self.ids.entry(key).or_insert_with(|| id.to_owned());
                if known == id {
                    return Ok(());
                }
                Err(format!(
                    "number {number} of {from} came as {known} and as {id}"
                ))
            }
        }
    }
}
