//! Copilot CLI, GitHub's.

use crate::{
    Acp, Agent, Base, File, Fixed, Note, Part, Program, Proof, Requirement, ServerEntry, Sign,
};

const HOME: Base = Base {
    variable: "COPILOT_HOME",
    below_home: ".copilot",
};

/// Runs beside it, as a process that it starts.
const EXTENSION: &str = concat!(
    "// Wakes sessions of Copilot CLI when a peer has written. `peerbus install copilot` wrote this\n",
    "// file, and `peerbus uninstall copilot` takes it away. It hands texts on as they are.\n\n",
    "import { joinSession } from \"@github/copilot-sdk/extension\"\n",
    include_str!("plugins/link.js"),
    include_str!("plugins/copilot.mjs"),
);

pub(crate) const AGENT: Agent = Agent {
    word: "copilot",
    title: "Copilot CLI",
    client_info: &["copilot", "github-copilot"],
    takes_dots: false,
    acp: Some(&Acp {
        command: &["copilot", "--acp", "--stdio"],
        proof: Proof::Usage,
        unasked: "",
        ..Acp::UNKNOWN
    }),
    session_variable: Some("COPILOT_AGENT_SESSION_ID"),
    files: &[
        File {
            user: HOME,
            user_names: &["mcp-config.json"],
            project_names: &[".github/mcp.json"],
            part: Part::Server(ServerEntry {
                before: &[("type", Fixed::Text("local"))],
                after: &[("tools", Fixed::Texts(&["*"]))],
                ..ServerEntry::USUAL
            }),
        },
        File {
            user: HOME,
            user_names: &["extensions/peerbus/extension.mjs"],
            project_names: &[".github/extensions/peerbus/extension.mjs"],
            part: Part::Whole(Program {
                text: EXTENSION,
                does: "is there, and wakes sessions that began with it",
                optional: false,
                needs: Some(Requirement {
                    sign: Sign::Switch(HOME, "settings.json", "experimental"),
                    without: "Copilot CLI runs it only with its experimental features, which are \
                              not switched on",
                    remedy: "start Copilot once with `copilot --experimental`: it remembers that",
                }),
            }),
        },
    ],
    notes: &[
        Note::new(
            None,
            "tell Copilot in your own instructions to use the bus: it does not show its model the \
             server's",
        ),
        Note::new(
            None,
            "start Copilot once with `copilot --experimental`, which it remembers: without that no \
             extension is loaded, and nothing wakes its sessions",
        ),
        Note {
            scope: None,
            beside: Some(".mcp.json"),
            asks: false,
            text: "note: .mcp.json here has peerbus for Claude Code, and Copilot takes that one",
        },
    ],
    ..Agent::UNKNOWN
};
