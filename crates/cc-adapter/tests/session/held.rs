//! What is held back, and who is told.

use peerbus_mcp::AdapterOptions;
use peerbus_test_support::mcp::messages;
use peerbus_test_support::scripted::{Broker, Seen};
use peerbus_wire::Stage;
use serde_json::{Value, json};

use crate::session::{DEAF, Session, Settings, bus, generic, pushed};

/// What one reply led to is shown, and what more did is held.
const BUDGET_1: Settings<'_> = &[("PEERBUS_BUDGET", "1")];

#[tokio::test]
async fn too_many_answers_are_held_and_both_sides_can_see_why() {
    let mut session = Session::greeted(BUDGET_1).await;
    for n in 1..=3 {
        let arguments = json!({ "to": "bob", "body": n });
        session.call("bus.send", arguments).await;
        session.deliver(&format!("\"answer {n}\""));
        session.settle().await;
    }
    let step = session.broker.saw("a step", |seen| match seen {
        Seen::Progress {
            key,
            stage: Stage::Held { why: reason },
        } => Some((key, reason)),
        _ => None,
    });
    let (key, reason) = step.await;
    assert_eq!(key, "2", "the first passes");
    assert!(
        reason.contains("bob") && reason.contains("budget 1"),
        "{reason}"
    );
    // Unasked, nothing of it is shown but that it is there; asked for, everything.
    let peek = session.call("bus.inbox", json!({ "peek": true })).await;
    let peek = messages(&peek);
    let held: Vec<_> = peek.iter().filter(|m| m.get("held").is_some()).collect();
    assert_eq!(held.len(), 2, "{peek:?}");
    assert_eq!(held[0]["text"], "answer 2");
    let pushes: Vec<String> = session.client.pushed.iter().map(Value::to_string).collect();
    assert!(
        pushes.iter().all(|push| !push.contains("answer 2")),
        "{pushes:?}"
    );
    let result = session
        .call("bus.inbox", json!({ "ids": ["m2", "m3"] }))
        .await;
    let read = messages(&result);
    let texts: Vec<_> = read.iter().map(|message| message["text"].clone()).collect();
    assert_eq!(texts, ["answer 2", "answer 3"]);
    session.call("bus.peers", json!({})).await;
    for key in ["2", "3"] {
        assert_eq!(session.broker.ack().await, (key.into(), pushed("inbox")));
    }
}

#[tokio::test]
async fn broadcasts_and_old_names_count_as_sent_to_whoever_answers() {
    for broadcast in [true, false] {
        let mut session = Session::greeted(BUDGET_1).await;
        for _ in 0..2 {
            let (tool, arguments) = if broadcast {
                ("bus.broadcast", json!({ "body": "go on" }))
            } else {
                ("bus.send", json!({ "to": "bob", "body": "go on" }))
            };
            let sent = session.call(tool, arguments).await;
            if !broadcast {
                let id = sent["structuredContent"]["id"].as_str().unwrap();
                let acked = Stage::Acked(None);
                session.broker.receipt_of("bob-renamed", id, acked);
            }
            session
                .broker
                .deliver_from("bob-renamed", "\"did it, more?\"");
            session.settle().await;
        }
        let held = |seen| match seen {
            Seen::Progress {
                key,
                stage: Stage::Held { .. },
            } => Some(key),
            _ => None,
        };
        assert_eq!(session.broker.saw("a hold", held).await, "2");
    }
}

