//! What goes to the terminal: results on stdout, everything else on stderr.

use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use comfy_table::{Table, presets};
use peerbus_adapter::Failure;
use peerbus_wire::{escape_json, printable};
use serde_json::Value;
use terminal_size::{Width, terminal_size_of};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Writes one line to stdout and flushes it. A terminal gets it at once: what goes to stderr meanwhile
/// stands before it or after it.
pub(crate) fn line(line: &str) -> Result<(), Failure> {
    Ok(text(&format!("{line}\n"))?)
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

/// Writes one line for a person to stderr. There is nobody to tell when that fails.
pub(crate) fn say(text: &str) {
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

/// Widest cell, and the narrowest that one is cut to, in columns of a terminal.
const CELL_MAX: usize = 40;
const CELL_MIN: usize = 3;

/// Writes a table to stdout, each row on a line. On a terminal that is too narrow for it the widest
/// cells are cut, those of the first column aside. The cells have been made safe.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<(), Failure> {
    let rows: Vec<[String; N]> = rows.into_iter().collect();
    let mut widths = header.map(str::width);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width().min(CELL_MAX));
        }
    }
    if let Some((Width(columns), _)) = terminal_size_of(io::stdout()) {
        // Each cell has a space on either side.
        let room = usize::from(columns).saturating_sub(2 * N);
        while widths.iter().sum::<usize>() > room
            && let Some(widest) = widths.iter_mut().skip(1).max()
            && *widest > CELL_MIN
        {
            *widest -= 1;
        }
    }
    let fit = |row: [&str; N]| {
        let mut widths = widths.iter();
        row.map(|cell| cut(cell, *widths.next().unwrap_or(&CELL_MAX)))
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(fit(header));
    for row in &rows {
        table.add_row(fit(row.each_ref().map(String::as_str)));
    }
    line(&table.trim_fmt())
}

/// A text, cut to so many columns.
fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut room = columns.saturating_sub(1);
    let fits = |c: &char| match room.checked_sub(c.width().unwrap_or(0)) {
        Some(less) => {
            room = less;
            true
        }
        None => false,
    };
    text.chars().take_while(fits).chain(['…']).collect()
}
