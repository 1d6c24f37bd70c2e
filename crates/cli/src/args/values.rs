//! Values of flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use peerbus_wire::limits::WITHIN_MS_MAX;

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

pub(super) const DAY: u64 = 86_400;
/// Longest age, in days: a mistyped unit is noticed.
const DAYS_MAX: u64 = 3_650;

/// A time such as `90s`, `30m`, `2h` or `7d`.
pub(super) fn age(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => DAY,
        _ => return None,
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (seconds <= DAYS_MAX * DAY).then(|| Duration::from_secs(seconds))
}

/// For so long a result may be waited for, in milliseconds.
pub(super) fn within_ms(text: &str) -> Result<u64, String> {
    let within = age(text).and_then(|age| u64::try_from(age.as_millis()).ok());
    let within = within.filter(|ms| (1..=WITHIN_MS_MAX).contains(ms));
    within.ok_or_else(|| "expected a time such as 90s, 20m, 2h or 7d, which is the longest".into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_result_may_be_waited_for_for_seven_days_at_most() {
        for (text, ms) in [("90s", 90_000), ("20m", 1_200_000), ("7d", 604_800_000)] {
            assert_eq!(super::within_ms(text), Ok(ms));
        }
        for wrong in ["0s", "8d", "604801s", "5", "1w", ""] {
            assert!(
                super::within_ms(wrong).unwrap_err().contains("7d"),
                "{wrong}"
            );
        }
    }

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
