//! Chaos with real processes: a broker, adapters and peers that send each other numbered messages,
//! while somebody kills, suspends, cuts, fills and confuses them. A history of what everybody saw says
//! whether a promise was broken.
//!
//! `cargo xtask chaos --minutes 30` runs all mixes for so long; `PEERBUS_CHAOS_SEED` repeats the
//! trouble of another run, though not the moments at which it hits.

mod adapters;
#[cfg(feature = "mutations")]
mod broken;
mod history;
mod proxy;
mod tokens;
mod trouble;
mod wire;
mod world;

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use history::Counts;
use trouble::{Mix, Troublemaker};
use wire::Sender;
use world::{Fault, Victim, World};

/// How long nobody may be shown anything while something is missing, before it counts as lost.
const SILENCE: Duration = Duration::from_secs(20);
/// How much longer a sync of the database takes, so that what leaves before one is noticed.
const SYNC_MICROS: i64 = 2_000;
/// Where the trouble begins, unless another place is asked for.
const SEED: u64 = 1;
/// Who is written to.
const RECIPIENTS: &[&str] = &["drainer", "channel", "bin"];

/// Which of the victims has a token of its own.
const DRAINER: usize = 1;

/// What a mix is run with.
struct Plan {
    mix: Mix,
    time: Duration,
    seed: u64,
    /// How long nothing may come before it counts as lost.
    silence: Duration,
    /// A fault that the processes are built to have.
    broken: Option<&'static str>,
}

/// What came of it.
struct Outcome {
    mix: Mix,
    took: Duration,
    acts: u64,
    counts: Counts,
    violations: Vec<String>,
}

impl Plan {
    /// `None` where this user may not mount a small disk.
    fn run(&self) -> Option<Outcome> {
        let world = World::start(self.mix == Mix::Disk, self.broken)?;
        world.set(Fault::SlowMicros, SYNC_MICROS);
        if self.mix == Mix::Disk {
            world.history.expect_refusals();
        }
        let start = Instant::now();
        let [sender, drainer, channel] = [(); 3].map(|()| Victim::default());
        let victims = [&sender, &drainer, &channel];
        let mut rng = StdRng::seed_from_u64(self.seed);
        let [a, b, c, d, e, f] = [(); 6].map(|()| rng.random());
        let mut acts = 0;
        std::thread::scope(|threads| {
            let world = &world;
            let _guard = world.until_dropped();
            // They are known before anybody sends to them.
            threads.spawn(move || adapters::drain(world, "drainer", victims[DRAINER], a));
            threads.spawn(move || adapters::wake(world, "channel", victims[2]));
            threads.spawn(move || wire::receive(world, "bin", true, b));
            world.wait_for_names(RECIPIENTS);
            threads.spawn(move || adapters::send(world, "sender", victims[0], RECIPIENTS));
            threads.spawn(move || Sender::new(world, "ann", RECIPIENTS, 8, c).run());
            threads.spawn(move || Sender::new(world, "bea", RECIPIENTS, 32, d).run());
            threads.spawn(move || trouble::unreliable_network(world, e));
            let mut trouble = Troublemaker {
                world,
                victims: &victims,
                rng: StdRng::seed_from_u64(f),
                patient: self.time > Duration::from_secs(100),
                done: 0,
            };
            while start.elapsed() < self.time && !world.is_decided() {
                trouble.act(self.mix);
            }
            acts = trouble.done;
            self.end(world, &victims);
        });
        Some(Outcome {
            mix: self.mix,
            took: start.elapsed(),
            acts,
            counts: world.history.counts(),
            violations: world.history.violations(),
        })
    }

    /// Ends the trouble, waits until everything has arrived, and ends everybody.
    fn end(&self, world: &World, victims: &[&Victim]) {
        for fault in [Fault::WallSeconds, Fault::Writes, Fault::Syncs] {
            world.set(fault, 0);
        }
        if self.mix == Mix::Tokens {
            for name in tokens::HOLDERS {
                world.give_back(name, victims[DRAINER]);
            }
        }
        if world.broker_is_gone() {
            world.history.violate("the broker ended by itself".into());
            world.end();
        }
        world.stop_sending();
        let mut since = Instant::now();
        while world.history.missing().0 > 0 && !world.is_decided() {
            std::thread::park_timeout(Duration::from_millis(20));
            since = since.max(world.history.progress().unwrap_or(since));
            if since.elapsed() > self.silence {
                let (count, some) = world.history.missing();
                let what = format!("{count} accepted messages never came: {}", some.join(", "));
                world.history.violate(what);
            }
        }
        world.end();
        for victim in victims {
            victim.signal(rustix::process::Signal::KILL);
        }
        if !world.is_decided() {
            world.stop_broker();
            world.verify();
        }
    }
}

/// Prints what came of the mixes, and fails if a promise was broken.
fn report(seed: u64, outcomes: &[Outcome]) {
    println!("chaos, seed {seed}\n");
    println!(
        "| mix | seconds | acts | accepted | refused | shown | of them repeats | said to be seen | processes and connections | receipts looked up | states asked for | violations |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for outcome in outcomes {
        let (c, seconds) = (outcome.counts, outcome.took.as_secs());
        println!(
            "| {} | {seconds} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            outcome.mix.name(),
            outcome.acts,
            c.accepted,
            c.refused,
            c.shown,
            c.repeats,
            c.seen,
            c.processes,
            c.probes,
            c.statuses,
            outcome.violations.len(),
        );
    }
    let all = outcomes.iter().flat_map(|outcome| {
        let told = outcome.violations.iter();
        told.map(|what| format!("{}: {what}", outcome.mix.name()))
    });
    let all: Vec<_> = all.collect();
    assert!(all.is_empty(), "broken promises:\n{}", all.join("\n"));
}

fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

fn run(mixes: &[Mix], time: Duration) {
    let seed = env_number("PEERBUS_CHAOS_SEED").unwrap_or(SEED);
    let only = std::env::var("PEERBUS_CHAOS_ONLY").unwrap_or_default();
    let mut outcomes = Vec::new();
    for &mix in mixes.iter().filter(|mix| mix.name().contains(&only)) {
        println!("{} with seed {seed}", mix.name());
        let plan = Plan {
            mix,
            time,
            seed,
            silence: SILENCE,
            broken: None,
        };
        outcomes.extend(plan.run());
    }
    report(seed, &outcomes);
}

#[test]
fn what_was_receipted_survives_every_kill() {
    run(&[Mix::Kill], Duration::from_secs(6));
}

#[test]
fn every_promise_holds_in_every_trouble() {
    match env_number("PEERBUS_CHAOS_MINUTES") {
        Some(minutes) => {
            let count = u32::try_from(Mix::ALL.len()).unwrap_or(1);
            run(&Mix::ALL, Duration::from_secs(minutes * 60) / count);
        }
        None => run(&Mix::ALL[1..], Duration::from_secs(3)),
    }
}

/// Faults are switched on by an environment variable, which no binary that is shipped knows.
#[cfg(not(feature = "mutations"))]
#[test]
fn the_binary_cannot_be_broken_on_purpose() {
    let binary = std::fs::read(env!("CARGO_BIN_EXE_peerbus")).expect("the binary");
    let holds = |text: &[u8]| binary.windows(text.len()).any(|part| part == text);
    assert!(holds(b"PEERBUS_LISTEN") && !holds(b"PEERBUS_BROKEN"));
}
