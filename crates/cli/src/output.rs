//! What goes to the terminal: results on stdout, everything else on stderr.

use std::io::{self, Write};

/// Writes one line to stdout and flushes it.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes text as it is to stdout and flushes it.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes one line for a person to stderr. There is nobody to tell when that fails.
pub(crate) fn say(text: &str) {
    crate::stderr::write(format!("{text}\n").as_bytes());
}

/// Says on stderr what went wrong.
pub(crate) fn complain(why: &str) {
    say(&format!("peerbus: {why}"));
}

/// `1 message`, `2 messages`.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}
