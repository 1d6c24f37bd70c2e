//! The arguments of `peerbus run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use peerbus_agents::{ALL, Agent, claude_code};

use super::{Connection, path};

/// The agents that can be driven, those that speak ACP behind these.
fn agent(own: &'static [&'static Agent]) -> impl TypedValueParser<Value = &'static Agent> {
    let driven = || {
        let own = own.iter().copied();
        own.chain(ALL.into_iter().filter(|agent| agent.acp.is_some()))
    };
    let word = |agent: &Agent| PossibleValue::new(agent.word).help(agent.title);
    let words = PossibleValuesParser::new(driven().map(word));
    words.try_map(move |given| {
        driven()
            .find(|agent| agent.word == given)
            .ok_or("unknown agent")
    })
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// What to tell it first; then it stays on the bus until it is interrupted
    pub(crate) prompt: Option<String>,
    /// Name to register, a generated one otherwise; {project}, {branch}, {host} and {user} are
    /// filled in [env: PEERBUS_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The agent
    #[arg(long, value_name = "AGENT", default_value = claude_code::AGENT.word, value_parser = agent(&[&claude_code::AGENT]))]
    pub(crate) agent: &'static Agent,
    /// Drive any agent that speaks ACP: its command follows `--`
    #[arg(long, conflicts_with = "agent")]
    pub(crate) acp: bool,
    /// Go on with this session of the agent
    #[arg(long, value_name = "ID")]
    pub(crate) resume: Option<String>,
    /// Begin with a copy of this session of Claude Code
    #[arg(long, value_name = "ID", conflicts_with = "resume")]
    pub(crate) fork: Option<String>,
    /// The model
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// What it may do without being allowed: a mode of the agent's, such as acceptEdits
    #[arg(long, value_name = "MODE")]
    pub(crate) permission_mode: Option<String>,
    /// Who may do what to the session, instead of sessions.toml beside the credentials
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) gates: Option<PathBuf>,
    /// Set Claude Code up with a file of JSON: hooks, agents, jsonSchema, systemPrompt, appendSystemPrompt
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) initialize: Option<PathBuf>,
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
    /// Further arguments of the agent, such as --allowedTools; with --acp, its command
    #[arg(last = true, value_name = "CLIENT ARGS")]
    pub(crate) client: Vec<OsString>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Transport {
    Stdio,
    SdkUrl,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Acp {
    /// Name to register, a generated one otherwise; {project}, {branch}, {host} and {user} are
    /// filled in; further sessions get -2, -3 and so on behind it [env: PEERBUS_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The agent; its command follows `--` where it is another one
    #[arg(long, value_name = "AGENT", value_parser = agent(&[]), required_unless_present = "command")]
    pub(crate) agent: Option<&'static Agent>,
    /// Who may do what to the sessions, instead of sessions.toml beside the credentials
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) gates: Option<PathBuf>,
    /// The agent's command; with --agent, further arguments of it
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
