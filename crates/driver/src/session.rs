//! The session that is driven, as its mailbox sees it: a way to wake it, what it does, and what
//! shows that its model got something.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peerbus_adapter::mailbox::{
    Activity, BoxFuture, Evidence, EvidenceSource, Outcome, Path, PathSpec, Push, Readable,
    SessionSource, Snapshot, WakePath,
};
use peerbus_node::control::Control;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use crate::SERVER;
use crate::client::Client;
use crate::stream;
use crate::turns::Turns;

/// The pause after a push, in milliseconds: what comes meanwhile is one turn.
const GAP_MS: u64 = 2_000;

/// A user's turn in the stream.
pub static STREAM: PathSpec = PathSpec {
    word: "stream",
    rank: 0,
    joins_busy_turn: true,
    ..PathSpec::waking(GAP_MS)
};

/// Why the path cannot be used while there is no client.
const STARTING: &str = "Claude Code is being started";

/// What is known of the session. Clones share it.
#[derive(Clone)]
pub(crate) struct Session(Arc<Shared>);

struct Shared {
    cwd: Option<PathBuf>,
    state: Mutex<State>,
    /// Held while a turn goes to the client.
    sending: tokio::sync::Mutex<()>,
    changed: Notify,
    /// Somebody wants it to end.
    stop: Notify,
}

#[derive(Default)]
pub(crate) struct State {
    /// The client, once it takes turns.
    pub(crate) client: Option<Client>,
    pub(crate) id: Option<String>,
    /// There is a conversation that can be gone on with.
    pub(crate) is_kept: bool,
    pub(crate) turns: Turns,
    /// Requests to use a tool of which somebody may decide.
    pub(crate) waiting: usize,
    /// The user's first turn.
    pub(crate) prompt: Option<Prompt>,
    /// What the client was asked, and who waits for the answer.
    asked: BTreeMap<String, oneshot::Sender<Result<Value, String>>>,
}

/// A turn that the user asked for when the driver was started.
pub(crate) struct Prompt {
    pub(crate) text: String,
    /// The message that it went in.
    pub(crate) uuid: Option<String>,
}

impl Session {
    pub(crate) fn new(id: Option<String>, prompt: Option<String>) -> Self {
        let state = State {
            is_kept: id.is_some(),
            id,
            prompt: prompt.map(|text| Prompt { text, uuid: None }),
            ..State::default()
        };
        Self(Arc::new(Shared {
            cwd: std::env::current_dir().ok(),
            state: Mutex::new(state),
            sending: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            stop: Notify::new(),
        }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is known that was not.
    pub(crate) fn look_again(&self) {
        self.0.changed.notify_one();
    }

    /// There is no client any more. Waits until it is known of each turn whether it left.
    pub(crate) async fn ended(&self) {
        self.state().client = None;
        drop(self.0.sending.lock().await);
        let mut state = self.state();
        state.turns = Turns::default();
        state.asked.clear();
    }

    /// Asks the client for something, by its own words.
    pub(crate) async fn ask(
        &self,
        subtype: &str,
        params: Map<String, Value>,
    ) -> Result<Value, String> {
        let id = Uuid::new_v4().to_string();
        let (answered, answer) = oneshot::channel();
        let client = {
            let mut state = self.state();
            let client = state.client.clone().ok_or(STARTING)?;
            state.asked.insert(id.clone(), answered);
            client
        };
        let _forget = Forget(self, &id);
        let ended = || "Claude Code ended before it answered".to_owned();
        if !client.say(stream::request(&id, subtype, params)).await {
            return Err(ended());
        }
        answer.await.map_err(|_| ended())?
    }

    /// The client answers what it was asked.
    pub(crate) fn answered(&self, id: &str, result: Result<Value, String>) {
        if let Some(waits) = self.state().asked.remove(id) {
            // Who asked may not wait any more.
            let _ = waits.send(result);
        }
    }

    /// The client waits for a verdict, until this is dropped.
    pub(crate) fn waits(&self) -> Waits {
        self.state().waiting += 1;
        self.look_again();
        Waits(self.clone())
    }

    /// Waits until somebody wants it to end.
    pub(crate) async fn stopped(&self) {
        self.0.stop.notified().await;
    }

    /// Gives the model a user's turn. Whether it left, and under which id.
    pub(crate) async fn turn(&self, text: &str) -> Option<String> {
        let _sending = self.0.sending.lock().await;
        let uuid = Uuid::new_v4().to_string();
        let client = {
            let mut state = self.state();
            state.turns.wrote(&uuid);
            state.client.clone()
        };
        let left = match client {
            Some(client) => client.say(stream::user(&uuid, text)).await,
            None => false,
        };
        if !left {
            self.state().turns.failed(&uuid);
        }
        self.look_again();
        left.then_some(uuid)
    }
}

/// See [`Session::waits`].
pub(crate) struct Waits(Session);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
        self.0.look_again();
    }
}

/// A request that nobody waits for once this is dropped.
struct Forget<'a>(&'a Session, &'a str);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.state().asked.remove(self.1);
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

impl Control for Session {
    fn interrupt(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let activity = self.snapshot().activity;
            if !matches!(activity, Some(Activity::Busy | Activity::Waiting)) {
                return Err("no turn is under way".to_owned());
            }
            self.ask("interrupt", Map::new()).await.map(|_| ())
        })
    }

    fn control(
        &self,
        subtype: &str,
        params: Map<String, Value>,
    ) -> BoxFuture<'_, Result<Value, String>> {
        let subtype = subtype.to_owned();
        let params = with_ours(&subtype, params);
        Box::pin(async move { self.ask(&subtype, params?).await })
    }

    fn stop(&self) -> Result<(), String> {
        self.0.stop.notify_one();
        Ok(())
    }
}

impl WakePath for Session {
    fn spec(&self) -> Path {
        &STREAM
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        let ready = self.state().client.is_some();
        Box::pin(async move { ready.then_some(()).ok_or_else(|| STARTING.to_owned()) })
    }

    fn wake<'a>(&'a self, push: &'a Push) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            if self.state().client.is_none() {
                return Outcome::Failed;
            }
            match self.turn(&push.framed()).await {
                Some(_) => Outcome::Written,
                // The client ended: part of the line may have left, and was no line.
                None => Outcome::Failed,
            }
        })
    }
}

impl SessionSource for Session {
    fn snapshot(&self) -> Snapshot {
        let state = self.state();
        let activity = match state.client {
            Some(_) if state.waiting > 0 => Activity::Waiting,
            Some(_) => state.turns.activity(),
            None => Activity::Unknown,
        };
        Snapshot {
            id: state.id.clone(),
            cwd: self.0.cwd.clone(),
            activity: Some(activity),
            transcript: None,
        }
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.changed.notified())
    }
}

impl EvidenceSource for Session {
    fn readable(&self, _: &Snapshot) -> Readable {
        Readable::Now
    }

    fn begin(&mut self, _: &Snapshot) {}

    fn watch(&mut self, _: &Snapshot, marks: &[String], found: &mut dyn FnMut(Evidence)) -> bool {
        let evidence = self.state().turns.take(marks);
        let any = !evidence.is_empty();
        evidence.into_iter().for_each(found);
        any
    }
}
