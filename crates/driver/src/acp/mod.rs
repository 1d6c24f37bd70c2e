//! The Agent Client Protocol, by which editors drive agents: JSON-RPC, a line a message. Versions 1 and
//! 2, by the shape of the agent's answer.
//!
//! Written from what eleven agents were seen to do in November 2026, of which `testdata/acp` has lines;
//! docs/ANY_AGENT.md has the table. Everything in them is optional here.

mod agent;
pub(crate) mod calls;
pub(crate) mod lines;
pub(crate) mod permission;
mod returned;
mod session;
#[cfg(test)]
mod tests;
mod turn;

use std::io;
use std::sync::{Mutex, MutexGuard};

use peerbus_adapter::mailbox::{BoxFuture, Path, PathSpec};
use peerbus_node::approvals::Verdict;
use peerbus_os::sync::lock;
use peerbus_wire::escape;
use peerbus_wire::jsonrpc::{RpcError, RpcKind, RpcMessage, UNKNOWN_METHOD, raw};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio::sync::oneshot;

pub use self::agent::AcpAgent;
pub(crate) use self::agent::Seat;
use self::lines::LONG;
use self::session::{Asking, QUESTIONS_MAX, State, TOLD};
pub(crate) use self::session::{ELSEWHERE, UNASKED, WITHDRAW};
use crate::process::{self, AgentLines, Process};
use crate::protocol::{Given, Heard, Permission, Protocol};
use crate::{SERVER, WHY_CHARS};

/// The pause after a push, in milliseconds: what comes meanwhile is one turn.
const GAP_MS: u64 = 2_000;

/// A prompt over ACP. What comes in a turn waits for its end.
pub static ACP: PathSpec = PathSpec {
    word: "acp",
    rank: 0,
    one_shot: true,
    text_bytes: usize::MAX,
    ..PathSpec::waking(GAP_MS)
};

pub(crate) struct Acp {
    agent: AcpAgent,
    in_editor: bool,
    seat: Mutex<Option<Seat>>,
    /// What the model is told of the bus.
    instructions: String,
    /// The bus tools, as a program that the agent starts.
    server: Value,
    state: Mutex<State>,
}

/// The answer to what an agent was asked.
type Answer = Result<Value, RpcError>;

