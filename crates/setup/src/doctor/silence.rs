//! What in Claude Code's own files keeps peerbus from working, and the plugin that they may have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use peerbus_agents::claude_code;
use serde_json::Value;

use super::report::Report;
use crate::install::targets::Want;
use crate::install::{edit, program, unasked};

/// A project's servers that its user declined.
const DECLINED: &str = "disabledMcpjsonServers";

/// The settings that hold for sessions in a project, of those files that are there.
pub(super) struct Settings(Vec<(Value, PathBuf)>);

/// The plugin, where it is on.
pub(super) struct Plugin<'s> {
    /// As Claude Code knows it: `peerbus@MARKETPLACE`.
    id: &'s str,
    path: &'s Path,
}

impl Settings {
    /// Reads a user's files and those of the project in `here`.
    pub(super) fn read(here: &Path) -> Self {
        let files = claude_code::settings_files(here).into_iter();
        let read = files.filter_map(|path| Some((value(&path)?, path)));
        Self(read.collect())
    }

    /// The plugin, if it is on. What stands nearer to the session wins.
    pub(super) fn plugin(&self) -> Option<Plugin<'_>> {
        let mut on = BTreeMap::new();
        for (read, path) in &self.0 {
            let plugins = read.get("enabledPlugins").and_then(Value::as_object);
            for (id, switch) in plugins.into_iter().flatten() {
                if id.starts_with(claude_code::PLUGIN) {
                    on.insert(id.as_str(), (switch != &Value::Bool(false), path));
                }
            }
        }
        let found = on.into_iter().find(|(_, (on, _))| *on);
        found.map(|(id, (_, path))| Plugin { id, path })
    }
}

impl Plugin<'_> {
    fn check(&self, report: &mut Report) {
        let (word, path) = (claude_code::AGENT.word, self.path.display());
        let id = self.id;
        let ours = env!("CARGO_PKG_VERSION");
        if program::which(program::NAME).is_none() {
            report.failed(
                word,
                format!("the plugin {id} in {path} starts `peerbus`, which is not on the PATH"),
                "put its directory on the PATH of your shells, or link it to one that is",
            );
        } else if let Some(other) = self.version().filter(|version| version != ours) {
            report.warning(
                word,
                format!("the plugin {id} is of version {other}; this is peerbus {ours}"),
                format!("`claude plugin update {id}`"),
            );
        } else {
            report.ok(word, format!("the plugin {id} is on ({path})"));
        }
    }

    /// Its version, where Claude Code says one.
    fn version(&self) -> Option<String> {
        let file = claude_code::config_dir()?.join("plugins/installed_plugins.json");
        let installed = value(&file)?;
        let newest = installed.get("plugins")?.get(self.id)?.as_array()?.last()?;
        Some(newest.get("version")?.as_str()?.to_owned())
    }
}

/// Looks at the settings of a user and of the project in `here`.
pub(super) fn check(settings: &Settings, here: &Path, hooked: bool, report: &mut Report) {
    let word = claude_code::AGENT.word;
    for (read, path) in &settings.0 {
        silenced_by(read, path, report);
    }
    let plugin = settings.plugin();
    if let Some(plugin) = &plugin {
        plugin.check(report);
    }
    let (rule, how) = match plugin {
        Some(_) => (
            claude_code::PLUGIN_UNASKED,
            format!(
                "`{}` in `permissions.allow` of its settings ends that",
                claude_code::PLUGIN_UNASKED
            ),
        ),
        None => (
            claude_code::UNASKED,
            "`peerbus install claude-code --allow` ends that".to_owned(),
        ),
    };
    if !settings
        .0
        .iter()
        .any(|(read, _)| unasked::allows(read, rule))
    {
        report.ok(
            word,
            format!("it asks before each call of a bus tool: {how}"),
        );
    }
    if plugin.is_some() && hooked {
        report.warning(
            word,
            "the plugin and the hooks in the settings are both there: each runs twice",
            "`peerbus uninstall claude-code`, or remove the plugin",
        );
    } else if plugin.is_none() && !hooked {
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
    let ours = ["peerbus", claude_code::PLUGIN_SERVER].map(Value::from);
    names.is_some_and(|names| ours.iter().any(|name| names.contains(name)))
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
