//! A queue that fills while its peer is away, and drains when it is back.

use std::time::Duration;

use anyhow::Result;

use crate::Bench;
use crate::load;
use crate::process::{Broker, TOKEN};
use crate::report::Bar;

pub(crate) async fn drain(bench: &mut Bench) -> Result<()> {
    let mut sizes = vec![(10_000, Bar::None), (100_000, Bar::AtLeast(40_000.0))];
    if bench.full {
        sizes.push((1_000_000, Bar::None));
    }
    for (size, bar) in sizes {
        let count = bench.count(size);
        let (mut fills, mut drains, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
        let mut others = Vec::new();
        let runs = if size > 100_000 { 1 } else { bench.runs };
        for run in 0..runs as u32 {
            let home = bench.home()?;
            let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
            fills.push(
                load::fill(broker.address, TOKEN, run, count)
                    .await?
                    .per_second(),
            );
            let address = broker.address;
            let beside =
                tokio::spawn(async move { load::latencies(address, TOKEN, run, 200).await });
            drains.push(
                load::drain(broker.address, TOKEN, run, count)
                    .await?
                    .per_second(),
            );
            let mut beside: Vec<Duration> = beside.await??;
            beside.sort_unstable();
            let p99 = beside
                .get(beside.len() * 99 / 100)
                .copied()
                .unwrap_or_default();
            others.push(p99.as_secs_f64() * 1e3);
            peaks.push(broker.peak()? as f64 / 1e6);
            broker.stop()?;
        }
        let named = |what: &str| format!("{what} of {size}");
        bench.report.add(&named("fill"), "/s", fills, Bar::None);
        bench.report.add(&named("drain"), "/s", drains, bar);
        let memory = if size == 100_000 {
            Bar::AtMost(60.0)
        } else {
            Bar::None
        };
        bench
            .report
            .add(&named("drain: broker peak"), "MB", peaks, memory);
        let what = named("drain: p99 of another pair meanwhile");
        bench.report.add(&what, "ms", others, Bar::None);
    }
    Ok(())
}
