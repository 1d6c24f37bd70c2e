//! Which files an install changes, and what is to stand there.

use std::path::{Path, PathBuf};

use peerbus_adapter::Failure;
use peerbus_agents::{Agent, File, Part, Scope, ServerEntry, claude_code};

use super::edit::{self, Target, Want};
use super::hooks::Hook;
use super::naming;
use super::record::Record;
use super::used::{Uses, Wanted};
use super::value::{Value, member, members, object};
use super::words::quoted;
use crate::text::escape;

/// Longest value of a variable that is shown, in characters.
const VALUE_CHARS: usize = 200;

/// The directory whose project is meant: the current one. For the user alone none is needed.
pub(crate) fn project(scope: Scope) -> Result<PathBuf, Failure> {
    if peerbus_agents::home().is_none() {
        return Err(Failure::config("no home directory: set HOME"));
    }
    let here = match (std::env::current_dir(), scope) {
        (Err(_), Scope::User) => Ok(PathBuf::from("/")),
        (here, _) => here,
    };
    here.map_err(|error| Failure::failed(format!("the current directory cannot be read: {error}")))
}

/// What is wrong with a variable that says where an agent's own configuration is.
pub(crate) fn misplaced(agent: &Agent) -> Option<String> {
    let wrong = agent
        .files
        .iter()
        .find_map(|file| Some((file.user.variable, file.user.wrong()?)));
    let (variable, value) = wrong?;
    let (value, title) = (escape(&value.to_string_lossy(), VALUE_CHARS), agent.title);
    Some(format!(
        "{variable} is \"{value}\", which is no absolute path: each program that {title} starts there \
         takes it for another one. Write it from / on (a ~ in quotes is no home), or unset it"
    ))
}

pub(super) fn check_places(agent: &Agent, scope: Scope) -> Result<(), Failure> {
    match misplaced(agent).filter(|_| scope == Scope::User) {
        Some(why) => Err(Failure::config(why)),
        None => Ok(()),
    }
}

/// Refuses files of a project that a symbolic link of that leads out of it: a repository would have its user's own
/// configuration changed.
pub(super) fn check_within(
    scope: Scope,
    project: &Path,
    targets: &[Target],
) -> Result<(), Failure> {
    let above = above(project);
    let root = above.last().map_or(project, PathBuf::as_path);
    let real = root.canonicalize();
    let leads_out = |path: &Path| {
        let is_link = path
            .symlink_metadata()
            .is_ok_and(|found| found.is_symlink());
        let within = |to: PathBuf| real.as_ref().is_ok_and(|root| to.starts_with(root));
        is_link && !path.canonicalize().is_ok_and(within)
    };
    let ours = targets.iter().filter(|_| scope == Scope::Project);
    let ours = ours.flat_map(|target| {
        let below = target.path.ancestors();
        below.take_while(|path| path.starts_with(project) && *path != project)
    });
    let mut links = ours.filter(|path| leads_out(path));
    links.next().map_or(Ok(()), |link| {
        Err(Failure::failed(format!(
            "{} is a symbolic link out of {}, and nothing was changed: put a file or a directory of the project \
             there, or install for yourself with --user",
            link.display(),
            root.display()
        )))
    })
}

/// What was installed in an agent's own configuration in other places than these: a variable named
/// them then.
pub(super) fn elsewhere(
    agent: &Agent,
    scope: Scope,
    program: &Program,
    record: &Record,
    here: &[Target],
) -> Vec<Target> {
    let known = |path: &Path| here.iter().any(|target| target.path == path);
    let files = record.files_of(agent.word).filter(|path| !known(path));
    let target = |path: &Path| {
        let named = |file: &&File| file.user_names.iter().any(|name| path.ends_with(name));
        let file = agent.files.iter().find(named)?;
        let (path, want) = (path.to_owned(), want(agent, file, program));
        Some(Target { path, want })
    };
    let files = files.filter(|_| scope == Scope::User);
    files.filter_map(target).collect()
}

pub(super) fn other(scope: Scope) -> Scope {
    match scope {
        Scope::User => Scope::Project,
        Scope::Project => Scope::User,
    }
}

pub(crate) fn flag(scope: Scope) -> &'static str {
    match scope {
        Scope::User => "user",
        Scope::Project => "project",
    }
}

