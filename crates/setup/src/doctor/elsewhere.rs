//! A broker that runs and is not found.

use std::fs::{File, TryLockError};
use std::io::Read as _;
use std::path::Path;

use peerbus_adapter::paths::Paths;
use peerbus_adapter::url::DEFAULT_URL;
use peerbus_adapter::{Config, Url};

use super::health;

/// Longest number of a process, in bytes.
const PID_BYTES_MAX: u64 = 20;

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
    let mut lock = database.clone().into_os_string();
    lock.push(".lock");
    let mut file = File::open(Path::new(&lock)).ok()?;
    // Shared and for this moment only.
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        _ => return None,
    }
    let mut text = String::new();
    let read = file.by_ref().take(PID_BYTES_MAX).read_to_string(&mut text);
    let pid = read.ok().and_then(|_| text.trim().parse::<u32>().ok());
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
