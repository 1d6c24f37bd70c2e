//! What in Claude Code's own files keeps peerbus from working.

use std::path::{Path, PathBuf};

use peerbus_agents::claude_code;
use serde_json::Value;

use super::report::Report;
use crate::install::targets::Want;
use crate::install::{edit, unasked};

/// A project's servers that its user declined.
const DECLINED: &str = "disabledMcpjsonServers";

/// Looks at a user's files and at those of the project in `here`.
pub(super) fn check(here: &Path, hooked: bool, report: &mut Report) {
    let word = claude_code::AGENT.word;
    let settings = claude_code::settings_files(here).into_iter();
    let settings: Vec<_> = settings
        .filter_map(|path| Some((value(&path)?, path)))
        .collect();
    for (read, path) in &settings {
        silenced_by(read, path, report);
    }
    if !settings.iter().any(|(read, _)| unasked::is_in(read)) {
        report.ok(
            word,
            "it asks before each call of a bus tool: `peerbus install claude-code --allow` ends that",
        );
    }
    let plugin = settings.iter().any(|(read, _)| has_plugin(read));
    if plugin && hooked {
        report.warning(
            word,
            "the plugin and the hooks in the settings are both there: each runs twice",
            "`peerbus uninstall claude-code`, or remove the plugin",
        );
    } else if !plugin && !hooked {
        report.warning(
            word,
            "the hooks are not installed: what a session's own socket does not take waits for a \
             tool call",
            "`peerbus install claude-code`",
        );
    }
    if is_switched_off(here) {
        report.failed(
            word,
            "the server peerbus is switched off for this project",
            "switch it on in Claude Code: /mcp",
        );
    }
}

/// Whether a list of servers has ours.
fn names_ours(lists: &Value, list: &str) -> bool {
    let names = lists.get(list).and_then(Value::as_array);
    names.is_some_and(|names| names.contains(&Value::from("peerbus")))
}

fn silenced_by(settings: &Value, path: &Path, report: &mut Report) {
    let (word, path) = (claude_code::AGENT.word, path.display());
    if settings.get("disableAllHooks") == Some(&Value::Bool(true)) {
        report.failed(
            word,
            format!("{path} has `disableAllHooks`: no hook of peerbus runs"),
            "remove that line, or live with the session's own socket and channels alone",
        );
    }
    if names_ours(settings, DECLINED) {
        report.failed(
            word,
            format!("{path} has peerbus in `{DECLINED}`: it was declined when Claude Code asked"),
            "take it out of that list and start Claude Code anew; then choose `Use this MCP \
             server` (Enter alone declines)",
        );
    }
    let stance = settings.get("crossSessionInbound").and_then(Value::as_str);
    if let Some(stance @ ("refuse" | "hold")) = stance {
        report.warning(
            word,
            format!("{path} has `crossSessionInbound: {stance}`: sessions take no pushes unasked"),
            "set it to `accept` if peers may wake your sessions",
        );
    }
}

fn has_plugin(settings: &Value) -> bool {
    let plugins = settings.get("enabledPlugins").and_then(Value::as_object);
    let mut plugins = plugins.into_iter().flatten();
    plugins.any(|(name, on)| name.starts_with("peerbus@") && on != &Value::Bool(false))
}

fn is_switched_off(here: &Path) -> bool {
    let state = claude_code::state_file().and_then(|file: PathBuf| value(&file));
    let here = here.to_string_lossy();
    let project = state.as_ref();
    let project = project.and_then(|state| state.get("projects")?.get(here.as_ref()));
    project.is_some_and(|lists| {
        let lists = ["disabledMcpServers", DECLINED].map(|list| names_ours(lists, list));
        lists.contains(&true)
    })
}

/// A file of JSON, if it is there and can be read.
fn value(path: &Path) -> Option<Value> {
    let (_, found) = edit::load(&Want::Hooks(Vec::new(), false), path).ok()??;
    Some(found)
}
