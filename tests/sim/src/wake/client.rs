//! The session: its conversation, its turns, its hooks and its user.

use std::collections::VecDeque;

use peerbus_core::wake::{Activity, Limit, Outcome, Parcel, Path};

use super::world::{Event, World};
use crate::failure::Verdict;

/// What a hook or a result may carry.
const ROOM: Limit = Limit {
    entries: 20,
    bytes: 9_000,
};

/// What the inbox gives.
const INBOX: Limit = Limit {
    entries: 50,
    bytes: 65_536,
};

/// A session of the client.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// The turn under way.
    turn: Option<u64>,
    turns: u64,
    /// Text that waits for a boundary.
    queue: VecDeque<Parcel>,
    /// Text in the conversation that the model has not answered.
    open: Vec<Parcel>,
    /// Results and hooks that are on their way: no turn ends before them.
    handing: u32,
    /// A hook waits to rewake the session.
    waiter: bool,
}

impl World {
    /// Text reaches the client over a waking path.
    pub(super) fn client_gets(&mut self, parcel: Parcel) -> Verdict {
        self.client.queue.push_back(parcel);
        if self.client.turn.is_none() {
            self.begin_turn()?;
        }
        Ok(())
    }

    /// The user writes something.
    pub(super) fn user_turn(&mut self) -> Verdict {
        if self.client.turn.is_none() && self.is_alive() {
            self.begin_turn()?;
        }
        Ok(())
    }

    fn begin_turn(&mut self) -> Verdict {
        self.client.turns += 1;
        let turn = self.client.turns;
        self.client.turn = Some(turn);
        self.say(Activity::Busy);
        self.join_queue()?;
        let most = if self.healing {
            self.plan.turn_ms.min(20_000)
        } else {
            self.plan.turn_ms
        };
        let length = self.rng.range(300, most);
        for _ in 0..self.rng.range(0, 4) {
            let at = self.rng.range(100, length);
            self.after(at, Event::Boundary(turn));
        }
        if self.rng.chance(100) {
            self.after(length / 4, Event::Dialog(turn, true));
            self.after(length / 2, Event::Dialog(turn, false));
        }
        self.after(length, Event::TurnEnd(turn));
        Ok(())
    }

    /// A dialog opens, or is closed.
    pub(super) fn dialog(&mut self, turn: u64, open: bool) {
        if self.client.turn == Some(turn) {
            self.say(if open {
                Activity::Waiting
            } else {
                Activity::Busy
            });
        }
    }

    /// A tool has run.
    pub(super) fn boundary(&mut self, turn: u64) -> Verdict {
        if self.client.turn != Some(turn) {
            return Ok(());
        }
        self.answer()?;
        self.join_queue()?;
        if self.plan.hooks && self.rng.chance(700) {
            self.hand(Path::Hook)?;
        }
        if self.rng.chance(self.plan.tools) {
            self.called()?;
            if !self.healing && self.rng.chance(100) {
                self.read()?;
            } else {
                self.hand(Path::Piggyback)?;
            }
        }
        Ok(())
    }

    pub(super) fn turn_ends(&mut self, turn: u64) -> Verdict {
        if self.client.turn != Some(turn) {
            return Ok(());
        }
        if self.client.handing > 0 {
            self.after(100, Event::TurnEnd(turn));
            return Ok(());
        }
        self.answer()?;
        self.client.turn = None;
        let again = self.plan.hooks && self.rng.chance(700) && self.hand(Path::Hook)?;
        if again || !self.client.queue.is_empty() {
            return self.begin_turn();
        }
        if self.plan.hooks {
            self.wait_to_rewake();
        }
        self.say(Activity::Idle);
        Ok(())
    }

    /// A hook waits in the background, one for each session.
    pub(super) fn wait_to_rewake(&mut self) {
        if !self.client.waiter {
            self.client.waiter = true;
            self.ready_after(30, Path::Rewake);
        }
    }

    /// The waiter takes a push. False: it is gone.
    pub(super) fn rewake(&mut self) -> bool {
        std::mem::take(&mut self.client.waiter)
    }

    /// The agent asks for what it has not seen.
    pub(super) fn read(&mut self) -> Verdict {
        let path = self.rng.pick(&[Path::Inbox, Path::Drain]);
        let parcel = self.input(|ladder, now| ladder.read(now, path, None, INBOX))?;
        let Some(parcel) = parcel else {
            return Ok(());
        };
        self.oracle.made(&parcel, true)?;
        self.handed_after(parcel, true);
        Ok(())
    }

    /// Something that shows text anyway asks for it. True: there was some.
    fn hand(&mut self, path: Path) -> Result<bool, crate::failure::Failure> {
        let parcel = self.input(|ladder, now| ladder.hand_over(now, path, ROOM))?;
        let Some(parcel) = parcel else {
            return Ok(false);
        };
        self.oracle.made(&parcel, false)?;
        self.handed_after(parcel, false);
        Ok(true)
    }

    fn handed_after(&mut self, parcel: Parcel, reading: bool) {
        let fails = !self.healing && self.rng.chance(100);
        let at = self.rng.range(1, 200);
        self.client.handing += 1;
        self.after(at, Event::Handed(parcel, reading, !fails));
    }

    /// A result or a hook is done.
    pub(super) fn handed(&mut self, parcel: Parcel, reading: bool, leaves: bool) -> Verdict {
        self.client.handing -= 1;
        if !leaves {
            return self.told(parcel.id, Outcome::Failed);
        }
        self.told(parcel.id, Outcome::Written)?;
        if reading {
            return self.oracle.joined(&parcel);
        }
        if parcel.path == Path::Piggyback && !self.healing && self.rng.chance(100) {
            // The call was cancelled when its result had left; the model may have got it.
            self.oracle.joined(&parcel)?;
            return self.told(parcel.id, Outcome::Doubtful);
        }
        self.join(parcel)
    }

    fn join_queue(&mut self) -> Verdict {
        while let Some(parcel) = self.client.queue.pop_front() {
            self.join(parcel)?;
        }
        Ok(())
    }

    /// Text joins the conversation.
    pub(super) fn join(&mut self, parcel: Parcel) -> Verdict {
        self.oracle.joined(&parcel)?;
        if self.readable {
            let at = self.rng.range(5, 180);
            self.after(at, Event::Presented(parcel.id));
        }
        self.client.open.push(parcel);
        Ok(())
    }

    /// The model answers what stands in the conversation, if it can be reached.
    fn answer(&mut self) -> Verdict {
        if !self.healing && self.rng.chance(self.plan.mute) {
            return Ok(());
        }
        for parcel in std::mem::take(&mut self.client.open) {
            if self.readable {
                let at = self.rng.range(200, 400);
                self.after(at, Event::Answered(parcel.id));
            }
            let names = if self.healing && !self.readable {
                1_000
            } else {
                self.plan.names
            };
            for item in &parcel.items {
                if self.rng.chance(names) {
                    self.named(item.entry)?;
                }
            }
        }
        Ok(())
    }
}
