//! A broker that runs and is not found.

use peerbus_adapter::demand::holder;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::url::DEFAULT_URL;
use peerbus_adapter::{Config, Url};

use super::health;

/// What shows that a broker runs, and the sockets at which it was looked for. `None`: none runs,
/// as far as can be seen.
pub(super) async fn broker(config: &Config) -> Option<String> {
    let sign = match database() {
        Some(sign) => sign,
        None => port(config).await?,
    };
    let sockets = config.sockets.iter().map(|path| path.display().to_string());
    let sockets: Vec<_> = sockets.collect();
    Some(format!(
        "a broker runs ({sign}), and none of its sockets was found: looked at {}",
        sockets.join(" and ")
    ))
}

/// Whether a broker has the database of this user's.
fn database() -> Option<String> {
    let database = Paths::find().ok()?.database;
    let pid = holder(&database)?;
    let who = pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
    Some(format!("{who} has {} open", database.display()))
}

/// Whether one answers at the port where brokers listen.
async fn port(config: &Config) -> Option<String> {
    let listen = std::env::var("PEERBUS_LISTEN").ok();
    let listen = listen.filter(|listen| !listen.is_empty());
    let url = listen.map_or_else(|| DEFAULT_URL.to_owned(), |listen| format!("ws://{listen}"));
    let said = health::ask(&Url::parse(&url).ok()?, &config.tls).await?;
    said.get("version")?;
    Some(format!("it answers at {url}"))
}
