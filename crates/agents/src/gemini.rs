//! Gemini CLI, Google's.

use crate::{Acp, Agent, Base, File, Fixed, Part, Proof, ServerEntry};

pub(crate) const AGENT: Agent = Agent {
    word: "gemini",
    title: "Gemini CLI",
    client_info: &["gemini-cli"],
    takes_dots: false,
    acp: Some(&Acp {
        command: &["gemini", "--acp"],
        proof: Proof::Quota,
        mode: Some("default"),
        unasked: "",
        ..Acp::UNKNOWN
    }),
    files: &[File {
        user: Base {
            variable: "GEMINI_CLI_HOME",
            below_home: "",
        },
        user_names: &[".gemini/settings.json"],
        project_names: &[".gemini/settings.json"],
        part: Part::Server(ServerEntry {
            unasked: &[("trust", Fixed::Flag(true))],
            ..ServerEntry::USUAL
        }),
    }],
    ..Agent::UNKNOWN
};
