//! Requests that cross domains.

use std::process::Stdio;

use peerbus_test_support::message::envelope;
use serde_json::json;

use crate::support::bridge::{Bridge, token};
use crate::support::{Home, Raw};

use super::{PAIR, domain, share};

#[test]
fn a_request_between_domains_is_of_who_asks_and_of_who_is_asked() {
    let ((a, alpha), (b, beta)) = (domain("alpha"), domain("beta"));
    share(&a, "beta", PAIR);
    share(&b, "alpha", PAIR);
    let mut to_beta = Bridge::join(&alpha, &token(&a), "beta", "B1");
    let mut to_alpha = Bridge::join(&beta, &token(&b), "alpha", "A1");
    let _bob = Raw::register(&b, &beta, "bob");
    a.run(&["ask", "bob@beta", "ready?", "--name", "ann", "--detach"])
        .ok();
    let row = |home: &Home| {
        let shown = home.run(&["requests"]).ok();
        let row = shown.lines().nth(1).map(str::to_owned);
        row.unwrap_or(shown)
    };
    assert!(row(&a).contains("  bob@beta  "), "{}", row(&a));
    let (key, envelope) = to_beta.delivery();
    let open = envelope.strip_suffix('}').expect("an object");
    let taken = to_alpha.take(&format!(r#"{open},"within_ms":3600000}}"#));
    assert_eq!(taken["state"], "accepted", "{taken}");
    to_beta.says(&key, json!({ "state": "forwarded" }));
    let forwarded = row(&a);
    assert!(forwarded.contains("  bob@beta  "), "{forwarded}");
    assert!(!forwarded.contains("bridge@"), "{forwarded}");
    let there = row(&b);
    assert!(
        there.contains("ann@alpha") && !there.contains("bridge@"),
        "{there}"
    );
    alpha.stop();
    beta.stop();
}

#[test]
fn the_result_is_of_who_was_asked_or_of_whom_the_other_broker_names_and_of_nobody_else() {
    let (home, broker) = domain("alpha");
    share(&home, "beta", PAIR);
    let mut bridge = Bridge::join(&broker, &token(&home), "beta", "B1");
    let status = |id: &str| home.run(&["status", id]).ok();
    for author in ["bob@beta", "robert@beta"] {
        let ask = ["ask", "bob@beta", "safe?", "--name", "ann"];
        let mut ask = home.peerbus(&ask);
        let asking = ask.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let asking = asking.expect("peerbus starts");
        let (key, asked) = bridge.delivery();
        let asked: serde_json::Value = serde_json::from_str(&asked).expect("an envelope");
        let id = asked["id"].as_str().expect("an id");
        bridge.says(&key, json!({ "state": "forwarded" }));
        bridge.says(&key, json!({ "state": "acked" }));
        let answer = |from: &str, text: &str| {
            let body = json!({ "text": text, "reply_to": id }).to_string();
            let answer = format!("{text}-{id}");
            let envelope = envelope(PAIR, &answer, from, "ann@alpha", &body);
            (answer, envelope)
        };
        bridge.take(&answer("hal@beta", "yes").1);
        let open = home.run(&["requests"]).ok();
        assert!(open.contains("  bob@beta  "), "{open}");
        let (reply, envelope) = answer(author, "no");
        bridge.take(&envelope);
        bridge.says(&key, json!({ "state": "done", "reply": reply }));
        let asked = asking.wait_with_output().expect("it ends");
        let [result, aside] = [asked.stdout, asked.stderr].map(|it| String::from_utf8(it).unwrap());
        assert!(
            asked.status.success() && result == "no\n",
            "{result}{aside}"
        );
        let hal = "hal@beta writes, which is no result: \"yes\"";
        assert!(aside.contains(hal), "{aside}");
        let told = status(id);
        assert!(told.contains(&format!("message {reply}")), "{told}");
    }
    let done = home.run(&["requests", "--done"]).ok();
    assert!(done.contains("bob@beta") && !done.contains("hal"), "{done}");
    broker.stop();
}
