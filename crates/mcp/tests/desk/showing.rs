//! What is shown unasked, when, and what proves that it was seen.

use std::sync::atomic::Ordering;
use std::time::Duration;

use peerbus_adapter::How;
use peerbus_adapter::wake::{Activity, Outcome, ParcelId, Path};
use peerbus_mcp::Options;
use peerbus_wire::Progress;
use serde_json::json;

use crate::session::{OVERDUE, Session, advance, along, is_ack, pushed, seen};
use crate::support::Seen;

#[tokio::test]
async fn the_name_is_announced_first_and_nothing_is_pushed_before_the_client_is_ready() {
    let mut session = Session::start(Options::default()).await;
    session.client.initialize("some-bot").await;
    session.broker.registered().await;
    session.broker.deliver("\"early\"");
    let request = session.client.request("tools/list", json!({})).await;
    assert!(request["result"].is_object());
    // The name of the broker's answer: it came after the message.
    session.desk.activity(Activity::Idle);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(
        session.client.pushed.is_empty(),
        "{:?}",
        session.client.pushed
    );
    session.client.initialized().await;
    let first = session.client.push().await;
    assert_eq!(first["content"], "connected as me");
    let push = session.client.push().await;
    assert_eq!(push["content"], "📨 msg from bob: \"early\"");
    let mark = push["meta"]["push"].as_str().unwrap();
    assert!(mark.starts_with("pb-") && mark.len() > 12, "{mark}");
}

#[tokio::test]
async fn what_brought_no_evidence_comes_along_as_a_repeat_and_is_acked_as_pushed() {
    let mut session = Session::greeted(Options::default()).await;
    session.broker.deliver("\"hello\"");
    let push = session.client.push().await;
    assert_eq!(push["content"], "📨 msg from bob: \"hello\"");
    assert_eq!(push["meta"].get("repeat"), None);
    assert_eq!(session.settle().await, None, "it may yet bring evidence");
    advance(OVERDUE).await;
    let text = session.settle().await.expect("it comes along");
    assert!(
        text.contains("📨 msg from bob [m1] (shown before): \"hello\""),
        "{text}"
    );
    assert!(
        text.contains("untrusted") && text.contains("bus reply tool"),
        "{text}"
    );
    assert!(
        !session.broker.noticed().iter().any(is_ack),
        "nothing is known"
    );
    assert_eq!(session.settle().await, None, "once");
    assert_eq!(
        session.broker.ack().await,
        ("1".into(), pushed("piggyback"))
    );
}

#[tokio::test]
async fn an_answer_after_the_line_is_evidence_for_everything_in_it() {
    let mut session = Session::greeted(Options::default()).await;
    session.desk.set_evidence(true);
    session.broker.deliver("\"one\"");
    let push = session.client.push().await;
    let mark = push["meta"]["push"].as_str().unwrap().to_owned();
    session.desk.watching().await;
    assert_eq!(session.desk.watched(), std::slice::from_ref(&mark));
    session.desk.presented("pb-00000000-1");
    session.desk.answered("pb-00000000-1");
    session.desk.presented(&mark);
    let step = session.broker.saw("a step", |seen| match seen {
        Seen::Progress {
            step: step @ Progress::Presented { .. },
            ..
        } => Some(step),
        Seen::Ack { .. } => panic!("the line alone proves nothing"),
        _ => None,
    });
    let path = "channel".to_owned();
    assert_eq!(step.await, Progress::Presented { path });
    session.desk.answered(&mark);
    assert_eq!(
        session.broker.ack().await,
        ("1".into(), seen("channel", "transcript"))
    );
    session.desk.unwatched().await;
    assert!(session.desk.watched().is_empty());
}

