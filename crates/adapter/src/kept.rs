//! A token of a program's own, kept in a file of its user's.

use std::path::Path;

use peerbus_os::dir;
use peerbus_os::file;
use peerbus_os::private::PrivateFile;
use peerbus_wire::Token;

use crate::credentials::random_hex;

const FILE: PrivateFile<Token> = PrivateFile {
    what: "token file",
    bytes_max: 1_024,
    readable: false,
    heading: "",
    instead: "",
    parse: |text| {
        let token = Token::parse(text.trim());
        token.ok_or_else(|| "has no token: delete it, and one is made".to_owned())
    },
};

/// The token in a file, made if there is none. Nobody else may read the file.
///
/// # Errors
///
/// A sentence: it cannot be read or made, can be read by others, or has no token.
pub fn kept_token(path: &Path) -> Result<Token, String> {
    if let Some(token) = FILE.read(path)? {
        return Ok(token);
    }
    let text = random_hex();
    dir::create_private(dir::above(path))
        .and_then(|()| file::replace_private(path, text.as_bytes()))
        .map_err(|error| FILE.says(path, format_args!("cannot be made: {error}")))?;
    (FILE.parse)(&text)
}
