//! What in Claude Code's own files keeps peerbus from working, and the plugin that they may have.

use std::path::{Path, PathBuf};

use peerbus_agents::claude_code::{self, PLUGIN_UNASKED, UNASKED};
use serde_json::Value;

use super::report::Report;
use super::{Context, entry};
use crate::install::edit::{self, Want};
use crate::install::policy::{Server, Settings};
use crate::install::{program, unasked};

/// A project's servers that its user declined.
const DECLINED: &str = "disabledMcpjsonServers";

/// Checks the plugin where it is on; `id`: as Claude Code knows it, `peerbus@MARKETPLACE`.
fn plugin(id: &str, path: &Path, report: &mut Report) {
    let (word, path) = (claude_code::AGENT.word, path.display());
    let ours = env!("CARGO_PKG_VERSION");
    let version = || {
        let installed = value(&claude_code::config_dir()?.join("plugins/installed_plugins.json"))?;
        let newest = installed.get("plugins")?.get(id)?.as_array()?.last()?;
        Some(newest.get("version")?.as_str()?.to_owned())
    };
    if program::which(program::NAME).is_none() {
        report.failed(
            word,
            format!("the plugin {id} in {path} starts `peerbus`, which is not on the PATH"),
            "put its directory on the PATH of your shells, or link it to one that is",
        );
    } else if let Some(other) = version().filter(|version| version != ours) {
        report.warning(
            word,
            format!("the plugin {id} is of version {other}; this is peerbus {ours}"),
            format!("`claude plugin update {id}`"),
        );
    } else {
        report.ok(word, format!("the plugin {id} is on ({path})"));
    }
}

/// What there is of ours in Claude Code's configuration.
pub(super) struct Ours {
    pub(super) servers: Vec<Server>,
    pub(super) hooked: bool,
    pub(super) module: bool,
}

pub(super) fn check(
    context: &Context,
    settings: &Settings,
    here: &Path,
    ours: &Ours,
    report: &mut Report,
) {
    let (word, hooked) = (claude_code::AGENT.word, ours.hooked);
    for forbidden in settings.forbidden(&ours.servers) {
        report.failed(word, forbidden.says, forbidden.remedy);
    }
    if let Some(refused) = settings.refuses_module().filter(|_| ours.module) {
        report.warning(word, refused.says, refused.remedy);
    }
    for file in &settings.files {
        declined(&file.value, &file.path, report);
    }
    inbound(settings, report);
    variables(context, settings, report);
    let on = settings.plugin();
    let (mut rule, mut how) = (UNASKED, "`peerbus install claude-code --allow`".to_owned());
    if let Some((id, path)) = on {
        plugin(id, path, report);
        rule = PLUGIN_UNASKED;
        how = format!("`{rule}` in `permissions.allow` of its settings");
    }
    let mut files = settings.files.iter();
    if !files.any(|file| unasked::allows(&file.value, rule)) {
        let says = format!("it asks before each call of a bus tool: {how} ends that");
        report.ok(word, says);
    }
    if on.is_some() && hooked {
        report.warning(
            word,
            "the plugin and the hooks in the settings are both there: each runs twice",
            "`peerbus uninstall claude-code`, or remove the plugin",
        );
    } else if on.is_none() && !hooked {
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

fn names_ours(lists: &Value, list: &str) -> bool {
    let names = lists.get(list).and_then(Value::as_array);
    let ours = ["peerbus", claude_code::PLUGIN_SERVER].map(Value::from);
    names.is_some_and(|names| ours.iter().any(|name| names.contains(name)))
}

fn declined(settings: &Value, path: &Path, report: &mut Report) {
    let (word, path) = (claude_code::AGENT.word, path.display());
    if names_ours(settings, DECLINED) {
        report.failed(
            word,
            format!("{path} has peerbus in `{DECLINED}`: it was declined when Claude Code asked"),
            "take it out of that list and start Claude Code anew; then choose `Use this MCP \
             server` (Enter alone declines)",
        );
    }
}

fn inbound(settings: &Settings, report: &mut Report) {
    let stance = settings.text("crossSessionInbound");
    if let Some((stance @ ("refuse" | "hold"), path)) = stance {
        let path = path.display();
        report.warning(
            claude_code::AGENT.word,
            format!("{path} has `crossSessionInbound: {stance}`: sessions take no pushes unasked"),
            "set it to `accept` if peers may wake your sessions",
        );
    }
}

/// Variables of ours that its sessions are given, and this process is not.
fn variables(context: &Context, settings: &Settings, report: &mut Report) {
    let word = claude_code::AGENT.word;
    let theirs = settings.variables();
    let env: serde_json::Map<_, _> = theirs
        .iter()
        .map(|(name, (value, _))| ((*name).to_owned(), Value::from(value.as_str())))
        .collect();
    let entry = serde_json::json!({ "env": env });
    let (_, faults) = entry::look(context, &entry, "");
    for fault in &faults {
        let says = format!("`env` in Claude Code's settings: {}", fault.says);
        report.failed(word, says, &fault.remedy);
    }
    for (name, (value, path)) in theirs {
        if std::env::var(name).is_ok_and(|own| own == *value) {
            continue;
        }
        // The others may hold a secret.
        let shown = match name {
            "PEERBUS_URL" | "PEERBUS_WAKE" | "PEERBUS_NAME" | "PEERBUS_GROUPS" => {
                format!("{name}={value}")
            }
            _ => name.to_owned(),
        };
        let means = match name {
            "PEERBUS_WAKE" if value.trim().eq_ignore_ascii_case("none") => {
                "nothing wakes its sessions"
            }
            "PEERBUS_URL" => "its sessions go to that broker, and this looked at another one",
            "PEERBUS_NAME" => "only one of its sessions at a time can have that name",
            _ => "it holds for its sessions, and not for what was looked at here",
        };
        let says = format!("{} has {shown} in `env`: {means}", path.display());
        let remedy = "take it out there, unless you want that";
        report.warning(word, says, remedy);
    }
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
    edit::value(&Want::Hooks(Vec::new(), false), path)
}
