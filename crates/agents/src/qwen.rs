//! Qwen Code.

use crate::{Acp, Agent, Base, File, Fixed, Part, Proof, ServerEntry};

pub(crate) const AGENT: Agent = Agent {
    word: "qwen",
    title: "Qwen Code",
    client_info: &["qwen-cli"],
    takes_dots: false,
    acp: Some(&Acp {
        command: &["qwen", "--acp"],
        proof: Proof::Words,
        mode: Some("default"),
        wrappers: 1,
        unasked: "",
        finds_tools: "search for it with tool_search",
    }),
    session_variable: Some("QWEN_CODE_SESSION_ID"),
    project_variable: Some("QWEN_CODE_PROJECT_DIR"),
    files: &[File {
        user: Base {
            variable: "QWEN_HOME",
            below_home: ".qwen",
        },
        user_names: &["settings.json"],
        project_names: &[".qwen/settings.json"],
        part: Part::Server(ServerEntry {
            after: &[("alwaysLoadTools", Fixed::Flag(true))],
            unasked: &[("trust", Fixed::Flag(true))],
            ..ServerEntry::USUAL
        }),
    }],
    ..Agent::UNKNOWN
};
