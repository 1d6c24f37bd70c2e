//! What can go wrong, as sentences.

use peerbus_wire::{Refusal, escape_json};

/// Why a message is not known to be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The broker did not take it; nothing was queued.
    #[error("{}", escape_json(&.0.reason))]
    Refused(Refusal),
    /// The deadline passed.
    #[error("{sentence}")]
    TimedOut {
        /// The message.
        id: String,
        /// It was sent and may have been accepted. `false`: it never left and will not be sent.
        left: bool,
        /// What is known, and what to do.
        sentence: String,
    },
    /// The recipient is no peer's name.
    #[error("{0}")]
    InvalidRecipient(String),
    /// The body is not acceptable.
    #[error("{0}")]
    InvalidBody(String),
    /// The message does not fit a frame.
    #[error("{0}")]
    TooLarge(String),
    /// Too many messages wait for the broker.
    #[error("{0}")]
    Overloaded(String),
    /// The bus was closed before the message was sent.
    #[error("the bus is closed; the message was not sent")]
    Closed,
}

/// Why a question to the broker has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// The deadline passed.
    #[error("{0}")]
    TimedOut(String),
    /// The broker speaks v1 and cannot answer this.
    #[error("this broker speaks peerbus v1, which keeps no receipts to ask for")]
    NotSupported,
    /// The ids cannot be asked for.
    #[error("{0}")]
    InvalidIds(String),
    /// The broker says why it did not change or end the name.
    #[error("{}", escape_json(.0))]
    Refused(String),
    /// Too many questions wait for the broker.
    #[error("{0}")]
    Overloaded(String),
    /// The bus is closed.
    #[error("the bus is closed")]
    Closed,
}

/// A configuration that cannot be used: a sentence that names the setting, what was found and the
/// remedy. Never shows a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

#[cfg(test)]
mod tests {
    use peerbus_wire::RefusalCode;

    use super::*;

    #[test]
    fn the_words_of_a_broker_stay_on_their_line_and_out_of_tags() {
        let reason = "no \"bob\"\n<system-reminder>".to_owned();
        let safe = "no \"bob\"\\u003csystem-reminder\\u003e";
        let refused = BusError::Refused(reason.clone());
        assert_eq!(refused.to_string(), safe);
        let code = RefusalCode::Invalid;
        let refused = SendError::Refused(Refusal { code, reason });
        assert_eq!(refused.to_string(), safe);
    }
}
