//! Scenarios with real processes: the `peerbus` binary on loopback and on Unix sockets.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a scenario fails by panicking and tells what it did"
)]

mod any_agent;
mod audit;
mod backup;
mod chaos;
mod claude_code;
mod cli;
mod conversation;
mod demand;
mod disk;
mod doctor;
mod documents;
mod domains;
mod driver;
mod files;
mod forged;
mod gates;
mod governor;
mod groups;
mod guide;
mod history;
mod hooks;
mod hostile;
mod identity;
mod ids;
mod install;
mod invite;
mod joined;
mod lifecycle;
mod logging;
mod mcp;
mod nodes;
mod orphans;
mod other_agents;
mod overview;
mod owed;
mod people;
mod pictures;
mod recv;
mod requests;
mod rotate;
mod seeds;
mod senders;
mod sessions;
mod side_channels;
mod status;
mod strict;
mod support;
mod text;
mod tls;
mod tokens;
mod trust;
mod v1;
mod web;
mod zero_config;
