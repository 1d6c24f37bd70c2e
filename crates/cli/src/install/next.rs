//! What is left for the user to do.

use super::clients::{Program, Scope, title};
use super::{naming, program};
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
    if let Some(name) = &called.name {
        steps.push(one_at_a_time(name));
    }
    steps.push("run `peerbus serve` if no broker runs yet, and `peerbus doctor` to check".into());
    for step in steps {
        output::say(&format!("- {step}"));
    }
}

/// What a name means for sessions beside each other.
fn one_at_a_time(name: &str) -> String {
    let alone = "only one session at a time can have that name, others wait for it; without --name \
                 each has its own";
    match naming::expanded(name, |_| None) {
        Ok(here) if here == name => format!("the name is {name}: {alone}"),
        Ok(here) => format!("the name is {here} for every session here: {alone}"),
        Err(why) => format!("warning: a session started here would not start: {why}"),
    }
}
