//! The node of one session: a local socket at which programs of the same user watch the session and
//! put texts into it. `docs/NODE_PROTOCOL.md` has the protocol, `docs/SESSIONS.md` what users are
//! told.
//!
//! What decides is without I/O: [`protocol`] reads and writes lines, [`log`] keeps what happened.
//! Nobody is waited for: a subscriber reads the log at its own pace, and what it is too slow for is
//! gone, which it is told.

pub mod approvals;
mod ask;
pub mod claude_code;
mod client;
mod connection;
pub mod control;
mod feed;
pub mod gates;
mod held;
mod hooks;
pub mod index;
mod log;
mod now;
pub mod prompt;
mod protocol;
pub mod which;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use peerbus_adapter::hooks::{
    HookConnection, SessionSocket, directories, is_an_agents, is_of_session,
};
use peerbus_adapter::mailbox::{Activity, Mailbox, Observer, SessionSource, Snapshot, Staged};
use peerbus_adapter::paths::Paths;
use peerbus_adapter::project;
use peerbus_adapter::{Inbound, LinkState, rfc3339, wall_ms};
use peerbus_core::events::Next;
use peerbus_os::sync::lock;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore, broadcast, watch};

use approvals::{Approvals, By, Decision};
pub use ask::Pending;
pub use client::{NodeClient, NodeRefusal, each};
pub use control::Control;
use feed::Feed;
pub use feed::{FeedEvent, Transcript};
use hooks::Hooks;
use index::LiveSession;
use log::{SessionLog, Text};
pub use now::{Denial, SHOWS_HELD, SessionNow, TELLS_WITHIN, decided};
pub use protocol::EventKind;

/// Between two looks at the transcript while somebody watches.
const LOOK: Duration = Duration::from_millis(100);
/// The pause after the list of sessions could not be written.
const PAUSE: Duration = Duration::from_secs(1);
/// So many bytes of events, and one more, are written to a subscriber at once.
const LINES_BYTES: usize = 16_384;
/// So many pieces of what is said wait for who reads slowly; the message has them all.
const PIECES: usize = 256;
const CLIENTS_MAX: usize = 16;
/// So many more are connected that belong to no agent: a person gets in, whatever runs below one.
const PEOPLES_MAX: usize = 4;

/// What a node knows of its session.
pub struct SessionStatus {
    /// What the client calls itself.
    pub client: String,
    /// Tells what the session does.
    pub session: Option<Arc<dyn SessionSource>>,
    /// Its conversation.
    pub transcript: Option<Transcript>,
    /// As whose words the client shows what is put in: `peer` or `user`.
    pub shown_as: &'static str,
    /// What else can be done to it. `None`: its client offers no way.
    pub control: Option<Arc<dyn Control>>,
    /// It runs in no window.
    pub windowless: bool,
}

/// The node of a session. Clones share it.
#[derive(Clone)]
pub struct Node(Arc<Shared>);

pub(crate) struct Shared {
    client: String,
    shown_as: &'static str,
    windowless: bool,
    control: Option<Arc<dyn Control>>,
    gates: PathBuf,
    socket: watch::Receiver<PathBuf>,
    /// Where sessions of this user have their sockets.
    dirs: Vec<PathBuf>,
    /// The session's process, or 0.
    process: u32,
    started_at: String,
    mailbox: Mailbox,
    state: Mutex<State>,
    news: watch::Sender<u64>,
    /// Lines of pieces of what is said.
    pieces: broadcast::Sender<Arc<str>>,
    /// So many subscribers.
    watched: watch::Sender<usize>,
    /// The list of sessions may have to say something else.
    changed: Notify,
    pub(crate) clients: Semaphore,
    pub(crate) peoples: Semaphore,
}

struct State {
    log: SessionLog,
    feed: Feed,
    session: Snapshot,
    /// When what it does changed last.
    active_at: String,
    approvals: Approvals,
    hooks: Hooks,
}

impl Node {
    /// Makes the node that is reached at this socket. The mailbox tells it what happens.
    #[must_use]
    pub fn new(
        socket: &SessionSocket,
        paths: &Paths,
        about: SessionStatus,
        mailbox: Mailbox,
    ) -> Self {
        let started_at = mailbox.started();
        let state = State {
            log: SessionLog::default(),
            feed: Feed::new(about.transcript, started_at.clone()),
            session: about.session.map(|s| s.snapshot()).unwrap_or_default(),
            active_at: started_at.clone(),
            approvals: Approvals::default(),
            hooks: Hooks::default(),
        };
        let shared = Arc::new(Shared {
            client: about.client,
            shown_as: about.shown_as,
            windowless: about.windowless,
            control: about.control,
            gates: paths.gates.clone(),
            socket: socket.path(),
            dirs: directories(paths),
            process: socket.client(),
            started_at,
            mailbox: mailbox.clone(),
            state: Mutex::new(state),
            news: watch::Sender::new(0),
            pieces: broadcast::Sender::new(PIECES),
            watched: watch::Sender::new(0),
            changed: Notify::new(),
            clients: Semaphore::new(CLIENTS_MAX),
            peoples: Semaphore::new(PEOPLES_MAX),
        });
        let observer: Weak<Shared> = Arc::downgrade(&shared);
        mailbox.observed_by(observer);
        Self(shared)
    }

