//! One program that is connected to a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use peerbus_adapter::hooks::{Connection, Peer, RPC_MAX, is_of_an_agent};
use peerbus_adapter::mailbox::{InjectError, SOURCE_CHARS};
use peerbus_adapter::{AuditAction, AuditRecord, rfc3339, wall_ms};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::approvals::By;
use crate::ask::{resolved, verdict_record};
use crate::gates::{self, Gate};
use crate::protocol::{self, Call, Error, Kinds, Request};
use crate::{Shared, named};

/// Answers that wait to be written. Who does not read them is not heard further.
const ANSWERS_MAX: usize = 8;
/// How long one that is turned away may take to hear of it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What somebody subscribed to, and the last event that it has.
#[derive(Debug, Clone, Copy)]
struct Subscription {
    kinds: Kinds,
    seq: u64,
}

/// Serves one to its end.
pub(crate) async fn talk(shared: Arc<Shared>, connection: Connection) {
    let Connection {
        first,
        read,
        mut write,
        caller,
    } = connection;
    let Ok(_permit) = shared.clients.try_acquire() else {
        let error = Error::unable("16 programs are connected to this session already");
        let line = error.line(&Value::Null);
        let _ = timeout(PATIENCE, write.write_all(line.as_bytes())).await;
        return;
    };
    let (answers, answered) = mpsc::channel(ANSWERS_MAX);
    let (subscribe, subscription) = watch::channel(None);
    let ear = Ear {
        shared: Arc::clone(&shared),
        caller,
        answers,
        subscribe,
    };
    let mouth = Mouth {
        shared: Arc::clone(&shared),
        write,
        subscribed: false,
        whole: true,
    };
    let hearing = async {
        ear.hear(first, read).await;
        // What is answered already is still written.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = mouth.speak(answered, subscription) => {}
        () = hearing => {}
    }
}

/// What it says.
struct Ear {
    shared: Arc<Shared>,
    caller: Peer,
    answers: mpsc::Sender<String>,
    subscribe: watch::Sender<Option<Subscription>>,
}

impl Ear {
    async fn hear(self, first: Vec<u8>, mut read: BufReader<OwnedReadHalf>) {
        let mut line = first;
        loop {
            if line.is_empty() {
                return;
            }
            if line.len() > RPC_MAX {
                return noted("a line of more than 1 MiB");
            }
            if !line.trim_ascii().is_empty() && !self.line(&line).await {
                return;
            }
            line.clear();
            let mut bounded = (&mut read).take(RPC_MAX as u64 + 1);
            if bounded.read_until(b'\n', &mut line).await.is_err() {
                return;
            }
        }
    }

    /// Whether to hear on.
    async fn line(&self, line: &[u8]) -> bool {
        let id = self.shared.session().id;
        let Request { id, call } = match protocol::read(line, Some(&id)) {
            Ok(Some(request)) => request,
            Ok(None) => return true,
            Err(error) => {
                noted("a line that is no JSON");
                // It is gone either way.
                let _ = self.answers.send(error.line(&Value::Null)).await;
                return false;
            }
        };
        let mut begins = None;
        let answer = match call.and_then(|call| self.call(call, &mut begins)) {
            Ok(result) => id.map(|id| protocol::answer(&id, &result)),
            Err(error) => id.map(|id| error.line(&id)),
        };
        if let Some(answer) = answer
            && self.answers.send(answer).await.is_err()
        {
            return false;
        }
        if begins.is_some() {
            self.subscribe.send_replace(begins);
        }
        true
    }

