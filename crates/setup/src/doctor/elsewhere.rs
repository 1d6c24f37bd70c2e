//! A broker that runs and is not found.

use peerbus_adapter::demand;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::url::DEFAULT_URL;
use peerbus_adapter::{BusConfig, Url};
use peerbus_os::process;

use super::health;

/// A process that has this user's database and is reached at no socket, and what helps. `None`:
/// nobody has it, as far as can be seen.
pub(super) fn holder(config: &BusConfig) -> Option<(String, String)> {
    let database = Paths::find().ok()?.database;
    let pid = demand::holder(&database)?;
    let who = pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
    let sockets = config.sockets.iter().map(|path| path.display().to_string());
    let sockets: Vec<_> = sockets.collect();
    let says = format!(
        "a broker runs ({who} has {} open), and none of its sockets was found: looked at {}",
        database.display(),
        sockets.join(" and ")
    );
    let remedy = match demand::known_holder(&database) {
        Some(pid) if process::is_stopped(pid) => format!(
            "it is stopped, as by SIGSTOP or by Ctrl-Z: `kill -CONT {pid}` lets it go on, or \
             `kill -9 {pid}` ends it and loses nothing that was accepted"
        ),
        Some(_) => "`peerbus stop` ends it, and the next command starts another".to_owned(),
        None => "end it where it runs (another container that shares this directory?), or set \
                 PEERBUS_URL=unix:PATH to its socket"
            .to_owned(),
    };
    Some((says, remedy))
}

/// What answers at the port where brokers listen: a hint, and no more.
pub(super) async fn port(config: &BusConfig) -> Option<String> {
    let listen = std::env::var("PEERBUS_LISTEN").ok();
    let listen = listen.filter(|listen| !listen.is_empty());
    let url = listen.map_or_else(|| DEFAULT_URL.to_owned(), |listen| format!("ws://{listen}"));
    let said = health::ask(&Url::parse(&url).ok()?, &config.tls).await?;
    said.get("version")?;
    Some(format!(
        "a broker answers at {url}: it may be another user's, or have another database \
         (XDG_STATE_HOME)"
    ))
}
