//! Claude Code's own protocol: a stream of JSON lines, in which it asks for permissions, too, and speaks MCP.

mod arguments;
mod initialize;
mod permission;
mod sdk_url;
mod stream;
#[cfg(test)]
mod tests;

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
pub use self::initialize::Initialize;
use self::stream::{Line, texts};
use crate::process::{self, AgentLines, Process};
use crate::protocol::{Given, Heard, Permission, Protocol, TurnEnd};
use crate::tools::{self, Tools};
use crate::{SERVER, WHY_CHARS};

/// The pause after a push, in milliseconds: what comes meanwhile is one turn.
const GAP_MS: u64 = 2_000;

/// A user's turn in the stream.
pub static STREAM: PathSpec = PathSpec {
    word: "stream",
    rank: 0,
    joins_busy_turn: true,
    text_bytes: usize::MAX,
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
    /// What the client said last of what the session works with.
    pub(crate) settings: Mutex<Option<Value>>,
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

    /// Gives a client variables. An older one does not say which it took, and answers the next request first.
    async fn set_environment(&self, to: &AgentLines, params: &Map<String, Value>) -> Answer {
        let variables = params.get("variables").unwrap_or(&Value::Null);
        let mut names = variables.as_object().into_iter().flat_map(Map::keys);
        if let Some(name) = names.find(|name| is_drivers(name)) {
            return Err(format!("`{name}` is the driver's own"));
        }
        let id = Uuid::new_v4().to_string();
        let (answered, mut answer) = oneshot::channel();
        lock(&self.asked).insert(id.clone(), answered);
        let _forget = Forget(self, &id);
        // A client that is gone does not answer what follows.
        let _ = to.say(stream::environment(&id, variables)).await;
        self.ask(to, "mcp_status", Map::new()).await?;
        answer.try_recv().unwrap_or_else(|_| Ok(json!({})))
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
                let id = id.map(|id| Heard::Session(owned(id), false));
                id.into_iter().chain(self.settings(text)).collect()
            }
            // An agent's inside the session.
            ("user" | "assistant", _) if line["parent_tool_use_id"].is_string() => Vec::new(),
            ("user", _) => {
                let id = line.uuid().filter(|_| line.is_replay());
                let events = claude_code::read(text).into_iter().map(Heard::Event);
                let results = line.blocks("tool_result");
                let results = results.filter(|block| block["is_error"] != true);
                let results = results.map(|block| Heard::Result(block["content"].to_string()));
                let shown = id.map(|id| Heard::Shown(owned(id)));
                events.chain(results).chain(shown).collect()
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
                    Some(why) if stopped => TurnEnd::Stopped(why),
                    Some(why) => TurnEnd::Failed(why),
                };
                with_events(Heard::TurnEnd { ids, end })
            }
            ("control_request", _) => Vec::from_iter(self.requested(to, text).await),
            ("control_response", _) => self.answered(to, text, &line["response"]).await,
            ("control_cancel_request", _) => {
                let id = line.request_id().unwrap_or_default();
                vec![Heard::Withdrawn(owned(id))]
            }
            (kind, subtype) => {
                let events = claude_code::read(text);
                if events.is_empty() {
                    let kind = escape(kind, WHY_CHARS);
                    let subtype = subtype.map(|subtype| escape(subtype, WHY_CHARS));
                    tracing::debug!(
                        kind,
                        subtype,
                        "Claude Code says something that is not needed"
                    );
                }
                events.into_iter().map(Heard::Event).collect()
            }
        })
    }

    /// What the session works with, which the client says in each turn, where that is news.
    fn settings(&self, text: &str) -> Option<Heard> {
        let event = claude_code::read(text).pop()?;
        let mut known = lock(&self.settings);
        if known.as_ref() == Some(&event.members) {
            return None;
        }
        *known = Some(event.members.clone());
        Some(Heard::Event(event))
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
                let options = Value::Null;
                return Some(Heard::Asks(Permission {
                    id,
                    asked,
                    input,
                    options,
                }));
            }
            ("can_use_tool", _, None) => stream::failure(&id, "the request has no input"),
            ("hook_callback", ..) => {
                let written = |id: &str, answer: &Value| stream::success(id, answer);
                return Some(Heard::Hook(id, asked.clone(), written));
            }
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

/// Whether a variable makes a client go elsewhere.
fn is_elsewhere(name: &str) -> bool {
    name.starts_with(REMOTE) || ELSEWHERE.contains(&name)
}

/// Whether a variable is not for others to set.
fn is_drivers(name: &str) -> bool {
    let direct = |known: &str| name.eq_ignore_ascii_case(known);
    is_elsewhere(name) || name.starts_with("PEERBUS_") || sdk_url::DIRECT.into_iter().any(direct)
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
            if is_elsewhere(&text) {
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
            let params = self.options.initialize.params(SERVER, &self.instructions);
            to.say(stream::request(BEGIN, "initialize", params)).await
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

    fn prompt<'a>(&'a self, to: &'a AgentLines, id: &str, given: Given<'_>) -> BoxFuture<'a, bool> {
        Box::pin(to.say(stream::user(id, given)))
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
        Box::pin(async move {
            match subtype {
                "update_environment_variables" => self.set_environment(to, &params).await,
                _ => self.ask(to, subtype, with_ours(subtype, params)?).await,
            }
        })
    }

    fn answer(&self, asked: &Permission, verdict: &Verdict) -> Option<String> {
        let verdict = permission::answer(verdict, &asked.input);
        Some(stream::success(&asked.id, &verdict))
    }

    fn ended(&self) {
        self.stopped.store(false, Ordering::Relaxed);
        lock(&self.asked).clear();
    }
}
