//! Codex' TOML, changed by small edits as JSON is.

use std::ops::Range;

use serde_json::Value;
use toml_edit::{Document, Item, TableLike};

use super::draft::Draft;
use super::json::{Flaw, Node, Splice, Style};

/// The table of servers, and ours in it.
const SERVERS: &str = "mcp_servers";
const OURS: &str = "peerbus";

fn parse(text: &str) -> Result<Document<&str>, Flaw> {
    Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Flaw::new(at, error.message().to_owned())
    })
}

/// Puts the server in, or brings the one that is there up to date.
pub(crate) fn set(draft: &mut Draft, entry: &Node) -> Result<(), Flaw> {
    let Node::Table(members) = entry else {
        return Ok(());
    };
    let text = draft.text.clone();
    let document = parse(&text)?;
    refuse_inline(&document)?;
    let servers = document.get(SERVERS);
    if servers.and_then(|servers| servers.get(OURS)).is_none() {
        append(draft, members);
        // What is read back must be what was meant.
        return parse(&draft.text).map(|_| ());
    }
    for (name, node) in members.iter().rev() {
        set_member(draft, &[name], node)?;
    }
    Ok(())
}

/// Refuses servers that all stand in one value.
fn refuse_inline(document: &Document<&str>) -> Result<(), Flaw> {
    let inline = document.get(SERVERS).filter(|servers| !servers.is_table());
    inline.map_or(Ok(()), |servers| {
        let at = servers.span().map_or(0, |span| span.start);
        let what = format!("{SERVERS} is written inline: make it tables such as [{SERVERS}.NAME]");
        Err(Flaw::new(at, what))
    })
}

/// Where our server stands.
pub(crate) fn place(text: &str) -> usize {
    let document = parse(text);
    let ours = document
        .as_ref()
        .ok()
        .and_then(|document| document.get(SERVERS)?.get(OURS)?.span());
    ours.map_or(0, |span| span.start)
}

fn append(draft: &mut Draft, members: &[(String, Node)]) {
    let newline = Style::of(&draft.text).newline;
    let mut text = String::new();
    if !draft.text.is_empty() {
        let ended = draft.text.ends_with('\n');
        text.push_str(if ended { "" } else { newline });
        text.push_str(newline);
    }
    text.push_str(&format!("[{SERVERS}.{OURS}]{newline}"));
    for (name, node) in members {
        text.push_str(&format!("{name} = {}{newline}", value(node)));
    }
    let end = draft.text.len();
    draft.apply(Splice {
        range: end..end,
        text,
    });
}

fn set_member(draft: &mut Draft, path: &[&str], node: &Node) -> Result<(), Flaw> {
    let text = draft.text.clone();
    let document = parse(&text)?;
    let Some(table) = document.get(SERVERS).and_then(|servers| servers.get(OURS)) else {
        return Ok(());
    };
    let Some((name, around)) = path.split_last() else {
        return Ok(());
    };
    let around = around.iter().try_fold(table, |item, name| item.get(name));
    let Some(around) = around else {
        return Ok(());
    };
    match (around.get(name), node) {
        (Some(item), Node::Table(members)) if item.is_table_like() => {
            for (name, member) in members {
                set_member(draft, &[path, &[name]].concat(), member)?;
            }
        }
        (Some(item), _) => {
            let Some(node) = &with_those_there(name, node, item) else {
                return Ok(());
            };
            let (wanted, found) = (node.plain(), plain(item));
            let suits = match (&wanted, &found) {
                (Value::Array(wanted), Value::Array(found)) => found.starts_with(wanted),
                _ => wanted == found,
            };
            if let Some(range) = item.span().filter(|_| !suits) {
                let text = value(node);
                draft.apply(Splice { range, text });
            }
        }
        (None, _) => {
            let line = format!("{name} = {}", value(node));
            draft.apply(into_table(&text, around, &line)?);
        }
    }
    Ok(())
}

/// Of variables to hand on, those that are named already come first, whoever named them. `None`:
/// they are named in a way that stays as it is.
fn with_those_there(name: &str, wanted: &Node, item: &Item) -> Option<Node> {
    let (Node::List(all), Value::Array(found), "env_vars") = (wanted, plain(item), name) else {
        return Some(wanted.clone());
    };
    let mut list = Vec::new();
    for name in &found {
        list.push(Node::text(name.as_str()?));
    }
    let missing = all.iter().filter(|one| !found.contains(&one.plain()));
    list.extend(missing.cloned());
    Some(Node::List(list))
}

/// Puts `key = value` into a table: below its header, or behind its opening brace.
fn into_table(text: &str, table: &Item, line: &str) -> Result<Splice, Flaw> {
    let span = table.span().unwrap_or_default();
    if let Some(inline) = table.as_inline_table() {
        let comma = if inline.is_empty() { " " } else { "," };
        let at = span.start + 1;
        return Ok(Splice {
            range: at..at,
            text: format!(" {line}{comma}"),
        });
    }
    if !text[span.clone()].starts_with('[') {
        let what = format!("[{SERVERS}.{OURS}] is written with dotted keys: write it as a table");
        return Err(Flaw::new(span.start, what));
    }
    let end = text[span.end..]
        .find('\n')
        .map_or(text.len(), |at| span.end + at);
    let at = text[..end].trim_end_matches('\r').len();
    Ok(Splice {
        range: at..at,
        text: format!("{}{line}", Style::of(text).newline),
    })
}

