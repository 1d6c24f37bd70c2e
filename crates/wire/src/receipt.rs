//! Receipts: what became of a message, said to its sender.

use serde::{Deserialize, Serialize};

use crate::ids::{DeliveryKey, MessageId};

/// One statement about one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The message's id, as its sender gave it.
    pub id: MessageId,
    /// What became of it.
    pub state: State,
    /// Present on statements that the broker keeps until they are acked like a delivery
    /// (`expired` and `dead`); ack this key once the statement has been passed on.
    pub key: Option<DeliveryKey>,
    /// When it came to be, in milliseconds since the epoch on the broker's wall clock.
    pub at_ms: Option<u64>,
}

/// How far a message got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The broker has it on disk.
    Accepted {
        /// Number of recipients it is owed to.
        recipients: u32,
        /// How many of those are connected now.
        online: u32,
        /// The same bytes were accepted under this id before; nothing was queued again.
        duplicate: bool,
    },
    /// The broker did not take it; nothing was queued.
    Refused(Refusal),
    /// An adapter of `to` holds it, not yet acked.
    Delivered {
        /// The recipient.
        to: String,
    },
    /// It was handed to the agent's runtime, not yet acked.
    Pushed {
        /// The recipient.
        to: String,
        /// The wake path, such as `channel`.
        path: String,
    },
    /// Its text is in the agent's conversation, not yet acked.
    Presented {
        /// The recipient.
        to: String,
        /// The path by which it went, such as `hook`.
        path: String,
    },
    /// It waits at the recipient, for a reason.
    Held {
        /// The recipient.
        to: String,
        /// Why, as a sentence.
        reason: String,
    },
    /// `to` acked it.
    Acked {
        /// The recipient.
        to: String,
        /// What the ack says; `None` when it says nothing (every v1 client): acked, not proven.
        how: Option<How>,
    },
    /// It was never acked and is not owed to `to` any more.
    Expired {
        /// The recipient.
        to: String,
        /// Why, as a sentence.
        reason: String,
    },
    /// `to` rejected it: its verification failed. Kept for the operator.
    Dead {
        /// The recipient.
        to: String,
        /// Why, as a sentence.
        reason: String,
    },
    /// Answer to `status`: still owed to `to`, which does not hold it now.
    Queued {
        /// The recipient.
        to: String,
    },
    /// Answer to `status`: so many deliveries are settled, and how is not known any more.
    Settled {
        /// How many.
        recipients: u32,
    },
    /// Answer to `status`: this broker does not (or does not any more) know the id.
    Unknown,
}

impl State {
    /// The recipient that it is about, if it is about one.
    #[must_use]
    pub fn to(&self) -> Option<&str> {
        match self {
            Self::Delivered { to }
            | Self::Pushed { to, .. }
            | Self::Presented { to, .. }
            | Self::Held { to, .. }
            | Self::Acked { to, .. }
            | Self::Expired { to, .. }
            | Self::Dead { to, .. }
            | Self::Queued { to } => Some(to),
            Self::Accepted { .. } | Self::Refused(_) | Self::Settled { .. } | Self::Unknown => None,
        }
    }
}

/// A step of a message at its recipient that is no ack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It was handed to the agent's runtime.
    Pushed {
        /// The wake path, such as `channel`.
        path: String,
    },
    /// Its text is in the agent's conversation.
    Presented {
        /// The path by which it went, such as `hook`.
        path: String,
    },
    /// It is held back.
    Held {
        /// Why, as a sentence; empty when there is nothing to say.
        reason: String,
    },
}

impl Progress {
    /// What the sender is told.
    #[must_use]
    pub fn state(self, to: String) -> State {
        match self {
            Self::Pushed { path } => State::Pushed { to, path },
            Self::Presented { path } => State::Presented { to, path },
            Self::Held { reason } => State::Held { to, reason },
        }
    }
}

/// What an ack claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum How {
    /// Handed to the agent's runtime over `path`; nothing is proven.
    Pushed {
        /// The wake path, such as `channel`.
        path: String,
    },
    /// The model got it.
    Seen {
        /// The path by which it went, such as `drain`.
        path: String,
        /// What shows it, such as `tool_result`.
        evidence: String,
    },
}

/// Why the broker did not take a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people and agents: a sentence that names the thing, what was found and the remedy.
    pub reason: String,
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The envelope breaks a rule of form.
    Invalid,
    /// `from` is not the name of the connection.
    From,
    /// Nobody holds or has held the name in `to`.
    UnknownRecipient,
    /// The id was used before for something else.
    IdReused,
    /// The canonical envelope does not fit a deliver frame.
    TooLarge,
    /// The recipient's queue is full.
    QueueFull,
}

impl RefusalCode {
    const ALL: [Self; 6] = [
        Self::Invalid,
        Self::From,
        Self::UnknownRecipient,
        Self::IdReused,
        Self::TooLarge,
        Self::QueueFull,
    ];

    /// The code on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::From => "from",
            Self::UnknownRecipient => "unknown_recipient",
            Self::IdReused => "id_reused",
            Self::TooLarge => "too_large",
            Self::QueueFull => "queue_full",
        }
    }

    /// Reads a code; one that is not known counts as [`RefusalCode::Invalid`].
    pub(crate) fn parse(text: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|code| code.as_str() == text)
            .unwrap_or(Self::Invalid)
    }
}
