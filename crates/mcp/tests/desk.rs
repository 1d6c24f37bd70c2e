//! What waits for the agent, and how it gets there, as a client sees it.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use peerbus_adapter::How;
use peerbus_adapter::wake::{Activity, Outcome, Path};
use peerbus_mcp::{
    BoxFuture, Budget, Desk, Host, Letter, Options, Profile, WakePath, run_generic_over, run_over,
};
use peerbus_wire::{Progress, State};
use serde_json::{Map, Value, json};
use support::{Broker, Client, Seen, client};

/// Longer than a push may go without a sign of it.
const OVERDUE: Duration = Duration::from_secs(11);

const PROFILE: Profile = Profile {
    kind: "test",
    instructions: "",
    experimental: &[],
    drain: false,
};

/// Writes letters as notifications.
struct Pushes {
    host: Host,
    usable: Arc<AtomicBool>,
}

impl WakePath for Pushes {
    fn path(&self) -> Path {
        Path::Channel
    }

    fn needs(&self) -> &'static str {
        "a test"
    }

    fn evidence(&self) -> &'static str {
        "none"
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        let usable = self.usable.load(Ordering::Relaxed);
        Box::pin(async move {
            usable
                .then_some(())
                .ok_or_else(|| "switched off".to_owned())
        })
    }

    fn wake<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let (content, meta) = letter.channel();
            let meta: Map<String, Value> = meta
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.into()))
                .collect();
            let params = json!({ "content": content, "meta": meta });
            match self
                .host
                .notify("notifications/claude/channel", params)
                .await
            {
                Ok(()) => Outcome::Written,
                Err(_) => Outcome::Failed,
            }
        })
    }

    fn announce<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let params = json!({ "content": format!("connected as {name}") });
            let _ = self
                .host
                .notify("notifications/claude/channel", params)
                .await;
        })
    }
}

/// A session that can be woken.
struct Session {
    broker: Broker,
    client: Client,
    desk: Desk,
    usable: Arc<AtomicBool>,
}

impl Session {
    async fn start(options: Options) -> Self {
        let broker = Broker::start(true).await;
        let (client, input, output) = client(1 << 20);
        let usable = Arc::new(AtomicBool::new(true));
        let (tell, desk) = tokio::sync::oneshot::channel();
        let switch = usable.clone();
        let bus = broker.bus();
        tokio::spawn(run_over(
            bus,
            PROFILE,
            options,
            input,
            output,
            |host, desk| {
                assert!(tell.send(desk).is_ok());
                let usable = switch;
                let path: Box<dyn WakePath> = Box::new(Pushes { host, usable });
                (vec![path], async {})
            },
        ));
        Self {
            broker,
            client,
            desk: desk.await.expect("it starts"),
            usable,
        }
    }

    /// The same, its client greeted and told its name.
    async fn greeted(options: Options) -> Self {
        let mut session = Self::start(options).await;
        session.broker.registered().await;
        session.client.greet("some-bot").await;
        let announced = session.client.push().await;
        assert_eq!(announced["content"], "connected as me");
        session
    }

    /// Waits until everything that the broker sent so far has arrived; gives what came along.
    async fn settle(&mut self) -> Option<String> {
        let result = self.client.call("bus.peers", json!({})).await;
        along(&result)
    }
}

/// The mail that came along with a result; the same in both places.
fn along(result: &Value) -> Option<String> {
    let text = result["content"][1]["text"].as_str().map(str::to_owned);
    if result["isError"] == false {
        let unseen = result["structuredContent"]["unseen"].as_str();
        assert_eq!(unseen, text.as_deref(), "{result}");
    }
    text
}

async fn advance(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn seen(path: &str, evidence: &str) -> Option<How> {
    Some(How::Seen {
        path: path.into(),
        evidence: evidence.into(),
    })
}

fn pushed(path: &str) -> Option<How> {
    Some(How::Pushed { path: path.into() })
}

fn is_ack(seen: &Seen) -> bool {
    matches!(seen, Seen::Ack { .. })
}

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
    assert_eq!(session.desk.watched(), [mark.clone()]);
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
    advance(Duration::from_secs(100)).await;
    session.broker.deliver("2");
    let mut pushes = Vec::new();
    while !pushes
        .iter()
        .any(|push: &Value| push["content"].to_string().contains("\\\"2\\\""))
    {
        pushes.push(session.client.push().await);
        assert!(pushes.len() < 4, "{pushes:?}");
    }
    let back = |seen| wake(seen).filter(|wake| *wake == json!(["channel"]));
    session.broker.saw("presence with a path", back).await;
}

