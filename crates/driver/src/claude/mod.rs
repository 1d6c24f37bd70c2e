//! Claude Code's own protocol: a stream of JSON lines, in which it asks for permissions, too, and speaks MCP.

mod arguments;
mod permission;
mod sdk_url;
mod stream;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use peerbus_adapter::mailbox::{BoxFuture, Path, PathSpec};
use peerbus_node::approvals::{By, Decision, Verdict};
use peerbus_node::claude_code;
use peerbus_os::sync::lock;
use peerbus_wire::escape;
use peerbus_wire::jsonrpc::{RpcKind, RpcMessage};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio::sync::oneshot;
use uuid::Uuid;

pub use self::arguments::{ClientOptions, Transport};
pub(crate) use self::arguments::{takes, version};
use self::stream::{Line, texts};
use crate::process::{self, AgentLines, Process};
use crate::protocol::{Heard, Permission, Protocol, TurnEnd};
use crate::tools::{self, Tools};
use crate::turns::marks;
use crate::{SERVER, WHY_CHARS};

/// The pause after a push, in milliseconds: what comes meanwhile is one turn.
const GAP_MS: u64 = 2_000;

/// A user's turn in the stream.
pub static STREAM: PathSpec = PathSpec {
    word: "stream",
    rank: 0,
    joins_busy_turn: true,
    ..PathSpec::waking(GAP_MS)
};

const TITLE: &str = "Claude Code";
const BEGIN: &str = "peerbus-begin";
/// Variables that make a client go elsewhere: with another way to send, or as a remote session.
const ELSEWHERE: [&str; 3] = [
    sdk_url::TOKEN,
    "CLAUDE_CODE_POST_FOR_SESSION_INGRESS_V2",
    "CLAUDE_CODE_WEBSOCKET_AUTH_FILE_DESCRIPTOR",
];
const REMOTE: &str = "CLAUDE_CODE_REMOTE";

/// The answer to what a client was asked.
type Answer = Result<Value, String>;

pub(crate) struct Claude {
    pub(crate) options: ClientOptions,
    pub(crate) transport: Transport,
    /// What the model is told of the bus with the first request.
    pub(crate) instructions: String,
    pub(crate) tools: Arc<Tools>,
    /// What the client was asked, and who waits for the answer.
    pub(crate) asked: Mutex<BTreeMap<String, oneshot::Sender<Answer>>>,
    /// The turn that is under way was asked to end.
    pub(crate) stopped: AtomicBool,
}

impl Claude {
    /// Asks a client for something, by its own words.
    async fn ask(&self, to: &AgentLines, subtype: &str, params: Map<String, Value>) -> Answer {
        let id = Uuid::new_v4().to_string();
        let (answered, answer) = oneshot::channel();
        lock(&self.asked).insert(id.clone(), answered);
        let _forget = Forget(self, &id);
        let ended = || "Claude Code ended before it answered".to_owned();
        if !to.say(stream::request(&id, subtype, params)).await {
            return Err(ended());
        }
        answer.await.map_err(|_| ended())?
    }

    async fn heard(&self, to: &AgentLines, text: &str) -> serde_json::Result<Vec<Heard>> {
        let line = Line::read(text)?;
        let owned = |text: &str| text.to_owned();
        let with_events = |heard| {
            let events = claude_code::read(text).into_iter().map(Heard::Event);
            events.chain([heard]).collect()
        };
        Ok(match (line.kind(), line["subtype"].as_str()) {
            ("system", Some("init")) => {
                let id = line["session_id"].as_str();
                id.map(|id| Heard::Session(owned(id))).into_iter().collect()
            }
            // An agent's inside the session.
            ("user" | "assistant", _) if line["parent_tool_use_id"].is_string() => Vec::new(),
            ("user", _) => {
                let id = line.uuid().filter(|_| line.is_replay()).map(owned);
                let marks = marks(text);
                with_events(Heard::Shown { id, marks })
            }
            ("assistant", _) => {
                let answer = line.answer().map(owned);
                let blocks = line.blocks("text");
                let texts = blocks.filter_map(|block| block["text"].as_str().map(owned));
                let texts = texts.collect();
                with_events(Heard::Words { answer, texts })
            }
            ("result", _) => {
                let ids = texts(&line["user_message_uuids"]).map(owned).collect();
                let stopped = self.stopped.swap(false, Ordering::Relaxed);
                let end = match line.failed() {
                    None => TurnEnd::Well,
                    Some(_) if stopped => TurnEnd::Stopped,
                    Some(why) => TurnEnd::Failed(why),
                };
                vec![Heard::TurnEnd { ids, end }]
            }
            ("control_request", _) => Vec::from_iter(self.requested(to, text).await),
            ("control_response", _) => self.answered(to, text, &line["response"]).await,
            ("control_cancel_request", _) => {
                let id = line.request_id().unwrap_or_default();
                vec![Heard::Withdrawn(owned(id))]
            }
            (kind, subtype) => {
                let kind = escape(kind, WHY_CHARS);
                let subtype = subtype.map(|subtype| escape(subtype, WHY_CHARS));
                tracing::debug!(
                    kind,
                    subtype,
                    "Claude Code says something that is not needed"
                );
                Vec::new()
            }
        })
    }

