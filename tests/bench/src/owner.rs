//! What an owner's machine costs while nothing happens: sessions that idle, their broker, and an open page.

use std::fs::read_to_string;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::Bench;
use crate::adapter::{belongs, end, meet};
use crate::process::{Broker, cpu};
use crate::report::Bar;

const SESSIONS: usize = 10;
/// Stands for Claude Code with the hooks of `peerbus install`: it tells of itself in a file, and runs an adapter
/// and a hook that waits.
const CLIENT: &str = r#"
    about="\"session_id\":\"session-$$\",\"cwd\":\"$HOME\""
    printf '{"pid":%s,"sessionId":"session-%s","cwd":"%s","status":"idle"}' $$ $$ "$HOME" >"$HOME/.claude/sessions/$$.json"
    exec 3<&0
    "$0" adapter --adapter cc <&3 3<&- &
    printf '{"hook_event_name":"SessionStart","source":"startup",%s}' "$about" |
        CLAUDE_CODE_ENTRYPOINT=cli "$0" hook wait >/dev/null 3<&- &
    exec <&- 3<&-
    wait"#;
/// What belongs to the start is over.
const SETTLES: Duration = Duration::from_secs(5);

pub(crate) async fn idle(bench: &mut Bench) -> Result<()> {
    let home = bench.home()?;
    let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
    let url = format!("ws://{}", broker.address);
    std::fs::create_dir_all(home.path().join(".claude/sessions"))?;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let mut client = Command::new("sh");
        client.args(["-c", CLIENT]).arg(&bench.binary);
        sessions.push(meet(belongs(&mut client, home.path(), &url))?.0);
    }
    let mut gateway = Command::new(&bench.binary);
    gateway.args(["web", "--open", "--listen", "127.0.0.1:0"]);
    let mut gateway = belongs(&mut gateway, home.path(), &url).spawn()?;
    let page = open(&mut gateway)?;
    let told = std::thread::spawn(move || page.bytes().map_while(Result::ok).count());
    tokio::time::sleep(SETTLES).await;
    let mut all = vec![broker.pid(), gateway.id()];
    for session in &sessions {
        let below = below(session.id())?;
        ensure!(below.len() >= 2, "no adapter and hook: {below:?}");
        all.extend(below);
    }
    let used = || {
        let each = all.iter().map(|id| Ok(cpu(*id)?.all.as_secs_f64()));
        each.sum::<Result<f64>>()
    };
    let before = used()?;
    let pause = Duration::from_secs(if bench.quick { 1 } else { 60 });
    tokio::time::sleep(pause).await;
    let share = (used()? - before) / pause.as_secs_f64() * 100.0;
    let what = "ten idle sessions, broker, gateway and an open page, of a core";
    bench.report.add(what, "%", vec![share], Bar::AtMost(0.5));
    for session in &mut sessions {
        end(session)?;
    }
    kill_process(Pid::from_child(&gateway), Signal::TERM)?;
    ensure!(gateway.wait()?.success(), "the gateway did not end well");
    ensure!(told.join().is_ok_and(|bytes| bytes > 0), "no page");
    broker.stop()
}

/// Opens the page of a gateway, as a browser does, until it was told of all sessions.
fn open(gateway: &mut Child) -> Result<BufReader<TcpStream>> {
    let mut link = String::new();
    let stdout = gateway.stdout.as_mut().context("no stdout")?;
    BufReader::new(stdout).read_line(&mut link)?;
    let link = link.trim().strip_prefix("http://").context("no link")?;
    let (address, word) = link.split_once('/').context("no path")?;
    let ask = |path: &str, headers: &str| -> Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        write!(
            stream,
            "GET /{path} HTTP/1.0\r\nHost: {address}\r\n{headers}\r\n"
        )?;
        Ok(stream)
    };
    let mut opened = String::new();
    ask(word, "")?.read_to_string(&mut opened)?;
    let part = |before: &str, end: char| {
        let (_, rest) = opened.split_once(before).context("it does not open")?;
        rest.split(end).next().context("nothing")
    };
    let (cookie, key) = (
        part("set-cookie: ", ';')?,
        part(r#"name="key" content=""#, '"')?,
    );
    let headers = format!("Cookie: {cookie}\r\nX-Peerbus-Key: {key}\r\n");
    let mut page = BufReader::new(ask("dashboard/live", &headers)?);
    let mut line = String::new();
    while !line.starts_with("data: {\"sessions\"")
        || line.matches(r#""state":"idle""#).count() < SESSIONS
    {
        line.clear();
        ensure!(page.read_line(&mut line)? > 0, "the page is closed");
    }
    Ok(page)
}

/// The programs below a process.
fn below(id: u32) -> Result<Vec<u32>> {
    let children = read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    let mut found = Vec::new();
    for child in children.split_whitespace() {
        let child = child.parse()?;
        found.push(child);
        found.extend(below(child)?);
    }
    Ok(found)
}
