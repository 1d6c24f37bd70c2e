//! Agents' configurations: is peerbus in them, and does what stands there still hold?

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use peerbus_adapter::{Failure, PeerEntry};
use peerbus_agents::{Agent, Program as Whole, Requirement, Scope, Sign, claude_code};
use peerbus_os::file::is_executable;
use serde_json::Value;

use super::entry::{self, Names};
use super::report::Report;
use super::{Context, silence, version};
use crate::install::config_file::ConfigFile;
use crate::install::edit::{self, Target, Want};
use crate::install::policy::{Server, Settings};
use crate::install::targets::{self, Program, targets};
use crate::install::used::{self, Shared};
use crate::install::{hooks, program};

/// One agent in one place.
struct Site<'c> {
    context: &'c Context,
    agent: &'static Agent,
    scope: Scope,
    project: &'c Path,
    /// Who is on the bus, if that is known.
    peers: Option<&'c [PeerEntry]>,
    /// The project's directory is another than this one.
    above: bool,
}

impl Site<'_> {
    fn targets(&self, command: &str) -> Vec<Target> {
        let program = Program {
            command: command.to_owned(),
            ..Program::default()
        };
        targets(self.agent, self.scope, self.project, &program)
    }

    /// The command that installs.
    fn install(&self) -> String {
        let flag = targets::flag(self.scope);
        format!("peerbus install {} --{flag}", self.agent.word)
    }

    fn remedy(&self) -> String {
        let there = match self.above {
            true => format!(" in {}", self.project.display()),
            false => String::new(),
        };
        format!("`{}`{there}", self.install())
    }

    /// Whether sessions that are started here read this file.
    fn reads(&self, target: &Target) -> bool {
        let servers = !matches!(target.want, Want::Hooks(..));
        !self.above || servers && self.agent.reads_upwards
    }
}

