//! The errors of an install.

/// Something that keeps peerbus from working, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) says: String,
    pub(crate) remedy: String,
}
