//! What Claude Code's settings let take effect, in its order, of what stands in its configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use peerbus_agents::claude_code::{
    self, MANAGED_DIR, MANAGED_SERVERS, MODULE_PLUGIN, PLUGIN, managed_files,
};
use serde_json::Value;

use super::edit::Want;
use super::{edit, program};
use crate::error::Fault;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Its program and what it is told.
    pub(crate) words: Vec<String>,
}

impl Server {
    pub(crate) fn new(name: &str, words: Vec<String>) -> Self {
        let name = name.to_owned();
        Self { name, words }
    }

    /// That of the plugin.
    pub(crate) fn of_plugin() -> Self {
        let words = [program::NAME, "adapter", "--adapter=cc"];
        Self::new(
            claude_code::PLUGIN_SERVER,
            words.map(str::to_owned).to_vec(),
        )
    }
}

#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) value: Value,
    managed: bool,
}

impl File {
    fn list(&self, name: &str) -> Option<&Vec<Value>> {
        self.value.get(name)?.as_array()
    }

    /// Who changes it.
    fn remedy(&self, what: &str) -> String {
        match self.managed {
            true => format!("ask who manages this machine to {what}"),
            false => what.to_owned(),
        }
    }
}

/// The settings that hold for sessions in a project.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// Those that are there: what comes later has the last word.
    pub(crate) files: Vec<File>,
    /// The servers that are to be the only ones.
    servers: Option<File>,
    /// What was there and could not be read.
    unread: Vec<Fault>,
}

impl Settings {
    /// Reads a user's files, those of the project in `here`, and those of who manages the machine.
    pub(crate) fn read(here: &Path) -> Self {
        let mut settings = Self::default();
        let mut seen = Vec::new();
        for path in claude_code::settings_files(here) {
            // A home can be a project, too.
            let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            if seen.contains(&real) {
                continue;
            }
            seen.push(real);
            let installed = path.ends_with(claude_code::SETTINGS);
            let file = settings.load(path, false);
            settings.files.extend(file);
            if installed {
                // Install and doctor read it for itself, too, and say what is wrong with it.
                settings.unread.clear();
            }
        }
        let dir = Path::new(MANAGED_DIR);
        for path in managed_files(dir) {
            let file = settings.load(path, true);
            settings.files.extend(file);
        }
        settings.servers = settings.load(dir.join(MANAGED_SERVERS), true);
        settings
    }

    /// A file of JSON, if it is there and can be read.
    fn load(&mut self, path: PathBuf, managed: bool) -> Option<File> {
        let mut file = File {
            value: Value::Null,
            path,
            managed,
        };
        match edit::load(&Want::Hooks(Vec::new(), false), &file.path) {
            Ok(found) => {
                file.value = found?.1;
                Some(file)
            }
            Err(why) => {
                self.unread.push(Fault {
                    says: format!("{why}: whether peerbus may run is not known"),
                    remedy: file.remedy("correct it"),
                });
                None
            }
        }
    }

    /// A member, as the last that has it says, and where.
    fn last(&self, name: &str, managed: bool) -> Option<(&Value, &File)> {
        let files = self.files.iter().rev();
        let mut files = files.filter(|file| file.managed || !managed);
        files.find_map(|file| Some((file.value.get(name)?, file)))
    }

    /// The file in which a switch is on that counts.
    fn on(&self, name: &str, managed: bool) -> Option<&File> {
        let found = self.last(name, managed);
        found.and_then(|(value, file)| (value == &Value::Bool(true)).then_some(file))
    }

    pub(crate) fn text(&self, name: &str) -> Option<(&str, &Path)> {
        let (value, file) = self.last(name, false)?;
        Some((value.as_str()?, &file.path))
    }

    pub(crate) fn variables(&self) -> BTreeMap<&str, (String, &Path)> {
        let mut all = BTreeMap::new();
        for file in &self.files {
            let env = file.value.get("env").and_then(Value::as_object);
            for (name, value) in env.into_iter().flatten() {
                let value = match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                if name.starts_with("PEERBUS_") {
                    all.insert(name.as_str(), (value, file.path.as_path()));
                }
            }
        }
        all
    }

    pub(crate) fn plugin(&self) -> Option<(&str, &Path)> {
        let mut on = BTreeMap::new();
        for file in &self.files {
            let plugins = file.value.get("enabledPlugins").and_then(Value::as_object);
            for (id, switch) in plugins.into_iter().flatten() {
                if id.starts_with(PLUGIN) && id != MODULE_PLUGIN {
                    on.insert(id.as_str(), (switch != &Value::Bool(false), file));
                }
            }
        }
        let found = on.into_iter().find(|(_, (on, _))| *on);
        found.map(|(id, (_, file))| (id, file.path.as_path()))
    }

    pub(crate) fn forbidden(&self, servers: &[Server]) -> Vec<Fault> {
        let unread = self.unread.iter().cloned();
        let servers = servers.iter().filter_map(|server| self.forbids(server));
        unread.chain(self.forbids_hooks()).chain(servers).collect()
    }

    fn forbids_hooks(&self) -> Option<Fault> {
        let says = |file: &File, what: &str| {
            let path = file.path.display();
            format!("{path} has `{what}`: no hook of peerbus runs")
        };
        if let Some(file) = self.on("disableAllHooks", false) {
            let remedy = match file.managed {
                true => file.remedy("remove that line"),
                false => {
                    "remove that line, or live with the session's own socket and channels alone"
                        .to_owned()
                }
            };
            let says = says(file, "disableAllHooks");
            return Some(Fault { says, remedy });
        }
        let managed = |path: &Path| self.files.iter().any(|it| it.managed && it.path == path);
        if self.plugin().is_some_and(|(_, path)| managed(path)) {
            return None;
        }
        let (what, file) = match self.on("allowManagedHooksOnly", true) {
            Some(file) => ("allowManagedHooksOnly", file),
            None => (PLUGINS_ONLY, self.plugins_only("hooks")?),
        };
        Some(Fault {
            says: says(file, what),
            remedy: file.remedy("allow them, by the plugin in `enabledPlugins` there"),
        })
    }