/// Which of these files an install of the other scope has a part in that is there: in the home the
/// project's files are partly those of the user.
pub(super) fn needed_elsewhere(
    agent: &Agent,
    scope: Scope,
    project: &Path,
    program: &Program,
    here: &[Target],
) -> Vec<PathBuf> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let theirs = targets(agent, other(scope), project, program);
    let (shared, own): (Vec<_>, Vec<_>) = theirs
        .into_iter()
        .partition(|target| here.iter().any(|it| real(&it.path) == real(&target.path)));
    let shared: Vec<_> = shared.iter().map(|target| real(&target.path)).collect();
    let shared = here
        .iter()
        .filter(|target| shared.contains(&real(&target.path)));
    match own.iter().any(edit::is_there) {
        true => shared.map(|target| target.path.clone()).collect(),
        false => Vec::new(),
    }
}

/// The directories above one that belong to its project too, the root the last: the one of the
/// repository, else the next with an `.mcp.json`.
pub(crate) fn above(project: &Path) -> Vec<PathBuf> {
    let mut root = None;
    for marker in [".git", ".mcp.json"] {
        let has = |dir: &&Path| dir.join(marker).exists();
        root = root.or_else(|| project.ancestors().find(has));
    }
    let above = project.ancestors().skip(1);
    let below_root = above.take_while(|dir| root.is_some_and(|root| dir.starts_with(root)));
    below_root.map(Path::to_owned).collect()
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Program {
    /// `peerbus`, or the full path.
    pub(crate) command: String,
    /// A name for the sessions.
    pub(crate) name: Option<String>,
    /// The agent may call the tools without asking its user.
    pub(crate) unasked: bool,
    /// The module in the agent's own process is left out, where it is woken without that.
    pub(crate) no_mod: bool,
    /// What peers share and it uses.
    pub(crate) uses: Uses,
}

pub(crate) fn targets(
    agent: &Agent,
    scope: Scope,
    project: &Path,
    program: &Program,
) -> Vec<Target> {
    let target = |file: &'static File| {
        let want = want(agent, file, program);
        let all = file.candidates(scope, project);
        let path = chosen(all, &want)?;
        Some(Target { path, want })
    };
    let left_out =
        |file: &&File| program.no_mod && matches!(file.part, Part::Whole(it) if it.optional);
    let files = agent.files.iter().filter(|file| !left_out(file));
    files.filter_map(target).collect()
}

fn want(agent: &Agent, file: &'static File, program: &Program) -> Want {
    match &file.part {
        Part::Server(form) => Want::Servers(Wanted {
            form,
            entry: entry(agent, form, program),
            command: program.command.clone(),
            uses: program.uses.clone(),
        }),
        Part::Hooks(hooks) => {
            let command = quoted(&program.command);
            let hook = |hook: &peerbus_agents::Hook| Hook {
                event: hook.event,
                command: claude_code::if_there(&command, hook.arguments),
                rewake: hook.rewake,
                timeout_s: hook.timeout_s,
            };
            Want::Hooks(hooks.iter().map(hook).collect(), program.unasked)
        }
        Part::Whole(whole) => Want::Whole(*whole),
    }
}

fn entry(agent: &Agent, server: &ServerEntry, program: &Program) -> Value {
    let kind = format!("--adapter={}", agent.adapter);
    let mut members = members(server, &program.command, &["adapter", kind.as_str()]);
    if program.unasked {
        members.extend(server.unasked.iter().map(member));
    }
    if let Some(name) = &program.name {
        let env = object([("PEERBUS_NAME", Value::from(name.as_str()))]);
        members.push((server.env.to_owned(), env));
    }
    Value::Object(members)
}

/// Of files that an agent reads all, the one with our part, else the first that is there, else the
/// last.
fn chosen(mut all: Vec<PathBuf>, want: &Want) -> Option<PathBuf> {
    let has_ours =
        |path: &PathBuf| edit::value(want, path).is_some_and(|found| edit::is_in(want, &found));
    if all.len() > 1 {
        let there = || all.iter().position(|path| path.exists());
        let which = all.iter().position(has_ours).or_else(there);
        all.truncate(which.map_or(all.len(), |which| which + 1));
    }
    all.pop()
}

/// The name that earlier installs gave, or their user.
pub(super) fn kept(targets: &[Target]) -> Option<String> {
    targets.iter().find_map(|target| {
        let read = edit::value(&target.want, &target.path)?;
        let name = naming::variable(edit::entry(&target.want, &read)?, "PEERBUS_NAME")?;
        Some(escape(&name, naming::SHOWN_CHARS))
    })
}
