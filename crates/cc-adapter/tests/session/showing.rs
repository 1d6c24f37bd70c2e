//! What is shown unasked, when, and what proves that it was seen.

use std::time::Duration;

use peerbus_adapter::How;
use peerbus_test_support::scripted::{Mail, Seen};
use peerbus_wire::Stage;
use serde_json::{Value, json};

use crate::home::{answer, line};
use crate::session::{DEAF, OVERDUE, Session, advance, along, pushed, seen};

#[tokio::test]
async fn the_name_is_announced_first_and_nothing_is_pushed_before_the_client_is_ready() {
    let mut session = Session::start(&[]).await;
    session.client.initialize("some-bot").await;
    session.broker.registered().await;
    session.deliver("\"early\"");
    let request = session.client.request("tools/list", json!({})).await;
    assert!(request["result"].is_object());
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
    assert_eq!(first["content"], "📡 connected as me");
    let push = session.client.push().await;
    assert_eq!(push["content"], "📨 bob: \"early\"");
    let mark = push["meta"]["push"].as_str().unwrap();
    assert!(mark.starts_with("pb-") && mark.len() > 12, "{mark}");
}

#[tokio::test]
async fn what_brought_no_evidence_comes_along_as_a_repeat_and_is_acked_as_pushed() {
    let mut session = Session::greeted(&[]).await;
    session.deliver("\"hello\"");
    let push = session.client.push().await;
    assert_eq!(push["content"], "📨 bob: \"hello\"");
    assert_eq!(push["meta"].get("repeat"), None);
    assert_eq!(session.settle().await, None, "it may yet bring evidence");
    advance(OVERDUE).await;
    let text = session.settle().await.expect("it comes along");
    assert!(
        text.contains("📨 bob: \"hello\" (shown before) [m1]"),
        "{text}"
    );
    assert!(
        text.contains("untrusted") && text.contains("bus reply tool"),
        "{text}"
    );
    assert_eq!(session.broker.acks(), [], "nothing is known");
    assert_eq!(session.settle().await, None, "once");
    assert_eq!(
        session.broker.ack().await,
        ("1".into(), pushed("piggyback"))
    );
}

