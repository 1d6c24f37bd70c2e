//! Questions, answers and how far they got, between real adapters, and on the command line.

use std::time::Instant;

use peerbus_test_support::message::envelope;
use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, PATIENCE, Raw, eventually};

/// The result of a tool call that was asked before.
#[track_caller]
pub(crate) fn answer(mcp: &mut Mcp, id: u64) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(mut message) = mcp.next(left) else {
            panic!("no answer to {id}")
        };
        if message["id"] == json!(id) {
            return message["result"].take();
        }
    }
}

/// A message is drained, and its reader says that it saw it.
fn seen(mcp: &mut Mcp) {
    let id = mcp.drained()["id"].take();
    let acked = mcp.call("bus.ack", json!({ "ids": [id] }));
    assert_eq!(acked["acked"], json!([id]));
}

pub(crate) fn peer(home: &Home, name: &str) -> Mcp {
    let mut mcp = Mcp::start(home, "generic", name, "some-bot");
    mcp.call("bus.peers", json!({}));
    mcp
}

#[test]
fn a_reply_says_whom_it_answers_when_two_senders_used_an_id() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = peer(&home, "bob");
    let secret = home.credential("hmac_secret");
    let mut senders = ["alice", "eve"].map(|name| Raw::register(&home, &broker, name));
    for (raw, name) in senders.iter_mut().zip(["alice", "eve"]) {
        raw.say(&envelope(&secret, "m1", name, "bob", r#"{"text":"well?"}"#));
        assert_eq!(raw.answer()["state"], "accepted");
        assert_eq!(bob.drained()["from"], name);
    }
    let why = bob.call_fails("bus.reply", json!({ "msg_id": "m1", "body": "yes" }));
    assert!(
        why.contains(
            "several messages go by m1: m1 of alice, m1 of eve; give more of the id, or say whose"
        ),
        "{why}"
    );
    for (raw, name) in senders.iter_mut().zip(["alice", "eve"]) {
        let reply = json!({ "msg_id": "m1", "from": name, "body": name });
        assert_eq!(bob.call("bus.reply", reply)["to"], name);
        let body = raw.delivery()["envelope"]["body"].take();
        assert_eq!(
            (&body["text"], &body["reply_to"]),
            (&json!(name), &json!("m1"))
        );
    }
}

#[test]
fn a_question_is_answered_and_its_steps_say_by_what_it_was_seen() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (mut alice, mut bob) = (peer(&home, "alice"), peer(&home, "bob"));
    let ask = alice.ask_tool("bus.ask", json!({ "to": "bob", "body": "ready?" }));
    let question = bob.drained();
    assert_eq!(
        (&question["from"], &question["body"]["text"]),
        (&json!("alice"), &json!("ready?"))
    );
    let reply = json!({ "msg_id": question["id"], "body": "yes" });
    let replied = bob.call("bus.reply", reply);
    assert_eq!(replied["to"], "alice");
    let answered = answer(&mut alice, ask)["structuredContent"].take();
    assert_eq!(answered["answered"], true, "{answered}");
    assert_eq!(
        answered["answer"]["body"],
        json!({
            "text": "yes", "reply_to": question["id"], "thread": question["id"], "hops": 1
        })
    );

    let status = alice.call("bus.status", json!({ "id": question["id"] }));
    let trail = &status["messages"][0];
    let steps = trail["steps"].as_array().expect("steps").iter();
    // An agent that takes its time is asked whether it lives.
    let states: Vec<_> = steps.filter(|step| step["state"] != "pushed").collect();
    let words: Vec<_> = states.iter().map(|step| &step["state"]).collect();
    let way = ["accepted", "delivered", "presented", "seen", "done"];
    assert_eq!(words, way, "{trail}");
    assert_eq!(states[4]["reply"], replied["id"]);
    assert_eq!(
        (&states[3]["path"], &states[3]["evidence"]),
        (&json!("drain"), &json!("tool_call"))
    );
    assert!(
        states
            .iter()
            .all(|step| step["at"].as_str().is_some_and(|at| at.ends_with('Z')))
    );
    let note = trail["note"].as_str().expect("a sentence");
    assert!(note.starts_with("bob answered it"), "{note}");
    // The answer was the result of the question; that its model saw it is not known.
    let answer = eventually("the answer is acked", || {
        let status = bob.call("bus.status", json!({ "id": replied["id"] }));
        let last = status["messages"][0]["steps"].as_array()?.last()?.clone();
        (last["state"] == "pushed").then_some(last)
    });
    assert_eq!(answer["path"], "ask");
    broker.stop();
}