    async fn requested(&self, to: &AgentLines, text: &str) -> Option<Heard> {
        let line = Line::read(text).ok()?;
        let Some(id) = line.request_id().map(str::to_owned) else {
            tracing::warn!("Claude Code asks for something under no id");
            return None;
        };
        let request = stream::member(text, "request")?;
        let written = |name| stream::member(request.get(), name);
        let asked = &line["request"];
        let subtype = asked["subtype"].as_str().unwrap_or_default();
        let answer = match (subtype, written("message"), written("input")) {
            ("mcp_message", Some(message), _) => {
                return self.mcp(to, id, &message).await;
            }
            ("can_use_tool", _, Some(input)) if permission::is_ours(asked) => {
                let verdict = Verdict::closed(Some(Decision::Allow), By::Client);
                stream::success(&id, &permission::answer(&verdict, &input))
            }
            ("can_use_tool", _, Some(input)) => {
                let asked = permission::shown(asked, &input);
                return Some(Heard::Asks(Permission { id, asked, input }));
            }
            ("can_use_tool", _, None) => stream::failure(&id, "the request has no input"),
            (subtype, ..) => {
                let subtype = escape(subtype, WHY_CHARS);
                tracing::warn!(subtype, "Claude Code asks for something that is not served");
                stream::failure(&id, &format!("peerbus does not serve {subtype}"))
            }
        };
        to.say(answer).await;
        None
    }

    /// A message to the server behind the stream. Each is answered, if only with nothing.
    async fn mcp(&self, to: &AgentLines, id: String, message: &RawValue) -> Option<Heard> {
        let Ok(message) = serde_json::from_str::<RpcMessage>(message.get()) else {
            let why = "the message is no JSON-RPC message";
            to.say(stream::failure(&id, why)).await;
            return None;
        };
        let asks = message.kind() == RpcKind::Request;
        let (client, request) = (to.clone(), id.clone());
        let back = move |answer| -> BoxFuture<'static, ()> {
            let carried = BTreeMap::from([("mcp_response", answer)]);
            let line = stream::success(&request, &carried);
            Box::pin(async move { _ = client.say(line).await })
        };
        let met = self
            .tools
            .take(tools::STREAM, message, Box::new(back))
            .await;
        if !asks {
            to.say(stream::success(&id, &json!({}))).await;
        }
        met.map(Heard::Met)
    }

    async fn answered(&self, to: &AgentLines, text: &str, answer: &Value) -> Vec<Heard> {
        let id = answer["request_id"].as_str().unwrap_or_default();
        let done = match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer["response"].clone()),
        };
        match done {
            Err(why) if id == BEGIN => vec![Heard::Unready(why)],
            Ok(_) if id == BEGIN => {
                let mut heard = Vec::new();
                for request in stream::pending(text) {
                    heard.extend(self.requested(to, request.get()).await);
                }
                heard.push(Heard::Ready);
                heard
            }
            done => {
                if let Some(waits) = lock(&self.asked).remove(id) {
                    // Who asked may not wait any more.
                    let _ = waits.send(done);
                }
                Vec::new()
            }
        }
    }
}

/// A request that nobody waits for once this is dropped.
struct Forget<'a>(&'a Claude, &'a str);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(&self.0.asked).remove(self.1);
    }
}

/// What sets all servers, or one of them, must not take ours away.
fn with_ours(subtype: &str, mut params: Map<String, Value>) -> Result<Map<String, Value>, String> {
    match subtype {
        "mcp_set_servers" => {
            let servers = params.get_mut("servers").and_then(Value::as_object_mut);
            let servers = servers.ok_or("expected `servers` to be an object: servers by names")?;
            servers.insert(SERVER.into(), json!({ "type": "sdk", "name": SERVER }));
        }
        "mcp_toggle"
            if params.get("serverName").is_some_and(|name| name == SERVER)
                && params.get("enabled") != Some(&Value::Bool(true)) =>
        {
            return Err(format!(
                "the bus tools stay: `{SERVER}` is not switched off"
            ));
        }
        _ => {}
    }
    Ok(params)
}

impl Protocol for Claude {
    fn title(&self) -> &str {
        TITLE
    }

