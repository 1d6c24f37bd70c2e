//! A verb's connection to the bus.

use std::convert::Infallible;
use std::time::Duration;

use peerbus_adapter::{Bus, Config, Flags, Link, LinkState, connect};

use crate::args::Connection;
use crate::failure::Failure;
use crate::output;

/// After so long without a broker a person wonders.
const SILENCE: Duration = Duration::from_secs(1);

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

/// What to do about a name or a token that the broker turns down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Give up at once.
    Fail,
    /// Keep trying: the name may become free.
    Wait,
}

/// Runs `verb` on a bus and says goodbye. A broker that is away is waited for; credentials that are
/// missing or unusable are not: nothing would change that but the user.
pub(crate) fn with_bus<T, F>(
    config: Config,
    refused: Refused,
    verb: impl FnOnce(Bus) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    runtime()?.block_on(async {
        let (bus, link): (Bus, Link) = connect(config);
        let driver = tokio::spawn(link.run());
        let result = tokio::select! {
            result = verb(bus.clone()) => result,
            hopeless = hopeless(&bus, refused) => Err(hopeless),
            never = tell_of_wait(&bus), if refused == Refused::Fail => match never {},
        };
        bus.close().await;
        drop(bus);
        // The link ends by itself once the bus is closed.
        let _ = driver.await;
        result
    })
}

/// Resolves when waiting is of no use.
async fn hopeless(bus: &Bus, refused: Refused) -> Failure {
    let mut link = bus.link();
    loop {
        match &*link.borrow_and_update() {
            state @ LinkState::NeedCredentials { .. } => return Failure::config(state),
            state @ LinkState::Refused { .. } if refused == Refused::Fail => {
                return Failure::failed(for_verb(state, refused));
            }
            _ => {}
        }
        if link.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Says once what a verb waits for that is not done at once.
async fn tell_of_wait(bus: &Bus) -> Infallible {
    tokio::time::sleep(SILENCE).await;
    let state = bus.link().borrow().clone();
    if let LinkState::Connecting { last_error, .. } = state {
        let why = last_error.map(|why| format!(": {why}"));
        output::complain(&format!(
            "waiting for the broker{}",
            why.unwrap_or_default()
        ));
    }
    std::future::pending().await
}

/// The sentence about a refusal, which is written for an adapter: that is named by a variable and
/// tries again.
pub(crate) fn for_verb(state: &LinkState, refused: Refused) -> String {
    let sentence = state.to_string().replace("(PEERBUS_NAME)", "(--name)");
    match sentence.rsplit_once("; trying again every") {
        Some((what, _)) if refused == Refused::Fail => what.to_owned(),
        _ => sentence,
    }
}

/// A command-line number of seconds.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
