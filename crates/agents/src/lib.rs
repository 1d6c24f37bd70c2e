//! Facts about each agent's command line, as data: how it names itself, where its configuration
//! is, what an entry for a server looks like there.
//!
//! One file for each agent. To teach `peerbus install` another agent, write its file and name it in
//! [`ALL`].

mod acp;
mod claude_acp;
pub mod claude_code;
mod claude_desktop;
mod codex;
mod copilot;
mod cursor;
mod gemini;
mod hermes;
mod kimi;
mod opencode;
mod openhands;
mod places;
mod qwen;
mod vibe;

pub use acp::{Acp, Proof};
pub use places::{Base, home, is_id, project_slug};

/// Every agent of which something is known.
pub const ALL: [&Agent; 13] = [
    &claude_code::AGENT,
    &codex::AGENT,
    &opencode::AGENT,
    &qwen::AGENT,
    &gemini::AGENT,
    &copilot::AGENT,
    &cursor::AGENT,
    &claude_desktop::AGENT,
    &claude_acp::AGENT,
    &kimi::AGENT,
    &vibe::AGENT,
    &hermes::AGENT,
    &openhands::AGENT,
];

/// What is known of one agent. `..Agent::UNKNOWN` stands for what is as usual.
#[derive(Debug)]
pub struct Agent {
    /// The word for it on our command line.
    pub word: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// How the `clientInfo.name` of its MCP client begins, in lower case.
    pub client_info: &'static [&'static str],
    /// It takes tool names with dots, and shows them to its model as they are.
    pub takes_dots: bool,
    /// The variable in which it tells a server the id of the session.
    pub session_variable: Option<&'static str>,
    /// The variable in which it tells a server the project's directory.
    pub project_variable: Option<&'static str>,
    /// The kind of adapter that serves it: the value of `--adapter`.
    pub adapter: &'static str,
    /// The files that an install changes. None: it is not installed by us.
    pub files: &'static [File],
    /// A session reads the server of a project's file also below the directory of that file.
    pub reads_upwards: bool,
    /// How it is driven over ACP. `None`: it does not speak that.
    pub acp: Option<&'static Acp>,
    /// What its user has to do, or should know, after an install.
    pub notes: &'static [Note],
}

impl Agent {
    /// An agent of which nothing is known.
    pub const UNKNOWN: Self = Self {
        word: "",
        title: "",
        client_info: &[],
        takes_dots: true,
        session_variable: None,
        project_variable: None,
        adapter: "generic",
        files: &[],
        reads_upwards: false,
        acp: None,
        notes: &[],
    };

    /// Finds an agent by the `clientInfo.name` of its MCP client.
    #[must_use]
    pub fn of_client(name: &str) -> Option<&'static Self> {
        ALL.into_iter().find(|agent| agent.is_client(name))
    }

    /// Whether its MCP client calls itself so.
    #[must_use]
    pub fn is_client(&self, name: &str) -> bool {
        let name = name.trim().to_ascii_lowercase();
        self.client_info.iter().any(|known| name.starts_with(known))
    }

    /// So many processes stand between the one that is started for ACP and its own, at most.
    #[must_use]
    pub fn wrappers(&self) -> usize {
        self.acp.map_or(0, |acp| acp.wrappers)
    }

    /// Whether there is a setting with which it calls the bus tools without asking its user.
    #[must_use]
    pub fn calls_unasked(&self) -> bool {
        self.files.iter().any(|file| match &file.part {
            Part::Server(server) => !server.unasked.is_empty(),
            Part::Hooks(_) => true,
            Part::Whole(_) => false,
        })
    }

    /// Every agent that can be installed.
    pub fn installable() -> impl Iterator<Item = &'static Self> {
        ALL.into_iter().filter(|agent| !agent.files.is_empty())
    }
}

/// Whose configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A user's own, for all projects.
    User,
    /// A project's, which its team shares.
    Project,
}

/// A configuration file and the part of it that is ours.
#[derive(Debug)]
pub struct File {
    /// Where a user's own is.
    pub user: Base,
    /// Names of the user's file below that. Of several, the agent reads all: the first that is
    /// there is changed, and the last is made.
    pub user_names: &'static [&'static str],
    /// The same below a project's directory.
    pub project_names: &'static [&'static str],
    /// Our part of it.
    pub part: Part,
}

