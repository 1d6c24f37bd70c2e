//! Messages a second, what they cost, and how long one takes.

use anyhow::Result;

use crate::load::{self, Flow};
use crate::peer::Speech;
use crate::process::{Broker, Cpu, TOKEN};
use crate::report::Bar;
use crate::{Bench, limits};

const LISTEN: &str = "127.0.0.1:0";

/// One run of pairs, with what the broker spent on it.
struct Measured {
    flow: Flow,
    cpu: Cpu,
    commits: f64,
}

async fn measure(bench: &Bench, pairs: usize, each: u64, speech: Speech) -> Result<Vec<Measured>> {
    let home = bench.home()?;
    let start = match speech {
        Speech::V1 | Speech::Ext => Broker::start,
        Speech::ExtTls => Broker::start_tls,
    };
    let broker = start(&bench.binary, home.path(), LISTEN)?;
    let mut runs = Vec::new();
    for run in 0..bench.runs as u32 {
        let commits = broker.metric(COMMITS).await?;
        let cpu = broker.cpu()?;
        let flow = load::pairs(broker.address, TOKEN, run, pairs, each, speech).await?;
        let cpu = broker.cpu()?.since(cpu);
        let commits = broker.metric(COMMITS).await? - commits;
        runs.push(Measured { flow, cpu, commits });
    }
    broker.stop()?;
    Ok(runs)
}

/// Commits so far; each is one fsync.
const COMMITS: &str = "peerbus_commit_seconds_count";

fn rates(runs: &[Measured]) -> Vec<f64> {
    runs.iter().map(|run| run.flow.per_second()).collect()
}

fn micros(runs: &[Measured], cpu: impl Fn(&Cpu) -> std::time::Duration) -> Vec<f64> {
    let each = |run: &Measured| cpu(&run.cpu).as_secs_f64() * 1e6 / run.flow.deliveries as f64;
    runs.iter().map(each).collect()
}

pub(crate) async fn one_to_one(bench: &mut Bench) -> Result<()> {
    let each = bench.count(50_000);
    let runs = measure(bench, 1, each, Speech::Ext).await?;
    bench.report.add(
        "one to one, received and acked",
        "/s",
        rates(&runs),
        Bar::AtLeast(20_000.0),
    );
    let runs = measure(bench, 1, each, Speech::V1).await?;
    bench
        .report
        .add("one to one, v1 clients", "/s", rates(&runs), Bar::None);
    Ok(())
}

pub(crate) async fn eight_pairs(bench: &mut Bench) -> Result<()> {
    let each = bench.count(10_000);
    let runs = measure(bench, 8, each, Speech::Ext).await?;
    bench
        .report
        .add("eight pairs", "/s", rates(&runs), Bar::AtLeast(35_000.0));
    bench.report.add(
        "eight pairs, broker CPU a message",
        "us",
        micros(&runs, |cpu| cpu.all),
        Bar::AtMost(25.0),
    );
    bench.report.add(
        "eight pairs, engine thread a message",
        "us",
        micros(&runs, |cpu| cpu.engine),
        Bar::AtMost(12.0),
    );
    let runs = measure(bench, 8, each, Speech::ExtTls).await?;
    let what = "eight pairs over TLS";
    bench.report.add(what, "/s", rates(&runs), Bar::None);
    let cpu = micros(&runs, |cpu| cpu.all);
    let what = "eight pairs over TLS, broker CPU a message";
    bench.report.add(what, "us", cpu, Bar::None);
    Ok(())
}

pub(crate) async fn many_pairs(bench: &mut Bench) -> Result<()> {
    let each = bench.count(2_000);
    let runs = measure(bench, 64, each, Speech::Ext).await?;
    bench.report.add("64 pairs", "/s", rates(&runs), Bar::None);
    let fsyncs = runs
        .iter()
        .map(|run| run.commits / run.flow.deliveries as f64)
        .collect();
    bench
        .report
        .add("64 pairs, fsyncs a message", "", fsyncs, Bar::AtMost(0.05));
    Ok(())
}

pub(crate) async fn latency(bench: &mut Bench) -> Result<()> {
    let home = bench.home()?;
    let broker = Broker::start(&bench.binary, home.path(), LISTEN)?;
    let floor = bench.limits.fdatasync + 2 * bench.limits.round_trip;
    let (mut middle, mut tail) = (Vec::new(), Vec::new());
    let (mut middle_ratio, mut tail_ratio) = (Vec::new(), Vec::new());
    for run in 0..bench.runs as u32 {
        let mut times = load::latencies(broker.address, TOKEN, run, bench.count(5_000)).await?;
        times.sort_unstable();
        let p50 = limits::median(times.clone());
        let p99 = times
            .get(times.len() * 99 / 100)
            .copied()
            .unwrap_or_default();
        middle.push(p50.as_secs_f64() * 1e6);
        tail.push(p99.as_secs_f64() * 1e6);
        middle_ratio.push(p50.as_secs_f64() / floor.as_secs_f64());
        tail_ratio.push(p99.as_secs_f64() / floor.as_secs_f64());
    }
    broker.stop()?;
    bench
        .report
        .add("latency p50, one in flight", "us", middle, Bar::None);
    let what = "latency p50 / (fdatasync + 2 round trips)";
    bench.report.add(what, "x", middle_ratio, Bar::AtMost(1.5));
    bench
        .report
        .add("latency p99, one in flight", "us", tail, Bar::None);
    let what = "latency p99 / (fdatasync + 2 round trips)";
    bench.report.add(what, "x", tail_ratio, Bar::AtMost(5.0));
    Ok(())
}

pub(crate) async fn fan_out(bench: &mut Bench) -> Result<()> {
    for (receivers, each, bar) in [
        (100, 2_000, Bar::AtLeast(60_000.0)),
        (1_000, 100, Bar::None),
    ] {
        let home = bench.home()?;
        let broker = Broker::start(&bench.binary, home.path(), LISTEN)?;
        let (mut rates, mut ratios) = (Vec::new(), Vec::new());
        for run in 0..bench.runs as u32 {
            let each = bench.count(each);
            let all = load::fan_out(broker.address, TOKEN, (run, "*"), receivers, each).await?;
            rates.push(all.per_second());
            let group = format!("#run{run}");
            let of_it =
                load::fan_out(broker.address, TOKEN, (run + 500, &group), receivers, each).await?;
            ratios.push(of_it.per_second() / all.per_second());
        }
        broker.stop()?;
        bench.report.add(
            &format!("fan-out to a group of {receivers} / to all"),
            "x",
            ratios,
            // Rates: above 1 the group is the faster one.
            Bar::AtLeast(0.8),
        );
        bench.report.add(
            &format!("fan-out to {receivers}, deliveries"),
            "/s",
            rates,
            bar,
        );
    }
    Ok(())
}
