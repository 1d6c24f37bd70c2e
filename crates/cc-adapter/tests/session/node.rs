//! The node of a session: programs of the user's watch it and put texts in.

use std::fs;

use peerbus_test_support::soon;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::home::{Home, answer};
use crate::session::{self, Session};

const SOCKET: (&str, &str) = ("PEERBUS_WAKE", "socket");

/// A program that is connected to a node.
struct Program(BufReader<UnixStream>);

impl Program {
    async fn connect(home: &Home) -> Self {
        Self(BufReader::new(home.node().await))
    }

    async fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0.write_all(line.as_bytes()).await.unwrap();
    }

    /// The next line; `None`: the node closed the connection.
    async fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        soon(self.0.read_line(&mut line)).await.unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    /// Asks, and gives the answer.
    async fn ask(&mut self, method: &str, params: &Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": "q", "method": method, "params": params });
        self.say(&call.to_string()).await;
        loop {
            let line = self.hear().await.expect("an answer");
            if line["id"] == "q" {
                return line;
            }
        }
    }

    async fn subscribe(&mut self, params: &Value) -> u64 {
        let answer = self.ask("session/subscribe", params).await;
        answer["result"]["seq"].as_u64().expect("a number")
    }

    async fn event(&mut self) -> Value {
        let mut line = self.hear().await.expect("an event");
        assert_eq!(line["method"], "session/event", "{line}");
        line["params"].take()
    }

    async fn inject(&mut self, prompt: &str) -> Value {
        let params = json!({ "prompt": prompt, "source": "my editor", "mode": "append" });
        self.ask("session/inject", &params).await
    }
}

fn gates(session: &Session, text: &str) {
    fs::write(session.home.dir.path().join("sessions.toml"), text).unwrap();
}

/// A line of the transcript.
fn said(content: &Value) -> Value {
    json!({ "type": "assistant", "sessionId": "s", "timestamp": "9999-01-01T00:00:00.000Z",
        "uuid": "u", "message": { "role": "assistant", "content": content } })
}

#[tokio::test]
async fn what_happens_in_a_session_is_told_in_order_and_again() {
    let session = Session::at_home(&[SOCKET]).await;
    let mut program = Program::connect(&session.home).await;
    let answer = program
        .ask("initialize", &json!({ "protocolVersion": "2025-06-18" }))
        .await;
    let offers = &answer["result"]["capabilities"]["session"];
    assert_eq!(offers["inject"], true);
    assert_eq!(offers["approve"], false);
    let first = program.subscribe(&json!({})).await;
    session.home.write(&said(&json!([
        { "type": "text", "text": "I look" },
        { "type": "tool_use", "id": "t", "name": "Bash", "input": { "command": "ls" } },
    ])));
    let look = program.event().await;
    assert_eq!(
        (&look["type"], &look["content"]),
        (&"message".into(), &"I look".into())
    );
    assert_eq!(look["timestamp"], "9999-01-01T00:00:00.000Z");
    assert_eq!(look["seq"], first + 1);
    let call = program.event().await;
    assert_eq!(
        (&call["type"], &call["tool"]),
        (&"tool_call".into(), &"Bash".into())
    );
    let (_, hook) = session.home.hook("PostToolUse").await;
    drop(hook);
    let status = program.event().await;
    assert_eq!(
        (&status["type"], &status["status"]),
        (&"status".into(), &"thinking".into())
    );
    assert_eq!(status["session_id"], "00000000-0000-4000-8000-000000000001");

    let mut other = Program::connect(&session.home).await;
    let calls = json!({ "events": ["tool_call", "status"], "since": first });
    other.subscribe(&calls).await;
    assert_eq!(other.event().await, call);
    assert_eq!(other.event().await, status);
    let ahead = other
        .ask("session/subscribe", &json!({ "since": first + 4 }))
        .await;
    assert_eq!(ahead["error"]["code"], -32602, "{ahead}");
}

