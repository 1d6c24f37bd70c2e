//! Codex, OpenAI's. Names as seen in November 2026.

use crate::{Acp, Agent, Base, File, Fixed, Format, Note, Part, Proof, Scope, ServerEntry};

pub(crate) const AGENT: Agent = Agent {
    word: "codex",
    title: "Codex",
    client_info: &["codex"],
    takes_dots: false,
    acp: Some(&Acp {
        command: &["codex-acp"],
        proof: Proof::MessageId,
        mode: Some("workspace-write"),
        wrappers: 1,
        unasked: "it edits files of its workspace unasked",
        ..Acp::UNKNOWN
    }),
    files: &[File {
        user: Base {
            variable: "CODEX_HOME",
            below_home: ".codex",
        },
        user_names: &["config.toml"],
        project_names: &[".codex/config.toml"],
        part: Part::Server(ServerEntry {
            format: Format::Toml,
            table: "mcp_servers",
            after: &[("env_vars", Fixed::Texts(&HANDED_ON))],
            unasked: &[("default_tools_approval_mode", Fixed::Text("approve"))],
            ..ServerEntry::USUAL
        }),
    }],
    reads_upwards: true,
    notes: &[
        Note::new(
            Some(Scope::Project),
            "trust the project in Codex: it reads .codex/config.toml only then",
        ),
        Note {
            asks: true,
            ..Note::new(
                Some(Scope::User),
                "Codex asks before a tool that sends; `peerbus install codex --allow` ends that",
            )
        },
    ],
    ..Agent::UNKNOWN
};

/// What it must hand on of its environment, which it otherwise cleans.
const HANDED_ON: [&str; 22] = [
    "CODEX_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "PEERBUS_URL",
    "PEERBUS_CA",
    "PEERBUS_CLIENT_CERT",
    "PEERBUS_CLIENT_KEY",
    "PEERBUS_NAME",
    "PEERBUS_GROUPS",
    "PEERBUS_TOKEN",
    "PEERBUS_HMAC_SECRET",
    "PEERBUS_HMAC_SECRET_ALSO",
    "PEERBUS_LOG",
    "PEERBUS_ACK",
    "PEERBUS_BUDGET",
    "PEERBUS_REMIND",
    "PEERBUS_FROM",
    "PEERBUS_TOOL_NAMES",
    "PEERBUS_WAKE",
    "PEERBUS_AUTOSTART",
    "CI",
];
