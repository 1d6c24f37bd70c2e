//! What an adapter is, and who its client is.

use peerbus_adapter::groups;

/// What an agent is told about the bus, by how its client names itself (`clientInfo.name`).
pub type Instructions = Box<dyn Fn(&str) -> &'static str + Send + Sync>;

/// What an adapter is, to its client and to its peers.
pub struct Profile {
    /// The kind of adapter, as peers are told: `cc` or `generic`.
    pub kind: &'static str,
    /// What the agent is told about the bus.
    pub instructions: Instructions,
    /// Keys under `experimental` in the capabilities, each with an empty object.
    pub experimental: &'static [&'static str],
    /// There is a drain tool.
    pub drain: bool,
    /// The tools are allowed in any case: none is said to reach beyond the session, for which some
    /// clients ask their user.
    pub allowed: bool,
    /// This process runs the client, and a person sees this one.
    pub driven: bool,
}

impl Profile {
    /// What the agent of a client is told about the bus, and about the group of its project where that
    /// is not called as its directory.
    #[must_use]
    pub fn instruct(&self, client: &str) -> String {
        let general = (self.instructions)(client);
        let told = groups::told(|name| std::env::var(name).ok());
        match told.filter(|_| !general.is_empty()) {
            Some(told) => format!("{general}\n{told}."),
            None => general.to_owned(),
        }
    }
}

/// Who the client says it is. Its own word, of any length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// `clientInfo.name`
    pub name: String,
    /// `clientInfo.version`
    pub version: String,
}
