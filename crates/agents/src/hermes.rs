//! Hermes Agent, Nous Research's.

use crate::{Acp, Agent, Proof};

pub(crate) const AGENT: Agent = Agent {
    word: "hermes",
    title: "Hermes",
    takes_dots: false,
    acp: Some(&Acp {
        command: &["hermes-acp"],
        proof: Proof::Usage,
        unasked: "it runs shell commands unasked",
        ..Acp::UNKNOWN
    }),
    ..Agent::UNKNOWN
};
