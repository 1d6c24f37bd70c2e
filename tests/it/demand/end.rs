//! How a broker ends: by itself, by `peerbus stop`, by a signal, and for one that is in sight.

use std::fs;
use std::process::Stdio;

use rustix::process::{Signal, kill_process};
use serde_json::json;

use super::World;
use crate::support::{Broker, Finished, Home, Lines, Mcp, Raw, eventually};

/// A tool call that fails as long as there is no broker; gives the sentence.
fn peers(mcp: &mut Mcp) -> Result<(), String> {
    let arguments = json!({ "name": "bus.peers", "arguments": {} });
    let result = mcp.request("tools/call", arguments);
    match result["isError"] == true {
        true => Err(result["content"][0]["text"]
            .as_str()
            .expect("a text")
            .to_owned()),
        false => Ok(()),
    }
}

#[test]
fn a_broker_that_nobody_uses_ends_and_is_back_with_what_waits() {
    let world = World::new();
    let args = [
        "serve",
        "--on-demand=a test",
        "--idle-end",
        "0.2",
        "--listen",
        "127.0.0.1:0",
    ];
    world.run(&args).ok();
    // Longer than it would live without anybody.
    let recv = world.run(&["recv", "--name", "bob", "--timeout", "1"]);
    assert!(recv.stderr.contains("listening as bob"), "{}", recv.stderr);
    recv.ok();
    world.run(&["send", "bob", "still here"]).ok();
    world.ends();
    let log = world.log();
    let ended = log
        .find("nobody has been connected for a while")
        .expect("why");
    let left = log.rfind("peer left peer=\"bob\"").expect("bob");
    assert!(left < ended, "{log}");
    assert!(
        log.contains("stopped; everything accepted is on disk"),
        "{log}"
    );
    let got = world
        .run(&["recv", "--name", "bob", "--count", "1", "--timeout", "50"])
        .ok();
    assert!(got.contains("still here"), "{got}");
    world.stop();
}

#[test]
fn a_stop_that_cannot_keep_sessions_from_starting_another_broker_stops_none_and_says_so() {
    let world = World::new();
    world.register("bob");
    let mut stop = world.peerbus(&["stop"]);
    let said = Finished::of(stop.env("XDG_STATE_HOME", "/dev/null")).fails(1);
    assert!(
        said.contains("a broker that runs was told nothing") && said.contains("--socket PATH"),
        "{said}"
    );
    let socket = world.state("peerbus.sock").display().to_string();
    world.run(&["stop", "--socket", &socket]).ok();
    world.ends();
}

/// Starts a broker that ends after so many seconds without anybody.
pub(super) fn short_lived(world: &World, seconds: &str) {
    let args = ["serve", "--on-demand=a test", "--idle-end", seconds];
    let listen = ["--listen", "127.0.0.1:0"];
    world.run(&[&args[..], &listen].concat()).ok();
    eventually("it serves", || {
        world.run(&["peers"]).code.filter(|code| *code == 0)
    });
}

