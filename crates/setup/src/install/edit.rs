//! What a file is, what it will be, and that nothing else changes.

use std::path::{Path, PathBuf};

use peerbus_adapter::Failure;
use peerbus_agents::Format;
use serde_json::Value as Json;

use super::config_file::{ConfigFile, Edit};
use super::hooks::Hook;
use super::program::{NAME, is_ours};
use super::record::Done;
use super::used::{self, Shared, Taken, Wanted};
use super::value::ParseError;
use super::{hooks, json, toml, unasked, whole};
use crate::text::escape;

/// As much of a hook as is shown, in characters.
const SHOWN_CHARS: usize = 120;
const FOREIGN: &str =
    "there is a server called peerbus that does not run peerbus itself: rename or remove it";

/// What is to stand in one file.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) want: Want,
}

/// Our part of a file.
#[derive(Debug)]
pub(crate) enum Want {
    /// An entry in a table of servers, and one for each of the servers of others that it uses.
    Servers(Wanted),
    /// Hooks in Claude Code's settings, and whether it may call the tools unasked. If not, what
    /// stands there about that stays.
    Hooks(Vec<Hook>, bool),
    /// A file that is ours alone.
    Whole(peerbus_agents::Program),
}

impl Want {
    /// What is wanted of servers, if anything is.
    pub(crate) fn servers(&self) -> Option<&Wanted> {
        match self {
            Self::Servers(wanted) => Some(wanted),
            Self::Hooks(..) | Self::Whole(_) => None,
        }
    }
}

pub(crate) fn install(
    target: &Target,
    file: ConfigFile,
    done: Option<&Done>,
) -> Result<Edit, Failure> {
    let want = &target.want;
    if let Want::Whole(ours) = want {
        return whole::install(ours.text, file, done);
    }
    let (text, mark) = file.text()?;
    let edited = read(want, text).and_then(|found| {
        check_foreign(want, text, &found)?;
        Ok((set(want, text, &found)?, found))
    });
    let (after, found) = edited.map_err(|error| refusal(&file, &error))?;
    check_unharmed(want, &file, text, &after)?;
    // Once our part is gone from a file, nothing that was known of it holds.
    let known = done.filter(|_| file.bytes.is_some() && has_ours(want, &found));
    let done = match known {
        Some(done) => done.updated(text, &after),
        None => Done::new(file.bytes.is_none(), text, &after),
    };
    let stays = strangers(want, &file, &found);
    let after = format!("{mark}{after}");
    Ok(Edit {
        file,
        after: Some(after),
        done: Some(done),
        stays,
    })
}

pub(crate) fn uninstall(
    target: &Target,
    file: ConfigFile,
    done: Option<&Done>,
) -> Result<Edit, Failure> {
    let want = &target.want;
    if let Want::Whole(ours) = want {
        return whole::uninstall(ours.text, file, done);
    }
    let (text, mark) = file.text()?;
    let found = read(want, text).map_err(|error| refusal(&file, &error))?;
    let stays = strangers(want, &file, &found);
    if !has_ours(want, &found) {
        return Ok(Edit::none(file, stays));
    }
    // The bytes as they were, if the file still is what was written.
    let original = done.and_then(|done| done.original_of(text));
    let original = original.filter(|original| {
        let ours = read(want, original).is_ok_and(|found| has_ours(want, &found));
        !ours && is_unharmed(want, text, original)
    });
    let after = match original {
        Some(original) => original,
        None => {
            let before = done.and_then(|done| read(want, done.original.as_ref()?).ok());
            // Without a record a container that is left empty was ours, as far as anybody can tell.
            let may_go = |path: &str| match (&before, done) {
                (Some(before), _) => before.pointer(&format!("/{path}")).is_none(),
                (None, Some(done)) => done.made.contains(path),
                (None, None) => true,
            };
            unset(want, text, &servers(want, &found), may_go)
                .map_err(|error| refusal(&file, &error))?
        }
    };
    check_unharmed(want, &file, text, &after)?;
    let created = done.map_or_else(|| is_all_ours(target, text), |done| done.created);
    let bare = after.trim().trim_matches(['{', '}']).trim().is_empty();
    let after = (!created || !bare).then(|| format!("{mark}{after}"));
    Ok(Edit {
        file,
        after,
        done: None,
        stays,
    })
}

