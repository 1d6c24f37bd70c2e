//! Agents behind real adapters: they send and read as models do, and begin anew when their process
//! has died.

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use peerbus_test_support::message::envelope;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::history::{Kind, Shown};
use super::wire::Wire;
use super::world::{Victim, World};
use crate::support::{Mcp, PATIENCE, eventually};

/// Sends that an adapter has under way at once.
const PIPELINE: usize = 8;
/// How long an agent looks at its client's output before it looks what else there is to do.
const LOOK: Duration = Duration::from_millis(50);

/// Starts an adapter and greets it. `victim` is who may be killed.
fn start(world: &World, kind: &str, name: &str, victim: &Victim) -> Mcp {
    let mut mcp = Mcp::spawn(&mut world.adapter(kind, name));
    victim.set(mcp.pid());
    mcp.ask(
        "initialize",
        json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "chaos", "version": "1" },
        }),
    );
    mcp.notify("notifications/initialized");
    mcp
}

/// The next message; `Err` when the process has died, or all is over.
fn next(world: &World, mcp: &mut Mcp) -> Result<Option<Value>, ()> {
    match mcp.poll(LOOK) {
        Ok(message) => Ok(Some(message)),
        Err(RecvTimeoutError::Timeout) if !world.is_over() => Ok(None),
        Err(_) => Err(()),
    }
}

/// Keeps a pipeline of sends full until sending is over.
pub(crate) fn send(world: &World, name: &'static str, victim: &Victim, to: &[&'static str]) {
    let mut number = 0;
    while !world.sending_is_over() {
        let mut mcp = start(world, "generic", name, victim);
        // A process that died told nothing of what was under way.
        let _ = send_on(world, name, &mut mcp, to, &mut number);
    }
}

