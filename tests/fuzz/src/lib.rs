//! What reads the bytes of others, fuzzed: each target takes any bytes and panics when something
//! that must hold does not.
//!
//! `cargo xtask fuzz` runs them for as long as is wanted, guided by coverage; the tests of this
//! crate run the kept corpus and some seeded mutations of it.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a target finds by panicking"
)]

mod agent;
mod config;
mod rows;
mod wire;

/// Something that takes any bytes.
#[derive(Debug)]
pub struct Target {
    /// Its name, and that of its directory in `corpus`.
    pub name: &'static str,
    /// Takes the bytes.
    pub run: fn(&[u8]),
    /// How many mutations of the corpus an ordinary test tries.
    pub tries: usize,
}

impl Target {
    const fn new(name: &'static str, run: fn(&[u8]), tries: usize) -> Self {
        Self { name, run, tries }
    }

    /// The target of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target::new("client_frame", wire::client_frame, 20_000),
    Target::new("broker_frame", wire::broker_frame, 20_000),
    Target::new("bridge", wire::bridge, 20_000),
    Target::new("envelope", wire::envelope, 20_000),
    Target::new("canonical", wire::canonical, 20_000),
    Target::new("mcp_lines", agent::mcp_lines, 500),
    Target::new("hook_line", agent::hook_line, 10_000),
    Target::new("credentials", config::credentials, 10_000),
    Target::new("url", config::url, 10_000),
    Target::new("agent_config", config::agent_config, 2_000),
    Target::new("rows", rows::rows, 100),
];