    fn call(&self, call: Call, begins: &mut Option<Subscription>) -> Result<Value, Error> {
        let shared = &self.shared;
        let gates = &shared.about.gates;
        Ok(match call {
            Call::Initialize(revision) => {
                let gates = shared.gates();
                protocol::initialized(&revision, gates.inject, gates.approve)
            }
            Call::Ping => json!({}),
            Call::Status => shared.told(),
            Call::Subscribe { kinds, since } => {
                // What was written before anybody asked for it is not news.
                shared.look();
                let last = shared.last();
                if let Some(since) = since.filter(|since| *since > last) {
                    return Err(Error::params(format!(
                        "`since` is {since}, and the last event here is {last}: this node began \
                         anew"
                    )));
                }
                let seq = since.unwrap_or(last);
                *begins = Some(Subscription { kinds, seq });
                json!({ "events": kinds.words(), "seq": seq })
            }
            Call::Inject { prompt, source } => {
                let source: String = source.chars().take(SOURCE_CHARS).collect();
                let record = |outcome| AuditRecord {
                    source: source.clone(),
                    ..AuditRecord::new(AuditAction::Inject, outcome)
                };
                gates::may(gates, Gate::Inject).inspect_err(|_| self.audited(record("refused")))?;
                let put = shared.mailbox.inject(&source, &prompt);
                let id = put.map_err(|error| match error {
                    InjectError::Text(why) => Error::params(why),
                    InjectError::Full(why) => Error::unable(why),
                })?;
                self.audited(record("done"));
                let Peer { uid, pid } = self.caller;
                tracing::info!(id, uid, pid, ?source, "a text was put into the session");
                json!({
                    "accepted": true,
                    "queued_at": rfc3339(wall_ms()),
                    "id": id,
                    "as": shared.about.shown_as,
                })
            }
            Call::Approve(wish) => {
                let id = wish.id.clone();
                let may = gates::may(gates, Gate::Approve)
                    .and_then(|()| self.is_no_agent("answer what a session asks its user"));
                let decided = may.and_then(|()| Ok(shared.decide(wish, By::Node)?));
                self.audited(verdict_record(&id, &By::Node, decided.as_ref().ok()));
                let verdict = decided?;
                let Peer { uid, pid } = self.caller;
                tracing::info!(id, uid, pid, decision = ?verdict.decision, "a request was answered");
                Value::Object(resolved(&id, &verdict))
            }
        })
    }

    /// Has the broker write down what this program did or tried to do.
    fn audited(&self, record: AuditRecord) {
        self.shared.mailbox.audited(AuditRecord {
            uid: Some(self.caller.uid),
            pid: self.caller.pid,
            ..record
        });
    }

    /// Some things are for people and their programs, not for agents and theirs.
    fn is_no_agent(&self, what: &str) -> Result<(), Error> {
        let dirs = &self.shared.about.dirs;
        let pid = self.caller.pid;
        if pid.is_some_and(|pid| is_of_an_agent(dirs, pid)) {
            return Err(Error::refused(format!(
                "an agent, or what it runs, may not {what}"
            )));
        }
        Ok(())
    }
}

/// Says once that somebody does not keep to the lines.
fn noted(what: &str) {
    static NOTED: AtomicBool = AtomicBool::new(false);
    if !NOTED.swap(true, Ordering::Relaxed) {
        tracing::warn!("a connection to this session's socket was closed: {what}");
    }
}

/// What it is told.
struct Mouth {
    shared: Arc<Shared>,
    write: OwnedWriteHalf,
    subscribed: bool,
    /// The last line that was begun is written.
    whole: bool,
}

impl Mouth {
    async fn speak(
        mut self,
        mut answers: mpsc::Receiver<String>,
        mut subscription: watch::Receiver<Option<Subscription>>,
    ) {
        let shared = Arc::clone(&self.shared);
        let mut current: Option<Subscription> = None;
        let mut watching = None;
        loop {
            let line = tokio::select! {
                biased;
                answer = answers.recv() => match answer {
                    Some(answer) => answer,
                    None => {
                        // The other end closed it, or was closed for what it said.
                        self.subscribed = false;
                        return;
                    }
                },
                Ok(()) = subscription.changed() => {
                    current = *subscription.borrow_and_update();
                    watching.get_or_insert_with(|| Watching::begin(&shared));
                    self.subscribed = true;
                    continue;
                }
                event = next(&shared, current.as_mut()) => protocol::event(&event),
            };
            self.whole = false;
            if self.write.write_all(line.as_bytes()).await.is_err() {
                return;
            }
            self.whole = true;
        }
    }
}

async fn next(shared: &Shared, subscription: Option<&mut Subscription>) -> Value {
    match subscription {
        Some(subscription) => shared.next(&mut subscription.seq, subscription.kinds).await,
        None => std::future::pending().await,
    }
}

impl Drop for Mouth {
    /// A subscriber hears of the session's end, if it is not behind.
    fn drop(&mut self) {
        if self.subscribed && self.whole {
            let session = self.shared.session();
            let members = Map::from_iter([("status".to_owned(), "ended".into())]);
            let mut ended = named("status", &session.id, &rfc3339(wall_ms()), members);
            ended["seq"] = (self.shared.last() + 1).into();
            let _ = self.write.try_write(protocol::event(&ended).as_bytes());
        }
    }
}

/// Somebody watches, until this is dropped.
struct Watching(Arc<Shared>);

impl Watching {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.watched.send_modify(|count| *count += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watched.send_modify(|count| *count -= 1);
    }
}
