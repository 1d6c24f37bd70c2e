//! The channel adapter for Claude Code: bus tools, and messages that are pushed.
//!
//! `CHANNELS_SCHEMA.md` has the contract with the client, with the source of each fact.

#[cfg(unix)]
pub mod hooks;
mod profile;
mod pump;
mod push;
mod wake;

use peerbus_adapter::Bus;
use peerbus_mcp::{Exit, Options};
use tokio::io::{AsyncRead, AsyncWrite};

/// Runs the channel adapter over standard input and output until its session ends.
///
/// `bus` is connected already or will be: its link must be running, on the same single-threaded
/// runtime. A broker that is away delays nothing here. See [`peerbus_mcp::run`] for the rest.
pub async fn run(bus: Bus, options: Options) -> Exit {
    let events = bus.clone();
    peerbus_mcp::run(bus, profile::PROFILE, options, |host| {
        pump::pump(events, host)
    })
    .await
}

/// [`run`] over any pair of streams, without an eye on signals and the parent process.
pub async fn run_over(
    bus: Bus,
    options: Options,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send,
) -> Exit {
    let events = bus.clone();
    let pump = |host| pump::pump(events, host);
    peerbus_mcp::run_over(bus, profile::PROFILE, options, input, output, pump).await
}
