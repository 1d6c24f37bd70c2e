//! What is read when it is asked for.

use peerbus_adapter::LinkState;
use peerbus_adapter::mailbox::Sum;
use peerbus_mcp::AdapterOptions;
use peerbus_test_support::mcp::messages;
use peerbus_test_support::scripted::Broker;
use peerbus_wire::Stage;
use serde_json::{Value, json};

use crate::home::{answer, line};
use crate::session::{DEAF, Session, along, bus, generic, pushed, seen};

#[tokio::test]
async fn the_inbox_marks_as_seen_what_it_returns_and_a_peek_does_not() {
    let mut session = Session::greeted(&[DEAF]).await;
    session.deliver(r#"{"text":"the first","thread":"t1"}"#);
    session.deliver(&format!("\"{}\"", "x".repeat(500)));
    session.client.request("tools/list", json!({})).await;
    let mut listed = Vec::new();
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
        let result = session.call("bus.inbox", json!({ "peek": true })).await;
        assert_eq!(along(&result), None, "a list is enough");
        listed = messages(&result);
        if listed.len() == 2 {
            break;
        }
    }
    assert_eq!(
        (&listed[0]["id"], &listed[0]["from"]),
        (&json!("m1"), &json!("bob"))
    );
    assert_eq!(
        (&listed[0]["thread"], &listed[0]["text"]),
        (&json!("t1"), &json!("the first"))
    );
    assert_eq!(listed[1]["size"], 500);
    assert_eq!(listed[1]["text"].as_str().unwrap().len(), 120);
    assert_eq!(session.broker.acks(), [], "a list is not read");

    let result = session.call("bus.inbox", json!({ "ids": ["m2"] })).await;
    let read = messages(&result);
    assert_eq!((read.len(), &read[0]["id"]), (1, &json!("m2")));
    assert_eq!(
        session.broker.acks(),
        [],
        "nobody knows whether the client took it"
    );
    let result = session.call("bus.inbox", json!({})).await;
    let read = result["structuredContent"].clone();
    assert_eq!(read["messages"].as_array().unwrap().len(), 1, "{read}");
    assert_eq!(read["remaining"], 0, "{read}");
    assert_eq!(session.broker.ack().await, ("2".into(), pushed("inbox")));
    let ack = json!({ "ids": ["m1"] });
    session.call("bus.ack", ack).await;
    assert_eq!(
        session.broker.ack().await,
        ("1".into(), seen("inbox", "tool_call"))
    );
}

#[tokio::test]
async fn a_long_message_is_read_in_parts_and_seen_with_the_last() {
    let mut session = Session::greeted(&[]).await;
    let text: String = (0..8_000).map(|n| format!("{n} é ")).collect();
    session.deliver(&Value::from(text.as_str()).to_string());
    let push = session.client.push().await;
    let content = push["content"].as_str().unwrap();
    assert!(content.ends_with("more characters: read all of it with the bus inbox tool, `ids`]"));
    assert!(content.len() < 10_000, "{}", content.len());
    let (mut read, mut offset) = (String::new(), Value::Null);
    for _ in 0..100 {
        let mut arguments = json!({ "ids": ["m1"] });
        if offset.is_number() {
            arguments["offset"] = offset.clone();
        }
        let result = session.call("bus.inbox", arguments).await;
        let part = result["structuredContent"]["messages"][0].clone();
        let again = part["shown_before"] == true;
        assert_eq!(again, offset.is_null(), "its beginning was pushed");
        read.push_str(part["text"].as_str().unwrap());
        offset = part["next_offset"].clone();
        if offset.is_null() {
            break;
        }
        assert_eq!(session.broker.acks(), [], "not all of it");
    }
    assert_eq!(read, text);
    session.call("bus.peers", json!({})).await;
    assert_eq!(session.broker.ack().await, ("1".into(), pushed("inbox")));
    let result = session
        .call("bus.inbox", json!({ "ids": ["m1"], "offset": 3 }))
        .await;
    let sentence = result["content"][0]["text"].as_str().unwrap();
    assert!(
        sentence.contains("offset") && sentence.contains("got 0"),
        "{sentence}"
    );
}