impl Acp {
    /// `server`: the program with the bus tools, its arguments, and variables for it.
    pub(crate) fn new(
        agent: AcpAgent,
        instructions: String,
        server: (&str, &[&str], [(&str, String); 2]),
        seat: Option<Seat>,
    ) -> Self {
        let (command, args, env) = server;
        let env = env
            .into_iter()
            .map(|(name, value)| json!({ "name": name, "value": value }));
        let server = json!({ "name": SERVER, "command": command, "args": args,
            "env": env.collect::<Value>() });
        let instructions = match agent.facts().finds_tools {
            "" => instructions,
            how => format!("{instructions}\nA bus tool that you do not see: {how}."),
        };
        Self {
            agent,
            in_editor: seat.is_some(),
            seat: Mutex::new(seat),
            instructions,
            server,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Asks the agent for something. Whether it left.
    async fn ask(&self, to: &AgentLines, asking: Asking, method: &str, params: &Value) -> bool {
        let number = self.state().ask(asking);
        let left = to
            .say(RpcMessage::request(number, method, params).text())
            .await;
        if !left {
            self.state().asked.remove(&number);
        }
        left
    }

    /// Asks the agent for something that a person wants, and waits for the answer.
    async fn request(&self, to: &AgentLines, method: &str, params: Value) -> Result<Value, String> {
        let (answered, answer) = oneshot::channel();
        let gone = || format!("{} ended before it answered", self.agent.title);
        if !self
            .ask(to, Asking::Control(answered), method, &params)
            .await
        {
            return Err(gone());
        }
        let answer = answer.await.map_err(|_| gone())?;
        answer.map_err(|error| escape(&error.message, WHY_CHARS))
    }

    /// What it takes for a session in this directory.
    fn place(&self, two: bool) -> Map<String, Value> {
        let cwd = std::env::current_dir().unwrap_or_default();
        let mut server = self.server.clone();
        if two {
            server["type"] = "stdio".into();
        }
        Map::from_iter([
            ("cwd".to_owned(), cwd.to_string_lossy().into()),
            ("mcpServers".to_owned(), json!([server])),
        ])
    }

    /// Begins a session, or goes on with one where the agent can.
    async fn open(&self, to: &AgentLines, anew: bool) {
        let (can, resume) = {
            let state = self.state();
            (state.can, state.resume.clone().filter(|_| !anew))
        };
        let mut params = self.place(can.two);
        if can.takes_instructions {
            let text = json!({ "type": "text", "text": self.instructions });
            let prompt = json!({ "mode": "append", "content": [text] });
            params.insert("systemPrompt".into(), prompt);
        }
        let (asking, method) = match &resume {
            Some(_) if can.loads => (Asking::Load, "session/load"),
            Some(_) if can.resumes => (Asking::Load, "session/resume"),
            _ => (Asking::New, "session/new"),
        };
        if let Some(id) = resume.filter(|_| method != "session/new") {
            params.insert("sessionId".into(), id.into());
            if can.two {
                params.insert("replayFrom".into(), json!({ "type": "start" }));
            }
        }
        if !anew && matches!(asking, Asking::New) && self.state().resume.is_some() {
            let title = &self.agent.title;
            tracing::warn!("{title} cannot go on with a session: a new one begins");
        }
        let is_new = matches!(asking, Asking::New) && !can.takes_instructions;
        if is_new || self.in_editor {
            self.state().instruct = true;
        }
        self.ask(to, asking, method, &params.into()).await;
    }

    /// A session is there: sets its mode and its model, one after the other, then it takes turns.
    async fn set_up(&self, to: &AgentLines, offered: &Value) -> Vec<Heard> {
        if self.in_editor {
            // What it may do its user says there.
            return vec![Heard::Ready];
        }
        let facts = self.agent.facts();
        let mode = self.agent.mode.as_deref().or(facts.mode);
        let wanted = [("mode", mode), ("model", self.agent.model.as_deref())];
        {
            let mut state = self.state();
            for (what, value) in wanted {
                let Some(value) = value else { continue };
                match state.setting(offered, what, value) {
                    Ok(asked) => state.settings.extend(asked),
                    Err(why) => tracing::warn!("{}: {why}", self.agent.title),
                }
            }
        }
        self.next_setting(to).await
    }

    async fn next_setting(&self, to: &AgentLines) -> Vec<Heard> {
        let next = self.state().settings.pop_front();
        match next {
            Some((method, params)) => {
                let shown = escape(&params.to_string(), WHY_CHARS);
                tracing::info!("{}: {method} {shown}", self.agent.title);
                self.ask(to, Asking::Setting, method, &params).await;
                Vec::new()
            }
            None => {
                let title = &self.agent.title;
                match self.agent.facts().unasked {
                    "" => tracing::info!("{title} takes turns"),
                    unasked => tracing::warn!("{title} takes turns; {unasked}"),
                }
                vec![Heard::Ready]
            }
        }
    }

    async fn answered(&self, to: &AgentLines, asking: Asking, answer: Answer) -> Vec<Heard> {
        let (title, proof) = (&self.agent.title, self.agent.facts().proof);
        match (asking, answer) {
            (Asking::Initialize, Ok(answer)) => {
                let who = self.state().greeted(&answer);
                self.open(to, false).await;
                who.map(Heard::Met).into_iter().collect()
            }
            (Asking::Load, answer) => {
                let went_on = {
                    let mut state = self.state();
                    let replayed = state.loaded(proof, answer.as_ref().unwrap_or(&Value::Null));
                    (
                        replayed,
                        answer.as_ref().ok().map(|_| state.session.clone()),
                    )
                };
                match (went_on, answer) {
                    ((Some(known), Some(id)), Ok(answer)) => {
                        let heard = known.into_iter();
                        let id = id.map(|id| Heard::Session(id, false));
                        let mut heard: Vec<_> = heard.chain(id).collect();
                        heard.extend(self.set_up(to, &answer).await);
                        heard
                    }
                    (_, answer) => {
                        let why = answer.err().map(|error| escape(&error.message, WHY_CHARS));
                        let why = why.unwrap_or_else(|| "it has nothing of it".to_owned());
                        tracing::warn!(
                            "{title} cannot go on with the session ({why}): a new one begins"
                        );
                        self.open(to, true).await;
                        Vec::new()
                    }
                }
            }
            (Asking::New, Ok(answer)) => {
                let Some(id) = lines::id(&answer) else {
                    let why = "it began a session without an id that can be used";
                    return vec![Heard::Broken(why.to_owned())];
                };
                self.state().began(&id);
                let mut heard = vec![Heard::Session(id, true)];
                heard.extend(self.set_up(to, &answer).await);
                heard
            }
            (Asking::Initialize | Asking::New, Err(error)) => {
                let why = lines::refused(&error);
                vec![Heard::Broken(why)]
            }
            (Asking::Setting, answer) => {
                if let Err(error) = answer {
                    let why = escape(&error.message, WHY_CHARS);
                    tracing::warn!("{title} does not take a setting: {why}");
                }
                self.next_setting(to).await
            }
            (Asking::Prompt(uuid), answer) => self.state().prompted(proof, &uuid, &answer),
            (Asking::Control(waits), answer) => {
                // Who asked may not wait any more.
                let _ = waits.send(answer);
                Vec::new()
            }
        }
    }

    async fn asked(&self, to: &AgentLines, message: RpcMessage) -> Option<Vec<Heard>> {
        let (id, method) = (message.id?, message.method?);
        if method != "session/request_permission" {
            let method = escape(&method, WHY_CHARS);
            tracing::debug!(method, "an agent asks for something that is not served");
            let why = RpcError::new(UNKNOWN_METHOD, "peerbus does not serve this");
            to.say(RpcMessage::response(id, &Err::<(), _>(why)).text())
                .await;
            return None;
        }
        let params = lines::question(message.params.as_deref());
        let options = &params["options"];
        let mut call = self.state().calls.asked(&params, self.agent.agent);
        let (ours, full) = {
            let questions = &self.state().questions;
            if questions.contains(id.get()) {
                tracing::debug!("a question under the id of one that is open");
                return None;
            }
            (
                permission::is_ours(&call, self.agent.agent),
                questions.len() >= QUESTIONS_MAX || id.get().len() > lines::ID_MAX,
            )
        };
        if ours || full {
            let allowed = match ours {
                true => permission::allowed(options),
                false => permission::cancelled(),
            };
            to.say(RpcMessage::response(id, &Ok::<_, ()>(allowed)).text())
                .await;
            return None;
        }
        if permission::input(&call).is_null() {
            call["content"] = self.state().calls.open();
        }
        let asked = permission::shown(&call);
        let input = raw(&permission::input(&call))?;
        let id = id.get().to_owned();
        self.state().questions.insert(id.clone());
        let options = options.clone();
        let mut heard = self.state().asks(self.agent.facts().proof, &params);
        heard.push(Heard::Asks(Permission {
            id,
            asked,
            input,
            options,
        }));
        Some(heard)
    }

    async fn heard(&self, to: &AgentLines, line: &str) -> Result<Vec<Heard>, RpcError> {
        let message = lines::message(line)?;
        Ok(match message.kind() {
            RpcKind::Request => self.asked(to, message).await.unwrap_or_default(),
            RpcKind::Response => {
                let number = message.number();
                let asking = number.and_then(|number| self.state().asked.remove(&number));
                match asking.zip(lines::answer(&message)) {
                    Some((asking, answer)) => self.answered(to, asking, answer).await,
                    None => Vec::new(),
                }
            }
            RpcKind::Notification if message.method.as_deref() == Some("session/update") => {
                let params = lines::update(message.params.as_deref());
                self.state().update(self.agent.facts().proof, &params)
            }
            RpcKind::Notification => {
                let params = message.params.as_deref().map(RawValue::get);
                let params = lines::object(params, LONG, TOLD);
                let method = message.method.as_deref().unwrap_or_default();
                let proof = self.in_editor.then(|| self.agent.facts().proof);
                self.state().told(proof, method, &params)
            }
        })
    }
}

impl Protocol for Acp {
    fn title(&self) -> &str {
        &self.agent.title
    }

    fn path(&self) -> Path {
        &ACP
    }

    fn goes_on(&self) -> bool {
        let can = self.state().can;
        can.loads || can.resumes
    }

    fn is_in_editor(&self) -> bool {
        self.in_editor
    }

    fn start(&self, mut command: Command, resume: Option<&str>) -> io::Result<Process> {
        command.args(self.agent.command.iter().skip(1));
        self.state().started(resume);
        if let Some(seat) = lock(&self.seat).take() {
            return Ok(seat.process);
        }
        process::start(command)
    }

    fn greet<'a>(&'a self, to: &'a AgentLines) -> BoxFuture<'a, bool> {
        let us =
            json!({ "name": "peerbus", "title": "peerbus", "version": env!("CARGO_PKG_VERSION") });
        // The members of both versions: an agent takes those of its own.
        let hello = json!({
            "protocolVersion": 2,
            "clientCapabilities": {
                "fs": { "readTextFile": false, "writeTextFile": false },
                "terminal": false,
                "session": { "notices": {} },
            },
            "clientInfo": us,
            "capabilities": {},
            "info": us,
        });
        Box::pin(async move { self.ask(to, Asking::Initialize, "initialize", &hello).await })
    }

    fn hear<'a>(&'a self, to: &'a AgentLines, line: &'a str) -> BoxFuture<'a, Vec<Heard>> {
        Box::pin(async move {
            match self.heard(to, line).await {
                Ok(heard) => heard,
                Err(error) => lines::unread(line, &error),
            }
        })
    }

