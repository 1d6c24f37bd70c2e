//! Looking up what was read, and starting, with a week of it: 1,000 messages an hour.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::Bench;
use crate::load;
use crate::peer::Speech;
use crate::process::{Broker, TOKEN};
use crate::report::Bar;

/// Messages of a week.
const WEEK: u64 = 168_000;
/// Time in which nothing comes.
const REST: Duration = Duration::from_secs(3);
/// Peers on either side.
const PAIRS: u64 = 8;

pub(crate) async fn week(bench: &mut Bench) -> Result<()> {
    let each = bench.count(WEEK) / PAIRS;
    let home = bench.home()?;
    let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
    load::pairs(broker.address, TOKEN, 0, PAIRS as usize, each, Speech::Ext).await?;
    // One message between two others, far back.
    load::pairs(broker.address, TOKEN, 1, 1, 1, Speech::Ext).await?;
    load::pairs(
        broker.address,
        TOKEN,
        2,
        PAIRS as usize,
        each / 8,
        Speech::Ext,
    )
    .await?;
    // A week leaves more time for the contents to be written.
    tokio::time::sleep(REST).await;
    broker.stop()?;
    let (mut starts, mut memory) = (Vec::new(), Vec::new());
    let (mut newest, mut rare, mut status) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.runs {
        let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
        starts.push(broker.ready_after.as_secs_f64() * 1e3);
        memory.push(broker.pss()? as f64 / 1e6);
        newest.push(ask(&broker.socket, "/v1/messages?limit=50")?.1);
        let (found, ms) = ask(&broker.socket, "/v1/messages?with=s1-0&limit=50")?;
        rare.push(ms);
        let id = found
            .split(r#""id":""#)
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let id = id.context("one message is found")?;
        status.push(ask(&broker.socket, &format!("/v1/messages/{id}"))?.1);
        broker.stop()?;
    }
    let report = &mut bench.report;
    let bar = || Bar::AtMost(50.0);
    report.add(
        "a week of history, listening after SIGTERM",
        "ms",
        starts,
        bar(),
    );
    report.add("a week of history, memory", "MB", memory, Bar::AtMost(40.0));
    report.add("a week of history, the newest 50", "ms", newest, bar());
    report.add("a week of history, one of a peer's", "ms", rare, bar());
    report.add("a week of history, one by its id", "ms", status, bar());
    Ok(())
}

/// An answer of the operator's interface, and how long it took in milliseconds.
fn ask(socket: &Path, target: &str) -> Result<(String, f64)> {
    let start = Instant::now();
    let mut stream = UnixStream::connect(socket)?;
    write!(stream, "GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.contains(" 200 OK"), "{target}: {answer}");
    Ok((answer, start.elapsed().as_secs_f64() * 1e3))
}