#[tokio::test]
async fn a_drain_leaves_out_what_is_held_and_says_so() {
    let mut broker = Broker::start(true).await;
    let one = |name: &str| (name == "PEERBUS_BUDGET").then(|| "1".to_owned());
    let options = AdapterOptions::read(one).unwrap();
    let mut client = generic(bus(|name| broker.variable(name)), options).await;
    broker.registered().await;
    let mut drained = Vec::new();
    for n in 1..=2 {
        client
            .call("bus.send", json!({ "to": "bob", "body": n }))
            .await;
        broker.deliver(&n.to_string());
        // Answered after the message arrived: the broker answers in order.
        let peers = client.call("bus.peers", json!({})).await;
        assert!(!peers.to_string().contains("[m2]"), "{peers}");
    }
    let mut held = Value::Null;
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
        let result = client.call("bus.drain", json!({})).await["structuredContent"].take();
        drained.extend(result["messages"].as_array().unwrap().iter().cloned());
        held = result["held"].clone();
        if held == 1 {
            assert!(
                result["note"].as_str().unwrap().contains("budget 1"),
                "{result}"
            );
            break;
        }
    }
    assert_eq!(held, 1);
    assert!(
        drained.iter().all(|message| message["id"] != "m2"),
        "{drained:?}"
    );
    let result = client.call("bus.inbox", json!({})).await["structuredContent"].take();
    let messages = result["messages"].as_array().unwrap();
    let found = messages.iter().find(|message| message["id"] == "m2");
    assert!(found.is_some_and(|m| m["held"].is_string()), "{result}");
}

#[tokio::test]
async fn that_a_peer_holds_mail_is_told_once() {
    let mut session = Session::greeted(&[]).await;
    let held = |n: u32| Stage::Held {
        why: format!("paused: too many, {n}\n</x>"),
    };
    let arguments = json!({ "to": "bob", "body": "x" });
    let sent = session.call("bus.send", arguments).await;
    let id = sent["structuredContent"]["id"].as_str().unwrap().to_owned();
    session.broker.receipt(&id, held(1));
    session.broker.receipt(&id, held(2));
    let text = session.settle().await.expect("a notice");
    assert!(
        text.contains(&format!("📮 your message {id} to bob waits there")),
        "{text}"
    );
    assert!(
        text.contains("too many, 1") && !text.contains("too many, 2"),
        "{text}"
    );
    assert!(!text.contains("</x>"), "{text}");
    assert_eq!(session.settle().await, None);
}

#[tokio::test]
async fn a_crowd_is_told_once() {
    let mut session = Session::start(&[DEAF]).await;
    session.client.initialize("some-bot").await;
    session.broker.registered().await;
    for n in 0..200 {
        session.deliver(&n.to_string());
    }
    session.call("bus.peers", json!({})).await;
    session.client.initialized().await;
    let mut notices = Vec::new();
    for _ in 0..30 {
        let result = session.call("bus.inbox", json!({ "max": 10 })).await;
        let result = &result["structuredContent"];
        let found = result["notices"].as_array().unwrap();
        notices.extend(
            found
                .iter()
                .map(|notice| notice.as_str().unwrap().to_owned()),
        );
        if result["remaining"] == 0 {
            break;
        }
    }
    let crowd = notices
        .iter()
        .filter(|n| n.contains("what waits here unseen"));
    assert_eq!(crowd.count(), 1, "{notices:?}");
    assert!(notices[0].contains("bus inbox tool"), "{notices:?}");
}

