//! What came of a parcel, and what shows that the model got it.

use peerbus_wire::How;

use super::Ladder;
use super::climb::{ANSWER_MS, PRESENT_MS};
use super::entries::{Cause, Phase, Showing, Stage, Unseen};
use super::mutation::Mutation;
use super::paths::PAUSE_MS;
use super::types::{Action, EntryId, Outcome, ParcelId, Path, Policy, Step};

/// For the sender of a message that the user turned away.
const DENIED: &str = "the recipient's user denied this message at its client";

impl Ladder {
    /// What came of a parcel. Of a parcel that is not known any more it says nothing new.
    pub fn told(&mut self, now_ms: u64, parcel: ParcelId, outcome: Outcome) {
        self.advance(now_ms);
        match outcome {
            Outcome::Written => {
                self.written(now_ms, parcel);
                self.relieve();
            }
            Outcome::Failed => self.failed(now_ms, parcel),
            Outcome::Held => self.held(now_ms, parcel),
            Outcome::Dropped => self.dropped(now_ms, parcel),
            Outcome::Doubtful => {
                for (id, _) in self.items(parcel) {
                    if let Some(unseen) = self.unseen.get_mut(&id) {
                        unseen.entry.again = true;
                    }
                }
                self.dropped(now_ms, parcel);
            }
            Outcome::Denied if self.mutations.broken(Mutation::OverruleDenial) => {
                self.dropped(now_ms, parcel);
            }
            Outcome::Denied => self.denied(now_ms, parcel),
        }
        self.finish(now_ms);
    }

    /// The parcel's text stands in the session's conversation.
    pub fn presented(&mut self, now_ms: u64, parcel: ParcelId) {
        self.advance(now_ms);
        self.transcript.found(ParcelId(self.next_parcel));
        self.in_conversation(now_ms, parcel);
        self.finish(now_ms);
    }

    /// The model answered after the parcel's text.
    pub fn answered(&mut self, now_ms: u64, parcel: ParcelId) {
        self.advance(now_ms);
        self.transcript.found(ParcelId(self.next_parcel));
        let Some(sent) = self.parcels.get_mut(&parcel) else {
            return self.finish(now_ms);
        };
        let (path, first) = (sent.path, sent.stage == Stage::InFlight);
        let items = sent.items.clone();
        if first {
            self.written(now_ms, parcel);
        }
        self.paths.proved(path);
        for (id, _) in items.iter().filter(|(_, whole)| *whole) {
            self.settle(*id, seen(path, "transcript"));
        }
        // What was shown in part stands there, in part.
        self.in_conversation(now_ms, parcel);
        self.finish(now_ms);
    }

    /// A tool call of the agent names the entry: it has seen it.
    pub fn named(&mut self, now_ms: u64, entry: EntryId) {
        self.advance(now_ms);
        if let Some(unseen) = self.unseen.get(&entry) {
            let flying = unseen.flying.and_then(|id| self.parcels.get(&id));
            let shown = unseen.shown.last().map(|showing| showing.path);
            let path = shown.or(flying.map(|sent| sent.path));
            if let Some(path) = path {
                self.paths.proved(path);
            }
            // It may know the name from a session before this one.
            let word = path.map_or("unknown", Path::as_str);
            self.settle(
                entry,
                How::Seen {
                    path: word.to_owned(),
                    evidence: "tool_call".to_owned(),
                },
            );
        }
        self.finish(now_ms);
    }

    /// The agent called a tool, whichever.
    pub fn called(&mut self, now_ms: u64) {
        self.advance(now_ms);
        if self.policy == Policy::Auto && !self.transcript.shows() {
            let got = |s: &Showing| s.path == Path::Piggyback && s.whole;
            let got = |u: &&Unseen| u.shown.iter().any(got);
            for id in self.ids(got) {
                self.settle(id, pushed(Path::Piggyback));
            }
        }
        self.finish(now_ms);
    }

    /// What every input ends with.
    pub(super) fn finish(&mut self, now_ms: u64) {
        if std::mem::take(&mut self.lost_sight) {
            self.relieve();
        }
        self.sweep();
        self.pump(now_ms);
        self.say_crowded(now_ms);
    }

