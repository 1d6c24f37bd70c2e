//! Which thread this is, and what it does: as the app-server says.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::Notes;
use peerbus_adapter::mailbox::{Activity, BoxFuture, Mailbox, SessionSource, Snapshot};
use peerbus_agents::is_id;
use peerbus_os::sync::lock;
use peerbus_wire::jsonrpc::RpcMessage;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::WAKER;
use super::rpc::{Gone, Rpc};
use crate::wake::Surroundings;

/// The member of a tool call's notes with the thread's id.
const THREAD: &str = "threadId";
/// Pauses before the server is asked again, first and at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A thread was made at most so long before its tool servers were started.
const STARTS_WITHIN: Duration = Duration::from_secs(3);
/// Threads that are looked at to find ours.
const THREADS_MAX: usize = 32;

/// The session that this adapter belongs to. Clones share what is known.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) around: Arc<Surroundings>,
    notes: watch::Receiver<Notes>,
    started: SystemTime,
    known: Arc<Mutex<Known>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Known {
    /// From a tool call; else the one that was made when we were started, or resumed.
    thread: Option<String>,
    rollout: Option<PathBuf>,
    activity: Option<Activity>,
    /// Why the server cannot be asked; `None`: it can.
    apart: Option<String>,
}

impl Session {
    pub(super) fn new(around: &Surroundings, notes: watch::Receiver<Notes>) -> Self {
        let known = Known {
            apart: Some("the app-server was not asked yet".to_owned()),
            ..Known::default()
        };
        Self {
            around: Arc::new(around.clone()),
            notes,
            started: SystemTime::now(),
            known: Arc::new(Mutex::new(known)),
            changed: Arc::default(),
        }
    }

    /// The thread, where it can be given something; `Err` says why not.
    pub(super) fn reachable(&self) -> Result<String, String> {
        let known = lock(&self.known);
        if let Some(why) = &known.apart {
            return Err(why.clone());
        }
        known.thread.clone().ok_or_else(|| {
            "Codex has not said which thread this is: it does with the first call of a bus tool"
                .to_owned()
        })
    }

    /// The server refused a turn: it is not tried again before it says something of the thread.
    pub(super) fn refused(&self, why: &str) {
        lock(&self.known).apart = Some(format!("the app-server: {why}"));
    }

