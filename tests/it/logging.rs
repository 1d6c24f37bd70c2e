//! Logs that nobody reads or that cannot be written: they change nothing.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use peerbus_test_support::message::envelope;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;

use crate::support::{Broker, Home, Mcp, PATIENCE, Raw, eventually};

const WRONG_SECRET: &str = "not the secret that the adapters share";
/// Ten times the second that the last lines of a broker may take.
const STOPPED: Duration = Duration::from_secs(10);
/// Ten times the 100 ms in which an adapter must be gone.
const GONE: Duration = Duration::from_secs(1);

/// A log that takes nothing.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    /// A pipe that is full and that nobody reads.
    Unread,
    /// A pipe whose reader goes.
    ReaderGone,
    /// A full disk.
    Full,
    /// A terminal in which Ctrl-S was typed.
    Stopped,
}

const TROUBLES: [Trouble; 4] = [
    Trouble::Unread,
    Trouble::ReaderGone,
    Trouble::Full,
    Trouble::Stopped,
];

struct Log {
    path: PathBuf,
    /// What makes it what it is, as long as it is kept.
    held: Vec<OwnedFd>,
}

impl Log {
    fn new(home: &Home, trouble: Trouble) -> Self {
        match trouble {
            Trouble::Full => Self {
                path: "/dev/full".into(),
                held: Vec::new(),
            },
            Trouble::Stopped => terminal(),
            Trouble::Unread | Trouble::ReaderGone => {
                let path = home.path().join(format!("{trouble:?}"));
                let made = Command::new("mkfifo").arg(&path).status();
                assert!(made.expect("mkfifo is there").success());
                let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
                let mut pipe = File::options()
                    .read(true)
                    .write(true)
                    .custom_flags(nonblocking)
                    .open(&path)
                    .expect("the pipe");
                if matches!(trouble, Trouble::Unread) {
                    while pipe.write(&[b'x'; 4_096]).is_ok() {}
                }
                let held = vec![pipe.into()];
                Self { path, held }
            }
        }
    }

    /// A command that has it as its stderr.
    fn of(&self, home: &Home, args: &[&str]) -> Command {
        let mut command = home.command("sh");
        command.args(["-c", "log=$1; shift; exec \"$0\" \"$@\" 2>\"$log\""]);
        command.arg(env!("CARGO_BIN_EXE_peerbus"));
        command.arg(&self.path).args(args);
        command
    }
}

/// The other end of a terminal whose output is stopped.
fn terminal() -> Log {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("ours");
    unlockpt(&master).expect("ours");
    let name = ptsname(&master, Vec::new()).expect("a name");
    let path = PathBuf::from(name.into_string().expect("a path"));
    let slave = File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NOCTTY.bits().cast_signed())
        .open(&path);
    rustix::io::write(&master, b"\x13").expect("Ctrl-S");
    Log {
        path,
        held: vec![master, slave.expect("its other end").into()],
    }
}

