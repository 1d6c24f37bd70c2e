//! Kimi Code, Moonshot AI's.

use crate::{Acp, Agent, Proof};

pub(crate) const AGENT: Agent = Agent {
    word: "kimi",
    title: "Kimi Code",
    client_info: &["kimi-code"],
    takes_dots: false,
    acp: Some(&Acp {
        command: &["kimi", "acp"],
        proof: Proof::Words,
        unasked: "it writes files in its project unasked",
        ..Acp::UNKNOWN
    }),
    ..Agent::UNKNOWN
};
