//! Two domains that a nats-server joins, beside that server alone.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::context::PublishAckFuture;
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{self, Context as JetStream};
use futures_util::StreamExt as _;
use peerbus_test_support::nats::Nats;
use peerbus_wire::bridge::HEAD;

use crate::peer::{Peer, Speech, envelope};
use crate::process::{BRIDGE_TOKEN, Broker, TOKEN, pss};
use crate::report::Bar;
use crate::{BODY_BYTES, Bench, limits, load};

/// Messages one after the other, and in a flow.
const PINGS: u64 = 2_000;
const FLOW: u64 = 20_000;
/// Messages for a domain that is away.
const AWAY: u64 = 10_000;
/// Publications of the bare flow that are not confirmed.
const UNCONFIRMED: usize = 512;
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker with a domain, and its bridge, which is killed when this is dropped.
struct Machine {
    home: tempfile::TempDir,
    broker: Broker,
    bridge: Child,
}

impl Machine {
    fn start(bench: &Bench, domain: &str, nats: &Nats) -> Result<Self> {
        let home = bench.home()?;
        let broker = Broker::start_in(&bench.binary, home.path(), domain)?;
        let program = bench.binary.with_file_name("peerbus-bridge");
        let bridge = Command::new(&program)
            .args(["--nats", &nats.url()])
            .env_clear()
            .env("HOME", home.path())
            .env("PEERBUS_URL", format!("unix:{}", broker.socket.display()))
            .env("PEERBUS_TOKEN", BRIDGE_TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("no {}", program.display()))?;
        Ok(Self {
            home,
            broker,
            bridge,
        })
    }

