//! `peerbus install` and `peerbus uninstall`.

pub(crate) mod clients;
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
#[cfg(test)]
mod tests;
mod toml;
mod words;

use std::path::PathBuf;

use crate::args::{self, Install, Uninstall};
use crate::failure::Failure;
use crate::output;

use clients::{Places, Program, Scope, Target};
use files::Found;
use plan::Change;
use record::{Done, Record};

/// How often a file that somebody else is writing is read anew.
const ATTEMPTS: usize = 5;

/// Puts peerbus into a client's configuration.
pub(crate) fn run(verb: &Install) -> Result<(), Failure> {
    let scope = scope(verb.scope);
    if let Some(name) = &verb.name {
        naming::check(name, scope)?;
    }
    let program = Program {
        command: program::command(scope)?,
        name: verb.name.clone(),
    };
    let places = Places::find()?;
    let targets = clients::targets(verb.client, scope, &places, &program);
    let kept = naming::kept(&targets).filter(|_| program.name.is_none());
    below_the_root(scope, &places);
    let changed = carry_out(&targets, verb.dry_run, plan::install)?;
    if !changed {
        output::say(&format!(
            "nothing to do: peerbus is installed {}",
            whereabouts(&targets)
        ));
    } else if verb.dry_run {
        output::say("nothing was written (--dry-run)");
    } else {
        output::say(&format!(
            "peerbus is now installed {}",
            whereabouts(&targets)
        ));
    }
    if let Some(name) = kept {
        output::say(&format!(
            "its sessions keep the name {name}: `--name NAME` changes it, uninstall takes it away"
        ));
    }
    if !verb.dry_run {
        next::say(verb.client, scope, &program);
    }
    Ok(())
}

/// Says so where a project's files would not lie at its root.
fn below_the_root(scope: Scope, places: &Places) {
    let above = places.above();
    if let (Scope::Project, Some(root)) = (scope, above.last()) {
        let (here, root) = (places.project().display(), root.display());
        output::say(&format!(
            "this is for sessions started in {here}; the project's root seems to be {root}: run \
             it there if they start there"
        ));
    }
}

/// Takes peerbus out of it again.
pub(crate) fn undo(verb: &Uninstall) -> Result<(), Failure> {
    let scope = scope(verb.scope);
    let program = Program {
        command: program::command(scope).unwrap_or_else(|_| program::NAME.to_owned()),
        name: None,
    };
    let places = Places::find()?;
    let targets = clients::targets(verb.client, scope, &places, &program);
    below_the_root(scope, &places);
    let changed = carry_out(&targets, verb.dry_run, plan::uninstall)?;
    if !changed {
        output::say(&format!(
            "nothing to do: nothing of ours is {}",
            whereabouts(&targets)
        ));
    } else if verb.dry_run {
        output::say("nothing was written (--dry-run)");
    } else {
        let client = clients::title(verb.client);
        output::say(&format!(
            "what was installed is no longer {}",
            whereabouts(&targets)
        ));
        output::say(&format!(
            "sessions of {client} that run now keep it until they end"
        ));
    }
    Ok(())
}

fn scope(given: args::Scope) -> Scope {
    if given.project {
        Scope::Project
    } else {
        Scope::User
    }
}

fn whereabouts(targets: &[Target]) -> String {
    let paths: Vec<_> = targets
        .iter()
        .map(|t| t.path.display().to_string())
        .collect();
    format!("in {}", paths.join(" and "))
}

type Planner = fn(&Target, Found, Option<&Done>) -> Result<Change, Failure>;

/// Plans all files, shows what changes, and writes it. Says whether anything changes.
fn carry_out(targets: &[Target], dry_run: bool, planner: Planner) -> Result<bool, Failure> {
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
                output::say(stays);
            }
        }
        if !changes.iter().any(Change::differs) {
            return Ok(shown);
        }
        for change in changes.iter().filter(|change| change.differs() && !shown) {
            tell(change)?;
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
    let why = Failure::failed("another program keeps writing these files");
    Err(halfway(&why, &written))
}

fn tell(change: &Change) -> Result<(), Failure> {
    let found = &change.found;
    if found.asked != found.path {
        let (asked, path) = (found.asked.display(), found.path.display());
        output::say(&format!(
            "{asked} is a symbolic link: {path} is changed, the link stays"
        ));
    }
    let path = found.path.display().to_string();
    let existed = found.bytes.is_some();
    let after = change.after.as_deref().map(str::as_bytes);
    output::text(&diff::unified(&path, change.before(), existed, after))?;
    Ok(())
}

/// Writes what changes. `false`: a file was changed by somebody else meanwhile, all must be
/// planned anew.
fn write(
    changes: &[Change],
    record: &mut Record,
    written: &mut Vec<PathBuf>,
) -> Result<bool, Failure> {
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
fn write_one(change: &Change, record: &mut Record) -> Result<bool, Failure> {
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
            Failure::failed(format!("cannot make the directory of {path}: {error}"))
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
