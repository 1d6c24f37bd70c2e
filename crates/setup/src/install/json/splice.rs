//! Where to put something into an object or an array, and what to take out.
//!
//! What is put in becomes the first child, so that only lines are added: as the last one it would
//! need a comma on the line before.

use std::ops::Range;

use jsonc_parser::ast::{Array, Object, Value};
use jsonc_parser::common::Ranged as _;

use super::Node;

/// One change: `text` in place of `range`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Splice {
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

impl Splice {
    fn delete(range: Range<usize>) -> Self {
        let text = String::new();
        Self { range, text }
    }
}

/// How a document is laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Style {
    /// `\n` or `\r\n`.
    pub(crate) newline: &'static str,
    /// One step of indentation.
    pub(crate) unit: String,
    /// Everything stands on one line.
    pub(crate) compact: bool,
}

impl Style {
    /// The layout of a text, or the usual one where it does not show.
    pub(crate) fn of(text: &str) -> Self {
        let newline = match text.find('\n') {
            Some(at) if text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        };
        let indent = text
            .lines()
            .map(indentation)
            .zip(text.lines())
            .find(|(indent, line)| !indent.is_empty() && line.trim_start().starts_with('"'))
            .map_or("  ", |(indent, _)| indent);
        let body = text.trim();
        Self {
            newline,
            unit: indent.to_owned(),
            compact: !body.contains('\n') && body.contains('"'),
        }
    }

    /// Items between brackets, each on a line of its own unless all is on one.
    pub(crate) fn enclose(
        &self,
        [open, close]: [&str; 2],
        items: impl Iterator<Item = String>,
        indent: &str,
    ) -> String {
        if self.compact {
            let items: Vec<_> = items.collect();
            return format!("{open}{}{close}", items.join(", "));
        }
        let (newline, unit) = (self.newline, &self.unit);
        let lines: Vec<_> = items
            .map(|item| format!("{newline}{indent}{unit}{item}"))
            .collect();
        format!("{open}{}{newline}{indent}{close}", lines.join(","))
    }
}

/// An object or an array as a list of children.
struct Container {
    /// Behind the opening bracket.
    open: usize,
    /// The closing bracket.
    close: usize,
    children: Vec<Range<usize>>,
}

impl Container {
    fn of_object(object: &Object<'_>) -> Self {
        let children = object.properties.iter().map(|prop| prop.range());
        Self::new(object.range(), children)
    }

    fn of_array(array: &Array<'_>) -> Self {
        Self::new(
            array.range(),
            array.elements.iter().map(|item| item.range()),
        )
    }

    fn new(
        range: jsonc_parser::common::Range,
        children: impl Iterator<Item = jsonc_parser::common::Range>,
    ) -> Self {
        Self {
            open: range.start + 1,
            close: range.end - 1,
            children: children.map(|child| child.start..child.end).collect(),
        }
    }
}

/// Puts a member into an object.
pub(crate) fn into_object(
    text: &str,
    object: &Object<'_>,
    name: &str,
    node: &Node,
    style: &Style,
) -> Splice {
    first_child(
        text,
        &Container::of_object(object),
        style,
        |style, indent| {
            let name = serde_json::Value::from(name);
            format!("{name}: {}", node.render(style, indent))
        },
    )
}

/// Puts an item into an array.
pub(crate) fn into_array(text: &str, array: &Array<'_>, node: &Node, style: &Style) -> Splice {
    first_child(text, &Container::of_array(array), style, |style, indent| {
        node.render(style, indent)
    })
}

fn first_child(
    text: &str,
    container: &Container,
    style: &Style,
    render: impl Fn(&Style, &str) -> String,
) -> Splice {
    let Container { open, close, .. } = *container;
    let until = container
        .children
        .first()
        .map_or(close, |child| child.start);
    let gap = &text[open..until];
    let comma = if container.children.is_empty() {
        ""
    } else {
        ","
    };
    let newline = style.newline;
    let (at, text) = match gap.find('\n') {
        Some(end) => {
            // Behind a comment that stands on the bracket's line; one that goes on below it stays
            // in one piece.
            let tail = gap[..end].trim_end_matches('\r');
            let at = open + if tail.contains("/*") { 0 } else { tail.len() };
            let indent = match container.children.first() {
                Some(child) => indentation(line_of(text, child.start)).to_owned(),
                None => format!("{}{}", indentation(line_of(text, close)), style.unit),
            };
            let child = render(style, &indent);
            (at, format!("{newline}{indent}{child}{comma}"))
        }
        None if style.compact || !container.children.is_empty() => {
            let blank = if gap.trim().is_empty() { gap } else { " " };
            let compact = Style {
                compact: true,
                ..style.clone()
            };
            (open, format!("{blank}{}{comma}", render(&compact, "")))
        }
        None => {
            let base = indentation(line_of(text, open));
            let indent = format!("{base}{}", style.unit);
            let child = render(style, &indent);
            (open, format!("{newline}{indent}{child}{newline}{base}"))
        }
    };
    Splice {
        range: at..at,
        text,
    }
}

/// Takes a child out of an object or an array, with its comma and the line that it leaves empty.
/// The splices stand in ascending order.
pub(crate) fn removal(text: &str, value: &Value<'_>, which: usize) -> Vec<Splice> {
    let container = match value {
        Value::Object(object) => Container::of_object(object),
        Value::Array(array) => Container::of_array(array),
        _ => return Vec::new(),
    };
    let Some(child) = container.children.get(which).cloned() else {
        return Vec::new();
    };
    let next = container.children.get(which + 1);
    let until = next.map_or(container.close, |next| next.start);
    let comma = find_comma(text, child.end..until);
    let (before, behind) = (
        &text[container.open..child.start],
        &text[child.end..container.close],
    );
    let only = container.children.len() == 1;
    if only
        && before.trim().is_empty()
        && behind.trim_matches([',', ' ', '\t', '\r', '\n']).is_empty()
    {
        return vec![Splice::delete(container.open..container.close)];
    }
    if let (None, Some(previous)) = (&comma, which.checked_sub(1)) {
        // The last one takes the comma before it along.
        let end = container.children[previous].end;
        if let Some(comma) = find_comma(text, end..child.start) {
            if text[comma + 1..child.start].trim().is_empty() {
                return vec![Splice::delete(comma..child.end)];
            }
            let child = Splice::delete(whole_line(text, child));
            return vec![Splice::delete(comma..comma + 1), child];
        }
    }
    let end = comma.map_or(child.end, |comma| comma + 1);
    vec![Splice::delete(whole_line(text, child.start..end))]
}

/// A range, with the blank before it if it ends its line, else with the blank behind it: what
/// follows must not come to stand behind a comment.
fn whole_line(text: &str, range: Range<usize>) -> Range<usize> {
    let behind = &text[range.end..];
    let rest = behind.split('\n').next().unwrap_or_default();
    if rest.trim().is_empty() {
        return text[..range.start].trim_end().len()..range.end;
    }
    let blank = rest.len() - rest.trim_start().len();
    range.start..range.end + blank
}

/// The first comma in a range that holds nothing but blank, comments and commas.
fn find_comma(text: &str, range: Range<usize>) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = range.start;
    while at < range.end {
        match bytes[at] {
            b',' => return Some(at),
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += text[at..range.end].find('\n')?;
            }
            b'/' => at += text[at..range.end].find("*/")? + 1,
            _ => {}
        }
        at += 1;
    }
    None
}

/// The blank that a line starts with.
fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The line that a byte stands on, from its start.
fn line_of(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    &text[start..]
}
