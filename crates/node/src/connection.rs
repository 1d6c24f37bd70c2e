//! One program that is connected to a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use peerbus_adapter::hooks::{Connection, Peer, RPC_MAX};
use peerbus_adapter::mailbox::{Activity, InjectError, Injection, SOURCE_CHARS};
use peerbus_adapter::{AuditAction, AuditRecord, rfc3339, wall_ms};
use peerbus_os::lines::NextLine;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::broadcast;
use tokio::time::timeout;

use crate::approvals::{By, Choice, Wish};
use crate::ask::{resolved, verdict_record};
use crate::control::{self, Control};
use crate::gates::{self, Gate};
use crate::prompt::Prompt;
use crate::protocol::{self, Call, EventKind, InjectMode, NodeError, NodeRequest};
use crate::{Shared, named};

/// How long one that is turned away may take to hear of it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What somebody subscribed to, and the last event that it has.
struct Subscription {
    kinds: Vec<EventKind>,
    seq: u64,
    pieces: Option<broadcast::Receiver<Arc<str>>>,
}

pub(crate) async fn talk(shared: Arc<Shared>, connection: Connection) {
    let Connection {
        first,
        mut lines,
        mut write,
        caller,
    } = connection;
    let place = shared.clients.try_acquire();
    let is_peoples = || {
        let pid = caller.pid;
        pid.is_some_and(|pid| !shared.is_an_agents(pid))
    };
    let place = place.or_else(|full| match is_peoples() {
        true => shared.peoples.try_acquire(),
        false => Err(full),
    });
    let Ok(_place) = place else {
        let error =
            NodeError::unable("as many programs as may be are connected to this session already");
        let line = protocol::answer(RawValue::NULL.to_owned(), Err(error));
        let _ = timeout(PATIENCE, write.write_all(line.as_bytes())).await;
        return;
    };
    let mut talk = Talk {
        shared: Arc::clone(&shared),
        caller,
        write,
        subscribed: None,
        whole: true,
    };
    let mut first = Some(first);
    loop {
        let next = async {
            match first.take() {
                Some(first) => first,
                None => lines.next().await,
            }
        };
        let said = tokio::select! {
            biased;
            next = next => talk.hear(next, lines.line()).await,
            events = talk.events() => Some(events),
        };
        let Some(said) = said else {
            // The other end closed it, or is closed for what it said.
            talk.subscribed = None;
            return;
        };
        if !talk.write(&said).await {
            return;
        }
    }
}

struct Talk {
    shared: Arc<Shared>,
    caller: Peer,
    write: OwnedWriteHalf,
    subscribed: Option<(Subscription, Watching)>,
    /// The last line that was begun is written.
    whole: bool,
}

impl Talk {
    /// What to say to a line. `None`: it is not heard any more.
    async fn hear(&mut self, next: NextLine, line: &[u8]) -> Option<String> {
        match next {
            NextLine::Line => {}
            NextLine::TooLong => {
                noted(&format!("a line of more than {RPC_MAX} bytes"));
                return None;
            }
            NextLine::End => return None,
        }
        let line = line.trim_ascii();
        if line.is_empty() {
            return Some(String::new());
        }
        let id = self.shared.session().id;
        let NodeRequest { id, call } = match protocol::read(line, Some(&id)) {
            Ok(Some(request)) => request,
            Ok(None) => return Some(String::new()),
            Err(error) => {
                noted("a line that is no JSON");
                let answer = protocol::answer(RawValue::NULL.to_owned(), Err(error));
                self.write(&answer).await;
                return None;
            }
        };
        let done = match call {
            Ok(call) => self.call(call).await,
            Err(error) => Err(error),
        };
        Some(id.map(|id| protocol::answer(id, done)).unwrap_or_default())
    }

    async fn events(&mut self) -> String {
        match &mut self.subscribed {
            Some((wanted, _)) => tokio::select! {
                // They come before the message that has them.
                biased;
                piece = next_piece(&mut wanted.pieces) => piece,
                lines = self.shared.next(&mut wanted.seq, &wanted.kinds) => lines,
            },
            None => std::future::pending().await,
        }
    }

    /// Whether that could be written.
    async fn write(&mut self, lines: &str) -> bool {
        self.whole = false;
        self.whole = self.write.write_all(lines.as_bytes()).await.is_ok();
        self.whole
    }

