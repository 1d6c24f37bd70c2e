//! The command line of `peerbus token`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use super::path;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make a token, and print it: it is shown this once
    Add(TokenAdd),
    /// Show the tokens of the file
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
        /// The tokens file of the broker
        #[arg(long = "tokens", env = "PEERBUS_TOKENS_FILE", value_name = "FILE", value_parser = path())]
        file: Option<PathBuf>,
    },
    /// Print a new token and a new HMAC secret, and keep neither
    Keygen {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// End a token: who is connected by it is closed
    Revoke {
        /// The token's name
        name: String,
        #[command(flatten)]
        place: TokensFile,
    },
}

/// Which file, and which broker is told of a change.
#[derive(Debug, clap::Args)]
pub(crate) struct TokensFile {
    /// The tokens file of the broker
    #[arg(long = "tokens", env = "PEERBUS_TOKENS_FILE", value_name = "FILE", value_parser = path())]
    pub(crate) file: Option<PathBuf>,
    /// The broker's Unix socket
    #[arg(long, value_name = "PATH", value_parser = path())]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenAdd {
    /// What the token is called
    pub(crate) name: String,
    /// A name that it may register, `*` for any characters; every name without this (repeatable)
    #[arg(long = "names", value_name = "PATTERN")]
    pub(crate) names: Vec<String>,
    /// What it may do: of send, broadcast, observe, approve and bridge; `operate` grants nothing yet
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "send,broadcast"
    )]
    pub(crate) rights: Vec<String>,
    /// Days for which it holds; for ever without this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) days: Option<u32>,
    /// Names that it may have (1000)
    #[arg(long, value_name = "N")]
    pub(crate) max_names: Option<usize>,
    /// Connections that it may have at once
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<usize>,
    /// Bytes that its peers sent and that wait to be read
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_bytes: Option<u64>,
    /// Messages that its peers may send in a second; more wait at their senders
    #[arg(long, value_name = "N")]
    pub(crate) max_per_second: Option<NonZeroU32>,
    #[command(flatten)]
    pub(crate) place: TokensFile,
}
