//! Values to write, and values as they were read.

use jsonc_parser::ast::Value as Ast;
use serde_json::{Map, Value};

use super::splice::Style;

/// A value to be written, its members in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Text(String),
    Flag(bool),
    Number(u32),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
}

impl Node {
    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A list of texts.
    pub(crate) fn texts(texts: &[&str]) -> Self {
        Self::List(texts.iter().copied().map(Self::text).collect())
    }

    /// An object.
    pub(crate) fn table<const N: usize>(members: [(&str, Node); N]) -> Self {
        let owned = members.map(|(name, node)| (name.to_owned(), node));
        Self::Table(owned.into())
    }

    /// Wraps a value in objects, one for each name.
    pub(crate) fn nested(self, names: &[&str]) -> Self {
        names.iter().rev().fold(self, |inner, name| {
            Self::Table(vec![((*name).to_owned(), inner)])
        })
    }

    /// As JSON for comparing.
    pub(crate) fn plain(&self) -> Value {
        match self {
            Self::Text(text) => Value::from(text.as_str()),
            Self::Flag(flag) => Value::from(*flag),
            Self::Number(number) => Value::from(*number),
            Self::List(items) => items.iter().map(Self::plain).collect(),
            Self::Table(members) => {
                let members = members.iter().map(|(k, v)| (k.clone(), v.plain()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// As text that starts on a line with indentation `indent`.
    pub(crate) fn render(&self, style: &Style, indent: &str) -> String {
        match self {
            Self::Table(members) if !members.is_empty() => {
                let members = members.iter().map(|(name, node)| {
                    let inner = format!("{indent}{}", style.unit);
                    format!(
                        "{}: {}",
                        Value::from(name.as_str()),
                        node.render(style, &inner)
                    )
                });
                style.enclose(["{", "}"], members, indent)
            }
            Self::List(items) if items.iter().any(|item| matches!(item, Self::Table(_))) => {
                let inner = format!("{indent}{}", style.unit);
                let items = items.iter().map(|item| item.render(style, &inner));
                style.enclose(["[", "]"], items, indent)
            }
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(|i| i.render(style, indent)).collect();
                format!("[{}]", items.join(", "))
            }
            _ => self.plain().to_string(),
        }
    }
}

/// What was read, as JSON for comparing. A name that stands there twice has its last value.
pub(crate) fn plain(value: &Ast<'_>) -> Value {
    match value {
        Ast::StringLit(text) => Value::from(text.value.as_ref()),
        // A number is compared as it is written.
        Ast::NumberLit(number) => number
            .value
            .parse::<u32>()
            .map_or_else(|_| Value::from(number.value), Value::from),
        Ast::BooleanLit(flag) => Value::from(flag.value),
        Ast::NullKeyword(_) => Value::Null,
        Ast::Array(array) => array.elements.iter().map(plain).collect(),
        Ast::Object(object) => {
            let members = object
                .properties
                .iter()
                .map(|prop| (prop.name.as_str().to_owned(), plain(&prop.value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}
