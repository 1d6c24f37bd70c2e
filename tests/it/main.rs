//! Scenarios with real processes: the `peerbus` binary on loopback and on Unix sockets.

mod audit;
mod cli;
mod kill;
mod lifecycle;
mod mcp;
mod support;
mod v1;
mod zero_config;
