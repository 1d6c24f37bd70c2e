//! Copilot CLI, GitHub's.

use crate::{Agent, Base, File, Fixed, Note, Part, Server};

/// What is known of it.
pub(crate) const AGENT: Agent = Agent {
    word: "copilot",
    title: "Copilot CLI",
    client_info: &["copilot", "github-copilot"],
    takes_dots: false,
    session_variable: Some("COPILOT_AGENT_SESSION_ID"),
    files: &[File {
        user: Base {
            variable: "COPILOT_HOME",
            below_home: ".copilot",
        },
        user_names: &["mcp-config.json"],
        project_names: &[".github/mcp.json"],
        part: Part::Server(Server {
            before: &[("type", Fixed::Text("local"))],
            after: &[("tools", Fixed::Texts(&["*"]))],
            ..Server::USUAL
        }),
    }],
    notes: &[
        Note::new(
            None,
            "tell Copilot in your own instructions to use the bus: it does not show its model the \
             server's",
        ),
        Note {
            scope: None,
            beside: Some(".mcp.json"),
            text: "note: .mcp.json here has peerbus for Claude Code, and Copilot takes that one",
        },
    ],
    ..Agent::UNKNOWN
};
