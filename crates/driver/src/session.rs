//! The session that is driven, as its mailbox sees it: a way to wake it, what it does, and what
//! shows that its model got something.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use peerbus_adapter::mailbox::{
    Activity, BoxFuture, Evidence, EvidenceSource, Outcome, Path, Push, Readable, SessionSource,
    Snapshot, WakePath,
};
use peerbus_adapter::sessions::id_in;
use peerbus_node::control::Control;
use peerbus_os::sync::lock;
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::process::AgentLines;
use crate::protocol::{Given, Protocol};
use crate::turns::Turns;
use crate::{DrivenAgent, Settings};

/// What is known of the session. Clones share it.
#[derive(Clone)]
pub(crate) struct Session(Arc<Shared>);

struct Shared {
    cwd: Option<PathBuf>,
    /// The agent that knows the session by its id, where other agents may have one of the same.
    knows: Option<String>,
    protocol: Arc<dyn Protocol>,
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
    pub(crate) client: Option<AgentLines>,
    pub(crate) id: Option<String>,
    /// It has only just begun.
    pub(crate) is_new: bool,
    /// There is a conversation that can be gone on with.
    pub(crate) is_kept: bool,
    pub(crate) turns: Turns,
    /// Requests to use a tool that wait for a verdict, and whether somebody may decide about them.
    pub(crate) open: BTreeMap<String, (AbortHandle, bool)>,
    /// Turns that failed in a row.
    pub(crate) failures: u32,
    /// The pause after a turn that failed.
    pub(crate) rest: Option<AbortHandle>,
    /// The user's first turn.
    pub(crate) prompt: Option<Prompt>,
}

/// A turn that the user asked for when the driver was started.
pub(crate) struct Prompt {
    pub(crate) text: String,
    /// The message that it went in.
    pub(crate) uuid: Option<String>,
}

impl Session {
    pub(crate) fn new(
        protocol: Arc<dyn Protocol>,
        settings: &Settings,
        cwd: Option<PathBuf>,
    ) -> Self {
        let id = settings.agent.resume();
        let prompt = settings.prompt.clone();
        let state = State {
            is_kept: id.is_some(),
            id,
            prompt: prompt.map(|text| Prompt { text, uuid: None }),
            ..State::default()
        };
        Self(Arc::new(Shared {
            cwd: cwd.map(|cwd| cwd.canonicalize().unwrap_or(cwd)),
            knows: match &settings.agent {
                DrivenAgent::Claude { .. } => None,
                DrivenAgent::Acp(agent) => Some(agent.identity()),
            },
            protocol,
            state: Mutex::new(state),
            sending: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            stop: Notify::new(),
        }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Something is known that was not.
    pub(crate) fn look_again(&self) {
        self.0.changed.notify_one();
    }

    /// There is no client any more. Waits until it is known of each turn whether it left.
    pub(crate) async fn ended(&self) {
        self.state().client = None;
        drop(self.0.sending.lock().await);
        let open = {
            let mut state = self.state();
            state.turns = Turns::default();
            if let Some(rests) = state.rest.take() {
                rests.abort();
            }
            std::mem::take(&mut state.open)
        };
        open.into_values().for_each(|(waits, _)| waits.abort());
        self.0.protocol.ended();
    }

    /// Whether another process can go on with it.
    pub(crate) fn goes_on(&self) -> bool {
        self.0.protocol.goes_on()
    }

    fn client(&self) -> Result<AgentLines, String> {
        self.state()
            .client
            .clone()
            .ok_or_else(|| format!("{} is being started", self.0.protocol.title()))
    }

    /// Waits until somebody wants it to end.
    pub(crate) async fn stopped(&self) {
        self.0.stop.notified().await;
    }

    /// Gives the model a user's turn. Whether it left, and under which id.
    pub(crate) async fn turn(&self, given: Given<'_>) -> Option<String> {
        let _sending = self.0.sending.lock().await;
        let uuid = Uuid::new_v4().to_string();
        let client = {
            let mut state = self.state();
            state.turns.wrote(&uuid, given.mark, given.ids);
            // It would not be shown.
            let is_free = !state.turns.elsewhere;
            state.client.clone().filter(|_| is_free)
        };
        let left = match client {
            Some(client) => self.0.protocol.prompt(&client, &uuid, given).await,
            None => false,
        };
        if !left {
            self.state().turns.failed(&uuid);
        }
        self.look_again();
        left.then_some(uuid)
    }
}

impl Control for Session {
    fn interrupt(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let activity = self.snapshot().activity;
            if !matches!(activity, Some(Activity::Busy | Activity::Waiting)) {
                return Err("no turn is under way".to_owned());
            }
            self.0.protocol.interrupt(&self.client()?).await
        })
    }

    fn control(
        &self,
        subtype: &str,
        params: Map<String, Value>,
    ) -> BoxFuture<'_, Result<Value, String>> {
        let subtype = subtype.to_owned();
        Box::pin(async move {
            let client = self.client()?;
            self.0.protocol.control(&client, &subtype, params).await
        })
    }

    fn stop(&self) -> Result<(), String> {
        self.0.stop.notify_one();
        Ok(())
    }

    fn takes_images(&self) -> Result<(), String> {
        self.0.protocol.takes_images()
    }
}

impl WakePath for Session {
    fn spec(&self) -> Path {
        self.0.protocol.path()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        let busy = self.spec().one_shot && self.state().turns.activity() == Activity::Busy;
        Box::pin(std::future::ready(match busy {
            true => Err("a turn is under way".to_owned()),
            false => self.client().map(drop),
        }))
    }

    fn wake<'a>(&'a self, push: &'a Push) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let (text, images) = (push.framed(), push.images().collect::<Vec<_>>());
            let mails = push.items.iter().filter_map(|item| item.content.mail());
            let ids: Vec<_> = mails.map(|mail| mail.inbound.id.to_string()).collect();
            let given = Given {
                text: &text,
                mark: push.mark.as_deref(),
                ids: &ids,
                images: &images,
            };
            match self.turn(given).await {
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
            Some(_) if state.open.values().any(|(_, waits)| *waits) => Activity::Waiting,
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

    fn binding(&self, looked: &Snapshot) -> Option<(String, bool)> {
        let id = looked.id.clone()?;
        let is_new = self.state().is_new;
        match &self.0.knows {
            Some(agent) => Some((id_in(agent, self.0.cwd.as_deref(), &id), is_new)),
            None => Some((id, false)),
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

    fn watch(&mut self, _: &Snapshot, _: &[String], _: &mut dyn FnMut(Evidence)) -> bool {
        // The mailbox is told as it is found.
        false
    }
}
