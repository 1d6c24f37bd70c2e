//! `peerbus uninstall --all --purge`.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Failure, PeerEntry, operator as broker};
use peerbus_node::index::LiveSession;
use peerbus_wire::printable;
use serde_json::Value;

use crate::here::for_people;
use crate::session::all::agreed;
use crate::{install, output, stop};

/// Takes all away but this program. What peerbus did not make stays, and is named.
pub(crate) fn run(dry_run: bool, yes: bool) -> Result<(), Failure> {
    for_people("take peerbus away")?;
    let paths = Paths::find()?;
    if dry_run {
        // Only what would be done is shown: where nothing would be, the refusal is.
        let refused = nobody_is_here(&paths).err();
        install::undo_all(true)?;
        output::wrapped(&format!(
            "of peerbus itself this would go: {}; nothing was deleted (--dry-run)",
            places(&paths)
        ))?;
        return refused.map_or(Ok(()), |why| {
            Err(Failure::failed(format!("but not now: {why}")))
        });
    }
    let databases = [nobody_is_here(&paths)?, paths.other_database()];
    if !yes {
        ask(&paths)?;
        // Somebody may have come while the question stood.
        nobody_is_here(&paths)?;
    }
    // Its record is in the state directory.
    install::undo_all(false)?;
    if let (Some(ended), _) = stop::end(&paths.sockets)? {
        output::line(&ended)?;
    }
    let mut left = peerbus_setup::purge(&paths)?;
    left.extend(databases.into_iter().flatten());
    left.extend(std::env::current_exe().ok());
    output::line(
        "peerbus is gone from this machine, but for what is named here; backups of yours were not looked for",
    )?;
    for path in &left {
        output::wrapped(&printable(&format!("left: {}", path.display())))?;
    }
    output::say(&format!("the program: {}", remover(left.last())));
    Ok(())
}

fn places(paths: &Paths) -> String {
    let (state, config) = (paths.state_dir.display(), paths.config_dir.display());
    format!(
        "the broker, the mail and logs in {state}, the tokens and settings in {config}, and the sockets"
    )
}

/// Asks a person, who types it.
fn ask(paths: &Paths) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::config(
            "this deletes for good, and asks on a terminal before it does: say --yes where there is none",
        ));
    }
    let shown = format!(
        "This takes peerbus out of all agents' configurations, and deletes for good: {}.",
        places(paths)
    );
    agreed(&shown, "Type yes to go on:")
        .map_err(|why| Failure::failed(format!("nothing was deleted: {why}")))
}

/// Refuses while somebody would start a broker again. Gives the broker's database where that is not
/// the usual one.
fn nobody_is_here(paths: &Paths) -> Result<Option<PathBuf>, Failure> {
    let about = broker::over(&paths.sockets, "GET", "/broker").ok();
    let about: Option<Value> = about.and_then(|about| serde_json::from_str(&about.body).ok());
    let origin = about.as_ref().and_then(|about| about["started"].as_str());
    if origin.is_some_and(|origin| origin.starts_with("by systemd")) {
        return Err(Failure::failed(
            "systemd runs the broker, and would start it again: `systemctl --user disable --now \
             peerbus.socket peerbus.service` first",
        ));
    }
    let sessions = crate::here::sessions()?;
    let place = |it: &LiveSession| format!("{} ({})", crate::told::name(it.called()), it.place());
    let mut here: BTreeSet<String> = sessions.iter().map(place).collect();
    let is_named = |name: &str| {
        sessions
            .iter()
            .any(|it| it.called().eq_ignore_ascii_case(name))
    };
    let peers = broker::over(&paths.sockets, "GET", "/v1/peers").map(broker::peers);
    if let Ok(Ok((peers, _))) = peers {
        let online = peers
            .into_iter()
            .filter(|peer| peer.online && !is_named(&peer.name));
        here.extend(online.map(|peer| described(&peer)));
    }
    let database = about.as_ref().and_then(|about| about["database"].as_str());
    let database = database.map(PathBuf::from);
    match here.is_empty() {
        true => Ok(database.filter(|database| *database != paths.database)),
        false => Err(Failure::failed(format!(
            "these run, and would start a broker again when they need one: {}; end them first",
            here.into_iter().collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// A peer that has no session here, and what is to be ended.
fn described(peer: &PeerEntry) -> String {
    let about = crate::here::about(peer);
    let is_web = about.client.as_deref() == Some("web");
    let program = is_web.then(|| "`peerbus web`".to_owned());
    let pid = about.pid.map(|pid| format!("process {pid}"));
    let known: Vec<_> = program.into_iter().chain(pid).collect();
    match known.is_empty() {
        true => about.name,
        false => format!("{} ({})", about.name, known.join(", ")),
    }
}

/// What takes this program away.
fn remover(program: Option<&PathBuf>) -> String {
    match program {
        Some(own) if own.ends_with(".cargo/bin/peerbus") => "`cargo uninstall peerbus`".into(),
        Some(own) if own.starts_with("/usr/bin") => {
            "`sudo apt remove peerbus`, or what installed it".into()
        }
        Some(own) => format!("`rm {}`", own.display()),
        None => "delete it where it lies".into(),
    }
}
