//! What the editor has of its own at the agent, beside the sessions that are peers. Pure.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use peerbus_wire::jsonrpc::RpcMessage;
use serde_json::value::RawValue;

use crate::acp::lines::members;

/// Sessions of the editor's, and turns in those that are no peers, that are remembered.
const EDITORS_MAX: usize = 65_536;

/// What the editor has of its own at the agent.
#[derive(Default)]
pub(super) struct Editors {
    /// The ids of its sessions, as hashes.
    sessions: HashSet<u64>,
    /// Its prompts in sessions that are no peers.
    prompts: BTreeSet<String>,
}

impl Editors {
    fn hash(session: &str) -> u64 {
        let mut hash = DefaultHasher::new();
        session.hash(&mut hash);
        hash.finish()
    }

    /// A session is the editor's.
    pub(super) fn names(&mut self, session: Option<&str>) {
        if let Some(session) = session.filter(|_| self.sessions.len() < EDITORS_MAX) {
            self.sessions.insert(Self::hash(session));
        }
    }

    /// It prompts in one that is no peer.
    pub(super) fn begins(&mut self, prompt: String) {
        if self.prompts.len() < EDITORS_MAX {
            self.prompts.insert(prompt);
        }
    }

    /// The agent answers it.
    pub(super) fn answered(&mut self, id: &str, message: &RpcMessage) {
        self.prompts.remove(id);
        let result = message.result.as_deref().map_or("", RawValue::get);
        let [session] = members(result, ["sessionId"]);
        let session = session.and_then(|session| serde_json::from_str::<String>(session).ok());
        self.names(session.as_deref());
    }

    pub(super) fn has(&self, session: &str) -> bool {
        self.sessions.contains(&Self::hash(session))
    }

    /// Whether one that is not known here may ask in a turn of the editor's.
    pub(super) fn may_ask(&self) -> bool {
        !self.prompts.is_empty() || self.sessions.len() == EDITORS_MAX
    }
}
