//! A verb's connection to the bus.

use std::time::Duration;

use peerbus_adapter::{Bus, Config, Flags, Link, connect};

use crate::args::Connection;
use crate::failure::Failure;

/// A runtime for one verb.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)
}

/// Resolves the settings. Without a name the registration is ephemeral, whatever `PEERBUS_NAME`
/// says: in the shell of an agent that variable names the agent's own, living adapter.
pub(crate) fn config(connection: &Connection, name: Option<String>) -> Result<Config, Failure> {
    let flags = Flags {
        url: connection.url.clone(),
        name,
        credentials: connection.credentials.clone(),
    };
    let env = |key: &str| {
        if key == "PEERBUS_NAME" {
            None
        } else {
            std::env::var(key).ok()
        }
    };
    let mut config = Config::resolve_with(&flags, env)?;
    config.ephemeral = matches!(config.naming, peerbus_adapter::Naming::Generated);
    Ok(config)
}

/// Runs `verb` on a bus and says goodbye.
pub(crate) fn with_bus<T, F>(config: Config, verb: impl FnOnce(Bus) -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    runtime()?.block_on(async {
        let (bus, link): (Bus, Link) = connect(config);
        let driver = tokio::spawn(link.run());
        let result = verb(bus.clone()).await;
        bus.close().await;
        drop(bus);
        // The link ends by itself once the bus is closed.
        let _ = driver.await;
        result
    })
}

/// A command-line number of seconds.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
