//! How to call peerbus from a configuration.

use std::io;
use std::path::{Path, PathBuf};

use peerbus_agents::Scope;

use crate::error::SetupError;

/// The plain name: of the program, and of our server in every configuration.
pub(crate) const NAME: &str = "peerbus";

/// `peerbus` where that finds this very program, else its full path. In a project's file, which
/// others share, always `peerbus`.
pub(crate) fn command(scope: Scope) -> Result<String, SetupError> {
    if scope == Scope::Project {
        return Ok(NAME.to_owned());
    }
    let this = this().map_err(|error| {
        SetupError::failed(format!("the path of this program cannot be found: {error}"))
    })?;
    if on_path()
        .and_then(|found| found.canonicalize().ok())
        .as_ref()
        == Some(&this)
    {
        return Ok(NAME.to_owned());
    }
    if !is_peerbus(&this.to_string_lossy()) {
        let this = this.display();
        return Err(SetupError::failed(format!(
            "{this} is not called peerbus, and would not be known again: rename it"
        )));
    }
    this.into_os_string().into_string().map_err(|path| {
        let path = Path::new(&path).display().to_string();
        SetupError::failed(format!(
            "the path of this program, {path}, is not UTF-8: move it"
        ))
    })
}

/// The file of this program.
pub(crate) fn this() -> io::Result<PathBuf> {
    std::env::current_exe()?.canonicalize()
}

/// What `peerbus` stands for in a shell here.
pub(crate) fn on_path() -> Option<PathBuf> {
    which(NAME)
}

/// Whether a program is called as ours is, wherever it stands.
pub(crate) fn is_peerbus(program: &str) -> bool {
    program.rsplit('/').next() == Some(NAME)
}

/// A program on the `PATH`.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|file| peerbus_os::file::is_executable(file))
}
