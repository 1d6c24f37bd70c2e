//! What a world is like.

use peerbus_core::wake::{Policy, Priority};

use crate::rng::Rng;

/// How often the socket does what, of a thousand pushes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) fail: u64,
    pub(super) hold: u64,
    pub(super) deny: u64,
    pub(super) drop: u64,
    pub(super) lose: u64,
    pub(super) late: u64,
}

/// A message to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Letter {
    pub(super) at_ms: u64,
    pub(super) priority: Priority,
    pub(super) bytes: usize,
}

/// What a world is like until it is healed.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) policy: Policy,
    /// The transcript can be read.
    pub(super) readable: bool,
    /// Hooks are installed: they hand over, and wait to rewake.
    pub(super) hooks: bool,
    pub(super) socket: bool,
    pub(super) faults: Faults,
    pub(super) channel: bool,
    /// So many of a thousand notifications the client drops in silence.
    pub(super) channel_loses: u64,
    /// So many of a thousand answers fail: the model cannot be reached.
    pub(super) mute: u64,
    /// So many of a thousand boundaries see a bus tool called.
    pub(super) tools: u64,
    /// So many of a thousand entries are named by the agent that saw them.
    pub(super) names: u64,
    /// The longest turn.
    pub(super) turn_ms: u64,
    /// When the adapter is killed.
    pub(super) kills: Vec<u64>,
    pub(super) letters: Vec<Letter>,
    /// Unseen entries that crowd the window.
    pub(super) crowd: usize,
    pub(super) heal_ms: u64,
    pub(super) burst: Vec<Letter>,
}

impl Plan {
    pub(super) fn draw(rng: &mut Rng, calm: bool) -> Self {
        let heal_ms = if calm {
            5_000
        } else {
            rng.range(20_000, 900_000)
        };
        let count = if calm { 0 } else { rng.range(1, 40) };
        let letters = (0..count).map(|_| Letter::draw(rng, heal_ms)).collect();
        let kills = if calm { 0 } else { rng.range(0, 3) };
        let often = |rng: &mut Rng| rng.pick(&[0, 0, 50, 200, 600]);
        Self {
            policy: rng.pick(&[Policy::Auto, Policy::Auto, Policy::Seen, Policy::Pushed]),
            readable: rng.chance(700),
            hooks: rng.chance(600),
            socket: rng.chance(700),
            faults: Faults {
                fail: often(rng),
                hold: often(rng),
                deny: often(rng),
                drop: often(rng),
                lose: often(rng),
                late: often(rng),
            },
            channel: rng.chance(700),
            channel_loses: rng.pick(&[0, 500, 1_000]),
            mute: often(rng),
            tools: rng.pick(&[0, 100, 400]),
            names: rng.pick(&[0, 100, 500]),
            turn_ms: rng.pick(&[2_000, 20_000, 120_000]),
            kills: (0..kills).map(|_| rng.range(1_000, heal_ms)).collect(),
            letters,
            crowd: rng.pick(&[3, 10, 100]),
            heal_ms,
            burst: Self::burst(rng, calm),
        }
    }

    /// What comes when everything is healed: up to twenty small messages in a moment.
    fn burst(rng: &mut Rng, calm: bool) -> Vec<Letter> {
        let now = !calm && rng.chance(300);
        let letter = |rng: &mut Rng| Letter {
            at_ms: rng.range(0, 1_500),
            priority: match rng.range(0, 9) {
                0 => Priority::Quiet,
                1 if now => Priority::Now,
                _ => Priority::Next,
            },
            bytes: usize::try_from(rng.range(20, 500)).unwrap_or(20),
        };
        (0..rng.range(1, 20)).map(|_| letter(rng)).collect()
    }
}

impl Letter {
    fn draw(rng: &mut Rng, until_ms: u64) -> Self {
        let large = rng.chance(150);
        let (low, high) = if large { (4_000, 30_000) } else { (20, 1_500) };
        let priorities = [
            Priority::Quiet,
            Priority::Next,
            Priority::Next,
            Priority::Now,
        ];
        Self {
            at_ms: rng.range(0, until_ms),
            priority: rng.pick(&priorities),
            bytes: usize::try_from(rng.range(low, high)).unwrap_or(20),
        }
    }
}
