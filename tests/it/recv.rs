//! `peerbus recv` with real processes.

use peerbus_test_support::message::envelope;

use crate::support::{Broker, Finished, Home, Raw, eventually};

const WRONG_SECRET: &str = "not the secret that the adapters share";

#[test]
fn what_is_printed_is_pushed_and_what_will_not_arrive_is_said_once() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for name in ["alice", "bob"] {
        drop(Raw::register(&home, &broker, name));
    }
    let secret = home.credential("hmac_secret");
    let mut alice = Raw::register(&home, &broker, "alice");
    alice.say(&envelope(WRONG_SECRET, "forged", "alice", "bob", "1"));
    alice.receipt("accepted");
    drop(alice);
    // What is forged goes before this one, and is not counted.
    home.run(&["send", "bob", "to bob"]).ok();
    let one = ["--count", "1", "--timeout", "50"];
    let recv = |name| home.run(&[&["recv", "--name", name], &one[..]].concat());
    let bob = recv("bob");
    assert!(bob.stderr.contains("listening as bob\n"), "{}", bob.stderr);
    assert!(bob.ok().contains("to bob"));

    let told = eventually("alice is told", || {
        let said = home.run(&["recv", "--name", "alice", "--timeout", "0.5"]);
        said.stderr.contains("forged").then_some(said.stderr)
    });
    assert!(told.contains("signature mismatch"), "{told}");
    home.run(&["send", "alice", "to alice"]).ok();
    let later = recv("alice");
    assert!(!later.stderr.contains("forged"), "{}", later.stderr);

    let mut alice = Raw::register(&home, &broker, "alice");
    alice.say(&envelope(&secret, "true", "alice", "bob", "2"));
    alice.receipt("accepted");
    recv("bob").ok();
    let acked = alice.receipt("acked");
    assert_eq!(
        (&acked["how"], &acked["path"]),
        (&"pushed".into(), &"recv".into()),
        "{acked}"
    );
    let id = acked["id"].as_str().expect("an id");
    let status = home.run(&["status", id]).ok();
    assert!(status.contains("  pushed     bob  by recv"), "{status}");
    broker.stop();
}

#[test]
fn a_refusal_that_does_not_pass_ends_it_and_is_said_once() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["token", "add", "phone", "--names", "phone"])
        .ok();
    let wrong = "0".repeat(64);
    for (name, token, says) in [
        ("bob", Some(&wrong), "the broker refused the token"),
        ("phone", None, "is kept for the token"),
    ] {
        let mut recv = home.peerbus(&["recv", "--name", name, "--timeout", "50"]);
        if let Some(token) = token {
            recv.env("PEERBUS_TOKEN", token);
        }
        let said = Finished::of(&mut recv).fails(1);
        assert_eq!(said.matches(says).count(), 1, "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    broker.stop();
}