    /// Keeps what is known up to date, and tells whether the path can be used, for ever.
    pub(super) async fn watch(self, mailbox: Mailbox) {
        let mut pause = PAUSE;
        loop {
            let why = match Rpc::open(&self.around).await {
                Ok(server) => {
                    pause = PAUSE;
                    self.follow(server, &mailbox).await;
                    "the app-server hung up".to_owned()
                }
                Err(why) => why,
            };
            lock(&self.known).activity = None;
            self.reached(&mailbox, Some(why));
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Follows what the server says, until the connection ends.
    async fn follow(&self, mut server: Rpc, mailbox: &Mailbox) {
        let mut notes = self.notes.clone();
        let settled = Instant::now() + STARTS_WITHIN;
        loop {
            let settles = !self.is_settled();
            let Ok(apart) = self.learn(&mut server).await else {
                return;
            };
            self.reached(mailbox, apart);
            let told = loop {
                tokio::select! {
                    changed = notes.changed() => break changed.is_ok(),
                    () = sleep_until(settled), if settles => break true,
                    said = server.hear() => match said {
                        None => return,
                        Some(said) if self.concerns(&said) => break true,
                        Some(_) => {}
                    },
                }
            };
            if !told {
                // The client is gone, and we with it.
                return std::future::pending().await;
            }
        }
    }

    /// Peers are told whether the path can be used, and the mailbox what the session does.
    fn reached(&self, mailbox: &Mailbox, apart: Option<String>) {
        lock(&self.known).apart = apart;
        mailbox.report(self);
        mailbox.found(&WAKER.path, self.reachable().map(drop));
        self.changed.notify_one();
    }

    /// Whether something is new of our thread, or of any as long as ours is not known.
    fn concerns(&self, said: &RpcMessage) -> bool {
        let method = said.method.as_deref().unwrap_or_default();
        let thread = lock(&self.known).thread.clone();
        match thread {
            Some(thread) => {
                let params = said.params.as_ref();
                let about = params.and_then(|text| serde_json::from_str::<Value>(text.get()).ok());
                method.starts_with("thread/") && about.is_some_and(|it| it["threadId"] == *thread)
            }
            None => method == "thread/started" || method == "thread/status/changed",
        }
    }

    /// Asks which thread this is and what it does. Gives why the server has nothing to do with it,
    /// if it has not.
    async fn learn(&self, server: &mut Rpc) -> Result<Option<String>, Gone> {
        let told = self.notes.borrow().get(THREAD).cloned();
        let told = told.filter(|id| is_id(id));
        let thread = match told.or_else(|| lock(&self.known).thread.clone()) {
            Some(thread) => Some(thread),
            None => self.guess(server).await?,
        };
        let Some(thread) = thread else {
            return Ok(None);
        };
        let read = server.ask("thread/read", json!({ "threadId": thread }));
        let (about, apart) = match read.await? {
            Ok(mut result) => (result["thread"].take(), None),
            Err(why) => (Value::Null, Some(format!("the app-server: {why}"))),
        };
        let mut known = lock(&self.known);
        known.activity = activity(&about["status"]);
        let rollout = about["path"].as_str().map(PathBuf::from);
        known.rollout = rollout.filter(|path| path.is_absolute());
        known.thread = Some(thread);
        Ok(apart)
    }

    /// The one thread in our directory that was made when we were started. Where there is none,
    /// because it was resumed, the only one there is: ours is loaded by then. Of several none is
    /// taken.
    async fn guess(&self, server: &mut Rpc) -> Result<Option<String>, Gone> {
        let settled = self.is_settled();
        let loaded = server.ask("thread/loaded/list", json!({})).await?;
        let loaded = loaded.unwrap_or_default();
        let loaded = loaded["data"].as_array().map(Vec::as_slice);
        let ids = loaded
            .unwrap_or_default()
            .iter()
            .filter_map(Value::as_str)
            .filter(|id| is_id(id));
        let (timely, others): (Vec<_>, Vec<_>) = ids.partition(|id| self.is_timely(id));
        let found = self.candidates(server, &timely).await?;
        if !found.is_empty() || !settled || others.len() > THREADS_MAX {
            return Ok(only(found));
        }
        self.candidates(server, &others).await.map(only)
    }

    /// Those of some threads that may be ours.
    async fn candidates(&self, server: &mut Rpc, ids: &[&str]) -> Result<Vec<String>, Gone> {
        let mut found = Vec::new();
        let cwd = self.around.cwd.as_deref();
        let may_be = |thread: &Value| {
            thread["ephemeral"] != true
                && thread["parentThreadId"].is_null()
                && cwd.is_some_and(|cwd| thread["cwd"].as_str().map(Path::new) == Some(cwd))
        };
        for id in ids.iter().take(THREADS_MAX) {
            let read = server.ask("thread/read", json!({ "threadId": id })).await?;
            if read.is_ok_and(|result| may_be(&result["thread"])) {
                found.push((*id).to_owned());
            }
        }
        Ok(found)
    }

    /// Whether we run long enough for our thread to be loaded.
    fn is_settled(&self) -> bool {
        let runs = self.started.elapsed();
        runs.is_ok_and(|runs| runs >= STARTS_WITHIN)
    }

    /// Whether a thread was made when we were started: its id is a UUID of version 7, which begins
    /// with its time in milliseconds.
    fn is_timely(&self, id: &str) -> bool {
        let digits: String = id.chars().filter(|c| *c != '-').take(12).collect();
        let Ok(made_ms) = u64::from_str_radix(&digits, 16) else {
            return false;
        };
        let made = SystemTime::UNIX_EPOCH + Duration::from_millis(made_ms);
        let earlier = self.started.duration_since(made);
        earlier.is_ok_and(|earlier| earlier < STARTS_WITHIN)
    }
}

impl SessionSource for Session {
    fn snapshot(&self) -> Snapshot {
        let known = lock(&self.known);
        Snapshot {
            id: known.thread.clone(),
            cwd: self.around.cwd.clone(),
            activity: Some(known.activity.unwrap_or_default()),
            transcript: known.rollout.clone(),
        }
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.changed.notified())
    }
}

/// What a thread does. One that failed waits for the next prompt.
fn activity(status: &Value) -> Option<Activity> {
    match status["type"].as_str()? {
        "idle" | "systemError" => Some(Activity::Idle),
        "active" => {
            let flags = status["activeFlags"].as_array();
            let waits = |flag: &Value| flag.as_str().is_some_and(|f| f.starts_with("waitingOn"));
            match flags.is_some_and(|flags| flags.iter().any(waits)) {
                true => Some(Activity::Waiting),
                false => Some(Activity::Busy),
            }
        }
        _ => None,
    }
}

fn only(mut found: Vec<String>) -> Option<String> {
    found.pop().filter(|_| found.is_empty())
}