    async fn call(&mut self, call: Call) -> Result<Value, NodeError> {
        let shared = Arc::clone(&self.shared);
        Ok(match call {
            Call::Initialize { revision } => {
                let gates = shared.gates();
                let interrupt = gates.interrupt && shared.control.is_some();
                protocol::initialized(revision.as_deref(), gates.inject, interrupt, gates.approve)
            }
            Call::Ping {} => json!({}),
            Call::Status {} => shared.told(),
            Call::Subscribe { events, since } => self.subscribe(events.as_deref(), since)?,
            Call::Inject {
                prompt,
                source,
                mode,
            } => {
                let interrupts = mode == Some(InjectMode::Interrupt);
                let done = self.inject(&source, prompt, interrupts).await;
                self.written(AuditAction::Inject, "done", &source, done)?
            }
            Call::Interrupt { source } => {
                let done = self.interrupt(false).await;
                self.written(AuditAction::Interrupt, "done", &source, done)?;
                json!({ "accepted": true })
            }
            Call::Control {
                subtype,
                params,
                source,
            } => {
                let done = self.control(&subtype, params).await;
                let response = self.written(AuditAction::Control, &subtype, &source, done)?;
                json!({ "subtype": subtype, "response": response })
            }
            Call::Hook {
                request_id,
                response,
                source,
            } => {
                let may = self.answers_hooks();
                let done = may.and_then(|()| shared.answer_hook(&request_id, response));
                self.written(AuditAction::Control, "hook", &source, done)?;
                json!({ "accepted": true })
            }
            Call::Stop { source } => {
                self.written(AuditAction::Control, "stop", &source, self.stop())?;
                json!({ "accepted": true })
            }
            Call::Held {} => {
                self.is_no_agent("look at mail that waits for its user")?;
                shared.held()
            }
            Call::Release(choice) => self.decide_held(&choice, true)?,
            Call::Refuse(choice) => self.decide_held(&choice, false)?,
            Call::Approve(wish) => self.approve(wish)?,
        })
    }

    fn subscribe(
        &mut self,
        events: Option<&[EventKind]>,
        since: Option<u64>,
    ) -> Result<Value, NodeError> {
        let shared = &self.shared;
        let chosen = |kind: &EventKind| match events {
            Some(events) => events.contains(kind),
            None => kind.is_for_all(),
        };
        let kinds: Vec<_> = EventKind::ALL.into_iter().filter(chosen).collect();
        let answers = kinds.contains(&EventKind::HookCallback);
        if answers {
            self.answers_hooks()?;
        }
        // What was written before anybody asked for it is not news.
        shared.look();
        let last = shared.state().log.last();
        if let Some(since) = since.filter(|since| *since > last) {
            return Err(NodeError::params(format!(
                "`since` is {since}, and the last event here is {last}: this node began anew"
            )));
        }
        let seq = since.unwrap_or(last);
        let answer = json!({ "events": kinds, "seq": seq });
        let watching = Watching::begin(shared, answers);
        let pieces = kinds.contains(&EventKind::Partial);
        let pieces = pieces.then(|| shared.pieces.subscribe());
        self.subscribed = Some((Subscription { kinds, seq, pieces }, watching));
        Ok(answer)
    }

    fn approve(&self, mut wish: Wish) -> Result<Value, NodeError> {
        let shared = &self.shared;
        let id = wish.id.clone();
        let source = wish.source.unwrap_or_default();
        let source: String = source.chars().take(SOURCE_CHARS).collect();
        wish.source = Some(source.clone());
        control::changes(&wish)?;
        let what = "answer what a session asks its user";
        let gate = match wish.changes() {
            true => gates::CONTROL,
            false => gates::APPROVE,
        };
        let may = gates::may(&shared.gates, gates::APPROVE).and_then(|()| self.may(gate, what));
        let decided = may.and_then(|()| Ok(shared.decide(wish, By::Node)?));
        self.audited(AuditRecord {
            source,
            ..verdict_record(&id, &By::Node, decided.as_ref().ok())
        });
        let verdict = decided?;
        let Peer { uid, pid } = self.caller;
        tracing::info!(id, uid, pid, decision = ?verdict.decision, "a request was answered");
        Ok(resolved(&id, &verdict))
    }

    fn decide_held(&self, choice: &Choice, show: bool) -> Result<Value, NodeError> {
        self.is_no_agent("decide about mail that waits for its user")?;
        let decided = self.shared.decide_held(choice, show)?;
        let id = &choice.id;
        let Peer { uid, pid } = self.caller;
        tracing::info!(id, uid, pid, show, "mail that waited was decided about");
        Ok(decided)
    }

    async fn inject(
        &self,
        source: &str,
        prompt: Prompt,
        interrupts: bool,
    ) -> Result<Value, NodeError> {
        let shared = &*self.shared;
        gates::may(&shared.gates, gates::INJECT)?;
        let refused = |error| match error {
            InjectError::Text(why) => NodeError::params(why),
            InjectError::Full(why) => NodeError::unable(why),
        };
        if prompt.has_images() {
            let control = shared.control.as_deref();
            let takes = control.map_or(Err(control::NO_IMAGES.into()), Control::takes_images);
            takes.map_err(NodeError::unable)?;
            // No header proves that the model's service takes the rest, and each turn shows it anew.
            self.is_no_agent("put images into a session")?;
        }
        let text = prompt.text.clone();
        let images = prompt.images().map_err(NodeError::params)?;
        let draft = Injection::new(source, &text, images).map_err(refused)?;
        if interrupts {
            let done = self.interrupt(true).await;
            self.written(AuditAction::Interrupt, "done", source, done)?;
        }
        let id = shared.mailbox.inject(draft).map_err(refused)?;
        Ok(json!({
            "accepted": true,
            "queued_at": rfc3339(wall_ms()),
            "id": id,
            "as": shared.shown_as,
        }))
    }

