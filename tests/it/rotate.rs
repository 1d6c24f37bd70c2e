//! The secret changes while mail waits and sessions live.

use peerbus_test_support::message::envelope;
use peerbus_wire::{Envelope, Secret};
use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, Raw, eventually};

/// Whether a delivered message verifies with `secret`.
fn signed_with(secret: &str, delivery: &Value) -> bool {
    let member = |name: &str| {
        let text = delivery["envelope"][name].as_str();
        text.expect("a string").to_owned()
    };
    // Members stand as the sender wrote them, and none is sorted.
    let body = &delivery["envelope"]["body"];
    let body = match body.as_object() {
        Some(said) => format!(r#"{{"text":{},"hops":{}}}"#, said["text"], said["hops"]),
        None => body.to_string(),
    };
    let envelope = Envelope {
        protocol_version: member("protocol_version"),
        id: member("id"),
        from: member("from"),
        to: member("to"),
        ts: member("ts"),
        source: member("source"),
        kind: member("kind"),
        body: body.into(),
        hmac: member("hmac"),
    };
    let secret = Secret::new(secret.as_bytes()).expect("a secret");
    secret.verify(&envelope).is_ok()
}

fn drained(session: &mut Mcp, text: &str) {
    eventually(text, || {
        let drained = session.call("bus.drain", json!({}));
        drained.to_string().contains(text).then_some(())
    });
}

#[test]
fn a_secret_is_rotated_under_living_sessions_and_waiting_mail() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let old = home.credential("hmac_secret");
    let mut eve = Raw::register(&home, &broker, "eve");
    drop(Raw::register(&home, &broker, "carol"));
    let mut bob = Mcp::start(&home, "generic", "bob", "some-bot");
    bob.call("bus.peers", json!({}));
    let send = |args: &[&str]| home.run(&[&["send"], args].concat()).ok();
    send(&["carol", "under the old one"]);

    home.apart(&["secret", "rotate"]).ok();
    let new = home.credential("hmac_secret");
    assert!(new != old && home.credential("hmac_secret_also") == old);
    let error = home.apart(&["secret", "rotate"]).fails(2);
    assert!(error.contains("peerbus secret retire"), "{error}");
    let doctor = home.run(&["doctor"]);
    assert!(doctor.stdout.contains("`hmac_secret_also` is accepted"));

    // A session that lives reads the file again when it meets the new secret, and signs with it.
    send(&["bob", "under the new one"]);
    drained(&mut bob, "under the new one");
    eve.say(&envelope(&old, "late", "eve", "bob", r#""by the old one""#));
    drained(&mut bob, "by the old one");
    bob.call("bus.send", json!({ "to": "eve", "body": "hello" }));
    let delivery = eve.delivery();
    assert!(signed_with(&new, &delivery) && !signed_with(&old, &delivery));

    let recv = ["recv", "--name", "carol", "--count", "1", "--timeout", "50"];
    assert!(home.run(&recv).ok().contains("under the old one"));
    eve.say(&envelope(&old, "queued", "eve", "carol", "1"));
    eve.receipt("accepted");
    broker.stop();
    let broker = Broker::start(&home);
    assert!(home.run(&recv).ok().contains("\"queued\""), "a restart");

    let mut eve = Raw::register(&home, &broker, "eve");
    eve.say(&envelope(&old, "too-late", "eve", "carol", "1"));
    eve.receipt("accepted");
    home.apart(&["secret", "retire"]).ok();
    send(&["carol", "the last"]);
    let last = home.run(&recv).ok();
    assert!(last.contains("the last") && !last.contains("too-late"));
    let dead = eve.receipt("dead");
    assert_eq!(dead["id"], "too-late");
    let reason = dead["reason"].as_str().expect("a reason");
    assert!(reason.contains("signature mismatch"), "{reason}");
    broker.stop();
}

#[test]
fn machines_take_a_new_secret_one_by_one_by_their_variables() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let old = home.credential("hmac_secret");
    let new = "another secret that is long enough, too";
    let run = |secret: &str, also: &str, args: &[&str]| {
        let mut command = home.peerbus(args);
        command.env("PEERBUS_HMAC_SECRET", secret);
        command.env("PEERBUS_HMAC_SECRET_ALSO", also);
        let output = command.output().expect("peerbus runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    drop(Raw::register(&home, &broker, "bob"));
    let recv = ["recv", "--name", "bob", "--count", "1", "--timeout", "50"];
    let steps = [
        ("prepared hears prepared", (&*old, new), (&*old, new)),
        ("prepared hears moved", (new, &*old), (&*old, new)),
        ("moved hears prepared", (&*old, new), (new, &*old)),
        ("done hears moved", (new, &*old), (new, "")),
    ];
    for (text, (signs, also), (secret, accepts)) in steps {
        run(signs, also, &["send", "bob", text]);
        assert!(run(secret, accepts, &recv).contains(text), "{text}");
    }
    broker.stop();
}