    fn prompt<'a>(&'a self, to: &'a AgentLines, id: &str, given: Given<'_>) -> BoxFuture<'a, bool> {
        let params = self.state().prompt(id, given, &self.instructions);
        let asking = Asking::Prompt(id.to_owned());
        Box::pin(async move {
            let Some(params) = params else {
                return false;
            };
            let left = self.ask(to, asking, "session/prompt", &params).await;
            if !left {
                self.state().turn = None;
            }
            left
        })
    }

    fn takes_images(&self) -> Result<(), String> {
        self.state().takes_images(&self.agent.title)
    }

    fn returned(&self, mark: &str, line: &str) -> bool {
        self.state().returned.add(mark, line);
        true
    }

    fn interrupt<'a>(&'a self, to: &'a AgentLines) -> BoxFuture<'a, Result<(), String>> {
        let (id, open) = {
            let mut state = self.state();
            let open = std::mem::take(&mut state.questions);
            state.withdrawn.extend(open.iter().cloned());
            (state.session.clone(), open)
        };
        Box::pin(async move {
            let params = json!({ "sessionId": id });
            let mut left = to
                .say(RpcMessage::notification("session/cancel", &params).text())
                .await;
            for question in open {
                left &= to
                    .say(permission::response(&question, &permission::cancelled()))
                    .await;
            }
            match left {
                true => Ok(()),
                false => Err(format!("{} has ended", self.agent.title)),
            }
        })
    }

    fn control<'a>(
        &'a self,
        to: &'a AgentLines,
        subtype: &'a str,
        params: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, String>> {
        Box::pin(async move {
            let session = self.state().session.clone();
            let (method, name, member) = match subtype {
                "set_permission_mode" => ("session/set_mode", "mode", "modeId"),
                "set_model" => ("session/set_model", "model", "modelId"),
                _ => {
                    return Err(
                        "an agent over ACP takes set_permission_mode and set_model".to_owned()
                    );
                }
            };
            let value = params.get(name).cloned().unwrap_or_default();
            let params = Map::from_iter([
                ("sessionId".to_owned(), session.into()),
                (member.to_owned(), value),
            ]);
            self.request(to, method, params.into()).await
        })
    }

    fn answer(&self, asked: &Permission, verdict: &Verdict) -> Option<String> {
        let is_open = self.state().questions.remove(&asked.id);
        let outcome = permission::outcome(verdict, &asked.options);
        is_open.then(|| permission::response(&asked.id, &outcome))
    }

    fn leave<'a>(&'a self, to: &'a AgentLines) -> BoxFuture<'a, ()> {
        Box::pin(async {
            // It is ended in any case.
            let _ = self.interrupt(to).await;
        })
    }

    fn ended(&self) {
        self.state().ended();
    }
}
