//! Sessions of Claude Code that run now, and how they can be woken.

use std::path::{Path, PathBuf};

use peerbus_adapter::PeerEntry;
use peerbus_adapter::paths::Paths;
use peerbus_agents::{Agent, claude_code};
use peerbus_os::{file, process};
use peerbus_view::{Audience, PeerView};
use serde_json::Value;

use super::report::Report;

/// More files than anybody has sessions.
const FILES_MAX: usize = 1_000;
/// More than a session's file has.
const FILE_BYTES_MAX: u64 = 262_144;

/// Looks at the running sessions, and at what adapters left behind. `peers`: those that the broker
/// tells of, if it does.
pub(super) fn check(peers: Option<&[PeerEntry]>, report: &mut Report) {
    inboxes(peers, report);
    if let Ok(paths) = Paths::find() {
        hook_sockets(&paths, report);
    }
}

fn hook_sockets(paths: &Paths, report: &mut Report) {
    let Some(dir) = peerbus_adapter::hooks::directory(paths) else {
        let dir = paths.runtime_dir.join("sessions");
        let says = format!(
            "{} is too long a path for the sockets of sessions: hooks do not reach them",
            dir.display()
        );
        return report.failed("socket", says, "set XDG_RUNTIME_DIR to a shorter path");
    };
    let stale = files(&dir, "sock").filter(|(_, stem)| {
        let adapter = stem
            .split_once('.')
            .and_then(|(_, adapter)| adapter.parse().ok());
        adapter.is_some_and(|adapter| !process::exists(adapter))
    });
    let stale = stale.count();
    if stale > 0 {
        report.warning(
            "socket",
            format!("{stale} of adapters that are gone lie in {}", dir.display()),
            "the next adapter removes them; nothing needs to be done",
        );
    }
}

/// Whether a peer that is here says that it is a session of Claude Code.
fn is_session(peer: &PeerEntry) -> bool {
    let client = PeerView::new(peer, Audience::Owner)
        .client
        .filter(|_| peer.online);
    let name = client
        .as_deref()
        .and_then(|client| client.split(' ').next());
    name.and_then(Agent::of_client)
        .is_some_and(|agent| agent.word == claude_code::AGENT.word)
}

fn inboxes(peers: Option<&[PeerEntry]>, report: &mut Report) {
    let Some(dir) = claude_code::config_dir().map(|dir| dir.join("sessions")) else {
        return;
    };
    let (clients, running): (Vec<u32>, Vec<_>) = files(&dir, "json")
        .filter_map(|(path, stem)| Some((path, stem.parse().ok()?)))
        .filter(|(_, client)| process::exists(*client))
        .filter_map(|(path, client)| Some((client, read(&path)?)))
        .unzip();
    if running.is_empty() {
        return report.ok("sessions", "no session of Claude Code runs now");
    }
    modules(&clients, report);
    if let Some(peers) = peers {
        let here = peers.iter().filter(|peer| is_session(peer)).count();
        let all = running.len();
        if here < all {
            report.warning(
                "sessions",
                format!("{all} of Claude Code run, {here} are on the bus"),
                "start those anew that ran before the install, or whose name was retired; say yes to what Claude Code asks \
                 about peerbus; of two with one name one waits until the other ends: give each its \
                 own; `/mcp` in a session shows what is wrong with it",
            );
        }
        // Whether those can be woken they say themselves: a socket is one way of several.
        return;
    }
    let open = running.iter().filter(|session| {
        let socket = session.get("messagingSocketPath").and_then(Value::as_str);
        socket.is_some_and(|socket| Path::new(socket).exists())
    });
    let (open, all) = (open.count(), running.len());
    if open == all {
        let says = format!("{all} running of Claude Code, each with its socket for messages");
        return report.ok("wake", says);
    }
    let without = all - open;
    report.warning(
        "wake",
        format!("{without} of {all} sessions of Claude Code have no socket for messages"),
        "install the hooks (`peerbus install claude-code`), which wake such sessions too, or use \
         a newer Claude Code",
    );
}

/// Says in how many sessions our module is linked.
fn modules(clients: &[u32], report: &mut Report) {
    let (links, guards) = (process::running("link"), process::running("driven-guard"));
    let descends = |id, above| process::descends(id, above) == Some(true);
    let (linked, all) = linked(clients, (&links, &guards), descends);
    if linked > 0 {
        let says = format!("{linked} of {all} running of Claude Code with its module linked");
        report.ok("module", says);
    }
}

/// How many clients have a link below them, and of how many: the module does nothing below the guards of
/// `peerbus run`.
fn linked(
    clients: &[u32],
    (links, guards): (&[u32], &[u32]),
    descends: impl Fn(u32, u32) -> bool,
) -> (usize, usize) {
    let is_driven = |client: u32| guards.iter().any(|guard| descends(client, *guard));
    let is_linked = |client: u32| links.iter().any(|link| descends(*link, client));
    let clients = clients.iter().filter(|client| !is_driven(**client));
    let linked = clients.clone().filter(|client| is_linked(**client));
    (linked.count(), clients.count())
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_str(&file::read_small(path, FILE_BYTES_MAX)?).ok()
}

/// The files of a directory with this ending, with their names before it.
fn files(dir: &Path, ending: &str) -> impl Iterator<Item = (PathBuf, String)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.take(FILES_MAX).filter_map(move |entry| {
        let path = entry.path();
        let right = path.extension().is_some_and(|found| found == ending);
        let stem = path.file_stem()?.to_str()?.to_owned();
        right.then_some((path, stem))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_in_which_the_module_does_nothing_are_not_counted() {
        // A tens digit is a session, with its link or guard.
        let descends = |id: u32, above: u32| id / 10 == above / 10 && id > above;
        let (clients, links, guards) = ([11, 21, 31], [12], [30]);
        assert_eq!(linked(&clients, (&links, &guards), descends), (1, 2));
    }
}
