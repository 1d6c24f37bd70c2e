//! What this machine can do, measured in the same run.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use peerbus_core::store::{MessageHead, PeerId, Store, Txn};
use peerbus_store::SqliteStore;
use peerbus_wire::{MessageId, Seq};

use crate::socket::dial;

/// Figures of the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Median time of an fdatasync after a write of 4 KiB.
    pub(crate) fdatasync: Duration,
    /// Median time of a round trip of 300 bytes over loopback TCP between two threads.
    pub(crate) round_trip: Duration,
    /// The same through two WebSocket ends and an async runtime.
    pub(crate) websocket: Duration,
    /// Messages a second that the bare store takes in batches of 64.
    pub(crate) store_per_second: f64,
}

impl Limits {
    pub(crate) fn measure(dir: &Path, quick: bool) -> Result<Self> {
        let samples = if quick { 20 } else { 1_000 };
        Ok(Self {
            fdatasync: fdatasync(dir, samples)?,
            round_trip: round_trip(samples * 5)?,
            websocket: websocket(samples * 5)?,
            store_per_second: store(dir, if quick { 10 } else { 500 })?,
        })
    }
}

/// The middle one of some times.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn fdatasync(dir: &Path, samples: usize) -> Result<Duration> {
    let mut file = tempfile::tempfile_in(dir)?;
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        let start = Instant::now();
        file.write_all(&[7; 4_096])?;
        File::sync_data(&file)?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

fn round_trip(samples: usize) -> Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 300];
        while far.read_exact(&mut buffer).is_ok() {
            if far.write_all(&buffer).is_err() {
                break;
            }
        }
    });
    let mut buffer = [0; 300];
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        let start = Instant::now();
        near.write_all(&buffer)?;
        near.read_exact(&mut buffer)?;
        times.push(start.elapsed());
    }
    drop(near);
    echo.join().ok().context("the echo thread failed")?;
    Ok(median(times))
}

fn websocket(samples: usize) -> Result<Duration> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let echo = tokio::spawn(async move { echo(listener).await });
        let (mut reader, mut writer) = dial(address).await?;
        let mut times = Vec::with_capacity(samples);
        for _ in 0..samples {
            let start = Instant::now();
            writer.queue(&[b'x'; ECHO_BYTES]);
            writer.flush().await?;
            reader.next().await?;
            times.push(start.elapsed());
        }
        echo.abort();
        Ok(median(times))
    })
}

const ECHO_BYTES: usize = 300;

/// Answers one client, whose frames have [`ECHO_BYTES`] and a mask of zeros.
async fn echo(listener: tokio::net::TcpListener) -> Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (mut stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    stream
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        .await?;
    let mut frame = [0; 8 + ECHO_BYTES];
    loop {
        stream.read_exact(&mut frame).await?;
        let mut answer = vec![0x81, 126];
        answer.extend_from_slice(&(ECHO_BYTES as u16).to_be_bytes());
        answer.extend_from_slice(&frame[8..]);
        stream.write_all(&answer).await?;
    }
}

fn store(dir: &Path, batches: u64) -> Result<f64> {
    const BATCH: u64 = 64;
    let dir = tempfile::tempdir_in(dir)?;
    let mut store = SqliteStore::open(&dir.path().join("bare.db"))?;
    let envelope = "x".repeat(500);
    let start = Instant::now();
    for batch in 0..batches {
        store.begin()?;
        for n in 0..BATCH {
            let seq = Seq(batch * BATCH + n + 1);
            let head = MessageHead {
                seq,
                sender: PeerId(1),
                id: MessageId::parse(&format!("{:020}", seq.0))?,
                recipients: 1,
                accepted_ms: 1,
                bytes: envelope.len() as u64,
            };
            store.insert_message(&head, &envelope)?;
            store.insert_delivery((PeerId(2), PeerId(1)), seq, 1)?;
        }
        store.commit()?;
        store.maintain()?;
    }
    let took = start.elapsed();
    store.close()?;
    Ok((batches * BATCH) as f64 / took.as_secs_f64())
}
