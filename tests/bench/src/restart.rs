//! A broker that comes back to a full queue.

use anyhow::Result;

use crate::Bench;
use crate::load;
use crate::process::{Broker, TOKEN};
use crate::report::Bar;

pub(crate) async fn restart(bench: &mut Bench) -> Result<()> {
    let size = if bench.full { 1_000_000 } else { 100_000 };
    let count = bench.count(size);
    let home = bench.home()?;
    let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
    load::fill(broker.address, TOKEN, 0, count).await?;
    broker.stop()?;
    let (mut orderly, mut killed, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..bench.runs as u32 {
        let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
        orderly.push(broker.ready_after.as_secs_f64() * 1e3);
        memory.push(broker.pss()? as f64 / 1e6);
        // Something for the WAL to hold when the broker is killed.
        load::pairs(
            broker.address,
            TOKEN,
            run + 1,
            1,
            500,
            crate::peer::Speech::Ext,
        )
        .await?;
        broker.kill()?;
        let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
        killed.push(broker.ready_after.as_secs_f64() * 1e3);
        broker.stop()?;
    }
    let named = |what: &str| format!("restart with {count} queued, {what}");
    bench.report.add(
        &named("listening after SIGTERM"),
        "ms",
        orderly,
        Bar::AtMost(50.0),
    );
    bench.report.add(
        &named("listening after SIGKILL"),
        "ms",
        killed,
        Bar::AtMost(150.0),
    );
    bench
        .report
        .add(&named("memory"), "MB", memory, Bar::AtMost(40.0));
    Ok(())
}
