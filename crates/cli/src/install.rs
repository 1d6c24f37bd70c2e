//! `peerbus install` and `peerbus uninstall`.

use peerbus_adapter::Failure;
use peerbus_agents::{Agent, Scope};
use peerbus_setup::{FoundAgent, InstallLine, InstallRequest};

use crate::args::{Files, Install, Uninstall};
use crate::here::for_people;
use crate::output;

pub(crate) fn run(verb: Install) -> Result<(), Failure> {
    let Some(agent) = verb.files.agent else {
        return list();
    };
    let request = InstallRequest {
        name: verb.name,
        unasked: verb.allow,
        no_mod: verb.no_mod,
        used_as: verb.used_as,
        ..request(agent, &verb.files, verb.used)
    };
    shown(|show| peerbus_setup::install(request, show))
}

pub(crate) fn undo(verb: Uninstall) -> Result<(), Failure> {
    match verb.files.agent {
        Some(agent) => {
            let request = request(agent, &verb.files, verb.used);
            shown(|show| peerbus_setup::uninstall(&request, show))
        }
        None if verb.all => undo_all(verb.files.dry_run),
        None if verb.join => {
            for_people("take this machine away from its broker")?;
            shown(|show| peerbus_setup::leave(verb.files.dry_run, show))
        }
        None => list_installed(),
    }
}

/// Takes it out of all configurations.
pub(crate) fn undo_all(dry_run: bool) -> Result<(), Failure> {
    shown(|show| peerbus_setup::uninstall_all(dry_run, show))
}

/// The agents that are found, and the command for each.
fn list() -> Result<(), Failure> {
    let found = peerbus_setup::found()?;
    output::line(match found.is_empty() {
        true => "no agent's configuration or program was found here",
        false => "found on this machine:",
    })?;
    for FoundAgent { agent, installed } in &found {
        let state = if *installed { "  (installed)" } else { "" };
        let (title, word) = (agent.title, agent.word);
        output::line(&format!("  {title:<16} peerbus install {word}{state}"))?;
    }
    let is_found = |agent: &&Agent| found.iter().any(|it| it.agent.word == agent.word);
    let others = Agent::installable().filter(|agent| !is_found(agent));
    let others: Vec<_> = others.map(|agent| agent.word).collect();
    if !others.is_empty() {
        output::say(&format!("and for others: {}", others.join(", ")));
    }
    output::say(
        "`--dry-run` shows the change, `--allow` lets the agent call the bus tools unasked",
    );
    Ok(())
}

/// The agents in whose user's configuration peerbus is, and the command for each.
fn list_installed() -> Result<(), Failure> {
    let mut found = peerbus_setup::found()?;
    found.retain(|it| it.installed);
    if found.is_empty() {
        output::line("peerbus is in no agent's own configuration")?;
    }
    for FoundAgent { agent, .. } in found {
        let (title, word) = (agent.title, agent.word);
        output::line(&format!("  {title:<16} peerbus uninstall {word}"))?;
    }
    output::say(
        "`peerbus uninstall --all` takes it out of all, projects too; with `--purge` mail and \
         settings go as well",
    );
    Ok(())
}

fn request(agent: &'static Agent, files: &Files, used: Vec<String>) -> InstallRequest {
    InstallRequest {
        agent,
        scope: match files.scope.project {
            true => Scope::Project,
            false => Scope::User,
        },
        name: None,
        unasked: false,
        no_mod: false,
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