/// Lets bob be answered so often that the next of his messages are held.
async fn over_budget(session: &mut Session) {
    for n in 0..2 {
        let arguments = json!({ "to": "bob", "body": n });
        session.call("bus.send", arguments).await;
        session.deliver(r#"{"text":"answer","priority":"quiet"}"#);
        session.settle().await;
    }
}

#[tokio::test]
async fn of_one_peer_so_much_is_held_and_no_more() {
    let mut session = Session::greeted(BUDGET_1).await;
    over_budget(&mut session).await;
    for _ in 0..40 {
        session.deliver("\"more\"");
    }
    let (mut listed, mut all_came) = (Vec::new(), false);
    for _ in 0..10_000 {
        listed.clear();
        for ids in (0..=42).collect::<Vec<_>>().chunks(8) {
            let ids: Vec<_> = ids.iter().map(|n| format!("m{n}")).collect();
            let peek = json!({ "peek": true, "ids": ids });
            listed.extend(messages(&session.call("bus.inbox", peek).await));
        }
        if std::mem::replace(&mut all_came, listed.iter().any(|m| m["id"] == "m42")) {
            break;
        }
    }
    let held = listed.iter().filter(|m| m.get("held").is_some()).count();
    assert_eq!(held, 32);
    assert!(listed.len() >= 41, "nothing is lost: {listed:?}");
    assert!(session.client.pushed.is_empty(), "quiet all the same");
}

#[tokio::test]
async fn a_window_that_held_mail_fills_is_told() {
    let mut session = Session::greeted(BUDGET_1).await;
    over_budget(&mut session).await;
    session.settle().await;
    let large = Value::from("x".repeat(100_000)).to_string();
    for _ in 0..8 {
        session.deliver(&large);
    }
    let push = session.client.push().await;
    let content = push["content"].as_str().unwrap();
    assert!(content.contains("what waits here unseen"), "{push}");
    assert!(content.contains("bus inbox tool"), "{push}");
}

/// Lets one answer of bob's pass, and delivers this, which is held.
async fn hold(session: &mut Session, body: &str) {
    for body in [r#"{"text":"first","priority":"quiet"}"#, body] {
        let arguments = json!({ "to": "bob", "body": "go on" });
        session.call("bus.send", arguments).await;
        session.deliver(body);
        session.settle().await;
    }
}

#[tokio::test]
async fn what_is_held_is_told_in_a_quiet_notice_and_counted_in_what_is_pushed() {
    let mut session = Session::greeted(BUDGET_1).await;
    hold(&mut session, "\"held 1\"").await;
    session.deliver("\"held 2\"");
    session.settle().await;
    session.broker.deliver_from("zoe", "\"free\"");
    let push = session.client.push().await.to_string();
    assert!(push.contains("free") && !push.contains("held 1"), "{push}");
    assert!(
        push.contains("2 are held back") || push.contains(r#""waiting":"2""#),
        "{push}"
    );
    let all: String = session.client.pushed.iter().map(Value::to_string).collect();
    assert_eq!(all, "", "a hold starts no turn");
}

#[tokio::test]
async fn that_mail_is_held_is_told_to_the_agent_once() {
    let mut session = Session::greeted(&[DEAF, BUDGET_1[0]]).await;
    let mut told = Vec::new();
    for n in 0..4 {
        let arguments = json!({ "to": "bob", "body": "go on" });
        session.call("bus.send", arguments).await;
        session.deliver(&n.to_string());
        told.extend(session.settle().await);
    }
    let told = told.join("\n");
    let notice = "📮 mail of bob is paused: 3 replies led to this message of bob, budget 1";
    assert_eq!(told.matches(notice).count(), 1, "{told}");
    assert_eq!(told.matches("mail of bob is").count(), 1, "{told}");
}

#[tokio::test]
async fn each_limit_holds_what_is_over_it_and_none_holds_when_it_is_off() {
    // A peer of version 1 says nothing of how many replies led to its message.
    for (limit, answers, why) in [
        ("2", 2, "3 replies led to this message of bob, budget 2"),
        ("off", 30, ""),
        ("16", 9, "17 replies led to this message of bob, budget 16"),
    ] {
        let mut session = Session::greeted(&[DEAF, ("PEERBUS_BUDGET", limit)]).await;
        for _ in 0..answers {
            let arguments = json!({ "to": "bob", "body": "go on" });
            session.call("bus.send", arguments).await;
            session.deliver("\"yes\"");
            session.settle().await;
        }
        let listed = session.inbox(json!({ "peek": true, "max": 50 })).await;
        let held: Vec<_> = listed["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|m| m.get("held").is_some())
            .collect();
        if why.is_empty() {
            assert!(held.is_empty(), "{held:?}");
        } else {
            assert_eq!(held.len(), 1, "{held:?}");
            assert_eq!(held[0]["id"], format!("m{answers}"));
            let said = held[0]["held"].as_str().unwrap();
            assert!(said.starts_with("paused: ") && said.contains(why), "{said}");
        }
    }
}

#[tokio::test]
async fn what_is_held_is_released_in_its_place_when_the_next_one_passes() {
    let mut session = Session::greeted(&[("PEERBUS_BUDGET", "2")]).await;
    hold(&mut session, "\"too many replies\"").await;
    session
        .broker
        .deliver_from("zoe", r#"{"text":"between","priority":"quiet"}"#);
    // The broker says first whether zoe is bob under another name.
    session.waiting(2).await;
    let listed = session.inbox(json!({ "peek": true })).await;
    let held = |listed: &Value| listed.to_string().contains("paused: ");
    assert!(held(&listed), "{listed}");
    // What zoe wrote begins a conversation of its own.
    let arguments = json!({ "to": "bob", "body": "zoe asks", "reply_to": "m3" });
    session.call("bus.send", arguments).await;
    session.deliver("\"anew\"");
    let push = session.client.push().await;
    let content = push["content"].as_str().unwrap();
    let at: Vec<_> = ["too many replies", "anew"]
        .map(|part| content.find(part))
        .into();
    let ordered = at.iter().all(Option::is_some) && at.is_sorted();
    assert!(ordered, "{content}");
    let left = session.inbox(json!({ "peek": true })).await;
    assert!(!held(&left), "{left}");
    let ids: Vec<_> = left["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["id"].clone())
        .collect();
    let at: Vec<_> = ["m2", "m4"]
        .map(|id| ids.iter().position(|found| found == id))
        .into();
    let ordered = at.iter().all(Option::is_some) && at.is_sorted();
    assert!(ordered, "in the order of arrival: {ids:?}");
}

#[tokio::test]
async fn of_passing_notices_the_oldest_go_first() {
    let mut session = Session::greeted(&[DEAF]).await;
    for n in 0..70 {
        let expired = Stage::Expired {
            why: "never read".into(),
        };
        let to = format!("bob-{n}.");
        session.broker.receipt_of(&to, "m0", expired);
    }
    session.waiting(64).await;
    // The last one may still be on its way.
    session.deliver("\"the end\"");
    session.waiting(65).await;
    let mut notices = Vec::new();
    for _ in 0..64 {
        let read = session.inbox(json!({})).await;
        let more = read["notices"].as_array().unwrap().clone();
        if more.is_empty() {
            break;
        }
        notices.extend(more);
    }
    assert_eq!(notices.len(), 64, "each once: {notices:?}");
    let named = |n: &str| notices.iter().any(|it| it.as_str().unwrap().contains(n));
    assert!(
        !named("bob-5.") && named("bob-6.") && named("bob-69."),
        "{notices:?}"
    );
}

#[tokio::test]
async fn what_the_session_sends_counts_hops_after_a_push_and_not_after_its_users_word() {
    let mut session = Session::at_home(&[("PEERBUS_WAKE", "socket")]).await;
    session.deliver(r#"{"text":"go on","hops":2}"#);
    let pushed = session.home.posted().await.content().to_owned();
    // The client's file is behind its hooks: it still says that the session is idle.
    for (prompt, hops) in [(pushed.as_str(), json!(3)), ("now this", Value::Null)] {
        let on = json!({ "hook_event_name": "UserPromptSubmit", "prompt": prompt });
        session.home.hook_on(&on).await;
        let send = json!({ "to": "bob", "body": { "n": 1 } });
        session.call("bus.send", send).await;
        let sent = session.broker.envelope().await;
        let sent: Value = serde_json::from_str(&sent.text).unwrap();
        assert_eq!(sent["body"]["hops"], hops, "{prompt}");
    }
}
