//! A token of a program's own, kept in a file of its user's.

use std::fs;
use std::io;
use std::path::Path;

use peerbus_os::{dir, file};
use peerbus_wire::Token;

use crate::credentials::random_hex;

/// Longest file that is read, in bytes.
const BYTES_MAX: u64 = 1_024;

/// The token in a file, made if there is none. Nobody else may read the file.
///
/// # Errors
///
/// When it cannot be read or made, can be read by others, or has no token.
pub fn kept_token(path: &Path) -> io::Result<Token> {
    if let Some(directory) = path.parent() {
        dir::create_private(directory)?;
    }
    if !path.exists() {
        file::replace_private(path, random_hex().as_bytes())?;
    }
    if let Some(mode) = file::exposed_mode(&fs::metadata(path)?) {
        let why = format!("others can read it (mode {mode:03o}): chmod 600 it");
        return Err(io::Error::other(why));
    }
    let text = file::read_small(path, BYTES_MAX).unwrap_or_default();
    let token = Token::parse(text.trim());
    token.ok_or_else(|| io::Error::other("it has no token: delete it, and one is made"))
}
