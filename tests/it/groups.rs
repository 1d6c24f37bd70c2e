//! Groups, between real adapters and on the command line.

use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, eventually};

/// An agent's session that works on the project `shop`.
fn agent(home: &Home, name: &str) -> Mcp {
    let project = home.path().join("shop");
    std::fs::create_dir_all(&project).expect("the project");
    let mut command = home.peerbus(&["adapter", "--adapter", "generic", "--name", name]);
    let mut mcp = Mcp::spawn(command.current_dir(project));
    mcp.initialize("some-bot");
    mcp.call("bus.peers", json!({}));
    mcp
}

#[track_caller]
fn drained(mcp: &mut Mcp) -> Value {
    eventually("a message is drained", || {
        let drained = mcp.call("bus.drain", json!({ "max": 1 }));
        drained["messages"].get(0).cloned()
    })
}

#[test]
fn everyone_in_a_project_gets_what_is_sent_to_it_and_who_is_away_later() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let [mut alice, mut bob, cyd] = ["alice", "bob", "cyd"].map(|name| agent(&home, name));
    let listed = bob.call("bus.peers", json!({}));
    assert_eq!(listed["details"][0]["groups"], json!(["#shop"]), "{listed}");
    cyd.close();
    let sent = alice.call("bus.send", json!({ "to": "#shop", "body": "lunch?" }));
    assert_eq!(sent["recipients"], 2, "{sent}");
    let note = sent["note"].as_str().expect("a note");
    assert!(note.contains("for 2 members of #shop"), "{note}");
    let got = drained(&mut bob);
    assert_eq!(
        (&got["from"], &got["group"]),
        (&json!("alice"), &json!("shop"))
    );
    assert_eq!(got["kind"], "msg");
    let mut cyd = agent(&home, "cyd");
    assert_eq!(drained(&mut cyd)["body"], "lunch?");
    broker.stop();
}

#[test]
fn a_session_joins_and_leaves_and_a_shell_does_likewise() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let [mut alice, mut bob] = ["alice", "bob"].map(|name| agent(&home, name));
    let why = alice.call_fails("bus.send", json!({ "to": "#reviewers", "body": "?" }));
    assert!(
        why.contains("nobody else is in #reviewers now; there are #shop"),
        "{why}"
    );
    let joined = bob.call("bus.join", json!({ "group": "#Reviewers" }));
    assert_eq!(joined["groups"], json!(["#reviewers", "#shop"]));
    let wrong = bob.call_fails("bus.join", json!({ "group": "a b" }));
    assert!(wrong.contains("a group is # and 1 to 64 of"), "{wrong}");
    let said = home.run(&["send", "#reviewers", "please look"]).ok();
    assert!(
        said.contains("for 1 member of #reviewers (1 connected)"),
        "{said}"
    );
    assert_eq!(drained(&mut bob)["group"], "reviewers");
    let peers = home.run(&["peers"]).ok();
    assert!(peers.contains(" shop #reviewers "), "{peers}");

    let left = bob.call("bus.leave", json!({ "group": "reviewers" }));
    assert_eq!(left["note"], "you are in #shop now");
    let mut listener = home.peerbus(&[
        "recv",
        "--name",
        "dora",
        "--group",
        "reviewers",
        "--count",
        "1",
    ]);
    let listener = std::thread::spawn(move || crate::support::Finished::of(&mut listener));
    eventually("dora has joined", || {
        let sent = home.run(&["send", "#reviewers", "again"]);
        (sent.code == Some(0)).then_some(())
    });
    let line = listener.join().expect("recv ends").ok();
    let line: Value = serde_json::from_str(line.trim()).expect("a line of JSON");
    assert_eq!(
        (&line["group"], &line["body"]),
        (&json!("reviewers"), &json!("again"))
    );
    broker.stop();
}
