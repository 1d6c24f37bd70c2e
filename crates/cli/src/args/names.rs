//! The command line of `peerbus names`.

use std::path::PathBuf;

use super::path;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Names {
    /// Show all names that the broker knows, with who has them (`peerbus peers --all`)
    #[command(hide = true)]
    List {
        /// Show all columns, however narrow the terminal is
        #[arg(long)]
        wide: bool,
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
        /// The broker's Unix socket
        #[arg(long, value_name = "PATH", value_parser = path())]
        socket: Option<PathBuf>,
    },
    /// Free a name, so that another token may register it; its queue stays
    Release {
        /// The name
        name: String,
        /// The broker's Unix socket
        #[arg(long, value_name = "PATH", value_parser = path())]
        socket: Option<PathBuf>,
    },
    /// End a name for good; its unseen mail goes to a successor, or its senders are told
    Retire {
        /// The name
        name: String,
        /// Who gets its mail from now on
        #[arg(long, value_name = "SUCCESSOR")]
        to: Option<String>,
        /// The broker's Unix socket
        #[arg(long, value_name = "PATH", value_parser = path())]
        socket: Option<PathBuf>,
    },
}
