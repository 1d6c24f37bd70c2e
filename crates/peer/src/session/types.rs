//! What goes into a [`PeerSession`](super::PeerSession) and what comes out of it.

use peerbus_core::grant::{GATEWAY_TOKEN, is_of_gateway};
use peerbus_wire::{
    Accepted, Address, Domain, GroupName, Instance, Kind, MessageId, PeerName, PeersFrame,
    Presence, Receipt, Refusal, Secret, Token, Window,
};

/// What a session is made with.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// The name to register.
    pub name: PeerName,
    /// The name was made up: another one may take its place.
    pub generated: bool,
    /// Tells this process from another one of the same name.
    pub instance: Option<Instance>,
    /// The peer is forgotten when it leaves.
    pub ephemeral: bool,
    /// The window to ask for.
    pub window: Window,
    /// How the peer describes itself.
    pub presence: Option<Presence>,
    /// Groups to join whenever it has registered: at most [`peerbus_wire::limits::GROUPS_MAX`].
    pub groups: Vec<GroupName>,
}

/// What a connection needs besides its bytes.
#[derive(Debug, Clone)]
pub struct ConnectionCredentials {
    /// Admits the connection.
    pub token: Token,
    /// Signs what is sent, verifies what comes.
    pub secret: Secret,
    /// The broker is on this machine: the backoff stays short.
    pub local: bool,
}

/// A message to send.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Its id; never used for another message of this process.
    pub id: MessageId,
    /// Its recipient.
    pub to: Address,
    /// The sender's clock, RFC 3339.
    pub ts: String,
    /// What kind of program sends it.
    pub source: String,
    /// JSON text that satisfies the rules of acceptance.
    pub body: String,
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The broker closed it with a code and a text.
    Closed {
        /// WebSocket close code.
        code: u16,
        /// The close frame's text.
        text: String,
    },
    /// It broke.
    Broken {
        /// Why, as a sentence.
        why: String,
    },
}

/// What the session wants its shell to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Open a connection, then say [`connected`](super::PeerSession::handle_connected),
    /// [`unreachable`](super::PeerSession::handle_unreachable) or
    /// [`no credentials`](super::PeerSession::handle_no_credentials).
    Dial,
    /// Drop the connection. Nothing more of it is expected.
    HangUp,
    /// Send a transport ping; its pong counts as a sign of life.
    Ping,
    /// Make up another name and hand it in with [`go_by`](super::PeerSession::go_by).
    Rename,
    /// Read the credentials again and hand in their secret with
    /// [`secret`](super::PeerSession::handle_secret). Nothing is read until then. Means nothing once
    /// the connection has ended.
    Reread,
}

/// Names a received message to the host: a digest of its sender and id. Opaque.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub(super) u128);

/// Names a statement that the broker keeps until it is told to the agent or the person it is for.
/// Opaque.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NoticeId(pub(super) u64);

/// A received message: verified, not a duplicate, for this peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound {
    /// The key to ack.
    pub key: Key,
    /// The sender's id for it.
    pub id: String,
    /// Its sender.
    pub from: String,
    /// What kind of program sent it.
    pub source: String,
    /// To one peer, or to all.
    pub kind: Kind,
    /// The sender's clock. Shown, never used.
    pub ts: String,
    /// JSON text in canonical form, as every reader takes it (see [`peerbus_wire::readable`]).
    /// Untrusted.
    pub body: String,
    /// It may have been shown before: the broker delivered it on another connection of this name, or to
    /// another member of its group.
    pub again: bool,
    /// The name that it was sent to, where that is not this peer's present one.
    pub to: Option<String>,
    /// The group that it was sent to, without the `#`,
    pub group: Option<String>,
    /// and that this member alone has it, as long as its lease lasts.
    pub one: bool,
    /// The token of the sender, as the broker calls it, where that is another one than this peer's.
    pub token: Option<String>,
    /// That token has the right to approve what a session asks its user.
    pub approves: bool,
    /// How long ago it was accepted, in milliseconds of the broker's clock, where that is a second
    /// or more; 0 otherwise, and at a broker that does not say.
    pub age_ms: u64,
    /// It is a request, whose result was wanted within so many milliseconds when it came; 0: it is none.
    pub within_ms: u64,
}

impl Inbound {
    /// Who answers for its sender, where that is not this peer's token: another one, or (from its `@`
    /// on) another domain. Each of the gateway's senders has a token of its own there.
    #[must_use]
    pub fn party(&self) -> Option<String> {
        let from = self.from.to_ascii_lowercase();
        match &self.token {
            Some(token) if token == GATEWAY_TOKEN && is_of_gateway(&from) => Some(from),
            Some(token) => Some(token.clone()),
            None => from.rfind('@').map(|at| from[at..].to_owned()),
        }
    }
}

