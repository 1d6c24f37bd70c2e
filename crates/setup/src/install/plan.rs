//! What a file is, what it will be, and that nothing else changes.

use std::collections::BTreeSet;

use jsonc_parser::ast::Value as Ast;
use serde_json::Value;

use super::draft::Draft;
use super::files::Found;
use super::json::{self, Flaw};
use super::record::Done;
use super::targets::{Target, Want};
use super::{edit, hooks, program, toml};
use crate::error::Error;
use crate::text::escape;

/// As much of a hook as is shown, in characters.
const SHOWN_CHARS: usize = 120;

/// A change to one file.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) found: Found,
    /// What the file will hold; `None`: it goes away.
    pub(crate) after: Option<String>,
    /// What to remember of it.
    pub(crate) done: Option<Done>,
    /// What of somebody else's looks like ours and stays, in sentences.
    pub(crate) stays: Vec<String>,
}

impl Change {
    /// What the file holds now.
    pub(crate) fn before(&self) -> &[u8] {
        self.found.bytes.as_deref().unwrap_or_default()
    }

    /// Whether there is anything to do.
    pub(crate) fn differs(&self) -> bool {
        match &self.after {
            Some(after) => self.found.bytes.as_deref() != Some(after.as_bytes()),
            None => self.found.bytes.is_some(),
        }
    }
}

/// Plans to put in what a target wants.
pub(crate) fn install(target: &Target, found: Found, done: Option<&Done>) -> Result<Change, Error> {
    let (text, mark) = found.text()?;
    let mut done = done.cloned().unwrap_or_default();
    if found.bytes.is_none() {
        done = Done {
            created: true,
            ..Done::default()
        };
    }
    let read = reading(&target.want, text).map_err(|flaw| refusal(&found, text, &flaw))?;
    let stays = strangers(target, &found, &read);
    let fresh = !has_ours(target, &read);
    if fresh && found.bytes.is_some() {
        // What was put in earlier is gone, and with it what was known of it.
        done = Done::default();
    }
    let mut draft = Draft::new(text, &done.inserted, &done.made);
    let set = foreign(target, text, &read).and_then(|()| match &target.want {
        Want::Server { path, entry } => edit::set(&mut draft, path, entry),
        Want::Hooks(wanted) => hooks::set(&mut draft, wanted),
        Want::Toml(entry) => toml::set(&mut draft, entry),
    });
    set.map_err(|flaw| refusal(&found, text, &flaw))?;
    unharmed(target, &found, text, &draft.text)?;
    let after = format!("{mark}{}", draft.text);
    done.inserted = draft.inserted;
    done.made = draft.made;
    Ok(Change {
        found,
        after: Some(after),
        done: Some(done),
        stays,
    })
}

/// Plans to take out what is ours.
pub(crate) fn uninstall(
    target: &Target,
    found: Found,
    done: Option<&Done>,
) -> Result<Change, Error> {
    if found.bytes.is_none() {
        return Ok(untouched(found, Vec::new()));
    }
    let (text, mark) = found.text()?;
    let read = reading(&target.want, text).map_err(|flaw| refusal(&found, text, &flaw))?;
    let stays = strangers(target, &found, &read);
    if !has_ours(target, &read) {
        return Ok(untouched(found, stays));
    }
    let none = BTreeSet::new();
    let (inserted, made) = done.map_or((&[][..], &none), |d| (&d.inserted[..], &d.made));
    let mut draft = Draft::new(text, inserted, made);
    let reverted = draft.reverted();
    // Without a record what is left empty was ours, as far as anybody can tell.
    let droppable = |path: &str| done.is_none() || made.contains(path);
    let unset = match &target.want {
        Want::Server { path, .. } => edit::unset(&mut draft, path, &droppable),
        Want::Hooks(_) => hooks::unset(&mut draft, &droppable),
        Want::Toml(_) => toml::unset(&mut draft),
    };
    unset.map_err(|flaw| refusal(&found, text, &flaw))?;
    let meant = reading(&target.want, &draft.text).map_err(|flaw| refusal(&found, text, &flaw))?;
    // The bytes as they were, if taking out what was put in gives what is meant.
    let exact = reverted.filter(|text| {
        reading(&target.want, text)
            .is_ok_and(|read| !has_ours(target, &read) && pruned(read) == pruned(meant.clone()))
    });
    let after = exact.unwrap_or(draft.text);
    unharmed(target, &found, text, &after)?;
    let created = done.map_or_else(|| is_all_ours(target, text), |done| done.created);
    let empty = reading(&target.want, &after).is_ok_and(|read| is_empty(&pruned(read)));
    let bare = after.trim().trim_matches(['{', '}']).trim().is_empty();
    let gone = created && empty && bare;
    Ok(Change {
        found,
        after: (!gone).then(|| format!("{mark}{after}")),
        done: None,
        stays,
    })
}

/// No change to what was found.
fn untouched(found: Found, stays: Vec<String>) -> Change {
    let text = found.bytes.clone().map(String::from_utf8);
    Change {
        found,
        after: text.and_then(Result::ok),
        done: None,
        stays,
    }
}