/// A process that is killed when dropped.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("it starts"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("our child");
    }

    fn wait(&mut self) -> ExitStatus {
        eventually("it ends", || self.0.try_wait().expect("our child"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A broker of a home whose address its log does not tell.
struct Silent {
    process: Process,
    socket: PathBuf,
}

impl Silent {
    const ARGS: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--socket", "bus.sock"];

    fn start(home: &Home, command: &mut Command) -> Self {
        let process = Process::start(command);
        let socket = home.path().join("bus.sock");
        let silent = Self { process, socket };
        eventually("the broker serves", || silent.serves(home).then_some(()));
        silent
    }

    /// Whether a peer can register and ask.
    fn serves(&self, home: &Home) -> bool {
        let url = format!("unix:{}", self.socket.display());
        home.run(&["peers", "--timeout", "1", "--url", &url]).code == Some(0)
    }

    fn metrics(&self) -> String {
        let mut socket = UnixStream::connect(&self.socket).expect("the broker listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = "GET /metrics HTTP/1.1\r\nHost: bus\r\nConnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("it answers");
        answer
    }
}

/// SIGHUP; SIGTERM where whoever runs the tests ignores that one, as `nohup` does, because the
/// programs that are tested inherit it.
fn hangup() -> Signal {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.expect("a mask").trim(), 16).expect("hexadecimal");
    match mask & (1 << (Signal::HUP.as_raw() - 1)) {
        0 => Signal::HUP,
        _ => Signal::TERM,
    }
}

#[test]
fn a_broker_whose_log_takes_nothing_serves_and_stops_when_told() {
    let signals = [Signal::TERM, Signal::INT, hangup(), Signal::TERM];
    for (trouble, signal) in TROUBLES.into_iter().zip(signals) {
        let home = Home::new();
        let mut log = Log::new(&home, trouble);
        let mut broker = Silent::start(&home, &mut log.of(&home, &Silent::ARGS));
        if matches!(trouble, Trouble::ReaderGone) {
            log.held.clear();
        }
        assert!(broker.serves(&home), "{trouble:?}");
        assert!(broker.serves(&home), "{trouble:?}");
        if matches!(trouble, Trouble::Full) {
            eventually("the lost lines are counted", || {
                let lost = "peerbus_log_lines_lost_total ";
                let metrics = broker.metrics();
                let count = metrics.lines().find_map(|line| line.strip_prefix(lost));
                (count.expect("a metric") != "0").then_some(())
            });
        }
        let start = Instant::now();
        broker.process.signal(signal);
        let status = broker.process.wait();
        assert!(status.success(), "{trouble:?}: {status}");
        assert!(
            start.elapsed() < STOPPED,
            "{trouble:?}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_pipe_that_is_read_late_still_gets_the_lines() {
    let home = Home::new();
    let log = Log::new(&home, Trouble::Unread);
    let mut broker = Silent::start(&home, &mut log.of(&home, &Silent::ARGS));
    let reader = File::open(&log.path).expect("the pipe");
    drop(log.held);
    let lines = crate::support::Lines::of(reader);
    lines.find("what it said first", |line| {
        line.contains("listening on ws://").then_some(())
    });
    broker.process.signal(Signal::TERM);
    lines.find("what it said last", |line| {
        (line == "stopped; everything accepted is on disk").then_some(())
    });
    assert!(broker.process.wait().success());
}

#[test]
fn an_adapter_whose_log_takes_nothing_goes_on_and_ends_when_told() {
    for (adapter, trouble) in ["cc", "generic"]
        .into_iter()
        .flat_map(|adapter| TROUBLES.map(|trouble| (adapter, trouble)))
    {
        let home = Home::new();
        let broker = Broker::start(&home);
        let secret = home.credential("hmac_secret");
        let mut log = Log::new(&home, trouble);
        let args = ["adapter", "--adapter", adapter, "--name", "bob"];
        let mut bob = Mcp::spawn(&mut log.of(&home, &args));
        bob.initialize("some-bot");
        bob.call("bus.peers", json!({}));
        if matches!(trouble, Trouble::ReaderGone) {
            log.held.clear();
        }
        let mut eve = Raw::register(&home, &broker, "eve");
        eve.say(&envelope(WRONG_SECRET, "bad", "eve", "bob", r#""evil""#));
        eve.say(&envelope(&secret, "good", "eve", "bob", r#""good""#));
        let read = eventually("the good one arrives", || {
            let read = bob.call("bus.inbox", json!({}));
            (read["messages"] != json!([])).then_some(read)
        });
        assert_eq!(read["messages"][0]["id"], "good", "{adapter} {trouble:?}");
        let start = Instant::now();
        kill_process(bob.pid(), hangup()).expect("our child");
        let status = bob.wait();
        assert!(status.success(), "{adapter} {trouble:?}: {status}");
        assert!(
            start.elapsed() < GONE,
            "{adapter} {trouble:?}: {:?}",
            start.elapsed()
        );
        broker.stop();
    }
}

#[test]
fn what_strangers_bring_about_is_logged_in_part_with_its_number() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for _ in 0..60 {
        let mut stranger = Raw::connect(&broker);
        stranger.say(r#"{"protocol_version":"v1","type":"peers"}"#);
        stranger.hear();
    }
    let log = broker.stop_and_read();
    let has = |text: &str| log.iter().filter(|line| line.contains(text)).count();
    assert!((10..60).contains(&has("peer denied")), "{log:#?}");
    assert!(
        has("peers denied: not logged one by one more=") > 0,
        "{log:#?}"
    );
}

#[test]
fn messages_that_fail_verification_are_logged_once_with_their_number() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let secret = home.credential("hmac_secret");
    let log = Log {
        path: home.path().join("log"),
        held: Vec::new(),
    };
    let args = ["adapter", "--adapter", "generic", "--name", "bob"];
    let mut bob = Mcp::spawn(&mut log.of(&home, &args));
    bob.initialize("some-bot");
    bob.call("bus.peers", json!({}));
    let mut eve = Raw::register(&home, &broker, "eve");
    for n in 0..100 {
        let id = format!("bad-{n}");
        eve.say(&envelope(WRONG_SECRET, &id, "eve", "bob", r#""evil""#));
        eve.receipt("dead");
    }
    eve.say(&envelope(&secret, "good", "eve", "bob", r#""good""#));
    eventually("the good one arrives", || {
        let read = bob.call("bus.inbox", json!({}));
        (read["messages"] != json!([])).then_some(())
    });
    assert!(bob.close().success());
    let said = fs::read_to_string(&log.path).expect("a log");
    assert_eq!(said.matches("failed verification").count(), 1, "{said}");
    broker.stop();
}

#[test]
fn a_broker_started_by_nohup_outlives_its_terminal() {
    let home = Home::new();
    let mut command = home.command("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    command
        .arg(env!("CARGO_BIN_EXE_peerbus"))
        .args(Silent::ARGS);
    let mut broker = Silent::start(&home, command.stderr(Stdio::null()));
    broker.process.signal(Signal::HUP);
    assert!(broker.serves(&home));
    broker.process.signal(Signal::TERM);
    assert!(broker.process.wait().success());
}

#[test]
fn a_limit_of_file_sizes_ends_a_broker_with_a_sentence() {
    let home = Home::new();
    let mut command = home.command("sh");
    command.args(["-c", "ulimit -f 600; exec \"$0\" \"$@\""]);
    command
        .arg(env!("CARGO_BIN_EXE_peerbus"))
        .args(Silent::ARGS);
    let mut broker = Silent::start(&home, command.stderr(Stdio::piped()));
    let url = format!("unix:{}", broker.socket.display());
    let body = "x".repeat(100_000);
    // 600 blocks are at most 600 KiB.
    for _ in 0..20 {
        let args = [
            "send",
            "--timeout",
            "1",
            "--url",
            &url,
            "--name",
            "ann",
            "ann",
            &body,
        ];
        if home.run(&args).code != Some(0) {
            break;
        }
    }
    let status = broker.process.wait();
    let mut said = String::new();
    let stderr = broker.process.0.stderr.take();
    stderr
        .expect("a pipe")
        .read_to_string(&mut said)
        .expect("text");
    assert_eq!(status.code(), Some(1), "{status}\n{said}");
    assert!(said.contains("what was accepted is on disk"), "{said}");
}

#[test]
fn a_log_filter_that_is_none_is_named_and_the_default_is_used() {
    let home = Home::new();
    let output = home
        .peerbus(&["keygen"])
        .env("PEERBUS_LOG", "a=b=c")
        .output();
    let output = output.expect("peerbus starts");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("peerbus: PEERBUS_LOG=\"a=b=c\" is no log filter"),
        "{said}"
    );
}

/// A pipe that is full and that nobody reads, as a program's standard output.
fn unread() -> (std::io::PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe");
    while writer.write(&[b'x'; 4_096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a pipe");
    (reader, writer.into())
}

#[test]
fn what_listens_ends_when_told_though_nobody_reads_what_it_writes() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (reader, output) = unread();
    let mut command = home.peerbus(&["recv", "--name", "bob"]);
    let mut recv = Process::start(command.stdout(output));
    eventually("bob listens", || {
        home.run(&["peers"]).ok().contains("bob").then_some(())
    });
    home.run(&["send", "bob", "for nobody"]).ok();
    eventually("it has come", || {
        home.run(&["inbox", "bob"])
            .ok()
            .contains("got it")
            .then_some(())
    });
    recv.signal(Signal::TERM);
    let began = Instant::now();
    recv.wait();
    assert!(began.elapsed() < STOPPED, "{:?}", began.elapsed());
    drop(reader);
    assert!(
        home.run(&["inbox", "bob"]).ok().contains("for nobody"),
        "it is owed still"
    );
    broker.stop();
}

#[test]
fn what_shares_goes_on_though_nobody_reads_what_it_says() {
    const SERVER: &str = "import json, sys\n\
        for line in sys.stdin:\n \
        asked = json.loads(line)\n \
        if 'id' in asked: print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': \
        {'protocolVersion': '2025-06-18', 'capabilities': {'tools': {}}, 'serverInfo': {}, 'content': []}}), flush=True)";
    let home = Home::new();
    let broker = Broker::start(&home);
    let log = Log::new(&home, Trouble::Unread);
    let words = "mcp share files --allow serverTools --to * --name host --";
    let words: Vec<_> = words.split(' ').chain(["python3", "-c", SERVER]).collect();
    let mut share = Process::start(&mut log.of(&home, &words));
    eventually("it is shared", || {
        home.run(&["mcp", "list"])
            .ok()
            .contains("mcp://host/files/")
            .then_some(())
    });
    let mut user =
        Mcp::spawn(&mut home.peerbus(&["mcp", "use", "mcp://host/files", "--name", "dev"]));
    user.initialize("some-client");
    for _ in 0..3 {
        let answer = user.request("tools/call", json!({ "name": "q" }));
        assert!(answer["content"].is_array(), "{answer}");
    }
    share.signal(Signal::TERM);
    let began = Instant::now();
    share.wait();
    assert!(began.elapsed() < STOPPED, "{:?}", began.elapsed());
    broker.stop();
}

#[test]
fn signals_that_were_blocked_where_it_was_started_end_it_all_the_same() {
    const BLOCKED: &str = "import os, signal, sys\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])\n\
        os.execv(sys.argv[1], sys.argv[1:])";
    let home = Home::new();
    let program = env!("CARGO_BIN_EXE_peerbus");
    let blocked = |args: &[&str]| {
        let mut command = home.command("python3");
        command.args(["-c", BLOCKED, program]).args(args);
        command
    };
    let mut broker = Broker::spawn(&mut blocked(&["serve", "--listen", "127.0.0.1:0"]));
    let mut recv = Process::start(blocked(&["recv", "--name", "bob"]).stdout(Stdio::null()));
    eventually("bob listens", || {
        home.run(&["peers"]).ok().contains("bob").then_some(())
    });
    recv.signal(Signal::TERM);
    recv.wait();
    assert!(!broker.is_gone());
    broker.stop();
}
