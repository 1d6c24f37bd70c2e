//! `peerbus bridge`: runs `peerbus-bridge`, which is a program of its own.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use peerbus_adapter::kept_token;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Failure, credentials};
use peerbus_core::TokenHash;
use peerbus_core::grant::{BRIDGE_TOKEN, Right, Rights};

use crate::args::{BRIDGE, bridge_program};
use crate::operator;
use crate::token::admit;

/// The names that the bridges' token may have.
const NAMES: &str = "bridge*";

/// Becomes `peerbus-bridge`, with a token of its own for the broker of this user.
pub(crate) fn run(args: &[OsString]) -> Result<(), Failure> {
    let program = bridge_program().ok_or_else(|| {
        Failure::config(format!(
            "{BRIDGE} is not installed: `cargo install --path crates/bridge` builds it from the \
             sources"
        ))
    })?;
    let mut command = Command::new(program);
    command.args(args);
    if joins(args) && env::var_os("PEERBUS_TOKEN").is_none() {
        let paths = Paths::find()?;
        let known = credentials::load(&paths.credentials).is_ok_and(|found| found.url.is_some());
        if env::var_os("PEERBUS_URL").is_some() || known {
            return Err(Failure::config(
                "the broker is another one than this user's: set PEERBUS_TOKEN to a token of it \
                 with the right `bridge` and names `bridge*`",
            ));
        }
        // So that there is a broker, and one that learns of the token.
        operator::ask(None, "GET", "/broker")?;
        let file = paths.config_dir.join("bridge-token");
        let token = kept_token(&file).map_err(Failure::config)?;
        let rights = Rights::of([Right::Bridge]);
        admit(BRIDGE_TOKEN, NAMES, TokenHash::of(&token), rights)?;
        command.env("PEERBUS_TOKEN", token.expose());
    }
    Err(Failure::failed(command.exec()))
}

/// Whether these are the arguments of a bridge, and not of another verb.
fn joins(args: &[OsString]) -> bool {
    let other = [
        "account",
        "setup",
        "help",
        "--help",
        "-h",
        "--version",
        "-V",
    ];
    !args.iter().any(|arg| other.iter().any(|word| arg == word))
}
