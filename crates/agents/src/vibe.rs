//! Vibe, Mistral AI's.

use crate::{Acp, Agent, Proof};

pub(crate) const AGENT: Agent = Agent {
    word: "vibe",
    title: "Vibe",
    takes_dots: false,
    acp: Some(&Acp {
        command: &["vibe-acp"],
        mode: Some("ask"),
        proof: Proof::MessageId,
        unasked: "",
        finds_tools: "search for it with search_tool_functions",
        ..Acp::UNKNOWN
    }),
    ..Agent::UNKNOWN
};
