//! Agents' configurations: is peerbus in them, and does what stands there still hold?

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use peerbus_agents::{Agent, Scope, claude_code};
use serde_json::Value;

use super::Context;
use super::entry::{self, Names};
use super::report::Report;
use super::version;
use crate::error::Error;
use crate::install::config_file::ConfigFile;
use crate::install::targets::{Places, Program, Target, Want, targets};
use crate::install::{edit, hooks, program};

/// One agent in one place.
struct Site {
    agent: &'static Agent,
    scope: Scope,
    /// Another directory than this one.
    above: Option<PathBuf>,
}

impl Site {
    fn remedy(&self) -> String {
        let flag = match self.scope {
            Scope::User => "user",
            Scope::Project => "project",
        };
        let there = self.above.as_ref();
        let there = there.map_or_else(String::new, |dir| format!(" in {}", dir.display()));
        format!("`peerbus install {} --{flag}`{there}", self.agent.word)
    }

    /// Whether sessions that are started here read this file.
    fn reads(&self, target: &Target) -> bool {
        let servers = !matches!(target.want, Want::Hooks(_));
        self.above.is_none() || servers && self.agent.reads_upwards
    }
}

/// What was found on the way.
#[derive(Default)]
struct Survey {
    seen: BTreeSet<(&'static str, PathBuf)>,
    names: Names,
    servers: usize,
    hooked: bool,
    /// The client that is looked at has a file, and our server.
    there: bool,
    installed: bool,
}

/// Looks into every configuration that is there.
pub(super) fn check(context: &Context, report: &mut Report) -> Result<(), Error> {
    let places = Places::find()?;
    let mut survey = Survey::default();
    let (mut claude, mut absent) = (false, Vec::new());
    for agent in Agent::installable() {
        (survey.there, survey.installed) = (false, false);
        let site = |scope, above| Site {
            agent,
            scope,
            above,
        };
        survey.look(context, &site(Scope::User, None), &places, report);
        survey.look(context, &site(Scope::Project, None), &places, report);
        for dir in places.above() {
            let places = places.at(&dir);
            survey.look(context, &site(Scope::Project, Some(dir)), &places, report);
        }
        claude |= survey.installed && agent.word == claude_code::AGENT.word;
        if survey.there && !survey.installed {
            absent.push(format!(
                "{} (`peerbus install {}`)",
                agent.title, agent.word
            ));
        }
    }
    survey.names.check(report);
    silenced(&places, claude || survey.hooked, survey.hooked, report);
    if !absent.is_empty() {
        report.ok("agents", format!("not installed in: {}", absent.join(", ")));
    }
    if survey.servers == 0 {
        report.warning(
            "agents",
            "no agent's configuration here or in your home starts peerbus",
            "`peerbus install CLIENT` (`peerbus install --help` has the list), or the plugin for \
             Claude Code",
        );
    }
    Ok(())
}

impl Survey {
    /// Looks at the files of one client in one place.
    fn look(&mut self, context: &Context, site: &Site, places: &Places, report: &mut Report) {
        for target in wanted(site.agent, site.scope, places, program::NAME) {
            if !self.seen.insert((site.agent.word, target.path.clone())) {
                continue;
            }
            if !site.reads(&target) {
                unread(site, &target, report);
                continue;
            }
            let Some((found, read)) = read(&target, report) else {
                self.there |= target.path.exists();
                continue;
            };
            self.there = true;
            if let Some(entry) = edit::entry(&target.want, &read) {
                self.servers += 1;
                self.installed = true;
                let name = server(context, site, &target, &found, entry, places, report);
                let path = found.path.display().to_string();
                self.names.add(name, site.agent.word, path);
            }
            if let Want::Hooks(_) = target.want {
                self.hooked |= check_hooks(site, &target, &found, &read, places, report);
            }
        }
    }
}

/// Says of a file with our server that sessions started here do not read it.
fn unread(site: &Site, target: &Target, report: &mut Report) {
    let found = ConfigFile::read(&target.path).ok();
    let read = found.as_ref().and_then(|found| {
        found.bytes.as_ref()?;
        edit::read(&target.want, found.text().ok()?.0).ok()
    });
    if read.is_some_and(|read| edit::entry(&target.want, &read).is_some()) {
        let (path, title) = (target.path.display(), site.agent.title);
        let says = format!("{path} has peerbus for {title} when that is started there, not here");
        report.ok(site.agent.word, says);
    }
}

fn wanted(agent: &Agent, scope: Scope, places: &Places, command: &str) -> Vec<Target> {
    let program = Program {
        command: command.to_owned(),
        name: None,
    };
    targets(agent, scope, places, &program)
}

/// Reads a target; `None`: it is not there, or was reported.
fn read(target: &Target, report: &mut Report) -> Option<(ConfigFile, Value)> {
    let remedy = "correct it: the agent cannot read it either, or runs without it";
    let found = match ConfigFile::read(&target.path) {
        Ok(found) => found,
        Err(failure) => {
            report.failed("agents", failure.to_string(), remedy);
            return None;
        }
    };
    found.bytes.as_ref()?;
    let read = match found.text() {
        Err(failure) => Err(failure.to_string()),
        Ok((text, _)) => edit::read(&target.want, text).map_err(|error| {
            let path = found.path.display();
            format!("{path} cannot be read: {}", error)
        }),
    };
    match read {
        Ok(read) => Some((found, read)),
        Err(why) => {
            report.failed("agents", why, remedy);
            None
        }
    }
}

/// Checks a server's entry. Gives the name that its sessions take, if it gives one.
fn server(
    context: &Context,
    site: &Site,
    target: &Target,
    found: &ConfigFile,
    entry: &Value,
    places: &Places,
    report: &mut Report,
) -> Option<String> {
    let path = found.path.display();
    let command = edit::command(entry).and_then(|words| words.into_iter().next());
    let command = command.unwrap_or_default();
    if !command.is_empty() && !edit::is_ours(entry) {
        let says = format!("{path} starts {command} as peerbus, which is not looked into");
        let remedy = "nothing, if it is a wrapper of yours; else rename that server, and install";
        report.warning(site.agent.word, says, remedy);
        return None;
    }
    if let Some(why) = unusable(&command) {
        report.failed(
            site.agent.word,
            format!("{path} starts {why}"),
            site.remedy(),
        );
        return None;
    }
    let off = entry.get("enabled") == Some(&Value::Bool(false))
        || entry.get("disabled") == Some(&Value::Bool(true));
    if off {
        let says = format!("{path} has peerbus switched off");
        report.warning(site.agent.word, says, "switch it on there when you want it");
        return None;
    }
    let (name, faults) = entry::look(context, entry, &site.remedy());
    for fault in &faults {
        let says = format!("{path}: {}", fault.says);
        report.failed(site.agent.word, says, &fault.remedy);
    }
    if !faults.is_empty() {
        return name;
    }
    if let Some(other) = other_version(&command) {
        let ours = env!("CARGO_PKG_VERSION");
        let says = format!("{path} starts {command}, which is {other}; this is peerbus {ours}");
        let remedy = format!("install one version everywhere, then {}", site.remedy());
        report.warning(site.agent.word, says, remedy);
    } else if outdated(site, target, found, &command, places) {
        let says = format!("{path} has peerbus in another form than this version writes");
        report.warning(site.agent.word, says, site.remedy());
    } else {
        report.ok(site.agent.word, format!("{path} starts {command}"));
    }
    name
}

/// Why a program cannot be started.
fn unusable(command: &str) -> Option<String> {
    if command.is_empty() {
        return Some("nothing: the entry has no command".into());
    }
    if command.contains('/') {
        let there = peerbus_os::file::is_executable(Path::new(command));
        return (!there).then(|| format!("{command}, which is not there or cannot be run"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = program::which(command, &path);
    found
        .is_none()
        .then(|| format!("`{command}`, which is not on the PATH"))
}

/// What a program says of itself, if it is another one than this, of another version.
fn other_version(command: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let file = match command.contains('/') {
        true => Path::new(command).to_owned(),
        false => program::which(command, &path)?,
    };
    let real = std::fs::canonicalize(&file).ok()?;
    if std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .ok()?
        == real
    {
        return None;
    }
    let said = version::ask(&file)?;
    let ours = concat!("peerbus ", env!("CARGO_PKG_VERSION"));
    (said.trim() != ours).then(|| said.trim().to_owned())
}

/// Whether installing with the same program would change something.
fn outdated(
    site: &Site,
    target: &Target,
    found: &ConfigFile,
    command: &str,
    places: &Places,
) -> bool {
    let same = |other: &Target| other.path == target.path;
    let mut fresh = wanted(site.agent, site.scope, places, command).into_iter();
    let again = ConfigFile::read(&found.asked);
    match (fresh.find(same), again) {
        (Some(fresh), Ok(again)) => {
            edit::install(&fresh, again, None).is_ok_and(|edit| edit.differs())
        }
        _ => false,
    }
}

/// Checks the hooks of one file of settings. Says whether there are any of ours.
fn check_hooks(
    site: &Site,
    target: &Target,
    found: &ConfigFile,
    read: &Value,
    places: &Places,
    report: &mut Report,
) -> bool {
    let standing = hooks::commands(read);
    let programs: BTreeSet<_> = standing
        .iter()
        .filter_map(|(_, command)| hooks::program(command))
        .collect();
    let Some(program) = programs.first() else {
        return false;
    };
    let path = found.path.display();
    if let Some(why) = programs.iter().find_map(|program| unusable(program)) {
        report.failed(
            site.agent.word,
            format!("the hooks in {path} start {why}"),
            site.remedy(),
        );
        return true;
    }
    let there: BTreeSet<_> = standing
        .iter()
        .filter_map(|(event, command)| Some((event.as_str(), hooks::ours(command)?)))
        .collect();
    let missing: Vec<_> = claude_code::HOOKS
        .iter()
        .filter(|entry| !there.contains(&(entry.event, entry.arguments.to_owned())))
        .map(|entry| format!("`{}` at {}", entry.arguments, entry.event))
        .collect();
    if !missing.is_empty() {
        let says = format!("{path} lacks some of the hooks: {}", missing.join(", "));
        report.failed(site.agent.word, says, site.remedy());
    } else if outdated(site, target, found, program, places) {
        let says = format!("{path} has the hooks in another form than this version writes");
        report.warning(site.agent.word, says, site.remedy());
    } else {
        report.ok(site.agent.word, format!("{path} has all hooks"));
    }
    true
}

/// What in Claude Code's settings keeps peerbus from working.
fn silenced(places: &Places, installed: bool, hooked: bool, report: &mut Report) {
    if !installed {
        return;
    }
    let settings = claude_code::settings_files(places.project());
    let settings: Vec<_> = settings
        .iter()
        .filter_map(|path| Some((path, value(path)?)))
        .collect();
    let plugin = settings.iter().any(|(_, read)| has_plugin(read));
    for (path, read) in &settings {
        let path = path.display();
        if read.get("disableAllHooks") == Some(&Value::Bool(true)) {
            report.failed(
                "claude-code",
                format!("{path} has `disableAllHooks`: no hook of peerbus runs"),
                "remove that line, or live with the session's own socket and channels alone",
            );
        }
        if let Some(stance @ ("refuse" | "hold")) =
            read.get("crossSessionInbound").and_then(Value::as_str)
        {
            report.warning(
                "claude-code",
                format!(
                    "{path} has `crossSessionInbound: {stance}`: sessions take no pushes unasked"
                ),
                "set it to `accept` if peers may wake your sessions",
            );
        }
    }
    if plugin && hooked {
        report.warning(
            "claude-code",
            "the plugin and the hooks in the settings are both there: each runs twice",
            "`peerbus uninstall claude-code`, or remove the plugin",
        );
    } else if !plugin && !hooked {
        report.warning(
            "claude-code",
            "the hooks are not installed: what a session's own socket does not take waits for a \
             tool call",
            "`peerbus install claude-code`",
        );
    }
    if switched_off(places) {
        report.failed(
            "claude-code",
            "the server peerbus is switched off for this project",
            "switch it on in Claude Code: /mcp",
        );
    }
}

fn has_plugin(settings: &Value) -> bool {
    let plugins = settings.get("enabledPlugins").and_then(Value::as_object);
    plugins.is_some_and(|plugins| {
        plugins
            .iter()
            .any(|(name, on)| name.starts_with("peerbus@") && on != &Value::Bool(false))
    })
}

fn switched_off(places: &Places) -> bool {
    let Some(state) = claude_code::state_file().and_then(|file| value(&file)) else {
        return false;
    };
    let project = places.project().to_string_lossy().into_owned();
    let project = state
        .get("projects")
        .and_then(|projects| projects.get(&project));
    ["disabledMcpServers", "disabledMcpjsonServers"]
        .iter()
        .any(|list| {
            let list = project.and_then(|project| project.get(*list)?.as_array());
            list.is_some_and(|names| names.contains(&Value::from("peerbus")))
        })
}

/// A file of JSON, if it is there and can be read.
fn value(path: &Path) -> Option<Value> {
    let target = Target {
        path: path.to_owned(),
        want: Want::Hooks(Vec::new()),
    };
    let found = ConfigFile::read(path).ok()?;
    found.bytes.as_ref()?;
    edit::read(&target.want, found.text().ok()?.0).ok()
}
