//! What the hosts see and say, and what must be true when everything is healed.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_core::store::{ANSWERS, PeerId};
use peerbus_peer::session::{SendResult, Unsent};
use peerbus_wire::{Carried, Envelope, Received, Seq};

use super::inputs::Expect;
use super::{End, Oracle};
use crate::failure::{Failure, Verdict, ensure};

/// A process in the world.
pub type ProcId = usize;

/// A message that a process was shown.
#[derive(Debug, Clone)]
pub struct Surfaced<'a> {
    /// The process.
    pub proc: ProcId,
    /// Its name.
    pub name: &'a str,
    /// The author.
    pub from: &'a str,
    /// The author's id for it.
    pub id: &'a str,
    /// The body.
    pub body: &'a str,
}

/// A body that was signed: who wrote it, and as which of its messages.
#[derive(Debug, Clone)]
struct Authored {
    body: String,
    proc: ProcId,
    number: u64,
}

/// The hosts' side of the model.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// The carried text of everything that was signed, forged or not.
    texts: BTreeSet<String>,
    /// By lower-case author and id: what a genuine author signed.
    authored: BTreeMap<(String, String), Authored>,
    shown: BTreeSet<(ProcId, String, String)>,
    /// By lower-case name of the recipient: author and id of what its processes were shown or
    /// dropped unread.
    surfaced: BTreeSet<(String, String, String)>,
    /// The lower-case names under which a process was shown something, or went on.
    borne: BTreeSet<(ProcId, String)>,
    /// The last message of an author, in one life of its name, that a process was shown while it
    /// was one peer. Under a name that another peer took meanwhile it has that one's queue.
    last: BTreeMap<(ProcId, Option<PeerId>, ProcId, PeerId), u64>,
    /// As which peer a process that had registered under a lower-case name got a message: another one may have
    /// that name by the time that it is shown.
    pub(super) got: BTreeMap<(String, Seq), PeerId>,
    /// Author and id of what need not come in order: it was refused once and accepted when it was
    /// sent again, it was accepted twice because its author was forgotten in between, or it was
    /// altered on the way once.
    pub(super) late: BTreeSet<(String, String)>,
    /// By lower-case name: statements that a process of that name was told.
    pub(super) told: BTreeSet<(String, u64)>,
    pub(super) numbers: BTreeSet<u64>,
    /// Ids of messages that were accepted.
    pub(super) accepted: BTreeSet<String>,
    waiting: BTreeSet<(ProcId, String)>,
    outcomes: Vec<(String, String, SendResult)>,
}

impl Hosts {
    pub(super) fn is_signed(&self, envelope: &str) -> bool {
        self.texts.contains(envelope)
    }
}

impl Oracle {
    /// A process puts an envelope on the wire. `genuine`: it signed it with the secret, under its
    /// own name, as its message `number`.
    pub fn wrote(&mut self, carried: &str, genuine: Option<(ProcId, u64)>) {
        if !self.hosts.texts.insert(carried.to_owned()) {
            return;
        }
        let Ok(decoded) = Envelope::decode(carried.as_bytes()) else {
            return;
        };
        let envelope = decoded.envelope;
        if let Some((proc, number)) = genuine {
            let body = String::from_utf8_lossy(&envelope.body).into_owned();
            let key = (envelope.from.to_ascii_lowercase(), envelope.id);
            self.hosts
                .authored
                .entry(key)
                .or_insert(Authored { body, proc, number });
        }
    }