/// The part of a file that is ours.
#[derive(Debug)]
pub enum Part {
    /// An entry in the table of MCP servers.
    Server(ServerEntry),
    /// Hooks as Claude Code has them.
    Hooks(&'static [Hook]),
    /// All of it: a program that the agent runs in its own process, or beside it.
    Whole(Program),
}

/// A program of ours in a file of its own.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The file's text.
    pub text: &'static str,
    /// Its effect, as the end of a sentence; empty for a file that only goes along with another one.
    pub does: &'static str,
    /// The agent is woken without it.
    pub optional: bool,
    /// What else it takes for the agent to run it well.
    pub needs: Option<Requirement>,
}

/// Something that an agent needs.
#[derive(Debug, Clone, Copy)]
pub struct Requirement {
    /// How it is known that it has it.
    pub sign: Sign,
    /// What happens without it: a sentence without its full stop.
    pub without: &'static str,
    /// The remedy.
    pub remedy: &'static str,
}

/// How an entry for an MCP server looks.
#[derive(Debug)]
pub struct ServerEntry {
    /// How the file is written.
    pub format: Format,
    /// The name of the table of servers.
    pub table: &'static str,
    /// Members before the command.
    pub before: &'static [(&'static str, Fixed)],
    /// Members after the command.
    pub after: &'static [(&'static str, Fixed)],
    /// Program and arguments stand in one list, `command`; else the arguments are in `args`.
    pub one_list: bool,
    /// The name of the member with environment variables.
    pub env: &'static str,
    /// Members with which the agent calls the tools without asking its user; none are known if empty.
    pub unasked: &'static [(&'static str, Fixed)],
}

impl ServerEntry {
    /// The entry of most agents: `mcpServers.NAME` with `command`, `args` and `env`, in JSON.
    pub const USUAL: Self = Self {
        format: Format::Json,
        table: "mcpServers",
        before: &[],
        after: &[],
        one_list: false,
        env: "env",
        unasked: &[],
    };
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON, with comments and trailing commas.
    Json,
    /// TOML.
    Toml,
}

/// A value that every entry has.
#[derive(Debug)]
pub enum Fixed {
    /// A text.
    Text(&'static str),
    /// True or false.
    Flag(bool),
    /// A list of texts.
    Texts(&'static [&'static str]),
}

/// A hook that makes a session of Claude Code hear of its mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// The event at which it runs.
    pub event: &'static str,
    /// The arguments of the program.
    pub arguments: &'static str,
    /// It stays in the background and can start a turn.
    pub rewake: bool,
    /// After so many seconds the agent ends it.
    pub timeout_s: u32,
}

/// What shows that an agent has something.
#[derive(Debug, Clone, Copy)]
pub enum Sign {
    /// There is something at this path, from the file's directory.
    Beside(&'static str),
    /// A member of its user's settings, a file of JSON, is true: directory, file, member.
    Switch(Base, &'static str, &'static str),
}

/// What to tell a user after an install.
#[derive(Debug)]
pub struct Note {
    /// Told of this scope alone; `None`: of both.
    pub scope: Option<Scope>,
    /// Told only where the project has a file of this name that mentions the server.
    pub beside: Option<&'static str>,
    /// Told only of an install without `--allow`.
    pub asks: bool,
    /// A sentence without its full stop.
    pub text: &'static str,
}

impl Note {
    const fn new(scope: Option<Scope>, text: &'static str) -> Self {
        Self {
            scope,
            beside: None,
            asks: false,
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_known_by_how_its_client_names_itself() {
        for (client, word) in [
            ("claude-code", Some("claude-code")),
            ("codex-mcp-client", Some("codex")),
            ("qwen-cli-mcp-client-peerbus", Some("qwen")),
            (" Claude Desktop", Some("claude-desktop")),
            ("inspector-client", None),
            ("", None),
        ] {
            let found = Agent::of_client(client).map(|agent| agent.word);
            assert_eq!(found, word, "{client}");
        }
    }

    #[test]
    fn no_two_agents_have_one_word() {
        let mut words: Vec<_> = ALL.iter().map(|agent| agent.word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), ALL.len());
    }
}
