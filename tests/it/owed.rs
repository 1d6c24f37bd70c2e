//! Requests between real adapters: asked, read, worked at, ended, taken back.

use serde_json::{Value, json};

use crate::conversation::{answer, peer};
use crate::groups::agent;
use crate::support::{Broker, Home, Mcp, eventually};

/// Asks without waiting. Gives the request's id.
fn asks(mcp: &mut Mcp, to: &str, body: &str) -> String {
    let ask = json!({ "to": to, "body": body, "timeout_s": 0, "within_s": 600 });
    let asked = mcp.call("bus.ask", ask);
    assert_eq!(asked["answered"], false, "{asked}");
    assert!(note(&asked).contains("stays owed until"), "{asked}");
    asked["id"].as_str().expect("an id").to_owned()
}

fn note(result: &Value) -> &str {
    result["note"].as_str().expect("a note")
}

/// A request is read: it says that it is one.
fn reads(mcp: &mut Mcp) -> Value {
    let request = mcp.drained();
    let wants = request["wants"].as_str();
    assert!(
        wants.is_some_and(|wants| wants.starts_with("a request")),
        "{request}"
    );
    request
}

fn tell(mcp: &mut Mcp, id: &Value, outcome: &str, body: &str) -> Value {
    let tell = json!({ "msg_id": id, "outcome": outcome, "body": body });
    mcp.call("bus.reply", tell)
}

/// The last step of a message that has this word.
fn step(mcp: &mut Mcp, id: &str, word: &str) -> Value {
    eventually(word, || {
        let status = mcp.call("bus.status", json!({ "id": id }));
        let step = status["messages"][0]["steps"].as_array()?.last()?.clone();
        (step["state"] == word).then_some(step)
    })
}

/// The ids of what a session owes.
fn owes(mcp: &mut Mcp) -> Vec<Value> {
    let listed = mcp.call("bus.inbox", json!({ "peek": true }));
    let owed = listed["owed"].as_array().cloned().unwrap_or_default();
    owed.iter().map(|debt| debt["id"].clone()).collect()
}

/// How many answers bob owes, as a peer is told.
fn owes_as_told(mcp: &mut Mcp) -> Value {
    let peers = mcp.call("bus.peers", json!({}));
    let details = peers["details"].as_array().expect("details");
    let bob = details.iter().find(|peer| peer["name"] == "bob");
    bob.expect("bob")["owes"].clone()
}

/// The notices that a session reads, once there are some.
fn notices(mcp: &mut Mcp) -> String {
    eventually("a notice", || {
        let read = mcp.call("bus.inbox", json!({}));
        let notices = read["notices"].as_array()?.clone();
        (!notices.is_empty()).then(|| Value::from(notices).to_string())
    })
}

#[test]
fn a_request_is_worked_at_and_its_result_comes_as_a_message() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (mut alice, mut bob) = (peer(&home, "alice"), peer(&home, "bob"));
    let id = asks(&mut alice, "bob", "are the tests green?");
    let request = reads(&mut bob);
    assert_eq!(request["id"], json!(id));
    tell(&mut bob, &request["id"], "working", "half way");
    let working = step(&mut alice, &id, "working");
    assert_eq!(working["reason"], "bob says: \"half way\"", "{working}");
    assert_eq!(owes(&mut bob), [json!(id)]);
    assert_eq!(owes_as_told(&mut alice), 1);
    let done = tell(&mut bob, &request["id"], "done", "all of them");
    assert_eq!(owes(&mut bob), [Value::Null; 0]);
    let result = alice.drained();
    assert_eq!(
        (&result["from"], &result["id"]),
        (&json!("bob"), &done["id"])
    );
    assert_eq!(
        (&result["body"]["text"], &result["body"]["reply_to"]),
        (&json!("all of them"), &json!(id))
    );
    assert_eq!(step(&mut alice, &id, "done")["reply"], done["id"]);
    assert_eq!(owes_as_told(&mut alice), Value::Null);
    broker.stop();
}

