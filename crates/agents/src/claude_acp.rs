//! Claude Code behind `claude-agent-acp`.

use crate::{Acp, Agent, Proof};

pub(crate) const AGENT: Agent = Agent {
    word: "claude-acp",
    title: "Claude Agent",
    // The Claude Code in it.
    client_info: &["claude-code"],
    acp: Some(&Acp {
        command: &["claude-agent-acp"],
        mode: Some("default"),
        proof: Proof::MessageId,
        wrappers: 1,
        unasked: "",
        ..Acp::UNKNOWN
    }),
    ..Agent::UNKNOWN
};
