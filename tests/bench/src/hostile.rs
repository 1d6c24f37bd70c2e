//! Everything that others do to a pair of peers at once, and what the pair notices.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;

use crate::Bench;
use crate::load;
use crate::peer::{Peer, Speech, envelope};
use crate::process::{Broker, PACED, TOKEN};
use crate::report::Bar;
use crate::socket::{Kind, dial};

/// Connections that have no token.
const STRANGERS: usize = 400;
/// Messages for a reader that stops: more than its window.
const UNREAD: u64 = 2_000;
/// Messages that a flooder makes at a time.
const FLOOD: u64 = 1_000;

/// One reader that stops, one peer with a long queue, one that floods as fast as its token
/// may, and strangers; beside them a pair that sends one message at a time.
pub(crate) async fn all_at_once(bench: &mut Bench) -> Result<()> {
    let queued = bench.count(if bench.full { 1_000_000 } else { 100_000 });
    let samples = bench.count(5_000);
    let home = bench.home()?;
    let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
    let address = broker.address;
    let alone = p99(load::latencies(address, TOKEN, 0, samples).await?);

    load::fill(address, TOKEN, 1, queued).await?;
    let stopped = Peer::join(address, TOKEN, "stopped", Speech::Ext).await?;
    let sender = Peer::join(address, TOKEN, "stopper", Speech::Ext).await?;
    let frames = (0..UNREAD).map(|n| envelope("stopper", "stopped", 1, n, crate::BODY_BYTES));
    drop(load::send_all(sender, frames.collect()).await?);
    let over = Arc::<AtomicBool>::default();
    let mut strangers = JoinSet::new();
    for n in 0..STRANGERS {
        strangers.spawn(intrude(address, n, Arc::clone(&over)));
    }
    let reader = Peer::join(address, PACED, "flooded", Speech::Ext).await?;
    let flood = tokio::spawn(flood(address, Arc::clone(&over)));
    let beside = p99(load::latencies(address, TOKEN, 2, samples).await?);

    over.store(true, Ordering::Relaxed);
    let flooded = flood.await??;
    strangers.abort_all();
    // All of it arrives, once and in order.
    load::receive(reader, flooded).await?;
    load::receive(stopped, UNREAD).await?;
    load::drain(address, TOKEN, 1, queued).await?;
    let peak = broker.peak()? as f64 / 1e6;
    broker.stop()?;

    let ms = |time: Duration| vec![time.as_secs_f64() * 1e3];
    let report = &mut bench.report;
    report.add("a pair alone, p99", "ms", ms(alone), Bar::None);
    report.add(
        "the pair among all that is hostile, p99",
        "ms",
        ms(beside),
        Bar::None,
    );
    let ratio = vec![beside.as_secs_f64() / alone.as_secs_f64()];
    report.add("hostile: p99 / p99 alone", "x", ratio, Bar::AtMost(2.0));
    report.add("hostile: broker peak", "MB", vec![peak], Bar::AtMost(200.0));
    report.add(
        "hostile: messages of the flood",
        "",
        vec![flooded as f64],
        Bar::None,
    );
    Ok(())
}

/// Stays without a token, or with a wrong one, and comes again when it is thrown out.
async fn intrude(address: SocketAddr, n: usize, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        let Ok((mut reader, mut writer)) = dial(address).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if n.is_multiple_of(2) {
            writer.queue(
                br#"{"protocol_version":"v1","type":"register","token":"wrong","name":"stranger"}"#,
            );
            // It may be closed already.
            let _ = writer.flush().await;
        }
        while matches!(reader.next().await, Ok((kind, _)) if kind != Kind::Close) {}
    }
}

/// Sends as fast as it may; gives how many messages it were.
async fn flood(address: SocketAddr, over: Arc<AtomicBool>) -> Result<u64> {
    let mut sender = Peer::join(address, PACED, "flooder", Speech::Ext).await?;
    let mut sent = 0;
    while !over.load(Ordering::Relaxed) {
        let frames = (sent..sent + FLOOD)
            .map(|n| envelope("flooder", "flooded", 1, n, crate::BODY_BYTES))
            .collect();
        sender = load::send_all(sender, frames).await?;
        sent += FLOOD;
    }
    Ok(sent)
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let at = times.len() * 99 / 100;
    times.get(at).copied().unwrap_or_default()
}