#[test]
fn a_broker_stays_while_it_alone_knows_how_far_mail_is_and_while_somebody_looks_on() {
    let (world, clock) = (World::new(), World::new());
    short_lived(&world, "0.2");
    let mut bob = Raw::register_at(&world.home, &world.state("peerbus.sock"), "bob");
    world.run(&["send", "bob", "hi"]).ok();
    let key = bob.delivery()["delivery_key"]
        .as_str()
        .expect("a key")
        .to_owned();
    let progress = json!({
        "protocol_version": "v1", "type": "progress", "id": key, "state": "pushed", "path": "socket",
    });
    bob.say(&progress.to_string());
    bob.say(r#"{"protocol_version":"v1","type":"peers"}"#);
    while bob.next()["type"] != "peers" {}
    drop(bob);
    short_lived(&clock, "0.8");
    clock.ends();
    let broker = world.broker();
    world.run(&["recv", "--name", "bob", "--count", "1"]).ok();
    let mut tail = world.peerbus(&["tail", "--follow"]);
    let mut tail = tail.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = Lines::of(tail.stdout.take().expect("a pipe"));
    lines.find("the message", |line| line.contains("bob").then_some(()));
    short_lived(&clock, "0.8");
    clock.ends();
    assert_eq!(world.broker(), broker);
    tail.kill().expect("it is ours");
    tail.wait().expect("it ends");
    world.ends();
}

#[test]
fn who_runs_waits_after_a_stop_and_whoever_comes_next_starts_it_again() {
    let world = World::new();
    let mut alice = world.adapter("alice");
    peers(&mut alice).expect("a broker");
    for round in 0..2 {
        let said = world.run(&["stop"]);
        assert!(
            said.stderr.contains("sessions that run wait"),
            "{}",
            said.stderr
        );
        assert!(said.ok().contains("everything accepted is on disk"));
        world.ends();
        let said = eventually("alice knows why", || {
            let said = peers(&mut alice).expect_err("the broker was stopped");
            said.contains("was stopped with `peerbus stop`")
                .then_some(said)
        });
        assert!(said.contains("any new session starts one again"), "{said}");
        world.has_none();
        assert!(world.state("stopped").exists());
        match round {
            0 => drop(world.run(&["peers"]).ok()),
            _ => peers(&mut world.adapter("bob")).expect("a broker"),
        }
        assert!(!world.state("stopped").exists());
        world.broker();
        eventually("alice is back", || peers(&mut alice).ok());
    }
    world.stop();
    let said = world.run(&["stop"]).ok();
    assert_eq!(said, "no broker is running; sessions that run start none\n");
    // One by hand is wanted as well.
    let broker = Broker::start(&world.home);
    eventually("alice is back", || peers(&mut alice).ok());
    let said = world.run(&["stop"]).ok();
    assert!(
        said.contains(&format!("process {},", broker.pid().as_raw_nonzero())),
        "{said}"
    );
    assert_eq!(broker.ended().0, Some(0));
}

#[test]
fn a_broker_that_somebody_runs_takes_the_place_of_one_on_demand() {
    let world = World::new();
    let mut alice = world.adapter("alice");
    peers(&mut alice).expect("a broker");
    let before = world.broker();
    let broker = Broker::spawn(&mut world.peerbus(&["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(world.broker(), broker.pid());
    assert_ne!(broker.pid(), before);
    eventually("alice is back", || peers(&mut alice).ok());
    let said = world.run(&["peers"]);
    assert!(
        said.stderr.contains(", started by hand, "),
        "{}",
        said.stderr
    );
    let second = world.run(&["serve", "--listen", "127.0.0.1:0"]).fails(2);
    assert!(second.contains("is in use by another broker"), "{second}");
    broker.stop();
}

#[test]
fn a_hangup_ends_a_broker_in_good_order() {
    let home = Home::new();
    let broker = Broker::start(&home);
    kill_process(broker.pid(), Signal::HUP).expect("it is ours");
    let (code, said) = broker.ended();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("stopped; everything accepted is on disk"),
        "{said}"
    );
}

#[test]
fn doctor_starts_a_broker_and_says_how_it_came_to_be() {
    let world = World::new();
    let said = world.run(&["doctor"]).stdout;
    let line = |name: &str| {
        let found = said
            .lines()
            .find(|line| line.contains(&format!(" {name}: ")));
        found.unwrap_or_else(|| panic!("{name}: {said}")).to_owned()
    };
    assert!(
        line("credentials").contains("the first broker makes it"),
        "{said}"
    );
    assert!(
        line("started").contains("on demand, by `peerbus doctor`, process "),
        "{said}"
    );
    assert!(line("message").contains("to itself and back"), "{said}");
    assert!(fs::metadata(world.home.credentials()).is_ok());
    // That process is gone.
    let said = world.run(&["status"]).ok();
    let first = said.lines().next().expect("a line");
    assert!(
        first.contains("on demand, by `peerbus doctor`, "),
        "{first}"
    );
    assert!(!first.contains("doctor`, process"), "{first}");
    world.stop();
    let said = world.run(&["status"]).ok();
    let first = said.lines().next().expect("a line");
    assert!(
        first.ends_with("started by this command, since none ran"),
        "{first}"
    );
    world.stop();
}