#[tokio::test]
async fn a_crowd_is_told_once() {
    let mut session = Session::start(Options::default()).await;
    session.client.initialize("some-bot").await;
    session.broker.registered().await;
    for n in 0..200 {
        session.broker.deliver(&n.to_string());
    }
    session.client.call("bus.peers", json!({})).await;
    session.usable.store(false, Ordering::Relaxed);
    session.client.initialized().await;
    session.client.push().await;
    let mut notices = Vec::new();
    for _ in 0..30 {
        let result = session.client.call("bus.inbox", json!({ "max": 10 })).await;
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
        .filter(|n| n.contains("messages wait here unseen"));
    assert_eq!(crowd.count(), 1, "{notices:?}");
    assert!(notices[0].contains("bus inbox tool"), "{notices:?}");
}

#[tokio::test]
async fn too_many_answers_are_held_and_both_sides_can_see_why() {
    let budget = Budget::Exchanges(1);
    let mut session = Session::greeted(Options {
        budget,
        ..Options::default()
    })
    .await;
    for n in 1..=3 {
        let arguments = json!({ "to": "bob", "body": n });
        session.client.call("bus.send", arguments).await;
        session.broker.deliver(&format!("\"answer {n}\""));
        session.settle().await;
    }
    let step = session.broker.saw("a step", |seen| match seen {
        Seen::Progress {
            key,
            step: Progress::Held { reason },
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
    let peek = session
        .client
        .call("bus.inbox", json!({ "peek": true }))
        .await;
    let peek = peek["structuredContent"]["messages"]
        .as_array()
        .unwrap()
        .clone();
    let held: Vec<_> = peek.iter().filter(|m| m.get("held").is_some()).collect();
    assert_eq!(held.len(), 2, "{peek:?}");
    assert_eq!(held[0]["text"], "answer 2");
    let pushed: Vec<String> = session.client.pushed.iter().map(Value::to_string).collect();
    assert!(
        pushed.iter().all(|push| !push.contains("answer 2")),
        "{pushed:?}"
    );
    let result = session
        .client
        .call("bus.inbox", json!({ "ids": ["m2", "m3"] }))
        .await;
    let read = result["structuredContent"]["messages"].as_array().unwrap();
    let texts: Vec<_> = read.iter().map(|message| message["text"].clone()).collect();
    assert_eq!(texts, ["answer 2", "answer 3"]);
    for key in ["2", "3"] {
        assert_eq!(
            session.broker.ack().await,
            (key.into(), seen("inbox", "tool_result"))
        );
    }
}

#[tokio::test]
async fn a_drain_leaves_out_what_is_held_and_says_so() {
    let mut broker = Broker::start(true).await;
    let (mut client, input, output) = client(1 << 20);
    let budget = Budget::Exchanges(1);
    let options = Options {
        budget,
        ..Options::default()
    };
    tokio::spawn(run_generic_over(broker.bus(), options, input, output));
    client.greet("some-bot").await;
    broker.registered().await;
    let mut drained = Vec::new();
    for n in 1..=2 {
        client
            .call("bus.send", json!({ "to": "bob", "body": n }))
            .await;
        broker.deliver(&n.to_string());
    }
    // Answered after the messages arrived: the broker answers in order.
    let peers = client.call("bus.peers", json!({})).await;
    assert!(!peers.to_string().contains("[m2]"), "{peers}");
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
    let mut session = Session::greeted(Options::default()).await;
    let held = |n: u32| State::Held {
        to: "bob".into(),
        reason: format!("held as quiet: too many, {n}\n</x>"),
    };
    let arguments = json!({ "to": "bob", "body": "x" });
    let sent = session.client.call("bus.send", arguments).await;
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
async fn the_inbox_marks_as_seen_what_it_returns_and_a_peek_does_not() {
    let mut session = Session::greeted(Options::default()).await;
    session.usable.store(false, Ordering::Relaxed);
    session
        .broker
        .deliver(r#"{"text":"the first","thread":"t1"}"#);
    session.broker.deliver(&format!("\"{}\"", "x".repeat(500)));
    session.client.request("tools/list", json!({})).await;
    let mut listed = Vec::new();
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
        let result = session
            .client
            .call("bus.inbox", json!({ "peek": true }))
            .await;
        assert_eq!(along(&result), None, "a list is enough");
        listed = result["structuredContent"]["messages"]
            .as_array()
            .unwrap()
            .clone();
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
    assert!(
        !session.broker.noticed().iter().any(is_ack),
        "a list is not read"
    );

    let result = session
        .client
        .call("bus.inbox", json!({ "ids": ["m2"] }))
        .await;
    let read = result["structuredContent"]["messages"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!((read.len(), &read[0]["id"]), (1, &json!("m2")));
    assert_eq!(
        session.broker.ack().await,
        ("2".into(), seen("inbox", "tool_result"))
    );
    let result = session.client.call("bus.inbox", json!({})).await;
    let read = result["structuredContent"].clone();
    assert_eq!(read["messages"].as_array().unwrap().len(), 1, "{read}");
    assert_eq!(read["remaining"], 0, "{read}");
    assert_eq!(
        session.broker.ack().await,
        ("1".into(), seen("inbox", "tool_result"))
    );
}

#[tokio::test]
async fn a_long_message_is_read_in_parts_and_seen_with_the_last() {
    let mut session = Session::greeted(Options::default()).await;
    let text: String = (0..8_000).map(|n| format!("{n} é ")).collect();
    session
        .broker
        .deliver(&Value::from(text.as_str()).to_string());
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
        let result = session.client.call("bus.inbox", arguments).await;
        let part = result["structuredContent"]["messages"][0].clone();
        assert_eq!(part["shown_before"], true);
        read.push_str(part["text"].as_str().unwrap());
        offset = part["next_offset"].clone();
        if offset.is_null() {
            break;
        }
        assert!(
            !session.broker.noticed().iter().any(is_ack),
            "not all of it"
        );
    }
    assert_eq!(read, text);
    assert_eq!(
        session.broker.ack().await,
        ("1".into(), seen("inbox", "tool_result"))
    );
    let result = session
        .client
        .call("bus.inbox", json!({ "ids": ["m1"], "offset": 3 }))
        .await;
    let sentence = result["content"][0]["text"].as_str().unwrap();
    assert!(
        sentence.contains("offset") && sentence.contains("got 0"),
        "{sentence}"
    );
}

#[tokio::test]
async fn what_a_cancelled_call_carried_comes_again() {
    let mut session = Session::greeted(Options::default()).await;
    session
        .broker
        .deliver(r#"{"text":"by the way","priority":"quiet"}"#);
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
    assert!(texts[0].contains("[m1]: \"by the way\""), "{texts:?}");
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
