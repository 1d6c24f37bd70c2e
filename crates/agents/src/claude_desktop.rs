//! Claude Desktop and claude.ai. They document `^[a-zA-Z0-9_-]{1,64}$` for the names of tools.

use crate::Agent;

pub(crate) const AGENT: Agent = Agent {
    word: "claude-desktop",
    title: "Claude Desktop",
    client_info: &[
        "claude-ai",
        "claude ai",
        "claude.ai",
        "claude-desktop",
        "claude desktop",
    ],
    takes_dots: false,
    ..Agent::UNKNOWN
};
