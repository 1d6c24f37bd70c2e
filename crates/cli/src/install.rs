//! `peerbus install` and `peerbus uninstall`.

use std::io;

use peerbus_setup::{Line, Request};

use crate::args::{Install, Scope, Uninstall};
use crate::failure::Failure;
use crate::output;

/// Puts peerbus into an agent's configuration.
pub(crate) fn run(verb: Install) -> Result<(), Failure> {
    let request = Request {
        agent: verb.agent,
        scope: scope(verb.scope),
        name: verb.name,
        unasked: verb.allow,
        dry_run: verb.dry_run,
    };
    Ok(peerbus_setup::install(request, &mut show)?)
}

/// Takes peerbus out of it again.
pub(crate) fn undo(verb: &Uninstall) -> Result<(), Failure> {
    let request = Request {
        agent: verb.agent,
        scope: scope(verb.scope),
        name: None,
        unasked: false,
        dry_run: verb.dry_run,
    };
    Ok(peerbus_setup::uninstall(request, &mut show)?)
}

fn scope(given: Scope) -> peerbus_agents::Scope {
    match given.project {
        true => peerbus_agents::Scope::Project,
        false => peerbus_agents::Scope::User,
    }
}

fn show(line: Line<'_>) -> io::Result<()> {
    match line {
        Line::Note(text) => output::say(text),
        Line::Diff(text) => output::text(text)?,
    }
    Ok(())
}
