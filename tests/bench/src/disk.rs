//! What a message leaves on the disk once it is acked and retention has been by.
//!
//! Retention takes days; so this drives the core and the real store with a clock of its own.

use anyhow::{Context, Result};
use peerbus_core::Now;
use peerbus_core::TokenHash;
use peerbus_core::broker::{Broker, BrokerConfig, BrokerInput, BrokerOutput, CommitNeed, ConnId};
use peerbus_core::store::Store;
use peerbus_store::SqliteStore;
use peerbus_wire::{BrokerFrame, ClientFrame, Token};

use crate::Bench;
use crate::peer::{envelope, parse_delivery};
use crate::process::TOKEN;
use crate::report::Bar;

const DAY_MS: u64 = 86_400_000;
/// What an empty database may keep: the free pages that the store leaves, and its schema.
const FREE_KIB: f64 = 512.0;

pub(crate) fn after_retention(bench: &mut Bench) -> Result<()> {
    let (few, many) = (bench.count(25_000), bench.count(100_000));
    let (few_sizes, many_sizes) = (sizes(bench, few)?, sizes(bench, many)?);
    // What stays is a few free pages, at most a constant number of them.
    let growth = |few_bytes: u64, many_bytes: u64| {
        vec![(many_bytes as f64 - few_bytes as f64) / (many - few) as f64]
    };
    let acked = growth(few_sizes.acked, many_sizes.acked);
    bench
        .report
        .add("disk a message, acked", "bytes", acked, Bar::None);
    let after = growth(few_sizes.after, many_sizes.after);
    let report = &mut bench.report;
    report.add("disk a message, after retention", "bytes", after, Bar::None);
    let left = vec![many_sizes.after as f64 / 1_024.0];
    let bar = Bar::AtMost(FREE_KIB);
    report.add("database after retention, in all", "KiB", left, bar);
    Ok(())
}

/// What a message adds once as much is kept as may be: nothing, pages are used again. The audit chain,
/// which has a bound in time alone, is kept short.
pub(crate) fn beyond_the_bound(bench: &mut Bench) -> Result<()> {
    const BYTES: u64 = 16 * 1_048_576;
    /// Enough for every slice.
    const TICKS: usize = 200;
    let (fill, more) = (bench.count(60_000), bench.count(60_000));
    let home = bench.home()?;
    let path = home.path().join("full.db");
    let mut world = World::new(&path, |config| {
        (config.history_bytes, config.settled_ms, config.retention_ms) = (BYTES, 0, 1);
    })?;
    world.exchange(fill)?;
    world.tick(TICKS)?;
    let full = std::fs::metadata(&path)?.len();
    for _ in 0..8 {
        world.exchange(more / 8)?;
        world.tick(TICKS)?;
    }
    let after = std::fs::metadata(&path)?.len();
    let growth = vec![(after as f64 - full as f64) / more as f64];
    let report = &mut bench.report;
    report.add(
        "disk a message, history full",
        "bytes",
        growth,
        Bar::AtMost(5.0),
    );
    let kept = vec![full as f64 / BYTES as f64];
    report.add(
        "database / bound, history full",
        "x",
        kept,
        Bar::AtMost(1.25),
    );
    Ok(())
}

/// Sizes of the database, in bytes.
struct Sizes {
    acked: u64,
    after: u64,
}

fn sizes(bench: &Bench, count: u64) -> Result<Sizes> {
    let home = bench.home()?;
    let path = home.path().join("retention.db");
    let mut world = World::new(&path, |_| {})?;
    world.exchange(count)?;
    let acked = world.settle(0, &path)?;
    // Beyond every bound: settled messages go after minutes, audit blocks after a month.
    let after = world.settle(40 * DAY_MS, &path)?;
    Ok(Sizes { acked, after })
}

struct World {
    broker: Broker,
    store: SqliteStore,
    now: Now,
    /// Deliveries to the receiver that wait for their acks.
    keys: Vec<String>,
}

