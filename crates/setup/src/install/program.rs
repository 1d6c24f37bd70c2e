//! How to call peerbus from a configuration.

use std::path::{Path, PathBuf};

use peerbus_agents::Scope;

use crate::error::Error;

/// The plain name.
pub(crate) const NAME: &str = "peerbus";

/// `peerbus` where that finds this very program, else its full path. In a project's file, which
/// others share, always `peerbus`.
pub(crate) fn command(scope: Scope) -> Result<String, Error> {
    if scope == Scope::Project {
        return Ok(NAME.to_owned());
    }
    let this = std::env::current_exe().and_then(std::fs::canonicalize);
    let this = this.map_err(|error| {
        Error::failed(format!("the path of this program cannot be found: {error}"))
    })?;
    if on_path().is_some_and(|found| std::fs::canonicalize(found).is_ok_and(|found| found == this))
    {
        return Ok(NAME.to_owned());
    }
    if !is_peerbus(&this.to_string_lossy()) {
        let this = this.display();
        return Err(Error::failed(format!(
            "{this} is not called peerbus, and would not be known again: rename it"
        )));
    }
    this.into_os_string().into_string().map_err(|path| {
        let path = Path::new(&path).display().to_string();
        Error::failed(format!(
            "the path of this program, {path}, is not UTF-8: move it"
        ))
    })
}

/// What `peerbus` stands for in a shell here.
pub(crate) fn on_path() -> Option<PathBuf> {
    which(NAME, &std::env::var_os("PATH").unwrap_or_default())
}

/// Whether a program is called as ours is, wherever it stands.
pub(crate) fn is_peerbus(program: &str) -> bool {
    program.rsplit('/').next() == Some(NAME)
}

/// A program on a search path.
pub(crate) fn which(name: &str, path: &std::ffi::OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|file| peerbus_os::file::is_executable(file))
}
