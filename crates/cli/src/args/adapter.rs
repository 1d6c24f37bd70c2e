//! The arguments of `peerbus adapter`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::Connection;

#[derive(Debug, clap::Args)]
pub(crate) struct Adapter {
    /// For which kind of agent
    #[arg(long, value_enum, default_value = "generic")]
    pub(crate) adapter: AdapterKind,
    /// Name to register, a generated one otherwise; {project}, {branch}, {host} and {user} are
    /// filled in [env: PEERBUS_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Who may do what to the session, instead of sessions.toml beside the credentials
    #[arg(long, value_name = "FILE")]
    pub(crate) gates: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AdapterKind {
    /// Claude Code: messages wake the session, by its own socket, a hook or a channel
    Cc,
    /// Any other MCP client: messages come with results of bus tools, or when it asks
    Generic,
}
