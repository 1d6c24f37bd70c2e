//! The command line of `peerbus names`.

use std::path::PathBuf;

use super::path;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Names {
    /// Show all names that the broker knows, with who has them
    List(NamesList),
    /// Free a name, so that another token may register it; its queue stays
    Release(NamesRelease),
    /// End a name for good; its unseen mail goes to a successor, or its senders are told
    Retire(NamesRetire),
}

#[derive(Debug, clap::Args)]
pub(crate) struct NamesList {
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The broker's Unix socket
    #[arg(long, value_name = "PATH", value_parser = path())]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NamesRelease {
    /// The name
    pub(crate) name: String,
    /// The broker's Unix socket
    #[arg(long, value_name = "PATH", value_parser = path())]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NamesRetire {
    /// The name
    pub(crate) name: String,
    /// Who gets its mail from now on
    #[arg(long, value_name = "SUCCESSOR")]
    pub(crate) to: Option<String>,
    /// The broker's Unix socket
    #[arg(long, value_name = "PATH", value_parser = path())]
    pub(crate) socket: Option<PathBuf>,
}
