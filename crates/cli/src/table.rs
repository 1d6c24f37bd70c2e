//! Tables for people, and texts that are wrapped: as wide as the terminal, whole in a pipe.

use peerbus_adapter::Failure;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::output;

/// Narrowest cell that one is cut to, in columns of a terminal.
const CELL_MIN: usize = 8;
/// Between two cells.
const GAP: usize = 2;
/// Before what continues a line.
const INDENT: &str = "    ";

/// A column of a table.
pub(crate) struct Column {
    head: &'static str,
    /// 0: always there, and whole. The others stand in what room is left, the least first.
    rank: u8,
}

impl Column {
    /// A column that is always there, and whole.
    pub(crate) const fn whole(head: &'static str) -> Self {
        Self { head, rank: 0 }
    }

    /// A column that is there if those of lower ranks leave room for it.
    pub(crate) const fn ranked(rank: u8, head: &'static str) -> Self {
        Self { head, rank }
    }
}

/// Writes a table to stdout, each row on a line; all of it in a pipe, or if it is to be `wide`. The cells
/// have been made safe.
pub(crate) fn write<const N: usize>(
    columns: &[Column; N],
    rows: impl IntoIterator<Item = [String; N]>,
    wide: bool,
) -> Result<(), Failure> {
    let rows: Vec<[String; N]> = rows.into_iter().collect();
    let room = output::columns().filter(|_| !wide);
    output::line(&lines(columns, &rows, room.unwrap_or(usize::MAX)).join("\n"))
}

fn lines<const N: usize>(columns: &[Column; N], rows: &[[String; N]], room: usize) -> Vec<String> {
    let natural: [usize; N] = std::array::from_fn(|at| {
        let cells = rows.iter().map(|row| row[at].width());
        cells.max().unwrap_or(0).max(columns[at].head.width())
    });
    let Some(widths) = fit(columns, &natural, room) else {
        return rows
            .iter()
            .flat_map(|row| block(columns, row, room))
            .collect();
    };
    let heads = columns.each_ref().map(|column| column.head.to_owned());
    let line = |row: &[String; N], marks: bool| {
        let mut line = String::new();
        let mut pad = 0;
        for (cell, width) in row.iter().zip(&widths) {
            let Some(width) = width else { continue };
            let cell = cut(cell, *width);
            line.push_str(&" ".repeat(pad));
            pad = width - cell.width() + GAP;
            line.push_str(&if marks { output::marked(&cell) } else { cell });
        }
        line.trim_end().to_owned()
    };
    let head = std::iter::once(line(&heads, false));
    head.chain(rows.iter().map(|row| line(row, true))).collect()
}

/// How wide each column is; `None` for one that has no room. `None` altogether where those that must be
/// whole have none.
fn fit<const N: usize>(
    columns: &[Column; N],
    natural: &[usize; N],
    room: usize,
) -> Option<[Option<usize>; N]> {
    let mut widths = [None; N];
    let mut left = room.saturating_add(GAP);
    let mut ranked: Vec<usize> = (0..N).collect();
    ranked.sort_by_key(|at| columns[*at].rank);
    for at in ranked {
        let whole = natural[at].saturating_add(GAP);
        let width = if whole <= left {
            natural[at]
        } else if columns[at].rank == 0 {
            return None;
        } else if left >= CELL_MIN + GAP {
            left - GAP
        } else {
            continue;
        };
        left -= width + GAP;
        widths[at] = Some(width);
    }
    Some(widths)
}

/// A row where no line holds what must be whole: its cells below each other.
fn block<const N: usize>(columns: &[Column; N], row: &[String; N], room: usize) -> Vec<String> {
    let whole = columns
        .iter()
        .zip(row)
        .filter(|(column, _)| column.rank == 0);
    let mut lines = Vec::new();
    for (at, (column, cell)) in whole.filter(|(_, cell)| !cell.is_empty()).enumerate() {
        let head = match at {
            0 => String::new(),
            _ => format!("{INDENT}{}", column.head.to_lowercase()),
        };
        lines.extend(wrap(&head, cell, room));
    }
    lines
}

/// The text behind the head, on as many lines as it takes, each within so many columns. What continues is
/// indented: nothing in a text begins a line.
pub(crate) fn wrap(head: &str, text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![head.to_owned()];
    let mut begun = head.is_empty();
    for (at, paragraph) in text.replace('\t', INDENT).split('\n').enumerate() {
        if at > 0 {
            lines.push(INDENT.to_owned());
            begun = true;
        }
        for word in paragraph.split(' ') {
            let mut rest = word;
            let space = |begun: bool| usize::from(!begun);
            loop {
                let line = lines.last().map_or(0, |line| line.width());
                let room = columns.saturating_sub(line + space(begun));
                let fits = prefix(rest, room);
                let fresh = lines.last().is_some_and(|line| line == INDENT) || line == 0;
                if let Some(last) = lines.last_mut()
                    && (fits == rest.len() || fresh)
                {
                    // At least one character, however narrow it is.
                    let fits = match fits {
                        0 => rest.chars().next().map_or(0, char::len_utf8),
                        fits => fits,
                    };
                    last.push_str(if begun { "" } else { " " });
                    last.push_str(&rest[..fits]);
                    rest = &rest[fits..];
                    begun = false;
                    if rest.is_empty() {
                        break;
                    }
                }
                lines.push(INDENT.to_owned());
                begun = true;
            }
        }
    }
    lines
}

/// So many bytes of a text stand in so many columns.
fn prefix(text: &str, columns: usize) -> usize {
    let mut room = columns;
    let fits = |(_, c): &(usize, char)| {
        // The selector makes the symbol before it wide.
        let width = if *c == '\u{fe0f}' {
            1
        } else {
            c.width().unwrap_or(0)
        };
        let left = room.checked_sub(width);
        room = left.unwrap_or(room);
        left.is_some()
    };
    let last = text.char_indices().take_while(fits).last();
    last.map_or(0, |(at, c)| at + c.len_utf8())
}

/// A text, cut to so many columns.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    match text.width() <= columns {
        true => text.to_owned(),
        false => format!("{}…", &text[..prefix(text, columns.saturating_sub(1))]),
    }
}
