//! A broker on demand that listens for other machines, because its credentials say so.

use std::fs;
use std::net::TcpListener;

use peerbus_test_support::socket::free;

use super::World;
use super::end::short_lived;
use crate::support::{Finished, Home, eventually};

#[test]
fn a_broker_on_demand_makes_room_for_one_that_listens_and_so_does_the_next_one() {
    let desk = World::new();
    desk.register("ann");
    let old = desk.broker();
    let invite = ["invite", "laptop", "--listen", &free().to_string()];
    let code = desk.run(&invite).ok();
    assert_ne!(desk.broker(), old);
    let laptop = Home::new();
    laptop.run(&["join", code.trim(), "--yes"]).ok();
    laptop.run(&["send", "ann", "hello"]).ok();
    // What the old one knew the new one knows.
    let got = desk.run(&["recv", "--name", "ann", "--count", "1"]).ok();
    assert!(got.contains("hello"), "{got}");

    desk.stop();
    desk.register("ann");
    let said = desk.run(&["invite", "list"]).ok();
    assert!(said.starts_with("laptop: has joined, "), "{said}");
    let again = desk.run(&["invite", "pad"]).ok();
    assert!(again.starts_with("pb1:127.0.0.1:"), "{again}");
    let certificate = |code: &str| code.split('/').nth(1).map(str::to_owned);
    assert_eq!(certificate(&again), certificate(&code), "machines know it");

    desk.run(&["invite", "off"]).ok();
    desk.register("ann");
    eventually("nobody listens there", || {
        let said: Finished = laptop.run(&["peers", "--timeout", "0.5"]);
        said.stderr.contains("no broker at wss://").then_some(())
    });
    let (_, about) = desk.ask("GET /broker");
    assert_eq!(about["reached"], serde_json::Value::Null);
    desk.stop();
}

#[test]
fn an_off_that_was_cut_off_is_made_good_by_the_next_one() {
    let desk = World::new();
    let invite = ["invite", "laptop", "--listen", &free().to_string()];
    desk.run(&invite).ok();
    // As one leaves it that ended before the broker was restarted.
    let file = desk.home.credentials();
    let text = fs::read_to_string(&file).expect("credentials");
    let rest = text.lines().filter(|line| !line.starts_with("listen"));
    let rest: String = rest.map(|line| format!("{line}\n")).collect();
    assert_ne!(rest, text);
    fs::write(&file, rest).expect("our file");
    let said = desk.run(&["invite", "off"]).ok();
    let off = "the broker listens for other machines no more\n";
    assert!(said.ends_with(off), "{said}");
    desk.register("ann");
    let (_, about) = desk.ask("GET /broker");
    assert_eq!(about["reached"], serde_json::Value::Null);
    let said = desk.run(&["invite", "off"]).ok();
    assert!(said.contains("was not told to listen"), "{said}");
    desk.stop();
}

#[test]
fn an_address_at_which_the_broker_cannot_listen_is_not_kept() {
    let desk = World::new();
    let taken = TcpListener::bind(free()).expect("a port");
    let taken = taken.local_addr().expect("it is bound").to_string();
    let listen = || {
        let found = fs::read_to_string(desk.home.credentials()).expect("credentials");
        let mut lines = found.lines().map(str::to_owned);
        lines.find(|line| line.starts_with("listen"))
    };
    let elsewhere = || {
        let invite = ["invite", "laptop", "--listen", &taken];
        let said = desk.run(&invite).fails(1);
        assert!(said.contains("listens for no other machine: "), "{said}");
    };
    elsewhere();
    assert_eq!(listen(), None);
    let good = free().to_string();
    desk.run(&["invite", "laptop", "--listen", &good]).ok();
    desk.run(&["invite", "revoke", "laptop"]).ok();
    elsewhere();
    assert_eq!(listen(), Some(format!("listen = \"{good}\"")));
    let code = desk.run(&["invite", "laptop"]).ok();
    assert!(code.starts_with(&format!("pb1:{good}/")), "{code}");
    desk.stop();
}

#[test]
fn a_broker_that_listens_for_other_machines_does_not_end_for_want_of_connections() {
    let (world, clock) = (World::new(), World::new());
    world.register("ann");
    world.stop();
    let file = world.home.credentials();
    let text = fs::read_to_string(&file).expect("credentials");
    fs::write(&file, format!("listen = \"127.0.0.1:0\"\n{text}")).expect("our file");
    short_lived(&world, "0.2");
    let broker = world.broker();
    short_lived(&clock, "0.8");
    clock.ends();
    assert_eq!(world.broker(), broker);
    world.stop();
}
