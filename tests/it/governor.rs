//! Two agents that would thank each other for ever.

use serde_json::json;

use crate::support::{Broker, Home, Mcp, eventually};

/// Far more turns than any budget allows.
const TURNS_MAX: usize = 60;

/// What an agent finds when it looks for mail.
enum Found {
    /// The id of a message, which it answers.
    Message(String),
    /// Something is held back, and what the answer says of it.
    Held(String),
}

fn look(mcp: &mut Mcp) -> Found {
    eventually("mail comes or is held back", || {
        let answer = mcp.call("bus.drain", json!({}));
        if let Some(message) = answer["messages"].get(0) {
            return Some(Found::Message(message["id"].as_str()?.to_owned()));
        }
        let held = answer["held"].as_u64().unwrap_or_default() > 0;
        held.then(|| Found::Held(answer["note"].to_string()))
    })
}

#[test]
fn agents_that_thank_each_other_for_ever_are_stopped_and_all_three_can_see_why() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut agents = ["alice", "bob"].map(|name| Mcp::start(&home, "generic", name, "some-bot"));
    for agent in &mut agents {
        agent.call("bus.peers", json!({}));
    }
    let sent = agents[0].call("bus.send", json!({ "to": "bob", "body": "Thank you!" }));
    let mut last = sent["id"].as_str().expect("an id").to_owned();
    let mut turns = 0;
    let (recipient, note) = loop {
        assert!(turns < TURNS_MAX, "nobody stopped them");
        turns += 1;
        let me = turns % 2;
        match look(&mut agents[me]) {
            Found::Held(note) => break (me, note),
            Found::Message(id) => {
                let reply = json!({ "msg_id": id, "body": "Thank you!" });
                let sent = agents[me].call("bus.reply", reply);
                sent["id"].as_str().expect("an id").clone_into(&mut last);
            }
        }
    };
    assert!(turns <= 20, "{turns} turns");
    let why = "replies led to this message";
    assert!(note.contains(why), "the recipient: {note}");
    let read = agents[recipient].call("bus.inbox", json!({ "peek": true }));
    assert!(read.to_string().contains(&last), "and can read it: {read}");

    let told = eventually("the sender is told", || {
        let answer = agents[1 - recipient].call("bus.drain", json!({}));
        let notices = answer["notices"].to_string();
        notices.contains(&last).then_some(notices)
    });
    assert!(told.contains(why), "the sender: {told}");
    let status = home.run(&["status", &last]).ok();
    assert!(status.contains(why), "the human who asks: {status}");
    let log = broker.stop_and_read().join("\n");
    assert!(log.contains("WARN") && log.contains(why), "the log: {log}");
}

#[test]
fn a_peer_whose_mail_is_paused_stays_the_same_under_another_name() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let start = |name: &str| Mcp::start(&home, "generic", name, "some-bot");
    let [mut alice, mut bob] = ["alice", "bob"].map(start);
    bob.call("bus.peers", json!({}));
    let paused = |alice: &mut Mcp, count: u64| {
        eventually("mail is paused", || {
            let answer = alice.call("bus.drain", json!({}));
            (answer["held"].as_u64() == Some(count)).then(|| answer["note"].to_string())
        })
    };
    // Each message of alice's says that one more reply led to it, for it has read bob's.
    let (note, last) = eventually("mail is paused", || {
        let sent = alice.call("bus.send", json!({ "to": "bob", "body": "And now?" }));
        let Found::Message(id) = look(&mut bob) else {
            return None;
        };
        bob.call("bus.reply", json!({ "msg_id": id, "body": "Not yet." }));
        match look(&mut alice) {
            Found::Held(note) => Some((note, sent["id"].as_str()?.to_owned())),
            Found::Message(_) => None,
        }
    });
    let says = "the next message of bob, whatever its name then";
    assert!(note.contains(says), "{note}");
    eventually("bob is done with what it was sent", || {
        bob.call("bus.peers", json!({}));
        let status = home.run(&["status", &last]).ok();
        status.contains("seen").then_some(())
    });
    let renamed = bob.call("bus.rename", json!({ "name": "rob" }));
    assert_eq!(renamed["self"], "rob", "{renamed}");
    bob.call("bus.send", json!({ "to": "alice", "body": "It is me." }));
    let note = paused(&mut alice, 2);
    assert!(
        note.contains("the next message of rob, whatever its name"),
        "{note}"
    );
}
