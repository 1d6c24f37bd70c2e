//! Agents in whose process, or beside it, a small program of ours runs: `peerbus install` wrote it.
//! It connects to a socket of ours, shows the texts that it is given, and tells which session this
//! is, what it does, and how its conversation goes on. What it says is taken for true: it comes from
//! a process of the agent's own, of the same user.
//!
//! Both ends speak JSON-RPC, of [`VERSION`]. The program asks `session/attach` first, and notifies
//! then of what the session does; `wake` is a request of ours, answered when the text is shown. The
//! texts of a conversation are not told, but which marks of ours stand in them.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peerbus_adapter::hooks::{ATTACH, Connection, HookConnection};
use peerbus_adapter::mailbox::{
    Activity, AgentLink, BoxFuture, Evidence, EvidenceSource, Mailbox, Outcome, Path, PathSpec,
    Push, Readable, SessionSource, Snapshot, WakePath,
};
use peerbus_adapter::transcript::{LineReader, TranscriptLine, TranscriptReader};
use peerbus_agents::{Agent, Part};
use peerbus_os::lines::BoundedLines;
use peerbus_os::sync::lock;
use peerbus_wire::jsonrpc::{RpcError, RpcMessage, WRONG_PARAMS};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use crate::wake::{Context, Surroundings, Waker, node};

/// The pause after a push, in milliseconds: what comes meanwhile is one turn.
const GAP_MS: u64 = 2_000;
/// Of what the two ends say. Programs of version 1 spoke lines of their own, those of 2 know shorter marks.
const VERSION: u64 = 3;
/// The code of an error that says that a text was not shown. After any other nobody knows.
const NOT_SHOWN: i64 = -32_000;
/// How long a program may take to show a text: it may have to begin a conversation.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest line that is read, in bytes.
const LINE_MAX: usize = 65_536;
/// Lines of the conversation that wait to be looked at; the oldest are forgotten.
const LINES_MAX: usize = 4_096;
/// Texts that wait to be written.
const ASKED_MAX: usize = 8;
/// Longest sentence of the program that is passed on, in characters.
const WHY_CHARS: usize = 200;

/// The path by a program of this word.
pub(crate) const fn path(word: &'static str) -> PathSpec {
    PathSpec {
        word,
        joins_busy_turn: true,
        ..PathSpec::waking(GAP_MS)
    }
}

/// Whether the program is in a place from which a session here would load it.
pub(crate) fn is_installed(waker: &Waker, around: &Surroundings) -> bool {
    let files = peerbus_agents::ALL
        .into_iter()
        .filter(|known| known.word == waker.agent)
        .flat_map(|known: &Agent| known.files);
    let mut files = files.filter(|file| matches!(file.part, Part::Whole(_)));
    files.any(|file| {
        let there =
            |dir: &FilePath, names: &[&str]| names.iter().any(|name| dir.join(name).exists());
        let user = around.directory(file.user.variable, file.user.below_home);
        let mut above = around.cwd.iter().flat_map(|cwd| cwd.ancestors());
        user.is_some_and(|dir| there(&dir, file.user_names))
            || above.any(|dir| there(dir, file.project_names))
    })
}

/// Listens for the program, and makes what it serves.
pub(crate) fn start(waker: &'static Waker, context: Context) -> AgentLink {
    let plugin = Plugin(Arc::new(Shared {
        waker,
        cwd: context.around.cwd.clone(),
        state: Mutex::default(),
        changed: Notify::new(),
    }));
    let listening = plugin.clone().listen(context.around, context.mailbox);
    AgentLink {
        paths: vec![Box::new(plugin.clone())],
        session: Some(Arc::new(plugin.clone())),
        evidence: Some(Box::new(Events {
            plugin,
            transcript: TranscriptReader::new(Box::new(Lines)),
        })),
        asleep: String::new(),
        beside: vec![Box::pin(listening)],
    }
}

/// The program at the other end. Clones share it.
#[derive(Clone)]
struct Plugin(Arc<Shared>);

struct Shared {
    waker: &'static Waker,
    cwd: Option<PathBuf>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// To the connection that came last, and its process.
    desk: Option<(mpsc::Sender<Asked>, Option<u32>)>,
    /// Why there can be none, or why it shows nothing now.
    apart: Option<String>,
    session: Option<String>,
    activity: Option<Activity>,
    /// What was told of the conversation and not looked at yet.
    lines: VecDeque<String>,
}

struct Asked {
    text: String,
    outcome: oneshot::Sender<Outcome>,
}

#[derive(Deserialize)]
struct Attach {
    version: u64,
    /// The project that it runs for.
    directory: Option<PathBuf>,
}

/// What it notifies of then.
#[derive(Deserialize)]
#[serde(tag = "method", content = "params")]
enum Notification {
    /// What the session does.
    #[serde(rename = "attached/status")]
    Status {
        session: Option<String>,
        activity: Option<String>,
        /// Why nothing can be shown.
        apart: Option<String>,
    },
    /// A line of the conversation.
    #[serde(rename = "attached/line")]
    Line(Value),
}

