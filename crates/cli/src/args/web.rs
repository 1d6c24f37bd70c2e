//! The command line of `peerbus web`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Subcommand;
use peerbus_web::Way;

use super::{Connection, path};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Web {
    #[command(subcommand)]
    pub(crate) verb: Option<WebVerb>,
    /// Address to listen on
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:47822")]
    pub(crate) listen: SocketAddr,
    /// Open the dashboard, and print the link to it, which works once
    #[arg(long)]
    pub(crate) open: bool,
    /// Certificate for TLS, with those between it and its authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", value_parser = path())]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_parser = path())]
    pub(crate) tls_key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WebVerb {
    /// Manage the tokens of those who send and read over HTTP
    #[command(subcommand)]
    Token(WebTokenVerb),
}

#[derive(Debug, Subcommand)]
pub(crate) enum WebTokenVerb {
    /// Make a token, and print it: it is shown this once
    Add(WebTokenAdd),
    /// Show the tokens
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// End a token, at once
    Revoke {
        /// The token's name
        name: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct WebTokenAdd {
    /// What the token is called; what is sent with it comes from web:NAME
    pub(crate) name: String,
    /// A peer that it may write to, `*` for any characters; everybody without this (repeatable)
    #[arg(long, value_name = "PEER")]
    pub(crate) to: Vec<String>,
    /// Take its `yes ID` and `no ID` for verdicts, where a session names web:NAME in `remote`
    #[arg(long)]
    pub(crate) approve: bool,
    /// Let it see sessions of this machine, and what happens in them; with --approve it may also answer what
    /// they ask, where their gate `approve` is open
    #[arg(long)]
    pub(crate) watch: bool,
    /// Let it put texts into sessions, and interrupt them, where their gates are open
    #[arg(long)]
    pub(crate) inject: bool,
    /// How it is shown: bearer, basic, header:NAME, or signature: in X-Hub-Signature-256 (signature:NAME:
    /// in that header) is the HMAC-SHA256 of the body
    #[arg(long, value_name = "WAY", default_value = "bearer")]
    pub(crate) by: Way,
    /// A header of its webhooks that the receiver is shown, such as X-GitHub-Event (repeatable)
    #[arg(long = "header", value_name = "NAME")]
    pub(crate) headers: Vec<String>,
}
