//! The arguments of `peerbus adapter`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::{Args, Connection, Verb, path};

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
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) gates: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The command line of an adapter, which stands beside each session: to describe every other command
/// would cost it memory for as long as it lives. What is wrong with it the whole parser says.
pub(super) fn alone() -> Option<Args> {
    #[derive(Parser)]
    #[command(disable_help_flag = true)]
    struct Alone {
        #[command(flatten)]
        adapter: Adapter,
    }
    let mut words = std::env::args_os();
    let program = words.next()?;
    words.next().filter(|verb| verb == "adapter")?;
    let alone = Alone::try_parse_from(std::iter::once(program).chain(words)).ok()?;
    let verb = Verb::Adapter(alone.adapter);
    Some(Args { verb })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AdapterKind {
    /// Claude Code: messages wake the session, by its own socket, a hook or a channel
    Cc,
    /// Any other MCP client: messages come with results of bus tools, or when it asks
    Generic,
}
