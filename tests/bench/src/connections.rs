//! Connections that do nothing, and connections that all come at once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use crate::Bench;
use crate::peer::{Peer, Speech, envelope};
use crate::process::{Broker, TOKEN};
use crate::report::Bar;

/// How long a storm may take before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn idle(bench: &mut Bench) -> Result<()> {
    let kib = 1_024.0;
    let mut cases = vec![
        (Speech::V1, 1_000, "v1", Bar::AtMost(16.0), Bar::None),
        (Speech::Ext, 1_000, "ext", Bar::AtMost(10.0), Bar::None),
        (Speech::ExtTls, 1_000, "ext TLS", Bar::None, Bar::None),
    ];
    if bench.full {
        cases.push((
            Speech::Ext,
            10_000,
            "ext",
            Bar::AtMost(10.0),
            Bar::AtMost(110.0),
        ));
    }
    for (speech, count, name, each_bar, all_bar) in cases {
        let count = if bench.quick { 50 } else { count };
        let home = bench.home()?;
        let start = match speech {
            Speech::V1 | Speech::Ext => Broker::start,
            Speech::ExtTls => Broker::start_tls,
        };
        let broker = start(&bench.binary, home.path(), "127.0.0.1:0")?;
        let before = broker.pss()?;
        let peers = join_all(broker.address, count, speech).await?;
        let after = broker.pss()?;
        let each = after.saturating_sub(before) as f64 / count as f64 / kib;
        let what = format!("{count} idle {name} connections, each");
        bench.report.add(&what, "KiB", vec![each], each_bar);
        let what = format!("{count} idle {name} connections, broker");
        bench
            .report
            .add(&what, "MB", vec![after as f64 / 1e6], all_bar);
        drop(peers);
        broker.stop()?;
    }
    Ok(())
}

pub(crate) async fn storm(bench: &mut Bench) -> Result<()> {
    let count = if bench.quick { 50 } else { 1_000 };
    let mut times = Vec::new();
    for run in 0..bench.runs as u32 {
        let home = bench.home()?;
        let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
        let address = broker.address;
        drop(join_all(address, count, Speech::Ext).await?);
        broker.kill()?;
        let mut dialing = JoinSet::new();
        for n in 0..count {
            dialing.spawn(async move { persist(address, run, n).await });
        }
        let broker = Broker::start(&bench.binary, home.path(), &address.to_string())?;
        let up = Instant::now();
        while let Some(served) = dialing.join_next().await {
            served??;
        }
        times.push(up.elapsed().as_secs_f64());
        broker.stop()?;
    }
    let what = format!("storm: {count} clients registered and served");
    bench.report.add(&what, "s", times, Bar::AtMost(1.0));
    Ok(())
}

/// Dials until the broker is there, registers, and has a message of its own delivered.
async fn persist(address: SocketAddr, run: u32, n: usize) -> Result<Peer> {
    let start = Instant::now();
    loop {
        match Peer::join(address, TOKEN, &format!("idle-{n}"), Speech::Ext).await {
            Ok(mut peer) => {
                let name = format!("idle-{n}");
                peer.writer
                    .queue(&envelope(&name, &name, run, 0, crate::BODY_BYTES));
                peer.writer.flush().await?;
                peer.delivery().await?;
                return Ok(peer);
            }
            Err(error) if start.elapsed() > PATIENCE => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn join_all(address: SocketAddr, count: usize, speech: Speech) -> Result<Vec<Peer>> {
    let mut peers = Vec::with_capacity(count);
    for n in 0..count {
        peers.push(Peer::join(address, TOKEN, &format!("idle-{n}"), speech).await?);
    }
    Ok(peers)
}