/// Plans to take out what is used of others, as far as the target names it; the rest stays.
pub(crate) fn take_out(
    target: &Target,
    file: ConfigFile,
    done: Option<&Done>,
) -> Result<Edit, Failure> {
    let want = &target.want;
    let Some(wanted) = want.servers() else {
        return Ok(Edit::none(file, Vec::new()));
    };
    let (text, mark) = file.text()?;
    let found = read(want, text).map_err(|error| refusal(&file, &error))?;
    let named = used(want, &found).filter(|(_, _, one)| wanted.uses.shared.contains(one));
    let names: Vec<_> = named.map(|(name, ..)| name.to_owned()).collect();
    if names.is_empty() {
        return Ok(Edit::none(file, Vec::new()));
    }
    if names.len() == servers(want, &found).len() {
        return uninstall(target, file, done);
    }
    let after = unset(want, text, &names, |_| false).map_err(|error| refusal(&file, &error))?;
    check_unharmed(want, &file, text, &after)?;
    let done = done.map(|done| done.updated(text, &after));
    let after = format!("{mark}{after}");
    Ok(Edit {
        file,
        after: Some(after),
        done,
        stays: Vec::new(),
    })
}

/// Reads a file, and what is in it as plain JSON. `None`: it is not there. An error is a sentence.
pub(crate) fn load(want: &Want, path: &Path) -> Result<Option<(ConfigFile, Json)>, String> {
    let file = ConfigFile::read(path).map_err(|error| error.to_string())?;
    if file.bytes.is_none() {
        return Ok(None);
    }
    let (text, _) = file.text().map_err(|error| error.to_string())?;
    match read(want, text) {
        Ok(found) => Ok(Some((file, found))),
        Err(error) => Err(format!("{} cannot be read: {error}", file.path.display())),
    }
}

/// What is in a file as plain JSON, if it is there and can be read.
pub(crate) fn value(want: &Want, path: &Path) -> Option<Json> {
    Some(load(want, path).ok()??.1)
}

/// A text as plain JSON; nothing in it counts as an empty object.
pub(crate) fn read(want: &Want, text: &str) -> Result<Json, ParseError> {
    match want {
        Want::Servers(wanted) if wanted.form.format == Format::Toml => toml::read(text),
        Want::Whole(_) => Ok(text.into()),
        _ => Ok(json::Document::parse(text)?.plain()),
    }
}

/// A text in short lines, if it can be read.
pub(super) fn short(want: &Want, text: &str) -> Option<String> {
    let found = read(want, text).ok()?;
    match want {
        Want::Servers(wanted) if wanted.form.format == Format::Toml => {
            ::toml::to_string_pretty(&found).ok()
        }
        _ => serde_json::to_string_pretty(&found).ok(),
    }
}

/// Whether something of ours is in a target's file, or it cannot be seen.
pub(super) fn is_there(target: &Target) -> bool {
    match load(&target.want, &target.path) {
        Ok(found) => found.is_some_and(|(_, found)| has_ours(&target.want, &found)),
        Err(_) => true,
    }
}

fn set(want: &Want, text: &str, found: &Json) -> Result<String, ParseError> {
    match want {
        Want::Servers(wanted) => {
            let table = wanted.form.table;
            let refused = |(entry, why): Taken| wrong_server(wanted, text, &entry, &why);
            let mut entries = vec![(NAME.to_owned(), wanted.entry.clone())];
            entries.extend(wanted.entries(found.get(table)).map_err(refused)?);
            match wanted.form.format {
                Format::Json => json::set(text, table, &entries),
                Format::Toml => toml::set(text, table, &entries),
            }
        }
        Want::Hooks(wanted, unasked) => hooks::set(text, wanted, *unasked),
        Want::Whole(ours) => Ok(ours.text.to_owned()),
    }
}

/// Takes everything of ours out; `names`: the servers.
fn unset(
    want: &Want,
    text: &str,
    names: &[String],
    may_go: impl Fn(&str) -> bool,
) -> Result<String, ParseError> {
    match want {
        Want::Servers(Wanted { form, .. }) => match form.format {
            Format::Json => json::unset(text, form.table, names, may_go(form.table)),
            Format::Toml => toml::unset(text, form.table, names),
        },
        Want::Hooks(..) => hooks::unset(text, may_go),
        Want::Whole(_) => Ok(String::new()),
    }
}

/// What calls itself or something peerbus and is not ours.
fn strangers(want: &Want, file: &ConfigFile, found: &Json) -> Vec<String> {
    let path = file.path.display();
    let says = |what: String| format!("{path}: {what}: it is not ours, and stays");
    if let Want::Hooks(..) = want {
        let hooks = hooks::strangers(found).into_iter();
        let hooks = hooks.map(|(event, command)| {
            let shown = escape(&command, SHOWN_CHARS);
            format!("a hook at {event} calls peerbus in a way of its own (`{shown}`)")
        });
        return hooks.map(says).collect();
    }
    let server = entry(want, found).filter(|entry| !is_ours(entry));
    let what = "the server called peerbus does not run peerbus itself";
    server.map(|_| says(what.to_owned())).into_iter().collect()
}