const SENDER: ConnId = ConnId(1);
const RECEIVER: ConnId = ConnId(2);

impl World {
    fn new(path: &std::path::Path, tune: impl FnOnce(&mut BrokerConfig)) -> Result<Self> {
        let mut store = SqliteStore::open(path)?;
        let token = Token::parse(TOKEN).context("a token")?;
        let mut config = BrokerConfig::new(vec![TokenHash::of(&token)], store.audit_key().clone());
        tune(&mut config);
        let now = Now {
            mono_ms: 1,
            boot_ms: 1,
            wall_ms: 1_000 * DAY_MS,
        };
        let broker = Broker::new(config, store.load()?, now);
        let mut world = Self {
            broker,
            store,
            now,
            keys: Vec::new(),
        };
        for (conn, name) in [(SENDER, "sender"), (RECEIVER, "receiver")] {
            let register = format!(
                r#"{{"protocol_version":"v1","type":"register","token":"{TOKEN}","name":"{name}","ext":1}}"#
            );
            let frame = ClientFrame::parse(register.as_bytes());
            world.step(vec![
                BrokerInput::Opened(conn),
                BrokerInput::Frame(conn, frame),
            ])?;
        }
        Ok(world)
    }

    fn step(&mut self, inputs: Vec<BrokerInput>) -> Result<()> {
        self.store.begin()?;
        for input in inputs {
            self.broker.handle(self.now, input, &mut self.store)?;
        }
        self.broker.flush(self.now, &mut self.store)?;
        self.take();
        if self.broker.need() != CommitNeed::None {
            self.broker.seal(self.now, &mut self.store)?;
        }
        self.store.commit()?;
        self.broker.committed();
        self.take();
        Ok(())
    }

    fn take(&mut self) {
        while let Some(output) = self.broker.poll_output() {
            if let BrokerOutput::Send(RECEIVER, BrokerFrame::Deliver(frame)) = output
                && let Some((key, _)) = parse_delivery(frame.text().as_bytes())
            {
                self.keys.push(String::from_utf8_lossy(key).into_owned());
            }
        }
    }

    fn exchange(&mut self, count: u64) -> Result<()> {
        for first in (0..count).step_by(64) {
            let numbers = first..count.min(first + 64);
            let frames = numbers.map(|n| {
                let text = envelope("sender", "receiver", 0, n, crate::BODY_BYTES);
                BrokerInput::Frame(SENDER, ClientFrame::parse(&text))
            });
            self.step(frames.collect())?;
            let acks = std::mem::take(&mut self.keys).into_iter().map(|key| {
                let ack = format!(r#"{{"protocol_version":"v1","type":"ack","id":"{key}"}}"#);
                BrokerInput::Frame(RECEIVER, ClientFrame::parse(ack.as_bytes()))
            });
            self.step(acks.collect())?;
            while self.store.maintain()? {}
        }
        Ok(())
    }

    /// Lets `ms` pass, does all that is due, and gives the size of the database. (Its WAL stays
    /// below a few MiB whatever happens.)
    fn settle(&mut self, ms: u64, path: &std::path::Path) -> Result<u64> {
        self.now.mono_ms += ms;
        self.now.boot_ms += ms;
        self.now.wall_ms += ms;
        // Enough sweeps for every slice, and then as much time again as settled messages are kept.
        self.tick(if ms > 0 { 10_000 } else { 0 })?;
        Ok(std::fs::metadata(path)?.len())
    }

    /// Does so many times what is due next.
    fn tick(&mut self, times: usize) -> Result<()> {
        for _ in 0..times {
            if let Some((due, _)) = self.broker.poll_timeout() {
                let wait = due.saturating_sub(self.now.mono_ms);
                self.now.mono_ms += wait;
                self.now.boot_ms += wait;
                self.now.wall_ms += wait;
            }
            self.step(vec![BrokerInput::Tick])?;
            while self.store.maintain()? {}
        }
        Ok(())
    }
}
