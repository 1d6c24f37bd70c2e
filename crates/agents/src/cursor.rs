//! Cursor. Its form is documented by its maker and was not tried.

use crate::{Agent, Base, File, Part, ServerEntry};

pub(crate) const AGENT: Agent = Agent {
    word: "cursor",
    title: "Cursor",
    files: &[File {
        user: Base {
            variable: "",
            below_home: ".cursor",
        },
        user_names: &["mcp.json"],
        project_names: &[".cursor/mcp.json"],
        part: Part::Server(ServerEntry::USUAL),
    }],
    ..Agent::UNKNOWN
};
