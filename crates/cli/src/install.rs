//! `peerbus install` and `peerbus uninstall`.

use std::io;

use peerbus_agents::Scope;
use peerbus_setup::{Line, Request};

use crate::args::{Files, Install, Uninstall};
use crate::failure::Failure;
use crate::output;

/// Puts peerbus into an agent's configuration.
pub(crate) fn run(verb: Install) -> Result<(), Failure> {
    let request = Request {
        name: verb.name,
        unasked: verb.allow,
        used_as: verb.used_as,
        ..request(&verb.files, verb.used)
    };
    Ok(peerbus_setup::install(request, &mut show)?)
}

/// Takes peerbus out of it again.
pub(crate) fn undo(verb: Uninstall) -> Result<(), Failure> {
    let request = request(&verb.files, verb.used);
    Ok(peerbus_setup::uninstall(request, &mut show)?)
}

fn request(files: &Files, used: Vec<String>) -> Request {
    Request {
        agent: files.agent,
        scope: match files.scope.project {
            true => Scope::Project,
            false => Scope::User,
        },
        name: None,
        unasked: false,
        used,
        used_as: None,
        dry_run: files.dry_run,
    }
}

fn show(line: Line<'_>) -> io::Result<()> {
    match line {
        Line::Note(text) => output::say(text),
        Line::Diff(text) => output::text(text)?,
    }
    Ok(())
}
