//! JSON with comments, changed by small edits: what is not ours stays byte for byte.
//!
//! A parser tells where each value stands in the text; the edits are splices of the text itself.

mod node;
mod splice;

use jsonc_parser::ast::{Array, Object, Value as Ast};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

pub(crate) use node::{Node, plain};
pub(crate) use splice::{Splice, Style, into_array, into_object, removal};

/// Why a text cannot be edited, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// Byte offset in the text.
    pub(crate) at: usize,
    /// A sentence without a full stop.
    pub(crate) what: String,
}

impl Flaw {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { at, what }
    }

    /// `line 3, column 7: what`.
    pub(crate) fn located(&self, text: &str) -> String {
        let before = text.get(..self.at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[start..].chars().count() + 1;
        format!("line {line}, column {column}: {}", self.what)
    }
}

/// Parses a text: JSON, comments, and trailing commas. `None`: there is no value in it.
pub(crate) fn parse(text: &str) -> Result<Option<Ast<'_>>, Flaw> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    match parse_to_ast(text, &CollectOptions::default(), &options) {
        Ok(parsed) => Ok(parsed.value),
        Err(error) => {
            let what = error.kind().to_string().to_lowercase();
            Err(Flaw::new(error.range().start, what))
        }
    }
}

/// The value of a member. Of a name that stands there twice the last one counts, as for clients.
pub(crate) fn member<'v, 'a>(object: &'v Object<'a>, name: &str) -> Option<&'v Ast<'a>> {
    let named = |prop: &&jsonc_parser::ast::ObjectProp<'_>| prop.name.as_str() == name;
    object
        .properties
        .iter()
        .rev()
        .find(named)
        .map(|prop| &prop.value)
}

/// The value at a path of members.
pub(crate) fn at<'v, 'a>(root: &'v Ast<'a>, path: &[&str]) -> Option<&'v Ast<'a>> {
    path.iter().try_fold(root, |value, name| {
        value.as_object().and_then(|object| member(object, name))
    })
}

/// The byte where a value starts.
pub(crate) fn start(value: &Ast<'_>) -> usize {
    range(value).start
}

/// Where a value stands.
pub(crate) fn range(value: &Ast<'_>) -> std::ops::Range<usize> {
    use jsonc_parser::common::Ranged as _;
    let range = value.range();
    range.start..range.end
}

/// An object, or the flaw that it is none.
pub(crate) fn object<'v, 'a>(value: &'v Ast<'a>, name: &str) -> Result<&'v Object<'a>, Flaw> {
    value
        .as_object()
        .ok_or_else(|| Flaw::new(start(value), format!("{name} is not an object")))
}

/// An array, or the flaw that it is none.
pub(crate) fn array<'v, 'a>(value: &'v Ast<'a>, name: &str) -> Result<&'v Array<'a>, Flaw> {
    value
        .as_array()
        .ok_or_else(|| Flaw::new(start(value), format!("{name} is not an array")))
}
