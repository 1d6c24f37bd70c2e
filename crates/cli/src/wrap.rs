//! Texts on lines of so many columns.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Before what continues a line.
pub(crate) const INDENT: &str = "    ";

/// The text behind the head, on as many lines as it takes, each within so many columns. What continues is
/// indented: nothing in a text begins a line.
pub(crate) fn wrap(head: &str, text: &str, columns: usize) -> Vec<String> {
    let mut lines = match head.width() > columns {
        true => fold(head, columns).split('\n').map(str::to_owned).collect(),
        false => vec![head.to_owned()],
    };
    let mut begun = head.is_empty();
    for (at, paragraph) in text.replace('\t', INDENT).split('\n').enumerate() {
        if at > 0 {
            lines.push(INDENT.to_owned());
            begun = true;
        }
        flow(&mut lines, begun, INDENT, paragraph, columns);
        begun = false;
    }
    lines
}

/// Each line of a text of ours within so many columns. What continues one is indented further than it is:
/// nothing that it quotes reads like a line of ours.
pub(crate) fn fold(text: &str, columns: usize) -> String {
    let mut lines = Vec::new();
    for line in text.replace('\t', INDENT).split('\n') {
        let words = line.trim_start_matches(' ');
        let own = (line.len() - words.len()).min(columns / 2);
        lines.push(line[..own].to_owned());
        let indent = format!("{}{INDENT}", &line[..own]);
        flow(&mut lines, true, &indent, &line[own..], columns);
    }
    let lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n")
}

/// Adds words to the last of these lines, and to more behind such an indent. `begun`: nothing stands in
/// that line, but for what indents it.
fn flow(lines: &mut Vec<String>, mut begun: bool, indent: &str, words: &str, columns: usize) {
    for word in words.split(' ') {
        let mut rest = word;
        loop {
            let space = usize::from(!begun);
            let line = lines.last().map_or(0, |line| line.width());
            let room = columns.checked_sub(line + space);
            if word.is_empty() && room.is_none() {
                break;
            }
            let fits = prefix(rest, room.unwrap_or(0));
            let blank = || lines.last().is_some_and(|line| line.trim().is_empty());
            let fresh = begun || fits > 0 && blank();
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
            lines.push(indent.to_owned());
            begun = true;
        }
    }
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