    /// `for_text`: one for which it makes room; it does not mind that there is nothing to interrupt.
    async fn interrupt(&self, for_text: bool) -> Result<(), NodeError> {
        // Who opens a gate should not find a wall behind it.
        let control = self.controlled("interrupted")?;
        self.may(gates::INTERRUPT, "interrupt a session")?;
        if for_text && self.shared.state().session.activity == Some(Activity::Idle) {
            return Ok(());
        }
        control::within(control.interrupt()).await
    }

    async fn control(&self, subtype: &str, params: Map<String, Value>) -> Result<Value, NodeError> {
        let control = self.controlled("controlled")?;
        self.may(gates::CONTROL, "change how a session works")?;
        control::allowed(subtype, &params)?;
        control::within(control.control(subtype, params)).await
    }

    fn stop(&self) -> Result<(), NodeError> {
        self.is_no_agent("end a session")?;
        self.controlled("ended")?.stop().map_err(NodeError::unable)
    }

    /// What is not for agents and needs this gate.
    fn may(&self, gate: Gate, what: &str) -> Result<(), NodeError> {
        gates::may(&self.shared.gates, gate)?;
        self.is_no_agent(what)
    }

    /// An answer to a hook allows a tool, or changes what it gets: it needs what a verdict needs that does.
    fn answers_hooks(&self) -> Result<(), NodeError> {
        gates::may(&self.shared.gates, gates::APPROVE)?;
        self.may(gates::CONTROL, "answer hooks of a session")
    }

    fn controlled(&self, how: &str) -> Result<&dyn Control, NodeError> {
        let shared = &self.shared;
        shared.control.as_deref().ok_or_else(|| {
            NodeError::unable(format!(
                "this session cannot be {how} from outside: its client ({}) offers no way to do it",
                shared.client
            ))
        })
    }

    /// Says what was done to the session, or was tried, here and to the broker.
    fn written<T>(
        &self,
        action: AuditAction,
        done: &str,
        source: &str,
        became: Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        let outcome = match &became {
            Ok(_) => done,
            Err(error) if error.is_refusal() => "refused",
            Err(_) => "failed",
        };
        let Peer { uid, pid } = self.caller;
        let what = action.word();
        tracing::info!(
            what,
            outcome,
            uid,
            pid,
            ?source,
            "a program asked for something"
        );
        self.audited(AuditRecord {
            source: source.to_owned(),
            ..AuditRecord::new(action, outcome)
        });
        became
    }

    /// Has the broker write down what this program did or tried to do.
    fn audited(&self, record: AuditRecord) {
        self.shared.mailbox.bus().audit(AuditRecord {
            uid: Some(self.caller.uid),
            pid: self.caller.pid,
            ..record
        });
    }

    /// Some things are for people and their programs, not for agents and theirs.
    fn is_no_agent(&self, what: &str) -> Result<(), NodeError> {
        let pid = self.caller.pid;
        if pid.is_some_and(|pid| self.shared.is_an_agents(pid)) {
            return Err(NodeError::refused(format!(
                "an agent, or what it runs, may not {what}"
            )));
        }
        Ok(())
    }
}

/// The line of the next piece of what is said; never, for who wants none.
async fn next_piece(pieces: &mut Option<broadcast::Receiver<Arc<str>>>) -> String {
    while let Some(wanted) = pieces {
        match wanted.recv().await {
            Ok(line) => return line.to_string(),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => break,
        }
    }
    std::future::pending().await
}

/// Says once that somebody does not keep to the lines.
fn noted(what: &str) {
    static NOTED: AtomicBool = AtomicBool::new(false);
    if !NOTED.swap(true, Ordering::Relaxed) {
        tracing::warn!("a connection to this session's socket was closed: {what}");
    }
}

impl Drop for Talk {
    /// A subscriber hears of the session's end, if it is not behind.
    fn drop(&mut self) {
        if self.subscribed.is_some() && self.whole {
            let session = self.shared.session();
            let ended = json!({ "status": "ended" });
            let mut ended = named("status", &session.id, &rfc3339(wall_ms()), ended);
            ended["seq"] = (self.shared.state().log.last() + 1).into();
            let _ = self.write.try_write(protocol::event(&ended).as_bytes());
        }
    }
}

/// Somebody watches, and answers hooks or does not, until this is dropped.
struct Watching(Arc<Shared>, bool);

impl Watching {
    fn begin(shared: &Arc<Shared>, answers: bool) -> Self {
        shared.watched.send_modify(|count| *count += 1);
        if answers {
            shared.state().hooks.came();
        }
        Self(Arc::clone(shared), answers)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watched.send_modify(|count| *count -= 1);
        if self.1 {
            self.0.state().hooks.left();
        }
    }
}