/// What calls itself or something peerbus and is not ours.
fn strangers(target: &Target, found: &Found, read: &Value) -> Vec<String> {
    let path = found.path.display();
    let says = |what: String| format!("{path}: {what}: it is not ours, and stays");
    if let Want::Hooks(_) = target.want {
        let hooks = hooks::strangers(read).into_iter();
        let hooks = hooks.map(|(event, command)| {
            let shown = escape(&command, SHOWN_CHARS);
            format!("a hook at {event} calls peerbus in a way of its own (`{shown}`)")
        });
        return hooks.map(says).collect();
    }
    let server = entry(&target.want, read).filter(|entry| !is_ours(entry));
    let what = "the server called peerbus does not run peerbus itself";
    server.map(|_| says(what.to_owned())).into_iter().collect()
}

/// Whether a text is what install writes where there is no file.
fn is_all_ours(target: &Target, text: &str) -> bool {
    let missing = Found {
        asked: target.path.clone(),
        path: target.path.clone(),
        bytes: None,
    };
    let fresh = install(target, missing, None);
    fresh.is_ok_and(|fresh| fresh.after.as_deref() == Some(text))
}

/// The server's entry in what was read of a target.
pub(crate) fn entry<'v>(want: &Want, read: &'v Value) -> Option<&'v Value> {
    match want {
        Want::Server { path, .. } => read.pointer(&format!("/{}/{}", path[0], path[1])),
        Want::Hooks(_) => None,
        Want::Toml(_) => read.pointer("/mcp_servers/peerbus"),
    }
}

/// What an entry runs: the program, and for OpenCode its arguments.
pub(crate) fn command(entry: &Value) -> Option<Vec<String>> {
    match entry.get("command")? {
        Value::String(word) => Some(vec![word.clone()]),
        words => serde_json::from_value(words.clone()).ok(),
    }
}

/// Whether something of ours is in what was read.
fn has_ours(target: &Target, read: &Value) -> bool {
    match &target.want {
        Want::Hooks(_) => !hooks::commands(read).is_empty(),
        _ => entry(&target.want, read).is_some_and(is_ours),
    }
}

/// Whether an entry runs peerbus itself. A wrapper is its writer's.
pub(crate) fn is_ours(entry: &Value) -> bool {
    let words = command(entry).unwrap_or_default();
    words
        .first()
        .is_some_and(|program| program::is_peerbus(program))
}

/// Refuses an entry of our name that is somebody else's.
fn foreign(target: &Target, text: &str, read: &Value) -> Result<(), Flaw> {
    if entry(&target.want, read).is_none_or(is_ours) {
        return Ok(());
    }
    let at = match &target.want {
        Want::Server { path, .. } => json::parse(text)?
            .as_ref()
            .and_then(|root| json::at(root, path))
            .map_or(0, json::start),
        _ => toml::place(text),
    };
    let what =
        "there is a server called peerbus that does not run peerbus itself: rename or remove it";
    Err(Flaw::new(at, what))
}

/// A text as plain JSON; nothing in it counts as an empty object.
pub(crate) fn reading(want: &Want, text: &str) -> Result<Value, Flaw> {
    match want {
        Want::Toml(_) => toml::document(text),
        _ => {
            let root = json::parse(text)?;
            let object = |root: &Ast<'_>| json::object(root, "the file").map(|_| json::plain(root));
            root.as_ref().map_or_else(|| Ok(empty()), object)
        }
    }
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Without the containers of ours that are empty.
fn pruned(mut value: Value) -> Value {
    hooks::strip(&mut value);
    if let Some(members) = value.as_object_mut() {
        members.retain(|name, member| {
            let ours = ["mcpServers", "mcp", "mcp_servers", "hooks"].contains(&name.as_str());
            !(ours && is_empty(member))
        });
    }
    value
}

/// Without anything of ours.
fn stripped(target: &Target, text: &str) -> Result<Value, Flaw> {
    let mut value = reading(&target.want, text)?;
    let servers = match &target.want {
        Want::Server { path, .. } => path[0],
        Want::Toml(_) => "mcp_servers",
        Want::Hooks(_) => "",
    };
    let servers = value.get_mut(servers).and_then(Value::as_object_mut);
    if let Some(servers) = servers.filter(|all| all.get("peerbus").is_some_and(is_ours)) {
        servers.remove("peerbus");
    }
    Ok(pruned(value))
}

/// Checks that all that is not ours reads as before. It always does; but it is not our file.
pub(super) fn unharmed(
    target: &Target,
    found: &Found,
    before: &str,
    after: &str,
) -> Result<(), Error> {
    let both = stripped(target, before).and_then(|b| Ok((b, stripped(target, after)?)));
    match both {
        Ok((before, after)) if before == after => Ok(()),
        _ => Err(Error::failed(format!(
            "{} is laid out in a way that cannot be edited safely; nothing was changed: make the \
             entry by hand (docs/OTHER_AGENTS.md)",
            found.path.display()
        ))),
    }
}

fn refusal(found: &Found, text: &str, flaw: &Flaw) -> Error {
    let (path, why) = (found.path.display(), flaw.located(text));
    Error::failed(format!(
        "{path}: {why}; nothing was changed: put that right and try again"
    ))
}
