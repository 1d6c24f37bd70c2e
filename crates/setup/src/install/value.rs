//! Values to write, and where a text cannot be edited.

pub(crate) use jsonc_parser::cst::CstInputValue as Value;
use peerbus_agents::{Fixed, ServerEntry};

pub(crate) fn texts(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| Value::from(*text)).collect())
}

pub(crate) fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.map(|(name, value)| (name.to_owned(), value)).into())
}

/// A value that every entry of an agent has.
pub(crate) fn fixed(fixed: &Fixed) -> Value {
    match fixed {
        Fixed::Text(text) => Value::from(*text),
        Fixed::Flag(flag) => Value::from(*flag),
        Fixed::Texts(all) => texts(all),
    }
}

/// The members of an entry that runs the program with arguments.
pub(crate) fn members(
    server: &ServerEntry,
    command: &str,
    arguments: &[&str],
) -> Vec<(String, Value)> {
    let mut members: Vec<_> = server.before.iter().map(member).collect();
    if server.one_list {
        let words = [&[command], arguments].concat();
        members.push(("command".to_owned(), texts(&words)));
    } else {
        members.push(("command".to_owned(), Value::from(command)));
        members.push(("args".to_owned(), texts(arguments)));
    }
    members.extend(server.after.iter().map(member));
    members
}

pub(crate) fn member((name, value): &(&str, Fixed)) -> (String, Value) {
    ((*name).to_owned(), fixed(value))
}

pub(crate) fn plain(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => serde_json::from_str(number).unwrap_or_default(),
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| (name.clone(), plain(value)));
            serde_json::Value::Object(members.collect())
        }
    }
}

/// Whether a value that is there does what is wanted: of a list the start has to be right.
pub(crate) fn suits(wanted: &Value, found: &serde_json::Value) -> bool {
    match (plain(wanted), found) {
        (serde_json::Value::Array(wanted), serde_json::Value::Array(found)) => {
            found.starts_with(&wanted)
        }
        (wanted, found) => wanted == *found,
    }
}

/// Why a text cannot be edited, and where: `line 3, column 7: what`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub(crate) struct ParseError {
    line: usize,
    column: usize,
    /// A sentence without a full stop.
    what: String,
}

impl ParseError {
    /// An error at a byte of a text.
    pub(crate) fn new(text: &str, at: usize, what: impl Into<String>) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            what: what.into(),
        }
    }
}