/// What the host is told, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// A connection was registered.
    Registered {
        /// The name.
        name: String,
        /// The broker speaks our extension.
        ext: bool,
        /// So much the broker sends ahead of acks, of what the host has not taken as well.
        window: Window,
    },
    /// A message arrived. Ack it once it is consumed. One for one member of a group comes again under the
    /// same key whenever the broker delivers it again.
    Message(Inbound),
    /// A message that the host took, and may have acked, is not this peer's any more. It comes again if
    /// it is once more.
    Lapsed {
        /// The message.
        key: Key,
        /// Why, in the broker's words. `None`: there is another connection, and one of a group has it
        /// once it is delivered again.
        reason: Option<String>,
    },
    /// What became of a message that this process sent: delivered, acked, expired or dead; accepted
    /// or refused only when the caller of the send was told before that it is not known.
    Notice {
        /// What the broker says.
        receipt: Receipt,
        /// The broker keeps the statement until [`ack_notice`](super::PeerSession::ack_notice) is called
        /// with this.
        id: Option<NoticeId>,
    },
    /// The groups that this peer joins by itself, and joined when it was asked to before, could not be
    /// joined.
    NotJoined {
        /// Why: the broker's words.
        why: String,
    },
    /// A message whose fate the caller was told is not known was never confirmed, and is not sent
    /// again.
    GaveUp {
        /// The message.
        id: String,
    },
}

/// The answer to something that the host asked for. Each send and each query gets exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To [`send`](super::PeerSession::send).
    Sent {
        /// The message.
        id: MessageId,
        /// What is known of it.
        outcome: SendResult,
    },
    /// To a query.
    Answered {
        /// The query.
        query: QueryId,
        /// The answer, or why there is none.
        outcome: Result<Answer, QueryFailure>,
    },
}

/// Something that the broker is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Who is there; in another domain, as far as its bridge told, if one is named.
    Peers(Option<Domain>),
    /// Groups to join and groups to leave, all of them or none. Answered with the groups of which this
    /// peer is a member then, or none from a broker that knows no groups. Of each list what is beyond [`peerbus_wire::limits::GROUPS_MAX`] is left
    /// out.
    Regroup(Vec<GroupName>, Vec<GroupName>),
    /// What became of messages that were sent under this name: at most
    /// [`peerbus_wire::limits::STATUS_IDS_MAX`]; those beyond are left out. Statements about them that
    /// come while the answer is under way go into the answer, not to the events.
    Statuses(Vec<MessageId>),
    /// A request that was sent under this name is taken back. Answered as [`Question::Statuses`] of it is.
    Withdraw(MessageId),
    /// Another name for this peer: its queue goes with it, and mail to the present name still comes. One
    /// at a time.
    Name(PeerName),
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Question::Peers`] and [`Question::Regroup`], in the broker's words. A v1 broker tells the names
    /// of connected peers and nothing else.
    Peers(Box<PeersFrame>),
    /// To [`Question::Statuses`] and [`Question::Withdraw`].
    Statuses(Vec<Receipt>),
    /// To [`Question::Name`]: done.
    Renamed,
}

/// What is known of a sent message when its caller is answered: the broker has it on disk, or
/// (`None`) a v1 broker's socket took it and nothing else will be known.
pub type SendResult = Result<Option<Accepted>, Unsent>;

/// Why a message is not known to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsent {
    /// The broker did not take it.
    Refused(Refusal),
    /// The deadline passed before it was sent. It will not be sent.
    NeverLeft,
    /// The deadline passed, or the session closed, without a receipt. It may have been accepted.
    Unconfirmed {
        /// It is sent again under its id for this long; 0 when it is not.
        resent_for_ms: u64,
    },
}

/// Names a query. Never used twice in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryId(pub u64);

/// Why a query has no answer, or was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryFailure {
    /// Its deadline passed. It may have been done.
    TimedOut,
    /// The broker says why not, in a sentence. Nothing changed.
    Refused(String),
    /// The broker does not speak our extension.
    NotSupported,
    /// The session was closed.
    Closed,
}

/// The session holds as many unconfirmed messages, or as many queries, as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overloaded {
    /// How many.
    pub waiting: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
}

/// A message that failed verification or the rules. All of it is untrusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Whom it says it is from.
    pub from: String,
    /// Its id.
    pub id: String,
    /// Why it was rejected.
    pub reason: String,
}

/// What a session counted since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages that failed verification or the rules, never shown to the host.
    pub rejected: u64,
    /// Deliveries of messages that were held or consumed already.
    pub duplicates: u64,
    /// Frames that could not be read.
    pub ignored: u64,
    /// Messages sent again after a connection ended.
    pub resent: u64,
}
