//! Setting and unsetting members of a JSON document.

use jsonc_parser::ast::Value as Ast;
use serde_json::Value;

use super::draft::Draft;
use super::json::{self, Flaw, Node, Splice, Style};

/// Sets the value at a path of members. What is missing is made; of an object that is there only
/// the members that differ are changed, and others stay; a list that starts as it should stays.
pub(crate) fn set(draft: &mut Draft, path: &[&str], node: &Node) -> Result<(), Flaw> {
    let style = Style::of(&draft.text);
    let text = draft.text.clone();
    let Some(root) = json::parse(&text)? else {
        append_document(draft, &node.clone().nested(path), &style);
        made(draft, path, 0);
        return Ok(());
    };
    let mut value = &root;
    for (depth, name) in path.iter().enumerate() {
        let whole = path[..depth].join(".");
        let object = json::object(value, if depth == 0 { "the file" } else { &whole })?;
        let Some(inner) = json::member(object, name) else {
            let rest = node.clone().nested(&path[depth + 1..]);
            draft.apply(json::into_object(&text, object, name, &rest, &style));
            made(draft, path, depth);
            return Ok(());
        };
        value = inner;
    }
    match node {
        Node::Table(members) if value.as_object().is_some() => {
            // The first one is put in last and comes to stand first.
            for (name, member) in members.iter().rev() {
                set(draft, &[path, &[name]].concat(), member)?;
            }
        }
        _ if suits(node, value) => {}
        _ => replace(draft, value, node, &style),
    }
    Ok(())
}

/// Whether a value that is there does what is wanted.
fn suits(wanted: &Node, found: &Ast<'_>) -> bool {
    let (wanted, found) = (wanted.plain(), json::plain(found));
    match (&wanted, &found) {
        (Value::Array(wanted), Value::Array(found)) => found.starts_with(wanted),
        _ => wanted == found,
    }
}

fn replace(draft: &mut Draft, value: &Ast<'_>, node: &Node, style: &Style) {
    let range = json::range(value);
    let line = draft.text[..range.start].rfind('\n').map_or(0, |at| at + 1);
    let line = &draft.text[line..];
    let indent = line[..line.len() - line.trim_start().len()].to_owned();
    let text = node.render(style, &indent);
    draft.apply(Splice { range, text });
}

fn append_document(draft: &mut Draft, node: &Node, style: &Style) {
    let newline = style.newline;
    let before = match draft.text.as_str() {
        text if text.is_empty() || text.ends_with('\n') => "",
        _ => newline,
    };
    let text = format!("{before}{}{newline}", node.render(style, ""));
    let end = draft.text.len();
    draft.apply(Splice {
        range: end..end,
        text,
    });
}

/// Remembers which containers were made.
fn made(draft: &mut Draft, path: &[&str], from: usize) {
    for depth in from..path.len() {
        draft.made.insert(path[..=depth].join("/"));
    }
}

/// Takes out the member at a path, and the objects around it that this leaves empty, if `droppable`
/// says so of their path.
pub(crate) fn unset(
    draft: &mut Draft,
    path: &[&str],
    droppable: &dyn Fn(&str) -> bool,
) -> Result<(), Flaw> {
    let text = draft.text.clone();
    let Some(root) = json::parse(&text)? else {
        return Ok(());
    };
    let Some((name, around)) = path.split_last() else {
        return Ok(());
    };
    let Some(value) = json::at(&root, around) else {
        return Ok(());
    };
    let Some(object) = value.as_object() else {
        return Ok(());
    };
    let named = |prop: &jsonc_parser::ast::ObjectProp<'_>| prop.name.as_str() == *name;
    let Some(which) = object.properties.iter().rposition(named) else {
        return Ok(());
    };
    take(draft, json::removal(&text, value, which));
    if object.properties.len() == 1 && !around.is_empty() && droppable(&around.join("/")) {
        return unset(draft, around, droppable);
    }
    // A name that stands there twice.
    unset(draft, path, droppable)
}

/// Applies removals, the last one first.
pub(crate) fn take(draft: &mut Draft, removals: Vec<Splice>) {
    for splice in removals.into_iter().rev() {
        draft.apply(splice);
    }
}
