//! What is left for the user to do.

use std::path::Path;

use peerbus_agents::{Agent, Fixed, Note, Part, Scope, claude_code};
use peerbus_os::file::read_small;

use super::edit::{Target, Want};
use super::program::NAME;
use super::targets::Program;
use super::value::{fixed, plain};
use super::{edit, naming, program, unasked, used};

/// A file beside which a note is told has no more bytes.
const BESIDE_BYTES_MAX: u64 = 1024 * 1024;

/// What the servers of others are called that were asked for, here and on the bus.
pub(super) fn used(targets: &[Target]) -> Vec<String> {
    let mut said = Vec::new();
    for target in targets {
        let Some(wanted) = target.want.servers() else {
            continue;
        };
        let found = edit::value(&target.want, &target.path).unwrap_or_default();
        for (entry, server, shared) in edit::used(&target.want, &found) {
            if !wanted.uses.shared.contains(&shared) {
                continue;
            }
            let uri = shared.uri();
            let name = program::argument(server, "--name");
            let to = match name.and_then(|name| used::on_the_bus(&name).ok()) {
                Some(name) => format!(": its --to has to cover '{name}'"),
                None => String::new(),
            };
            said.push(format!("{uri} is the server {entry}{to}"));
        }
    }
    said
}

/// Whether an agent may call the bus tools without asking its user, by what stands in a file.
pub(super) fn is_unasked(agent: &Agent, target: &Target) -> bool {
    let found = edit::value(&target.want, &target.path).unwrap_or_default();
    if matches!(target.want, Want::Hooks(..)) {
        return unasked::allows(&found, claude_code::UNASKED);
    }
    let Some(entry) = edit::entry(&target.want, &found) else {
        return false;
    };
    let servers = agent.files.iter().filter_map(|file| match &file.part {
        Part::Server(server) => Some(server.unasked),
        _ => None,
    });
    let is = |(name, value): &(&str, Fixed)| entry.get(*name) == Some(&plain(&fixed(value)));
    servers.flatten().any(is)
}

/// What comes next, in sentences.
pub(super) fn steps(agent: &Agent, scope: Scope, project: &Path, called: &Program) -> Vec<String> {
    let mut steps = vec![format!(
        "start {} anew: running sessions do not look again",
        agent.title
    )];
    let applies = |note: &&Note| {
        let here = note.beside.is_none_or(|file| {
            let text = read_small(&project.join(file), BESIDE_BYTES_MAX);
            text.is_some_and(|text| text.contains(&format!("\"{NAME}\"")))
        });
        let asks = !note.asks || !called.unasked;
        here && asks && note.scope.is_none_or(|only| only == scope)
    };
    let notes = agent.notes.iter().filter(applies);
    steps.extend(notes.map(|note| note.text.to_owned()));
    if scope == Scope::Project {
        let here = match program::which(NAME) {
            Some(_) => "",
            None => ", and it is not on your PATH",
        };
        steps.push(format!(
            "everybody who works on the project needs `peerbus` on the PATH{here}"
        ));
    }
    if let Some(name) = &called.name {
        steps.push(one_at_a_time(name));
    }
    steps.push(
        "run `peerbus doctor` to check; the first session starts a broker if none runs".into(),
    );
    steps
}

/// What a name means for sessions beside each other.
fn one_at_a_time(name: &str) -> String {
    let alone = "only one session at a time can have that name, others wait for it; without --name \
                 each has its own";
    match naming::expanded(name, |_| None) {
        Ok(here) if here == name => format!("the name is {name}: {alone}"),
        Ok(here) => format!("the name is {here} for every session here: {alone}"),
        Err(why) => format!("warning: a session started here would not start: {why}"),
    }
}
