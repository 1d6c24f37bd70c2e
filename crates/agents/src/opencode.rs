//! OpenCode.

use crate::{
    Acp, Agent, Base, File, Fixed, Note, Part, Program, Proof, Requirement, ServerEntry, Sign,
};

const CONFIG: Base = Base {
    variable: "XDG_CONFIG_HOME",
    below_home: ".config",
};

/// Runs in its process.
const PLUGIN: &str = concat!(
    "// Wakes sessions of OpenCode when a peer has written. `peerbus install opencode` wrote this\n",
    "// file, and `peerbus uninstall opencode` takes it away. It hands texts on as they are.\n\n",
    include_str!("plugins/link.js"),
    include_str!("plugins/opencode.js"),
);

pub(crate) const AGENT: Agent = Agent {
    word: "opencode",
    title: "OpenCode",
    client_info: &["opencode"],
    takes_dots: false,
    acp: Some(&Acp {
        command: &["opencode", "acp"],
        proof: Proof::MessageId,
        unasked: "it asks for what its own configuration names alone, by default nothing",
        ..Acp::UNKNOWN
    }),
    files: &[
        File {
            user: CONFIG,
            user_names: &["opencode/opencode.jsonc", "opencode/opencode.json"],
            project_names: &["opencode.jsonc", "opencode.json"],
            part: Part::Server(ServerEntry {
                table: "mcp",
                before: &[
                    ("type", Fixed::Text("local")),
                    ("enabled", Fixed::Flag(true)),
                ],
                one_list: true,
                env: "environment",
                ..ServerEntry::USUAL
            }),
        },
        File {
            user: CONFIG,
            user_names: &["opencode/plugins/peerbus.js"],
            project_names: &[".opencode/plugins/peerbus.js"],
            part: Part::Whole(Program {
                text: PLUGIN,
                does: "is there, and wakes sessions that began with it",
                optional: false,
                needs: Some(Requirement {
                    sign: Sign::Beside("../node_modules"),
                    without: "OpenCode has not fetched yet what it wants beside a plugin, and each \
                              start without a network takes over a minute",
                    remedy: "start OpenCode once with a network",
                }),
            }),
        },
    ],
    reads_upwards: true,
    notes: &[Note::new(
        None,
        "start OpenCode once with a network: beside a plugin it fetches a package of its own from \
         npm, and each start takes over a minute where it cannot",
    )],
    ..Agent::UNKNOWN
};