    /// The setting that keeps Claude Code from loading the module. Where no hook runs, that is said already.
    pub(crate) fn refuses_module(&self) -> Option<Fault> {
        let last = |find: &dyn Fn(&File) -> Option<bool>, what: &str| {
            let found = self
                .files
                .iter()
                .rev()
                .find_map(|file| Some((find(file)?, file)));
            found.and_then(|(refuses, file)| refuses.then(|| (what.to_owned(), file)))
        };
        let off = |file: &File| {
            let switch = file.value.get("enabledPlugins")?.get(MODULE_PLUGIN)?;
            Some(switch == &Value::Bool(false))
        };
        let only = |file: &File| {
            let guard = file
                .value
                .get("pluginConfigs")
                .filter(|_| file.managed)?
                .get(GUARD)?;
            Some(guard.get("options")?.get(MANAGED_MODS)? == &Value::Bool(true))
        };
        let found = last(&off, MODULE_PLUGIN).or_else(|| last(&only, MANAGED_MODS));
        let (what, file) = found?;
        Some(Fault {
            says: format!(
                "{} has `{what}`: Claude Code does not load the module, and sessions do without",
                file.path.display()
            ),
            remedy: file.remedy("let it load, if you want it"),
        })
    }

    /// The file that lets plugins alone bring something.
    fn plugins_only(&self, what: &str) -> Option<&File> {
        let (value, file) = self.last(PLUGINS_ONLY, true)?;
        let all = value == &Value::Bool(true);
        let one = value
            .as_array()
            .is_some_and(|all| all.contains(&what.into()));
        let plugin = self.plugin().is_some();
        ((all || one) && !plugin).then_some(file)
    }

    fn forbids(&self, server: &Server) -> Option<Fault> {
        let name = &server.name;
        let forbidden = |file: &File, says: &str, remedy: &str| Fault {
            says: format!("{} {says}", file.path.display()),
            remedy: file.remedy(remedy),
        };
        if let Some(only) = &self.servers {
            let there = only.value.get("mcpServers").and_then(|all| all.get(name));
            if there.is_none_or(|entry| !program::is_ours(entry)) {
                let says = format!(
                    "has the only servers that Claude Code starts, and {name} is not there"
                );
                return Some(forbidden(only, &says, "put it there"));
            }
        }
        let denies = |file: &&File| {
            let list = file.list("deniedMcpServers").into_iter().flatten();
            list.into_iter()
                .any(|rule| is_named(rule, server) || runs(rule, server))
        };
        if let Some(file) = self.files.iter().find(denies) {
            let says = format!("has {name} in `deniedMcpServers`: Claude Code does not start it");
            return Some(forbidden(file, &says, "take it out of that list"));
        }
        if self.servers.is_some() {
            return None;
        }
        if let Some(file) = self.plugins_only("mcp") {
            let says = format!("has `{PLUGINS_ONLY}`: Claude Code does not start {name}");
            return Some(forbidden(file, &says, "allow it, or use the plugin"));
        }
        let only = self.on("allowManagedMcpServersOnly", true).is_some();
        let lists = self.files.iter().filter(|file| file.managed || !only);
        let lists: Vec<_> = lists
            .filter_map(|file| Some((file, file.list("allowedMcpServers")?)))
            .collect();
        let (file, _) = lists.last()?;
        let rules = || lists.iter().flat_map(|(_, rules)| *rules);
        let by_command = rules().any(|rule| rule.get("serverCommand").is_some());
        let allows = |rule: &Value| runs(rule, server) || !by_command && is_named(rule, server);
        if rules().any(allows) {
            return None;
        }
        let says = format!("has `allowedMcpServers` without {name}: Claude Code does not start it");
        let rule = match by_command {
            true => serde_json::json!({ "serverCommand": server.words }),
            false => serde_json::json!({ "serverName": name }),
        };
        Some(forbidden(file, &says, &format!("add {rule} to that list")))
    }
}

/// The guard of Claude Code's modules where there are managed settings, and its switch.
const GUARD: &str = "cc-plugin-sec-default@builtin";
const MANAGED_MODS: &str = "allowManagedModsOnly";
const PLUGINS_ONLY: &str = "strictPluginOnlyCustomization";

fn is_named(rule: &Value, server: &Server) -> bool {
    rule.get("serverName").and_then(Value::as_str) == Some(server.name.as_str())
}

fn runs(rule: &Value, server: &Server) -> bool {
    let words = rule.get("serverCommand").and_then(Value::as_array);
    words.is_some_and(|words| {
        let words = words.iter().map(|word| word.as_str().map(filled));
        words.eq(server.words.iter().map(|word| Some(filled(word))))
    })
}

/// A word with `${NAME}` and `${NAME:-OTHERWISE}` filled in; what has no value stays.
fn filled(word: &str) -> String {
    let mut full = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once("${") {
        full.push_str(before);
        let Some((inside, after)) = after.split_once('}') else {
            rest = &rest[before.len()..];
            break;
        };
        let (name, otherwise) = match inside.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise.to_owned())),
            None => (inside, None),
        };
        let value = std::env::var(name).ok().or(otherwise);
        full.push_str(&value.unwrap_or_else(|| format!("${{{inside}}}")));
        rest = after;
    }
    full + rest
}

#[cfg(test)]
mod tests;