#[test]
fn who_waits_hears_at_once_that_it_failed_or_was_declined() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (mut alice, mut bob) = (peer(&home, "alice"), peer(&home, "bob"));
    for (outcome, answered, says) in [
        ("failed", true, "failed, as the peer says"),
        (
            "declined",
            false,
            "no answer will come: it was declined just now: bob says: \"not my repository\"",
        ),
    ] {
        let ask = json!({ "to": "bob", "body": "deploy it", "timeout_s": 600 });
        let call = alice.ask_tool("bus.ask", ask);
        let request = reads(&mut bob);
        tell(&mut bob, &request["id"], outcome, "not my repository");
        let result = answer(&mut alice, call)["structuredContent"].take();
        assert_eq!(result["answered"], answered, "{result}");
        assert!(note(&result).starts_with(says), "{result}");
        let id = request["id"].as_str().expect("an id");
        step(&mut alice, id, outcome);
    }
    broker.stop();
}

#[test]
fn a_request_that_was_declined_is_told_to_one_who_does_not_wait() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (mut alice, mut bob) = (peer(&home, "alice"), peer(&home, "bob"));
    let id = asks(&mut alice, "bob", "deploy it");
    let request = reads(&mut bob);
    tell(&mut bob, &request["id"], "declined", "not mine");
    let told = notices(&mut alice);
    let says = format!("your message {id} to bob was declined and will have no result");
    assert!(told.contains(&says), "{told}");
    broker.stop();
}

#[test]
fn a_request_that_is_taken_back_is_owed_no_more() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (mut alice, mut bob) = (peer(&home, "alice"), peer(&home, "bob"));
    let id = asks(&mut alice, "bob", "review it");
    let request = reads(&mut bob);
    tell(&mut bob, &request["id"], "working", "");
    let back = alice.call("bus.ask", json!({ "cancel": id }));
    assert!(note(&back).starts_with("taken back"), "{back}");
    assert_eq!(
        back["steps"]
            .as_array()
            .and_then(|it| it.last())
            .expect("steps")["state"],
        "withdrawn"
    );
    let told = notices(&mut bob);
    assert!(told.contains("is not yours any more"), "{told}");
    assert_eq!(owes(&mut bob), [Value::Null; 0]);
    // A late result is a message.
    bob.call("bus.reply", json!({ "msg_id": id, "body": "two bugs" }));
    assert_eq!(alice.drained()["body"]["text"], "two bugs");
    let again = bob.call("bus.ask", json!({ "cancel": id }));
    assert!(note(&again).contains("no open request of yours"), "{again}");
    broker.stop();
}

#[test]
fn one_of_a_group_is_asked_and_the_next_when_that_declines() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut alice = peer(&home, "alice");
    let mut members = ["bob", "carol"].map(|name| agent(&home, name));
    for member in &mut members {
        member.call("bus.peers", json!({}));
    }
    let ask = json!({ "to": "#shop", "body": "review the parser", "timeout_s": 600 });
    let call = alice.ask_tool("bus.ask", ask);
    let has = |mcp: &mut Mcp| {
        let drained = mcp.call("bus.drain", json!({ "max": 1 }));
        drained["messages"].get(0).cloned()
    };
    let (first, request) = eventually("a member has it", || {
        let mut each = members.iter_mut().enumerate();
        each.find_map(|(n, member)| Some((n, has(member)?)))
    });
    assert_eq!(request["group"], "shop", "{request}");
    let (first, second) = (first, 1 - first);
    assert_eq!(has(&mut members[second]), None, "one has it");
    tell(&mut members[first], &request["id"], "declined", "I am busy");
    let again = reads(&mut members[second]);
    assert_eq!(again["id"], request["id"]);
    tell(&mut members[second], &request["id"], "done", "two bugs");
    let result = answer(&mut alice, call)["structuredContent"].take();
    assert_eq!(result["answered"], true, "{result}");
    let from = ["bob", "carol"][second];
    assert_eq!(result["answer"]["from"], from, "{result}");
    assert_eq!(result["answer"]["body"]["text"], "two bugs");
    broker.stop();
}

#[test]
fn who_works_for_one_that_has_left_is_told_that_nobody_hears_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (mut alice, mut bob) = (peer(&home, "alice"), peer(&home, "bob"));
    asks(&mut alice, "bob", "review it");
    let request = reads(&mut bob);
    let told = tell(&mut bob, &request["id"], "working", "half way");
    assert!(
        note(&told).starts_with("alice is told that you work at it; "),
        "{told}"
    );
    home.run(&["ask", "bob", "and this?", "--detach"]).ok();
    let request = reads(&mut bob);
    let told = tell(&mut bob, &request["id"], "working", "half way");
    assert!(
        note(&told).contains(
            " has left, so nobody is told; its request's state says that you work at it; you"
        ),
        "{told}"
    );
    broker.stop();
}
