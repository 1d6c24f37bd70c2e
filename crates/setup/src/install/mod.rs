//! `peerbus install` and `peerbus uninstall`.

mod all;
pub(crate) mod config_file;
mod diff;
pub(crate) mod edit;
#[cfg(feature = "fuzzing")]
mod fuzzing;
pub(crate) mod hooks;
mod joined;
mod json;
pub(crate) mod naming;
mod next;
pub(crate) mod policy;
pub(crate) mod program;
mod record;
pub(crate) mod targets;
#[cfg(test)]
mod tests;
mod toml;
pub(crate) mod unasked;
pub(crate) mod used;
mod value;
pub(crate) mod whole;
mod words;

use std::path::{Path, PathBuf};

pub use all::{FoundAgent, found, uninstall_all};
#[cfg(feature = "fuzzing")]
pub use fuzzing::fuzz;
pub use joined::{asking_token, check_joinable, has_joined, join, leave, not_let_in, turned_out};
use peerbus_adapter::Failure;
use peerbus_agents::{Agent, Scope, claude_code};

use crate::error::Fault;
use crate::text::escape;

use config_file::{BOM, ConfigFile, Edit};
use edit::Target;
use policy::{Server, Settings};
use record::{Done, Record};
use targets::Program;
use used::Uses;

/// Longest warning about an agent's settings, in characters.
const WARNING_CHARS: usize = 800;
/// How often a file that somebody else is writing is read anew.
const ATTEMPTS: usize = 5;

/// What an install or an uninstall is for.
#[derive(Debug)]
pub struct InstallRequest {
    /// Whose configuration.
    pub agent: &'static Agent,
    /// Which of them.
    pub scope: Scope,
    /// A name for the sessions; an uninstall needs none.
    pub name: Option<String>,
    /// Let the agent call the tools without asking its user.
    pub unasked: bool,
    /// Leave out what would run in the agent's own process.
    pub no_mod: bool,
    /// Servers that peers share, `mcp://PEER/NAME`: an install adds them, an uninstall that names
    /// some takes out these alone.
    pub used: Vec<String>,
    /// How the names on the bus begin under which they are used; `None`: as that of the sessions, else
    /// of the user.
    pub used_as: Option<String>,
    /// Only show what would change.
    pub dry_run: bool,
}