fn send_on(
    world: &World,
    name: &str,
    mcp: &mut Mcp,
    to: &[&'static str],
    number: &mut u64,
) -> Result<(), ()> {
    let mut under_way = BTreeMap::new();
    let mut last = Instant::now();
    loop {
        let stopping = world.sending_is_over();
        while !stopping && under_way.len() < PIPELINE {
            *number += 1;
            let to = to[usize::try_from(*number).unwrap_or(0) % to.len()];
            world.history.sending(name, *number, to, Kind::Honest);
            let body = json!({ "text": number.to_string() });
            let id = mcp.ask_tool("bus.send", json!({ "to": to, "body": body }));
            under_way.insert(id, to);
        }
        // What nobody answers in the end was not accepted.
        if stopping && (under_way.is_empty() || last.elapsed() > PATIENCE) {
            return Ok(());
        }
        let Some(message) = next(world, mcp)? else {
            continue;
        };
        let Some(to) = message["id"].as_u64().and_then(|id| under_way.remove(&id)) else {
            continue;
        };
        last = Instant::now();
        let result = &message["result"]["structuredContent"];
        if result["status"] == "accepted" {
            let id = result["id"].as_str().expect("an id");
            world.history.accepted(name, id, to);
        }
        // The machine has others to serve.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Calls the drain tool over and over, and names some of what it reads.
pub(crate) fn drain(world: &World, name: &'static str, victim: &Victim, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    while !world.is_over() {
        let mut mcp = start(world, "generic", name, victim);
        let process = world.history.process(name);
        let _ = drain_on(world, name, &mut mcp, process, &mut rng);
    }
}

fn drain_on(
    world: &World,
    name: &str,
    mcp: &mut Mcp,
    process: u64,
    rng: &mut StdRng,
) -> Result<(), ()> {
    loop {
        let result = call(world, mcp, "bus.drain", json!({}))?;
        let messages = drained(&result);
        for shown in messages.iter().chain(&along(&result)) {
            world.history.show(name, process, shown, true);
        }
        let named = messages.iter().filter(|_| rng.random_ratio(1, 3));
        let named: Vec<_> = named.map(|shown| shown.id.as_str()).collect();
        for id in &named {
            world.history.naming(name, id);
        }
        if !named.is_empty() {
            let result = call(world, mcp, "bus.ack", json!({ "ids": named }))?;
            for shown in along(&result) {
                world.history.show(name, process, &shown, true);
            }
        }
        if messages.is_empty() {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

/// The messages in an answer of the drain tool.
fn drained(result: &Value) -> Vec<Shown> {
    let messages = result["structuredContent"]["messages"].as_array();
    let shown = |message: &Value| {
        let text = |member: &str| message[member].as_str().unwrap_or_default().to_owned();
        let number = message["body"]["text"].as_str();
        Shown {
            from: text("from"),
            id: text("id"),
            number: number.and_then(|text| text.parse().ok()),
            repeat: message["shown_before"] == true,
        }
    };
    messages.into_iter().flatten().map(shown).collect()
}

/// Messages that go along with the result of a tool call, whatever came of it: in its texts, behind
/// the first one, which is its own.
fn along(result: &Value) -> Vec<Shown> {
    let texts = result["content"].as_array().into_iter().flatten().skip(1);
    let texts = texts.filter_map(|content| content["text"].as_str());
    texts.flat_map(lines).collect()
}

/// Calls a tool and waits for its result, as long as it takes: the process may be suspended.
fn call(world: &World, mcp: &mut Mcp, tool: &str, arguments: Value) -> Result<Value, ()> {
    let call = mcp.ask_tool(tool, arguments);
    loop {
        let Some(mut message) = next(world, mcp)? else {
            continue;
        };
        if message["id"] == json!(call) {
            return Ok(message["result"].take());
        }
    }
}

/// Takes channel pushes, and reads what waits besides as an agent does that a push woke.
pub(crate) fn wake(world: &World, name: &'static str, victim: &Victim) {
    while !world.is_over() {
        let mut mcp = start(world, "cc", name, victim);
        let process = world.history.process(name);
        let _ = wake_on(world, name, &mut mcp, process);
    }
}

fn wake_on(world: &World, name: &str, mcp: &mut Mcp, process: u64) -> Result<(), ()> {
    let mut reading = None;
    loop {
        let Some(message) = next(world, mcp)? else {
            continue;
        };
        let (shown, more) = if reading.is_some_and(|call| message["id"] == json!(call)) {
            let result = &message["result"];
            let answer = &result["structuredContent"];
            reading = None;
            let shown = read(answer).into_iter().chain(along(result)).collect();
            (shown, answer["remaining"] != json!(0))
        } else if message["method"] == "notifications/claude/channel" {
            let shown = pushed(&message["params"]);
            let any = !shown.is_empty();
            (shown, any)
        } else {
            continue;
        };
        for one in &shown {
            world.history.show(name, process, one, false);
        }
        if more && reading.is_none() {
            reading = Some(mcp.ask_tool("bus.inbox", json!({})));
        }
    }
}

/// The messages in an answer of the inbox tool.
fn read(answer: &Value) -> Vec<Shown> {
    let messages = answer["messages"].as_array().cloned().unwrap_or_default();
    let text = |message: &Value, member: &str| {
        let value = message[member].as_str();
        value.unwrap_or_else(|| panic!("{message}")).to_owned()
    };
    let shown = |message: &Value| Shown {
        from: text(message, "from"),
        id: text(message, "id"),
        number: text(message, "text").parse().ok(),
        repeat: message["shown_before"] == true,
    };
    messages.iter().map(shown).collect()
}

/// The messages in a push: one in its attributes, or several on a line each.
fn pushed(params: &Value) -> Vec<Shown> {
    let (content, meta) = (
        params["content"].as_str().expect("content"),
        &params["meta"],
    );
    if let (Some(from), Some(id)) = (meta["from"].as_str(), meta["msg_id"].as_str()) {
        return vec![Shown {
            from: from.to_owned(),
            id: id.to_owned(),
            number: quoted(content),
            repeat: meta["repeat"] == "true",
        }];
    }
    lines(content)
}

/// The number that stands as a text in a line.
fn quoted(line: &str) -> Option<u64> {
    line.split('"').nth(1)?.parse().ok()
}

/// The messages in a text that has each on a line.
fn lines(text: &str) -> Vec<Shown> {
    let lines = text.lines().filter(|line| line.starts_with("📨 "));
    let shown = |line: &str| {
        let from = line.split([' ', ':']).nth(1).unwrap_or_default();
        let (_, id) = line.rsplit_once('[').unwrap_or_default();
        Shown {
            from: from.to_owned(),
            id: id.trim_end_matches(']').to_owned(),
            number: quoted(line),
            repeat: line.contains(" (shown before)"),
        }
    };
    lines.map(shown).collect()
}

#[test]
fn mail_that_goes_along_with_a_call_that_failed_is_read() {
    let world = World::start(false, None).expect("no small disk is asked for");
    let mut mcp = start(&world, "generic", "drainer", &Victim::default());
    world.wait_for_names(&["drainer"]);
    let mut ann = Wire::register(&world, "ann").expect("nothing breaks here");
    let text = envelope(&world.secret, "m1", "ann", "drainer", r#"{"text":"7"}"#);
    assert!(ann.say(&text));
    let shown = eventually("mail goes along", || {
        let to_nobody = json!({ "to": "nobody", "body": {} });
        let result = call(&world, &mut mcp, "bus.send", to_nobody).expect("an answer");
        assert_eq!(result["isError"], true, "{result}");
        along(&result).pop()
    });
    assert_eq!((shown.id.as_str(), shown.number), ("m1", Some(7)));
    world.stop_broker();
}
