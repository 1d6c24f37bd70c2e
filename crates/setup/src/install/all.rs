//! All agents at once: those that are found, and those in whose configurations peerbus is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use peerbus_adapter::Failure;
use peerbus_agents::{Agent, Scope};

use super::policy::Settings;
use super::program::{NAME, which};
use super::record::Record;
use super::targets::{self, Program, targets};
use super::{InstallLine, InstallRequest, Show, edit, uninstall_in};

/// An agent of which there is a sign on this machine.
#[derive(Debug)]
pub struct FoundAgent {
    /// Which.
    pub agent: &'static Agent,
    /// peerbus is in its user's configuration.
    pub installed: bool,
}

/// The agents whose configuration or program is found, with what is installed in their user's own.
///
/// # Errors
///
/// When there is no home directory.
pub fn found() -> Result<Vec<FoundAgent>, Failure> {
    let home = targets::project(Scope::User)?;
    let record = Record::load();
    let found = Agent::installable().map(|agent| FoundAgent {
        agent,
        installed: is_installed(agent, Scope::User, &home, &record),
    });
    Ok(found
        .filter(|it| it.installed || is_found(it.agent))
        .collect())
}

/// Takes peerbus out of every agent's own configuration, and out of those of projects in which it was
/// installed as this user. What fails leaves the others to be done.
///
/// # Errors
///
/// When a file cannot be understood or written: all such, with their places.
pub fn uninstall_all(dry_run: bool, show: Show<'_>) -> Result<(), Failure> {
    let home = targets::project(Scope::User)?;
    let record = Record::read()?;
    let own = Agent::installable().filter(|agent| is_installed(agent, Scope::User, &home, &record));
    let own = own.map(|agent| (agent, Scope::User, home.clone()));
    let all: Vec<_> = own.chain(projects(&record)).collect();
    if all.is_empty() {
        let none = "peerbus is in no agent's configuration that is known";
        show(InstallLine::Note(none));
    }
    let mut failures = Vec::new();
    for (agent, scope, project) in all {
        let request = InstallRequest {
            agent,
            scope,
            name: None,
            unasked: false,
            no_mod: false,
            used: Vec::new(),
            used_as: None,
            dry_run,
        };
        if let Err(failure) = uninstall_in(&project, &request, show) {
            failures.push(format!("{}: {failure}", agent.title));
        }
    }
    if let Some((plugin, _)) = Settings::read(&home).plugin() {
        show(InstallLine::Note(&format!(
            "Claude Code's plugin stays: `claude plugin uninstall {plugin}` takes it away"
        )));
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(failures.join("; "))),
    }
}

/// Something of ours is there. Of a file that cannot be read what was done to it says so.
fn is_installed(agent: &'static Agent, scope: Scope, project: &Path, record: &Record) -> bool {
    let program = program();
    let here = targets(agent, scope, project, &program);
    let elsewhere = targets::elsewhere(agent, scope, &program, record, &here);
    here.iter().chain(&elsewhere).any(|target| {
        let is_known = || record.of(&target.path).is_some();
        edit::is_there(target) && (edit::value(&target.want, &target.path).is_some() || is_known())
    })
}

fn program() -> Program {
    Program {
        command: NAME.to_owned(),
        ..Program::default()
    }
}

/// A file of its user's, or the directory for it, is there, or its program.
fn is_found(agent: &Agent) -> bool {
    let home = peerbus_agents::home();
    let is_its_own = |dir: &&Path| Some(*dir) != home.as_deref() && !dir.ends_with(".config");
    let mut files = agent.files.iter();
    let files = files.any(|file| {
        let all = file.candidates(Scope::User, Path::new("/"));
        all.iter().any(|path| {
            let dir = path.parent().filter(is_its_own);
            path.exists() || dir.is_some_and(Path::exists)
        })
    });
    // The program of `claude-code` is `claude`.
    let program = agent.word.split('-').next().unwrap_or(agent.word);
    files || which(program).is_some()
}

/// The projects in whose files something was installed, and for whom.
fn projects(record: &Record) -> Vec<(&'static Agent, Scope, PathBuf)> {
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    for path in record.projects() {
        for agent in Agent::installable() {
            let names = agent.files.iter().flat_map(|file| file.project_names);
            let of = names.filter_map(|name| {
                let above = Path::new(name).components().count();
                path.ends_with(name).then(|| path.ancestors().nth(above))?
            });
            for project in of {
                let there = is_installed(agent, Scope::Project, project, record);
                if there && known.insert((agent.word, project.to_owned())) {
                    all.push((agent, Scope::Project, project.to_owned()));
                }
            }
        }
    }
    all
}
