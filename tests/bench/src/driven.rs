//! An agent that is driven: from a message to its prompt, and what driver and guard cost while it rests.

use std::io::{Write, stdin, stdout};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::Bench;
use crate::load::send_all;
use crate::peer::{Peer, Speech, envelope};
use crate::process::{Broker, TOKEN, cpu, pss};
use crate::report::Bar;

/// The variable in which the agent reads whom to tell that it has a prompt.
const TOLD: &str = "PEERBUS_BENCH_TOLD";
/// The driver gathers for so long what comes after a prompt.
const GAP: Duration = Duration::from_millis(2_100);
const WITHIN: Duration = Duration::from_secs(20);

/// Is the agent: it answers each prompt at once.
pub(crate) fn agent() -> Result<()> {
    let told = UnixDatagram::unbound()?;
    let path = std::env::var(TOLD)?;
    for line in stdin().lines() {
        let asked: Value = serde_json::from_str(&line?)?;
        let result = match asked["method"].as_str() {
            Some("initialize") => json!({ "protocolVersion": 1, "agentCapabilities": {} }),
            Some("session/new") => json!({ "sessionId": "s" }),
            Some("session/prompt") => {
                told.send_to(b"prompt", &path)?;
                let words = json!({ "sessionUpdate": "agent_message_chunk", "messageId": "m",
                    "content": { "type": "text", "text": "read" } });
                let params = json!({ "sessionId": "s", "update": words });
                let said =
                    json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
                writeln!(stdout(), "{said}")?;
                json!({ "stopReason": "end_turn" })
            }
            _ => continue,
        };
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
        writeln!(stdout(), "{answer}")?;
    }
    Ok(())
}

pub(crate) async fn prompts_and_rest(bench: &mut Bench) -> Result<()> {
    let home = bench.home()?;
    let broker = Broker::start(&bench.binary, home.path(), "127.0.0.1:0")?;
    let path = home.path().join("told");
    let told = UnixDatagram::bind(&path)?;
    told.set_read_timeout(Some(WITHIN))?;
    // The name is known before the driver has it.
    drop(Peer::join(broker.address, TOKEN, "driven", Speech::Ext).await?);
    let mut driver = Command::new(&bench.binary)
        .args(["run", "--acp", "--name", "driven", "--"])
        .arg(std::env::current_exe()?)
        .arg("--agent")
        .env_clear()
        .env("HOME", home.path())
        .env(TOLD, &path)
        .env("PEERBUS_URL", format!("ws://{}", broker.address))
        .env("PEERBUS_TOKEN", TOKEN)
        .env("PEERBUS_HMAC_SECRET", "a secret for benches, 32 bytes long")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut sender = Peer::join(broker.address, TOKEN, "sender", Speech::Ext).await?;
    let mut took = Vec::new();
    for number in 0..if bench.quick { 2 } else { 20 } {
        let frame = envelope("sender", "driven", 0, number, crate::BODY_BYTES);
        let start = Instant::now();
        sender = send_all(sender, vec![frame]).await?;
        told.recv(&mut [0; 16]).context("no prompt came")?;
        // The first waits for the driver's start.
        if number > 0 {
            took.push(start.elapsed().as_secs_f64() * 1e3);
        }
        tokio::time::sleep(GAP).await;
    }
    let what = "driven agent, from a message to its prompt";
    bench.report.add(what, "ms", took, Bar::AtMost(10.0));
    rest(bench, &driver).await?;
    kill_process(Pid::from_child(&driver), Signal::TERM)?;
    ensure!(driver.wait()?.success(), "the driver did not end well");
    broker.stop()
}

/// What driver and guard take while nothing happens.
async fn rest(bench: &mut Bench, driver: &Child) -> Result<()> {
    let id = driver.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    let children = children.split_whitespace().map(str::parse);
    let both: Vec<u32> = [Ok(id)]
        .into_iter()
        .chain(children)
        .collect::<Result<_, _>>()?;
    ensure!(both.len() == 2, "a driver has one guard: {both:?}");
    let all = |of: &dyn Fn(u32) -> Result<f64>| both.iter().map(|id| of(*id)).sum::<Result<f64>>();
    let memory = all(&|id| Ok(pss(id)? as f64 / 1e6))?;
    let what = "driver and guard, memory (Pss)";
    bench
        .report
        .add(what, "MB", vec![memory], Bar::AtMost(12.0));
    let used = |id| Ok(cpu(id)?.all.as_secs_f64());
    let before = all(&used)?;
    let pause = Duration::from_secs(if bench.quick { 1 } else { 10 });
    tokio::time::sleep(pause).await;
    let share = (all(&used)? - before) / pause.as_secs_f64() * 100.0;
    let what = "driver and guard, of a core while idle";
    bench.report.add(what, "%", vec![share], Bar::AtMost(1.0));
    Ok(())
}
