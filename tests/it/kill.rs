//! SIGKILL of everything, in random order, under load.
//!
//! `PEERBUS_KILL_ROUNDS` sets the number of kills, `PEERBUS_KILL_SEED` their order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, PATIENCE};

/// Sends that one adapter has under way at once.
const PIPELINE: usize = 16;
const SENDERS: [&str; 2] = ["sender-a", "sender-b"];
const RECEIVERS: [(&str, &str); 2] = [("drainer", "generic"), ("channel", "cc")];

/// What the actors tell each other.
#[derive(Default)]
struct World {
    /// Ids that a sender was told are accepted, by recipient.
    accepted: Mutex<BTreeMap<&'static str, BTreeSet<String>>>,
    accepted_count: AtomicU64,
    /// What each process of each receiver surfaced, in order: (from, id, number).
    surfaced: Mutex<BTreeMap<&'static str, Vec<Vec<Surfaced>>>>,
    stop_sending: AtomicBool,
    stop_receiving: AtomicBool,
}

type Surfaced = (String, String, u64);

/// The process that plays an actor at the moment, to be killed by its pid.
#[derive(Default)]
struct Victim(AtomicI32);

impl Victim {
    fn set(&self, pid: Pid) {
        self.0.store(pid.as_raw_nonzero().get(), Ordering::SeqCst);
    }

