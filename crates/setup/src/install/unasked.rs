//! The permission in Claude Code's settings with which it calls the bus tools without asking.

use jsonc_parser::cst::{CstNode, CstObject};
use peerbus_agents::claude_code::UNASKED;
use serde_json::Value as Json;

use super::json::{self, Document};
use super::value::ParseError;

const CONTAINER: &str = "permissions";
const LIST: &str = "allow";

pub(super) fn set(document: &Document<'_>) -> Result<(), ParseError> {
    let permissions = document.object(&document.top, CONTAINER)?;
    let list = document.array(&permissions, LIST, "permissions.allow")?;
    if !list.elements().iter().any(is_ours) {
        list.append(UNASKED.into());
    }
    Ok(())
}

/// Takes it out, with the containers that this leaves empty if `may_go` says so of their path.
pub(super) fn unset(document: &Document<'_>, may_go: impl Fn(&str) -> bool) {
    let Some(permissions) = json::member(&document.top, CONTAINER) else {
        return;
    };
    let inner: Option<CstObject> = permissions.object_value();
    let member = inner.as_ref().and_then(|inner| json::member(inner, LIST));
    let Some((member, list)) =
        member.and_then(|member| Some((member.clone(), member.array_value()?)))
    else {
        return;
    };
    let ours: Vec<_> = list.elements().into_iter().filter(is_ours).collect();
    if ours.is_empty() {
        return;
    }
    ours.into_iter().for_each(CstNode::remove);
    if list.elements().is_empty() && may_go("permissions/allow") {
        member.remove();
    }
    if inner.is_some_and(|inner| inner.properties().is_empty()) && may_go(CONTAINER) {
        permissions.remove();
    }
}

fn is_ours(rule: &CstNode) -> bool {
    let text = rule
        .as_string_lit()
        .and_then(|text| text.decoded_value().ok());
    text.is_some_and(|text| text == UNASKED)
}

pub(crate) fn allows(settings: &Json, rule: &str) -> bool {
    let list = settings
        .get(CONTAINER)
        .and_then(|inner| inner.get(LIST)?.as_array());
    list.is_some_and(|rules| rules.iter().any(|found| found == rule))
}

/// Takes it out of plain JSON, and containers that are empty.
pub(super) fn strip(settings: &mut Json) {
    let Some(settings) = settings.as_object_mut() else {
        return;
    };
    let Some(permissions) = settings.get_mut(CONTAINER).and_then(Json::as_object_mut) else {
        return;
    };
    if let Some(rules) = permissions.get_mut(LIST).and_then(Json::as_array_mut) {
        rules.retain(|rule| rule != UNASKED);
        if rules.is_empty() {
            permissions.remove(LIST);
        }
    }
    if permissions.is_empty() {
        settings.remove(CONTAINER);
    }
}
