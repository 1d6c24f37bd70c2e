//! Flows of messages: who sends how many to whom, and the check that each arrived once, in order.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use tokio::task::JoinSet;

use crate::peer::{Peer, Speech, count_accepted, envelope, number, parse_delivery};
use crate::socket::{Kind, Reader, Writer};

/// Envelopes that a sender has on the wire without a receipt: below the broker's own bound.
const UNRECEIPTED: usize = 192;
/// Bytes that a sender gathers before it writes.
const CHUNK: usize = 32_768;

/// What one run of a flow took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    /// Deliveries that were received and acked.
    pub(crate) deliveries: u64,
    pub(crate) took: Duration,
}

impl Flow {
    pub(crate) fn per_second(&self) -> f64 {
        self.deliveries as f64 / self.took.as_secs_f64()
    }
}

/// `pairs` senders, each with a receiver of its own, `each` messages of `body` bytes.
pub(crate) async fn pairs(
    address: SocketAddr,
    token: &str,
    run: u32,
    pairs: usize,
    each: u64,
    speech: Speech,
) -> Result<Flow> {
    let mut sides = Vec::new();
    for pair in 0..pairs {
        let (from, to) = (format!("s{run}-{pair}"), format!("r{run}-{pair}"));
        let receiver = Peer::join(address, token, &to, speech).await?;
        let sender = Peer::join(address, token, &from, speech).await?;
        let frames: Vec<_> = (0..each)
            .map(|n| envelope(&from, &to, run, n, crate::BODY_BYTES))
            .collect();
        sides.push((sender, receiver, frames));
    }
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for (sender, receiver, frames) in sides {
        tasks.spawn(send_all(sender, frames));
        tasks.spawn(receive(receiver, each));
    }
    join(tasks).await?;
    Ok(Flow {
        deliveries: each * pairs as u64,
        took: start.elapsed(),
    })
}

/// One sender to many: to all, or to a group of which all receivers are members; `each` messages.
pub(crate) async fn fan_out(
    address: SocketAddr,
    token: &str,
    (run, to): (u32, &str),
    receivers: usize,
    each: u64,
) -> Result<Flow> {
    let from = format!("caster{run}");
    let mut peers = Vec::new();
    for n in 0..receivers {
        let mut peer = Peer::join(address, token, &format!("f{run}-{n}"), Speech::Ext).await?;
        if to.starts_with('#') {
            peer.regroup(to).await?;
        }
        peers.push(peer);
    }
    let sender = Peer::join(address, token, &from, Speech::Ext).await?;
    let frames: Vec<_> = (0..each)
        .map(|n| envelope(&from, to, run, n, crate::BODY_BYTES))
        .collect();
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for peer in peers {
        tasks.spawn(receive(peer, each));
    }
    tasks.spawn(send_all(sender, frames));
    join(tasks).await?;
    Ok(Flow {
        deliveries: each * receivers as u64,
        took: start.elapsed(),
    })
}

/// Who the queues of [`fill`] are for: one takes less than 1,000,000 messages of one token.
fn away(run: u32) -> [String; 2] {
    ["a", "b"].map(|half| format!("away{run}{half}"))
}

/// Queues `count` messages, an even number, for two peers that are away. They have registered before.
pub(crate) async fn fill(address: SocketAddr, token: &str, run: u32, count: u64) -> Result<Flow> {
    for to in &away(run) {
        drop(Peer::join(address, token, to, Speech::Ext).await?);
    }
    let start = Instant::now();
    for to in &away(run) {
        // An id is its sender's: each half has one of its own.
        let from = format!("filler-{to}");
        let mut sender = Peer::join(address, token, &from, Speech::Ext).await?;
        let mut sent = 0;
        while sent < count / 2 {
            let until = (count / 2).min(sent + 20_000);
            let frames: Vec<_> = (sent..until)
                .map(|n| envelope(&from, to, run, n, crate::BODY_BYTES))
                .collect();
            sender = send_all(sender, frames).await?;
            sent = until;
        }
    }
    Ok(Flow {
        deliveries: count,
        took: start.elapsed(),
    })
}

/// Drains what [`fill`] queued.
pub(crate) async fn drain(address: SocketAddr, token: &str, run: u32, count: u64) -> Result<Flow> {
    let start = Instant::now();
    for to in &away(run) {
        let receiver = Peer::join(address, token, to, Speech::Ext).await?;
        receive(receiver, count / 2).await?;
    }
    Ok(Flow {
        deliveries: count,
        took: start.elapsed(),
    })
}

/// One message at a time, there and acked: times from send to deliver.
pub(crate) async fn latencies(
    address: SocketAddr,
    token: &str,
    run: u32,
    samples: u64,
) -> Result<Vec<Duration>> {
    let (from, to) = (format!("ping{run}"), format!("pong{run}"));
    let receiver = Peer::join(address, token, &to, Speech::Ext).await?;
    let sender = Peer::join(address, token, &from, Speech::Ext).await?;
    let frames = (0..samples)
        .map(|n| envelope(&from, &to, run, n, crate::BODY_BYTES))
        .collect();
    pings(sender, receiver, frames).await
}

