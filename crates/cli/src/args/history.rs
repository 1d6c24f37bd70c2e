//! What the command line says of the history.

use std::time::Duration;

use std::path::PathBuf;

use clap::Subcommand;
use peerbus_broker::HistoryLimits as Kept;
use peerbus_wire::MessageId;

use super::mail::message_id;
use super::path;
use super::values::{DAY, age};

/// How messages are shown, and where they are.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Shown {
    /// Print each as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The broker's Unix socket
    #[arg(long, value_name = "PATH", value_parser = path())]
    pub(crate) socket: Option<PathBuf>,
    /// Another credentials file than the one `serve` makes
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) credentials: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Tail {
    /// Only what this peer sends or gets, or this group (`#shop`)
    pub(crate) name: Option<String>,
    /// The same
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    pub(crate) peer: Option<String>,
    /// Go on with what happens, also when the broker restarts
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// One line each, as long as the terminal is wide
    #[arg(long)]
    pub(crate) short: bool,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Inbox {
    /// Whose mail
    pub(crate) name: String,
    /// At most so many messages, the newest
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct History {
    #[command(subcommand)]
    pub(crate) verb: Option<HistoryVerb>,
    /// Only messages from or to this peer, or to this group (`#GROUP`, in quotes)
    pub(crate) name: Option<String>,
    /// The same
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    pub(crate) with: Option<String>,
    /// Only those of a conversation
    #[arg(long, value_name = "ID", value_parser = message_id)]
    pub(crate) thread: Option<MessageId>,
    /// Only those with this in their text, in whatever case
    #[arg(long, value_name = "WORD")]
    pub(crate) grep: Option<String>,
    /// Only those of so long: 30m, 2h, 7d
    #[arg(long, value_name = "AGE", value_parser = since)]
    pub(crate) since: Option<Duration>,
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Print each message's id, too
    #[arg(long)]
    pub(crate) ids: bool,
    /// One line each, as long as the terminal is wide
    #[arg(long)]
    pub(crate) short: bool,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryVerb {
    /// Delete what was read, now
    Purge {
        /// The broker's Unix socket
        #[arg(long, value_name = "PATH", value_parser = path())]
        socket: Option<PathBuf>,
    },
}

/// Least bytes of a history that is one.
const BYTES_MIN: u64 = 65_536;

/// `7d,256M`, or either alone, or `0`.
pub(crate) fn kept(text: &str) -> Result<Kept, String> {
    read(text).map_err(|why| {
        format!("{why} (--history, PEERBUS_HISTORY, or `history` in the credentials)")
    })
}

fn read(text: &str) -> Result<Kept, String> {
    let usual = Kept {
        keep: Duration::from_secs(7 * DAY),
        bytes: 256 << 20,
    };
    let none = Kept {
        keep: Duration::ZERO,
        bytes: 0,
    };
    match text {
        "" => return Ok(usual),
        "0" => return Ok(none),
        _ => {}
    }
    let wrong = || "expected an age and a size such as 7d,256M, one of them, or 0".to_owned();
    let mut kept = usual;
    for part in text.split(',').map(str::trim) {
        if let Ok(bytes) = size(part) {
            kept.bytes = bytes;
        } else {
            kept.keep = age(part).ok_or_else(wrong)?;
        }
    }
    if kept.keep.is_zero() || kept.bytes == 0 {
        return Ok(none);
    }
    if kept.bytes < BYTES_MIN {
        return Err("the least size is 64K; 0 keeps nothing".into());
    }
    Ok(kept)
}

/// A number of bytes with its unit: `K`, `M` or `G`.
fn size(text: &str) -> Result<u64, ()> {
    let (number, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or(())?;
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(()),
    };
    let number: u64 = number.parse().map_err(|_| ())?;
    number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes < 1 << 50)
        .ok_or(())
}

fn since(text: &str) -> Result<Duration, String> {
    age(text).ok_or_else(|| "expected an age such as 30m, 2h or 7d".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_an_age_and_a_size() {
        let read = |text: &str| kept(text).map(|kept| (kept.keep.as_secs(), kept.bytes));
        assert_eq!(read("7d,256M"), Ok((7 * DAY, 256 << 20)));
        assert_eq!(read("2h"), Ok((7_200, 256 << 20)));
        assert_eq!(read("1G, 30m"), Ok((1_800, 1 << 30)));
        for none in ["0", "0d", "0M", "7d,0K"] {
            assert_eq!(read(none), Ok((0, 0)), "{none}");
        }
        for wrong in [
            "7",
            "d",
            "-1d",
            "7d,",
            "1e3M",
            "4000d",
            "99999999999G",
            "7 d",
            "é",
        ] {
            assert!(read(wrong).unwrap_err().contains("7d,256M"), "{wrong}");
        }
        assert!(read("1K").unwrap_err().contains("64K"));
    }
}