    fn path(&self) -> Path {
        &STREAM
    }

    fn start(&self, mut command: Command, resume: Option<&str>) -> io::Result<Process> {
        command.args(self.options.arguments(resume));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with(REMOTE) || ELSEWHERE.contains(&text.as_ref()) {
                command.env_remove(&name);
            }
        }
        match self.transport {
            Transport::Stdio => process::start(command),
            Transport::SdkUrl => sdk_url::start(command),
        }
    }

    fn greet<'a>(&'a self, to: &'a AgentLines) -> BoxFuture<'a, bool> {
        Box::pin(async {
            // What the process before this one had asked, which counted alike.
            self.tools.gone(tools::STREAM).await;
            let hello = stream::initialize(BEGIN, SERVER, &self.instructions);
            to.say(hello).await
        })
    }

    fn hear<'a>(&'a self, to: &'a AgentLines, line: &'a str) -> BoxFuture<'a, Vec<Heard>> {
        Box::pin(async move {
            let error = match self.heard(to, line).await {
                Ok(heard) => return heard,
                Err(error) => error,
            };
            // It may be nested too deep; whoever asks in it must not wait for ever.
            let id = stream::member(line, "request_id");
            if let Some(id) = id.and_then(|id| serde_json::from_str::<String>(id.get()).ok()) {
                to.say(stream::failure(&id, "the line is not understood"))
                    .await;
            }
            let line = escape(line, WHY_CHARS);
            tracing::warn!(%error, "Claude Code wrote a line that is not understood: {line}");
            Vec::new()
        })
    }

    fn prompt<'a>(&'a self, to: &'a AgentLines, id: &str, text: &str) -> BoxFuture<'a, bool> {
        Box::pin(to.say(stream::user(id, text)))
    }

    fn interrupt<'a>(&'a self, to: &'a AgentLines) -> BoxFuture<'a, Result<(), String>> {
        self.stopped.store(true, Ordering::Relaxed);
        Box::pin(async { self.ask(to, "interrupt", Map::new()).await.map(|_| ()) })
    }

    fn control<'a>(
        &'a self,
        to: &'a AgentLines,
        subtype: &'a str,
        params: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, String>> {
        Box::pin(async move { self.ask(to, subtype, with_ours(subtype, params)?).await })
    }

    fn answer(&self, asked: &Permission, verdict: &Verdict) -> String {
        let verdict = permission::answer(verdict, &asked.input);
        stream::success(&asked.id, &verdict)
    }

    fn ended(&self) {
        lock(&self.asked).clear();
    }
}

#[cfg(test)]
mod tests {
    use peerbus_adapter::mailbox::{Activity, Evidence};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;
    use crate::process::tests::scripted;
    use crate::turns::Turns;

    const STREAMS: [&str; 2] = [
        include_str!("../../testdata/2.1.330.ndjson"),
        include_str!("../../testdata/2.1.114.ndjson"),
    ];

    fn claude() -> Claude {
        Claude {
            options: ClientOptions::default(),
            transport: Transport::Stdio,
            instructions: String::new(),
            tools: Tools::new().0,
            asked: Mutex::default(),
            stopped: AtomicBool::default(),
        }
    }

    /// What the stream of a real client shows, line by line, after everything was written.
    async fn shown(lines: &str) -> (Vec<Evidence>, Vec<String>, Activity) {
        let (claude, (to, _reader)) = (claude(), scripted());
        let (mut turns, mut failures) = (Turns::default(), Vec::new());
        for line in lines.lines().map(|line| Line::read(line).unwrap()) {
            if line.is_replay() {
                turns.wrote(line.uuid().unwrap(), "");
            }
        }
        assert_eq!(turns.activity(), Activity::Busy);
        for line in lines.lines() {
            if Line::read(line).unwrap().kind() == "control_request" {
                continue;
            }
            for heard in claude.hear(&to, line).await {
                match heard {
                    Heard::Shown { id, marks } => turns.shown(id.as_deref(), marks),
                    Heard::Words { answer, .. } => {
                        answer.into_iter().for_each(|answer| turns.answer(answer));
                    }
                    Heard::TurnEnd { ids, end } => {
                        turns.ended(&ids, &end);
                        if let TurnEnd::Failed(why) = end {
                            failures.push(why);
                        }
                    }
                    _ => {}
                }
            }
        }
        (turns.take(), failures, turns.activity())
    }

