//! Our module in the client, as far as the adapter hears of it: what it tells, and its link.

use std::fs;

use peerbus_test_support::scripted::Seen;
use peerbus_test_support::soon;
use peerbus_wire::Stage;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::home::{Home, answer, line};
use crate::session::{Session, mark, seen};

const SOCKET: (&str, &str) = ("PEERBUS_WAKE", "socket");

/// A link as `peerbus hook link` keeps it.
struct Link(BufReader<UnixStream>);

impl Link {
    /// The link, and what it is answered.
    async fn ask(home: &Home, version: u64) -> (Self, Value) {
        let mut link = Self(BufReader::new(home.node().await));
        link.say("session/attach", &json!({ "version": version }))
            .await;
        let answer = link.hear().await.expect("an answer");
        (link, answer)
    }

    async fn open(home: &Home) -> Self {
        let (mut link, answer) = Self::ask(home, 1).await;
        assert_eq!(answer["result"], json!({ "version": 1 }));
        let socket = link.0.get_ref().peer_addr().unwrap();
        let here = json!({ "socket": socket.as_pathname().unwrap() });
        link.is_told("attached/here", &here).await;
        link.is_told("attached/watch", &json!({ "any": false }))
            .await;
        link
    }

    async fn say(&mut self, method: &str, params: &Value) {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let call = format!("{call}\n");
        self.0.write_all(call.as_bytes()).await.unwrap();
    }

    /// The next line; `None`: it is over.
    async fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        soon(self.0.read_line(&mut line)).await.unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    /// The parameters of the next line of this method.
    async fn hears(&mut self, method: &str) -> Value {
        loop {
            let line = self.hear().await.expect("a line");
            if line["method"] == method {
                return line["params"].clone();
            }
        }
    }

    /// A line for the person comes when it comes.
    async fn is_told(&mut self, method: &str, params: &Value) {
        let mut line = self.hear().await.expect("a line");
        let shows = |method: &str| method == "attached/shows";
        while shows(line["method"].as_str().unwrap_or_default()) != shows(method) {
            line = self.hear().await.expect("a line");
        }
        assert_eq!((&line["method"], &line["params"]), (&method.into(), params));
    }
}

/// The module tells something. Nothing is ever shown for it.
async fn tells(home: &Home, on: &Value) {
    let (text, _) = home.hook_on(on).await;
    assert_eq!(text, None);
}

async fn step(home: &Home, marks: &str, answered: bool) {
    let on = json!({ "hook_event_name": "ModStep", "prompt": marks, "answered": answered });
    tells(home, &on).await;
}

/// The answer where a client of HTTP posts a call.
async fn post(home: &Home, method: &str, params: &Value) -> String {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let call = format!("{call}\n");
    let head = format!("host: peerbus\r\ncontent-length: {}", call.len());
    let mut stream = home.node().await;
    let request = format!("POST / HTTP/1.1\r\n{head}\r\n\r\n{call}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn the_module_posts_what_it_tells_and_nobody_posts_anything_else() {
    let mut session = Session::at_home(&[SOCKET]).await;
    let _link = Link::open(&session.home).await;
    session.deliver("\"hi\"");
    let posted = session.home.posted().await;
    let on =
        json!({ "hook_event_name": "ModStep", "prompt": mark(posted.content()), "answered": true });
    let told = post(&session.home, "hook", &json!({ "wait": false, "on": on })).await;
    assert_eq!(session.broker.ack().await.1, seen("socket", "model_call"));
    let (head, body) = told.split_once("\r\n\r\n").expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["result"], json!({ "text": null }));
    let refused = post(&session.home, "session/status", &json!({})).await;
    assert!(refused.ends_with("\r\n\r\n"), "{refused}");
}

