//! Why something that a user asked for could not be done.

use std::fmt;

use crate::{BusError, ConfigError, SendError};

/// Why a verb failed, which decides the exit code.
#[derive(Debug)]
pub enum Failure {
    /// It was tried and did not work: exit code 1.
    Failed(String),
    /// It cannot be tried as it was asked for: exit code 2.
    Config(String),
    /// Whoever reads our output has gone, and has enough: exit code 0, nothing to say.
    OutputClosed,
}

impl Failure {
    /// Something that was tried and did not work.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }

    /// Something that cannot be tried.
    pub fn config(why: impl fmt::Display) -> Self {
        Self::Config(why.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) | Self::Config(why) => f.write_str(why),
            Self::OutputClosed => f.write_str("whoever reads the output has gone"),
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        match error {
            SendError::InvalidRecipient(_) | SendError::InvalidBody(_) | SendError::TooLarge(_) => {
                Self::config(error)
            }
            _ => Self::failed(error),
        }
    }
}

impl From<BusError> for Failure {
    fn from(error: BusError) -> Self {
        Self::failed(error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::config(error)
    }
}

/// Of writing to stdout: no other error is turned into this without a sentence.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::failed(format!("cannot write to stdout: {error}"))
        }
    }
}
