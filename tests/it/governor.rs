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