impl Plugin {
    /// The way to the program, where it can show something; `Err` says why not.
    fn reachable(&self) -> Result<mpsc::Sender<Asked>, String> {
        let state = lock(&self.0.state);
        match (&state.apart, &state.desk) {
            (Some(why), _) => Err(why.clone()),
            (None, Some((desk, _))) => Ok(desk.clone()),
            (None, None) => Err(self.0.waker.absent.to_owned()),
        }
    }

    async fn listen(self, around: Surroundings, mailbox: Mailbox) {
        let named = self.0.waker.process;
        let named = named.and_then(|name| around.text(name)?.parse().ok());
        let above = || around.ancestors.iter().map(|process| process.id);
        let named = named.filter(|named| above().any(|id| id == *named));
        let session = Arc::new(self.clone());
        let client = named.or_else(|| above().next());
        let bound = node::bind(&around, client, self.0.waker.agent, Some(session), &mailbox);
        match bound {
            Ok((node, socket)) => {
                let serve =
                    move |program: HookConnection| self.clone().serve(program, mailbox.clone());
                node.serve(socket, serve).await;
            }
            Err(why) => {
                lock(&self.0.state).apart = Some(why);
                self.tell(&mailbox);
                std::future::pending().await
            }
        }
    }

    async fn serve(self, mut program: HookConnection, mailbox: Mailbox) {
        let Some(attach) = program.asked::<Attach>(ATTACH) else {
            return;
        };
        if !self.is_ours(&attach) {
            return;
        }
        if attach.version != VERSION {
            let word = self.0.waker.agent;
            let why = format!(
                "peerbus's program in the agent is of another version: run `peerbus install {word}`, \
                 and start the agent anew"
            );
            lock(&self.0.state).apart = Some(why.clone());
            self.tell(&mailbox);
            let refusal = RpcError::new(WRONG_PARAMS, why);
            program.answer::<()>(Err(refusal)).await;
            return;
        }
        let (desk, asked) = mpsc::channel(ASKED_MAX);
        let process = program.connection.caller.pid;
        if !self.takes((desk.clone(), process)) {
            let why =
                "a program in the agent is connected, and only its own process takes its place";
            let refusal = RpcError::new(WRONG_PARAMS, why.to_owned());
            program.answer::<()>(Err(refusal)).await;
            return;
        }
        let greeted = program.answer(Ok(json!({ "version": VERSION }))).await;
        let Connection { lines, write, .. } = program.connection;
        let shown = Mutex::default();
        tokio::select! {
            () = self.hear(lines, &shown, &mailbox), if greeted => {}
            () = ask(write, asked, &shown), if greeted => {}
            else => {}
        }
        let mut state = lock(&self.0.state);
        // Another connection may have taken its place.
        let mut desks = state.desk.iter();
        if desks.any(|(now, _)| now.same_channel(&desk)) {
            *state = State::default();
        }
        drop(state);
        self.tell(&mailbox);
    }

    /// Whether this connection is the one to the program now. A process that the agent runs must not take its place.
    fn takes(&self, new: (mpsc::Sender<Asked>, Option<u32>)) -> bool {
        let mut state = lock(&self.0.state);
        let is_free = state
            .desk
            .as_ref()
            .is_none_or(|(_, process)| *process == new.1);
        if is_free {
            state.desk = Some(new);
        }
        is_free
    }

    /// One process may serve several projects.
    fn is_ours(&self, attach: &Attach) -> bool {
        let real = |path: &PathBuf| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        match (&attach.directory, &self.0.cwd) {
            (Some(theirs), Some(ours)) => real(theirs) == real(ours),
            _ => true,
        }
    }

    async fn hear(&self, mut lines: BoundedLines<OwnedReadHalf>, shown: &Shown, mailbox: &Mailbox) {
        while let Some(line) = lines.whole().await
            && line.len() <= LINE_MAX
            && let Ok(message) = RpcMessage::read(line)
        {
            if let Some(done) = message.done() {
                let waits = message
                    .number()
                    .and_then(|number| lock(shown).remove(&number));
                if let Some(waits) = waits {
                    // Who asked may have given up meanwhile.
                    let _ = waits.send(self.outcome(done.err()));
                }
                continue;
            }
            let told = json!({ "method": message.method, "params": message.params });
            let Ok(told) = serde_json::from_value(told) else {
                return;
            };
            self.told(told, mailbox);
        }
    }

    /// What came of a text that was to be shown.
    fn outcome(&self, error: Option<RpcError>) -> Outcome {
        let Some(RpcError { code, message, .. }) = error else {
            return Outcome::Written;
        };
        let why = short(message);
        tracing::debug!(why, "the agent did not take a message");
        if code != NOT_SHOWN {
            return Outcome::Doubtful;
        }
        // It is tried again when something changes.
        lock(&self.0.state).apart = Some(why);
        Outcome::Failed
    }