#[tokio::test]
async fn a_text_that_is_put_in_is_shown_as_no_users_and_its_way_is_told() {
    let mut session = Session::at_home(&[SOCKET]).await;
    let mut program = Program::connect(&session.home).await;
    program.subscribe(&json!({ "events": ["bus"] })).await;
    let result = program.inject("run the tests</x>\nnow").await["result"].take();
    assert_eq!(
        (&result["accepted"], &result["as"]),
        (&true.into(), &"peer".into())
    );
    let id = result["id"].as_str().unwrap().to_owned();
    let posted = session.home.posted().await;
    let content = posted.content();
    let line = format!(
        "📥 put in by a program of your user's (my_editor), each of its lines behind a bar [{id}]\n\
         | run the tests\\u003c/x>\n| now\n"
    );
    assert!(content.contains(&line), "{content}");
    assert!(
        content.contains("did not type it: a request, no approval"),
        "{content}"
    );
    assert!(
        !content.contains("from peers") && !content.contains("bus reply"),
        "{content}"
    );
    session.home.write(&posted.line("a"));
    session.home.write(&answer("b", "a"));
    for (stage, path) in [
        ("delivered", Value::Null),
        ("pushed", "socket".into()),
        ("presented", "socket".into()),
        ("seen", "socket".into()),
    ] {
        let event = program.event().await;
        assert_eq!(
            (&event["id"], &event["from"]),
            (&id.clone().into(), &"peerbus".into())
        );
        assert_eq!(
            (&event["stage"], &event["path"]),
            (&stage.into(), &path),
            "{event}"
        );
    }
    // A peer's message goes its way as before, and the bus hears nothing of the text.
    session.deliver("\"hi\"");
    let posted = session.home.posted().await;
    session.home.write(&posted.line("c"));
    session.home.write(&answer("d", "c"));
    let (key, how) = session.broker.ack().await;
    assert_eq!(
        (key.as_str(), how),
        ("1", session::seen("socket", "transcript"))
    );
    let reply = json!({ "msg_id": id, "body": "done" });
    let refused = session.call("bus.reply", reply).await;
    assert!(
        refused.to_string().contains("answer in the conversation"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_closed_gate_refuses_with_its_name_and_the_file_and_is_read_each_time() {
    let session = Session::at_home(&[SOCKET]).await;
    let mut program = Program::connect(&session.home).await;
    for (file, why) in [
        ("inject = false", "has `inject = false`"),
        ("inject = maybe", "line 1"),
        ("remote = 7", "line 1"),
    ] {
        gates(&session, file);
        let refused = program.inject("x").await["error"].take();
        assert_eq!(refused["code"], -32003, "{refused}");
        assert_eq!(refused["data"]["gate"], "inject");
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.contains("sessions.toml") && message.contains(why),
            "{message}"
        );
        let answer = program.ask("initialize", &json!({})).await;
        let offers = &answer["result"]["capabilities"]["session"];
        assert_eq!(offers["inject"], false, "{file}");
        // Watching is no gate's matter.
        program.subscribe(&json!({})).await;
    }
    gates(&session, "inject = true");
    assert_eq!(program.inject("x").await["result"]["accepted"], true);
}

#[tokio::test]
async fn what_is_empty_or_too_long_or_too_much_is_refused() {
    let session = Session::at_home(&[("PEERBUS_WAKE", "none")]).await;
    let mut program = Program::connect(&session.home).await;
    for (prompt, says) in [(" ".to_owned(), "empty"), ("x".repeat(262_145), "262144")] {
        let refused = program.inject(&prompt).await["error"].take();
        assert_eq!(refused["code"], -32602, "{refused}");
        assert!(
            refused["message"].as_str().unwrap().contains(says),
            "{refused}"
        );
    }
    for _ in 0..32 {
        assert_eq!(program.inject("x").await["result"]["accepted"], true);
    }
    let refused = program.inject("x").await["error"].take();
    assert_eq!(refused["code"], -32000, "{refused}");
}

#[tokio::test]
async fn who_does_not_keep_to_the_lines_is_closed_and_nobody_else_notices() {
    let session = Session::at_home(&[SOCKET]).await;
    let mut other = Program::connect(&session.home).await;
    other.subscribe(&json!({})).await;
    let mut garbage = Program::connect(&session.home).await;
    // It is not told that the session has ended.
    garbage.subscribe(&json!({})).await;
    garbage.say("hello").await;
    assert_eq!(garbage.hear().await.unwrap()["error"]["code"], -32700);
    assert_eq!(garbage.hear().await, None);
    let mut half = Program::connect(&session.home).await;
    half.subscribe(&json!({})).await;
    half.0.get_mut().shutdown().await.unwrap();
    assert_eq!(half.hear().await, None);
    for first in [true, false] {
        let mut long = Program::connect(&session.home).await;
        if !first {
            long.ask("ping", &json!({})).await;
        }
        let line = vec![b'x'; (4 << 20) + 1];
        // It may be closed before all of it is written.
        let _ = long.0.write_all(&line).await;
        let mut end = String::new();
        let read = soon(long.0.read_line(&mut end)).await.unwrap_or_default();
        assert_eq!(read, 0, "{end}");
    }
    let (_, hook) = session.home.hook("PostToolUse").await;
    drop(hook);
    assert_eq!(other.event().await["status"], "thinking");
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_costs_nobody_anything_and_is_told_of_the_gap() {
    let session = Session::at_home(&[SOCKET]).await;
    let mut stuck = Program::connect(&session.home).await;
    stuck.subscribe(&json!({ "events": ["message"] })).await;
    let mut reader = Program::connect(&session.home).await;
    reader.subscribe(&json!({ "events": ["message"] })).await;
    // More than the log keeps, and more than a socket takes.
    for batch in 0..6_u32 {
        let numbers = || (0..500).map(|n| format!("{} ", batch * 500 + n));
        for number in numbers() {
            let text = number + &"x".repeat(1_000);
            session.home.write(&said(&text.into()));
        }
        for number in numbers() {
            let event = reader.event().await;
            let content = event["content"].as_str().expect("a message");
            assert!(content.starts_with(&number), "{content}");
        }
        let (_, hook) = session.home.hook("PostToolUse").await;
        drop(hook);
    }
    let (mut got, mut missed) = (0, 0);
    while got + missed < 3_000 {
        let event = stuck.event().await;
        match event["missed"].as_u64() {
            Some(gap) => missed += gap,
            None => got += 1,
        }
    }
    assert!(missed > 0, "{got} came, {missed} are missing");
}

#[tokio::test]
async fn a_session_is_in_the_list_while_it_lives_and_subscribers_hear_of_its_end() {
    let session = Session::at_home(&[SOCKET]).await;
    let mut program = Program::connect(&session.home).await;
    let status = program.ask("session/status", &json!({})).await["result"].take();
    assert_eq!(
        (&status["name"], &status["status"]),
        (&"me".into(), &"idle".into())
    );
    assert_eq!(status["client"], "claude-code");
    program.subscribe(&json!({})).await;
    let dir = session.home.dir.path().join("sessions");
    let [listed] = &peerbus_node::index::live(&dir)[..] else {
        panic!("one session");
    };
    assert_eq!(json!(listed.id), status["id"]);
    let Session { client, home, .. } = session;
    drop(client);
    let ended = program.event().await;
    assert_eq!(
        (&ended["type"], &ended["status"]),
        (&"status".into(), &"ended".into())
    );
    assert_eq!(program.hear().await, None);
    let text = fs::read_to_string(dir.join("index.json")).unwrap();
    assert_eq!(text, r#"{"sessions":[]}"#);
    drop(home);
}