#[derive(Default)]
struct Survey {
    seen: BTreeSet<(&'static str, PathBuf)>,
    names: Names,
    servers: usize,
    /// Those in Claude Code's configurations.
    claude: Vec<Server>,
    hooked: bool,
    /// The module for Claude Code is there.
    module: bool,
    /// The agent that is looked at has a file, and our server.
    there: bool,
    installed: bool,
}

pub(super) fn check(
    context: &Context,
    peers: Option<&[PeerEntry]>,
    report: &mut Report,
) -> Result<(), Failure> {
    if let Err(error) = targets::project(Scope::Project) {
        let remedy = "run this in a directory that is there: a project's files are not looked at";
        report.warning("project", error.to_string(), remedy);
    }
    let here = targets::project(Scope::User)?;
    let above = targets::above(&here);
    let mut survey = Survey::default();
    let settings = Settings::read(&here);
    let mut claude = settings.plugin().is_some();
    let mut absent = Vec::new();
    for agent in Agent::installable() {
        (survey.there, survey.installed) = (false, false);
        if let Some(why) = targets::misplaced(agent) {
            report.failed(agent.word, why, "correct the variable, or unset it");
        }
        let mut look = |scope, project, above| {
            let site = Site {
                context,
                agent,
                scope,
                project,
                peers,
                above,
            };
            survey.look(&site, report);
        };
        look(Scope::User, &here, false);
        look(Scope::Project, &here, false);
        for dir in &above {
            look(Scope::Project, dir, true);
        }
        let is_claude = agent.word == claude_code::AGENT.word;
        claude |= is_claude && survey.installed;
        if survey.there && !survey.installed && !(is_claude && claude) {
            let (title, word) = (agent.title, agent.word);
            absent.push(format!("{title} (`peerbus install {word}`)"));
        }
    }
    survey.names.check(report);
    if claude || survey.hooked {
        let plugin = settings.plugin().map(|_| Server::of_plugin());
        let ours = silence::Ours {
            servers: survey.claude.into_iter().chain(plugin).collect(),
            hooked: survey.hooked,
            module: survey.module,
        };
        silence::check(context, &settings, &here, &ours, report);
    }
    if !absent.is_empty() {
        report.ok("agents", format!("not installed in: {}", absent.join(", ")));
    }
    if survey.servers == 0 && settings.plugin().is_none() {
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
    /// Notes a server that Claude Code's settings have a say in.
    fn rule(&mut self, word: &str, name: &str, entry: &Value) {
        let server = Server::new(name, program::words(entry));
        if word == claude_code::AGENT.word && !self.claude.contains(&server) {
            self.claude.push(server);
        }
    }

    fn look(&mut self, site: &Site<'_>, report: &mut Report) {
        let (word, title) = (site.agent.word, site.agent.title);
        let mut here = false;
        for target in site.targets(program::NAME) {
            if !self.seen.insert((word, target.path.clone())) {
                continue;
            }
            let reads = site.reads(&target);
            let (file, found) = match edit::load(&target.want, &target.path) {
                Ok(Some(loaded)) => loaded,
                Ok(None) => {
                    if let (Want::Whole(whole), true) = (&target.want, here) {
                        self.absent(site, &target.path, whole, report);
                    }
                    continue;
                }
                Err(why) => {
                    if reads {
                        let remedy =
                            "correct it: the agent cannot read it either, or runs without it";
                        report.failed("agents", why, remedy);
                        self.there |= target.path.exists();
                    }
                    continue;
                }
            };
            let server = edit::entry(&target.want, &found);
            if !reads {
                if server.is_some() {
                    let path = target.path.display();
                    let says = format!(
                        "{path} has peerbus for {title} when that is started there, not here"
                    );
                    report.ok(word, says);
                }
                continue;
            }
            self.there = true;
            let part = Installed {
                site,
                target: &target,
                file: &file,
            };
            part.check_strict(report);
            if let Some(server) = server {
                self.servers += 1;
                (self.installed, here) = (true, true);
                let name = part.check_server(server, report);
                self.rule(word, program::NAME, server);
                self.names.add(name, word, file.path.display().to_string());
            }
            for (name, entry, shared) in edit::used(&target.want, &found) {
                part.check_used(name, entry, &shared, report);
                self.rule(word, name, entry);
            }
            match &target.want {
                Want::Hooks(..) => self.hooked |= part.check_hooks(&found, report),
                Want::Whole(whole) => {
                    self.module |= whole.optional;
                    part.check_whole(whole, &found, report);
                }
                Want::Servers(_) => {}
            }
        }
    }

    /// A file of ours is not there.
    fn absent(&self, site: &Site<'_>, path: &Path, whole: &Whole, report: &mut Report) {
        let (word, title, path) = (site.agent.word, site.agent.title, path.display());
        let says = match (whole.optional, self.module) {
            (false, _) => format!("{path} is not there: nothing wakes sessions of {title}"),
            (true, true) => format!("{path} is not there: {title} does not load the module"),
            (true, false) if whole.does.is_empty() => return,
            (true, false) => {
                let says = format!("{path} is not there: sessions do without the module");
                return report.ok(word, says);
            }
        };
        report.warning(word, says, site.remedy());
    }
}

fn is_off(entry: &Value) -> bool {
    entry.get("enabled") == Some(&Value::Bool(false))
        || entry.get("disabled") == Some(&Value::Bool(true))
}

/// Our part of a file.
struct Installed<'t> {
    site: &'t Site<'t>,
    target: &'t Target,
    file: &'t ConfigFile,
}

impl Installed<'_> {
    /// Checks a server's entry. Gives the name that its sessions take, if it gives one.
    fn check_server(&self, entry: &Value, report: &mut Report) -> Option<String> {
        let (path, word) = (self.file.path.display(), self.site.agent.word);
        let command = program::started_by(entry).and_then(|words| words.into_iter().next());
        let command = command.unwrap_or_default();
        if !command.is_empty() && !program::is_ours(entry) {
            let says = format!("{path} starts {command} as peerbus, which is not looked into");
            let remedy =
                "nothing, if it is a wrapper of yours; else rename that server, and install";
            report.warning(word, says, remedy);
            return None;
        }
        if let Some((why, remedy)) = self.unusable(&command) {
            report.failed(word, format!("{path} starts {why}"), remedy);
            return None;
        }
        if is_off(entry) {
            let says = format!("{path} has peerbus switched off");
            report.warning(word, says, "switch it on there when you want it");
            return None;
        }
        let (name, faults) = entry::look(self.site.context, entry, &self.site.remedy());
        for fault in &faults {
            let says = format!("{path}: {}", fault.says);
            report.failed(word, says, &fault.remedy);
        }
        if !faults.is_empty() {
            return name;
        }
        if let Some(other) = other_version(&command) {
            let ours = env!("CARGO_PKG_VERSION");
            let says = format!("{path} starts {command}, which is {other}; this is peerbus {ours}");
            let remedy = format!(
                "install one version everywhere, then {}",
                self.site.remedy()
            );
            report.warning(word, says, remedy);
        } else if self.is_outdated(&command) {
            let says = format!("{path} has peerbus in another form than this version writes");
            report.warning(word, says, self.site.remedy());
        } else {
            report.ok(word, format!("{path} starts {command}"));
        }
        name
    }

