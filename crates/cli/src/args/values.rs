//! Values of flags.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};

/// An address to listen on. `localhost` and no host at all stand for 127.0.0.1, and an empty text
/// for the default.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    const DEFAULT: &str = "127.0.0.1:47821";
    let text = if text.is_empty() { DEFAULT } else { text };
    let address = match text.strip_prefix("localhost").unwrap_or(text) {
        port if port.starts_with(':') => format!("127.0.0.1{port}"),
        whole => whole.to_owned(),
    };
    address.parse().map_err(|_| {
        "expected IP:PORT, such as 127.0.0.1:47821 or [::1]:47821 (PEERBUS_LISTEN or --listen)"
            .into()
    })
}

/// A path. Only a shell knows what `~` is, and makes it the home where it stands first and unquoted.
pub(super) fn path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let first = path.iter().next().unwrap_or_default().to_string_lossy();
        match first.starts_with('~') {
            false => Ok(path),
            true => Err(format!(
                "`{first}` is filled in by shells only: write the whole path, or ./{first} for a file \
                 of that name"
            )),
        }
    })
}

/// The value of a variable for a flag; an empty one is off.
pub(super) fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "" | "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("expected 1 or 0".into()),
    }
}

/// So many seconds is waited until a message is seen, where nothing else is said.
pub(super) const SEEN_WITHIN_S: f64 = 60.0;

/// A length of time between a hundredth of a second and a year.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=31_536_000.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds between 0.01 and 31536000".into()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_address_may_be_short() {
        for (text, expected) in [
            ("", "127.0.0.1:47821"),
            (":5", "127.0.0.1:5"),
            ("localhost:5", "127.0.0.1:5"),
            ("0.0.0.0:5", "0.0.0.0:5"),
            ("[::1]:5", "[::1]:5"),
        ] {
            assert_eq!(super::listen_address(text).unwrap().to_string(), expected);
        }
        for bad in ["5", "example.org:5", "127.0.0.1", "localhost"] {
            assert!(
                super::listen_address(bad)
                    .unwrap_err()
                    .contains("PEERBUS_LISTEN")
            );
        }
    }
}