    /// Waits until mail gets to another domain.
    async fn joined(&self, other: &str) -> Result<()> {
        let start = Instant::now();
        let up = format!("peerbus_domain_up{{domain=\"{other}\"}}");
        while self.broker.metric(&up).await.is_ok_and(|up| up < 1.0)
            || self.broker.metric(&up).await.is_err()
        {
            ensure!(start.elapsed() < PATIENCE, "{other} was never joined");
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn peer(&self, name: &str) -> Result<Peer> {
        Peer::join(self.broker.address, TOKEN, name, Speech::Ext).await
    }

    fn disk(&self) -> Result<u64> {
        let database = Broker::database(self.home.path());
        let size = |path: &Path| Ok::<_, anyhow::Error>(std::fs::metadata(path)?.len());
        Ok(size(&database)? + size(&database.with_extension("db-wal"))?)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.bridge.kill();
        let _ = self.bridge.wait();
    }
}

fn frames(from: &str, to: &str, run: u32, count: u64) -> Vec<Vec<u8>> {
    let one = |n| envelope(from, to, run, n, BODY_BYTES);
    (0..count).map(one).collect()
}

fn p50(times: Vec<Duration>) -> f64 {
    limits::median(times).as_secs_f64() * 1e6
}

/// A stream as the bridges have it, and its consumer.
struct Bare {
    context: JetStream,
    mails: pull::Stream,
}

impl Bare {
    async fn start(nats: &Nats) -> Result<Self> {
        let context = jetstream::new(async_nats::connect(nats.url()).await?);
        let stream = context.create_stream(stream::Config {
            name: "BARE".into(),
            subjects: vec!["bare.*".into()],
            retention: RetentionPolicy::WorkQueue,
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            max_messages_per_subject: 100_000,
            ..stream::Config::default()
        });
        let stream = stream.await?;
        let consumer = stream.create_consumer(pull::Config {
            durable_name: Some("bare".into()),
            filter_subject: "bare.*".into(),
            ack_policy: AckPolicy::Explicit,
            max_ack_pending: 4_096,
            ..pull::Config::default()
        });
        let mails = consumer.await?.messages().await?;
        Ok(Self { context, mails })
    }

    /// Published, confirmed and consumed, one after the other.
    async fn pings(&mut self, frames: Vec<Vec<u8>>) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        for frame in frames {
            let start = Instant::now();
            let kept = publish(&self.context, frame).await?;
            let mail = self.mails.next().await.context("the stream ended")??;
            kept.await?;
            times.push(start.elapsed());
            mail.ack().await.map_err(anyhow::Error::msg)?;
        }
        Ok(times)
    }

    /// Published and consumed, many at a time; gives how many a second.
    async fn flow(&mut self, frames: Vec<Vec<u8>>) -> Result<f64> {
        let (count, context) = (frames.len(), self.context.clone());
        let start = Instant::now();
        let sending = tokio::spawn(async move {
            let published = futures_util::stream::iter(frames).map(|frame| {
                let context = context.clone();
                async move { anyhow::Ok(publish(&context, frame).await?.await?) }
            });
            let mut published = published.buffered(UNCONFIRMED);
            while let Some(kept) = published.next().await {
                kept?;
            }
            anyhow::Ok(())
        });
        for _ in 0..count {
            let mail = self.mails.next().await.context("the stream ended")??;
            mail.ack().await.map_err(anyhow::Error::msg)?;
        }
        sending.await??;
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }
}

/// Publishes as a bridge does, with a header of the same size.
async fn publish(context: &JetStream, frame: Vec<u8>) -> Result<PublishAckFuture> {
    let mut headers = HeaderMap::new();
    headers.insert(
        HEAD,
        "1 19f3d277aa0c19f3d277aa0c19f3d277 77aa0c19f3d277aa0c19f3d277aa0c19 1234 1233",
    );
    let kept = context.publish_with_headers("bare.x", headers, frame.into());
    Ok(kept.await?)
}

/// What a message to another domain takes, beside one at home and one through the server alone.
pub(crate) async fn beside_nats(bench: &mut Bench) -> Result<()> {
    let dir = bench.home()?;
    let Some(nats) = Nats::start(dir.path(), None) else {
        return Ok(());
    };
    let alpha = Machine::start(bench, "alpha", &nats)?;
    let beta = Machine::start(bench, "beta", &nats)?;
    alpha.joined("beta").await?;
    beta.joined("alpha").await?;
    let idle = pss(alpha.bridge.id())? as f64 / 1e6;
    let mut bare = Bare::start(&nats).await?;
    let (pings, flow) = (bench.count(PINGS), bench.count(FLOW));
    let [mut far, mut alone, mut ratio] = [const { Vec::new() }; 3];
    let [mut far_flow, mut alone_flow, mut flow_ratio] = [const { Vec::new() }; 3];
    for run in 0..bench.runs as u32 {
        let (from, to) = (format!("s{run}"), format!("r{run}"));
        let (here, there) = (format!("{from}@alpha"), format!("{to}@beta"));
        let between = |id: u32, count| frames(&here, &there, id, count);
        let at_home = |id: u32, count| frames(&from, &to, id, count);
        let ends =
            || async { Ok::<_, anyhow::Error>((alpha.peer(&from).await?, alpha.peer(&to).await?)) };
        let (sender, receiver) = ends().await?;
        let local = p50(load::pings(sender, receiver, at_home(8 * run, pings)).await?);
        alone.push(p50(bare.pings(at_home(8 * run, pings)).await?));
        let (sender, receiver) = (alpha.peer(&from).await?, beta.peer(&to).await?);
        far.push(p50(load::pings(
            sender,
            receiver,
            between(8 * run + 1, pings),
        )
        .await?));
        ratio.push(far[far.len() - 1] / (2.0 * local + 2.0 * alone[alone.len() - 1]));

        let (sender, receiver) = ends().await?;
        let took = load::flow(sender, receiver, at_home(8 * run + 2, flow)).await?;
        let local = took.per_second();
        alone_flow.push(bare.flow(at_home(8 * run + 2, flow)).await?);
        let (sender, receiver) = (alpha.peer(&from).await?, beta.peer(&to).await?);
        let took = load::flow(sender, receiver, between(8 * run + 3, flow)).await?;
        far_flow.push(took.per_second());
        flow_ratio.push(took.per_second() / local);
    }
    let loaded = pss(alpha.bridge.id())? as f64 / 1e6;
    let report = &mut bench.report;
    report.add(
        "NATS alone: published and consumed, p50",
        "us",
        alone,
        Bar::None,
    );
    report.add("alpha to beta, p50", "us", far, Bar::None);
    let what = "alpha to beta p50 / (2 at home + 2 through NATS alone)";
    report.add(what, "x", ratio, Bar::AtMost(1.0));
    report.add("NATS alone, one to one", "/s", alone_flow, Bar::None);
    report.add("alpha to beta, one to one", "/s", far_flow, Bar::None);
    let what = "alpha to beta / at home, one to one";
    report.add(what, "x", flow_ratio, Bar::AtLeast(0.25));
    report.add(
        "bridge, idle, memory (Pss)",
        "MB",
        vec![idle],
        Bar::AtMost(10.0),
    );
    report.add(
        "bridge after these, memory (Pss)",
        "MB",
        vec![loaded],
        Bar::None,
    );
    away(bench, &alpha, beta).await
}

/// What a domain that is away costs the others.
async fn away(bench: &mut Bench, alpha: &Machine, beta: Machine) -> Result<()> {
    // It is known there: mail for nobody would end.
    drop(beta.peer("gone").await?);
    drop(beta);
    let count = bench.count(AWAY);
    let pings = bench.count(PINGS);
    let ping = async |id| {
        let (sender, receiver) = (alpha.peer("ping").await?, alpha.peer("pong").await?);
        let times = load::pings(sender, receiver, frames("ping", "pong", id, pings)).await?;
        anyhow::Ok(p50(times))
    };
    let before = ping(901).await?;
    let (memory, disk) = (alpha.broker.pss()?, alpha.disk()?);
    let sender = alpha.peer("writer").await?;
    load::send_all(sender, frames("writer@alpha", "gone@beta", 902, count)).await?;
    let beside = ping(903).await?;
    let memory = alpha.broker.pss()?.saturating_sub(memory) as f64 / 1e6;
    let disk = alpha.disk()?.saturating_sub(disk) as f64 / count as f64;
    let report = &mut bench.report;
    report.add(
        "while 10,000 wait for beta: p50 at home / before",
        "x",
        vec![beside / before],
        Bar::AtMost(1.5),
    );
    report.add(
        "while they wait: broker, more memory",
        "MB",
        vec![memory],
        Bar::None,
    );
    report.add(
        "while they wait: disk a message, the log included",
        "bytes",
        vec![disk],
        Bar::None,
    );
    Ok(())
}