    fn kill(&self) {
        if let Some(pid) = Pid::from_raw(self.0.load(Ordering::SeqCst)) {
            // It may be a zombie already.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn what_was_receipted_survives_every_kill() {
    let rounds = env_number("PEERBUS_KILL_ROUNDS").unwrap_or(20);
    let seed = env_number("PEERBUS_KILL_SEED").unwrap_or_else(|| rand::rng().random());
    println!("PEERBUS_KILL_ROUNDS={rounds} PEERBUS_KILL_SEED={seed}");
    let home = Arc::new(Home::new());
    let mut broker = Some(Broker::start(&home));
    let world = Arc::new(World::default());
    let receivers: Vec<_> = RECEIVERS
        .iter()
        .map(|&(name, kind)| receiver(&home, &world, name, kind))
        .collect();
    let senders: Vec<_> = SENDERS
        .iter()
        .map(|&name| sender(&home, &world, name))
        .collect();

    let mut rng = StdRng::seed_from_u64(seed);
    for round in 0..rounds {
        let target = world.accepted_count.load(Ordering::SeqCst) + rng.random_range(10..60);
        wait_until(&format!("{target} accepted in round {round}"), || {
            world.accepted_count.load(Ordering::SeqCst) >= target
        });
        match rng.random_range(0..5_usize) {
            0 => {
                broker.take().expect("a broker").kill();
                broker = Some(Broker::start(&home));
            }
            n @ 1..=2 => senders[n - 1].1.kill(),
            n => receivers[n - 3].1.kill(),
        }
    }
    world.stop_sending.store(true, Ordering::SeqCst);
    for (thread, _) in senders {
        thread.join().expect("a sender");
    }
    wait_until("everything accepted is surfaced", || {
        missing(&world).is_empty()
    });
    world.stop_receiving.store(true, Ordering::SeqCst);
    for (thread, _) in receivers {
        thread.join().expect("a receiver");
    }
    check_processes(&world);
    broker.take().expect("a broker").stop();
    crate::audit::verifies_and_names_a_break(&home);
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Accepted ids that no process of their recipient surfaced.
fn missing(world: &World) -> Vec<String> {
    let surfaced = world.surfaced.lock().expect("not poisoned");
    let accepted = world.accepted.lock().expect("not poisoned");
    let mut missing = Vec::new();
    for (to, ids) in accepted.iter() {
        let processes = surfaced.get(to).map(Vec::as_slice).unwrap_or_default();
        let seen: BTreeSet<_> = processes.iter().flatten().map(|(_, id, _)| id).collect();
        missing.extend(ids.iter().filter(|id| !seen.contains(id)).cloned());
    }
    missing
}

/// Each process surfaced each message once, and each sender's in the order they were sent.
fn check_processes(world: &World) {
    let mut processes_seen = 0;
    for (name, processes) in world.surfaced.lock().expect("not poisoned").iter() {
        for process in processes {
            processes_seen += 1;
            let ids: BTreeSet<_> = process.iter().map(|(from, id, _)| (from, id)).collect();
            assert_eq!(ids.len(), process.len(), "{name} surfaced a message twice");
            let mut last = BTreeMap::new();
            for (from, id, number) in process {
                let before = last.insert(from, *number);
                assert!(
                    before.is_none_or(|b| b < *number),
                    "{name}: {from} {id} out of order"
                );
            }
        }
    }
    let total: u64 = world.accepted_count.load(Ordering::SeqCst);
    println!("{total} messages accepted, {processes_seen} receiver processes");
    assert!(total > 0);
}

type Actor = (std::thread::JoinHandle<()>, Arc<Victim>);

fn sender(home: &Arc<Home>, world: &Arc<World>, name: &'static str) -> Actor {
    let victim = Arc::new(Victim::default());
    let (home, world, mine) = (Arc::clone(home), Arc::clone(world), Arc::clone(&victim));
    let thread = std::thread::spawn(move || {
        let mut number = 0;
        while !world.stop_sending.load(Ordering::SeqCst) {
            let mut mcp = Mcp::spawn(&mut home.peerbus(&["adapter", "--name", name]));
            mine.set(mcp.pid());
            send_until_killed(&mut mcp, &world, &mut number);
        }
    });
    (thread, victim)
}

/// Keeps a pipeline of sends full until the process dies or is told to stop.
fn send_until_killed(mcp: &mut Mcp, world: &World, number: &mut u64) {
    let mut under_way = BTreeMap::new();
    mcp.ask(
        "initialize",
        json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "kill-test", "version": "1" },
        }),
    );
    if mcp.next(PATIENCE).is_none() {
        return;
    }
    mcp.notify("notifications/initialized");
    loop {
        let stopping = world.stop_sending.load(Ordering::SeqCst);
        while !stopping && under_way.len() < PIPELINE {
            *number += 1;
            let to = RECEIVERS[(*number % 2) as usize].0;
            let body = json!({ "text": number.to_string() });
            let id = mcp.ask_tool("bus.send", json!({ "to": to, "body": body }));
            under_way.insert(id, to);
        }
        if stopping && under_way.is_empty() {
            return;
        }
        let Some(message) = mcp.next(PATIENCE) else {
            return;
        };
        let Some(to) = message["id"].as_u64().and_then(|id| under_way.remove(&id)) else {
            continue;
        };
        let result = &message["result"]["structuredContent"];
        if result["status"] == "accepted" {
            let id = result["id"].as_str().expect("an id").to_owned();
            world
                .accepted
                .lock()
                .expect("not poisoned")
                .entry(to)
                .or_default()
                .insert(id);
            world.accepted_count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn receiver(home: &Arc<Home>, world: &Arc<World>, name: &'static str, kind: &'static str) -> Actor {
    let victim = Arc::new(Victim::default());
    // Known to the broker before anybody sends to it.
    let first = Mcp::start(home, kind, name, "kill-test");
    let (home, world, mine) = (Arc::clone(home), Arc::clone(world), Arc::clone(&victim));
    wait_until("the receiver is registered", || {
        home.run(&["peers"]).ok().contains(name)
    });
    mine.set(first.pid());
    let thread = std::thread::spawn(move || {
        let mut mcp = first;
        while !world.stop_receiving.load(Ordering::SeqCst) {
            new_process(&world, name);
            if kind == "cc" {
                take_pushes(&mut mcp, &world, name);
            } else {
                drain_until_killed(&mut mcp, &world, name);
            }
            if world.stop_receiving.load(Ordering::SeqCst) {
                return;
            }
            mcp = Mcp::spawn(&mut home.peerbus(&["adapter", "--adapter", kind, "--name", name]));
            mine.set(mcp.pid());
            mcp.ask(
                "initialize",
                json!({
                    "protocolVersion": "2025-11-25", "capabilities": {},
                    "clientInfo": { "name": "kill-test", "version": "1" },
                }),
            );
            mcp.notify("notifications/initialized");
        }
    });
    (thread, victim)
}

fn new_process(world: &World, name: &'static str) {
    world
        .surfaced
        .lock()
        .expect("not poisoned")
        .entry(name)
        .or_default()
        .push(Vec::new());
}

fn surface(world: &World, name: &'static str, from: &str, id: &str, text: &str) {
    let number = text.parse().expect("a number");
    let mut surfaced = world.surfaced.lock().expect("not poisoned");
    let process = surfaced
        .get_mut(name)
        .and_then(|p| p.last_mut())
        .expect("a process");
    process.push((from.to_owned(), id.to_owned(), number));
}

/// Calls the drain tool over and over, until the process dies or the test ends.
fn drain_until_killed(mcp: &mut Mcp, world: &World, name: &'static str) {
    while !world.stop_receiving.load(Ordering::SeqCst) {
        let call = mcp.ask_tool("bus.drain", json!({}));
        let answer = loop {
            let Some(message) = mcp.next(PATIENCE) else {
                return;
            };
            if message["id"] == json!(call) {
                break message;
            }
        };
        let messages = &answer["result"]["structuredContent"]["messages"];
        let Some(messages) = messages.as_array() else {
            continue;
        };
        for message in messages {
            let text = |member: &Value| member.as_str().expect("a string").to_owned();
            let (from, id) = (text(&message["from"]), text(&message["id"]));
            surface(world, name, &from, &id, &text(&message["body"]["text"]));
        }
        if messages.is_empty() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// What a push or an answer shows.
struct Shown {
    from: String,
    id: String,
    text: String,
    repeat: bool,
}

/// Takes channel pushes, and reads what waits besides as an agent does that a push woke, until the
/// process dies or the test ends.
fn take_pushes(mcp: &mut Mcp, world: &World, name: &'static str) {
    let start = Instant::now();
    let mut seen = BTreeSet::new();
    let mut reading = None;
    while !world.stop_receiving.load(Ordering::SeqCst) && start.elapsed() < PATIENCE * 20 {
        let message = match mcp.poll(Duration::from_millis(50)) {
            Ok(message) => message,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => continue,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
        };
        let is_answer = reading.is_some_and(|call| message["id"] == json!(call));
        let (shown, more) = if is_answer {
            let answer = &message["result"]["structuredContent"];
            reading = None;
            (read(answer), answer["remaining"] != json!(0))
        } else if message["method"] == "notifications/claude/channel" {
            let shown = pushed(&message["params"]);
            let any = !shown.is_empty();
            (shown, any)
        } else {
            continue;
        };
        for one in shown {
            if seen.insert((one.from.clone(), one.id.clone())) {
                surface(world, name, &one.from, &one.id, &one.text);
            } else {
                assert!(one.repeat, "{name} was shown {} twice as new", one.id);
            }
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
        text: text(message, "text"),
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
    let quoted = |line: &str| line.split('"').nth(1).expect("quoted text").to_owned();
    if let (Some(from), Some(id)) = (meta["from"].as_str(), meta["msg_id"].as_str()) {
        let text = quoted(content);
        let (from, id) = (from.to_owned(), id.to_owned());
        let repeat = meta["repeat"] == "true";
        return vec![Shown {
            from,
            id,
            text,
            repeat,
        }];
    }
    let lines = content.lines().filter(|line| line.starts_with("📨 "));
    let shown = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Shown {
            from: words[3].to_owned(),
            id: words[4].trim_matches(['[', ']', ':']).to_owned(),
            text: quoted(line),
            repeat: line.contains(" (shown before)"),
        }
    };
    lines.map(shown).collect()
}