#[tokio::test]
async fn a_request_with_the_message_is_presented_and_its_answer_is_seen() {
    let mut session = Session::at_home(&[SOCKET]).await;
    let _link = Link::open(&session.home).await;
    session.deliver("\"hi\"");
    let posted = session.home.posted().await;
    let mark = mark(posted.content()).to_owned();
    step(
        &session.home,
        &format!("pb-0000000000000000-9 {mark}"),
        false,
    )
    .await;
    let presented = |seen| match seen {
        Seen::Progress {
            stage: Stage::Presented { path },
            ..
        } => Some(path),
        Seen::Ack { .. } => panic!("nobody has seen it"),
        _ => None,
    };
    let path = session.broker.saw("that it is presented", presented).await;
    assert_eq!(path, "socket");
    step(&session.home, &mark, true).await;
    assert_eq!(session.broker.ack().await.1, seen("socket", "model_call"));
    // The transcript comes late, and changes nothing.
    session.home.write(&posted.line("a"));
    session.home.write(&answer("b", "a"));
    step(&session.home, &mark, true).await;
    session.settle().await;
    assert_eq!(session.broker.acks(), []);
}

#[tokio::test]
async fn whichever_witness_speaks_first_is_enough() {
    let mut session = Session::at_home(&[SOCKET]).await;
    let _link = Link::open(&session.home).await;
    session.deliver("\"hi\"");
    let posted = session.home.posted().await;
    session.home.write(&posted.line("a"));
    session.home.write(&answer("b", "a"));
    assert_eq!(session.broker.ack().await.1, seen("socket", "transcript"));
}

#[tokio::test]
async fn where_there_is_no_transcript_a_linked_module_proves_it() {
    let home = Home::new();
    fs::remove_dir_all(home.dir.path().join("projects")).unwrap();
    let mut session = Session::start_in(home, true, &[SOCKET]).await;
    session.broker.registered().await;
    session.client.greet("claude-code").await;
    let link = Link::open(&session.home).await;
    session.deliver("\"hi\"");
    let posted = session.home.posted().await;
    step(&session.home, mark(posted.content()), true).await;
    assert_eq!(session.broker.ack().await.1, seen("socket", "model_call"));
    drop(link);
}

#[tokio::test]
async fn only_who_was_shown_a_message_can_say_that_it_was_seen() {
    let mut session = Session::at_home(&[SOCKET]).await;
    // The agent's own shell opens a link, and is told nothing by which it could name a message.
    let mut link = Link::open(&session.home).await;
    session.deliver("\"hi\"");
    let posted = session.home.posted().await;
    link.is_told("attached/watch", &json!({ "any": true }))
        .await;
    let mark = mark(posted.content()).to_owned();
    let number = mark.rsplit('-').next().unwrap();
    // 64 bits, which nobody finds by trying.
    assert_eq!(mark.len(), "pb--".len() + 16 + number.len());
    let made_up = ["0".repeat(16), "f".repeat(16)].map(|secret| format!("pb-{secret}-{number}"));
    step(&session.home, &made_up.join(" "), true).await;
    step(&session.home, "hi m1", true).await;
    link.say("attached/answered", &json!({ "prompt": mark }))
        .await;
    session.settle().await;
    assert_eq!(session.broker.acks(), []);
    step(&session.home, &mark, true).await;
    assert_eq!(session.broker.ack().await.1, seen("socket", "model_call"));
}

