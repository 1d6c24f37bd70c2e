//! Which client keeps its configuration where, and what peerbus puts there.

use std::path::{Path, PathBuf};

use super::hooks::Hook;
use super::json::{self, Node};
use super::words::quoted;
use crate::args::Client;
use crate::failure::Failure;

/// What Codex must hand on of its environment, which it otherwise cleans.
const HANDED_ON: [&str; 12] = [
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "PEERBUS_URL",
    "PEERBUS_NAME",
    "PEERBUS_TOKEN",
    "PEERBUS_HMAC_SECRET",
    "PEERBUS_LOG",
    "PEERBUS_ACK",
    "PEERBUS_BUDGET",
    "PEERBUS_TOOL_NAMES",
    "PEERBUS_WAKE",
];

/// Whose configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    User,
    Project,
}

/// The directories that decide where configurations are.
#[derive(Debug)]
pub(crate) struct Places {
    home: PathBuf,
    project: PathBuf,
    env: fn(&str) -> Option<PathBuf>,
}

impl Places {
    /// Those of this process.
    pub(crate) fn find() -> Result<Self, Failure> {
        let env = |name: &str| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
            Some(PathBuf::from(value))
        };
        let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
        let home = home.ok_or_else(|| Failure::config("no home directory: set HOME"))?;
        let project = std::env::current_dir().map_err(|error| {
            Failure::failed(format!("the current directory cannot be read: {error}"))
        })?;
        Ok(Self { home, project, env })
    }

    /// A directory that a variable names, else one below the home.
    fn dir(&self, variable: &str, default: &str) -> PathBuf {
        (self.env)(variable).unwrap_or_else(|| self.home.join(default))
    }
}

/// What is to stand in one file.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) want: Want,
}

/// An entry of peerbus' own.
#[derive(Debug)]
pub(crate) enum Want {
    /// A member of a JSON document.
    Server {
        path: [&'static str; 2],
        entry: Node,
    },
    /// Hooks in Claude Code's settings.
    Hooks(Vec<Hook>),
    /// A table of Codex' TOML.
    Toml(Node),
}

/// How peerbus is to be called.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// `peerbus`, or the full path.
    pub(crate) command: String,
    /// A name for the sessions.
    pub(crate) name: Option<String>,
}

/// Every client, as on the command line.
pub(crate) const CLIENTS: [(Client, &str, &str); 7] = [
    (Client::ClaudeCode, "claude-code", "Claude Code"),
    (Client::Codex, "codex", "Codex"),
    (Client::Opencode, "opencode", "OpenCode"),
    (Client::Qwen, "qwen", "Qwen Code"),
    (Client::Gemini, "gemini", "Gemini CLI"),
    (Client::Copilot, "copilot", "Copilot CLI"),
    (Client::Cursor, "cursor", "Cursor"),
];

impl Places {
    /// Where Claude Code may be told to run no hooks.
    pub(crate) fn claude_settings(&self) -> Vec<PathBuf> {
        let user = self.dir("CLAUDE_CONFIG_DIR", ".claude");
        let project = self.project.join(".claude");
        vec![
            user.join("settings.json"),
            project.join("settings.json"),
            project.join("settings.local.json"),
        ]
    }

    /// Where Claude Code remembers what a project's user switched off.
    pub(crate) fn claude_state(&self) -> PathBuf {
        match (self.env)("CLAUDE_CONFIG_DIR") {
            Some(dir) => dir.join(".claude.json"),
            None => self.home.join(".claude.json"),
        }
    }

    /// The directories above this one that belong to the project too, its root the last: the one of
    /// the repository, else the next with an `.mcp.json`.
    pub(crate) fn above(&self) -> Vec<PathBuf> {
        let mut root = None;
        for marker in [".git", ".mcp.json"] {
            let has = |dir: &&Path| dir.join(marker).exists();
            root = root.or_else(|| self.project.ancestors().find(has));
        }
        let above = self.project.ancestors().skip(1);
        let below_root = above.take_while(|dir| root.is_some_and(|root| dir.starts_with(root)));
        below_root.map(Path::to_owned).collect()
    }

    /// The same, seen from another directory.
    pub(crate) fn at(&self, project: &Path) -> Self {
        Self {
            home: self.home.clone(),
            project: project.to_owned(),
            env: self.env,
        }
    }

    /// The current directory.
    pub(crate) fn project(&self) -> &Path {
        &self.project
    }
}

/// A client's name for people.
pub(crate) fn title(client: Client) -> &'static str {
    let found = CLIENTS.iter().find(|(known, _, _)| *known == client);
    found.map_or("", |(_, _, title)| title)
}

