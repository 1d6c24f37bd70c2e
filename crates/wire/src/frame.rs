//! Control frames: one enum per direction, names as on the wire.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::audited::AuditRecord;
use crate::domain::{Domain, Mark};
use crate::envelope::{Carried, Decoded};
use crate::group::GroupName;
use crate::ids::{DeliveryKey, Instance, MessageId, Seq, Token, TokenName};
use crate::limits::{AGE_MS_MIN, DELIVER_OVERHEAD_BYTES};
use crate::name::PeerName;
use crate::stage::{How, Receipt, Refusal, Stage};

/// A frame of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFrame {
    /// Mandatory first frame.
    Register(Register),
    /// In place of it, over TLS or the Unix socket: a machine that was invited asks to be let in.
    Join(JoinRequest),
    /// The recipient is done with a delivery.
    Ack(Ack),
    /// Asks for the list of peers; also a barrier.
    Peers,
    /// `ext`: asks for the peers of a domain: this broker's own, or another, as far as its bridge told.
    PeersOf(Domain),
    /// `ext`: joins groups and leaves groups, at most [`crate::limits::GROUPS_MAX`] of each. Answered by
    /// `peers` with the client's own name and its groups; also a barrier.
    Regroup {
        /// Groups to be a member of.
        join: Vec<GroupName>,
        /// Groups not to be a member of.
        leave: Vec<GroupName>,
    },
    /// `ext`, from a bridge: the peers of its domain, at most
    /// [`crate::limits::PEERS_ENTRIES_MAX`]. It takes the place of what it told before.
    Roster(Vec<PeerEntry>),
    /// An envelope that satisfies every rule that needs no state.
    Envelope(Carried),
    /// An envelope that does not. The id is there when one could be read.
    Refused {
        /// The message's id, when the frame has a valid one.
        id: Option<MessageId>,
        /// What is wrong with it.
        refusal: Refusal,
    },
    /// `ext`: replaces the connection's presence.
    Presence(Presence),
    /// `ext`: this delivery fails verification.
    Reject {
        /// The delivery.
        key: DeliveryKey,
        /// Why, as a sentence.
        reason: String,
        /// As [`Ack::age_ms`].
        age_ms: u32,
    },
    /// `ext`: the holder hands this delivery back; it is delivered again at the latest when the
    /// name registers next. What was sent to one member of a group goes to the next one.
    Release {
        /// The delivery.
        key: DeliveryKey,
        /// It may have been shown.
        again: bool,
    },
    /// `ext`: takes a request back. Answered as [`ClientFrame::Status`] is.
    Withdraw {
        /// The request: one of the sender's own messages.
        id: MessageId,
    },
    /// `ext`: asks what became of the sender's own messages.
    Status {
        /// At most [`crate::limits::STATUS_IDS_MAX`] ids.
        ids: Vec<MessageId>,
    },
    /// `ext`: how far this delivery is at its recipient. No ack.
    Progress {
        /// The delivery.
        key: DeliveryKey,
        /// How far it is: `pushed`, `presented` or `held`; from a bridge whatever its recipient's
        /// broker says.
        stage: Stage,
        /// As [`Ack::age_ms`].
        age_ms: u32,
    },
    /// `ext`: this peer goes by another name from now on.
    Rename {
        /// The name as it came.
        name: String,
    },
    /// `ext`: this name ends for good.
    Retire {
        /// Who gets the mail, as it came; its senders are told that it expired when there is nobody.
        successor: Option<String>,
    },
    /// From a bridge: an envelope of its domain, and how far it is with that.
    Take {
        /// What the broker keeps in the transaction that accepts the message.
        mark: Mark,
        /// After a refused one all that follow are refused, too, up to one that says this: what was
        /// under way must not come before what was refused.
        again: bool,
        /// The envelope, or what is wrong with it.
        envelope: Result<Carried, (Option<MessageId>, Refusal)>,
    },
    /// From a bridge: what has it forwarded that has not ended?
    Forwarded {
        /// Those after this delivery, in the broker's order.
        after: Option<DeliveryKey>,
    },
    /// `ext` 2: something was done to this peer's session from outside.
    Audit(AuditRecord),
    /// A control frame other than `register` that lacks what it needs, or that no client sends:
    /// ignored after the handshake.
    Unusable,
    /// A text message that is none of the above: ignored after the handshake.
    Malformed,
    /// A binary message: ignored after the handshake.
    Binary,
}