#[tokio::test]
async fn a_text_that_a_hook_took_is_proven_by_the_transcript_alone() {
    let mut session = Session::at_home(&[("PEERBUS_WAKE", "none")]).await;
    let _link = Link::open(&session.home).await;
    session.deliver("\"hi\"");
    session.waiting(1).await;
    let (text, hook) = session.home.hook("PostToolUse").await;
    hook.take().await;
    let text = text.expect("it is shown");
    session.settle().await;
    session.broker.noticed();
    // A program below the agent can run as the hook, and speak as the module.
    step(&session.home, mark(&text), false).await;
    step(&session.home, mark(&text), true).await;
    session.settle().await;
    let is_claim = |seen: &Seen| matches!(seen, Seen::Progress { .. } | Seen::Ack { .. });
    let claims: Vec<_> = session.broker.noticed();
    assert!(!claims.iter().any(is_claim), "{claims:?}");
    session.deliver("\"ho\"");
    session.waiting(2).await;
    let (next, hook) = session.home.hook("PostToolUse").await;
    hook.take().await;
    // Or it quotes the mark, and not what stands before it.
    let quoted = format!("Background command \"nap [{}]\" completed", mark(&text));
    for (shown, id) in [
        (quoted, "a"),
        (next.expect("it is shown"), "c"),
        (text, "e"),
    ] {
        session.home.write(&line(id, &shown));
        session.home.write(&answer(&format!("{id}1"), id));
    }
    let proven = |id: &str| (id.to_owned(), seen("hook", "transcript"));
    assert_eq!(session.broker.ack().await, proven("2"));
    assert_eq!(session.broker.ack().await, proven("1"));
}

#[tokio::test]
async fn the_module_hears_when_there_is_something_to_look_for() {
    let mut session = Session::at_home(&[SOCKET]).await;
    let mut link = Link::open(&session.home).await;
    session.deliver("\"hi\"");
    let posted = session.home.posted().await;
    link.is_told("attached/watch", &json!({ "any": true }))
        .await;
    step(&session.home, mark(posted.content()), true).await;
    link.is_told("attached/watch", &json!({ "any": false }))
        .await;
}

