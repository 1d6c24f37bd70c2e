//! Tables for people: as wide as the terminal, whole in a pipe.

use peerbus_adapter::Failure;
use unicode_width::UnicodeWidthStr as _;

use crate::output;
use crate::wrap::{INDENT, cut, wrap};

/// Narrowest cell that one is cut to, in columns of a terminal.
const CELL_MIN: usize = 8;
/// As wide a column may be of what peers say of themselves, while others want room.
const SAID_MAX: usize = 24;
/// Longest name that keeps its column on a narrow terminal.
const USUAL_MAX: usize = 32;
/// Between two cells.
const GAP: usize = 2;

/// A column of a table.
pub(crate) struct Column {
    head: &'static str,
    /// 0: always there, and whole. The others stand in what room is left, the least first.
    rank: u8,
    /// So wide while others want room.
    most: usize,
    /// A cell that is far wider than others stands on a line of its own.
    apart: bool,
}

impl Column {
    /// A column that is always there, and whole.
    pub(crate) const fn whole(head: &'static str) -> Self {
        Self::ranked(0, head)
    }

    /// The same for names: the long ones of a few take no room from the others' rows.
    pub(crate) const fn names(head: &'static str) -> Self {
        Self {
            apart: true,
            ..Self::whole(head)
        }
    }

    /// A column that is there if those of lower ranks leave room for it.
    pub(crate) const fn ranked(rank: u8, head: &'static str) -> Self {
        Self {
            head,
            rank,
            most: usize::MAX,
            apart: false,
        }
    }

    /// The same for what peers say of themselves: however long, it hides no other column.
    pub(crate) const fn said(rank: u8, head: &'static str) -> Self {
        Self {
            most: SAID_MAX,
            ..Self::ranked(rank, head)
        }
    }
}

/// The columns of what lists peers and sessions: one word for one thing, wherever it stands.
pub(crate) const NAME: Column = Column::names("NAME");
pub(crate) const STATE: Column = Column::whole("STATE");
pub(crate) const UNSEEN: Column = Column::whole("UNSEEN");
pub(crate) const OWES: Column = Column::whole("OWES");
pub(crate) const PROJECT: Column = Column::said(1, "PROJECT");
pub(crate) const CLIENT: Column = Column::said(2, "CLIENT");
pub(crate) const BRANCH: Column = Column::said(3, "BRANCH");

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
    let all = natural.iter().map(|width| width + GAP).sum::<usize>();
    let natural = match all > room.saturating_add(GAP) {
        true => narrowed(columns, rows, natural, room),
        false => natural,
    };
    let Some(widths) = fit(columns, &natural, room) else {
        return rows
            .iter()
            .flat_map(|row| block(columns, row, room))
            .collect();
    };
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
    let mut lines = vec![line(
        &columns.each_ref().map(|it| it.head.to_owned()),
        false,
    )];
    for row in rows {
        let mut row = row.clone();
        let mut below = Vec::new();
        for (at, column) in columns.iter().enumerate().filter(|(_, it)| it.apart) {
            if row[at].width() <= natural[at] {
                continue;
            }
            let cell = std::mem::take(&mut row[at]);
            match at {
                0 => lines.extend(wrap("", &cell, room)),
                _ => {
                    let head = format!("{INDENT}{}", column.head.to_lowercase());
                    below.extend(wrap(&head, &cell, room));
                }
            }
        }
        lines.push(line(&row, true));
        lines.extend(below);
    }
    lines
}

/// The widths of columns without the names of a few that are far wider than the others.
fn narrowed<const N: usize>(
    columns: &[Column; N],
    rows: &[[String; N]],
    mut natural: [usize; N],
    room: usize,
) -> [usize; N] {
    let most = (room / 3).max(USUAL_MAX);
    for (at, column) in columns.iter().enumerate().filter(|(_, it)| it.apart) {
        let cells = rows.iter().map(|row| row[at].width());
        let others: Vec<_> = cells.filter(|width| *width <= most).collect();
        if others.len() * 2 >= rows.len() {
            let widest = others.into_iter().max().unwrap_or(0);
            natural[at] = widest.max(column.head.width());
        }
    }
    natural
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
    for &at in &ranked {
        let wanted = natural[at].min(columns[at].most);
        let width = if wanted.saturating_add(GAP) <= left {
            wanted
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
    for at in ranked {
        if let Some(width) = &mut widths[at] {
            let more = (natural[at] - *width).min(left);
            *width += more;
            left -= more;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 5] = [NAME, STATE, PROJECT, CLIENT, Column::ranked(4, "PROCESS")];

    fn table(said: &str, room: usize) -> Vec<String> {
        let row = ["bob", "idle", said, said, "4711"].map(str::to_owned);
        lines(&COLUMNS, &[row], room)
    }

    #[test]
    fn what_one_says_of_itself_hides_no_other_column() {
        let wide = "w".repeat(160);
        let [head, row] = &table(&wide, 80)[..] else {
            panic!("a head and a row");
        };
        let heads: Vec<_> = head.split_whitespace().collect();
        assert_eq!(heads, ["NAME", "STATE", "PROJECT", "CLIENT", "PROCESS"]);
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!((cells[0], cells[1], cells[4]), ("bob", "idle", "4711"));
        assert_eq!(row.width(), 80 - "PROCESS".len() + "4711".len());
        let [_, row] = &table(&wide, usize::MAX)[..] else {
            panic!("a head and a row");
        };
        assert_eq!(row.matches(&wide).count(), 2, "whole in a pipe: {row}");
    }

    #[test]
    fn a_long_name_takes_no_room_from_the_rows_of_others() {
        let long = "n".repeat(62);
        let row = |name: &str| [name, "idle", "shop", "codex", "4711"].map(str::to_owned);
        let rows = ["ann", &long, "bob"].map(row);
        for room in [60, 80] {
            let told = lines(&COLUMNS, &rows, room).join("\n");
            let table = format!(
                "NAME  STATE  PROJECT  CLIENT  PROCESS\n\
                 ann   idle   shop     codex   4711\n\
                 {long}\n      idle   shop     codex   4711\n\
                 bob   idle   shop     codex   4711"
            );
            // The longest is folded where it is wider than all there is.
            let whole = told.replace(&format!("{}\n    nn", "n".repeat(60)), &long);
            assert_eq!(whole, table, "{room}");
        }
        let told = lines(&COLUMNS, &rows, 100);
        assert_eq!(told.len(), 4, "there is room for all");
        let behind = [
            Column::whole("ID"),
            Column::names("PEER"),
            Column::ranked(1, "SAYS"),
        ];
        let rows = [["1", "ann", "hello"], ["2", &long, "hello"]];
        let told = lines(&behind, &rows.map(|row| row.map(str::to_owned)), 72);
        let below = format!("    peer {long}");
        let table = [
            "ID  PEER  SAYS",
            "1   ann   hello",
            "2         hello",
            &below,
        ];
        assert_eq!(told, table);
    }

    #[test]
    fn room_that_nobody_wants_goes_to_what_was_cut() {
        let said = "s".repeat(SAID_MAX + 1);
        let [_, row] = &table(&said, 80)[..] else {
            panic!("a head and a row");
        };
        assert_eq!(row.matches(&said).count(), 2, "{row}");
    }
}
