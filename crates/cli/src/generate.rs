//! `peerbus completions` and `peerbus man`: what clap makes of the command line.

use std::path::Path;

use clap_complete::Shell;
use peerbus_adapter::Failure;

use crate::args;
use crate::output;

pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(true), "peerbus", &mut script);
    Ok(output::text(&String::from_utf8_lossy(&script))?)
}

/// Writes the manual: `peerbus.1`, and `peerbus-COMMAND.1` for each command.
pub(crate) fn man(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(args::command(true), directory))
        .map_err(|error| {
            Failure::failed(format!("cannot write to {}: {error}", directory.display()))
        })
}
