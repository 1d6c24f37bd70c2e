//! The arguments of `peerbus run`.

use std::path::PathBuf;

use super::{Connection, path};

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// What to tell it first; then it stays on the bus until it is interrupted
    pub(crate) prompt: Option<String>,
    /// Name to register, a generated one otherwise; {project}, {branch}, {host} and {user} are
    /// filled in [env: PEERBUS_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Go on with this session of Claude Code
    #[arg(long, value_name = "ID")]
    pub(crate) resume: Option<String>,
    /// Begin with a copy of this session of Claude Code
    #[arg(long, value_name = "ID", conflicts_with = "resume")]
    pub(crate) fork: Option<String>,
    /// The model
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// What it may do without being allowed, such as acceptEdits
    #[arg(long, value_name = "MODE")]
    pub(crate) permission_mode: Option<String>,
    /// Who may do what to the session, instead of sessions.toml beside the credentials
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) gates: Option<PathBuf>,
    /// Leave it running, and say where its output goes; `peerbus session stop` ends it
    #[arg(long)]
    pub(crate) detach: bool,
    /// As `--detach` starts it
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
    /// What carries its stream: its standard streams, or a WebSocket on loopback, which only
    /// versions up to 2.1.114 are known to take
    #[arg(long, value_enum, default_value = "stdio", value_name = "TRANSPORT")]
    pub(crate) transport: Transport,
    /// Further arguments of Claude Code, such as --allowedTools
    #[arg(last = true, value_name = "CLIENT ARGS")]
    pub(crate) client: Vec<String>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Transport {
    Stdio,
    SdkUrl,
}
