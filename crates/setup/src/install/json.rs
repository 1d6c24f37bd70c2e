//! Edits of JSON that keep its comments and its layout. A new member stands last.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstNode, CstObject, CstObjectProp, CstRootNode};

use super::value::{ParseError, Value, suits};

/// JSON, comments, and trailing commas.
const OPTIONS: ParseOptions = ParseOptions {
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

/// A document that is an object, or nothing yet.
pub(crate) struct Document<'t> {
    text: &'t str,
    root: CstRootNode,
    /// The outermost object.
    pub(crate) top: CstObject,
}

impl<'t> Document<'t> {
    /// Parses a text. One without a value gets an object.
    pub(crate) fn parse(text: &'t str) -> Result<Self, ParseError> {
        let root = CstRootNode::parse(text, &OPTIONS).map_err(|error| {
            let what = error.kind().to_string().to_lowercase();
            ParseError::new(text, error.range().start, what)
        })?;
        let Some(top) = root.object_value_or_create() else {
            let at = root.value().map_or(0, |value| place(&value));
            return Err(ParseError::new(text, at, "the file is not an object"));
        };
        Ok(Self { text, root, top })
    }

    /// What is in it, for comparing.
    pub(crate) fn plain(&self) -> serde_json::Value {
        self.top.to_serde_value().unwrap_or_default()
    }

    /// The text now. One that stood on one line still does.
    pub(crate) fn edited(&self) -> String {
        let edited = self.root.to_string();
        let body = self.text.trim_end();
        if body.contains(['\n', '\r']) || !body.contains('"') {
            return edited;
        }
        let joined: String = edited.trim_end().lines().map(str::trim_start).collect();
        let joined = joined + &self.text[body.len()..];
        // Not so if a comment that ran to the end of its line has swallowed something.
        let same = Document::parse(&joined).is_ok_and(|joined| joined.plain() == self.plain());
        if same { joined } else { edited }
    }

    /// The object of this name in another one, made if it is missing.
    pub(crate) fn object(&self, parent: &CstObject, name: &str) -> Result<CstObject, ParseError> {
        let Some(found) = member(parent, name) else {
            return Ok(parent.object_value_or_set(name));
        };
        let object = found.object_value();
        object.ok_or_else(|| self.wrong(&found, &format!("{name} is not an object")))
    }

    /// The array of this name in an object, made if it is missing. `whole` is its name for people.
    pub(crate) fn array(
        &self,
        parent: &CstObject,
        name: &str,
        whole: &str,
    ) -> Result<CstArray, ParseError> {
        let Some(found) = member(parent, name) else {
            return Ok(parent.array_value_or_set(name));
        };
        let array = found.array_value();
        array.ok_or_else(|| self.wrong(&found, &format!("{whole} is not an array")))
    }

    fn wrong(&self, member: &CstObjectProp, what: &str) -> ParseError {
        let at = member.value().map_or(0, |value| place(&value));
        ParseError::new(self.text, at, what)
    }

    pub(crate) fn wrong_server(&self, table: &str, name: &str, what: &str) -> ParseError {
        let servers = member(&self.top, table).and_then(|servers| servers.object_value());
        match servers.and_then(|servers| member(&servers, name)) {
            Some(server) => self.wrong(&server, what),
            None => ParseError::new(self.text, 0, what),
        }
    }
}

/// Puts servers into a table of servers, or brings those that are there up to date.
pub(crate) fn set(
    text: &str,
    table: &str,
    entries: &[(String, Value)],
) -> Result<String, ParseError> {
    let document = Document::parse(text)?;
    let servers = document.object(&document.top, table)?;
    for (name, entry) in entries {
        set_member(&servers, name, entry);
    }
    Ok(document.edited())
}

/// Sets a member. Of an object that is there only the members that differ are changed, and others
/// stay.
pub(crate) fn set_member(object: &CstObject, name: &str, wanted: &Value) {
    let Some(there) = member(object, name) else {
        object.append(name, wanted.clone());
        return;
    };
    if let (Value::Object(members), Some(inner)) = (wanted, there.object_value()) {
        for (name, wanted) in members {
            set_member(&inner, name, wanted);
        }
        return;
    }
    let found = there.value().and_then(|value| value.to_serde_value());
    if !found.is_some_and(|found| suits(wanted, &found)) {
        there.set_value(wanted.clone());
    }
}

/// Takes servers out, and their table if that is left empty and may go.
pub(crate) fn unset(
    text: &str,
    table: &str,
    names: &[String],
    may_go: bool,
) -> Result<String, ParseError> {
    let document = Document::parse(text)?;
    if let Some(servers) = member(&document.top, table)
        && let Some(all) = servers.object_value()
    {
        let ours = |member: &CstObjectProp| {
            let name = member.decoded_name();
            name.is_some_and(|name| names.contains(&name))
        };
        for server in all.properties().into_iter().filter(ours) {
            server.remove();
        }
        if may_go && all.properties().is_empty() {
            servers.remove();
        }
    }
    Ok(document.edited())
}

/// A member of an object. Of a name that stands there twice the last one counts, as for agents.
pub(crate) fn member(object: &CstObject, name: &str) -> Option<CstObjectProp> {
    let mut all = object.properties().into_iter().rev();
    all.find(|member| member.decoded_name().as_deref() == Some(name))
}

/// The byte of the text at which a value starts.
fn place(value: &CstNode) -> usize {
    let before = |node: &CstNode| -> usize {
        let siblings = node.previous_siblings();
        siblings.map(|sibling| sibling.to_string().len()).sum()
    };
    let above = value.ancestors().map(CstNode::from);
    before(value) + above.map(|node| before(&node)).sum::<usize>()
}
