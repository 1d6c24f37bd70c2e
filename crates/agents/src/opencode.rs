//! OpenCode.

use crate::{Agent, Base, File, Fixed, Part, Server};

/// What is known of it.
pub(crate) const AGENT: Agent = Agent {
    word: "opencode",
    title: "OpenCode",
    client_info: &["opencode"],
    takes_dots: false,
    files: &[File {
        user: Base {
            variable: "XDG_CONFIG_HOME",
            below_home: ".config",
        },
        user_names: &["opencode/opencode.jsonc", "opencode/opencode.json"],
        project_names: &["opencode.jsonc", "opencode.json"],
        part: Part::Server(Server {
            table: "mcp",
            before: &[
                ("type", Fixed::Text("local")),
                ("enabled", Fixed::Flag(true)),
            ],
            one_list: true,
            env: "environment",
            ..Server::USUAL
        }),
    }],
    reads_upwards: true,
    ..Agent::UNKNOWN
};