#[tokio::test]
async fn a_long_message_is_read_from_its_beginning_where_the_user_begins_anew() {
    let mut session = Session::greeted(&[DEAF]).await;
    let begins = |id: &str, source: &str| json!({ "hook_event_name": "SessionStart", "session_id": id, "source": source });
    session.home.hook_on(&begins("a", "startup")).await;
    session.deliver(&Value::from("x".repeat(40_000)).to_string());
    session.waiting(1).await;
    let mut next = 0;
    for (id, source) in [
        ("a", "startup"),
        ("a", "compact"),
        ("b", "clear"),
        ("b", "compact"),
        ("b", "compact"),
    ] {
        session.home.hook_on(&begins(id, source)).await;
        let result = session.call("bus.inbox", json!({})).await;
        let part = result["structuredContent"]["messages"][0].clone();
        let expected = if source == "compact" { next } else { 0 };
        assert_eq!(part["offset"], expected, "{id} {source}");
        next = part["next_offset"].as_u64().unwrap();
        let again = part["shown_before"] == true;
        assert_eq!(again, id == "b", "{id} {source}");
    }
}

#[tokio::test]
async fn a_result_is_short_whatever_is_escaped_in_it_and_ends_with_its_mark() {
    let mut session = Session::greeted(&[]).await;
    let text = "\u{202e}".repeat(16_000);
    session.deliver(&Value::from(text.as_str()).to_string());
    session.client.push().await;
    let (mut read, mut next) = (0, true);
    while next {
        assert!(read < text.len(), "it has an end");
        let result = session.call("bus.inbox", json!({})).await;
        let shown = result["content"][0]["text"].as_str().unwrap();
        assert!(shown.len() < 40_000, "{}", shown.len());
        let end = result["structuredContent"]["end"].as_str().unwrap();
        assert!(
            end.starts_with('[')
                && end.contains(" pb-")
                && shown.ends_with(&format!("\"end\":\"{end}\"}}"))
        );
        let part = &result["structuredContent"]["messages"][0];
        read += part["text"].as_str().unwrap().matches("\\u202e").count();
        next = part["next_offset"].is_number();
    }
    assert_eq!(read, 16_000);
}

