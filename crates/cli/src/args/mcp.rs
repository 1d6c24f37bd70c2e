//! The command line of `peerbus mcp`.

use std::ffi::OsString;

use clap::Subcommand;

use super::{Connection, seconds};

#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// Run an MCP server and let peers use what you allow of it
    Share(McpShare),
    /// Be an MCP server on stdio, for what a peer shares
    Use(McpUse),
    /// Show what peers share now
    List(McpList),
}

#[derive(Debug, clap::Args)]
#[command(override_usage = "peerbus mcp share --allow <LIST> --to <PEER> <NAME> -- <COMMAND>...")]
pub(crate) struct McpShare {
    /// What the server is called: mcp://PEER/NAME
    pub(crate) name: String,
    /// What may be used of it: serverTools, serverResources, logging
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    pub(crate) allow: Vec<String>,
    /// Who may use it: a peer's name, `*` for any characters (repeatable)
    #[arg(long, value_name = "PEER", required = true)]
    pub(crate) to: Vec<String>,
    /// The peer's name that stands in the URI [env: PEERBUS_NAME]
    #[arg(long = "name", value_name = "PEER")]
    pub(crate) peer: Option<String>,
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// The server's command, behind --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct McpUse {
    /// Which: mcp://PEER/NAME, or one generation: mcp://PEER/NAME/GENERATION
    pub(crate) uri: String,
    /// The name to use it under, which the other side's --to means; each
    /// process makes up something for a `*` at its end
    #[arg(long, value_name = "PEER")]
    pub(crate) name: Option<String>,
    /// Seconds that a call may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub(crate) timeout: f64,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(crate) struct McpList {
    /// Print each as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds to wait for the broker
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub(crate) timeout: f64,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
