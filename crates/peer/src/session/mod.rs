//! The adapter side of a connection: a [`PeerSession`] outlives its connections and loses nothing
//! between them.
//!
//! Drive it like this. Hand in one input at a time: `handle_*` for what happens on the
//! transport, the other methods for what the host wants. After each, drain what came of it:
//! [`PeerSession::poll_action`] (dial, hang up, …), [`PeerSession::poll_reply`] (answers to sends and
//! queries), and look at [`PeerSession::poll_timeout`] again; call [`PeerSession::handle_timeout`] when it
//! is due. Take frames with [`PeerSession::poll_transmit`] when the transport can take them, and say
//! [`PeerSession::handle_flushed`] once all that were taken are flushed. Take events with
//! [`PeerSession::poll_event`] when the host wants one: what it does not take holds the broker's
//! window. Hand in no frame while [`PeerSession::wants_read`] says no.
//!
//! There is at most one connection. It begins with [`PeerSession::handle_connected`] and ends with
//! [`PeerSession::handle_closed`] or [`Action::HangUp`]; nothing of it may be handed in after that.
//!
//! What holds, whatever happens:
//!
//! - a message is sent under one id until the broker says what became of it, in the order of
//!   [`PeerSession::send`], again after each reconnect; each send and each query gets one [`Reply`];
//! - the host sees a message only if it verifies, and once;
//! - a message is acked only after the host said that it is consumed, and again with the same
//!   claim whenever it comes again.

mod backoff;
mod connection;
mod frames;
mod inbox;
mod mutation;
mod naming;
mod outbox;
mod queries;
mod status;
#[cfg(test)]
mod tests;
mod types;

use std::collections::VecDeque;

use peerbus_wire::{AuditRecord, ClientFrame, Delivery, Domain, PeerName, Presence};

pub use connection::IN_USE_MS;
pub use mutation::SessionMutation;
pub use outbox::GIVE_UP_MS;
pub use status::{NOT_STARTED, RegistrationRefusal, Status, UNUSABLE, refusal};
pub use types::{
    Action, Answer, ConnectionCredentials, ConnectionEnd, Counters, Draft, Inbound, Key, NoticeId,
    Overloaded, QueryFailure, QueryId, Question, Rejected, Reply, SendResult, SessionConfig,
    SessionEvent, Unsent,
};

use backoff::Backoff;
use inbox::Inbox;
use naming::Naming;
use outbox::Outbox;
use queries::Notices;
use queries::Queries;

use peerbus_core::Now;

/// Most control frames that wait for the transport. Reading stops there, except from a v1 broker,
/// which may not read before it has written all it has: the oldest acks go instead.
const CONTROL_MAX: usize = 16_384;

/// Most audit records that wait for the transport.
const AUDITS_MAX: usize = 64;

/// One peer's side of the bus.
#[derive(Debug)]
pub struct PeerSession {
    config: SessionConfig,
    phase: Phase,
    status: Status,
    backoff: Backoff,
    /// Of the connection, or of the last one.
    credentials: Option<ConnectionCredentials>,
    /// When the broker was last heard, and whether it was pinged since.
    heard_ms: u64,
    pinged: bool,
    /// The window that the broker granted.
    window: peerbus_wire::Window,
    presence_changed: bool,
    /// The broker takes audit records, as far as is known.
    takes_audits: bool,
    /// The broker's domain, as it said last.
    domain: Option<Domain>,
    audits: VecDeque<AuditRecord>,
    /// What the host is to know of the connection, its groups, and messages that lapsed or came again.
    events: VecDeque<SessionEvent>,
    inbox: Inbox,
    outbox: Outbox,
    queries: Queries,
    naming: Naming,
    /// How names begin that the token may register, where the broker turned another one down.
    begins: Option<String>,
    notices: Notices,
    control: VecDeque<ClientFrame>,
    actions: VecDeque<Action>,
    replies: VecDeque<Reply>,
    counters: Counters,
    rejected: Option<Rejected>,
    /// Signed with another secret than the one that is known here: judged once that was read again.
    unverified: Option<Delivery>,
    /// When the secret is read again in any case.
    reread_ms: u64,
    mutations: peerbus_core::Mutations<SessionMutation>,
}

/// What the session is doing about its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for the next attempt.
    Waiting {
        until_ms: u64,
    },
    Renaming,
    Dialing,
    /// Has a connection; `register` is or will be on it.
    Registering {
        deadline_ms: u64,
    },
    Online {
        ext: bool,
        since_ms: u64,
    },
    /// Closed by the host; what is left to flush belongs to a connection of this kind.
    Closing {
        ext: bool,
    },
    Closed,
}