    /// Notes that something happened.
    pub fn record(&self, kind: EventKind, members: Value) {
        self.0.record(kind, members);
    }

    /// Where its socket is now.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.0.socket.borrow().clone()
    }

    /// Serves the socket for ever: hooks are `hooks`' to serve, everybody else is served here. When
    /// this is dropped the session is over: subscribers are told, and the list is without it.
    pub async fn serve<H>(
        self,
        socket: SessionSocket,
        hooks: impl Fn(HookConnection) -> H + Send + Sync + 'static,
    ) where
        H: Future<Output = ()> + Send + 'static,
    {
        let shared = Arc::clone(&self.0);
        let talk = move |connection| connection::talk(Arc::clone(&shared), connection);
        let _listed = Listed(self.0.socket.clone());
        tokio::join!(
            socket.serve(hooks, talk),
            self.0.keep_listed(),
            self.0.follow()
        );
    }
}

/// The session stands in the list until this is dropped.
struct Listed(watch::Receiver<PathBuf>);

impl Drop for Listed {
    fn drop(&mut self) {
        // Whoever reads the list drops what is gone.
        let _ = index::remove(&self.0.borrow());
    }
}

impl Shared {
    /// Whether this process is an agent, or stands below one.
    fn is_an_agents(&self, pid: u32) -> bool {
        is_of_session(self.process, pid) || is_an_agents(pid, &self.dirs)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn record(&self, kind: EventKind, members: Value) {
        if kind == EventKind::Partial {
            return self.pass(members);
        }
        let mut state = self.state();
        // What the transcript has by now came before.
        state.look();
        let id = self.id(&state.session);
        let text = named(&kind, &id, &rfc3339(wall_ms()), members).to_string();
        let bytes = text.len();
        let asks = matches!(
            kind,
            EventKind::ApprovalRequest | EventKind::ApprovalResolved
        );
        state.log.push((kind, Text::Kept(text.into())), bytes);
        self.tell(&state.log);
        if asks {
            self.changed.notify_one();
        }
    }

    /// Hands a piece of what is said to those who want pieces, now or never.
    fn pass(&self, members: Value) {
        if self.pieces.receiver_count() == 0 {
            return;
        }
        let state = self.state();
        let (id, seq) = (self.id(&state.session), state.log.last());
        let mut piece = named(&EventKind::Partial, &id, &rfc3339(wall_ms()), members);
        piece["seq"] = seq.into();
        // Whoever wanted it may be gone.
        let _ = self.pieces.send(protocol::event(&piece).into());
    }

    fn tell(&self, log: &SessionLog) {
        let last = log.last();
        let changed = |known: &mut u64| std::mem::replace(known, last) != last;
        self.news.send_if_modified(changed);
    }

    /// The client's own id, or one that the socket's name gives.
    fn id(&self, session: &Snapshot) -> String {
        let id = session.id.clone();
        id.unwrap_or_else(|| {
            let ours = self.socket.borrow();
            let ours = ours.file_stem().unwrap_or_default();
            ours.to_string_lossy().into_owned()
        })
    }

    /// As the list has it.
    pub(crate) fn session(&self) -> LiveSession {
        let (session, asked, active_at) = {
            let state = self.state();
            let asked = state.approvals.told().count();
            (state.session.clone(), asked, state.active_at.clone())
        };
        let stuck = self.mailbox.stuck();
        let name = match &*self.mailbox.bus().link().borrow() {
            LinkState::Online { name, .. } => Some(name.to_string()),
            _ => None,
        };
        let [client, version] = self.mailbox.client();
        LiveSession {
            id: self.id(&session),
            wanted_name: name.is_none().then(|| self.mailbox.bus().name()),
            name,
            client: client.unwrap_or_else(|| self.client.clone()),
            version,
            status: status(&session).map(str::to_owned),
            stuck: stuck.as_ref().map(|(why, _)| why.clone()),
            stuck_at: stuck.map(|(_, at_ms)| rfc3339(at_ms)),
            stopped: false,
            tty: self.mailbox.terminal(),
            pid: self.mailbox.process(),
            windowless: self.windowless,
            asked,
            held: self.mailbox.withheld().len(),
            paused: self.mailbox.paused().len(),
            cwd: session.cwd.or_else(project::root),
            started_at: self.started_at.clone(),
            active_at: Some(active_at),
            socket: self.socket.borrow().clone(),
            gates: self.gates(),
            gates_file: self.gates.clone(),
        }
    }

    async fn keep_listed(&self) {
        let mut link = self.mailbox.bus().link();
        let mut socket = self.socket.clone();
        let mut listed = None;
        loop {
            let session = self.session();
            if listed.as_ref() != Some(&session) {
                match index::put(&session) {
                    Ok(()) => listed = Some(session.clone()),
                    Err(error) => tracing::debug!(%error, "the list of sessions is not written"),
                }
            }
            tokio::select! {
                () = self.changed.notified() => {}
                Ok(()) = link.changed() => {}
                Ok(()) = socket.changed() => listed = listed.filter(index::lists),
                () = tokio::time::sleep(PAUSE), if listed.as_ref() != Some(&session) => {}
            }
        }
    }

    /// Reads the transcript while somebody watches.
    async fn follow(&self) {
        let mut watched = self.watched.subscribe();
        // The sender lives as long as self: waiting cannot fail.
        while watched.wait_for(|count| *count > 0).await.is_ok() {
            self.look();
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Notes what the transcript has by now.
    pub(crate) fn look(&self) {
        let mut state = self.state();
        state.look();
        self.tell(&state.log);
    }

    /// The session as `session/status` tells it.
    pub(crate) fn told(&self) -> Value {
        self.mailbox.is_client_stopped();
        let mut told = json!(self.session());
        told["why_paused"] = json!(self.mailbox.paused());
        let state = self.state();
        told["seq"] = state.log.last().into();
        told["approvals"] = state.approvals.told().collect();
        told["unlisted"] = state.approvals.has_unlisted().into();
        told["over"] = state.approvals.over().collect();
        told
    }

    /// The session does something else: where it waited for its user, the user has answered.
    fn dialogs(&self, activity: Option<Activity>) {
        let decision = match activity {
            Some(Activity::Busy) => Decision::Allow,
            Some(Activity::Idle) => Decision::Deny,
            Some(Activity::Waiting) => return self.state().approvals.dialog_shown(),
            Some(Activity::Unknown) | None => return,
        };
        let ids = self.state().approvals.dialog_gone();
        self.close(&ids, Some(decision), &By::Terminal);
    }

    /// The lines of the next events after `seq`, or of a gap: as many as are written at once. Keeps
    /// `seq` at what was given.
    pub(crate) async fn next(&self, seq: &mut u64, kinds: &[EventKind]) -> String {
        let mut news = self.news.subscribe();
        loop {
            let mut lines = String::new();
            while lines.len() < LINES_BYTES
                && let Some(line) = self.render(seq, kinds)
            {
                lines.push_str(&line);
            }
            if !lines.is_empty() {
                return lines;
            }
            let known = *seq;
            // The sender lives as long as self.
            let _ = news.wait_for(|last| *last > known).await;
        }
    }

    /// `None`: there is nothing.
    fn render(&self, seq: &mut u64, kinds: &[EventKind]) -> Option<String> {
        let state = self.state();
        let next = state.log.after(*seq, |(kind, _)| kinds.contains(kind));
        let id = self.id(&state.session);
        let gap = |missed: u64| {
            let members = json!({ "missed": missed });
            named("gap", &id, &rfc3339(wall_ms()), members)
        };
        let mut event = match next {
            Next::Nothing(last) => {
                *seq = last;
                return None;
            }
            Next::Gap { seq: last, missed } => {
                *seq = last;
                gap(missed)
            }
            Next::Event {
                seq: this,
                event: (kind, text),
            } => {
                *seq = this;
                let place = match text {
                    Text::Kept(members) => return Some(log::line(members, *seq)),
                    Text::Line(place) => place,
                };
                let event = state.feed.again(place).map(|event| {
                    let session = event.session_id.as_deref().unwrap_or(&id);
                    let when = event.timestamp.unwrap_or_else(|| rfc3339(wall_ms()));
                    named(kind, session, &when, event.members)
                });
                // Its file is gone, or was written anew.
                event.unwrap_or_else(|| gap(1))
            }
        };
        event["seq"] = (*seq).into();
        Some(protocol::event(&event))
    }
}

impl State {
    fn look(&mut self) {
        self.feed.look(&self.session, &mut self.log);
    }
}

impl Observer for Shared {
    fn staged(&self, staged: &Staged) {
        self.record(EventKind::Bus, log::bus(staged));
    }

    fn looked(&self, session: &Snapshot) {
        let mut state = self.state();
        if state.session == *session {
            return;
        }
        let before = status(&state.session);
        // What the session did until now stands in the file that it had.
        state.look();
        state.session.clone_from(session);
        let now = status(session);
        if before != now {
            state.active_at = rfc3339(wall_ms());
        }
        drop(state);
        if before != now {
            self.record(EventKind::Status, json!({ "status": now }));
            self.dialogs(session.activity);
        }
        self.changed.notify_one();
    }

    fn changed(&self) {
        self.changed.notify_one();
    }

    fn takes(self: Arc<Self>, inbound: &Inbound) -> bool {
        self.take_verdict(inbound)
    }
}

fn named(kind: &(impl Serialize + ?Sized), session: &str, at: &str, mut event: Value) -> Value {
    event["type"] = json!(kind);
    event["session_id"] = session.into();
    event["timestamp"] = at.into();
    event
}

/// What the session does; `None`: its client does not say.
fn status(session: &Snapshot) -> Option<&'static str> {
    match session.activity? {
        Activity::Idle => Some("idle"),
        Activity::Busy => Some("thinking"),
        Activity::Waiting => Some("waiting_approval"),
        Activity::Unknown => None,
    }
}