#[test]
fn after_a_cancelled_question_the_answer_comes_as_a_message() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (mut alice, mut bob) = (peer(&home, "alice"), peer(&home, "bob"));
    let ask = alice.ask_tool("bus.ask", json!({ "to": "bob", "body": "ready?" }));
    let question = bob.drained();
    alice.write(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": ask },
    }));
    // What is answered after it was read after it.
    alice.call("bus.peers", json!({}));
    let reply = json!({ "msg_id": question["id"], "body": "late" });
    bob.call("bus.reply", reply);
    let message = alice.drained();
    assert_eq!(message["body"]["text"], "late");
    assert_eq!(message["body"]["reply_to"], question["id"]);
    assert!(alice.notifications.is_empty(), "{:?}", alice.notifications);
    broker.stop();
}

#[test]
fn what_cannot_be_answered_or_ranked_is_refused_with_a_remedy() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut alice = peer(&home, "alice");
    let unknown = json!({ "msg_id": "0123", "body": "x" });
    let unknown = alice.call_fails("bus.reply", unknown);
    assert!(
        unknown.contains("0123") && unknown.contains("bus send tool"),
        "{unknown}"
    );
    let odd = json!({ "to": "alice", "body": "x", "priority": "asap" });
    let odd = alice.call_fails("bus.send", odd);
    assert!(
        odd.contains("now, next or quiet") && odd.contains("asap"),
        "{odd}"
    );
    let status = alice.call("bus.status", json!({ "id": "0123" }));
    let note = status["messages"][0]["note"].as_str().expect("a sentence");
    assert!(note.contains("knows no message"), "{note}");
    let send = ["send", "alice", "x", "--priority", "asap"];
    let odd = home.run(&send).fails(2);
    assert!(odd.contains("now, next or quiet"), "{odd}");
    broker.stop();
}

#[test]
fn a_renamed_peer_is_reached_by_either_name() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (mut alice, mut bob) = (peer(&home, "alice"), peer(&home, "bob"));
    let renamed = bob.call("bus.rename", json!({ "name": "robert" }));
    assert_eq!(renamed["self"], "robert", "{renamed}");
    for to in ["robert", "bob"] {
        alice.call("bus.send", json!({ "to": to, "body": to }));
        assert_eq!(bob.drained()["body"], to);
    }
    let sent = home.run(&["send", "Bob", "from the shell", "--name", "ann"]);
    let sent = sent.ok();
    assert!(
        sent.ends_with(
            "Bob is an old name of robert; robert is connected; nothing wakes robert: it \
             reads when it is told to\n"
        ),
        "{sent}"
    );
    assert_eq!(bob.drained()["body"], "from the shell");
    // An answer under the new name answers a question to the old one.
    let ask = json!({
        "name": "bus.ask", "arguments": { "to": "bob", "body": "ready?" },
        "_meta": { "progressToken": "p" },
    });
    let ask = alice.ask("tools/call", ask);
    let told = alice.notification("progress", |n| {
        (n["params"]["progressToken"] == "p").then(|| n["params"]["message"].clone())
    });
    assert!(
        told.as_str().is_some_and(|told| told.contains("robert")),
        "{told}"
    );
    let question = bob.drained();
    bob.call(
        "bus.reply",
        json!({ "msg_id": question["id"], "body": "yes" }),
    );
    let answered = answer(&mut alice, ask)["structuredContent"].take();
    assert_eq!(answered["answer"]["from"], "robert", "{answered}");
    let taken = alice.call_fails("bus.rename", json!({ "name": "robert" }));
    assert!(taken.contains("your name is alice"), "{taken}");
    broker.stop();
}

#[test]
fn the_command_line_shows_the_steps_of_any_message() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = peer(&home, "bob");
    let mut alice = peer(&home, "alice");
    let id = alice.call("bus.send", json!({ "to": "bob", "body": "hi" }))["id"].take();
    let id = id.as_str().expect("an id");
    seen(&mut bob);
    let shown = eventually("it is seen", || {
        let shown = home.run(&["status", id]).ok();
        shown.contains("model has seen").then_some(shown)
    });
    // An agent that takes its time is asked whether it lives.
    let pushed = |line: &&str| line.split_whitespace().nth(1) != Some("pushed");
    let mut lines: Vec<_> = shown.lines().filter(pushed).collect();
    assert_eq!(lines.remove(0), "from alice to bob");
    let words: Vec<_> = lines
        .iter()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    let way = ["accepted", "delivered", "presented", "seen"];
    assert_eq!(words[..4], way, "{shown}");
    assert!(lines[3].ends_with("bob  by drain  (tool_call)"), "{shown}");
    assert!(lines[4].starts_with("bob's model has seen it"), "{shown}");
    let json: Value =
        serde_json::from_str(&home.run(&["status", id, "--json"]).ok()).expect("JSON");
    let message = &json["messages"][0];
    assert_eq!(
        (&message["from"], &message["trail"]["id"]),
        (&json!("alice"), &json!(id))
    );
    // A sender without a name of its own is gone when anybody asks. What it sent is not.
    let sent = home.run(&["send", "bob", "hi", "--json"]).ok();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    let sent = sent["id"].as_str().expect("an id");
    let from = bob.drained()["from"].take();
    let name = from.as_str().expect("a name");
    let status = home.run(&["status", sent]).ok();
    assert!(
        status.starts_with(&format!("from {name} to bob\n")) && status.contains("accepted"),
        "{status}"
    );
    let json: Value =
        serde_json::from_str(&home.run(&["status", sent, "--json"]).ok()).expect("JSON");
    assert_eq!(json["messages"][0]["from"], from, "{json}");
    let unknown = home.run(&["status", "no-such-id"]).fails(1);
    assert!(
        unknown.contains("no message has the id no-such-id"),
        "{unknown}"
    );
    let odd = home.run(&["status", "a b"]).fails(2);
    assert!(odd.contains("id contains"), "{odd}");
    let group = home.run(&["status", "#web"]).fails(2);
    assert!(group.contains("`peerbus requests '#web'`"), "{group}");
    broker.stop();
}

