//! What an adapter is, and who its client is.

/// What an adapter is, to its client and to its peers.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The kind of adapter, as peers are told: `cc` or `generic`.
    pub kind: &'static str,
    /// What the agent is told about the bus.
    pub instructions: &'static str,
    /// Keys under `experimental` in the capabilities, each with an empty object.
    pub experimental: &'static [&'static str],
    /// There is a drain tool.
    pub drain: bool,
}

/// Who the client says it is.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) version: String,
}
