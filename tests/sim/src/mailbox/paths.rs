//! The waking paths of two clients, and what becomes of a push.

use peerbus_core::mailbox::{Attempt, Limit, Outcome, Path, PathSpec};

use super::plan::Faults;
use super::world::{Event, World};

/// The waking paths of a client, by what they do.
#[derive(Debug)]
pub(super) struct Waking {
    /// Text for the turn, which its user may keep or deny.
    pub(super) socket: PathSpec,
    /// A hook that waits in the background, for one push.
    pub(super) rewake: PathSpec,
    /// Notifications, which may be dropped in silence.
    pub(super) channel: PathSpec,
}

const WAKES: PathSpec = PathSpec {
    word: "",
    rank: 0,
    wakes: true,
    one_shot: false,
    joins_busy_turn: false,
    shows_over_dialogs: false,
    in_result: false,
    limit: PathSpec::waking(0).limit,
    gap_ms: 2_000,
};

/// One as the client that there is, and one that is otherwise.
pub(super) static CLIENTS: [Waking; 2] = [
    Waking {
        socket: PathSpec {
            word: "socket",
            joins_busy_turn: true,
            ..WAKES
        },
        rewake: PathSpec {
            word: "rewake",
            rank: 1,
            one_shot: true,
            gap_ms: 0,
            ..WAKES
        },
        channel: PathSpec {
            word: "channel",
            rank: 2,
            shows_over_dialogs: true,
            ..WAKES
        },
    },
    Waking {
        socket: PathSpec {
            word: "turn",
            rank: 2,
            gap_ms: 500,
            ..WAKES
        },
        rewake: PathSpec {
            word: "waiter",
            rank: 1,
            one_shot: true,
            gap_ms: 100,
            limit: Limit {
                messages: 20,
                bytes: 4_000,
            },
            ..WAKES
        },
        channel: PathSpec {
            word: "event",
            gap_ms: 3_000,
            ..WAKES
        },
    },
];

impl World {
    /// A push goes over its path.
    pub(super) fn wake(&mut self, attempt: Attempt) {
        let at = self.rng.range(1, 50);
        let waking = self.plan.waking;
        if attempt.path == &waking.channel {
            self.after(at, Event::Told(attempt.id, Outcome::Written));
            if !self.rng.chance(self.plan.channel_loses) {
                self.after(at + 5, Event::Arrives(attempt));
            }
        } else if attempt.path == &waking.socket {
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
            (&waking.socket, self.plan.socket),
            (&waking.rewake, self.plan.hooks),
            (&waking.channel, self.plan.channel),
        ]
    }
}
