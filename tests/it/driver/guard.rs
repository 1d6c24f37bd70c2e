//! What is left of a client that ended: nothing.

use std::fs::read;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Driven, home, send, told};
use crate::support::{Broker, Finished, Home, eventually};

/// The processes of a home, and their command lines.
fn processes(home: &Path) -> Vec<(i32, String)> {
    let own = format!("HOME={}", home.display());
    let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
    let found = entries.filter_map(|entry| {
        let environment = read(entry.path().join("environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        variables.find(|variable| *variable == own.as_bytes())?;
        let line = read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        Some((entry.file_name().to_str()?.parse().ok()?, line))
    });
    found.collect()
}

/// Those of the clients and their guards.
fn left(home: &Home) -> Vec<(i32, String)> {
    let mut found = processes(home.path());
    found.retain(|(_, line)| !line.contains(" serve") && !line.contains(" run "));
    found
}

/// What the stand-in noted under this word, each a number.
fn noted(home: &Home, word: &str) -> Vec<i32> {
    let numbers = told(home).into_iter();
    let numbers = numbers.filter_map(|told| told[word].as_i64());
    numbers
        .map(|number| i32::try_from(number).expect("a number"))
        .collect()
}

/// Waits for the orphans of a client, and gives their numbers.
#[track_caller]
fn orphans(home: &Home) -> Vec<i32> {
    let orphans = eventually("there are orphans", || {
        Some(noted(home, "orphan")).filter(|orphans| orphans.len() == 3)
    });
    let left = left(home);
    let runs = |orphan: &i32| left.iter().any(|(id, _)| id == orphan);
    assert!(orphans.iter().all(runs), "{orphans:?} {left:?}");
    orphans
}

fn guard(home: &Home) -> u32 {
    let mut left = left(home).into_iter();
    let guard = left.find(|(_, line)| line.contains("driven-guard"));
    guard.expect("a guard").0.unsigned_abs()
}

fn signal(id: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(id).expect("a number")).expect("a pid");
    kill_process(pid, signal).expect("it runs");
}

/// Ends a driver whose client has left orphans. Gives its exit code.
fn ends(home: &Home, transport: &str, prompt: &str, way: Signal) -> Option<i32> {
    let broker = Broker::start(home);
    let mut driven = Driven::start(home, &["--transport", transport, prompt]);
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    orphans(home);
    signal(driven.child.id(), way);
    let status = driven.child.wait().expect("our child");
    broker.stop();
    status.code()
}

#[test]
fn peers_are_told_the_process_of_the_driver_before_its_client_has_said_a_word() {
    let home = home();
    let broker = Broker::start(&home);
    let mut driven = Driven::start(&home, &[]);
    let pid = eventually("it is on the bus", || {
        let told: Value = serde_json::from_str(&home.run(&["peers", "--json"]).ok()).ok()?;
        let peers = told["peers"].as_array()?;
        let peer = peers.iter().find(|peer| peer["name"] == "driven")?;
        peer["pid"].as_u64()
    });
    assert_eq!(pid, u64::from(driven.child.id()));
    kill_process(Pid::from_child(&driven.child), Signal::TERM).expect("it runs");
    driven.child.wait().expect("it ends");
    broker.stop();
}

#[test]
fn nothing_is_left_of_a_client_and_its_orphans_when_the_driver_has_ended() {
    for (transport, prompt, way) in [
        ("stdio", "leave orphans", Signal::INT),
        ("stdio", "leave orphans and stay", Signal::TERM),
        ("stdio", "leave orphans and hold", Signal::TERM),
        ("sdk-url", "leave orphans", Signal::TERM),
    ] {
        let home = home();
        assert_eq!(ends(&home, transport, prompt, way), Some(0));
        assert_eq!(left(&home), [], "{transport}, {prompt}, {way:?}");
    }
}

#[test]
fn nothing_is_left_of_a_client_and_its_orphans_after_the_driver_was_killed() {
    for transport in ["stdio", "sdk-url"] {
        let home = home();
        let prompt = "leave orphans and stay";
        assert_eq!(ends(&home, transport, prompt, Signal::KILL), None);
        eventually("nothing is left", || left(&home).is_empty().then_some(()));
    }
}

#[test]
fn a_guard_that_was_stopped_saves_nothing() {
    let home = home();
    let broker = Broker::start(&home);
    let mut driven = Driven::start(&home, &["leave orphans"]);
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    orphans(&home);
    signal(guard(&home), Signal::STOP);
    signal(driven.child.id(), Signal::TERM);
    assert_eq!(driven.child.wait().expect("our child").code(), Some(0));
    eventually("nothing is left", || left(&home).is_empty().then_some(()));
    broker.stop();
}

#[test]
fn orphans_of_a_client_that_ended_by_itself_are_gone_before_the_next_begins() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &["leave orphans"]);
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    let orphans = orphans(&home);
    send(&home, "die at once");
    driven.errors.find("how it ended", |line| {
        line.contains("exit status: 7").then_some(())
    });
    let clients = eventually("there is another client", || {
        Some(noted(&home, "process")).filter(|clients| clients.len() == 2)
    });
    let left = left(&home);
    let is_gone = |gone: &i32| left.iter().all(|(id, _)| id != gone);
    assert!(orphans.iter().all(is_gone), "{orphans:?} {left:?}");
    assert!(is_gone(&clients[0]) && !is_gone(&clients[1]), "{left:?}");
    driven.stop();
    broker.stop();
}

#[test]
fn a_client_ends_with_its_guard_and_another_begins() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &["hello"]);
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    signal(guard(&home), Signal::KILL);
    let clients = eventually("there is another client", || {
        Some(noted(&home, "process")).filter(|clients| clients.len() == 2)
    });
    assert!(left(&home).iter().all(|(id, _)| *id != clients[0]));
    driven.stop();
    broker.stop();
}

#[test]
fn the_lifeline_is_the_guards_alone_and_a_broker_that_a_client_needed_outlives_it() {
    let home = home();
    let broker = Broker::start(&home);
    let program = env!("CARGO_BIN_EXE_peerbus");
    let driven = Driven::start_with(&home, &["start a broker"], &[("PEERBUS_PROGRAM", program)]);
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    let told = told(&home);
    let environment = &told[0]["environment"];
    assert_eq!(environment["PEERBUS_LIFELINE"], Value::Null);
    assert_eq!(environment["PEERBUS_PROGRAM"], program);
    let other = home.path().join("other");
    let before = processes(&other);
    driven.stop();
    assert!(
        before.len() == 1 && before[0].1.contains("--on-demand"),
        "{before:?}"
    );
    assert_eq!(processes(&other), before);
    let mut stop = home.peerbus(&["stop"]);
    Finished::of(stop.env("HOME", &other)).ok();
    broker.stop();
}
