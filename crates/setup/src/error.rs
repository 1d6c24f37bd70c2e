//! Why something could not be done.

use std::fmt;

/// Why it could not be done.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// It was tried and did not work.
    #[error("{0}")]
    Failed(String),
    /// It cannot be tried as it was asked for.
    #[error("{0}")]
    Config(String),
}

impl SetupError {
    /// Something that was tried and did not work.
    pub(crate) fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }

    /// Something that cannot be tried.
    pub(crate) fn config(why: impl fmt::Display) -> Self {
        Self::Config(why.to_string())
    }
}

/// Something that keeps peerbus from working, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) says: String,
    pub(crate) remedy: String,
}
