//! The other bridge: its broker's epoch, whether it is there, and how far it says it is.

use peerbus_wire::bridge::{Epoch, Outside, Saying};

use super::mutation::BridgeMutation;
use super::{Bridge, BridgeEvent, BridgeOutput, Link};

/// How often a bridge says that it is here, in milliseconds.
const HELLO_MS: u64 = 3_000;
/// What is to be said waits so long for company.
pub(super) const SOON_MS: u64 = 10;
/// The other bridge is away when it was not heard of for so long.
const AWAY_MS: u64 = 15_000;

#[derive(Debug)]
pub(super) struct Far {
    /// Its broker's epoch, as it said last.
    pub(super) epoch: Option<Epoch>,
    heard_ms: u64,
    /// It was not heard of for long.
    pub(super) away: bool,
    /// When the next hello is due.
    pub(super) hello_ms: u64,
}

impl Far {
    pub(super) fn new(now_ms: u64) -> Self {
        Self {
            epoch: None,
            heard_ms: now_ms,
            away: false,
            hello_ms: now_ms,
        }
    }

    /// It was heard of in time.
    pub(super) fn is_here(&self) -> bool {
        self.epoch.is_some() && !self.away
    }

    pub(super) fn away_at(&self) -> Option<u64> {
        (!self.away).then_some(self.heard_ms + AWAY_MS)
    }

    /// The next hello is due soon.
    pub(super) fn soon(&mut self, now_ms: u64) {
        self.hello_ms = self.hello_ms.min(now_ms + SOON_MS);
    }
}

impl Bridge {
    /// Something came outside of the stream.
    pub(super) fn heard(&mut self, now_ms: u64, bytes: &[u8]) {
        let Outside {
            epoch,
            meant_for,
            saying,
        } = match Outside::parse(bytes) {
            Ok(outside) => outside,
            Err(why) => {
                return self.refused(None, format!("a message outside of the stream: {why}"));
            }
        };
        let hello = matches!(saying, Saying::Hello { .. });
        let known = self.far.epoch.as_ref() == Some(&epoch);
        if !known && !hello {
            return;
        }
        self.far.heard_ms = now_ms;
        if std::mem::take(&mut self.far.away) {
            self.event(BridgeEvent::Back);
            self.sending.again_soon(now_ms);
        }
        if !known {
            self.renew(epoch);
        }
        if meant_for.is_none() || meant_for != self.own {
            // It does not know this broker, or not any more.
            if hello {
                self.far.soon(now_ms);
            }
            return;
        }
        if self.link != Link::Up {
            return;
        }
        match saying {
            Saying::Hello { taken, gap } => {
                self.confirmed(now_ms, taken);
                if gap {
                    self.wanted(now_ms);
                }
            }
            Saying::Stages { items, answer } => self.pass_on(now_ms, items, answer),
            Saying::Noted(told) => self.noted(&told),
            Saying::Ask(messages) => self.asked(messages),
        }
    }

    /// Says that the other bridge is away, if that is so.
    pub(super) fn look_away(&mut self, now_ms: u64) {
        if self.far.away_at().is_some_and(|at| at <= now_ms) {
            self.far.away = true;
            self.event(BridgeEvent::Away);
        }
    }

    /// Says how far the messages of the other side were taken, if that is due.
    pub(super) fn hello_due(&mut self, now_ms: u64) {
        let Some(own) = self.own.clone().filter(|_| self.is_greeted()) else {
            return;
        };
        if self.far.hello_ms > now_ms {
            return;
        }
        self.far.hello_ms = now_ms + HELLO_MS;
        let up = self.link == Link::Up;
        let early = self.mutations.broken(BridgeMutation::ConfirmEarly);
        let gap = up && std::mem::take(&mut self.taking.gap);
        let taken = if early {
            self.taking.expected()
        } else {
            self.taking.confirmed(gap)
        };
        let outside = Outside {
            epoch: own,
            meant_for: self.far.epoch.clone().filter(|_| up),
            saying: Saying::Hello {
                taken: if up { taken } else { 0 },
                gap,
            },
        };
        self.outputs
            .push_back(BridgeOutput::Outside(outside.encode()));
    }
}
