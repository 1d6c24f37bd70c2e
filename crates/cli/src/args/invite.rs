//! The command lines of `peerbus invite` and `peerbus join`.

use std::net::SocketAddr;

use clap::Subcommand;

use super::listen_address;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Invite {
    #[command(subcommand)]
    pub(crate) verb: Option<InviteVerb>,
    /// A name for the other machine: its peers' names begin so
    #[arg(required = true)]
    pub(crate) name: Option<String>,
    /// Where the broker listens with TLS, if it does not yet (0.0.0.0:47823)
    #[arg(long, value_name = "IP:PORT", value_parser = listen_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Name or address by which the other machine reaches this one
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) address: Option<String>,
    /// Show a code for the camera of a phone, which opens the dashboard there; --address is the gateway's
    #[arg(long, conflicts_with = "listen")]
    pub(crate) web: bool,
    /// Print the secret alone, and listen nowhere (run by `peerbus join ssh:USER@HOST`)
    #[arg(long, hide = true, conflicts_with_all = ["listen", "address", "web"])]
    pub(crate) ssh: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InviteVerb {
    /// Show which machines were invited, and which have joined
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// End an invitation, and the token of the machine that joined by it
    Revoke {
        /// The name of the machine
        name: String,
        /// Change the HMAC secret, too, which that machine knows
        #[arg(long)]
        rotate: bool,
    },
    /// End all that is open, and listen for other machines no more
    Off,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Join {
    /// The line that `peerbus invite` printed on the other machine, or ssh:USER@HOST. Without it, the line is
    /// asked for on the terminal, or read from stdin: other users see command lines, and a shell remembers them
    pub(crate) code: Option<String>,
    /// With ssh: what this machine is called there (its host name)
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Do not ask before
    #[arg(long)]
    pub(crate) yes: bool,
}
