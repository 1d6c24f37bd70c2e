//! A call of a shared MCP server, beside the same call of the server itself.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::process::{Broker, TOKEN, cpu};
use crate::report::Bar;
use crate::{BODY_BYTES, Bench};

/// Calls that are made, and of them at once where many are.
const CALLS: u64 = 1_000;
const AT_ONCE: u64 = 8;

/// An MCP server with one tool, which gives back what it gets. It ends with its input.
pub(crate) fn echo() -> Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lines() {
        let asked: Value = serde_json::from_str(&line?)?;
        if asked["id"].is_null() {
            continue;
        }
        let result = match asked["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                "serverInfo": { "name": "echo", "version": "1" },
            }),
            _ => {
                json!({ "content": [{ "type": "text", "text": asked["params"]["arguments"]["text"] }] })
            }
        };
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

/// A client of a server on stdio, which is ended when it is dropped.
struct Client {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(command: &mut Command) -> Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let mut client = Self {
            child,
            stdin,
            lines,
        };
        let about = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "bench", "version": "1" } });
        client.ask(0, "initialize", &about)?;
        client.hear()?;
        Ok(client)
    }

    fn ask(&mut self, id: u64, method: &str, params: &Value) -> Result<()> {
        let asked = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.stdin, "{asked}")?;
        Ok(())
    }

    /// Calls the tool.
    fn call(&mut self, id: u64) -> Result<()> {
        let text = format!("{id:0BODY_BYTES$}");
        let params = json!({ "name": "echo", "arguments": { "text": text } });
        self.ask(id, "tools/call", &params)
    }

    /// The id of the next answer, which is what was asked.
    fn hear(&mut self) -> Result<u64> {
        let line = self.lines.next().context("the server ended")??;
        let answer: Value = serde_json::from_str(&line)?;
        ensure!(answer["result"].is_object(), "no result: {answer}");
        let id = answer["id"].as_u64().context("no id")?;
        if let Some(text) = answer["result"]["content"][0]["text"].as_str() {
            ensure!(text.parse() == Ok(id), "the answer of another: {answer}");
        }
        Ok(id)
    }

    /// Calls one after the other; gives the times that they took, in milliseconds, sorted.
    fn calls(&mut self, count: u64) -> Result<Vec<f64>> {
        let mut took = Vec::new();
        for id in 1..=count {
            let start = Instant::now();
            self.call(id)?;
            ensure!(self.hear()? == id, "answers come in order here");
            took.push(start.elapsed().as_secs_f64() * 1e3);
        }
        took.sort_by(f64::total_cmp);
        Ok(took)
    }

    /// Calls so many, several at once; gives how long all took.
    fn calls_at_once(&mut self, count: u64) -> Result<Duration> {
        let start = Instant::now();
        for id in 1..=count + AT_ONCE {
            if id > AT_ONCE {
                self.hear()?;
            }
            if id <= count {
                self.call(id)?;
            }
        }
        Ok(start.elapsed())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that is shared at a broker, until it is dropped.
struct Shared(Child);

impl Shared {
    fn start(command: &mut Command, server: &Path) -> Result<Self> {
        let share = [
            "mcp",
            "share",
            "echo",
            "--allow",
            "serverTools",
            "--to",
            "*",
        ];
        let command = command
            .args(share)
            .args(["--name", "host", "--"])
            .arg(server);
        let mut child = command.arg("--echo").stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().context("no stderr")?).lines();
        let shared = Self(child);
        while let Some(line) = lines.next().transpose()? {
            if line.starts_with("sharing ") {
                // It names each call.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(shared);
            }
        }
        bail!("nothing is shared")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The same calls of the server itself and over the bus, one run after the other.
pub(crate) fn beside_direct(bench: &mut Bench) -> Result<()> {
    let home = bench.home()?;
    let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
    let (binary, url) = (bench.binary.clone(), format!("ws://{}", broker.address));
    let peerbus = || {
        let mut command = Command::new(&binary);
        let secret = ("PEERBUS_HMAC_SECRET", "a secret for benches, 32 bytes long");
        let env = [
            ("PEERBUS_URL", url.as_str()),
            ("PEERBUS_TOKEN", TOKEN),
            secret,
        ];
        command.env_clear().env("HOME", home.path()).envs(env);
        command
    };
    let server = std::env::current_exe()?;
    let shared = Shared::start(&mut peerbus(), &server)?;
    let mut direct = Client::start(Command::new(&server).arg("--echo"))?;
    let mut over = peerbus();
    let mut over = Client::start(over.args(["mcp", "use", "mcp://host/echo"]))?;

    let count = bench.count(CALLS);
    let pids = [broker.pid(), shared.0.id(), over.child.id()];
    let (mut alone, mut bus, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut cost, mut disk, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.runs {
        let near = direct.calls(count)?;
        let before = (busy(&pids)?, written(broker.pid())?);
        let far = over.calls(count)?;
        let each = |of: f64| of / count as f64 * 1e3;
        cost.push(each((busy(&pids)? - before.0).as_secs_f64() * 1e3));
        disk.push(each((written(broker.pid())? - before.1) as f64 / 1e6));
        let half = near.len() / 2;
        alone.push(near[half]);
        bus.push(far[half]);
        ratios.push(far[half] - near[half]);
        let took = over.calls_at_once(count)?;
        rates.push(count as f64 / took.as_secs_f64());
    }
    let report = &mut bench.report;
    report.add("a call of an MCP server, p50", "ms", alone, Bar::None);
    report.add(
        "the same over a side channel, p50",
        "ms",
        bus,
        Bar::AtMost(3.0),
    );
    report.add("what the channel adds, p50", "ms", ratios, Bar::None);
    report.add(
        "1,000 calls, processor time of broker, host and user",
        "ms",
        cost,
        Bar::None,
    );
    report.add("1,000 calls, written to the disk", "MB", disk, Bar::None);
    report.add("calls, eight at once", "/s", rates, Bar::None);
    drop((over, shared));
    broker.stop()
}

/// Processor time of some processes.
fn busy(pids: &[u32]) -> Result<Duration> {
    pids.iter().map(|pid| Ok(cpu(*pid)?.all)).sum()
}

/// Bytes that a process has had written to the disk.
fn written(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.context("no count of bytes")?.parse()?)
}
