//! Edits of TOML that keep its comments and its layout.

use similar::{ChangeTag, TextDiff};
use toml_edit::{Array, Document, DocumentMut, InlineTable, Item, Table, TableLike};

use super::value::{ParseError, Value, suits};

/// The member with the variables that are handed on: others' may stand among them.
const HANDED_ON: &str = "env_vars";

pub(crate) fn read(text: &str) -> Result<serde_json::Value, ParseError> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        ParseError::new(text, at, error.message())
    })
}

/// Puts servers into a table of servers, or brings those that are there up to date.
pub(crate) fn set(
    text: &str,
    table: &str,
    entries: &[(String, Value)],
) -> Result<String, ParseError> {
    let found = read(text)?;
    edit(text, table, |servers, _| {
        for (name, entry) in entries {
            if let Value::Object(members) = entry {
                put(servers, name, &found[table][name], members);
            }
        }
    })
}

fn put(servers: &mut Table, name: &str, found: &serde_json::Value, members: &[(String, Value)]) {
    match servers.get_mut(name) {
        Some(ours) => {
            if let Some(ours) = ours.as_table_like_mut() {
                update(ours, found, members);
            }
        }
        None => {
            let mut ours = Table::new();
            for (name, value) in members {
                ours.insert(name, Item::Value(written(value)));
            }
            servers.insert(name, Item::Table(ours));
        }
    }
}

fn update(table: &mut dyn TableLike, found: &serde_json::Value, members: &[(String, Value)]) {
    for (name, wanted) in members {
        let found = &found[name];
        let Some(item) = table.get_mut(name) else {
            table.insert(name, Item::Value(written(wanted)));
            continue;
        };
        match (wanted, item) {
            (Value::Array(wanted), Item::Value(toml_edit::Value::Array(list)))
                if name == HANDED_ON =>
            {
                for value in wanted.iter().map(written) {
                    let same = |one: &toml_edit::Value| one.as_str() == value.as_str();
                    if !list.iter().any(same) {
                        list.push(value);
                    }
                }
            }
            (Value::Object(members), item) if item.is_table_like() => {
                if let Some(inner) = item.as_table_like_mut() {
                    update(inner, found, members);
                }
            }
            (wanted, _) if suits(wanted, found) => {}
            (wanted, Item::Value(value)) => {
                let decor = value.decor().clone();
                *value = written(wanted);
                *value.decor_mut() = decor;
            }
            (wanted, item) => *item = Item::Value(written(wanted)),
        }
    }
}

/// Takes servers out. A comment above one stays, at the end of the file.
pub(crate) fn unset(text: &str, table: &str, names: &[String]) -> Result<String, ParseError> {
    edit(text, table, |servers, trailing| {
        for name in names.iter().rev() {
            if let Some(Item::Table(ours)) = servers.remove(name) {
                let above = ours.decor().prefix().and_then(|text| text.as_str());
                if let Some(above) = above.filter(|above| above.contains('#')) {
                    *trailing = format!("{above}{trailing}");
                }
            }
        }
    })
}

/// Changes the table of servers, and what stands at the end of the file.
fn edit(
    text: &str,
    table: &str,
    change: impl FnOnce(&mut Table, &mut String),
) -> Result<String, ParseError> {
    // The document writes line feeds alone.
    let lines = text.replace("\r\n", "\n");
    check_table(&lines, table)?;
    let mut document: DocumentMut = lines.parse().map_err(|error: toml_edit::TomlError| {
        let at = error.span().map_or(0, |span| span.start);
        ParseError::new(&lines, at, error.message())
    })?;
    let mut trailing = document.trailing().as_str().unwrap_or_default().to_owned();
    let mut implicit = Table::new();
    implicit.set_implicit(true);
    let servers = document.entry(table).or_insert(Item::Table(implicit));
    if let Some(servers) = servers.as_table_mut() {
        change(servers, &mut trailing);
    }
    document.set_trailing(trailing);
    Ok(with_line_ends(text, &lines, &document.to_string()))
}

/// Ends each line that did not change as it ended in `original`, and others as its first line.
fn with_line_ends(original: &str, before: &str, after: &str) -> String {
    let originals: Vec<_> = original.split_inclusive('\n').collect();
    let crlf = originals.first().is_some_and(|line| line.ends_with("\r\n"));
    let diff = TextDiff::from_lines(before, after);
    let kept = diff
        .iter_all_changes()
        .filter(|change| change.tag() != ChangeTag::Delete);
    let ended = kept.map(
        |change| match change.old_index().and_then(|at| originals.get(at)) {
            Some(line) => (*line).to_owned(),
            None if crlf => change.value().replace('\n', "\r\n"),
            None => change.value().to_owned(),
        },
    );
    ended.collect()
}

/// Refuses servers that all stand in one value.
fn check_table(text: &str, table: &str) -> Result<(), ParseError> {
    let Ok(document) = Document::parse(text) else {
        return Ok(());
    };
    let inline = document.get(table).filter(|servers| !servers.is_table());
    inline.map_or(Ok(()), |servers| {
        let at = servers.span().map_or(0, |span| span.start);
        let what = format!("{table} is written inline: make it tables such as [{table}.NAME]");
        Err(ParseError::new(text, at, what))
    })
}

pub(crate) fn wrong_server(text: &str, table: &str, name: &str, what: &str) -> ParseError {
    let document = Document::parse(text).ok();
    let server = document
        .as_ref()
        .and_then(|document| document.get(table)?.get(name));
    let at = server.and_then(Item::span).map_or(0, |span| span.start);
    ParseError::new(text, at, what)
}

fn written(value: &Value) -> toml_edit::Value {
    match value {
        Value::Null => String::new().into(),
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => number.parse::<i64>().unwrap_or_default().into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(written).collect::<Array>().into(),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| (name.as_str(), written(value)));
            members.collect::<InlineTable>().into()
        }
    }
}
