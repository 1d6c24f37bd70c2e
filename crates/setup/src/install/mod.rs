//! `peerbus install` and `peerbus uninstall`.

mod diff;
mod draft;
mod edit;
pub(crate) mod files;
pub(crate) mod hooks;
mod json;
pub(crate) mod naming;
mod next;
pub(crate) mod plan;
pub(crate) mod program;
mod record;
pub(crate) mod targets;
#[cfg(test)]
mod tests;
mod toml;
mod words;

use std::io;
use std::path::PathBuf;

use peerbus_agents::{Agent, Scope};

use crate::error::Error;

use files::Found;
use plan::Change;
use record::{Done, Record};
use targets::{Places, Program, Target};

/// How often a file that somebody else is writing is read anew.
const ATTEMPTS: usize = 5;

/// What an install or an uninstall is for.
#[derive(Debug)]
pub struct Request {
    /// Whose configuration.
    pub agent: &'static Agent,
    /// Which of them.
    pub scope: Scope,
    /// A name for the sessions; an uninstall needs none.
    pub name: Option<String>,
    /// Only show what would change.
    pub dry_run: bool,
}

/// Something to show.
#[derive(Debug)]
pub enum Line<'t> {
    /// A sentence for a person.
    Note(&'t str),
    /// What changes in a file, as a unified diff of several lines.
    Diff(&'t str),
}

/// Takes what is to be shown, in order.
type Show<'s> = &'s mut dyn FnMut(Line<'_>) -> io::Result<()>;

/// Puts peerbus into an agent's configuration.
///
/// # Errors
///
/// When a file cannot be understood or written, with its place and what was changed before.
pub fn install(request: Request, show: Show<'_>) -> Result<(), Error> {
    let (agent, scope) = (request.agent, request.scope);
    if let Some(name) = &request.name {
        naming::check(name, scope)?;
    }
    let program = Program {
        command: program::command(scope)?,
        name: request.name,
    };
    let places = Places::find()?;
    let targets = targets::targets(agent, scope, &places, &program);
    let kept = naming::kept(&targets).filter(|_| program.name.is_none());
    below_the_root(scope, &places, show)?;
    let there = whereabouts(&targets);
    let done = match carry_out(&targets, request.dry_run, plan::install, show)? {
        false => format!("nothing to do: peerbus is installed {there}"),
        true if request.dry_run => DRY.to_owned(),
        true => format!("peerbus is now installed {there}"),
    };
    show(Line::Note(&done))?;
    if let Some(name) = kept {
        show(Line::Note(&format!(
            "its sessions keep the name {name}: `--name NAME` changes it, uninstall takes it away"
        )))?;
    }
    if !request.dry_run {
        for step in next::steps(agent, scope, &places, &program) {
            show(Line::Note(&format!("- {step}")))?;
        }
    }
    Ok(())
}

const DRY: &str = "nothing was written (--dry-run)";

/// Says so where a project's files would not lie at its root.
fn below_the_root(scope: Scope, places: &Places, show: Show<'_>) -> Result<(), Error> {
    let above = places.above();
    if let (Scope::Project, Some(root)) = (scope, above.last()) {
        let (here, root) = (places.project().display(), root.display());
        show(Line::Note(&format!(
            "this is for sessions started in {here}; the project's root seems to be {root}: run \
             it there if they start there"
        )))?;
    }
    Ok(())
}

/// Takes peerbus out of an agent's configuration.
///
/// # Errors
///
/// When a file cannot be understood or written, with its place and what was changed before.
pub fn uninstall(request: Request, show: Show<'_>) -> Result<(), Error> {
    let (agent, scope) = (request.agent, request.scope);
    let program = Program {
        command: program::command(scope).unwrap_or_else(|_| program::NAME.to_owned()),
        name: None,
    };
    let places = Places::find()?;
    let targets = targets::targets(agent, scope, &places, &program);
    below_the_root(scope, &places, show)?;
    let there = whereabouts(&targets);
    match carry_out(&targets, request.dry_run, plan::uninstall, show)? {
        false => show(Line::Note(&format!(
            "nothing to do: nothing of ours is {there}"
        )))?,
        true if request.dry_run => show(Line::Note(DRY))?,
        true => {
            show(Line::Note(&format!(
                "what was installed is no longer {there}"
            )))?;
            let title = agent.title;
            show(Line::Note(&format!(
                "sessions of {title} that run now keep it until they end"
            )))?;
        }
    }
    Ok(())
}

fn whereabouts(targets: &[Target]) -> String {
    let paths: Vec<_> = targets
        .iter()
        .map(|t| t.path.display().to_string())
        .collect();
    format!("in {}", paths.join(" and "))
}

type Planner = fn(&Target, Found, Option<&Done>) -> Result<Change, Error>;

/// Plans all files, shows what changes, and writes it. Says whether anything changes.
fn carry_out(
    targets: &[Target],
    dry_run: bool,
    planner: Planner,
    show: Show<'_>,
) -> Result<bool, Error> {
    let mut shown = false;
    let mut written = Vec::new();
    for _ in 0..ATTEMPTS {
        let mut record = Record::load();
        let mut changes = Vec::new();
        for target in targets {
            let found = Found::read(&target.path)?;
            let done = record.of(&found.path).cloned();
            changes.push(planner(target, found, done.as_ref())?);
        }
        for stays in changes.iter().flat_map(|change| &change.stays) {
            if !shown {
                show(Line::Note(stays))?;
            }
        }
        if !changes.iter().any(Change::differs) {
            return Ok(shown);
        }
        for change in changes.iter().filter(|change| change.differs() && !shown) {
            tell(change, show)?;
        }
        shown = true;
        if dry_run {
            return Ok(true);
        }
        let all = write(&changes, &mut record, &mut written);
        if all.map_err(|failure| halfway(&failure, &written))? {
            return Ok(true);
        }
    }
    let why = Error::failed("another program keeps writing these files");
    Err(halfway(&why, &written))
}

fn tell(change: &Change, show: Show<'_>) -> Result<(), Error> {
    let found = &change.found;
    if found.asked != found.path {
        let (asked, path) = (found.asked.display(), found.path.display());
        show(Line::Note(&format!(
            "{asked} is a symbolic link: {path} is changed, the link stays"
        )))?;
    }
    let path = found.path.display().to_string();
    let existed = found.bytes.is_some();
    let after = change.after.as_deref().map(str::as_bytes);
    show(Line::Diff(&diff::unified(
        &path,
        change.before(),
        existed,
        after,
    )))?;
    Ok(())
}

/// Writes what changes. `false`: a file was changed by somebody else meanwhile, all must be
/// planned anew.
fn write(
    changes: &[Change],
    record: &mut Record,
    written: &mut Vec<PathBuf>,
) -> Result<bool, Error> {
    let changes = || changes.iter().filter(|change| change.differs());
    for change in changes() {
        change.found.check_writable()?;
    }
    for change in changes() {
        if !write_one(change, record)? {
            return Ok(false);
        }
        written.push(change.found.path.clone());
    }
    Ok(true)
}

/// Writes one file. What is put in is remembered first: it can be undone whatever happens then.
fn write_one(change: &Change, record: &mut Record) -> Result<bool, Error> {
    let path = &change.found.path;
    let before = record.of(path).cloned();
    let mut dirs = Vec::new();
    if let Some(mut done) = change.done.clone() {
        if done.created && done.dirs.is_empty() {
            done.dirs = peerbus_os::dir::missing_above(path);
        }
        record.set(path, Some(done));
        record.save()?;
        dirs = files::make_parents(path).map_err(|error| {
            let path = path.display();
            Error::failed(format!("cannot make the directory of {path}: {error}"))
        })?;
    }
    let after = change.after.as_deref().map(str::as_bytes);
    let replaced = change.found.replace(after);
    if !matches!(replaced, Ok(true)) {
        files::remove_parents(&dirs);
        record.set(path, before);
        record.save()?;
        return replaced;
    }
    if let (None, Some(before)) = (&change.after, &before) {
        files::remove_parents(&before.dirs);
    }
    if change.done.is_none() {
        record.set(path, None);
        record.save()?;
    }
    Ok(true)
}

/// A failure, with what was changed before it.
fn halfway(failure: &Error, written: &[PathBuf]) -> Error {
    let paths: Vec<_> = written.iter().map(|p| p.display().to_string()).collect();
    match paths.as_slice() {
        [] => Error::failed(format!("{failure}; nothing was changed")),
        paths => Error::failed(format!(
            "{failure}; {} is changed already: try again when that is put right, or undo it with \
             `peerbus uninstall`",
            paths.join(" and ")
        )),
    }
}
