//! A beginning or an end of an id stands for the id.

use serde_json::{Value, json};

use crate::conversation::peer;
use crate::status::send;
use crate::support::{Broker, Home, Raw};

#[test]
fn an_id_is_named_by_its_end_or_its_beginning_and_several_are_listed() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Raw::register(&home, &broker, "bob");
    let ids = ["hi", "ho"].map(|text| send(&home, "bob", text));
    let trail = |part: &str| {
        let told = home.run(&["status", part, "--json"]).ok();
        let told: Value = serde_json::from_str(&told).expect("JSON");
        told["messages"][0]["trail"]["id"].clone()
    };
    for id in &ids {
        assert_eq!(trail(&id[24..]), json!(id));
        assert_eq!(trail(&id[..31]), json!(id));
    }
    let common = ids[0].bytes().zip(ids[1].bytes());
    let common = common.take_while(|(one, other)| one == other).count();
    let several = &ids[0][..common];
    assert!(common >= 8, "made in one minute: {ids:?}");
    let why = home.run(&["status", several]).fails(1);
    assert!(
        why.contains(&format!("{several} may be each of these: ")),
        "{why}"
    );
    assert!(ids.iter().all(|id| why.contains(id.as_str())), "{why}");
    let why = home.run(&["status", &ids[0][28..31]]).fails(1);
    assert!(
        why.contains("no message has the id"),
        "three are no part: {why}"
    );

    // What an id is taken for anywhere else.
    let reply = [
        "send",
        "bob",
        "well",
        "--reply-to",
        &ids[0][24..],
        "--thread",
        &ids[1][24..],
    ];
    home.run(&reply).ok();
    let said = home
        .run(&["history", "--thread", &ids[1][24..], "--json"])
        .ok();
    let last: Value = serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
    assert_eq!(
        (&last["reply_to"], &last["thread"]),
        (&json!(ids[0]), &json!(ids[1]))
    );
}

#[test]
fn tools_take_the_end_of_an_id_for_all_of_it() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let (mut alice, mut bob) = (peer(&home, "alice"), peer(&home, "bob"));
    let asked = alice.call("bus.send", json!({ "to": "bob", "body": "tests?" }));
    let id = asked["id"].as_str().expect("an id").to_owned();
    assert_eq!(bob.drained()["id"], json!(id));
    let replied = bob.call("bus.reply", json!({ "msg_id": id[24..], "body": "green" }));
    assert_eq!(
        (&replied["sent"], &replied["to"]),
        (&json!(true), &json!("alice"))
    );
    let answer = alice.drained();
    assert_eq!(
        (&answer["body"]["reply_to"], &answer["body"]["thread"]),
        (&json!(id), &json!(id))
    );
    let far = alice.call("bus.status", json!({ "id": id[24..] }));
    assert_eq!(far["messages"][0]["id"], json!(id));
    let more = json!({ "to": "alice", "body": "still", "thread": id[24..] });
    alice.call("bus.ack", json!({ "ids": [answer["id"]] }));
    bob.call("bus.send", more);
    assert_eq!(alice.drained()["body"]["thread"], json!(id), "{answer}");
}
