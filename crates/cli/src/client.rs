//! A verb's connection to the bus.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use peerbus_adapter::demand::{Demand, Meant};
use peerbus_adapter::{
    Bus, BusConfig, Failure, Flags, IN_USE_MS, Link, LinkState, Peers, RegistrationRefusal as Why,
    connect, groups, refusal,
};

use crate::args::Connection;
use crate::output;

/// How the peer of a session that is driven joins the bus.
pub(crate) fn driven(flags: &Flags) -> Result<BusConfig, Failure> {
    let mut config = BusConfig::resolve(flags)?;
    config.demand = demand(flags)?;
    config.groups = groups::own(|name| std::env::var(name).ok())?;
    Ok(config)
}

/// Says how a link is, once.
pub(crate) fn say(state: &LinkState, told: &mut String) {
    let quiet = match state {
        LinkState::Connecting { last_error, .. } => last_error.is_none(),
        state => *state == LinkState::Closed,
    };
    let says = state.to_string();
    if !quiet && says != *told {
        output::complain(&says);
        *told = says;
    }
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)
}

/// One of several threads, for what serves others.
pub(crate) fn runtime_of(threads: usize) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all();
    builder.build().map_err(Failure::failed)
}

/// Resolves the settings. Without a name the registration is ephemeral, whatever `PEERBUS_NAME`
/// says: in the shell of an agent that variable names the agent's own, living adapter.
pub(crate) fn config(connection: &Connection, name: Option<String>) -> Result<BusConfig, Failure> {
    let flags = connection.flags(name);
    let env = |key: &str| {
        if key == "PEERBUS_NAME" {
            None
        } else {
            std::env::var(key).ok()
        }
    };
    let mut config = BusConfig::resolve_with(&flags, env)?;
    config.ephemeral = matches!(config.naming, peerbus_adapter::Naming::Generated);
    config.demand = demand(&flags)?;
    Ok(config)
}

/// Whether this program starts a broker if it finds none.
pub(crate) fn demand(flags: &Flags) -> Result<Demand, Failure> {
    // The verb alone: what follows may be private.
    let verb = std::env::args().nth(1).map(|verb| format!(" {verb}"));
    let who = format!("`peerbus{}`", verb.unwrap_or_default());
    let meant = Meant {
        url: flags.url.as_deref(),
        credentials: flags.credentials.as_deref(),
    };
    Ok(Demand::find(meant, &who, |name| std::env::var(name).ok())?)
}

/// What to do about a name or a token that the broker turns down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Give up at once.
    Fail,
    /// Keep trying a name that a living session has, and what was lost after it was had.
    Wait,
}

/// Runs `verb` on a bus and says goodbye. A broker that is away is waited for; credentials that are
/// missing or unusable are not: nothing would change that but the user.
pub(crate) fn with_bus<T, F>(
    config: BusConfig,
    refused: Refused,
    verb: impl FnOnce(Bus) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let runtime = runtime()?;
    let joined = config.token.is_none().then(|| config.credentials.clone());
    let result = runtime.block_on(async {
        let (bus, link): (Bus, Link) = connect(config);
        let driver = tokio::spawn(link.run());
        let result = tokio::select! {
            // What a verb would say of the broker is in there.
            biased;
            hopeless = hopeless(&bus, refused, joined.as_deref()) => Err(hopeless),
            result = verb(bus.clone()) => result,
            never = tell_of_wait(&bus), if refused == Refused::Fail => match never {},
        };
        bus.close().await;
        drop(bus);
        // The link ends by itself once the bus is closed.
        let _ = driver.await;
        result
    });
    // A verb that reads stdin has a thread that stays in `read`: it must not be waited for.
    runtime.shutdown_background();
    result
}

/// The peers that a broker tells of, within so many seconds.
pub(crate) fn peers(config: BusConfig, timeout: f64) -> Result<Peers, Failure> {
    with_bus(config, Refused::Fail, async |bus| {
        Ok(bus.peers(duration(timeout)).await?)
    })
}

/// Resolves when waiting is of no use. `file`: where the token is from.
async fn hopeless(bus: &Bus, refused: Refused, file: Option<&Path>) -> Failure {
    let mut link = bus.link();
    let mut joined = false;
    loop {
        match &*link.borrow_and_update() {
            LinkState::Online { .. } => joined = true,
            // A verb that was served has waited for its broker to come back, and goes on so.
            state if !joined && let Some(why) = state.in_the_way() => return Failure::failed(why),
            state @ LinkState::NeedCredentials { .. } => return Failure::config(state),
            state @ LinkState::Refused { why, .. } if !may_pass(why, refused, joined) => {
                let turned_out = match why {
                    Why::Token | Why::Revoked => file.and_then(peerbus_setup::turned_out),
                    _ => None,
                };
                return Failure::failed(turned_out.unwrap_or_else(|| for_verb(state, refused)));
            }
            _ => {}
        }
        if link.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Whether a refusal is waited out.
fn may_pass(why: &Why, refused: Refused, joined: bool) -> bool {
    refused == Refused::Wait
        && match why {
            Why::InUse { .. } => true,
            Why::Other(_) => false,
            _ => joined,
        }
}

/// Says once what a verb waits for that is not done at once.
async fn tell_of_wait(bus: &Bus) -> Infallible {
    tokio::time::sleep(output::SILENCE).await;
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

/// Where a verb stands: its name is given by a flag, and one that waits says how often it tries.
pub(crate) fn for_verb(state: &LinkState, refused: Refused) -> String {
    match state {
        LinkState::Refused { name, why } => {
            let sentence = refusal(name, why, "--name");
            match (refused, why) {
                (Refused::Wait, Why::InUse { .. }) => {
                    format!("{sentence}; trying again every {} s", IN_USE_MS / 1_000)
                }
                _ => sentence,
            }
        }
        state => state.to_string(),
    }
}

/// A command-line number of seconds.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
