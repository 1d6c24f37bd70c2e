//! The waking paths of two clients, and what becomes of a push.

use peerbus_peer::mailbox::{Attempt, Limit, Outcome, Path, PathSpec};
use peerbus_peer::testing::{CHANNEL, REWAKE, SOCKET};

use super::plan::Faults;
use super::world::{Event, World};
use crate::failure::Verdict;

/// The waking paths of a client, by what they do.
#[derive(Debug)]
pub(super) struct Waking {
    pub(super) socket: Path,
    pub(super) rewake: Path,
    pub(super) channel: Path,
}

/// One as the client that there is, and one that is otherwise.
pub(super) static CLIENTS: [Waking; 2] = [
    Waking {
        socket: &SOCKET,
        rewake: &REWAKE,
        channel: &CHANNEL,
    },
    Waking {
        socket: &PathSpec {
            word: "turn",
            rank: 2,
            ..PathSpec::waking(500)
        },
        rewake: &PathSpec {
            word: "waiter",
            rank: 1,
            one_shot: true,
            limit: Limit {
                messages: 20,
                bytes: 4_000,
            },
            ..PathSpec::waking(100)
        },
        channel: &PathSpec {
            word: "event",
            ..PathSpec::waking(3_000)
        },
    },
];

impl World {
    /// What is left of a push goes over its path.
    pub(super) fn shows(&mut self, attempt: Attempt) -> Verdict {
        if !self.is_alive() {
            return Ok(());
        }
        let made = attempt.clone();
        let items = self.judged(
            |mailbox, now| mailbox.current(now, &made),
            |oracle, items| oracle.shows(&made, items),
        )?;
        let attempt = Attempt { items, ..attempt };
        if attempt.items.is_empty() {
            self.told(attempt.id, Outcome::Failed)?;
            // The host looks whether the path is still there.
            if !attempt.path.one_shot || self.client.waits() {
                self.ready_after(1, attempt.path);
            }
            return Ok(());
        }
        self.wake(attempt);
        Ok(())
    }

    fn wake(&mut self, attempt: Attempt) {
        let at = self.rng.range(1, 50);
        let waking = self.plan.waking;
        if attempt.path == waking.channel {
            self.after(at, Event::Told(attempt.id, Outcome::Written));
            if !self.rng.chance(self.plan.channel_loses) {
                self.after(at + 5, Event::Arrives(attempt));
            }
        } else if attempt.path == waking.socket {
            self.post(at, attempt);
        } else if self.rewake() {
            self.after(at, Event::Told(attempt.id, Outcome::Written));
            self.after(at + 90, Event::Arrives(attempt));
        } else {
            self.after(at, Event::Told(attempt.id, Outcome::Failed));
        }
    }

    /// The socket does with a push what the plan says.
    fn post(&mut self, at: u64, attempt: Attempt) {
        let Faults {
            fail,
            keep,
            deny,
            drop,
            lose,
            late,
            ..
        } = self.plan.faults;
        let id = attempt.id;
        if self.rng.chance(fail) {
            self.after(at, Event::Told(id, Outcome::Failed));
            let again = self.rng.range(at + 1, 5_000);
            return self.ready_after(again, attempt.path);
        }
        let later = at + self.rng.range(1, 20_000);
        let verdict = if self.rng.chance(keep) {
            self.after(later + 40_000, Event::Decides(attempt));
            Outcome::Kept
        } else if self.rng.chance(deny) {
            Outcome::Denied
        } else if self.rng.chance(drop) {
            Outcome::Dropped
        } else {
            self.after(at, Event::Told(id, Outcome::Written));
            let lost = self.rng.chance(lose);
            let slow = self.rng.chance(late);
            if !lost {
                // It may be there before its writer has returned.
                let gets = if slow { later } else { 10 };
                self.after(gets, Event::Arrives(attempt));
            }
            return;
        };
        if self.rng.chance(500) {
            self.after(at, Event::Told(id, Outcome::Written));
            self.after(later, Event::Told(id, verdict));
        } else {
            self.after(at, Event::Told(id, verdict));
        }
    }

    /// The waking paths that there are.
    pub(super) fn paths(&self) -> [(Path, bool); 3] {
        let waking = self.plan.waking;
        [
            (waking.socket, self.plan.socket),
            (waking.rewake, self.plan.hooks),
            (waking.channel, self.plan.channel),
        ]
    }
}