    fn written(&mut self, now_ms: u64, parcel: ParcelId) {
        let Some(sent) = self.parcels.get_mut(&parcel) else {
            return;
        };
        let before = std::mem::replace(&mut sent.stage, Stage::Written);
        if before == Stage::Written {
            return;
        }
        let (path, cause) = (sent.path, sent.cause);
        let in_dialogs = sent.shows_in_dialogs();
        if before == Stage::InFlight {
            self.took(now_ms, parcel);
        }
        let idle_ms = self.clock.at(now_ms);
        let clock = if in_dialogs {
            &self.dialogs
        } else {
            &self.clock
        };
        let until_ms = clock.at(now_ms) + PRESENT_MS;
        for (id, whole) in self.items(parcel) {
            if cause == Cause::Read {
                self.settle(id, seen(path, "tool_result"));
                continue;
            }
            let Some(unseen) = self.unseen.get_mut(&id) else {
                continue;
            };
            if before == Stage::InFlight || unseen.phase == Phase::Held(parcel) {
                let phase = Phase::Shown {
                    parcel,
                    presented: false,
                    until_ms,
                };
                unseen.await_evidence(phase, idle_ms);
            }
            let step = Step::Pushed(path);
            self.actions.push_back(Action::Progress { entry: id, step });
            if self.policy == Policy::Pushed && whole {
                self.settle(id, pushed(path));
            }
        }
    }

    fn held(&mut self, now_ms: u64, parcel: ParcelId) {
        let Some(sent) = self.parcels.get_mut(&parcel) else {
            return;
        };
        if sent.stage == Stage::Held || sent.cause == Cause::Read || sent.presented {
            return;
        }
        let before = std::mem::replace(&mut sent.stage, Stage::Held);
        let path = sent.path;
        if before == Stage::InFlight {
            self.took(now_ms, parcel);
        }
        for (id, _) in self.items(parcel) {
            let Some(unseen) = self.unseen.get_mut(&id) else {
                continue;
            };
            let last = unseen.shown.last().is_some_and(|s| s.parcel == parcel);
            // What was shown again since waits for the evidence of that.
            if last && unseen.flying.is_none() {
                unseen.phase = Phase::Held(parcel);
                unseen.again_at_ms = None;
                unseen.once_more = false;
            }
            let step = Step::Held(path);
            self.actions.push_back(Action::Progress { entry: id, step });
        }
    }

    fn failed(&mut self, now_ms: u64, parcel: ParcelId) {
        let in_flight = |sent: &&super::Sent| sent.stage == Stage::InFlight;
        let Some(sent) = self.parcels.get(&parcel).filter(in_flight) else {
            return;
        };
        // Where everything was seen meanwhile there was nothing to show: that is no failure.
        let left = sent
            .items
            .iter()
            .any(|(id, _)| self.unseen.contains_key(id));
        if sent.cause == Cause::Push && left {
            self.paths.failed(now_ms, sent.path);
        }
        self.land(parcel);
        self.parcels.remove(&parcel);
    }

    fn dropped(&mut self, now_ms: u64, parcel: ParcelId) {
        let absent = |sent: &&super::Sent| !sent.presented && sent.cause != Cause::Read;
        let Some(sent) = self.parcels.get(&parcel).filter(absent) else {
            return;
        };
        let path = sent.path;
        if sent.stage == Stage::InFlight {
            self.took(now_ms, parcel);
        }
        let idle_ms = self.clock.at(now_ms);
        for (id, _) in self.items(parcel) {
            let Some(unseen) = self.unseen.get_mut(&id) else {
                continue;
            };
            unseen.shown.retain(|showing| showing.parcel != parcel);
            unseen.dropped.insert(path);
            let current = match unseen.phase {
                Phase::Waiting => true,
                Phase::Held(of) => of == parcel,
                Phase::Shown { parcel: of, .. } | Phase::Overdue { parcel: of, .. } => of == parcel,
            };
            if !current {
                continue;
            }
            unseen.phase = unseen
                .shown
                .last()
                .map_or(Phase::Waiting, |last| Phase::Overdue {
                    parcel: last.parcel,
                    presented: false,
                });
            unseen.give_back(idle_ms);
        }
        self.parcels.remove(&parcel);
    }

    fn denied(&mut self, now_ms: u64, parcel: ParcelId) {
        let stage = self.parcels.get(&parcel).map(|sent| sent.stage);
        if stage == Some(Stage::InFlight) {
            self.took(now_ms, parcel);
        }
        for (entry, _) in self.items(parcel) {
            if self.forget(entry) {
                let reason = DENIED;
                self.actions.push_back(Action::Reject { entry, reason });
            }
        }
        self.parcels.remove(&parcel);
    }