    /// Whether the text is plain JSON. It is not known that Claude Code reads more.
    fn check_strict(&self, report: &mut Report) {
        let word = self.site.agent.word;
        let text = self.file.text().map_or("", |(text, _)| text.trim());
        let strict = || serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let is_json = !matches!(self.target.want, Want::Whole(_));
        if word == claude_code::AGENT.word && is_json && !text.is_empty() && !strict() {
            let path = self.file.path.display();
            let says = format!(
                "{path} has comments, or commas behind the last of a list, which a strict reader \
                 of JSON refuses"
            );
            report.warning(word, says, "take them out");
        }
    }

    /// Checks the entry for a server that a peer shares, and whether it does so now. Whom it shares
    /// it with, nobody else knows.
    fn check_used(&self, name: &str, entry: &Value, shared: &Shared, report: &mut Report) {
        let (path, word, uri) = (self.file.path.display(), self.site.agent.word, shared.uri());
        let what = format!("{path} uses {uri} ({name})");
        let command = program::words(entry).into_iter().next().unwrap_or_default();
        if let Some((why, remedy)) = self.unusable(&command) {
            return report.failed(word, format!("{what} and starts {why}"), remedy);
        }
        if is_off(entry) {
            let says = format!("{what}, which is switched off there");
            return report.warning(word, says, "switch it on there when you want it");
        }
        let known_as = program::argument(entry, "--name");
        let known_as = known_as.map(|name| used::on_the_bus(&name)).transpose();
        if let Err(why) = known_as {
            let install = self.site.install();
            let remedy = format!("correct the name there, or `{install} --use {uri} --as NAME`");
            return report.failed(word, format!("{what}: {why}"), remedy);
        }
        let Some(peers) = self.site.peers else {
            return report.ok(word, what);
        };
        if peerbus_mcp::side_channel::adverts(peers).any(|it| shared.is(&it)) {
            return report.ok(word, format!("{what}: it is shared now"));
        }
        let peer = shared.peer.as_str();
        let here = peers
            .iter()
            .any(|it| it.online && it.name.eq_ignore_ascii_case(peer));
        let why = match here {
            true => format!("{peer} does not share it now"),
            false => format!("{peer} is not on the bus now"),
        };
        let out = self.site.install().replacen("install", "uninstall", 1);
        let remedy =
            format!("`peerbus mcp share` there shares it; `{out} --use {uri}` takes it out here");
        report.warning(word, format!("{what}: {why}"), remedy);
    }