#[test]
fn a_question_about_a_message_registers_nobody() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (mut alice, _bob) = (peer(&home, "alice"), peer(&home, "bob"));
    let id = alice.call("bus.send", json!({ "to": "bob", "body": "hi" }))["id"].take();
    let id = id.as_str().expect("an id");
    let url = broker.url();
    // While alice is connected her name is in use.
    let status = home.run(&["status", id, "--name", "Alice"]).ok();
    assert!(status.starts_with("from alice to bob\n"), "{status}");
    let unknown = home.run(&["status", id]).stderr;
    assert_eq!(unknown, "");
    for elsewhere in [&[][..], &["--url", &url]] {
        let ask = ["status", id, "--name", "zed"];
        let unknown = home.run(&[&ask[..], elsewhere].concat()).fails(1);
        assert!(
            unknown.contains(&format!(" knows no message {id}")),
            "{unknown}"
        );
    }
    let peers = home.run(&["peers", "--all"]).ok();
    assert!(!peers.contains("zed") && peers.contains("alice"), "{peers}");
    // From elsewhere only the sender is told.
    let sent = ["send", "bob", "hi", "--name", "ci", "--json"];
    let sent: Value = serde_json::from_str(&home.run(&sent).ok()).expect("JSON");
    let sent = sent["id"].as_str().expect("an id");
    let status = home.run(&["status", sent, "--name", "ci", "--url", &url]);
    assert!(status.stderr.contains("registers"), "{}", status.stderr);
    assert!(status.ok().starts_with("from ci to bob\n"));
    let nobody = home.run(&["status", sent, "--url", &url]).fails(2);
    assert!(nobody.contains("--name"), "{nobody}");
    broker.stop();
}

#[test]
fn a_sender_may_wait_until_it_is_seen() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = peer(&home, "bob");
    let waiting = std::thread::scope(|scope| {
        let sender = scope.spawn(|| home.run(&["send", "bob", "hi", "--wait", "seen=50"]).ok());
        seen(&mut bob);
        sender.join().expect("the sender ends")
    });
    let lines: Vec<_> = waiting.lines().collect();
    assert!(lines[0].starts_with("accepted"), "{waiting}");
    assert!(lines[1].starts_with("bob's model has seen it"), "{waiting}");
    bob.close();
    let send = [
        "send", "bob", "hi", "--wait", "seen=0.1", "--name", "ci", "--json",
    ];
    let unseen = home.run(&send);
    assert_eq!(unseen.code, Some(1), "{}", unseen.stderr);
    assert!(
        unseen
            .stderr
            .contains("not seen: it waits at the broker for bob"),
        "{}",
        unseen.stderr
    );
    let told: Value = serde_json::from_str(&unseen.stdout).expect("JSON");
    assert_eq!(told["seen"], false);
    // Later, under the same name.
    let id = told["id"].as_str().expect("an id");
    let status = home.run(&["status", id, "--name", "ci"]).ok();
    assert!(
        status.contains("queued") && status.contains("it waits at the broker"),
        "{status}"
    );
    broker.stop();
}