    /// A process is shown a message.
    ///
    /// # Errors
    ///
    /// When it must not be.
    pub fn surfaced(&mut self, shown: &Surfaced<'_>) -> Verdict {
        let Surfaced {
            proc,
            name,
            from,
            id,
            body,
        } = *shown;
        let key = (from.to_ascii_lowercase(), id.to_owned());
        let authored = self.hosts.authored.get(&key).cloned();
        let Some(authored) = authored.filter(|authored| authored.body == body) else {
            let text = format!("{name} was shown {id} as from {from}, who did not sign it: {body}");
            return Err(Failure::new("verify", text));
        };
        let seq = self.ever.get(&key);
        let Some(accepted) = seq.and_then(|seq| self.history.get(seq)) else {
            let text = format!("{name} was shown {id}, which is not on disk");
            return Err(Failure::new("I1", text));
        };
        let sender = accepted.sender;
        let job = seq.is_some_and(|seq| self.is_lease(*seq));
        self.hosts
            .surfaced
            .insert((name.to_ascii_lowercase(), key.0.clone(), key.1.clone()));
        self.hosts.borne.insert((proc, name.to_ascii_lowercase()));
        let first = self
            .hosts
            .shown
            .insert((proc, key.0.clone(), key.1.clone()));
        // Given back, it may come again.
        ensure(first || job, "I8", || {
            format!("{name} (process {proc}) was shown {id} twice")
        })?;
        if job || self.hosts.late.contains(&key) {
            return Ok(());
        }
        let number = authored.number;
        let got = seq.and_then(|seq| self.hosts.got.get(&(name.to_ascii_lowercase(), *seq)));
        let named = || Some(self.durable.peer_named(name)?.id);
        let recipient = got.copied().or_else(named);
        let key = (proc, recipient, authored.proc, sender);
        let last = self.hosts.last.insert(key, number);
        ensure(last.is_none_or(|last| last < number), "I3", || {
            format!("{name} was shown {from}'s {number} after {last:?}")
        })
    }

    /// Whether a message of this id, which nobody else uses, was accepted.
    fn is_accepted(&self, id: &str) -> bool {
        self.hosts.accepted.contains(id)
    }

    /// What was sent behind it may be accepted before it is sent again.
    pub(super) fn comes_late_if_refused(&mut self, expect: &Expect, carried: &Carried) {
        if matches!(expect, Expect::Refused(_)) {
            let from = carried.from.key().as_str().to_owned();
            let key = (from, carried.id.as_str().to_owned());
            self.hosts.late.insert(key);
        }
    }

    /// A delivery is altered on the way: its recipient must not take it, but may take it when it
    /// comes again.
    pub(crate) fn altered(&mut self, text: &str) {
        if let Received::Deliver(delivery) = Received::parse(text.as_bytes()) {
            let envelope = delivery.envelope.envelope;
            self.hosts
                .late
                .insert((envelope.from.to_ascii_lowercase(), envelope.id));
        }
    }

    /// A process of this name dropped a delivery unread, which v1 does to what does not verify.
    pub fn dropped(&mut self, name: &str, from: &str, id: &str) {
        let from = from.to_ascii_lowercase();
        self.hosts
            .surfaced
            .insert((name.to_ascii_lowercase(), from, id.to_owned()));
    }

    /// A process whose name has ended goes on under another one: what it was shown it knows there,
    /// too, if it comes again.
    pub fn goes_on(&mut self, proc: ProcId, name: &str) {
        let shown = self.hosts.shown.iter();
        let shown = shown.filter(|(process, ..)| *process == proc);
        let name = name.to_ascii_lowercase();
        self.hosts.borne.insert((proc, name.clone()));
        let again = shown.map(|(_, from, id)| (name.clone(), from.clone(), id.clone()));
        self.hosts.surfaced.extend(again);
    }

    /// A process was told of a fate that the broker keeps until it is acked.
    pub fn told(&mut self, name: &str, key: &str) {
        if let Some(number) = key.strip_prefix('n').and_then(|number| number.parse().ok()) {
            self.hosts.told.insert((name.to_ascii_lowercase(), number));
            self.hosts.numbers.insert(number);
        }
    }

    /// A process asked its session to send.
    pub fn asked(&mut self, proc: ProcId, id: &str) {
        self.hosts.waiting.insert((proc, id.to_owned()));
    }