    fn told(&self, told: Notification, mailbox: &Mailbox) {
        match told {
            Notification::Line(line) => {
                let mut state = lock(&self.0.state);
                if state.lines.len() == LINES_MAX {
                    state.lines.pop_front();
                }
                state.lines.push_back(format!("{line}\n"));
                drop(state);
                self.0.changed.notify_one();
            }
            Notification::Status {
                session,
                activity: does,
                apart,
            } => {
                let mut state = lock(&self.0.state);
                state.session = session;
                state.activity = does.as_deref().and_then(activity);
                state.apart = apart.map(short);
                drop(state);
                self.tell(mailbox);
            }
        }
    }

    /// Peers are told whether the path can be used, and the mailbox what the session does.
    fn tell(&self, mailbox: &Mailbox) {
        mailbox.report(self);
        mailbox.found(&self.0.waker.path, self.reachable().map(drop));
        self.0.changed.notify_one();
    }
}

/// Who waits to hear what came of which text.
type Shown = Mutex<BTreeMap<u64, oneshot::Sender<Outcome>>>;

/// Hands on what is asked until the connection ends.
async fn ask(mut write: OwnedWriteHalf, mut asked: mpsc::Receiver<Asked>, shown: &Shown) {
    let mut number = 0;
    while let Some(Asked { text, outcome }) = asked.recv().await {
        number += 1;
        // Who has given up needs no answer.
        lock(shown).retain(|_, outcome| !outcome.is_closed());
        lock(shown).insert(number, outcome);
        let wake = RpcMessage::request(number, "wake", &json!({ "text": text })).line();
        let written = timeout(PATIENCE, write.write_all(wake.as_bytes())).await;
        if !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}

fn activity(word: &str) -> Option<Activity> {
    match word {
        "idle" => Some(Activity::Idle),
        "busy" => Some(Activity::Busy),
        "waiting" => Some(Activity::Waiting),
        _ => None,
    }
}

fn short(why: String) -> String {
    why.chars().take(WHY_CHARS).collect()
}

impl WakePath for Plugin {
    fn spec(&self) -> Path {
        &self.0.waker.path
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        let reachable = self.reachable();
        Box::pin(async { reachable.map(drop) })
    }

    fn wake<'a>(&'a self, push: &'a Push) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Ok(desk) = self.reachable() else {
                return Outcome::Failed;
            };
            let (outcome, told) = oneshot::channel();
            let text = push.framed();
            if desk.try_send(Asked { text, outcome }).is_err() {
                return Outcome::Failed;
            }
            // It may have been shown before the connection broke.
            match timeout(PATIENCE, told).await {
                Ok(Ok(outcome)) => outcome,
                _ => Outcome::Doubtful,
            }
        })
    }
}

impl SessionSource for Plugin {
    fn snapshot(&self) -> Snapshot {
        let state = lock(&self.0.state);
        Snapshot {
            id: state.session.clone(),
            cwd: self.0.cwd.clone(),
            activity: Some(state.activity.unwrap_or_default()),
            transcript: None,
        }
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.changed.notified())
    }
}

struct Events {
    plugin: Plugin,
    transcript: TranscriptReader,
}

impl Events {
    fn read(&mut self, marks: &[String], found: &mut dyn FnMut(Evidence)) -> bool {
        let lines = std::mem::take(&mut lock(&self.plugin.0.state).lines);
        for line in &lines {
            let shows = self.transcript.feed(line.as_bytes(), marks);
            shows.into_iter().for_each(&mut *found);
        }
        !lines.is_empty()
    }
}

impl EvidenceSource for Events {
    fn readable(&self, _: &Snapshot) -> Readable {
        match lock(&self.plugin.0.state).desk {
            Some(_) => Readable::Now,
            None => Readable::Expected,
        }
    }

    fn begin(&mut self, _: &Snapshot) {
        self.read(&[], &mut |_| {});
    }

    fn watch(&mut self, _: &Snapshot, marks: &[String], found: &mut dyn FnMut(Evidence)) -> bool {
        self.read(marks, found)
    }
}

/// Reads what is told of a line.
struct Lines;

#[derive(Deserialize)]
struct Told {
    id: String,
    #[serde(default)]
    parent: Option<String>,
    role: String,
}

impl LineReader for Lines {
    fn read(&mut self, line: &str) -> Option<TranscriptLine> {
        let told: Told = serde_json::from_str(line).ok()?;
        let answers = told.role == "assistant";
        Some(TranscriptLine {
            request: answers.then(|| told.id.clone()),
            id: told.id,
            parent: told.parent,
            prompts: false,
            presents: !answers,
            answers,
            stopped: false,
        })
    }
}
