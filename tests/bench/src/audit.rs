//! Verifying the audit chain.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::Bench;
use crate::load;
use crate::peer::Speech;
use crate::process::{Broker, TOKEN};
use crate::report::Bar;

pub(crate) async fn verify(bench: &mut Bench) -> Result<()> {
    let home = bench.home()?;
    let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
    load::pairs(
        broker.address,
        TOKEN,
        0,
        8,
        bench.count(20_000),
        Speech::Ext,
    )
    .await?;
    broker.stop()?;
    let mut times = Vec::new();
    for _ in 0..bench.runs {
        let start = Instant::now();
        let output = Command::new(&bench.binary)
            .args(["audit", "verify", "--json", "--db"])
            .arg(Broker::database(home.path()))
            .output()?;
        let took = start.elapsed();
        let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        anyhow::ensure!(said["ok"] == true, "the chain does not verify: {said}");
        let events = said["events"].as_f64().context("no count of events")?;
        times.push(took.as_secs_f64() * 1e3 / (events / 1e6));
    }
    bench
        .report
        .add("audit verify, a million events", "ms", times, Bar::None);
    Ok(())
}
