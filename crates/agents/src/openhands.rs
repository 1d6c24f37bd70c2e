//! OpenHands, All Hands AI's.

use crate::{Acp, Agent, Proof};

pub(crate) const AGENT: Agent = Agent {
    word: "openhands",
    title: "OpenHands",
    acp: Some(&Acp {
        command: &["openhands", "acp"],
        proof: Proof::Words,
        unasked: "",
        ..Acp::UNKNOWN
    }),
    ..Agent::UNKNOWN
};
