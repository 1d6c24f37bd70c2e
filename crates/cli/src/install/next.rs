//! What is left for the user to do.

use super::clients::{Program, Scope, title};
use super::program;
use crate::args::Client;
use crate::output;

/// Says what comes next.
pub(crate) fn say(client: Client, scope: Scope, called: &Program) {
    let name = title(client);
    let mut steps = vec![format!(
        "start {name} anew: running sessions do not look again"
    )];
    match (client, scope) {
        (Client::ClaudeCode, Scope::Project) => {
            steps.push("approve the server `peerbus` when Claude Code asks, once a user".into());
        }
        (Client::Codex, Scope::Project) => {
            steps.push("trust the project in Codex: it reads .codex/config.toml only then".into());
        }
        (Client::Codex, _) => steps.push(
            "Codex asks before a tool that sends; `default_tools_approval_mode = \"approve\"` in \
             [mcp_servers.peerbus] ends that"
                .into(),
        ),
        (Client::Copilot, _) => {
            steps.push(
                "tell Copilot in your own instructions to use the bus: it does not show its model \
                 the server's"
                    .into(),
            );
            let shared = std::fs::read_to_string(".mcp.json").unwrap_or_default();
            if shared.contains("\"peerbus\"") {
                steps.push(
                    "note: .mcp.json here has peerbus for Claude Code, and Copilot takes that one"
                        .into(),
                );
            }
        }
        _ => {}
    }
    if scope == Scope::Project {
        let here = match program::on_path() {
            Some(_) => "",
            None => ", and it is not on your PATH",
        };
        steps.push(format!(
            "everybody who works on the project needs `peerbus` on the PATH{here}"
        ));
    }
    if let Some(fixed) = called.name.as_ref().filter(|name| !name.contains('{')) {
        steps.push(format!(
            "only one session at a time can be {fixed}; others wait for the name"
        ));
    }
    steps.push("run `peerbus serve` if no broker runs yet, and `peerbus doctor` to check".into());
    for step in steps {
        output::say(&format!("- {step}"));
    }
}