    /// The session answered.
    ///
    /// # Errors
    ///
    /// When it had answered before.
    pub fn answered_host(
        &mut self,
        proc: ProcId,
        name: &str,
        id: &str,
        outcome: &SendResult,
    ) -> Verdict {
        let waited = self.hosts.waiting.remove(&(proc, id.to_owned()));
        ensure(waited, "reply", || {
            format!("{name} got a second answer for {id}: {outcome:?}")
        })?;
        if matches!(outcome, Ok(Some(_))) {
            let accepted = self.is_accepted(id);
            ensure(accepted, "I1", || {
                format!("{name} was told that {id} is accepted")
            })?;
        }
        self.hosts
            .outcomes
            .push((name.to_owned(), id.to_owned(), outcome.clone()));
        Ok(())
    }

    /// A process is gone, with everything it waited for.
    pub fn process_gone(&mut self, proc: ProcId) {
        self.hosts.waiting.retain(|(waiting, _)| *waiting != proc);
    }

    /// Whether a debt is left to one of these names, a statement to one of `tellable`, or a
    /// session owes an answer.
    #[must_use]
    pub fn unfinished(&self, names: &[String], tellable: &[String]) -> Option<String> {
        for name in names {
            let Some(row) = self.durable.peer_named(name) else {
                continue;
            };
            let first = peerbus_wire::Seq(0);
            let mut owed = self
                .durable
                .owed_between(row.id, first, peerbus_wire::Seq(u64::MAX));
            if let Some(seq) = owed.next() {
                return Some(format!("message {} is still owed to {name}", seq.0));
            }
        }
        for name in tellable {
            let Some(row) = self.durable.peer_named(name) else {
                continue;
            };
            let range = (row.id, 0)..=(row.id, u64::MAX);
            if let Some((_, notice)) = self.durable.notices.range(range).next() {
                return Some(format!("{name} was not told of {}: {notice:?}", notice.id));
            }
        }
        let waiting = self.hosts.waiting.first();
        waiting.map(|(proc, id)| format!("process {proc} got no answer for {id}"))
    }

    /// Everything is healed and drained: what was promised has come true.
    ///
    /// # Errors
    ///
    /// When something has not.
    pub fn finish(&self) -> Verdict {
        for (seq, accepted) in &self.history {
            let from = accepted.from.to_ascii_lowercase();
            for (peer, end) in &accepted.recipients {
                let name = self.name_of(*peer);
                let surfaced = self.any_name(*peer, |name| {
                    let key = (name.clone(), from.clone(), accepted.id.clone());
                    self.hosts.surfaced.contains(&key)
                });
                // A process that goes by another name by now acks again what it was shown before: a job, or
                // what was accepted twice.
                let under_another = || {
                    let all = self.hosts.shown.iter();
                    let mut by = all.filter(|(_, of, id)| *of == from && *id == accepted.id);
                    by.any(|(proc, ..)| {
                        let bore =
                            |name: &String| self.hosts.borne.contains(&(*proc, name.clone()));
                        self.any_name(*peer, bore)
                    })
                };
                let late = self
                    .hosts
                    .late
                    .contains(&(from.clone(), accepted.id.clone()));
                let surfaced = surfaced || (late || self.is_lease(*seq)) && under_another();
                // Whoever has read it is asked about below.
                if matches!(end, Some((End::Acked, _))) && *peer != ANSWERS {
                    ensure(surfaced, "I8", || {
                        let age = accepted.accepted_ms;
                        format!(
                            "message {} ({age}) was acked, {name} was never shown it",
                            seq.0
                        )
                    })?;
                }
            }
        }
        for (name, id, outcome) in &self.hosts.outcomes {
            let accepted = self.is_accepted(id);
            match outcome {
                Ok(Some(_)) => {
                    ensure(accepted, "I1", || {
                        format!("{name}'s {id} was receipted and is lost")
                    })?;
                }
                Err(Unsent::NeverLeft) => {
                    ensure(!accepted, "reply", || {
                        format!("{name}'s {id} left all the same")
                    })?;
                }
                Ok(None) | Err(Unsent::Refused(_) | Unsent::Unconfirmed { .. }) => {}
            }
        }
        Ok(())
    }
}
