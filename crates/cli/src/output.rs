//! What goes to the terminal: results on stdout, everything else on stderr.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use peerbus_adapter::Failure;
use peerbus_wire::{escape_json, printable};
use serde_json::Value;
use terminal_size::{Width, terminal_size_of};

use crate::wrap::fold;

/// Writes one line to stdout and flushes it. A terminal gets it at once: what goes to stderr meanwhile
/// stands before it or after it.
pub(crate) fn line(line: &str) -> Result<(), Failure> {
    Ok(text(&format!("{line}\n"))?)
}

/// Writes a text for people to stdout, as [`line`] does: each line of it wrapped to the terminal, and as it
/// is where there is none.
pub(crate) fn wrapped(text: &str) -> Result<(), Failure> {
    line(&fitted(text))
}

/// A text for people, each line of it wrapped to the terminal that stdout is.
pub(crate) fn fitted(text: &str) -> Cow<'_, str> {
    fit(text, io::stdout())
}

fn fit(text: &str, to: impl AsFd) -> Cow<'_, str> {
    match terminal_size_of(to) {
        Some((Width(columns), _)) => fold(text, columns.into()).into(),
        None => text.into(),
    }
}

/// Writes a line of JSON, in which nothing is left that a terminal would obey.
pub(crate) fn json(value: &Value) -> Result<(), Failure> {
    line(&escape_json(&value.to_string()))
}

/// As [`line`], while the runtime goes on: a reader that does not read keeps no signal waiting.
pub(crate) async fn line_aside(text: String) -> Result<(), Failure> {
    let written = tokio::task::spawn_blocking(move || line(&text)).await;
    written.unwrap_or_else(|error| Err(io::Error::other(error).into()))
}

/// Writes text as it is to stdout and flushes it.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes one line for a person to stderr, wrapped to the terminal that it is. There is nobody to tell when
/// that fails.
pub(crate) fn say(text: &str) {
    let text = fit(text, io::stderr());
    peerbus_adapter::stderr::write(format!("{text}\n").as_bytes());
}

/// Says on stderr what went wrong.
pub(crate) fn complain(why: &str) {
    say(&format!("peerbus: {why}"));
}

/// Says on stderr how a verb failed, and gives the exit code.
pub(crate) fn report(failure: Failure) -> i32 {
    let (code, why) = match failure {
        Failure::Failed(why) => (1, why),
        Failure::Config(why) => (2, why),
        Failure::OutputClosed => return 0,
    };
    complain(&why);
    code
}

/// After so long without a word a person wonders.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// Whether a person reads what goes to stderr.
pub(crate) fn is_read() -> bool {
    io::stderr().is_terminal()
}

/// Does something that may take long, and says what it is, to a person, when it does.
pub(crate) fn patiently<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !is_read() {
        return work();
    }
    let (working, over) = sync_channel::<()>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if over.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
                say(&format!("{what} …"));
            }
        });
        let done = work();
        drop(working);
        done
    })
}

/// What others wrote, harmless and indented: no line of it looks like one of ours.
pub(crate) fn indented(text: &str) -> String {
    format!("    {}", printable(text).replace('\n', "\n    "))
}

/// `1 message`, `2 messages`.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// So many columns has the terminal that stdout is; `None`: it is none.
pub(crate) fn columns() -> Option<usize> {
    terminal_size_of(io::stdout()).map(|(Width(columns), _)| usize::from(columns))
}

/// A word or a line, in colour where it is its reader's to act on, and colours are wanted: on a terminal,
/// as `NO_COLOR` and `CLICOLOR_FORCE` say.
pub(crate) fn marked(text: &str) -> String {
    const YOURS: [&str; 6] = [
        "waits",
        "waiting",
        "waiting_approval",
        "stuck",
        "held",
        "failed",
    ];
    let says = |name: &str| std::env::var(name).is_ok_and(|it| !it.is_empty() && it != "0");
    let wanted = !std::env::var("NO_COLOR").is_ok_and(|it| !it.is_empty())
        && (says("CLICOLOR_FORCE") || io::stdout().is_terminal());
    let first = text.split([' ', ',', ':']).next().unwrap_or_default();
    match wanted && YOURS.contains(&first) {
        true => format!("\u{1b}[1;31m{text}\u{1b}[0m"),
        false => text.to_owned(),
    }
}