/// The first frame of a connection. Names and versions are checked by the broker's core, in v1's
/// order, so they are carried as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// `protocol_version` as it came.
    pub protocol_version: String,
    /// `token`; `None` when it is absent or longer than any valid one.
    pub token: Option<Token>,
    /// `name` as it came.
    pub name: String,
    /// The name that the client had asked for when its last connection ended without an answer to
    /// that, as it came.
    pub renaming: Option<String>,
    /// The extension level that the client offers; 0 when it offers none.
    pub ext: u32,
    /// Tells processes with one name apart.
    pub instance: Option<Instance>,
    /// Forget the peer when it leaves.
    pub ephemeral: bool,
    /// The name was made up by the client, not chosen by a person.
    pub generated: bool,
    /// The window that the client asks for.
    pub window: Option<Window>,
    /// The client.
    pub presence: Option<Presence>,
    /// It is the bridge to another domain, whose broker has this epoch.
    pub bridge: Option<Mark>,
}

/// The request of a machine that was invited. `Debug` shows none of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRequest {
    /// The secret of the invitation.
    pub code: Token,
    /// The token that it made, with which its peers will register.
    pub token: Token,
}

/// The answer to such a machine. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinGrant {
    /// The HMAC secret.
    pub key: Zeroizing<String>,
    /// The names that its token may register, as patterns.
    pub names: Vec<String>,
}

impl fmt::Debug for JoinGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinGrant({:?})", self.names)
    }
}

/// How much a connection may hold unacked. At least one message is always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Deliveries.
    pub messages: u32,
    /// Bytes of deliver frames.
    pub bytes: u32,
}

/// A peer's description of itself: the text of a JSON object of at most
/// [`crate::limits::PRESENCE_BYTES_MAX`] bytes, valid UTF-8. Untrusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence(pub(crate) Arc<str>);

/// The recipient's statement that it is done with a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// The delivery.
    pub key: DeliveryKey,
    /// What the ack claims; `None` from v1 clients.
    pub how: Option<How>,
    /// It was so already for so long, in milliseconds; 0: it is just now.
    pub age_ms: u32,
}

impl ClientFrame {
    /// The recipient does not want a delivery, as of now.
    #[must_use]
    pub const fn reject(key: DeliveryKey, reason: String) -> Self {
        let age_ms = 0;
        Self::Reject {
            key,
            reason,
            age_ms,
        }
    }

    /// The recipient is done with a delivery, as of now.
    #[must_use]
    pub const fn ack(key: DeliveryKey, how: Option<How>) -> Self {
        let age_ms = 0;
        Self::Ack(Ack { key, how, age_ms })
    }

    /// A delivery is so far, as of now.
    #[must_use]
    pub const fn progress(key: DeliveryKey, stage: Stage) -> Self {
        let age_ms = 0;
        Self::Progress { key, stage, age_ms }
    }
}

/// A frame of a broker.
#[derive(Debug, Clone)]
pub enum BrokerFrame {
    /// Handshake ack, and answer to `peers`.
    Peers(PeersFrame),
    /// A message.
    Deliver(DeliverFrame),
    /// `ext`: statements about messages that this client sent.
    Receipts(Vec<Receipt>),
    /// `ext`: a message for one member of a group is another's now, or a request has ended without
    /// its holder: it is not to be shown any more.
    Recall(Recall),
    /// `ext`: the answer to a rename.
    Renamed(NameAnswer),
    /// `ext`: the answer to a retirement.
    Retired(NameAnswer),
    /// To a bridge: what it has forwarded that has not ended, a part of that.
    Forwarded(Vec<Forwarded>),
    /// The answer to a machine that was invited.
    Joined(JoinGrant),
}