    #[tokio::test]
    async fn real_streams_prove_what_was_merged_and_joined_and_nothing_of_turns_that_failed() {
        for lines in STREAMS {
            let (found, failed, activity) = shown(lines).await;
            let numbers = |answered: bool| -> String {
                let number = |evidence: &Evidence| match evidence {
                    Evidence::Answered(mark) if answered => mark.chars().last(),
                    Evidence::Presented(mark) if !answered => mark.chars().last(),
                    _ => None,
                };
                found.iter().filter_map(number).collect()
            };
            assert_eq!(numbers(false), "12345678");
            assert_eq!(numbers(true), "123456");
            let [service, stopped] = &failed[..] else {
                panic!("{failed:?}")
            };
            assert!(service.starts_with("success: API Error: 400"), "{service}");
            assert!(stopped.starts_with("error_during_execution: "), "{stopped}");
            assert_eq!(activity, Activity::Idle);
        }
    }

    #[test]
    fn each_line_of_a_real_stream_is_read_and_what_it_asks_is_known() {
        for lines in STREAMS {
            let lines: Vec<_> = lines.lines().map(|it| Line::read(it).unwrap()).collect();
            let inits = lines.iter().filter(|line| line["subtype"] == "init");
            assert!(inits.clone().count() > 0);
            assert!(inits.clone().all(|line| line["session_id"].is_string()));
            let asked = lines.iter().map(|line| &line["request"]["subtype"]);
            let mut asked: Vec<_> = asked.filter_map(Value::as_str).collect();
            asked.dedup();
            let wanted = ["mcp_message", "can_use_tool", "mcp_message", "can_use_tool"];
            assert_eq!(asked, wanted);
        }
    }

    #[tokio::test]
    async fn what_is_asked_of_the_server_behind_the_stream_is_answered_inside_it() {
        let (tools, waiting) = Tools::new();
        let claude = Claude { tools, ..claude() };
        let ((to, mut reader), (ours, theirs)) = (scripted(), tokio::io::duplex(1 << 16));
        let (read, mut write) = tokio::io::split(theirs);
        let mut asked = BufReader::new(read).lines();
        let line = |message| {
            format!(
                r#"{{"type":"control_request","request_id":"b","request":{{"subtype":"mcp_message","message":{message}}}}}"#
            )
        };
        let test = async {
            let call = line(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#);
            claude.hear(&to, &call).await;
            while !asked.next_line().await.unwrap().unwrap().contains("call") {}
            let answer = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"n\":1e400}}\n";
            write.write_all(answer).await.unwrap();
            let answer = reader.next().await;
            let wanted = r#""request_id":"b","response":{"mcp_response":{"jsonrpc":"2.0","id":7,"result":{"n":1e400}}}"#;
            assert!(answer.contains(wanted), "{answer}");
            for (message, wanted) in [
                (
                    r#"{"method":"notifications/initialized"}"#,
                    r#""response":{}"#,
                ),
                ("7", r#""subtype":"error""#),
            ] {
                let line = line(message);
                let (_, said) = tokio::join!(claude.hear(&to, &line), reader.next());
                assert!(
                    said.contains(r#""request_id":"b""#) && said.contains(wanted),
                    "{said}"
                );
            }
        };
        let who = peerbus_mcp::ClientInfo {
            name: String::new(),
            version: String::new(),
        };
        tokio::select! {
            () = test => {}
            () = claude.tools.carry(&who, ours, waiting) => panic!("the server ended"),
        }
    }

    #[tokio::test]
    async fn what_has_another_form_says_nothing_and_ends_nothing() {
        let (claude, (to, _reader)) = (claude(), scripted());
        for line in [
            r#"{"type":7}"#,
            r#"{"type":"new","subtype":"er"}"#,
            r#"{"type":"control_request"}"#,
            r#"{"type":"assistant","parent_tool_use_id":"t","message":{"id":"b","content":[]}}"#,
            "no JSON",
            "[]",
        ] {
            assert!(claude.hear(&to, line).await.is_empty(), "{line}");
        }
        let words = async |line| match claude.hear(&to, line).await.pop() {
            Some(Heard::Words { answer, texts }) => (answer, texts),
            other => panic!("{other:?}"),
        };
        let none = words(r#"{"type":"assistant","message":{"content":"x"}}"#).await;
        assert_eq!(none, (None, Vec::new()));
        let half =
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"half \ud82d"}]}}"#;
        assert_eq!(words(half).await.1, ["half \u{fffd}"]);
    }

    #[tokio::test]
    async fn what_is_answered_is_what_was_written() {
        let (claude, (to, _reader)) = (claude(), scripted());
        let line = r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"n":1.50,"n":1e400}}}"#;
        let Some(Heard::Asks(asked)) = claude.hear(&to, line).await.pop() else {
            panic!("a request");
        };
        let verdict = Verdict::closed(Some(Decision::Allow), By::Node);
        let said = claude.answer(&asked, &verdict);
        let input = r#""updatedInput":{"n":1.50,"n":1e400}"#;
        assert!(said.contains(input), "{said}");
    }
}
