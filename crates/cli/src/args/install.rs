//! `peerbus install` and `peerbus uninstall`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use peerbus_agents::Agent;

/// The agents whose configuration is known.
fn agent() -> impl TypedValueParser<Value = &'static Agent> {
    let word = |agent: &Agent| PossibleValue::new(agent.word).help(agent.title);
    let words = PossibleValuesParser::new(Agent::installable().map(word));
    words.try_map(|given| {
        let mut all = Agent::installable();
        all.find(|agent| agent.word == given).ok_or("unknown agent")
    })
}

/// Whose configuration is meant.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Scope {
    /// The project's in the current directory, which its team shares
    #[arg(long, conflicts_with = "user")]
    pub(crate) project: bool,
    /// Your own, for all projects (the default)
    #[arg(long)]
    pub(crate) user: bool,
}

/// Which files are meant, and whether they are changed.
#[derive(Debug, clap::Args)]
pub(crate) struct Files {
    /// The agent; without one those that are found here are listed
    #[arg(value_name = "CLIENT", value_parser = agent())]
    pub(crate) agent: Option<&'static Agent>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Install {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Name for the sessions, in place of a generated one for each
    #[arg(long, value_name = "NAME", requires = "agent")]
    pub(crate) name: Option<String>,
    /// Let the agent call the bus tools without asking its user
    #[arg(long, requires = "agent")]
    pub(crate) allow: bool,
    /// Leave out the module that runs inside Claude Code
    #[arg(long, requires = "agent")]
    pub(crate) no_mod: bool,
    /// Add a server that a peer shares: mcp://PEER/NAME (repeatable)
    #[arg(long = "use", value_name = "URI", requires = "agent")]
    pub(crate) used: Vec<String>,
    /// Use it under names that begin so, which the other side's --to means
    #[arg(long = "as", value_name = "NAME", requires = "used")]
    pub(crate) used_as: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Uninstall {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Take out this shared server alone (repeatable)
    #[arg(long = "use", value_name = "URI", requires = "agent")]
    pub(crate) used: Vec<String>,
    /// Take it out of every agent's configuration, and of the projects' that it was put into
    #[arg(long, conflicts_with_all = ["agent", "project", "user"])]
    pub(crate) all: bool,
    /// Take back what `peerbus join` wrote
    #[arg(long, conflicts_with_all = ["agent", "project", "user", "all"])]
    pub(crate) join: bool,
    /// Then end the broker, and delete its mail, its tokens and all else that peerbus keeps
    #[arg(long, requires = "all")]
    pub(crate) purge: bool,
    /// Do not ask before that
    #[arg(long, requires = "purge")]
    pub(crate) yes: bool,
}
