//! Why the broker closes a connection: a WebSocket close code and a text for each reason.

use crate::name::NameError;

/// How the text for a name begins that its token may not register; the names that it may follow.
pub const NAME_FORBIDDEN: &str = "name not allowed to this token: it may have ";

/// How the text for a name begins that is kept for another token; that token's name follows.
pub const NAME_KEPT: &str = "name kept for the token ";

/// A reason for which the broker closes a connection.
///
/// The first seven are v1's, with v1's texts; v1 adapters compare
/// `name claimed under a different token` to decide to pick another name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// The first message was binary.
    HandshakeNotText,
    /// The first message was not a JSON object, or a member of `register` has the wrong type.
    HandshakeMalformed,
    /// The first frame was something else than `register`.
    FirstFrameNotRegister,
    /// `protocol_version` is not [`crate::PROTOCOL_VERSION`].
    UnsupportedVersion,
    /// `name` is absent or empty.
    EmptyName,
    /// `token` is none of the broker's.
    InvalidToken,
    /// The name belongs to another token.
    NameClaimed,
    /// The name breaks the rules for names.
    InvalidName(NameError),
    /// A live connection with an instance of its own holds the name.
    NameInUse,
    /// As [`Self::NameInUse`], said to a client that has an instance too, with who holds the name.
    NameHeld {
        /// What the holder says of itself, escaped; cut to fit a close frame.
        by: String,
    },
    /// An ephemeral registration asked for a name that is known.
    NameKnown,
    /// A newer connection took the name over.
    TakenOver,
    /// The name has ended for good.
    NameEnded,
    /// A message was larger than [`crate::limits::FRAME_BYTES_MAX`].
    TooLarge,
    /// The first message was larger than [`crate::limits::REGISTER_BYTES_MAX`].
    RegisterTooLarge,
    /// No complete `register` within the handshake deadline.
    HandshakeTimeout,
    /// The connection did not answer pings.
    Unresponsive,
    /// The connection does not read what it is sent.
    TooSlow,
    /// The token may not register the name.
    NameForbidden {
        /// The names that it may register.
        allowed: String,
    },
    /// The name is kept for another token.
    NameKept {
        /// What that one is called.
        token: String,
    },
    /// It may not be a bridge, or not to this domain.
    NoBridge {
        /// Why, as a clause.
        why: String,
    },
    /// The token was revoked while it was connected.
    TokenRevoked,
    /// The token's time is over.
    TokenExpired,
    /// The token has as many names as it may, and none that could go.
    TokenNames,
    /// The token has as many connections as it may.
    TokenConnections,
    /// The broker holds as many connections, or knows as many names, as it may.
    Full,
    /// The broker is shutting down.
    GoingAway,
    /// The broker's storage failed.
    StorageFailed,
}

impl CloseReason {
    /// The WebSocket close code (RFC 6455 §7.4; 4000-4999 are private to the application).
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::HandshakeNotText => 1003,
            Self::HandshakeMalformed => 1007,
            Self::FirstFrameNotRegister
            | Self::UnsupportedVersion
            | Self::EmptyName
            | Self::InvalidToken
            | Self::NameClaimed
            | Self::InvalidName(_)
            | Self::NameInUse
            | Self::NameHeld { .. }
            | Self::NameForbidden { .. }
            | Self::NameKept { .. }
            | Self::NoBridge { .. }
            | Self::NameKnown => 1008,
            Self::TooLarge | Self::RegisterTooLarge => 1009,
            Self::GoingAway => 1001,
            Self::StorageFailed => 1011,
            Self::Full | Self::TokenNames | Self::TokenConnections => 1013,
            Self::TakenOver => 4000,
            Self::HandshakeTimeout => 4001,
            Self::Unresponsive => 4002,
            Self::TooSlow => 4003,
            Self::NameEnded => 4004,
            Self::TokenRevoked | Self::TokenExpired => 4005,
        }
    }

    /// The text of the close frame, at most 123 bytes.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::HandshakeNotText => "handshake must be text".into(),
            Self::HandshakeMalformed => "malformed handshake".into(),
            Self::FirstFrameNotRegister => "first frame must be register".into(),
            Self::UnsupportedVersion => "unsupported protocol version".into(),
            Self::EmptyName => "empty peer name".into(),
            Self::InvalidToken => "invalid bearer token".into(),
            Self::NameClaimed => "name claimed under a different token".into(),
            Self::InvalidName(error) => error.to_string(),
            Self::NameInUse => "name in use".into(),
            Self::NameHeld { by } => format!("name in use by {}", crate::text::cut(by, 100)),
            Self::NameKnown => "name is registered; an ephemeral peer needs an unused one".into(),
            Self::TakenOver => "name taken over by a newer connection".into(),
            Self::NameEnded => "name has ended for good".into(),
            Self::TooLarge => "frame larger than 1048576 bytes".into(),
            Self::RegisterTooLarge => "first frame larger than 4096 bytes".into(),
            Self::HandshakeTimeout => "no register frame within the handshake deadline".into(),
            Self::Unresponsive => "no answer to ping".into(),
            Self::TooSlow => "connection does not read what it is sent".into(),
            Self::NameForbidden { allowed } => {
                let allowed = crate::text::cut(allowed, 75);
                format!("{NAME_FORBIDDEN}{allowed}")
            }
            Self::NameKept { token } => format!("{NAME_KEPT}{token}; choose another one"),
            Self::NoBridge { why } => format!("cannot bridge: {}", crate::text::cut(why, 100)),
            Self::TokenRevoked => "token was revoked".into(),
            Self::TokenExpired => "token has expired".into(),
            Self::TokenNames => {
                "token is at its limit of names, and each is in use or has mail".into()
            }
            Self::TokenConnections => "token is at its limit of connections".into(),
            Self::Full => "broker is at its limit of connections or names".into(),
            Self::GoingAway => "broker is shutting down".into(),
            Self::StorageFailed => "broker storage failed".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_fits_a_close_frame() {
        let long = NameError::Character {
            found: '\u{10ffff}',
        };
        for reason in [
            CloseReason::InvalidName(long),
            CloseReason::InvalidName(NameError::TooLong { bytes: usize::MAX }),
            CloseReason::InvalidName(NameError::Reserved),
            CloseReason::NameKnown,
            CloseReason::NameHeld {
                by: "é".repeat(200),
            },
            CloseReason::NameForbidden {
                allowed: "build-*, ".repeat(20),
            },
            CloseReason::NameKept {
                token: "t".repeat(32),
            },
            CloseReason::TokenNames,
        ] {
            assert!(reason.text().len() <= 123, "{}", reason.text());
        }
    }
}