    fn in_conversation(&mut self, now_ms: u64, parcel: ParcelId) {
        let Some(sent) = self.parcels.get(&parcel) else {
            return;
        };
        let path = sent.path;
        if sent.cause == Cause::Read || sent.presented {
            return;
        }
        if sent.stage == Stage::InFlight {
            self.written(now_ms, parcel);
        }
        self.paths.arrived(path);
        if let Some(sent) = self.parcels.get_mut(&parcel) {
            sent.presented = true;
        }
        let idle_ms = self.clock.at(now_ms);
        for (id, whole) in self.items(parcel) {
            let Some(unseen) = self.unseen.get_mut(&id) else {
                continue;
            };
            let phase = Phase::Shown {
                parcel,
                presented: true,
                until_ms: idle_ms + ANSWER_MS,
            };
            unseen.await_evidence(phase, idle_ms);
            if unseen.presented_over.insert(path) {
                let step = Step::Presented(path);
                self.actions.push_back(Action::Progress { entry: id, step });
            }
            if self.mutations.broken(Mutation::TrustPresence) {
                self.settle(id, seen(path, "transcript"));
            } else if self.policy == Policy::Pushed && whole {
                self.settle(id, pushed(path));
            }
        }
    }

    /// The client has the parcel: it counts as a showing, and is no longer in flight.
    fn took(&mut self, now_ms: u64, parcel: ParcelId) {
        self.land(parcel);
        let Some(sent) = self.parcels.get(&parcel) else {
            return;
        };
        let (path, cause) = (sent.path, sent.cause);
        if cause == Cause::Push {
            self.paths.took(now_ms, path);
        }
        if path == Path::Socket {
            self.last_socket = Some((parcel, now_ms));
        }
        for (id, whole) in self.items(parcel) {
            let Some(unseen) = self.unseen.get_mut(&id) else {
                continue;
            };
            if cause == Cause::Push && unseen.is_fresh() {
                self.digest_at_ms = now_ms + PAUSE_MS;
            }
            unseen.done_once_more |= unseen.once_more && path.wakes();
            unseen.once_more = false;
            unseen.shown.push(Showing {
                parcel,
                path,
                whole,
            });
        }
    }

    /// The parcel's entries are free again.
    fn land(&mut self, parcel: ParcelId) {
        for (id, _) in self.items(parcel) {
            let own = |u: &&mut Unseen| u.flying == Some(parcel);
            if let Some(unseen) = self.unseen.get_mut(&id).filter(own) {
                unseen.flying = None;
            }
        }
    }

    /// What a parcel holds.
    fn items(&self, parcel: ParcelId) -> Vec<(EntryId, bool)> {
        let sent = self.parcels.get(&parcel);
        sent.map(|sent| sent.items.clone()).unwrap_or_default()
    }

    fn ids(&self, wanted: impl Fn(&&Unseen) -> bool) -> Vec<EntryId> {
        let wanted = self.unseen.values().filter(wanted);
        wanted.map(|unseen| unseen.entry.id).collect()
    }

    /// Where nothing can be proven and the window is nearly full, the older half of what was
    /// shown is let go.
    pub(super) fn relieve(&mut self) {
        if !self.crowded || self.transcript.shows() || self.policy != Policy::Auto {
            return;
        }
        let whole = |u: &&Unseen| u.shown.iter().any(|showing| showing.whole);
        let ids = self.ids(|u| u.is_free() && whole(u));
        for id in ids.iter().take(ids.len().div_ceil(2)) {
            let shown = self.unseen.get(id).map(|unseen| unseen.shown.as_slice());
            let last = shown.and_then(|shown| shown.iter().rfind(|showing| showing.whole));
            if let Some(path) = last.map(|showing| showing.path) {
                self.settle(*id, pushed(path));
            }
        }
    }

    /// The end of an entry, with what its ack may claim.
    fn settle(&mut self, entry: EntryId, how: How) {
        if self.forget(entry) {
            self.actions.push_back(Action::Settle { entry, how });
        }
    }

    fn forget(&mut self, entry: EntryId) -> bool {
        self.unseen.remove(&entry).is_some()
    }

    /// Forgets parcels in which nothing is unseen, except those whose outcome is open.
    fn sweep(&mut self) {
        let Self {
            unseen, parcels, ..
        } = self;
        parcels.retain(|_, sent| {
            let open = sent.items.iter().any(|(id, _)| unseen.contains_key(id));
            open || sent.stage == Stage::InFlight
        });
    }
}

fn seen(path: Path, evidence: &str) -> How {
    How::Seen {
        path: path.as_str().to_owned(),
        evidence: evidence.to_owned(),
    }
}

fn pushed(path: Path) -> How {
    How::Pushed {
        path: path.as_str().to_owned(),
    }
}