/// The same for any two peers.
pub(crate) async fn pings(
    sender: Peer,
    mut receiver: Peer,
    frames: Vec<Vec<u8>>,
) -> Result<Vec<Duration>> {
    let Peer {
        mut reader,
        mut writer,
        ..
    } = sender;
    // Receipts are read beside, as an adapter does.
    let receipts = tokio::spawn(async move {
        while let Ok((kind, _)) = reader.next().await {
            if kind == Kind::Close {
                break;
            }
        }
    });
    let mut times = Vec::with_capacity(frames.len());
    for (n, frame) in frames.iter().enumerate() {
        let start = Instant::now();
        writer.queue(frame);
        writer.flush().await?;
        let (key, number) = receiver.delivery().await?;
        times.push(start.elapsed());
        ensure!(number == n as u64, "message {number} came in place of {n}");
        receiver.queue_ack(key.as_bytes());
        receiver.writer.flush().await?;
    }
    receiver.barrier().await?;
    drop(writer);
    receipts.abort();
    Ok(times)
}

/// All at once from one peer to another.
pub(crate) async fn flow(sender: Peer, receiver: Peer, frames: Vec<Vec<u8>>) -> Result<Flow> {
    let deliveries = frames.len() as u64;
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    tasks.spawn(send_all(sender, frames));
    tasks.spawn(receive(receiver, deliveries));
    join(tasks).await?;
    Ok(Flow {
        deliveries,
        took: start.elapsed(),
    })
}

/// Sends every frame; with receipts, until the last one is there.
pub(crate) async fn send_all(peer: Peer, frames: Vec<Vec<u8>>) -> Result<Peer> {
    let Peer {
        mut reader,
        mut writer,
        speech,
    } = peer;
    let (mut sent, mut accepted) = (0, 0);
    while sent < frames.len() || (speech != Speech::V1 && accepted < frames.len()) {
        let room = match speech {
            Speech::Ext | Speech::ExtTls => UNRECEIPTED - (sent - accepted),
            Speech::V1 => frames.len(),
        };
        for frame in frames.iter().skip(sent).take(room) {
            writer.queue(frame);
            sent += 1;
            if writer.queued() >= CHUNK {
                break;
            }
        }
        writer.flush().await?;
        if speech != Speech::V1 && (sent == frames.len() || sent - accepted >= UNRECEIPTED / 2) {
            accepted += read_receipts(&mut reader, &mut writer).await?;
        }
    }
    let mut peer = Peer {
        reader,
        writer,
        speech,
    };
    if speech == Speech::V1 {
        peer.barrier().await?;
    }
    Ok(peer)
}

/// Reads what is there, at least one frame; gives how many messages it says are accepted.
async fn read_receipts(reader: &mut Reader, writer: &mut Writer) -> Result<usize> {
    let mut accepted = 0;
    loop {
        let (kind, text) = reader.next().await?;
        match kind {
            Kind::Text => {
                if text.windows(9).any(|w| w == b"\"refused\"") {
                    bail!("refused: {}", String::from_utf8_lossy(text));
                }
                accepted += count_accepted(text);
            }
            Kind::Ping => {
                let payload = text.to_vec();
                writer.queue_pong(&payload);
            }
            Kind::Close => bail!("closed: {}", String::from_utf8_lossy(text)),
            Kind::Other => {}
        }
        if !reader.has_next() {
            return Ok(accepted);
        }
    }
}

/// Receives and acks `count` messages of one sender, checks that each comes once and in order, and
/// waits until the acks are committed.
pub(crate) async fn receive(peer: Peer, count: u64) -> Result<Peer> {
    let Peer {
        mut reader,
        mut writer,
        speech,
    } = peer;
    let mut expected = 0;
    while expected < count {
        let (kind, text) = reader.next().await?;
        match kind {
            Kind::Text => {
                let Some((key, id)) = parse_delivery(text) else {
                    continue;
                };
                let found = number(id)?;
                ensure!(
                    found == expected,
                    "message {found} came in place of {expected}"
                );
                expected += 1;
                writer.queue(&speech.ack(key));
            }
            Kind::Ping => {
                let payload = text.to_vec();
                writer.queue_pong(&payload);
            }
            Kind::Close => bail!("closed: {}", String::from_utf8_lossy(text)),
            Kind::Other => {}
        }
        if !reader.has_next() || writer.queued() >= CHUNK {
            writer.flush().await?;
        }
    }
    let mut peer = Peer {
        reader,
        writer,
        speech,
    };
    peer.barrier().await?;
    Ok(peer)
}

async fn join(mut tasks: JoinSet<Result<Peer>>) -> Result<()> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