/// Takes the server out.
pub(crate) fn unset(draft: &mut Draft) -> Result<(), Flaw> {
    let text = draft.text.clone();
    let document = parse(&text)?;
    let Some(ours) = document.get(SERVERS).and_then(|servers| servers.get(OURS)) else {
        return Ok(());
    };
    refuse_inline(&document)?;
    let mut sections = Vec::new();
    match ours.as_table().is_some_and(|table| !table.is_dotted()) {
        true => collect(ours, &text, &mut sections),
        false => lines(ours, &text, &mut sections),
    }
    sections.sort_by_key(|section| std::cmp::Reverse(section.start));
    for section in sections {
        let range = with_lines(&draft.text, section);
        draft.apply(Splice {
            range,
            text: String::new(),
        });
    }
    Ok(())
}

/// The lines of a value with its key, or of each value below a dotted key.
fn lines(item: &Item, text: &str, sections: &mut Vec<Range<usize>>) {
    if let Some(table) = item.as_table() {
        for (_, inner) in table.iter() {
            lines(inner, text, sections);
        }
    } else if let Some(span) = item.span() {
        let start = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
        sections.push(start..span.end);
    }
}

/// From a table's header to its last value, and the same of the tables in it.
fn collect(item: &Item, text: &str, sections: &mut Vec<Range<usize>>) {
    let Some(table) = item.as_table() else {
        return;
    };
    let header = item
        .span()
        .filter(|span| text[span.clone()].starts_with('['));
    if let Some(header) = header {
        let end = end_of_values(table, header.end);
        sections.push(header.start..end);
    }
    for (_, inner) in table.iter() {
        collect(inner, text, sections);
    }
}

fn end_of_values(table: &dyn TableLike, from: usize) -> usize {
    let ends = table.iter().filter_map(|(_, item)| match item {
        Item::Value(value) => match value.as_inline_table().filter(|table| table.is_dotted()) {
            Some(dotted) => Some(end_of_values(dotted, from)),
            None => value.span().map(|span| span.end),
        },
        Item::Table(table) if table.is_dotted() => Some(end_of_values(table, from)),
        _ => None,
    });
    ends.max().unwrap_or(from).max(from)
}

/// The lines that a range touches, and the blank line above them if that would be left over.
fn with_lines(text: &str, range: Range<usize>) -> Range<usize> {
    let end = text[range.end..]
        .find('\n')
        .map_or(text.len(), |at| range.end + at + 1);
    let blank_below = text[end..].is_empty() || text[end..].starts_with(['\n', '\r']);
    let above = &text[..range.start];
    let without = above
        .strip_suffix("\r\n")
        .or_else(|| above.strip_suffix('\n'));
    let blank_above = without.is_some_and(|above| above.is_empty() || above.ends_with('\n'));
    let start = match without {
        Some(above) if blank_below && blank_above => above.len(),
        _ => range.start,
    };
    start..end
}

/// A value in TOML. Strings are escaped as in JSON, which TOML's basic strings take.
fn value(node: &Node) -> String {
    match node {
        Node::List(items) => {
            let items: Vec<_> = items.iter().map(value).collect();
            format!("[{}]", items.join(", "))
        }
        Node::Table(members) => {
            let members: Vec<_> = members
                .iter()
                .map(|(name, node)| format!("{name} = {}", value(node)))
                .collect();
            format!("{{ {} }}", members.join(", "))
        }
        Node::Text(text) => Value::from(text.as_str())
            .to_string()
            .replace('\u{7f}', "\\u007f"),
        Node::Flag(_) | Node::Number(_) => node.plain().to_string(),
    }
}

/// What was read, as JSON for comparing.
pub(crate) fn plain(item: &Item) -> Value {
    if let Some(table) = item.as_table_like() {
        let members = table
            .iter()
            .map(|(name, item)| (name.to_owned(), plain(item)));
        return Value::Object(members.collect());
    }
    if let Some(tables) = item.as_array_of_tables() {
        let tables = tables
            .iter()
            .map(|table| plain(&Item::Table(table.clone())));
        return tables.collect();
    }
    item.as_value().map_or(Value::Null, plain_value)
}

fn plain_value(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::String(text) => Value::from(text.value().as_str()),
        Toml::Integer(number) => Value::from(*number.value()),
        Toml::Boolean(flag) => Value::from(*flag.value()),
        Toml::Array(items) => items.iter().map(plain_value).collect(),
        Toml::InlineTable(table) => {
            let members = table
                .iter()
                .map(|(name, value)| (name.to_owned(), plain_value(value)));
            Value::Object(members.collect())
        }
        Toml::Float(float) => Value::from(*float.value()),
        Toml::Datetime(datetime) => Value::from(datetime.value().to_string()),
    }
}

/// A whole document as JSON.
pub(crate) fn document(text: &str) -> Result<Value, Flaw> {
    Ok(plain(parse(text)?.as_item()))
}
