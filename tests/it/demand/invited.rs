//! A broker on demand that listens for other machines, because its credentials say so.

use std::fs;

use super::World;
use super::end::short_lived;
use crate::support::{Finished, Home, eventually};

#[test]
fn a_broker_on_demand_makes_room_for_one_that_listens_and_so_does_the_next_one() {
    let desk = World::new();
    desk.register("ann");
    let old = desk.broker();
    let invite = ["invite", "laptop", "--listen", "127.0.0.1:0"];
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
