//! A session that is watched: what the subscribers of its node cost the calls of its agent.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::Bench;
use crate::adapter::{end, start};
use crate::limits::median;
use crate::process::Broker;
use crate::report::Bar;

/// Programs that watch: with the one that puts texts in, as many as a node lets in.
const WATCHERS: usize = 15;
/// Rounds without them; as many with them lie between.
const ROUNDS: usize = 9;
/// An agent thinks between two calls, in fact much longer.
const PAUSE: Duration = Duration::from_millis(5);

/// Turns of a session while many watch it, against turns while nobody does. In each call the agent
/// takes a text that was put in a moment ago.
pub(crate) fn by_many(bench: &mut Bench) -> Result<()> {
    let home = bench.home()?;
    let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
    let url = format!("ws://{}", broker.address);
    let (mut adapter, _) = start(bench, home.path(), &url, "generic")?;
    let mut session = Session::of(&mut adapter, home.path())?;
    // More events than a node keeps: whoever comes later has much to read.
    session.turn(bench.count(1_000), Duration::ZERO)?;
    let calls = bench.count(100);
    for (readers, who) in [(0, "15 that never read"), (WATCHERS, "15 that read")] {
        let (mut turns, mut waits) = (Vec::new(), Vec::new());
        let mut events = Vec::new();
        for _ in 0..if bench.quick { 1 } else { ROUNDS } {
            let alone = session.turn(calls, PAUSE)?;
            let watchers = Watchers::begin(&session.socket, readers)?;
            let watched = session.turn(calls, PAUSE)?;
            events.push(watchers.end()? as f64);
            turns.push(watched.whole.as_secs_f64() / alone.whole.as_secs_f64());
            waits.push(watched.call.as_secs_f64() / alone.call.as_secs_f64());
        }
        let report = &mut bench.report;
        let what = format!("a turn watched by {who} / alone");
        report.add(&what, "x", turns, Bar::AtMost(1.3));
        let (what, bar) = match readers {
            0 => ("its calls, p50 / p50 alone", Bar::AtMost(1.5)),
            _ => ("its calls, p50 / p50 alone, with readers", Bar::None),
        };
        report.add(what, "x", waits, bar);
        if readers > 0 {
            report.add("events that they read in a turn", "", events, Bar::None);
        }
    }
    end(&mut adapter)?;
    broker.stop()
}

/// How long a turn took, and the calls in it, as their median.
struct Took {
    whole: Duration,
    call: Duration,
}

/// A session, its agent, and a program that puts texts in.
struct Session<'a> {
    adapter: &'a mut Child,
    answers: BufReader<ChildStdout>,
    socket: PathBuf,
    program: BufReader<UnixStream>,
    calls: u64,
}

impl<'a> Session<'a> {
    fn of(adapter: &'a mut Child, home: &Path) -> Result<Self> {
        let stdout = adapter.stdout.take().context("no stdout")?;
        let name = format!("0.{}.sock", adapter.id());
        let socket = home.join(".local/state/peerbus/sessions").join(name);
        let program = UnixStream::connect(&socket)?;
        Ok(Self {
            adapter,
            answers: BufReader::new(stdout),
            socket,
            program: BufReader::new(program),
            calls: 100,
        })
    }

    /// So many texts that are put in and drained, one by one.
    fn turn(&mut self, calls: u64, pause: Duration) -> Result<Took> {
        let began = Instant::now();
        let mut times = Vec::new();
        for _ in 0..calls {
            times.push(self.call()?);
            // tidy: allow sleep, because an agent thinks between its calls
            std::thread::sleep(pause);
        }
        let (whole, call) = (began.elapsed(), median(times));
        Ok(Took { whole, call })
    }

    /// Gives the time until the result.
    fn call(&mut self) -> Result<Duration> {
        self.calls += 1;
        let id = self.calls;
        writeln!(
            self.program.get_mut(),
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/inject","params":{{"prompt":"text {id}"}}}}"#
        )?;
        let put = answer(&mut self.program, id)?;
        ensure!(put.contains(r#""accepted":true"#), "{put}");
        let stdin = self.adapter.stdin.as_mut().context("no stdin")?;
        let began = Instant::now();
        writeln!(
            stdin,
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"bus.drain","arguments":{{}}}}}}"#
        )?;
        let drained = answer(&mut self.answers, id)?;
        let time = began.elapsed();
        ensure!(drained.contains(&format!("text {id}")), "{drained}");
        Ok(time)
    }
}

/// The answer to a request.
fn answer(lines: &mut impl BufRead, id: u64) -> Result<String> {
    let mut line = String::new();
    loop {
        line.clear();
        ensure!(lines.read_line(&mut line)? > 0, "the adapter ended");
        let said: serde_json::Value = serde_json::from_str(&line)?;
        if said["id"] == id {
            return Ok(line);
        }
    }
}

/// Programs that watch, from the oldest event that is kept on.
struct Watchers {
    over: Arc<AtomicBool>,
    read: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// Those that never read.
    _stuck: Vec<UnixStream>,
}

impl Watchers {
    fn begin(socket: &Path, readers: usize) -> Result<Self> {
        let stuck: Result<Vec<_>> = (readers..WATCHERS).map(|_| subscribed(socket)).collect();
        let (over, read) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut threads = Vec::new();
        for _ in 0..readers {
            let stream = subscribed(socket)?;
            stream.set_read_timeout(Some(Duration::from_millis(100)))?;
            let (over, read) = (Arc::clone(&over), Arc::clone(&read));
            threads.push(std::thread::spawn(move || {
                follow(&mut BufReader::new(stream), &over, &read)
            }));
        }
        Ok(Self {
            over,
            read,
            threads,
            _stuck: stuck?,
        })
    }

    /// Gives how many events they read.
    fn end(self) -> Result<u64> {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            match thread.join() {
                Ok(followed) => followed?,
                Err(_) => anyhow::bail!("a watcher panicked"),
            }
        }
        Ok(self.read.load(Ordering::Relaxed))
    }
}

fn subscribed(socket: &Path) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    writeln!(
        stream,
        r#"{{"jsonrpc":"2.0","id":1,"method":"session/subscribe","params":{{"since":0}}}}"#
    )?;
    Ok(stream)
}

fn follow(stream: &mut impl BufRead, over: &AtomicBool, read: &AtomicU64) -> Result<()> {
    let mut line = Vec::new();
    loop {
        match stream.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                read.fetch_add(1, Ordering::Relaxed);
                line.clear();
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if over.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}