#[tokio::test]
async fn a_structured_body_is_shown_whole_before_an_answer_can_prove_it() {
    let mut session = Session::greeted(Options::default()).await;
    let body = r#"{"text":"build failed","log":"THE LOG","thread":"t1"}"#;
    let quoted = r#""{\"text\":\"build failed\",\"log\":\"THE LOG\",\"thread\":\"t1\"}""#;
    session.broker.deliver(body);
    let push = session.client.push().await;
    assert_eq!(push["content"], format!("📨 msg from bob: {quoted}"));
    let text = push["text"].as_str().unwrap();
    assert!(text.ends_with(&format!("(thread t1): {quoted}")), "{text}");
    // The text of v1's form is all that this one says.
    advance(Duration::from_secs(3)).await;
    session
        .broker
        .deliver(r#"{"text":"build failed","thread":"t1"}"#);
    let push = session.client.push().await;
    assert_eq!(push["content"], "📨 msg from bob: \"build failed\"");
}

#[tokio::test]
async fn a_tool_call_that_names_a_message_proves_that_it_was_seen() {
    let mut session = Session::greeted(Options::default()).await;
    session.broker.deliver("1");
    session.broker.deliver("2");
    session.client.push().await;
    let arguments = json!({ "msg_id": "m1", "body": "yes" });
    let result = session.client.call("bus.reply", arguments).await;
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(
        session.broker.ack().await,
        ("1".into(), seen("channel", "tool_call"))
    );
    let arguments = json!({ "ids": ["m2", "m1", "m9"] });
    let result = session.client.call("bus.ack", arguments).await["structuredContent"].take();
    assert_eq!(result["acked"], json!(["m2"]), "{result}");
    assert_eq!(result["unknown"], json!(["m1", "m9"]));
    let (key, how) = session.broker.ack().await;
    assert_eq!(key, "2");
    assert!(matches!(how, Some(How::Seen { evidence, .. }) if evidence == "tool_call"));
}

#[tokio::test]
async fn quiet_mail_starts_nothing_and_goes_with_the_next_push() {
    let mut session = Session::greeted(Options::default()).await;
    session
        .broker
        .deliver(r#"{"text":"by the way","priority":"quiet"}"#);
    session
        .broker
        .deliver_from("zoe", r#"{"text":"now then","reply_to":"q1"}"#);
    let push = session.client.push().await;
    let content = push["content"].as_str().unwrap();
    let lines: Vec<&str> = content.lines().collect();
    assert_eq!(push["meta"]["kind"], "digest");
    assert_eq!(lines[0], "📬 2 messages from peers, oldest first");
    assert_eq!(lines[1], "📨 msg from bob [m1]: \"by the way\"");
    assert_eq!(lines[2], "📨 msg from zoe [m2] (reply to q1): \"now then\"");
    assert_eq!(lines.len(), 3);
}

#[tokio::test]
async fn quiet_mail_alone_waits_for_a_tool_call() {
    let mut session = Session::greeted(Options::default()).await;
    session
        .broker
        .deliver(r#"{"text":"by the way","priority":"quiet"}"#);
    let text = session.settle().await.expect("it comes along");
    assert!(text.contains("[m1]: \"by the way\""), "{text}");
    assert!(
        session.client.pushed.is_empty(),
        "{:?}",
        session.client.pushed
    );
    // A failed call carries it as well, and none carries it twice.
    session
        .broker
        .deliver(r#"{"text":"more","priority":"quiet"}"#);
    session.client.request("tools/list", json!({})).await;
    let mut carried = Vec::new();
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
        let result = session
            .client
            .call("bus.send", json!({ "to": "bob" }))
            .await;
        assert_eq!(result["isError"], true);
        carried.extend(along(&result));
        if !carried.is_empty() {
            break;
        }
    }
    assert!(
        carried[0].contains("[m2]: \"more\"") && !carried[0].contains("m1"),
        "{carried:?}"
    );
}

#[tokio::test]
async fn a_path_that_is_gone_is_noticed_and_used_again_when_it_is_back() {
    let mut session = Session::greeted(Options::default()).await;
    session.usable.store(false, Ordering::Relaxed);
    session.broker.deliver("1");
    let text = session.settle().await;
    assert!(
        session.client.pushed.is_empty(),
        "{:?}",
        session.client.pushed
    );
    assert!(
        text.is_some_and(|text| text.contains("[m1]: \"1\"")),
        "nothing is lost"
    );
    let wake = |seen| match seen {
        Seen::Presence(presence) => Some(presence["wake"].clone()),
        _ => None,
    };
    let gone = |seen| wake(seen).filter(|wake| *wake == json!([]));
    session.broker.saw("presence without a path", gone).await;
    session.usable.store(true, Ordering::Relaxed);
    // More than the pause after a path has failed.
    advance(Duration::from_secs(5)).await;
    session.broker.deliver("2");
    assert_eq!(
        session.client.push().await["content"],
        "📨 msg from bob: \"2\""
    );
    let back = |seen| wake(seen).filter(|wake| *wake == json!(["channel"]));
    session.broker.saw("presence with a path", back).await;
}

#[tokio::test]
async fn a_hook_gets_what_is_unseen_once_and_gives_back_what_it_did_not_show() {
    let mut session = Session::greeted(Options::default()).await;
    session.usable.store(false, Ordering::Relaxed);
    session.broker.deliver("\"hello\"");
    for _ in 0..10_000 {
        if session.desk.has_unseen() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let handed = session.desk.hand_over(Path::Hook).expect("it waits");
    assert!(
        session.desk.hand_over(Path::Hook).is_none(),
        "it is on its way"
    );
    drop(handed);
    let handed = session
        .desk
        .hand_over(Path::Hook)
        .expect("it was not shown");
    assert!(
        handed.text.contains("📨 msg from bob [m1]: \"hello\""),
        "{}",
        handed.text
    );
    let mark = session.desk.mark(handed.parcel);
    assert!(handed.text.contains(&mark), "{}", handed.text);
    handed.confirm();
    assert!(!session.desk.has_unseen() && session.desk.hand_over(Path::Hook).is_none());
    let step = session.broker.saw("a step", |seen| match seen {
        Seen::Progress {
            step: Progress::Pushed { path },
            ..
        } => Some(path),
        _ => None,
    });
    assert_eq!(step.await, "hook");
    session.desk.answered(&mark);
    assert_eq!(
        session.broker.ack().await,
        ("1".into(), seen("hook", "transcript"))
    );
}

#[tokio::test]
async fn peers_are_told_how_the_session_is() {
    let mut session = Session::greeted(Options::default()).await;
    session.desk.activity(Activity::Busy);
    session.desk.set_evidence(true);
    session.desk.describe("mood", json!("x".repeat(2_000)));
    let told = |seen| match seen {
        Seen::Presence(about) if about["evidence"] == true => Some(about),
        _ => None,
    };
    let about = session.broker.saw("presence", told).await;
    assert_eq!(about["activity"], "busy", "{about}");
    assert_eq!(
        (&about["ack"], &about["wake"]),
        (&json!("auto"), &json!(["channel"]))
    );
    assert_eq!(
        (&about["adapter"], &about["client"]),
        (&json!("test"), &json!("some-bot"))
    );
    assert_eq!(about.get("mood"), None, "what does not fit is left out");
}

#[tokio::test]
async fn what_the_user_has_to_decide_on_is_shown_by_nobody_else() {
    let mut session = Session::greeted(Options::default()).await;
    session.broker.deliver("\"a secret plan\"");
    session.client.push().await;
    let parcel = ParcelId(session.last.load(Ordering::Relaxed));
    session.desk.told(parcel, Outcome::Held);
    advance(OVERDUE).await;
    assert_eq!(session.settle().await, None);
    assert!(session.desk.hand_over(Path::Hook).is_none());
    for arguments in [json!({}), json!({ "peek": true }), json!({ "ids": ["m1"] })] {
        let result = session.client.call("bus.inbox", arguments).await;
        assert!(!result.to_string().contains("a secret plan"), "{result}");
    }
    session.desk.told(parcel, Outcome::Denied);
    let rejected = |seen| match seen {
        Seen::Reject { key } => Some(key),
        Seen::Ack { .. } => panic!("nobody has seen it"),
        _ => None,
    };
    assert_eq!(session.broker.saw("rejection", rejected).await, "1");
}