#[tokio::test]
async fn the_person_is_shown_what_waits_while_it_does() {
    let mut session = Session::at_home(&[("PEERBUS_WAKE", "none")]).await;
    let mut link = Link::open(&session.home).await;
    link.is_told("attached/shows", &json!({ "line": null }))
        .await;
    session.deliver("\"hi\\u001b[31m\"");
    link.is_told("attached/shows", &json!({ "line": "1 unread" }))
        .await;
    let rows = async |home: &Home| {
        let (text, hook) = home.hook_on(&json!({ "hook_event_name": "ModBus" })).await;
        hook.take().await;
        let told: Value = serde_json::from_str(&text.expect("rows")).unwrap();
        told["rows"].as_array().unwrap().clone()
    };
    let told = rows(&session.home).await;
    assert_eq!(told[..2], ["1 unread", r#"unread  bob: "hi\u001b[31m""#]);
    let (text, hook) = session.home.hook("PostToolUse").await;
    hook.take().await;
    session.home.write(&line("a", &text.expect("it is shown")));
    session.home.write(&answer("b", "a"));
    session.broker.ack().await;
    link.is_told("attached/shows", &json!({ "line": null }))
        .await;
    assert_eq!(
        rows(&session.home).await[0],
        "nothing waits in this session"
    );
}

#[tokio::test]
async fn where_the_session_has_no_socket_the_module_is_given_the_text() {
    let mut session = Session::at_home(&[("PEERBUS_WAKE", "module,rewake")]).await;
    let mut link = Link::open(&session.home).await;
    session.deliver("\"hi\"");
    let text = link.hears("attached/text").await;
    let text = text["text"].as_str().unwrap().to_owned();
    assert!(text.contains("bob: \"hi\""), "{text}");
    // The transcript may have it later.
    step(&session.home, mark(&text), false).await;
    let presented = |seen| match seen {
        Seen::Progress {
            stage: Stage::Presented { path },
            ..
        } => Some(path),
        _ => None,
    };
    let path = session.broker.saw("that it is presented", presented).await;
    assert_eq!(path, "module");
    // A program of the agent's can hear it, too: its word is not enough.
    step(&session.home, mark(&text), true).await;
    session.settle().await;
    assert_eq!(session.broker.acks(), []);
    session.home.write(&line("a", &text));
    session.home.write(&answer("b", "a"));
    assert_eq!(session.broker.ack().await.1, seen("module", "transcript"));
}

#[tokio::test]
async fn a_text_that_the_module_may_not_show_goes_another_way() {
    let mut session = Session::at_home(&[("PEERBUS_WAKE", "module")]).await;
    let mut link = Link::open(&session.home).await;
    session.deliver("\"hi\"");
    let text = link.hears("attached/text").await;
    let mark = mark(text["text"].as_str().unwrap()).to_owned();
    let on = json!({ "hook_event_name": "ModDrop", "prompt": mark });
    tells(&session.home, &on).await;
    let (text, hook) = session.home.hook("PostToolUse").await;
    let text = text.expect("it is shown");
    assert!(
        text.contains("\"hi\"") && !text.contains("shown before"),
        "{text}"
    );
    hook.take().await;
}

#[tokio::test]
async fn links_leave_the_hooks_of_the_session_their_places() {
    let mut session = Session::at_home(&[SOCKET]).await;
    let mut links = Vec::new();
    for _ in 0..100 {
        links.push(Link::open(&session.home).await);
    }
    session.deliver(r#"{"text":"by the way","priority":"quiet"}"#);
    session.waiting(1).await;
    let (text, hook) = session.home.hook("PostToolUse").await;
    assert!(text.expect("it is shown").contains("by the way"));
    hook.take().await;
    let ended = links.len() - 4;
    for link in &mut links[..ended] {
        while link.hear().await.is_some() {}
    }
    for link in &mut links[ended..] {
        link.is_told("attached/watch", &json!({ "any": true }))
            .await;
    }
}

#[tokio::test]
async fn a_module_of_another_version_is_told_so_and_everything_goes_on_without_it() {
    let mut session = Session::at_home(&[SOCKET]).await;
    let (mut link, answer) = Link::ask(&session.home, 2).await;
    let why = answer["error"]["message"].as_str().expect("a sentence");
    assert!(why.contains("peerbus install claude-code"), "{why}");
    assert_eq!(link.hear().await, None);
    session.deliver("\"hi\"");
    let posted = session.home.posted().await;
    session.home.write(&posted.line("a"));
    session.home.write(&self::answer("b", "a"));
    assert_eq!(session.broker.ack().await.1, seen("socket", "transcript"));
}

#[tokio::test]
async fn beside_a_linked_module_hooks_show_what_starts_no_turn() {
    let mut session = Session::at_home(&[SOCKET]).await;
    let _link = Link::open(&session.home).await;
    session.deliver(r#"{"text":"by the way","priority":"quiet"}"#);
    session.waiting(1).await;
    let (text, hook) = session.home.hook("PostToolUse").await;
    assert!(text.expect("it is shown").contains("by the way"));
    hook.take().await;
}

#[tokio::test]
async fn the_module_tells_when_a_turn_is_under_way() {
    let session = Session::at_home(&[SOCKET]).await;
    let mut program = Link(BufReader::new(session.home.node().await));
    let turns = |busy| json!({ "hook_event_name": "ModTurn", "busy": busy });
    let prompt = json!({ "hook_event_name": "UserPromptSubmit", "prompt": "go on" });
    for (on, status) in [
        (turns(true), "thinking"),
        (turns(false), "idle"),
        (turns(true), "thinking"),
        // The end of that turn is told after the next prompt.
        (prompt, "thinking"),
        (turns(false), "thinking"),
    ] {
        tells(&session.home, &on).await;
        program.say("session/status", &json!({})).await;
        let said = program.hear().await.expect("an answer");
        assert_eq!(said["result"]["status"], status, "{said}");
    }
}

/// A turn begins, and its hook says in which mode the client asks its user.
async fn asks_in(home: &Home, mode: &str) {
    let on = json!({ "hook_event_name": "UserPromptSubmit", "permission_mode": mode });
    tells(home, &on).await;
}

/// The answer to the module about a text that the model writes with the client's own tool.
async fn writes(home: &Home, to: &str, message: &str) -> Option<Value> {
    let on = json!({ "hook_event_name": "ModSend", "to": to, "message": message });
    let (text, hook) = home.hook_on(&on).await;
    if text.is_some() {
        hook.take().await;
    }
    text.map(|text| serde_json::from_str(&text).unwrap())
}

#[tokio::test]
async fn the_clients_own_tool_sends_where_the_users_rules_let_ours() {
    let mut session = Session::at_home(&[SOCKET]).await;
    let settings = session.home.dir.path().join("settings.json");
    fs::write(settings, r#"{"permissions":{"allow":["mcp__peerbus__*"]}}"#).unwrap();
    asks_in(&session.home, "default").await;
    for to in ["bob", "#shop"] {
        let said = writes(&session.home, to, "\u{1b}[2J hello").await.unwrap();
        let carried = session.broker.envelope().await;
        assert!(carried.text.contains("[2J hello"), "{}", carried.text);
        assert_eq!(said["success"], true, "{to}: {said}");
        let message = said["message"].as_str().unwrap();
        assert!(message.contains("accepted by the broker"), "{message}");
    }
    // An address that leads nowhere is answered by us: the other tool knows none of its kind.
    let said = writes(&session.home, "bob@beta", "hello").await.unwrap();
    assert_eq!(said["success"], false);
    assert!(said["message"].as_str().unwrap().contains("beta"), "{said}");
    // What only an adapter may say is not said in this way either.
    let said = writes(&session.home, "bob", r#"{"approval":{"id":"x"}}"#).await;
    assert_eq!(said.unwrap()["success"], false);
    // No name on any bus: the client's own tool says what it always does.
    for nobody in ["uds:/tmp/1.sock", "no such name", ""] {
        assert_eq!(writes(&session.home, nobody, "hello").await, None);
    }
}

#[tokio::test]
async fn without_such_a_rule_nothing_is_sent_and_the_model_learns_which_tool_asks() {
    let mut session = Session::at_home(&[SOCKET]).await;
    for to in ["bob", "BOB", "bob@beta", "#shop"] {
        let said = writes(&session.home, to, "hello").await.unwrap();
        assert_eq!(said["success"], false, "{to}");
        assert!(said["message"].as_str().unwrap().contains("bus send tool"));
    }
    assert_eq!(writes(&session.home, "nobody", "hello").await, None);
    let settings = session.home.dir.path().join("settings.json");
    fs::write(settings, r#"{"permissions":{"allow":["mcp__peerbus"]}}"#).unwrap();
    let refused = async |home: &Home| {
        let said = writes(home, "bob", "hello").await.unwrap();
        assert_eq!(said["success"], false, "{said}");
    };
    // Nobody has told the mode, or in another one such rules may not hold.
    refused(&session.home).await;
    asks_in(&session.home, "plan").await;
    refused(&session.home).await;
    // The first message that the broker sees is another.
    asks_in(&session.home, "default").await;
    writes(&session.home, "bob", "at last").await.unwrap();
    assert!(session.broker.envelope().await.text.contains("at last"));
}

#[tokio::test]
async fn peers_are_listed_for_the_clients_own_list() {
    let session = Session::at_home(&[SOCKET]).await;
    let project = json!({ "project": "shop\u{1b}[2J\nzoe · idle", "activity": "idle" });
    session.broker.set_presence("bob", &project);
    let (text, hook) = session
        .home
        .hook_on(&json!({ "hook_event_name": "ModList" }))
        .await;
    hook.take().await;
    let listed: Value = serde_json::from_str(&text.unwrap()).unwrap();
    let rows = listed["rows"].as_array().unwrap();
    let bob = rows.iter().filter_map(Value::as_str);
    let bob: Vec<_> = bob.filter(|row| row.starts_with("bob · ")).collect();
    let [bob] = bob.as_slice() else {
        panic!("{listed}");
    };
    assert!(
        bob.contains(r#"project "shop\u001b"#)
            && bob.ends_with('"')
            && !bob.contains(['\n', '\u{1b}']),
        "{bob}"
    );
}