/// Something to show.
#[derive(Debug)]
pub enum InstallLine<'t> {
    /// A sentence for a person.
    Note(&'t str),
    /// What changes in a file, as a unified diff of several lines.
    Diff(&'t str),
}

/// Takes what is to be shown, in order.
type Show<'s> = &'s mut dyn FnMut(InstallLine<'_>);

/// Puts peerbus into an agent's configuration.
///
/// # Errors
///
/// When a file cannot be understood or written, with its place and what was changed before.
pub fn install(request: InstallRequest, show: Show<'_>) -> Result<(), Failure> {
    let (agent, scope) = (request.agent, request.scope);
    if let Some(name) = &request.name {
        naming::check(name, scope)?;
    }
    let shared = Uses::of(&request.used)?;
    let used_as = request.used_as.clone().or(request.name.clone());
    if let Some(begins) = used_as.as_ref().filter(|_| !shared.is_empty()) {
        used::check_begins(begins, scope)?;
    }
    let mut program = Program {
        command: program::command(scope)?,
        name: request.name.clone(),
        unasked: request.unasked,
        no_mod: request.no_mod,
        ..Program::default()
    };
    if request.unasked && !agent.calls_unasked() {
        let title = agent.title;
        return Err(Failure::config(format!(
            "{title} has no setting for --allow: leave it out, and see what its own options do"
        )));
    }
    if request.no_mod && agent.word != claude_code::AGENT.word {
        let title = agent.title;
        return Err(Failure::config(format!(
            "--no-mod is for claude-code: {title} has no module, leave it out"
        )));
    }
    let project = targets::project(scope)?;
    targets::check_places(agent, scope)?;
    let targets = targets::targets(agent, scope, &project, &program);
    targets::check_within(scope, &project, &targets)?;
    let kept = targets::kept(&targets).filter(|_| program.name.is_none());
    program.uses = Uses {
        shared,
        name: used_as,
        otherwise: used::begins(kept.as_deref(), scope),
    };
    let targets = targets::targets(agent, scope, &project, &program);
    below_the_root(scope, &project, show);
    let there = whereabouts(&targets);
    let done = match carry_out(&targets, &request, edit::install, show)? {
        false => format!("nothing to do: peerbus is installed {there}"),
        true if request.dry_run => DRY.to_owned(),
        true => format!("peerbus is now installed {there}"),
    };
    show(InstallLine::Note(&done));
    if let Some(name) = kept {
        show(InstallLine::Note(&format!(
            "its sessions keep the name {name}: `--name NAME` changes it, uninstall takes it away"
        )));
    }
    for line in without_effect(agent, &project, &program) {
        show(InstallLine::Note(&line));
    }
    if !request.dry_run {
        let steps = next::used(&targets).into_iter();
        program.unasked |= targets.iter().any(|target| next::is_unasked(agent, target));
        for step in steps.chain(next::steps(agent, scope, &project, &program)) {
            show(InstallLine::Note(&format!("- {step}")));
        }
    }
    Ok(())
}

/// What the agent's own settings keep from running, of what is there now.
fn without_effect(agent: &Agent, project: &Path, program: &Program) -> Vec<String> {
    if agent.word != claude_code::AGENT.word {
        return Vec::new();
    }
    let kind = format!("--adapter={}", agent.adapter);
    let words = vec![program.command.clone(), "adapter".to_owned(), kind];
    let ours = Server::new(program::NAME, words);
    let forbidden = Settings::read(project).forbidden(&[ours]);
    let line = |it: Fault| {
        let line = format!("warning: {}; remedy: {}", it.says, it.remedy);
        escape(&line, WARNING_CHARS)
    };
    forbidden.into_iter().map(line).collect()
}

const DRY: &str = "nothing was written (--dry-run)";

/// Says so where a project's files would not lie at its root.
fn below_the_root(scope: Scope, project: &Path, show: Show<'_>) {
    let above = targets::above(project);
    if let (Scope::Project, Some(root)) = (scope, above.last()) {
        let (here, root) = (project.display(), root.display());
        show(InstallLine::Note(&format!(
            "this is for sessions started in {here}; the project's root seems to be {root}: run \
             it there if they start there"
        )));
    }
}

/// Takes peerbus out of an agent's configuration.
///
/// # Errors
///
/// When a file cannot be understood or written, with its place and what was changed before.
pub fn uninstall(request: &InstallRequest, show: Show<'_>) -> Result<(), Failure> {
    uninstall_in(&targets::project(request.scope)?, request, show)
}

/// The same in another directory than this one, where a project's files are meant.
fn uninstall_in(project: &Path, request: &InstallRequest, show: Show<'_>) -> Result<(), Failure> {
    let (agent, scope) = (request.agent, request.scope);
    let program = Program {
        command: program::command(scope).unwrap_or_else(|_| program::NAME.to_owned()),
        uses: Uses {
            shared: Uses::of(&request.used)?,
            ..Uses::default()
        },
        ..Program::default()
    };
    targets::check_places(agent, scope)?;
    let mut targets = targets::targets(agent, scope, project, &program);
    let elsewhere = targets::elsewhere(agent, scope, &program, &Record::load(), &targets);
    if targets.iter().all(|target| !edit::is_there(target)) && !elsewhere.is_empty() {
        targets = elsewhere;
    }
    let (planner, what): (Planner, _) = match request.used.as_slice() {
        [] => {
            leave_needed(request, project, &program, &mut targets, show);
            (edit::uninstall, "nothing of ours".to_owned())
        }
        _ => {
            targets.retain(|target| target.want.servers().is_some());
            let shared = program.uses.shared.iter();
            let uris: Vec<_> = shared.map(used::Shared::uri).collect();
            (
                edit::take_out,
                format!("no entry for {}", uris.join(" or ")),
            )
        }
    };
    below_the_root(scope, project, show);
    let there = whereabouts(&targets);
    match carry_out(&targets, request, planner, show)? {
        false => show(InstallLine::Note(&format!(
            "nothing to do: {what} is {there}"
        ))),
        true if request.dry_run => show(InstallLine::Note(DRY)),
        true => {
            show(InstallLine::Note(&format!(
                "what was installed is no longer {there}"
            )));
            let title = agent.title;
            show(InstallLine::Note(&format!(
                "a session of {title} that runs now keeps it until it ends"
            )));
        }
    }
    Ok(())
}

/// Takes out of the targets what the other scope's install needs, and says so.
fn leave_needed(
    request: &InstallRequest,
    project: &Path,
    program: &Program,
    targets: &mut Vec<Target>,
    show: Show<'_>,
) {
    let (agent, scope) = (request.agent, request.scope);
    for path in targets::needed_elsewhere(agent, scope, project, program, targets) {
        targets.retain(|target| target.path != path);
        let (path, other) = (path.display(), targets::flag(targets::other(scope)));
        show(InstallLine::Note(&format!(
            "{path} stays as it is: what `peerbus install {} --{other}` made needs it",
            agent.word
        )));
    }
}

fn whereabouts(targets: &[Target]) -> String {
    let paths: Vec<_> = targets
        .iter()
        .map(|t| t.path.display().to_string())
        .collect();
    format!("in {}", paths.join(" and "))
}

type Planner = fn(&Target, ConfigFile, Option<&Done>) -> Result<Edit, Failure>;

/// Plans all files, shows what changes, and writes it. Says whether anything changes.
fn carry_out(
    targets: &[Target],
    request: &InstallRequest,
    planner: Planner,
    show: Show<'_>,
) -> Result<bool, Failure> {
    let mut shown = false;
    let mut written = Vec::new();
    // Two installs at once would write what the other did not know.
    let _lock = match request.dry_run {
        true => None,
        false => record::lock()?,
    };
    for _ in 0..ATTEMPTS {
        let mut record = Record::read()?;
        let mut edits = Vec::new();
        for target in targets {
            let file = ConfigFile::read(&target.path)?;
            let done = record.of(&file.path).cloned();
            edits.push(planner(target, file, done.as_ref())?);
        }
        for stays in edits.iter().flat_map(|edit| &edit.stays) {
            if !shown {
                show(InstallLine::Note(stays));
            }
        }
        if !edits.iter().any(Edit::differs) {
            return Ok(shown);
        }
        for (edit, target) in edits.iter().zip(targets) {
            if edit.differs() && !shown {
                tell(edit, target, show)?;
            }
        }
        shown = true;
        if request.dry_run {
            return Ok(true);
        }
        let all = write(&edits, request, &mut record, &mut written);
        if all.map_err(|failure| halfway(&failure, &written))? {
            return Ok(true);
        }
    }
    let why = Failure::failed("another program keeps writing these files");
    Err(halfway(&why, &written))
}

fn tell(edit: &Edit, target: &Target, show: Show<'_>) -> Result<(), Failure> {
    let file = &edit.file;
    if file.asked != file.path {
        let (asked, path) = (file.asked.display(), file.path.display());
        show(InstallLine::Note(&format!(
            "{asked} is a symbolic link: {path} is changed, the link stays"
        )));
    }
    let before = file.bytes.as_ref().map(|_| file.text()).transpose()?;
    let before = before.map(|(text, mark)| format!("{mark}{text}"));
    let plain = |text: &str| edit::short(&target.want, text.trim_start_matches(BOM));
    let path = file.path.display().to_string();
    let diff = diff::unified(&path, before.as_deref(), edit.after.as_deref(), plain);
    show(InstallLine::Diff(&diff));
    Ok(())
}

/// Writes what changes. `false`: a file was changed by somebody else meanwhile, all must be
/// planned anew.
fn write(
    edits: &[Edit],
    request: &InstallRequest,
    record: &mut Record,
    written: &mut Vec<PathBuf>,
) -> Result<bool, Failure> {
    let edits = || edits.iter().filter(|edit| edit.differs());
    for edit in edits() {
        edit.file.check_writable()?;
    }
    // What goes away goes in the opposite order: a directory is made for the first file in it.
    let (stays, goes): (Vec<_>, Vec<_>) = edits().partition(|edit| edit.after.is_some());
    for edit in stays.into_iter().chain(goes.into_iter().rev()) {
        if !write_one(edit, request, record)? {
            return Ok(false);
        }
        written.push(edit.file.path.clone());
    }
    Ok(true)
}

/// Writes one file. What is put in is remembered first: it can be undone whatever happens then.
fn write_one(edit: &Edit, request: &InstallRequest, record: &mut Record) -> Result<bool, Failure> {
    let (path, own) = (&edit.file.path, request.scope == Scope::User);
    let before = record.of(path).cloned();
    let mut dirs = Vec::new();
    if let Some(mut done) = edit.done.clone() {
        if done.created && done.dirs.is_empty() {
            done.dirs = peerbus_os::dir::missing_above(path);
        }
        done.owner = own.then(|| request.agent.word.to_owned());
        record.set(path, Some(done));
        record.save()?;
        dirs = config_file::make_parents(path).map_err(|error| {
            let path = path.display();
            Failure::failed(format!("cannot make the directory of {path}: {error}"))
        })?;
    }
    let after = edit.after.as_deref().map(str::as_bytes);
    let replaced = edit.file.replace(after, own);
    if !matches!(replaced, Ok(true)) {
        config_file::remove_parents(&dirs);
        record.set(path, before);
        record.save()?;
        return replaced;
    }
    if let (None, Some(before)) = (&edit.after, &before) {
        config_file::remove_parents(&before.dirs);
    }
    if edit.done.is_none() {
        record.set(path, None);
        record.save()?;
    }
    Ok(true)
}

/// A failure, with what was changed before it.
fn halfway(failure: &Failure, written: &[PathBuf]) -> Failure {
    let paths: Vec<_> = written.iter().map(|p| p.display().to_string()).collect();
    match paths.as_slice() {
        [] => Failure::failed(format!("{failure}; nothing was changed")),
        paths => Failure::failed(format!(
            "{failure}; {} is changed already: try again when that is put right, or undo it with \
             `peerbus uninstall`",
            paths.join(" and ")
        )),
    }
}
