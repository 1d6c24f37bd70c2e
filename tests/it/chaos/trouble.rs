//! The mixes: what is done to a world, beside the connections that break in each of them.

use std::time::Duration;

use peerbus_test_support::message::envelope;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::json;

use super::DRAINER;
use super::tokens::HOLDERS;
use super::wire::{Heard, Wire};
use super::world::{Fault, Victim, World};

/// Kinds of trouble.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    /// SIGKILL of broker and adapters.
    Kill,
    /// SIGSTOP and SIGCONT of broker and adapters; in a long run an adapter for minutes.
    Suspend,
    /// SIGTERM of the broker.
    Restart,
    /// Connections that stall, lose what they carry, and break.
    Network,
    /// A small disk that fills up, and has room again.
    Disk,
    /// Writes and syncs of the database that fail.
    Errors,
    /// A wall clock that jumps, also over restarts.
    Clock,
    /// Strangers, garbage, and a peer that sends without end and does not read.
    Flood,
    /// Tokens that are revoked and given back.
    Tokens,
}

impl Mix {
    pub(crate) const ALL: [Self; 9] = [
        Self::Kill,
        Self::Suspend,
        Self::Restart,
        Self::Network,
        Self::Disk,
        Self::Errors,
        Self::Clock,
        Self::Flood,
        Self::Tokens,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL",
            Self::Suspend => "SIGSTOP",
            Self::Restart => "restarts",
            Self::Network => "network",
            Self::Disk => "full disk",
            Self::Errors => "I/O errors",
            Self::Clock => "clock",
            Self::Flood => "flood",
            Self::Tokens => "tokens",
        }
    }
}

/// Who makes the trouble.
pub(crate) struct Troublemaker<'a> {
    pub(crate) world: &'a World,
    pub(crate) victims: &'a [&'a Victim],
    pub(crate) rng: StdRng,
    /// There is time for what takes minutes.
    pub(crate) patient: bool,
    /// How often each thing was done.
    pub(crate) done: u64,
}

/// Breaks a connection now and then, sometimes after what it carried was lost. Part of every mix.
pub(crate) fn unreliable_network(world: &World, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    while !world.sending_is_over() {
        pause(&mut rng, 100..400);
        let lost = Duration::from_millis(rng.random_range(1..60));
        let cut = rng.random_ratio(1, 3);
        let mut below = |n| rng.random_range(0..n);
        if cut {
            world.proxy.cut(&mut below);
        } else {
            world.proxy.lose(&mut below, lost);
        }
    }
}

fn pause(rng: &mut StdRng, ms: std::ops::Range<u64>) {
    std::thread::park_timeout(Duration::from_millis(rng.random_range(ms)));
}

