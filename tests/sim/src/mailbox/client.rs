//! The session: its conversation, its turns, its hooks and its user.

use std::collections::VecDeque;

use peerbus_peer::mailbox::{Activity, AskId, Attempt, HOOK, MailboxMachine, Outcome};

use super::world::{Event, World};
use crate::failure::{Failure, Verdict};

/// A session of the client.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// The turn under way.
    pub(super) turn: Option<u64>,
    turns: u64,
    /// Text that waits for a boundary.
    queue: VecDeque<Attempt>,
    /// Text in the conversation that the model has not answered.
    open: Vec<Attempt>,
    /// Results and hooks that are on their way: no turn ends before them.
    pub(super) handing: u32,
    /// Results that were sent and that the client is not known to have taken.
    pub(super) flushed: Vec<Attempt>,
    /// The answer that a tool waits for.
    pub(super) asks: Option<AskId>,
    /// A hook waits to rewake the session.
    waiter: bool,
}

impl Client {
    /// A hook waits to rewake the session.
    pub(super) fn waits(&self) -> bool {
        self.waiter
    }
}

impl World {
    /// Text reaches the client over a waking path.
    pub(super) fn client_gets(&mut self, attempt: Attempt) -> Verdict {
        self.client.queue.push_back(attempt);
        if self.client.turn.is_none() {
            self.begin_turn()?;
        }
        Ok(())
    }

    /// The user writes something.
    pub(super) fn user_turn(&mut self) -> Verdict {
        if self.client.turn.is_none() && self.is_alive() {
            self.input(|mailbox, _| mailbox.prompted())?;
            self.begin_turn()?;
        }
        Ok(())
    }

    /// The user begins another conversation: what stands in the one before is not answered any more.
    pub(super) fn clear(&mut self) -> Verdict {
        if self.client.turn.is_some() || self.client.handing > 0 || !self.is_alive() {
            return Ok(());
        }
        self.alive()?;
        self.client.open.clear();
        self.oracle.clears();
        self.input(MailboxMachine::cleared)
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
    pub(super) fn dialog(&mut self, turn: u64, open: bool) -> Verdict {
        if self.client.turn == Some(turn) {
            self.say(if open {
                Activity::Waiting
            } else {
                Activity::Busy
            });
        }
        Ok(())
    }

    /// A tool has run.
    pub(super) fn boundary(&mut self, turn: u64) -> Verdict {
        if self.client.turn != Some(turn) {
            return Ok(());
        }
        self.answer()?;
        self.join_queue()?;
        if self.plan.hooks && self.rng.chance(700) {
            self.hook()?;
        }
        if self.client.asks.is_none() && self.rng.chance(self.plan.tools) {
            self.tool()?;
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
        self.alive()?;
        self.answer()?;
        self.client.turn = None;
        let again = self.plan.hooks && self.rng.chance(700) && self.hook()?;
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
            self.ready_after(30, self.plan.waking.rewake);
        }
    }

    /// The waiter takes a push. False: it is gone.
    pub(super) fn rewake(&mut self) -> bool {
        std::mem::take(&mut self.client.waiter)
    }

    /// A hook asks for text. True: there was some.
    fn hook(&mut self) -> Result<bool, Failure> {
        let attempt = self.takes(false, |mailbox, now| mailbox.along(now, &HOOK))?;
        let Some(attempt) = attempt else {
            return Ok(false);
        };
        let fails = !self.healing && self.rng.chance(100);
        let at = self.rng.range(1, 200);
        self.client.handing += 1;
        self.after(at, Event::Hooked(attempt, !fails));
        Ok(true)
    }

    /// A hook is done.
    pub(super) fn hooked(&mut self, attempt: Attempt, leaves: bool) -> Verdict {
        self.client.handing -= 1;
        if !leaves {
            return self.told(attempt.id, Outcome::Failed);
        }
        self.told(attempt.id, Outcome::Written)?;
        self.join(attempt)
    }

    fn join_queue(&mut self) -> Verdict {
        while let Some(attempt) = self.client.queue.pop_front() {
            self.join(attempt)?;
        }
        Ok(())
    }

    /// Text joins the conversation.
    pub(super) fn join(&mut self, attempt: Attempt) -> Verdict {
        self.oracle.joined(&attempt)?;
        if self.readable {
            let at = self.rng.range(5, 180);
            self.after(at, Event::Presented(attempt.id));
        }
        self.client.open.push(attempt);
        Ok(())
    }

    /// The model answers what stands in the conversation, if it can be reached.
    fn answer(&mut self) -> Verdict {
        if !self.healing && self.rng.chance(self.plan.mute) {
            return Ok(());
        }
        for attempt in std::mem::take(&mut self.client.open) {
            if self.readable {
                let at = self.rng.range(200, 400);
                self.after(at, Event::Answered(attempt.id));
            }
            let names = if self.healing && !self.readable {
                1_000
            } else {
                self.plan.names
            };
            for item in &attempt.items {
                let mail = item.content.mail().cloned();
                if let Some(mail) = mail.filter(|_| self.rng.chance(names)) {
                    self.names(&mail)?;
                }
            }
        }
        Ok(())
    }

    /// Something that the session does shows that it lives: what was sent to it was taken.
    pub(super) fn alive(&mut self) -> Verdict {
        for attempt in std::mem::take(&mut self.client.flushed) {
            self.told(attempt.id, Outcome::Written)?;
            let cut = attempt.path.in_result && !self.healing;
            if !(cut && self.rng.chance(self.plan.faults.cut)) {
                self.join(attempt)?;
            }
        }
        Ok(())
    }

    /// The agent looks into its inbox without being asked to.
    pub(super) fn look(&mut self) -> Verdict {
        if !self.is_alive() {
            return Ok(());
        }
        self.alive()?;
        self.calls()?;
        let attempt = self.reads()?;
        self.results(attempt.into_iter().collect());
        Ok(())
    }

    pub(super) fn calls(&mut self) -> Verdict {
        self.input(MailboxMachine::handle_timeout)?;
        self.oracle.called();
        self.input(MailboxMachine::called)
    }
}
