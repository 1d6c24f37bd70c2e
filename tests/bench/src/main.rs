//! Measures the release binary from outside: one process under load, this one making it.
//!
//! `cargo xtask bench` runs it. Each run first measures what this machine's disk and loopback can
//! do, because the bars are set against that. Every flow ends by checking that each message
//! arrived once, in order.

mod adapter;
mod audit;
mod backlog;
mod channel;
mod connections;
mod disk;
mod domains;
mod driven;
mod history;
mod hostile;
mod limits;
mod load;
mod owner;
mod peer;
mod process;
mod report;
mod restart;
mod socket;
mod throughput;
mod tls;
mod watched;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::limits::Limits;
use crate::report::Report;

/// Size of a message's body, in bytes.
const BODY_BYTES: usize = 256;

/// Measures a peerbus binary under load.
#[derive(Debug, Parser)]
struct Args {
    /// The binary to measure
    #[arg(long, default_value = "target/dist/peerbus")]
    binary: PathBuf,
    /// Small counts: shows that everything works, the figures mean nothing
    #[arg(long)]
    quick: bool,
    /// The runs over 1,000,000 messages and 10,000 connections too
    #[arg(long)]
    full: bool,
    /// Runs of each scenario; the median counts
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only the scenarios whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Where the databases are made: on the disk that counts
    #[arg(long, default_value = "target")]
    dir: PathBuf,
    /// Be the MCP server that is shared
    #[arg(long, hide = true)]
    echo: bool,
    /// Be the agent that is driven
    #[arg(long, hide = true)]
    agent: bool,
}

/// What every scenario needs.
struct Bench {
    binary: PathBuf,
    dir: PathBuf,
    quick: bool,
    full: bool,
    runs: usize,
    limits: Limits,
    report: Report,
}

impl Bench {
    /// `normal`, or a small fraction of it for a quick run.
    fn count(&self, normal: u64) -> u64 {
        if self.quick {
            (normal / 50).max(20)
        } else {
            normal
        }
    }

    /// A directory for one broker.
    fn home(&self) -> Result<tempfile::TempDir> {
        let home = tempfile::Builder::new()
            .prefix("bench")
            .tempdir_in(&self.dir)?;
        Ok(home)
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.echo {
        return channel::echo();
    }
    if args.agent {
        return driven::agent();
    }
    let binary = args.binary.canonicalize().with_context(|| {
        format!(
            "no {}; build it with `cargo build --profile dist`",
            args.binary.display()
        )
    })?;
    ensure!(args.runs > 0, "--runs must be at least 1");
    std::fs::create_dir_all(&args.dir)?;
    let dir = args.dir.canonicalize()?;
    let limits = Limits::measure(&dir, args.quick)?;
    let runs = if args.quick { 1 } else { args.runs };
    let report = Report::default();
    let (quick, full) = (args.quick, args.full);
    let mut bench = Bench {
        binary,
        dir,
        quick,
        full,
        runs,
        limits,
        report,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(scenarios(&mut bench, args.only.as_deref()))?;
    bench.report.print(&bench.limits, args.json)
}

async fn scenarios(bench: &mut Bench, only: Option<&str>) -> Result<()> {
    let wanted = |name: &str| only.is_none_or(|part| name.contains(part));
    if wanted("throughput") {
        throughput::one_to_one(bench).await?;
        throughput::eight_pairs(bench).await?;
        throughput::many_pairs(bench).await?;
    }
    if wanted("latency") {
        throughput::latency(bench).await?;
    }
    if wanted("fan-out") {
        throughput::fan_out(bench).await?;
    }
    if wanted("backlog") {
        backlog::drain(bench).await?;
    }
    if wanted("hostile") {
        hostile::all_at_once(bench).await?;
    }
    if wanted("idle") {
        connections::idle(bench).await?;
    }
    if wanted("storm") {
        connections::storm(bench).await?;
    }
    if wanted("restart") {
        restart::restart(bench).await?;
    }
    if wanted("history") {
        history::week(bench).await?;
    }
    if wanted("disk") {
        disk::after_retention(bench)?;
        disk::beyond_the_bound(bench)?;
    }
    if wanted("watched") {
        watched::by_many(bench)?;
    }
    if wanted("adapter") {
        adapter::start_and_idle(bench).await?;
    }
    if wanted("driven") {
        driven::prompts_and_rest(bench).await?;
    }
    if wanted("owner") {
        owner::idle(bench).await?;
    }
    if wanted("demand") {
        adapter::on_demand(bench)?;
    }
    if wanted("channel") {
        channel::beside_direct(bench)?;
    }
    if wanted("domains") {
        domains::beside_nats(bench).await?;
    }
    if wanted("audit") {
        audit::verify(bench).await?;
    }
    Ok(())
}