impl PeerSession {
    /// Makes a session, which asks to dial at once. `seed` spreads its retries.
    #[must_use]
    pub fn new(config: SessionConfig, now: Now, seed: u64) -> Self {
        Self {
            window: config.window,
            config,
            phase: Phase::Dialing,
            status: Status::Connecting { last_error: None },
            backoff: Backoff::new(seed),
            credentials: None,
            heard_ms: now.mono_ms,
            pinged: false,
            presence_changed: false,
            takes_audits: true,
            domain: None,
            audits: VecDeque::new(),
            events: VecDeque::new(),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            queries: Queries::default(),
            naming: Naming::default(),
            begins: None,
            notices: Notices::default(),
            control: VecDeque::new(),
            actions: VecDeque::from([Action::Dial]),
            replies: VecDeque::new(),
            counters: Counters::default(),
            rejected: None,
            unverified: None,
            reread_ms: 0,
            mutations: Default::default(),
        }
    }

    /// What the shell is to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether [`PeerSession::poll_action`] has something.
    #[must_use]
    pub fn has_action(&self) -> bool {
        !self.actions.is_empty()
    }

    /// The next answer to something that the host asked for.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// When to call [`PeerSession::handle_timeout`], on the monotonic clock.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let all = [
            self.connection_timeout(),
            self.outbox.timeout(),
            self.queries.timeout(),
            self.naming.timeout(),
        ];
        all.into_iter().flatten().min()
    }

    /// Whether [`PeerSession::poll_event`] has something.
    #[must_use]
    pub fn has_event(&self) -> bool {
        !self.events.is_empty() || self.notices.has_event() || !self.inbox.unread.is_empty()
    }

    /// Whether the shell may hand in another frame. `false` while as much is held as may be, and
    /// until [`Action::Reread`] is done.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        let v1 = matches!(self.phase, Phase::Online { ext: false, .. });
        self.unverified.is_none()
            && !self.inbox.is_full()
            && (v1 || self.control.len() < CONTROL_MAX)
    }

    /// Where the connection stands.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// The name in use.
    #[must_use]
    pub fn name(&self) -> &PeerName {
        &self.config.name
    }

    /// The domain of the broker, as it said when it was connected last.
    #[must_use]
    pub fn domain(&self) -> Option<&Domain> {
        self.domain.as_ref()
    }

    /// The other domain to which mail for `to` goes. `None`: it stays at this broker, which may
    /// know somebody of that name.
    #[must_use]
    pub fn abroad(&self, to: &PeerName) -> Option<Domain> {
        outbox::abroad(self.domain.as_ref(), to)
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether nothing was sent under this name and nothing came for it, and it was made up.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.config.generated && self.outbox.is_unused() && self.inbox.is_unused()
    }

    /// The last message that was rejected, once.
    pub fn take_rejected(&mut self) -> Option<Rejected> {
        self.rejected.take()
    }

    /// Describes this peer anew.
    pub fn set_presence(&mut self, presence: Presence) {
        if self.config.presence.as_ref() != Some(&presence) {
            self.config.presence = Some(presence);
            self.presence_changed = true;
        }
    }

    /// Has the broker write down what was done to this session, if it can: best effort. As long as
    /// it is away so many records wait, and further ones are lost.
    pub fn audit(&mut self, record: AuditRecord) {
        if self.takes_audits && !self.is_over() && self.audits.len() < AUDITS_MAX {
            self.audits.push_back(record);
        }
    }

    /// Whether the host closed the session.
    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. } | Phase::Closed)
    }

    /// The extension is agreed on, now.
    fn speaks_ext(&self) -> bool {
        matches!(
            self.phase,
            Phase::Online { ext: true, .. } | Phase::Closing { ext: true }
        )
    }

    /// Asserts what must hold between inputs.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn check(&self) {
        self.inbox.check();
        self.outbox.check();
        self.queries.check();
        self.notices.check();
        let phase = self.phase;
        let connected = matches!(phase, Phase::Online { .. } | Phase::Closing { .. });
        let registers = |frame: &ClientFrame| matches!(frame, ClientFrame::Register(_));
        assert!(connected || self.control.iter().all(registers));
        let online = matches!(self.status, Status::Online { .. });
        assert_eq!(online, matches!(phase, Phase::Online { .. }), "{phase:?}");
        assert_eq!(self.is_over(), self.status == Status::Closed, "{phase:?}");
    }
}