impl Troublemaker<'_> {
    /// One piece of trouble, and the pause before it.
    pub(crate) fn act(&mut self, mix: Mix) {
        self.done += 1;
        match mix {
            Mix::Kill => self.kill(),
            Mix::Suspend => self.suspend(),
            Mix::Restart => {
                pause(&mut self.rng, 200..900);
                self.world.stop_broker();
                pause(&mut self.rng, 0..100);
                self.world.start_broker();
            }
            Mix::Network => self.network(),
            Mix::Disk => self.disk(),
            Mix::Errors => self.errors(),
            Mix::Clock => self.clock(),
            Mix::Flood => self.flood(),
            Mix::Tokens => self.tokens(),
        }
    }

    fn victim(&mut self) -> &Victim {
        let at = self.rng.random_range(0..self.victims.len());
        self.victims[at]
    }

    fn kill(&mut self) {
        pause(&mut self.rng, 50..500);
        if self.rng.random() {
            self.world.kill_broker();
            self.world.start_broker();
        } else {
            self.victim().signal(Signal::KILL);
        }
    }

    fn suspend(&mut self) {
        pause(&mut self.rng, 50..300);
        if self.patient && self.rng.random_ratio(1, 40) {
            // Longer than the broker waits for a sign of life.
            let victim = self.victim();
            victim.signal(Signal::STOP);
            std::thread::park_timeout(Duration::from_secs(100));
            victim.signal(Signal::CONT);
        } else if self.rng.random_ratio(1, 3) {
            self.world.signal_broker(Signal::STOP);
            pause(&mut self.rng, 20..800);
            self.world.signal_broker(Signal::CONT);
        } else {
            for _ in 0..2 {
                self.victim().signal(Signal::STOP);
            }
            pause(&mut self.rng, 20..1_500);
            for victim in self.victims {
                victim.signal(Signal::CONT);
            }
        }
    }

    fn network(&mut self) {
        pause(&mut self.rng, 10..100);
        let time = Duration::from_millis(self.rng.random_range(1..500));
        let what = self.rng.random_range(0..3);
        let rng = &mut self.rng;
        let mut below = |n| rng.random_range(0..n);
        match what {
            0 => self.world.proxy.stall(&mut below, time),
            1 => self.world.proxy.lose(&mut below, time),
            _ => self.world.proxy.cut(&mut below),
        }
    }

    fn disk(&mut self) {
        pause(&mut self.rng, 100..600);
        let Some(small) = &self.world.small else {
            return;
        };
        small.fill("of others", self.rng.random_range(0..48));
        pause(&mut self.rng, 300..1_200);
        if self.rng.random_ratio(1, 3) {
            // A write may fail all the same, and end it.
            self.world.kill_broker();
            small.remove("of others");
            self.world.start_broker();
            return;
        }
        small.remove("of others");
        if self.world.broker_is_gone() {
            self.world.broker_fails();
            self.world.start_broker();
        }
    }

    fn errors(&mut self) {
        pause(&mut self.rng, 200..900);
        let fault = match self.rng.random() {
            true => Fault::Writes,
            false => Fault::Syncs,
        };
        self.world.set(fault, self.rng.random_range(1..4));
        pause(&mut self.rng, 50..300);
        // What hit a checkpoint is a warning; what hit a commit ends the broker.
        self.world.set(Fault::Writes, 0);
        self.world.set(Fault::Syncs, 0);
        pause(&mut self.rng, 50..100);
        if self.world.broker_is_gone() {
            self.world.broker_fails();
            self.world.start_broker();
        }
    }

    fn clock(&mut self) {
        const DAY: i64 = 86_400;
        pause(&mut self.rng, 50..300);
        let jumps = [0, 3_600, DAY, 31 * DAY, 400 * DAY, -3_600, -DAY, -31 * DAY];
        let ahead = jumps[self.rng.random_range(0..jumps.len())];
        self.world.set(Fault::WallSeconds, ahead);
        if self.rng.random_ratio(1, 4) {
            self.world.kill_broker();
            self.world.start_broker();
        }
    }

    fn tokens(&mut self) {
        pause(&mut self.rng, 50..600);
        let name = HOLDERS[self.rng.random_range(0..HOLDERS.len())];
        let dead = self.rng.random_ratio(1, 4);
        self.world.revoke(name, dead);
        pause(&mut self.rng, 20..600);
        self.world.give_back(name, self.victims[DRAINER]);
    }

    fn flood(&mut self) {
        pause(&mut self.rng, 10..100);
        let address = self.world.proxy.address;
        match self.rng.random_range(0..3) {
            0 => {
                // They say nothing, or nonsense, and hang up or not.
                let strangers = (0..40).filter_map(|_| Wire::dial(address));
                let mut strangers: Vec<_> = strangers.collect();
                for stranger in &mut strangers {
                    let length = self.rng.random_range(0..8_000);
                    stranger.say(&"{\"type\":".repeat(length / 8));
                }
            }
            1 => {
                let Some(mut wire) = Wire::register(self.world, "flooder") else {
                    return;
                };
                for n in 0..400 {
                    let id = format!("flood-{n}-{:016x}", self.rng.random::<u64>());
                    let body = json!({ "text": "x".repeat(2_000) }).to_string();
                    let text = envelope(&self.world.secret, &id, "flooder", "flooder", &body);
                    if !wire.say(&text) {
                        return;
                    }
                }
                // It reads some of what it was sent, and leaves.
                for _ in 0..50 {
                    if let Heard::End = wire.hear(Duration::from_millis(2)) {
                        return;
                    }
                }
            }
            _ => {
                let Some(mut wire) = Wire::register(self.world, "garbage") else {
                    return;
                };
                for _ in 0..50 {
                    let at = self.rng.random_range(0..GARBAGE.len());
                    wire.say(GARBAGE[at]);
                }
                wire.say(&"x".repeat(1_048_577));
            }
        }
    }
}

/// Frames that nobody should send.
const GARBAGE: [&str; 8] = [
    "",
    "[]",
    "null",
    r#"{"protocol_version":"v1","type":"ack","id":"1"}"#,
    r#"{"protocol_version":"v1","type":"ack","id":"999999999999999999999"}"#,
    r#"{"protocol_version":"v1","type":"progress","id":"1","state":"presented","path":"x"}"#,
    r#"{"protocol_version":"v1","type":"status","ids":["a","b","c"]}"#,
    r#"{"protocol_version":"v1","id":"a","from":"garbage","to":"*","ts":"x","source":"s","kind":"msg","body":null,"hmac":""}"#,
];