    /// Checks the hooks of a file of settings. Says whether there are any of ours.
    fn check_hooks(&self, settings: &Value, report: &mut Report) -> bool {
        let (path, word) = (self.file.path.display(), self.site.agent.word);
        let installed = hooks::commands(settings);
        let programs = installed.iter();
        let programs: BTreeSet<_> = programs
            .filter_map(|(_, command)| hooks::program(command))
            .collect();
        let Some(program) = programs.first() else {
            return false;
        };
        let unusable = |program: &String| self.unusable(program);
        if let Some((why, remedy)) = programs.iter().find_map(unusable) {
            let says = format!("the hooks in {path} start {why}");
            report.failed(word, says, remedy);
            return true;
        }
        let there: BTreeSet<_> = installed
            .iter()
            .filter_map(|(event, command)| Some((event.as_str(), hooks::ours(command)?)))
            .collect();
        let missing: Vec<_> = claude_code::HOOKS
            .iter()
            .filter(|hook| !there.contains(&(hook.event, hook.arguments.to_owned())))
            .map(|hook| format!("`{}` at {}", hook.arguments, hook.event))
            .collect();
        if !missing.is_empty() {
            let says = format!("{path} lacks some of the hooks: {}", missing.join(", "));
            report.failed(word, says, self.site.remedy());
        } else if self.is_outdated(program) {
            let says = format!("{path} has the hooks in another form than this version writes");
            report.warning(word, says, self.site.remedy());
        } else {
            report.ok(word, format!("{path} has all hooks"));
        }
        true
    }

    fn check_whole(&self, whole: &Whole, found: &Value, report: &mut Report) {
        let (path, word) = (self.file.path.display(), self.site.agent.word);
        if found != whole.text {
            let says = format!("{path} is another than this version writes");
            return report.warning(word, says, self.site.remedy());
        }
        let missing = |need: &Requirement| !self.has(&need.sign);
        match whole.needs.filter(missing) {
            Some(need) => {
                let says = format!("{path} is there; {}", need.without);
                report.warning(word, says, need.remedy);
            }
            None if whole.does.is_empty() => {}
            None => report.ok(word, format!("{path} {}", whole.does)),
        }
    }

    fn has(&self, sign: &Sign) -> bool {
        match sign {
            Sign::Beside(path) => self.target.path.with_file_name(path).exists(),
            Sign::Switch(base, file, member) => {
                let settings = base.directory().map(|dir| dir.join(file));
                let none = Want::Hooks(Vec::new(), false);
                let read = settings.and_then(|path| edit::load(&none, &path).ok().flatten());
                read.is_some_and(|(_, found)| found[*member] == true)
            }
        }
    }

    /// Why a program cannot be started, and what to do about it.
    fn unusable(&self, command: &str) -> Option<(String, String)> {
        if command.is_empty() {
            let why = "nothing: the entry has no command".to_owned();
            return Some((why, self.site.remedy()));
        }
        if command.contains('/') {
            let why = || format!("{command}, which is not there or cannot be run");
            return (!is_executable(Path::new(command))).then(|| (why(), self.site.remedy()));
        }
        let why = || format!("`{command}`, which is not on the PATH");
        let remedy = "put its directory on the PATH of your shells, or link it to one that is";
        let missing = program::which(command).is_none();
        missing.then(|| (why(), remedy.to_owned()))
    }

    /// Whether installing with the same program would change something.
    fn is_outdated(&self, command: &str) -> bool {
        let mut fresh = self.site.targets(command).into_iter();
        let fresh = fresh.find(|other| other.path == self.target.path);
        let edit = fresh.map(|fresh| edit::install(&fresh, self.file.clone(), None));
        edit.is_some_and(|edit| edit.is_ok_and(|edit| edit.differs()))
    }
}

/// What a program says of itself, if it is another one than this, of another version.
fn other_version(command: &str) -> Option<String> {
    let file = match command.contains('/') {
        true => Path::new(command).to_owned(),
        false => program::which(command)?,
    };
    if std::fs::canonicalize(&file).ok()? == program::this().ok()? {
        return None;
    }
    let said = version::ask(&file)?;
    let ours = concat!("peerbus ", env!("CARGO_PKG_VERSION"));
    (said.trim() != ours).then(|| said.trim().to_owned())
}
