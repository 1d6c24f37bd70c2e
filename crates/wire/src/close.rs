//! Why the broker closes a connection: a WebSocket close code and a text for each reason.

use crate::name::NameError;
use crate::text::cut;

/// How the text for a name begins that its token may not register; the names that it may follow.
pub const NAME_FORBIDDEN: &str = "name not allowed to this token: it may have ";

/// How the text for a name begins that is kept for another token; that token's name follows.
pub const NAME_KEPT: &str = "name kept for the token ";

/// Why a machine is not let in by an invitation. The last three are told to who has its secret alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinRefusal {
    /// No invitation has the secret, or none is taken here.
    Unknown,
    /// Its time is over.
    Expired,
    /// A machine has joined by it.
    Used,
    /// Another machine has asked by it.
    Taken,
    /// The broker could not do its part.
    Failed,
}

impl JoinRefusal {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Unknown,
        Self::Expired,
        Self::Used,
        Self::Taken,
        Self::Failed,
    ];

    /// Its word in the audit chain.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::Used => "used",
            Self::Taken => "taken",
            Self::Failed => "failed",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Unknown => "no invitation has this code",
            Self::Expired => "the time of this invitation is over",
            Self::Used => "this invitation was used",
            Self::Taken => "another join asked by this invitation first",
            Self::Failed => "the broker could not let this machine in; its log says why",
        }
    }
}

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
    /// The name is an old one of a program, and the newcomer says no program that it is.
    NameLeads {
        /// That one's present name.
        to: String,
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
    /// The machine is not let in by an invitation.
    NotJoined(JoinRefusal),
    /// The machine is let in by an invitation, and was told so.
    Joined,
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
        self.frame().0
    }

    /// The text of the close frame, at most 123 bytes.
    #[must_use]
    pub fn text(&self) -> String {
        self.frame().1
    }

    fn frame(&self) -> (u16, String) {
        let (code, text) = match self {
            Self::HandshakeNotText => (1003, "handshake must be text"),
            Self::HandshakeMalformed => (1007, "malformed handshake"),
            Self::FirstFrameNotRegister => (1008, "first frame must be register"),
            Self::UnsupportedVersion => (1008, "unsupported protocol version"),
            Self::EmptyName => (1008, "empty peer name"),
            Self::InvalidToken => (1008, "invalid bearer token"),
            Self::NameClaimed => (1008, "name claimed under a different token"),
            Self::InvalidName(error) => return (1008, error.to_string()),
            Self::NameInUse => (1008, "name in use"),
            Self::NameHeld { by } => return (1008, format!("name in use by {}", cut(by, 100))),
            Self::NameLeads { to } => {
                let to = cut(to, 64);
                return (
                    1008,
                    format!("name is an old one of {to}: choose another one"),
                );
            }
            Self::NameKnown => (
                1008,
                "name is registered; an ephemeral peer needs an unused one",
            ),
            Self::TakenOver => (4000, "name taken over by a newer connection"),
            Self::NameEnded => (4004, "name has ended for good"),
            Self::TooLarge => (1009, "frame larger than 1048576 bytes"),
            Self::RegisterTooLarge => (1009, "first frame larger than 4096 bytes"),
            Self::HandshakeTimeout => (4001, "no register frame within the handshake deadline"),
            Self::Unresponsive => (4002, "no answer to ping"),
            Self::TooSlow => (4003, "connection does not read what it is sent"),
            Self::NameForbidden { allowed } => {
                return (1008, format!("{NAME_FORBIDDEN}{}", cut(allowed, 75)));
            }
            Self::NameKept { token } => {
                return (1008, format!("{NAME_KEPT}{token}; choose another one"));
            }
            Self::NoBridge { why } => return (1008, format!("cannot bridge: {}", cut(why, 100))),
            Self::NotJoined(refusal) => (1008, refusal.text()),
            Self::Joined => (1000, "the machine is let in"),
            Self::TokenRevoked => (4005, "token was revoked"),
            Self::TokenExpired => (4005, "token has expired"),
            Self::TokenNames => (
                1013,
                "token is at its limit of names, and each is in use or has mail",
            ),
            Self::TokenConnections => (1013, "token is at its limit of connections"),
            Self::Full => (1013, "broker is at its limit of connections or names"),
            Self::GoingAway => (1001, "broker is shutting down"),
            Self::StorageFailed => (1011, "broker storage failed"),
        };
        (code, text.to_owned())
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
            CloseReason::NameLeads {
                to: "t".repeat(200),
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