#[test]
fn what_a_peer_merely_claims_to_have_seen_is_not_waited_for_with_success() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut eve = Raw::register(&home, &broker, "eve");
    let send = ["send", "eve", "hi", "--wait", "seen=50", "--json"];
    let waited = std::thread::scope(|scope| {
        let sender = scope.spawn(|| home.run(&send));
        let ack = json!({
            "protocol_version": "v1", "type": "ack", "id": eve.delivery()["delivery_key"],
            "how": "seen", "path": "inbox", "evidence": "believe me",
        });
        eve.say(&ack.to_string());
        sender.join().expect("the sender ends")
    });
    assert_eq!(waited.code, Some(1), "{}", waited.stdout);
    let claim = "not proven: eve says that its model has seen it";
    let said = &waited.stderr;
    assert!(
        said.contains(claim) && said.contains(r#""believe me""#),
        "{said}"
    );
    let told: Value = serde_json::from_str(&waited.stdout).expect("JSON");
    assert_eq!(told["seen"], false, "{told}");
    broker.stop();
}

#[test]
fn what_is_said_of_a_conversation_is_printed_by_recv() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "bob", "--timeout", "0.1"])
        .ok();
    let more = [
        "--reply-to",
        "q-1",
        "--thread",
        "t-1",
        "--priority",
        "quiet",
    ];
    home.run(&[&["send", "bob", r#"{"n":1.50}"#], &more[..]].concat())
        .ok();
    home.run(&["send", "bob", "plain", "--name", "ann"]).ok();
    let lines = home
        .run(&["recv", "--name", "bob", "--count", "2", "--timeout", "50"])
        .ok();
    let mut lines = lines.lines();
    let first = lines.next().expect("a line");
    assert!(
        first.contains(r#""body":{"n":1.50,"reply_to":"q-1","#),
        "{first}"
    );
    let first: Value = serde_json::from_str(first).expect("JSON");
    assert_eq!(
        (&first["reply_to"], &first["thread"], &first["priority"]),
        (&json!("q-1"), &json!("t-1"), &json!("quiet"))
    );
    let plain: Value = serde_json::from_str(lines.next().expect("a line")).expect("JSON");
    assert_eq!(
        (plain.get("thread"), &plain["priority"]),
        (None, &json!("next"))
    );
    assert_eq!(plain["body"], "plain");
    broker.stop();
}

#[test]
fn peers_are_shown_with_what_they_say_of_themselves() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut alice = peer(&home, "alice");
    let _bob = peer(&home, "bob");
    let peers = alice.call("bus.peers", json!({}));
    let bob = &peers["details"][0];
    assert_eq!(
        (
            &bob["name"],
            &bob["online"],
            &bob["client"],
            &bob["unacked"]
        ),
        (&json!("bob"), &json!(true), &json!("some-bot 1"), &json!(0))
    );
    assert_eq!(
        bob["wake"],
        json!([]),
        "a generic client cannot be woken: {bob}"
    );
    let table = home.run(&["peers", "--all"]).ok();
    let header = table.lines().next().expect("a header");
    for column in [
        "NAME", "STATE", "UNSEEN", "CLIENT", "PROJECT", "BRANCH", "WAKE", "ACKS",
    ] {
        assert!(header.contains(column), "{table}");
    }
    let line = table
        .lines()
        .find(|line| line.contains("bob"))
        .expect("bob");
    assert!(
        line.contains("some-bot 1") && line.contains(" - ") && line.contains("seen"),
        "{line}"
    );
    broker.stop();
}

#[test]
fn how_long_a_peer_is_busy_is_shown_and_forgotten_when_it_leaves() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut alice = peer(&home, "alice");
    let mut bob = Raw::register(&home, &broker, "bob");
    let busy = json!({
        "protocol_version": "v1", "type": "presence", "presence": { "activity": "busy" },
    });
    bob.say(&busy.to_string());
    let known = eventually("bob is busy", || {
        let known = alice.call("bus.peers", json!({}))["details"][0].take();
        (known["activity"] == "busy").then_some(known)
    });
    assert!(known["activity_s"].is_u64(), "{known}");
    let row = || {
        let table = home.run(&["peers", "--all"]).ok();
        let row = table.lines().find(|row| row.contains("bob"));
        row.expect("bob").to_owned()
    };
    let busy = row();
    let (_, figure) = busy.split_once("busy ").expect("it is busy");
    let (seconds, _) = figure.split_once(" s").expect("seconds");
    assert!(seconds.parse::<u64>().is_ok(), "{busy}");
    let as_json = || {
        let told = home.run(&["peers", "--json"]).ok();
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let mut peers = told["peers"].as_array().expect("peers").iter();
        peers
            .find(|peer| peer["name"] == "bob")
            .expect("bob")
            .clone()
    };
    assert!(as_json()["activity_s"].is_u64());
    drop(bob);
    let away = eventually("bob is away", || {
        let bob = as_json();
        (bob["online"] == false).then_some(bob)
    });
    assert_eq!(
        (away.get("activity"), away.get("activity_s")),
        (None, None),
        "{away}"
    );
    assert!(row().contains("away "));
    broker.stop();
}
