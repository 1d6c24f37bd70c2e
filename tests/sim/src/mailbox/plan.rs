//! What a world is like.

use peerbus_peer::mailbox::{HERE, Policy, SenderRule, Senders, WHOLE_BYTES_MAX};
use peerbus_wire::{Priority, Window};

use super::paths::{CLIENTS, Waking};
use crate::rng::Rng;

/// Those who write.
pub(super) const PEERS: [&str; 3] = ["ann", "bob", "cyd"];

/// Others who do, of whom the user says something.
pub(super) const RULES: [(&str, SenderRule); 3] = [
    ("dan", SenderRule::Hold),
    ("eve", SenderRule::Refuse),
    ("fay", SenderRule::Drop),
];

/// How often the socket does what, of a thousand pushes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) fail: u64,
    pub(super) keep: u64,
    pub(super) deny: u64,
    pub(super) drop: u64,
    pub(super) lose: u64,
    pub(super) late: u64,
    /// Of a thousand results of tools: never sent, and cancelled after that.
    pub(super) unsent: u64,
    pub(super) cancel: u64,
    /// The client takes a tool's result, and cuts it before the model has it.
    pub(super) cut: u64,
}

impl Faults {
    fn draw(rng: &mut Rng) -> Self {
        let seldom = |rng: &mut Rng| rng.pick(&[0, 50, 200]);
        Self {
            fail: often(rng),
            keep: often(rng),
            deny: often(rng),
            drop: often(rng),
            lose: often(rng),
            late: often(rng),
            unsent: seldom(rng),
            cancel: seldom(rng),
            cut: seldom(rng),
        }
    }
}

fn often(rng: &mut Rng) -> u64 {
    rng.pick(&[0, 0, 50, 200, 600])
}

/// A message to come.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) at_ms: u64,
    pub(super) from: &'static str,
    pub(super) priority: Priority,
    pub(super) bytes: usize,
    pub(super) hops: u32,
    pub(super) thread: bool,
    /// The message of the agent that it answers.
    pub(super) answers: Option<String>,
    /// It came after the healing.
    pub(super) burst: bool,
    /// It is for one member of a group.
    pub(super) one: bool,
    /// It is a request, whose result is wanted within so long.
    pub(super) within_ms: u64,
}

/// What a world is like until it is healed.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) policy: Policy,
    pub(super) hops_max: Option<u32>,
    pub(super) waking: &'static Waking,
    /// The transcript can be read.
    pub(super) readable: bool,
    /// Somebody says what the session does.
    pub(super) tells: bool,
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
    /// So many of a thousand messages are named by the agent that saw them.
    pub(super) names: u64,
    /// So many of a thousand messages of the agent are answered.
    pub(super) answers: u64,
    /// The longest turn.
    pub(super) turn_ms: u64,
    /// When the adapter is killed.
    pub(super) kills: Vec<u64>,
    /// When the broker is killed.
    pub(super) outages: Vec<u64>,
    /// When the machine was suspended.
    pub(super) doubts: Vec<u64>,
    /// When the broker takes something back.
    pub(super) recalls: Vec<u64>,
    /// When the user begins another conversation.
    pub(super) clears: Vec<u64>,
    pub(super) letters: Vec<Letter>,
    /// Texts that programs put in here.
    pub(super) put_in: Vec<Letter>,
    /// What the user says of senders, and mail of theirs.
    pub(super) senders: Senders,
    pub(super) kept_out: Vec<Letter>,
    /// The broker's: three quarters of it nearly fill it.
    pub(super) window: Window,
    pub(super) heal_ms: u64,
    pub(super) burst: Vec<Letter>,
}