/// Whether a text is what install writes where there is no file.
fn is_all_ours(target: &Target, text: &str) -> bool {
    let missing = ConfigFile {
        asked: target.path.clone(),
        path: target.path.clone(),
        bytes: None,
    };
    let fresh = install(target, missing, None);
    fresh.is_ok_and(|fresh| fresh.after.as_deref() == Some(text))
}

pub(crate) fn entry<'v>(want: &Want, found: &'v Json) -> Option<&'v Json> {
    found.get(want.servers()?.form.table)?.get(NAME)
}

/// Whether one of our servers is in what was read of a target, or one with its name.
pub(super) fn is_in(want: &Want, found: &Json) -> bool {
    entry(want, found).is_some() || used(want, found).next().is_some()
}

pub(crate) fn used<'v>(
    want: &Want,
    found: &'v Json,
) -> impl Iterator<Item = (&'v str, &'v Json, Shared)> {
    let servers = want.servers();
    used::among(servers.and_then(|wanted| found.get(wanted.form.table)))
}

fn servers(want: &Want, found: &Json) -> Vec<String> {
    let adapter = entry(want, found).filter(|entry| is_ours(entry));
    let used = used(want, found).map(|(name, ..)| name.to_owned());
    adapter
        .map(|_| NAME.to_owned())
        .into_iter()
        .chain(used)
        .collect()
}

fn has_ours(want: &Want, found: &Json) -> bool {
    match want {
        Want::Hooks(..) => !hooks::commands(found).is_empty(),
        Want::Whole(ours) => found == ours.text,
        Want::Servers(_) => !servers(want, found).is_empty(),
    }
}

/// Refuses an entry of our name that is somebody else's.
fn check_foreign(want: &Want, text: &str, found: &Json) -> Result<(), ParseError> {
    match want.servers() {
        Some(wanted) if !entry(want, found).is_none_or(is_ours) => {
            Err(wrong_server(wanted, text, NAME, FOREIGN))
        }
        _ => Ok(()),
    }
}

fn wrong_server(wanted: &Wanted, text: &str, name: &str, what: &str) -> ParseError {
    let table = wanted.form.table;
    match wanted.form.format {
        Format::Json => match json::Document::parse(text) {
            Ok(document) => document.wrong_server(table, name, what),
            Err(error) => error,
        },
        Format::Toml => toml::wrong_server(text, table, name, what),
    }
}

/// A text as plain JSON without anything of ours, nor an empty container for it.
fn stripped(want: &Want, text: &str) -> Result<Json, ParseError> {
    let mut found = read(want, text)?;
    let container = match want {
        Want::Servers(wanted) => {
            let (table, ours) = (wanted.form.table, servers(want, &found));
            let servers = found.get_mut(table).and_then(Json::as_object_mut);
            if let Some(servers) = servers {
                servers.retain(|name, _| !ours.contains(name));
            }
            table
        }
        Want::Hooks(..) => {
            hooks::strip(&mut found);
            unasked::strip(&mut found);
            "hooks"
        }
        Want::Whole(_) => return Ok(Json::Null),
    };
    if let Some(members) = found.as_object_mut() {
        let is_empty = |value: &Json| value.as_object().is_some_and(serde_json::Map::is_empty);
        members.retain(|name, value| name != container || !is_empty(value));
    }
    Ok(found)
}

/// Whether all that is not ours reads as before.
pub(super) fn is_unharmed(want: &Want, before: &str, after: &str) -> bool {
    match (stripped(want, before), stripped(want, after)) {
        (Ok(before), Ok(after)) => before == after,
        _ => false,
    }
}

/// It is always unharmed; but it is not our file.
fn check_unharmed(
    want: &Want,
    file: &ConfigFile,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    if is_unharmed(want, before, after) {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{} is laid out in a way that cannot be edited safely; nothing was changed: make the entry \
         by hand (docs/OTHER_AGENTS.md)",
        file.path.display()
    )))
}

fn refusal(file: &ConfigFile, error: &ParseError) -> Failure {
    let path = file.path.display();
    Failure::failed(format!(
        "{path}: {error}; nothing was changed: put that right and try again"
    ))
}
