//! Which files an install changes, and what is to stand there.

use std::path::{Path, PathBuf};

use peerbus_agents::{Agent, File, Fixed, Format, Part, Scope, Server};

use super::files::Found;
use super::hooks::Hook;
use super::json::Node;
use super::plan;
use super::words::quoted;
use crate::error::Error;

/// The name of our server in every configuration.
pub(crate) const NAME: &str = "peerbus";

/// The project whose configurations are meant.
#[derive(Debug)]
pub(crate) struct Places {
    project: PathBuf,
}

impl Places {
    /// The current directory's.
    pub(crate) fn find() -> Result<Self, Error> {
        if peerbus_agents::home().is_none() {
            return Err(Error::config("no home directory: set HOME"));
        }
        let project = std::env::current_dir().map_err(|error| {
            Error::failed(format!("the current directory cannot be read: {error}"))
        })?;
        Ok(Self { project })
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
        let project = project.to_owned();
        Self { project }
    }

    /// The project's directory.
    pub(crate) fn project(&self) -> &Path {
        &self.project
    }
}

/// What is to stand in one file.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) want: Want,
}

/// Our part of a file.
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

/// The files of an agent and what is to stand there.
pub(crate) fn targets(
    agent: &Agent,
    scope: Scope,
    places: &Places,
    program: &Program,
) -> Vec<Target> {
    let target = |file: &File| {
        let want = want(agent, file, program);
        let all = file.candidates(scope, &places.project);
        let path = chosen(all, &want)?;
        Some(Target { path, want })
    };
    agent.files.iter().filter_map(target).collect()
}

fn want(agent: &Agent, file: &File, program: &Program) -> Want {
    match &file.part {
        Part::Server(server) => {
            let entry = entry(agent, server, program);
            match server.format {
                Format::Json => Want::Server {
                    path: [server.table, NAME],
                    entry,
                },
                Format::Toml => Want::Toml(entry),
            }
        }
        Part::Hooks(hooks) => {
            let command = quoted(&program.command);
            let hook = |hook: &peerbus_agents::Hook| Hook {
                event: hook.event,
                command: format!("{command} {}", hook.arguments),
                rewake: hook.rewake,
                timeout_s: hook.timeout_s,
            };
            Want::Hooks(hooks.iter().map(hook).collect())
        }
    }
}

fn entry(agent: &Agent, server: &Server, program: &Program) -> Node {
    let kind = format!("--adapter={}", agent.adapter);
    let arguments = ["adapter", kind.as_str()];
    let fixed = |(name, value): &(&str, Fixed)| ((*name).to_owned(), fixed(value));
    let mut members: Vec<_> = server.before.iter().map(fixed).collect();
    if server.one_list {
        let words = [&[program.command.as_str()], &arguments[..]].concat();
        members.push(("command".to_owned(), Node::texts(&words)));
    } else {
        members.push(("command".to_owned(), Node::text(&program.command)));
        members.push(("args".to_owned(), Node::texts(&arguments)));
    }
    members.extend(server.after.iter().map(fixed));
    if let Some(name) = &program.name {
        let env = Node::table([("PEERBUS_NAME", Node::text(name))]);
        members.push((server.env.to_owned(), env));
    }
    Node::Table(members)
}

fn fixed(fixed: &Fixed) -> Node {
    match fixed {
        Fixed::Text(text) => Node::text(*text),
        Fixed::Flag(flag) => Node::Flag(*flag),
        Fixed::Texts(all) => Node::texts(all),
    }
}

/// Of files that an agent reads all, the one with our part, else the first that is there, else the
/// last.
fn chosen(mut all: Vec<PathBuf>, want: &Want) -> Option<PathBuf> {
    let has_ours = |path: &PathBuf| {
        let found = Found::read(path).ok();
        let text = found.as_ref().and_then(|found| Some(found.text().ok()?.0));
        let read = text.and_then(|text| plan::reading(want, text).ok());
        read.is_some_and(|read| plan::entry(want, &read).is_some())
    };
    let last = all.pop()?;
    if all.is_empty() {
        return Some(last);
    }
    let there = || all.iter().chain([&last]).position(|path| path.exists());
    let ours = all.iter().chain([&last]).position(has_ours);
    let which = ours.or_else(there).unwrap_or(all.len());
    all.push(last);
    Some(all.swap_remove(which))
}