#[tokio::test]
async fn a_result_says_what_proves_all_of_it() {
    let mut session = Session::greeted(&[DEAF]).await;
    session.deliver(r#""<first> \u001b é""#);
    session.waiting(1).await;
    let result = session.call("bus.inbox", json!({})).await;
    let result = &result["structuredContent"];
    let end = result["end"].as_str().unwrap();
    let mark = end.trim_end_matches(']').split(' ').next_back().unwrap();
    assert_eq!(end, format!("[{} {mark}]", Sum::of_result(result, mark)));
}

#[tokio::test]
async fn what_is_named_before_its_end_was_shown_is_not_acked_and_its_rest_comes_with_the_results() {
    let mut session = Session::greeted(&[]).await;
    let text = format!("{} AND DELETE THE BACKUPS FIRST", "A".repeat(20_000));
    session.deliver(&Value::from(text.as_str()).to_string());
    session.client.push().await;
    for from in (0..20_029).step_by(4_096) {
        let part = format!("its characters {from} to {}", 20_029.min(from + 4_096));
        // A call that fails names it, too.
        let result = session.call("bus.reply", json!({ "msg_id": "m1" })).await;
        let rest = result["content"][1]["text"].as_str().unwrap();
        assert!(rest.contains(&part), "{rest}");
        assert_eq!(rest.contains("BACKUPS FIRST"), part.contains("20029"));
        assert_eq!(session.broker.acks(), [], "{part}");
    }
    session.call("bus.reply", json!({ "msg_id": "m1" })).await;
    assert_eq!(
        session.broker.ack().await,
        ("1".into(), seen("piggyback", "tool_call"))
    );
}

/// A call of the inbox and its result, as the client keeps them.
fn read_at(id: &str, parent: &str, content: &Value) -> [Value; 2] {
    let mut call = answer(id, parent);
    call["requestId"] = id.into();
    call["message"]["content"] =
        json!([{ "type": "tool_use", "id": id, "name": "mcp__peerbus__bus_inbox" }]);
    let mut gave = line(&format!("{id}-gave"), "");
    gave["parentUuid"] = id.into();
    gave["message"]["content"] =
        json!([{ "type": "tool_result", "tool_use_id": id, "content": content }]);
    [call, gave]
}

#[tokio::test]
async fn the_mark_of_a_result_proves_nothing_outside_of_one() {
    let mut session = Session::at_home(&[("PEERBUS_WAKE", "none")]).await;
    session.deliver("\"hi\"");
    session.deliver("\"ho\"");
    session.waiting(2).await;
    let mut results = Vec::new();
    for id in ["m1", "m2"] {
        results.push(session.call("bus.inbox", json!({ "ids": [id] })).await);
    }
    // The user, or a summary, speaks of a result that was cut.
    let end = results[0]["structuredContent"]["end"].as_str().unwrap();
    let mark = end.split(['[', ' ', ']']).find(|it| it.starts_with("pb-"));
    session
        .home
        .write(&line("a", &format!("what about {}?", mark.unwrap())));
    for line in read_at("b", "a", &results[1]["content"]) {
        session.home.write(&line);
    }
    session.home.write(&answer("c", "b-gave"));
    assert_eq!(
        session.broker.ack().await,
        ("2".into(), seen("inbox", "transcript"))
    );
}

#[tokio::test]
async fn a_client_that_cuts_results_is_given_less_until_it_has_all_of_a_long_message() {
    let mut session = Session::at_home(&[("PEERBUS_WAKE", "none")]).await;
    let text = "0123456789".repeat(4_200);
    session.deliver(&Value::from(text.as_str()).to_string());
    session.waiting(1).await;
    let (mut read, mut acks) = (vec![false; text.len()], Vec::new());
    for n in 0..1_000 {
        let result = session.call("bus.inbox", json!({})).await;
        let mut content = result["content"].clone();
        let shown = content[0]["text"].as_str().unwrap();
        if shown.len() > 12_000 {
            let mut cut = shown.to_owned();
            cut.replace_range(6_000..shown.len() - 6_000, "…1 tokens truncated…");
            content[0]["text"] = cut.into();
        } else if let Some(part) = result["structuredContent"]["messages"].get(0) {
            let at = part["offset"].as_u64().unwrap() as usize;
            read[at..][..part["text"].as_str().unwrap().len()].fill(true);
        }
        for line in read_at(&n.to_string(), &format!("{}-gave", n - 1), &content) {
            session.home.write(&line);
        }
        acks = session.broker.acks();
        if !acks.is_empty() {
            break;
        }
    }
    assert_eq!(acks, [("1".into(), seen("inbox", "transcript"))]);
    assert!(read.into_iter().all(|read| read), "all of it stood there");
}

#[tokio::test]
async fn what_is_urgent_is_read_first() {
    let mut session = Session::greeted(&[DEAF]).await;
    for _ in 0..30 {
        session.deliver(r#"{"text":"by the way","priority":"quiet"}"#);
    }
    session.deliver(r#"{"text":"stop","priority":"now"}"#);
    session.waiting(31).await;
    let read = session.inbox(json!({})).await;
    assert_eq!(read["messages"][0]["text"], "stop", "{read}");
}

#[tokio::test]
async fn the_inbox_goes_on_behind_a_long_message_and_brings_others_along() {
    let mut session = Session::greeted(&[DEAF]).await;
    let long = "0123456789".repeat(1_200);
    session.deliver(&Value::from(long.as_str()).to_string());
    session.deliver("\"short\"");
    session.waiting(2).await;
    let (mut read, mut others) = (String::new(), Vec::new());
    for _ in 0..3 {
        let result = session.inbox(json!({})).await;
        for message in result["messages"].as_array().unwrap() {
            let text = message["text"].as_str().unwrap();
            match message["id"].as_str() {
                Some("m1") => read.push_str(text),
                _ => others.push(text.to_owned()),
            }
        }
    }
    assert_eq!(read, long);
    assert_eq!(others, ["short"]);
}

#[tokio::test]
async fn what_a_cancelled_call_carried_comes_again() {
    let mut session = Session::greeted(&[]).await;
    session.deliver(r#"{"text":"by the way","priority":"quiet"}"#);
    // The cancellation follows the call at once; it may find it answered or not.
    let mut texts = Vec::new();
    for _ in 0..1_000 {
        let id = session
            .client
            .ask("tools/call", json!({ "name": "bus.peers" }))
            .await;
        let cancelled = json!({ "requestId": id });
        session
            .client
            .notify("notifications/cancelled", cancelled)
            .await;
        texts.extend(session.settle().await);
        if !texts.is_empty() {
            break;
        }
    }
    assert!(texts[0].contains("\"by the way\" [m1]"), "{texts:?}");
}

#[tokio::test]
async fn what_was_read_by_a_call_that_was_cancelled_late_is_a_repeat() {
    let mut session = Session::greeted(&[DEAF]).await;
    // Read by a call; along with one; an old notice.
    for (tool, along) in [("bus.inbox", false), ("bus.peers", true)] {
        session.deliver("\"hello\"");
        let mut shown = Value::Null;
        let mut call = 0;
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
            let params = json!({ "name": tool, "arguments": {} });
            call = session.client.ask("tools/call", params).await;
            shown = session.client.answer(call).await["result"].take();
            if shown.to_string().contains("hello") {
                break;
            }
        }
        assert!(!shown.to_string().contains("shown_before"), "{shown}");
        assert!(!shown.to_string().contains("(shown before)"), "{shown}");
        let cancelled = json!({ "requestId": call });
        session
            .client
            .notify("notifications/cancelled", cancelled)
            .await;
        let mut again = String::new();
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
            again = session.call(tool, json!({})).await.to_string();
            if again.contains("hello") {
                break;
            }
        }
        let marked = if along {
            again.contains("\\\"hello\\\" (shown before)")
        } else {
            again.contains("\"shown_before\":true")
        };
        assert!(marked, "{tool}: {again}");
    }
}

#[tokio::test]
async fn a_link_that_waits_for_somebody_is_answered_at_once_and_the_inbox_still_works() {
    let bus = bus(|name| (name == "PEERBUS_NAME").then(|| "me".to_owned()));
    let mut link = bus.link();
    let stuck = |state: &LinkState| matches!(state, LinkState::NeedCredentials { .. });
    link.wait_for(stuck).await.unwrap();
    let mut client = generic(bus, AdapterOptions::default()).await;
    for (tool, arguments) in [
        ("bus.peers", json!({})),
        ("bus.send", json!({ "to": "bob", "body": "x" })),
    ] {
        let result = client.call(tool, arguments).await;
        assert_eq!(result["isError"], true, "{result}");
        let sentence = result["content"][0]["text"].as_str().unwrap();
        assert!(
            sentence.starts_with("not connected to the bus: "),
            "{sentence}"
        );
        assert!(sentence.contains("/nonexistent/peerbus-test"), "{sentence}");
    }
    let result = client.call("bus.ack", json!({ "ids": ["m1"] })).await;
    assert_eq!(
        result["structuredContent"]["unknown"],
        json!(["m1"]),
        "{result}"
    );
}

#[tokio::test]
async fn statements_that_the_broker_keeps_are_all_told_and_then_acked() {
    const NOTICES: usize = 150;
    let mut broker = Broker::start(true).await;
    let bus = bus(|name| broker.variable(name));
    let mut client = generic(bus, AdapterOptions::default()).await;
    broker.registered().await;
    for n in 0..NOTICES {
        let to = format!("bob-{n}.");
        let why = "never read".into();
        broker.notice(&format!("n{n}"), &to, Stage::Expired { why });
    }
    // Answered after the statements arrived: the broker answers in order. Some come along.
    let peers = client.call("bus.peers", json!({})).await;
    let along = peers["structuredContent"]["unseen"].as_str().unwrap();
    let along = along.lines().filter_map(|line| line.strip_prefix("📮 "));
    let mut told: Vec<String> = along.map(str::to_owned).collect();
    assert_eq!(told.len(), 5, "{peers}");
    assert_eq!(broker.acks(), [], "nobody is known to know of them");
    for _ in 0..NOTICES {
        let result = client.call("bus.drain", json!({})).await;
        let notices = result["structuredContent"]["notices"].as_array().unwrap();
        assert!(notices.len() <= 64, "{}", notices.len());
        told.extend(notices.iter().map(|n| n.as_str().unwrap().to_owned()));
        if told.len() >= NOTICES {
            break;
        }
    }
    assert_eq!(told.len(), NOTICES);
    client.call("bus.peers", json!({})).await;
    for (n, notice) in told.iter().enumerate() {
        assert!(notice.contains(&format!("bob-{n}.")), "{n}: {notice}");
        assert_eq!(broker.ack().await, (format!("n{n}"), None));
    }
}

#[tokio::test]
async fn an_inbox_returns_what_is_asked_for_and_says_what_remains() {
    let mut session = Session::greeted(&[DEAF]).await;
    for n in 1..=6 {
        session.deliver(&n.to_string());
    }
    session.waiting(6).await;
    let expired = Stage::Expired {
        why: "never read".into(),
    };
    session.broker.receipt_of("zoe", "m0", expired);
    session.waiting(7).await;
    // Arguments; the ids that come, how many remain, how many notices.
    for (arguments, ids, remaining, notices) in [
        (json!({ "peek": true, "max": 2 }), vec!["m1", "m2"], 4, 0),
        (json!({ "ids": ["m5", "m3"] }), vec!["m3", "m5"], 5, 0),
        (json!({ "ids": ["m5"] }), vec![], 5, 0),
        (json!({ "ids": "m6", "peek": true }), vec!["m6"], 0, 0),
        (json!({ "max": 1 }), vec!["m1"], 3, 1),
        (json!({ "max": "2" }), vec!["m2", "m4"], 1, 0),
        (json!({}), vec!["m6"], 0, 0),
        (json!({}), vec![], 0, 0),
    ] {
        let read = session.inbox(arguments.clone()).await;
        let messages = read["messages"].as_array().unwrap().iter();
        let found: Vec<_> = messages.map(|message| message["id"].clone()).collect();
        assert_eq!(found, ids, "{arguments}: {read}");
        assert_eq!(read["remaining"], remaining, "{arguments}: {read}");
        let told = read["notices"].as_array().unwrap().len();
        assert_eq!(told, notices, "{arguments}: {read}");
    }
}

#[tokio::test]
async fn what_comes_back_takes_its_place_again() {
    let mut session = Session::greeted(&[DEAF]).await;
    for n in 1..=3 {
        session.deliver(&n.to_string());
    }
    session.waiting(3).await;
    let params = json!({ "name": "bus.inbox", "arguments": { "ids": ["m2"] } });
    let call = session.client.ask("tools/call", params).await;
    let read = session.client.answer(call).await;
    assert!(read.to_string().contains("m2"), "{read}");
    let cancelled = json!({ "requestId": call });
    session
        .client
        .notify("notifications/cancelled", cancelled)
        .await;
    session.waiting(3).await;
    let listed = session.inbox(json!({ "peek": true })).await;
    let messages = listed["messages"].as_array().unwrap();
    let found: Vec<_> = messages
        .iter()
        .map(|m| (m["id"].clone(), m.get("shown_before").is_some()))
        .collect();
    let wanted = [("m1", false), ("m2", true), ("m3", false)];
    let wanted = wanted.map(|(id, again)| (json!(id), again));
    assert_eq!(found, wanted, "{listed}");
}

#[tokio::test]
async fn an_answer_whose_call_is_cancelled_late_is_mail_again_and_a_repeat() {
    let mut session = Session::greeted(&[DEAF]).await;
    let ask = json!({ "name": "bus.ask", "arguments": { "to": "bob", "body": "ready?" } });
    let call = session.client.ask("tools/call", ask).await;
    let sent = session.broker.envelope().await.id.to_string();
    let answer = json!({ "text": "yes", "reply_to": sent });
    session.deliver(&answer.to_string());
    let answered = session.client.answer(call).await;
    assert_eq!(answered["result"]["structuredContent"]["answered"], true);
    let cancelled = json!({ "requestId": call });
    session
        .client
        .notify("notifications/cancelled", cancelled)
        .await;
    session.waiting(1).await;
    let read = session.inbox(json!({})).await;
    assert_eq!(read["messages"][0]["text"], "yes", "{read}");
    assert_eq!(read["messages"][0]["shown_before"], true, "{read}");
}