/// What is not its holder's any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recall {
    /// The delivery.
    pub key: DeliveryKey,
    /// Why, as a sentence.
    pub reason: String,
}

/// A message that another broker owes to its recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    /// The delivery.
    pub key: DeliveryKey,
    /// The sender's id for it.
    pub id: MessageId,
}

/// What the broker says to a client that wants its name changed or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameAnswer {
    /// The name that the client has from now on (of a retirement: had).
    pub name: String,
    /// Why it was not done, as a sentence; nothing changed then.
    pub refused: Option<String>,
}

/// The `peers` frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeersFrame {
    /// Names of connected peers, sorted, self included; for an `ext` handshake only its own.
    pub names: Vec<String>,
    /// In the handshake ack: the extension level that the broker agrees to.
    pub ext: Option<u32>,
    /// In the handshake ack: the window that is granted.
    pub window: Option<Window>,
    /// In an answer to an `ext` client: what is known of each peer, one of each token in turn.
    pub peers: Option<Vec<PeerEntry>>,
    /// `peers` was cut at [`crate::limits::PEERS_ENTRIES_MAX`]; this many were left out.
    pub omitted: u32,
    /// In the handshake ack to an `ext` client: the broker's domain, if it has one. In an answer to
    /// [`ClientFrame::PeersOf`]: the domain of these peers.
    pub domain: Option<Domain>,
    /// In an answer about another domain: so many milliseconds ago its bridge told this; `None`: it
    /// has not, and nothing is known.
    pub age_ms: Option<u64>,
    /// In the answer to [`ClientFrame::Regroup`]: the groups of which this peer is a member now.
    pub groups: Option<Vec<GroupName>>,
    /// In the answer to [`ClientFrame::Regroup`]: why nothing was joined or left.
    pub reason: Option<String>,
    /// In the handshake ack to a bridge: the broker's epoch.
    pub epoch: Option<Mark>,
    /// In the handshake ack to a bridge: the last mark that it gave.
    pub mark: Option<Mark>,
}

/// What an `ext` client is told of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerEntry {
    /// Its name.
    pub name: String,
    /// It is connected.
    pub online: bool,
    /// Messages owed to it (held or queued); `None` when the client may not know.
    pub unacked: Option<u64>,
    /// Seconds since it was last connected, 0 while it is; `None` when the client may not know.
    pub away_s: Option<u64>,
    /// Seconds since `activity` in its presence last changed on this connection; `None` where it is
    /// away or says nothing of that.
    pub activity_s: Option<u64>,
    /// Requests that it has read and not answered; `None` where there are none, or the client may not
    /// know.
    pub owes: Option<u64>,
    /// The groups of which it is a member, as far as [`crate::limits::ENTRY_GROUPS_BYTES_MAX`] has room
    /// for them; none where the client may not know.
    pub groups: Vec<GroupName>,
    /// Its own description. Untrusted.
    pub presence: Option<Presence>,
    /// Its adapter is stopped, and can say nothing of it: seen on its own machine, and on no wire.
    pub stopped: bool,
    /// The token that its name belongs to: told to the operator alone.
    pub token: Option<TokenName>,
    /// The names that it had before: told to the operator alone.
    pub old: Vec<String>,
}

/// A deliver frame as encoded for the wire: encoded once, shared by every recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliverFrame {
    pub(crate) text: Arc<str>,
}

impl DeliverFrame {
    /// Encodes the frame for the message `seq` with the given carried envelope text.
    #[must_use]
    pub fn new(seq: Seq, envelope: &str) -> Self {
        Self::encode(seq.0, "", envelope)
    }

