//! What `peerbus status` says of a message, whatever became of it: the state, and what to do.

use std::any::Any;

use serde_json::{Value, json};

use crate::orphans::Session;
use crate::sessions::names;
use crate::support::{Broker, Home, Mcp, Raw, eventually};

/// Sends as ada; gives the message's id.
pub(crate) fn send(home: &Home, to: &str, body: &str) -> String {
    let sent = home
        .run(&["send", to, body, "--name", "ada", "--json"])
        .ok();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    sent["id"].as_str().expect("an id").to_owned()
}

/// The delivery of a message, with a state that its peer says of it, or an ack.
fn say(peer: &mut Raw, mut what: Value) {
    what["id"] = peer.delivery()["delivery_key"].take();
    what["protocol_version"] = "v1".into();
    peer.say(&what.to_string());
}

/// A message's id, and what must live on for it to stay as it is.
type Made = (String, Box<dyn Any>);

/// A name that is away, or in a state that this frame says, and a message for it.
fn with_peer(home: &Home, broker: &Broker, what: Option<Value>) -> Made {
    let mut bob = Raw::register(home, broker, "bob");
    let Some(what) = what else {
        drop(bob);
        eventually("bob is away", || {
            home.run(&["peers", "--all"])
                .ok()
                .contains("away")
                .then_some(())
        });
        return (send(home, "bob", "hi"), Box::new(()));
    };
    let id = send(home, "bob", "hi");
    say(&mut bob, what);
    (id, Box::new(bob))
}

fn progress(state: &str) -> Option<Value> {
    Some(
        json!({ "type": "progress", "state": state, "path": "socket", "reason": "keeps it until its user decides in the dialog there" }),
    )
}

fn acked(how: &str) -> Option<Value> {
    Some(json!({ "type": "ack", "how": how, "path": "socket", "evidence": "transcript" }))
}

/// What became of a message in a world of its own, the state in which its last step is, and what
/// the sentence says: first what is, then what to do.
type Row = (
    fn(&Home, &Broker) -> Made,
    &'static str,
    &'static [&'static str],
);

const TABLE: &[Row] = &[
    (
        |home, broker| with_peer(home, broker, None),
        "queued",
        &["no session of that name has it now", "the next one gets it"],
    ),
    (
        |home, broker| with_peer(home, broker, Some(json!({ "type": "nothing" }))),
        "delivered",
        &["has not said what became of it", "it is a plain connection"],
    ),
    (
        |home, broker| with_peer(home, broker, progress("pushed")),
        "pushed",
        &[
            "nothing shows that it was read yet",
            "owed until something does",
        ],
    ),
    (
        |home, broker| with_peer(home, broker, progress("presented")),
        "presented",
        &["came into bob's conversation", "its turn may run still"],
    ),
    (
        |home, broker| with_peer(home, broker, progress("held")),
        "held",
        &[
            "it was held back at bob, which told so ",
            "nothing newer is known: bob says: \"keeps it",
            "its user decides in the dialog there",
        ],
    ),
    (
        |home, broker| with_peer(home, broker, acked("seen")),
        "seen",
        &["bob's model has seen it", "shown by its transcript"],
    ),
    (
        |home, broker| with_peer(home, broker, acked("pushed")),
        "pushed",
        &["acked it", "does not show that it was read"],
    ),
    (
        |home, broker| {
            with_peer(
                home,
                broker,
                Some(json!({ "type": "reject", "reason": "no" })),
            )
        },
        "dead",
        &[
            "rejected at bob, and is not tried again",
            "send it anew when the reason is gone: bob says: \"no\"",
        ],
    ),
    (retired, "expired", &["ended for good", "send it again"]),
    (
        by_rule,
        "held",
        &["the recipient's user decides whether", "`peerbus held`"],
    ),
    (
        by_governor,
        "held",
        &[
            "replies led to this message of ada",
            "can read it in its inbox",
        ],
    ),
];

fn retired(home: &Home, broker: &Broker) -> Made {
    let made = with_peer(home, broker, None);
    home.apart(&["names", "retire", "bob"]).ok();
    made
}

/// One that a rule about its sender holds for the user.
fn by_rule(home: &Home, _: &Broker) -> Made {
    let file = home.credentials();
    let text = std::fs::read_to_string(&file).expect("credentials");
    std::fs::write(&file, format!("{text}\nsenders = [\"*=hold\"]\n")).expect("our file");
    let bob = Session::start(home, "bob");
    eventually("bob is there", || {
        names(home).contains(&"bob".to_owned()).then_some(())
    });
    let id = send(home, "bob", "hi");
    eventually("it is held", || {
        home.run(&["held"]).ok().contains(&id).then_some(())
    });
    (id, Box::new(bob))
}

/// One of more replies than may be.
fn by_governor(home: &Home, broker: &Broker) -> Made {
    drop(Raw::register(home, broker, "ada"));
    let mut adapter = home.peerbus(&["adapter", "--adapter", "generic", "--name", "bob"]);
    let mut bob = Mcp::spawn(adapter.env("PEERBUS_BUDGET", "1"));
    bob.initialize("some-bot");
    let mut id = String::new();
    for _ in 0..2 {
        bob.call("bus.send", json!({ "to": "ada", "body": "hi" }));
        id = send(home, "bob", "hi");
        eventually("it is read, or held", || {
            let drained = bob.call("bus.drain", json!({}));
            let read = drained["messages"]
                .as_array()
                .is_some_and(|all| !all.is_empty());
            (read || drained["held"].as_u64() > Some(0)).then_some(())
        });
    }
    eventually("it is held", || {
        bob.call("bus.drain", json!({}))["held"]
            .as_u64()
            .filter(|held| *held > 0)
    });
    (id, Box::new(bob))
}

#[test]
fn whatever_became_of_a_message_a_sentence_says_it_and_what_to_do() {
    for (make, state, says) in TABLE {
        let home = Home::new();
        let broker = Broker::start(&home);
        let (id, _alive) = make(&home, &broker);
        let told = eventually(state, || {
            let told = home.run(&["status", &id, "--json"]).ok();
            let told: Value = serde_json::from_str(&told).ok()?;
            let trail = told["messages"][0]["trail"].clone();
            let last = trail["steps"].as_array()?.last()?["state"].clone();
            (last == *state).then_some(trail)
        });
        let note = told["note"].as_str().expect("a sentence");
        for words in *says {
            assert!(
                note.contains(words),
                "{state}: {words:?} is missing in {note:?}"
            );
        }
        let shown = home.run(&["status", &id]).ok();
        let words = says[0];
        assert!(shown.contains(words), "{shown}");
        drop(broker);
    }
}

#[test]
fn who_is_not_known_is_said_at_once_with_who_may_be_meant() {
    let home = Home::new();
    let broker = Broker::start(&home);
    drop(Raw::register(&home, &broker, "bob"));
    let said = home.run(&["send", "bop", "hi"]).fails(1);
    for words in [
        "nobody here is called bop",
        "`peerbus peers --all` shows",
        "Did you mean bob?",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let said = home.run(&["status", "m1"]).fails(1);
    for words in ["no message has the id m1", "nobody here is called m1"] {
        assert!(said.contains(words), "{said}");
    }
    let said = home.run(&["status", "abcdef01"]).fails(1);
    assert!(said.contains("`peerbus history --ids` lists"), "{said}");
    broker.stop();
}
