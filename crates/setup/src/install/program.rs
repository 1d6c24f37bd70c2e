//! How to call peerbus from a configuration.

use std::io;
use std::path::{Path, PathBuf};

use peerbus_adapter::Failure;
use peerbus_agents::Scope;
use serde_json::Value as Json;

/// The plain name: of the program, and of our server in every configuration.
pub(crate) const NAME: &str = "peerbus";

/// `peerbus` where that finds this very program, else its full path. In a project's file, which
/// others share, always `peerbus`.
pub(crate) fn command(scope: Scope) -> Result<String, Failure> {
    if scope == Scope::Project {
        return Ok(NAME.to_owned());
    }
    let this = this().map_err(|error| {
        Failure::failed(format!("the path of this program cannot be found: {error}"))
    })?;
    let in_shells = which(NAME).and_then(|found| found.canonicalize().ok());
    if in_shells.as_ref() == Some(&this) {
        return Ok(NAME.to_owned());
    }
    if !is_peerbus(&this.to_string_lossy()) {
        let this = this.display();
        return Err(Failure::failed(format!(
            "{this} is not called peerbus, and would not be known again: rename it"
        )));
    }
    this.into_os_string().into_string().map_err(|path| {
        let path = Path::new(&path).display().to_string();
        Failure::failed(format!(
            "the path of this program, {path}, is not UTF-8: move it"
        ))
    })
}

/// The file of this program.
pub(crate) fn this() -> io::Result<PathBuf> {
    std::env::current_exe()?.canonicalize()
}

/// Whether a program is called as ours is, wherever it stands.
pub(crate) fn is_peerbus(program: &str) -> bool {
    program.rsplit('/').next() == Some(NAME)
}

/// What a word stands for in a shell here.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|file| peerbus_os::file::is_executable(file))
}

/// All words of an entry's command line.
pub(crate) fn words(entry: &Json) -> Vec<String> {
    let mut words = started_by(entry).unwrap_or_default();
    let args = entry.get("args").and_then(Json::as_array);
    let args = args.into_iter().flatten().filter_map(Json::as_str);
    words.extend(args.map(str::to_owned));
    words
}

/// The value of a flag among the arguments that an entry gives.
pub(crate) fn argument(entry: &Json, flag: &str) -> Option<String> {
    let mut words = words(entry).into_iter();
    let value = words.find_map(|word| match word.strip_prefix(flag)? {
        "" => Some(None),
        rest => rest.strip_prefix('=').map(|value| Some(value.to_owned())),
    })?;
    let value = value.or_else(|| words.next())?;
    (!value.is_empty() && !value.contains('$')).then_some(value)
}

/// What an entry runs: the program, and where they stand in one list its arguments.
pub(crate) fn started_by(entry: &Json) -> Option<Vec<String>> {
    match entry.get("command")? {
        Json::String(word) => Some(vec![word.clone()]),
        words => serde_json::from_value(words.clone()).ok(),
    }
}

/// Whether an entry runs peerbus itself. A wrapper is its writer's.
pub(crate) fn is_ours(entry: &Json) -> bool {
    let words = started_by(entry).unwrap_or_default();
    words.first().is_some_and(|program| is_peerbus(program))
}