    /// Encodes the frame for a v1 connection, under a key of its own that needs no escapes.
    #[must_use]
    pub fn keyed(key: &DeliveryKey, envelope: &str) -> Self {
        Self::encode(key.as_str(), "", envelope)
    }

    /// `remarks` are members, each behind a comma.
    fn encode(key: impl fmt::Display, remarks: &str, envelope: &str) -> Self {
        const HEAD: &str = r#"{"protocol_version":"v1","type":"deliver","delivery_key":""#;
        let room = DELIVER_OVERHEAD_BYTES + remarks.len() + envelope.len();
        let mut text = String::with_capacity(room);
        text.push_str(HEAD);
        // Writing to a String cannot fail.
        let _ = write!(text, "{key}");
        for part in ["\"", remarks, r#","envelope":"#, envelope, "}"] {
            text.push_str(part);
        }
        Self { text: text.into() }
    }

    /// Encodes the frame with what the broker remarks on the message.
    #[must_use]
    pub fn for_one(seq: Seq, envelope: &str, remarks: &Remarks) -> Self {
        if *remarks == Remarks::default() {
            return Self::new(seq, envelope);
        }
        let name = |text: &str| format!("\"{text}\"");
        let set = |set: bool| set.then(|| "true".to_owned());
        let age = Some(remarks.age_ms).filter(|age_ms| *age_ms >= AGE_MS_MIN);
        let within = Some(remarks.within_ms).filter(|within_ms| *within_ms > 0);
        let members = [
            ("again", set(remarks.again)),
            ("for", remarks.alias.as_ref().map(|it| name(it.as_str()))),
            ("token", remarks.token.as_ref().map(|it| name(it.as_str()))),
            ("approves", set(remarks.approves)),
            ("age_ms", age.map(|age_ms| age_ms.to_string())),
            ("within_ms", within.map(|within_ms| within_ms.to_string())),
        ];
        let said = members.into_iter();
        let said = said.filter_map(|(name, json)| Some(format!(r#","{name}":{}"#, json?)));
        Self::encode(seq.0, &said.collect::<String>(), envelope)
    }

    /// The frame's text.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }
}

/// What a broker says of a delivery to one recipient.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remarks {
    /// It delivered the message before, on another connection of this name.
    pub again: bool,
    /// The name that it was sent to, where that leads to this peer and is not its own.
    pub alias: Option<PeerName>,
    /// The token that the sender's name belongs to, where that is not the recipient's.
    pub token: Option<TokenName>,
    /// That token has the right to approve.
    pub approves: bool,
    /// How long ago the message was accepted, in milliseconds of the broker's clock; said from
    /// [`crate::limits::AGE_MS_MIN`] on, and 0 when the broker does not say.
    pub age_ms: u64,
    /// It is a request: its result is wanted within so many milliseconds from now; 0: it is none.
    pub within_ms: u64,
}

/// A received deliver frame, decoded.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The key to ack.
    pub key: DeliveryKey,
    /// The envelope as decoded, not yet verified.
    pub envelope: Decoded,
    /// What the broker says of it.
    pub remarks: Remarks,
}

/// A frame that an adapter receives.
#[derive(Debug, Clone)]
pub enum Received {
    /// Handshake ack, and answer to `peers`.
    Peers(PeersFrame),
    /// A message.
    Deliver(Box<Delivery>),
    /// `ext`: statements about messages that this client sent.
    Receipts(Vec<Receipt>),
    /// `ext`: a delivery is not this client's any more.
    Recall(Recall),
    /// `ext`: the answer to a rename.
    Renamed(NameAnswer),
    /// `ext`: the answer to a retirement.
    Retired(NameAnswer),
    /// To a bridge: what it has forwarded that has not ended, a part of that.
    Forwarded(Vec<Forwarded>),
    /// The answer to [`ClientFrame::Join`].
    Joined(JoinGrant),
    /// Anything else: ignored.
    Unknown,
}
