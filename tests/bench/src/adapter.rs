//! An adapter process: its start, its size, its rest.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::Bench;
use crate::process::{Broker, TOKEN, pss, wakeups};
use crate::report::Bar;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const PEERS: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bus.peers","arguments":{}}}"#;
const SEND: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bus.send","arguments":{"to":"first","body":"hello"}}}"#;

pub(crate) async fn start_and_idle(bench: &mut Bench) -> Result<()> {
    let home = bench.home()?;
    let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
    let url = format!("ws://{}", broker.address);
    for kind in ["cc", "generic"] {
        let mut firsts = Vec::new();
        for _ in 0..if bench.quick { 2 } else { 30 } {
            let (mut adapter, first) = start(bench, home.path(), &url, kind)?;
            firsts.push(first.as_secs_f64() * 1e3);
            end(&mut adapter)?;
        }
        let what = format!("{kind} adapter, first answer after spawn");
        bench.report.add(&what, "ms", firsts, Bar::AtMost(3.0));

        let (mut adapter, _) = start(bench, home.path(), &url, kind)?;
        // What belongs to the start is over.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = wakeups(adapter.id())?;
        let pause = Duration::from_secs(if bench.quick { 1 } else { 10 });
        tokio::time::sleep(pause).await;
        let woken = (wakeups(adapter.id())? - before) as f64 / pause.as_secs_f64();
        let what = format!("{kind} adapter, wake-ups while idle");
        bench.report.add(&what, "/s", vec![woken], Bar::AtMost(0.2));
        let what = format!("{kind} adapter, memory (Pss)");
        let memory = pss(adapter.id())? as f64 / 1e6;
        bench
            .report
            .add(&what, "MB", vec![memory], Bar::AtMost(6.0));
        end(&mut adapter)?;
    }
    broker.stop()
}

/// Starts an adapter; gives the time until its first answer. It is registered then.
pub(crate) fn start(
    bench: &Bench,
    home: &std::path::Path,
    url: &str,
    kind: &str,
) -> Result<(Child, Duration)> {
    let mut adapter = Command::new(&bench.binary);
    adapter.args(["adapter", "--adapter", kind]);
    meet(belongs(&mut adapter, home, url))
}

/// A program of the user's, with pipes.
pub(crate) fn belongs<'c>(
    program: &'c mut Command,
    home: &std::path::Path,
    url: &str,
) -> &'c mut Command {
    program
        .env_clear()
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("PEERBUS_URL", url)
        .env("PEERBUS_TOKEN", TOKEN)
        .env("PEERBUS_HMAC_SECRET", "a secret for benches, 32 bytes long")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
}

/// Starts what is an adapter, or hands on what one says.
pub(crate) fn meet(adapter: &mut Command) -> Result<(Child, Duration)> {
    let start = Instant::now();
    let mut child = adapter.spawn()?;
    let stdin = child.stdin.as_mut().context("no stdin")?;
    writeln!(stdin, "{INITIALIZE}")?;
    let stdout = child.stdout.as_mut().context("no stdout")?;
    let mut lines = BufReader::new(stdout);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let first = start.elapsed();
    writeln!(stdin, "{INITIALIZED}\n{PEERS}")?;
    while !line.contains(r#""id":2"#) {
        line.clear();
        anyhow::ensure!(lines.read_line(&mut line)? > 0, "the adapter ended");
    }
    Ok((child, first))
}

pub(crate) fn end(adapter: &mut Child) -> Result<()> {
    drop(adapter.stdin.take());
    adapter.wait()?;
    Ok(())
}

/// From the start of an adapter where no broker runs to its first accepted message: for a user who
/// never had one, and for one who had.
pub(crate) fn on_demand(bench: &mut Bench) -> Result<()> {
    let mut times: [Vec<f64>; 2] = Default::default();
    for _ in 0..if bench.quick { 2 } else { 15 } {
        let home = bench.home()?;
        for took in &mut times {
            took.push(first_accepted(bench, home.path())?.as_secs_f64() * 1e3);
        }
    }
    let [new, known] = times;
    for (whose, took) in [("a clean home", new), ("a home with a database", known)] {
        let what = format!("no broker, {whose}: adapter's start to its first accepted message");
        bench.report.add(&what, "ms", took, Bar::AtMost(150.0));
    }
    Ok(())
}

/// Starts an adapter, which sends a message to itself, and ends it and its broker.
fn first_accepted(bench: &Bench, home: &std::path::Path) -> Result<Duration> {
    let peerbus = |args: &[&str]| {
        let mut command = Command::new(&bench.binary);
        command.args(args).env_clear().env("HOME", home);
        command.stderr(Stdio::null());
        command
    };
    let start = Instant::now();
    let mut adapter = peerbus(&["adapter", "--adapter", "generic", "--name", "first"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdin = adapter.stdin.as_mut().context("no stdin")?;
    writeln!(stdin, "{INITIALIZE}\n{INITIALIZED}\n{SEND}")?;
    let stdout = adapter.stdout.as_mut().context("no stdout")?;
    let mut lines = BufReader::new(stdout).lines();
    let answer = loop {
        let line = lines.next().context("the adapter ended")??;
        if line.contains(r#""id":2"#) {
            break line;
        }
    };
    let took = start.elapsed();
    anyhow::ensure!(answer.contains("accepted"), "not accepted: {answer}");
    end(&mut adapter)?;
    let stopped = peerbus(&["stop"]).stdout(Stdio::null()).status()?;
    anyhow::ensure!(stopped.success(), "the broker was not stopped");
    Ok(took)
}