/// The files of a client and what is to stand there.
pub(crate) fn targets(
    client: Client,
    scope: Scope,
    places: &Places,
    program: &Program,
) -> Vec<Target> {
    let server = |path: PathBuf, at: [&'static str; 2], entry: Node| Target {
        path,
        want: Want::Server { path: at, entry },
    };
    let usual = ["mcpServers", "peerbus"];
    let project = &places.project;
    match (client, scope) {
        (Client::ClaudeCode, _) => claude_code(scope, places, program),
        (Client::Codex, _) => {
            let path = match scope {
                Scope::User => places.dir("CODEX_HOME", ".codex").join("config.toml"),
                Scope::Project => project.join(".codex/config.toml"),
            };
            let want = Want::Toml(codex(program));
            vec![Target { path, want }]
        }
        (Client::Opencode, _) => {
            let dir = match scope {
                Scope::User => places.dir("XDG_CONFIG_HOME", ".config").join("opencode"),
                Scope::Project => project.clone(),
            };
            let path = opencode_file(&dir);
            vec![server(path, ["mcp", "peerbus"], opencode(program))]
        }
        (Client::Qwen, _) => {
            let path = match scope {
                Scope::User => places.dir("QWEN_HOME", ".qwen").join("settings.json"),
                Scope::Project => project.join(".qwen/settings.json"),
            };
            let always = [("alwaysLoadTools", Node::Flag(true))];
            vec![server(path, usual, stdio(program, "generic", &[], &always))]
        }
        (Client::Gemini, _) => {
            let home = (places.env)("GEMINI_CLI_HOME").unwrap_or_else(|| places.home.clone());
            let path = match scope {
                Scope::User => home.join(".gemini/settings.json"),
                Scope::Project => project.join(".gemini/settings.json"),
            };
            vec![server(path, usual, stdio(program, "generic", &[], &[]))]
        }
        (Client::Copilot, _) => {
            let path = match scope {
                Scope::User => places
                    .dir("COPILOT_HOME", ".copilot")
                    .join("mcp-config.json"),
                Scope::Project => project.join(".github/mcp.json"),
            };
            let local = [("type", Node::text("local"))];
            let tools = [("tools", Node::texts(&["*"]))];
            vec![server(
                path,
                usual,
                stdio(program, "generic", &local, &tools),
            )]
        }
        (Client::Cursor, _) => {
            let path = match scope {
                Scope::User => places.home.join(".cursor/mcp.json"),
                Scope::Project => project.join(".cursor/mcp.json"),
            };
            vec![server(path, usual, stdio(program, "generic", &[], &[]))]
        }
    }
}

fn claude_code(scope: Scope, places: &Places, program: &Program) -> Vec<Target> {
    let (servers, settings) = match scope {
        Scope::Project => (
            places.project.join(".mcp.json"),
            places.project.join(".claude/settings.json"),
        ),
        Scope::User => (
            places.claude_state(),
            places
                .dir("CLAUDE_CONFIG_DIR", ".claude")
                .join("settings.json"),
        ),
    };
    let want = Want::Server {
        path: ["mcpServers", "peerbus"],
        entry: stdio(program, "cc", &[], &[]),
    };
    let command = quoted(&program.command);
    let hooks = peerbus_cc_adapter::hooks::ENTRIES.iter().map(|entry| Hook {
        event: entry.event,
        command: format!("{command} {}", entry.arguments),
        rewake: entry.rewake,
        timeout_s: entry.timeout_s,
    });
    vec![
        Target {
            path: servers,
            want,
        },
        Target {
            path: settings,
            want: Want::Hooks(hooks.collect()),
        },
    ]
}

/// The usual entry, with members before and after.
fn stdio(
    program: &Program,
    adapter: &str,
    before: &[(&str, Node)],
    after: &[(&str, Node)],
) -> Node {
    let kind = format!("--adapter={adapter}");
    let mut members = before.to_vec();
    members.push(("command", Node::text(&program.command)));
    members.push(("args", Node::texts(&["adapter", &kind])));
    members.extend(after.iter().cloned());
    members.extend(environment(program).map(|env| ("env", env)));
    let owned = members
        .into_iter()
        .map(|(name, node)| (name.to_owned(), node));
    Node::Table(owned.collect())
}

fn environment(program: &Program) -> Option<Node> {
    let name = program.name.as_ref()?;
    Some(Node::table([("PEERBUS_NAME", Node::text(name))]))
}

fn codex(program: &Program) -> Node {
    let handed_on = [("env_vars", Node::texts(&HANDED_ON))];
    stdio(program, "generic", &[], &handed_on)
}

fn opencode(program: &Program) -> Node {
    let command = ["adapter", "--adapter=generic"];
    let command = [&[program.command.as_str()], &command[..]].concat();
    let mut members = vec![
        ("type".to_owned(), Node::text("local")),
        ("enabled".to_owned(), Node::Flag(true)),
        ("command".to_owned(), Node::texts(&command)),
    ];
    members.extend(environment(program).map(|env| ("environment".to_owned(), env)));
    Node::Table(members)
}

/// OpenCode reads several files: the one with our entry, else the first that is there.
fn opencode_file(dir: &Path) -> PathBuf {
    let candidates = ["opencode.jsonc", "opencode.json"].map(|name| dir.join(name));
    let has_ours = |path: &&PathBuf| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let root = json::parse(&text).ok().flatten();
        root.is_some_and(|root| json::at(&root, &["mcp", "peerbus"]).is_some())
    };
    let found = candidates.iter().find(has_ours);
    let found = found.or_else(|| candidates.iter().find(|path| path.exists()));
    found.unwrap_or(&candidates[1]).clone()
}
