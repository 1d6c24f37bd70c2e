//! `peerbus install` and `peerbus uninstall`.

use peerbus_adapter::Failure;
use peerbus_agents::Scope;
use peerbus_setup::{InstallLine, InstallRequest};

use crate::args::{Files, Install, Uninstall};
use crate::output;

pub(crate) fn run(verb: Install) -> Result<(), Failure> {
    let request = InstallRequest {
        name: verb.name,
        unasked: verb.allow,
        used_as: verb.used_as,
        ..request(&verb.files, verb.used)
    };
    shown(|show| peerbus_setup::install(request, show))
}

pub(crate) fn undo(verb: Uninstall) -> Result<(), Failure> {
    let request = request(&verb.files, verb.used);
    shown(|show| peerbus_setup::uninstall(request, show))
}

fn request(files: &Files, used: Vec<String>) -> InstallRequest {
    InstallRequest {
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

/// Acts, whether or not anybody reads what changes: that this could not be shown is told at the
/// end.
fn shown(
    act: impl FnOnce(&mut dyn FnMut(InstallLine<'_>)) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut unwritten = Ok(());
    act(&mut |line| match line {
        InstallLine::Note(text) => output::say(text),
        InstallLine::Diff(text) => {
            if let Err(error) = output::text(text) {
                unwritten = Err(error);
            }
        }
    })?;
    Ok(unwritten?)
}