impl Plan {
    pub(super) fn draw(rng: &mut Rng, calm: bool) -> Self {
        let flood = !calm && rng.chance(30);
        let heal_ms = match (calm, flood) {
            (true, _) => 5_000,
            (_, true) => 400_000,
            _ => rng.range(20_000, 900_000),
        };
        let count = match (calm, flood) {
            (true, _) => 0,
            (_, true) => 150,
            _ => rng.range(1, 40),
        };
        let letters = (0..count).map(|_| Letter::draw(rng, heal_ms)).collect();
        let times = |rng: &mut Rng, most: u64| {
            let count = if calm { 0 } else { rng.range(0, most) };
            (0..count).map(|_| rng.range(1_000, heal_ms)).collect()
        };
        let limits = [None, Some(0), Some(1), Some(3), Some(20)];
        Self {
            policy: rng.pick(&[Policy::Auto, Policy::Auto, Policy::Seen, Policy::Pushed]),
            hops_max: if calm { Some(20) } else { rng.pick(&limits) },
            waking: &CLIENTS[rng.index(CLIENTS.len())],
            readable: rng.chance(700),
            tells: calm || rng.chance(900),
            hooks: rng.chance(600),
            socket: rng.chance(700),
            faults: Faults::draw(rng),
            channel: rng.chance(700),
            channel_loses: rng.pick(&[0, 500, 1_000]),
            mute: often(rng),
            tools: rng.pick(&[0, 100, 400]),
            names: rng.pick(&[0, 100, 500]),
            answers: rng.pick(&[0, 300, 800]),
            turn_ms: match flood {
                true => 1_000,
                false => rng.pick(&[2_000, 20_000, 120_000]),
            },
            kills: times(rng, 3),
            outages: times(rng, 2),
            doubts: times(rng, 1),
            recalls: times(rng, 8),
            clears: times(rng, 3),
            letters,
            put_in: if calm || flood {
                Vec::new()
            } else {
                Self::put_in(rng, heal_ms)
            },
            window: Window {
                messages: rng.pick(&[4, 13, 133]),
                bytes: u32::MAX,
            },
            heal_ms,
            burst: Self::burst(rng, calm),
            senders: Senders::parse(["dan=hold", "eve=refuse", "fay=drop"]).unwrap_or_default(),
            kept_out: if calm || flood {
                Vec::new()
            } else {
                Self::kept_out(rng, heal_ms)
            },
        }
    }

    fn kept_out(rng: &mut Rng, until_ms: u64) -> Vec<Letter> {
        let count = rng.range(0, 10);
        let letter = |_| Letter {
            from: rng.pick(&RULES).0,
            hops: 0,
            one: false,
            ..Letter::draw(rng, until_ms)
        };
        (0..count).map(letter).collect()
    }

    /// What programs put in: now and then one, or more at once than may wait.
    fn put_in(rng: &mut Rng, until_ms: u64) -> Vec<Letter> {
        let flood = rng.chance(100).then(|| rng.range(0, until_ms));
        let count = if flood.is_some() {
            40
        } else {
            rng.range(0, 12)
        };
        let letter = |_| {
            let drawn = Letter::draw(rng, until_ms);
            Letter {
                at_ms: flood.unwrap_or(drawn.at_ms),
                from: HERE,
                priority: Priority::Next,
                bytes: drawn.bytes.min(WHOLE_BYTES_MAX),
                hops: 0,
                thread: false,
                one: false,
                within_ms: 0,
                ..drawn
            }
        };
        (0..count).map(letter).collect()
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
            bytes: size(rng, 20, 200),
            burst: true,
            ..Letter::draw(rng, 1)
        };
        let mut burst: Vec<_> = (0..rng.range(1, 20)).map(|_| letter(rng)).collect();
        for letter in &mut burst {
            letter.hops = 0;
        }
        burst
    }
}

impl Letter {
    pub(super) fn draw(rng: &mut Rng, until_ms: u64) -> Self {
        let (low, high) = match rng.range(0, 99) {
            0..=2 => (30_000, 90_000),
            3..=14 => (4_000, 30_000),
            _ => (20, 1_500),
        };
        let priorities = [
            Priority::Quiet,
            Priority::Next,
            Priority::Next,
            Priority::Now,
        ];
        Self {
            at_ms: rng.range(0, until_ms),
            from: rng.pick(&PEERS),
            priority: rng.pick(&priorities),
            bytes: size(rng, low, high),
            hops: rng.pick(&[0, 0, 0, 3, 20]),
            thread: rng.chance(200),
            answers: None,
            burst: false,
            one: rng.chance(150),
            within_ms: within(rng),
        }
    }
}

/// A fifth are requests, of which some are for a moment.
fn within(rng: &mut Rng) -> u64 {
    match rng.chance(200) {
        true => rng.pick(&[5_000, 300_000, 7_200_000, 7_200_000]),
        false => 0,
    }
}

fn size(rng: &mut Rng, low: u64, high: u64) -> usize {
    usize::try_from(rng.range(low, high)).unwrap_or(20)
}