#[tokio::test]
async fn an_answer_after_the_line_is_evidence_for_everything_in_it() {
    let mut session = Session::at_home(&[]).await;
    session.deliver(r#"{"text":"one","priority":"quiet"}"#);
    session.deliver("\"two\"");
    let push = session.client.push().await;
    let mark = push["meta"]["push"].as_str().unwrap();
    // Peers cannot guess a mark.
    session.home.write(&line("f", "[pb-0000000000000000-1]"));
    session.home.write(&answer("g", "f"));
    session.home.write(&line("a", &format!("[{mark}]")));
    let step = session.broker.saw("a step", |seen| match seen {
        Seen::Progress {
            stage: stage @ Stage::Presented { .. },
            ..
        } => Some(stage),
        Seen::Ack { .. } => panic!("the line alone proves nothing"),
        _ => None,
    });
    let path = "channel".to_owned();
    assert_eq!(step.await, Stage::Presented { path });
    session.home.write(&answer("b", "a"));
    for key in ["1", "2"] {
        let proven = seen("channel", "transcript");
        assert_eq!(session.broker.ack().await, (key.into(), proven));
    }
}

#[tokio::test]
async fn a_structured_body_is_shown_whole_before_an_answer_can_prove_it() {
    let mut session = Session::greeted(&[]).await;
    let body = r#"{"text":"build failed","log":"THE LOG","thread":"t1"}"#;
    let quoted = r#""{\"text\":\"build failed\",\"log\":\"THE LOG\",\"thread\":\"t1\"}""#;
    session.deliver(body);
    let push = session.client.push().await;
    assert_eq!(push["content"], format!("📨 bob: {quoted}"));
    // The text of v1's form is all that this one says.
    advance(Duration::from_secs(3)).await;
    session.deliver(r#"{"text":"build failed","thread":"t1"}"#);
    let push = session.client.push().await;
    assert_eq!(push["content"], "📨 bob: \"build failed\"");
}

#[tokio::test]
async fn a_tool_call_that_names_a_message_proves_that_it_was_seen() {
    let mut session = Session::greeted(&[]).await;
    session.deliver("1");
    session.deliver("2");
    session.client.push().await;
    let arguments = json!({ "msg_id": "m1", "body": "yes" });
    let result = session.call("bus.reply", arguments).await;
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(
        session.broker.ack().await,
        ("1".into(), seen("channel", "tool_call"))
    );
    let arguments = json!({ "ids": ["m2", "m1", "m9"] });
    let result = session.call("bus.ack", arguments).await["structuredContent"].take();
    assert_eq!(result["acked"], json!(["m2"]), "{result}");
    assert_eq!(result["unknown"], json!(["m1", "m9"]));
    let (key, how) = session.broker.ack().await;
    assert_eq!(key, "2");
    assert!(matches!(how, Some(How::Seen { evidence, .. }) if evidence == "tool_call"));
}

#[tokio::test]
async fn quiet_mail_starts_nothing_and_goes_with_the_next_push() {
    let mut session = Session::greeted(&[]).await;
    session.deliver(r#"{"text":"by the way","priority":"quiet"}"#);
    session
        .broker
        .deliver_from("zoe", r#"{"text":"now then","reply_to":"q1"}"#);
    let push = session.client.push().await;
    let content = push["content"].as_str().unwrap();
    let lines: Vec<&str> = content.lines().collect();
    assert_eq!(push["meta"]["kind"], "digest");
    assert!(lines.contains(&"📬 2 messages from peers, oldest first"));
    let messages: Vec<_> = lines.iter().filter(|l| l.starts_with("📨")).collect();
    let wanted = [
        &"📨 bob: \"by the way\" [m1]",
        &"📨 zoe: \"now then\" (it says that it answers q1) [m2]",
    ];
    assert_eq!(messages, wanted);
}

#[tokio::test]
async fn quiet_mail_alone_waits_for_a_tool_call() {
    let mut session = Session::greeted(&[]).await;
    session.deliver(r#"{"text":"by the way","priority":"quiet"}"#);
    let text = session.settle().await.expect("it comes along");
    assert!(text.contains("\"by the way\" [m1]"), "{text}");
    assert!(
        session.client.pushed.is_empty(),
        "{:?}",
        session.client.pushed
    );
    // A failed call carries it as well, and none carries it twice.
    session.deliver(r#"{"text":"more","priority":"quiet"}"#);
    session.client.request("tools/list", json!({})).await;
    let mut carried = Vec::new();
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
        let result = session.call("bus.send", json!({ "to": "bob" })).await;
        assert_eq!(result["isError"], true);
        carried.extend(along(&result));
        if !carried.is_empty() {
            break;
        }
    }
    assert!(
        carried[0].contains("\"more\" [m2]") && !carried[0].contains("m1"),
        "{carried:?}"
    );
}

#[tokio::test]
async fn a_path_that_is_gone_is_noticed_and_used_again_when_it_is_back() {
    let mut session = Session::at_home(&[("PEERBUS_WAKE", "socket")]).await;
    session.home.inbox = None;
    session.deliver("\"one\"");
    let mut along = None;
    for _ in 0..1_000 {
        // It may be on its way to the path just now.
        along = session.settle().await;
        if along.is_some() {
            break;
        }
    }
    let text = along.expect("nothing is lost");
    assert!(text.contains("\"one\" [m1]"), "{text}");
    let wake = |seen| match seen {
        Seen::Presence(presence) => Some(presence["wake"].clone()),
        _ => None,
    };
    let gone = |seen| wake(seen).filter(|wake| *wake == json!([]));
    session.broker.saw("presence without a path", gone).await;
    session.home.listen();
    // More than the pause after a path has failed.
    advance(Duration::from_secs(5)).await;
    session.deliver("\"two\"");
    let posted = session.home.posted().await;
    assert!(posted.content().contains("\"two\" [m2]"), "{posted:?}");
    let back = |seen| wake(seen).filter(|wake| *wake == json!(["socket"]));
    session.broker.saw("presence with a path", back).await;
}

#[tokio::test]
async fn a_hook_gets_what_is_unseen_once_and_gives_back_what_it_did_not_show() {
    let mut session = Session::at_home(&[DEAF]).await;
    session.deliver("\"hello\"");
    session.waiting(1).await;
    let (first, hook) = session.home.hook("PostToolUse").await;
    let (other, _) = session.home.hook("PostToolUse").await;
    assert_eq!(other, None, "it is on its way");
    hook.refuse().await;
    let (again, hook) = session.home.hook("PostToolUse").await;
    let again = again.expect("it was not shown");
    let shown = "📨 bob: \"hello\" [m1]";
    assert!(first.unwrap().contains(shown), "as new");
    assert!(again.contains(shown), "{again}");
    hook.take().await;
    let step = session.broker.saw("a step", |seen| match seen {
        Seen::Progress {
            stage: Stage::Pushed { path },
            ..
        } => Some(path),
        _ => None,
    });
    assert_eq!(step.await, "hook");
    let (more, _) = session.home.hook("PostToolUse").await;
    assert_eq!(more, None, "once");
    session.home.write(&line("a", &again));
    session.home.write(&answer("b", "a"));
    assert_eq!(
        session.broker.ack().await,
        ("1".into(), seen("hook", "transcript"))
    );
}

#[tokio::test]
async fn peers_are_told_how_the_session_is() {
    for (policy, transcript) in [("auto", true), ("seen", false), ("pushed", false)] {
        let settings = [("PEERBUS_ACK", policy)];
        let mut session = match transcript {
            true => Session::at_home(&settings).await,
            false => Session::greeted(&settings).await,
        };
        let wanted = json!({
            "adapter": "cc", "client": "claude-code", "version": "1", "ack": policy,
            "evidence": transcript, "wake": ["channel"], "activity": if transcript { json!("idle") } else { json!(null) },
        });
        let told = |seen| match seen {
            Seen::Presence(about) => {
                let same = |(key, value): (&String, &Value)| about[key] == *value;
                wanted.as_object().unwrap().iter().all(same).then_some(())
            }
            _ => None,
        };
        session.broker.saw("presence", told).await;
        session.home.does("busy");
        session.home.hook("PostToolUse").await;
        let busy = |seen| match seen {
            Seen::Presence(about) => (about["activity"] == "busy").then_some(()),
            _ => None,
        };
        session.broker.saw("that it works", busy).await;
    }
}

#[tokio::test]
async fn what_the_user_has_to_decide_on_is_shown_by_nobody_else() {
    let mut session = Session::at_home(&[("PEERBUS_WAKE", "socket")]).await;
    session.deliver("\"a secret plan\"");
    let posted = session.home.posted().await;
    posted.receipt("held", None).await;
    advance(OVERDUE).await;
    assert_eq!(session.settle().await, None);
    let (offered, _) = session.home.hook("PostToolUse").await;
    assert_eq!(offered, None);
    for arguments in [json!({}), json!({ "peek": true }), json!({ "ids": ["m1"] })] {
        let result = session.call("bus.inbox", arguments).await;
        assert!(!result.to_string().contains("a secret plan"), "{result}");
    }
    posted.receipt("denied", None).await;
    let rejected = |seen| match seen {
        Seen::Reject(key) => Some(key),
        Seen::Ack { .. } => panic!("nobody has seen it"),
        _ => None,
    };
    assert_eq!(session.broker.saw("rejection", rejected).await, "1");
}

#[tokio::test]
async fn a_message_alone_is_one_line_with_what_is_known_of_it() {
    let plain = json!({ "from": "bob", "source": "peer-bus", "msg_id": "m1", "kind": "msg" });
    let with = |key: &str, value: &str| {
        let mut meta = plain.clone();
        meta[key] = value.into();
        meta
    };
    let mut answer = with("thread", "t1");
    answer["reply_to"] = "q1".into();
    let said = "📨 bob: \"hi\"";
    for (mail, content, wanted) in [
        (Mail::new("\"hi\""), said, plain.clone()),
        (
            Mail::new(r#"{"text":"hi","meta":{"group":"forged","sent_to":"forged"}}"#),
            said,
            with("it_says", "group=forged; sent_to=forged"),
        ),
        (
            Mail::new(r#"{"text":"hi","reply_to":"q1","thread":"t1"}"#),
            said,
            answer,
        ),
        (
            Mail {
                again: true,
                ..Mail::new("\"hi\"")
            },
            said,
            with("repeat", "true"),
        ),
        (
            Mail {
                alias: Some("old-me"),
                ..Mail::new("\"hi\"")
            },
            said,
            with("sent_to", "old-me"),
        ),
        (
            Mail {
                token: Some("phone"),
                ..Mail::new("\"hi\"")
            },
            said,
            with("token", "phone"),
        ),
        (
            Mail {
                all: true,
                ..Mail::new("\"hi\"")
            },
            "📨 bob to all: \"hi\"",
            with("kind", "broadcast"),
        ),
        (
            Mail::new(r#"{"n":1.50,"a":[1e400]}"#),
            r#"📨 bob: "{\"n\":1.50,\"a\":[\"1e400\"]}""#,
            plain.clone(),
        ),
    ] {
        let mut session = Session::greeted(&[]).await;
        session.broker.deliver_with(&mail);
        let mut push = session.client.push().await;
        assert_eq!(push["content"], content);
        let mark = push["meta"].as_object_mut().unwrap().remove("push");
        assert!(mark.unwrap().as_str().unwrap().starts_with("pb-"));
        assert_eq!(push["meta"], wanted, "{}", mail.body);
    }
}

#[tokio::test]
async fn what_may_have_been_shown_before_says_so_wherever_it_is_shown() {
    let again = Mail {
        again: true,
        ..Mail::new(r#"{"text":"hi","priority":"quiet"}"#)
    };
    let mut session = Session::greeted(&[]).await;
    session.broker.deliver_with(&again);
    session.deliver("\"new\"");
    let digest = session.client.push().await;
    let lines: Vec<&str> = digest["content"].as_str().unwrap().lines().collect();
    assert!(
        lines.contains(&"📨 bob: \"hi\" (shown before) [m1]"),
        "{digest}"
    );
    assert!(lines.contains(&"📨 bob: \"new\" [m2]"), "{digest}");
    for peek in [true, false] {
        let mut session = Session::greeted(&[DEAF]).await;
        session.broker.deliver_with(&again);
        session.deliver("\"new\"");
        session.waiting(2).await;
        let read = session.inbox(json!({ "peek": peek })).await;
        assert_eq!(read["messages"][0]["shown_before"], true, "{read}");
        assert_eq!(read["messages"][1].get("shown_before"), None, "{read}");
    }
}

#[tokio::test]
async fn a_policy_says_what_is_acked_without_evidence() {
    for (policy, transcript, acked) in [
        ("auto", false, true),
        ("auto", true, false),
        ("seen", false, false),
        ("pushed", false, true),
    ] {
        let settings = [DEAF, ("PEERBUS_ACK", policy)];
        let mut session = match transcript {
            true => Session::at_home(&settings).await,
            false => Session::greeted(&settings).await,
        };
        session.deliver("\"hello\"");
        session.waiting(1).await;
        assert!(session.settle().await.is_some(), "it comes along");
        for _ in 0..3 {
            assert_eq!(session.settle().await, None, "once");
        }
        let acks = session.broker.acks();
        assert_eq!(
            acks.len(),
            usize::from(acked),
            "{policy} {transcript}: {acks:?}"
        );
        let wanted = pushed("piggyback");
        assert!(acks.into_iter().all(|(_, how)| how == wanted));
    }
}

#[tokio::test]
async fn a_registration_is_announced_before_what_it_brings() {
    let mut session = Session::greeted(&[]).await;
    for n in 1..=2 {
        session.broker.hang_up();
        session.broker.registered().await;
        session.deliver(&n.to_string());
        let announced = session.client.push().await;
        assert_eq!(announced["content"], "📡 connected as me");
        let push = session.client.push().await;
        assert_eq!(push["meta"]["msg_id"], format!("m{n}"));
    }
}

#[tokio::test]
async fn notices_and_messages_share_a_digest_in_order() {
    let mut session = Session::greeted(&[]).await;
    let expired = Stage::Expired {
        why: "never read".into(),
    };
    session.deliver(r#"{"text":"quietly","priority":"quiet"}"#);
    let held = Stage::Held { why: "busy".into() };
    session.broker.receipt_of("zoe", "m0", held);
    session.broker.receipt_of("zoe", "m0", expired);
    let push = session.client.push().await;
    let content = push["content"].as_str().unwrap();
    let order = [
        "📬 1 message from peers, 2 notices",
        "\"quietly\"",
        "📮 your message m0 to zoe waits there",
        "📮 your message m0 to zoe expired",
    ];
    let at: Vec<_> = order.iter().map(|part| content.find(part)).collect();
    assert!(
        at.iter().all(Option::is_some) && at.is_sorted(),
        "{content}"
    );
    assert!(content.contains("untrusted"), "{content}");
    assert_eq!(push["meta"]["kind"], "digest");
    assert!(push["meta"]["push"].as_str().unwrap().starts_with("pb-"));
}

#[tokio::test]
async fn what_does_not_fit_one_push_is_counted_and_follows() {
    let mut session = Session::start(&[]).await;
    session.client.initialize("claude-code").await;
    session.broker.registered().await;
    for n in 1..=25 {
        session.deliver(&format!("\"number {n}.\""));
    }
    session.client.request("tools/list", json!({})).await;
    session.waiting(25).await;
    session.client.initialized().await;
    session.client.push().await;
    let first = session.client.push().await["content"].to_string();
    assert!(first.contains("5 more wait unseen"), "{first}");
    assert!(
        first.contains("number 20.") && !first.contains("number 21."),
        "{first}"
    );
    let next = session.client.push().await["content"].to_string();
    assert!(
        next.contains("number 21.") && !next.contains("number 20."),
        "{next}"
    );
}
