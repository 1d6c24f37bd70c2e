//! The hooks in Claude Code's settings.

use std::collections::BTreeSet;

use jsonc_parser::cst::{CstArray, CstNode, CstObject, CstObjectProp};
use peerbus_agents::claude_code;
use serde_json::Value as Json;

use super::json::{self, Document};
use super::program::is_peerbus;
use super::value::{ParseError, Value, object};
use super::{unasked, words};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hook {
    pub(crate) event: &'static str,
    /// The whole command line.
    pub(crate) command: String,
    pub(crate) rewake: bool,
    pub(crate) timeout_s: u32,
}

impl Hook {
    fn value(&self) -> Value {
        let mut members = vec![
            ("type".to_owned(), "command".into()),
            ("command".to_owned(), self.command.as_str().into()),
        ];
        if self.rewake {
            members.push(("asyncRewake".to_owned(), true.into()));
        }
        members.push(("timeout".to_owned(), self.timeout_s.into()));
        Value::Object(members)
    }

    fn is(&self, event: &str, what: &str) -> bool {
        self.event == event && ours(&self.command).as_deref() == Some(what)
    }
}

/// What follows `peerbus` in a hook's command line, if it is one of ours: `hook`, `hook wait`, and
/// nothing else. A line that does more, or anything in another way, is its writer's.
pub(crate) fn ours(command: &str) -> Option<String> {
    let (program, rest) = parts(command)?;
    let what = rest.join(" ");
    let known = matches!(what.as_str(), "hook" | "hook wait") && rest.len() <= 2;
    (known && is_peerbus(&program)).then_some(what)
}

pub(crate) fn program(command: &str) -> Option<String> {
    parts(command).map(|(program, _)| program)
}

fn parts(command: &str) -> Option<(String, Vec<String>)> {
    let mut words = words::split(unguarded(command))?;
    (!words.is_empty()).then(|| (words.remove(0), words))
}

/// What is run when the program is there.
fn unguarded(command: &str) -> &str {
    let [before, between @ ..] = claude_code::IF_THERE;
    let guarded = command.strip_prefix(before).unwrap_or_default();
    let mut found = between.iter().filter_map(|between| {
        let (program, run) = guarded.split_once(between)?;
        let same = run.strip_prefix(program)?.starts_with(' ');
        same.then_some(run)
    });
    found.next().unwrap_or(command)
}

/// A hook of ours that stands in a file, and what it stands in.
struct InstalledHook {
    event: CstObjectProp,
    event_name: String,
    groups: CstArray,
    group: CstNode,
    hooks: CstArray,
    hook: CstObject,
    what: String,
}

impl InstalledHook {
    /// Takes it out, with its group if that has no other, and with the list of its event if that is
    /// left empty and `may_go` says so of the event.
    fn remove(self, may_go: impl Fn(&str) -> bool) {
        match self.hooks.elements().len() {
            0 | 1 => self.group.remove(),
            _ => self.hook.remove(),
        }
        if self.groups.elements().is_empty() && may_go(&self.event_name) {
            self.event.remove();
        }
    }
}

/// Every hook of ours among the events.
fn installed(events: &CstObject) -> Vec<InstalledHook> {
    let mut found = Vec::new();
    for event in events.properties() {
        let Some(groups) = event.array_value() else {
            continue;
        };
        for group in groups.elements() {
            let hooks = group
                .as_object()
                .and_then(|group| json::member(&group, "hooks"));
            let Some(hooks) = hooks.and_then(|hooks| hooks.array_value()) else {
                continue;
            };
            for hook in hooks.elements().iter().filter_map(CstNode::as_object) {
                if let Some(what) = command(&hook).and_then(|command| ours(&command)) {
                    found.push(InstalledHook {
                        event: event.clone(),
                        event_name: event.decoded_name().unwrap_or_default(),
                        groups: groups.clone(),
                        group: group.clone(),
                        hooks: hooks.clone(),
                        hook,
                        what,
                    });
                }
            }
        }
    }
    found
}

fn command(hook: &CstObject) -> Option<String> {
    let command = json::member(hook, "command")?.value()?.as_string_lit()?;
    command.decoded_value().ok()
}

/// Makes the hooks of ours exactly these; hooks of others stay. With `unasked` the tools may be
/// called without asking.
pub(crate) fn set(text: &str, hooks: &[Hook], unasked: bool) -> Result<String, ParseError> {
    let document = Document::parse(text)?;
    let events = document.object(&document.top, "hooks")?;
    let mut there = BTreeSet::new();
    for found in installed(&events) {
        let wanted = hooks
            .iter()
            .position(|hook| hook.is(&found.event_name, &found.what));
        match wanted.filter(|wanted| there.insert(*wanted)) {
            Some(wanted) => {
                if let Value::Object(members) = hooks[wanted].value() {
                    for (name, value) in &members {
                        json::set_member(&found.hook, name, value);
                    }
                }
            }
            None => found.remove(|_| true),
        }
    }
    let missing = hooks.iter().enumerate();
    let missing = missing.filter(|(at, _)| !there.contains(at));
    let missing: Vec<_> = missing.map(|(_, hook)| hook).collect();
    for hooks in missing.chunk_by(|one, other| one.event == other.event) {
        let event = hooks[0].event;
        let groups = document.array(&events, event, &format!("hooks.{event}"))?;
        let hooks = hooks.iter().map(|hook| hook.value()).collect();
        groups.append(object([("hooks", Value::Array(hooks))]));
    }
    if unasked {
        unasked::set(&document)?;
    }
    Ok(document.edited())
}

/// Takes out every hook of ours and the permission, and the containers that this leaves empty if
/// `may_go` says so of their path: `hooks`, `hooks/EVENT`.
pub(crate) fn unset(text: &str, may_go: impl Fn(&str) -> bool) -> Result<String, ParseError> {
    let document = Document::parse(text)?;
    if let Some(member) = json::member(&document.top, "hooks")
        && let Some(events) = member.object_value()
    {
        for hook in installed(&events) {
            hook.remove(|event| may_go(&format!("hooks/{event}")));
        }
        if events.properties().is_empty() && may_go("hooks") {
            member.remove();
        }
    }
    unasked::unset(&document, may_go);
    Ok(document.edited())
}

/// Every hook of ours in plain JSON: event and command line.
pub(crate) fn commands(settings: &Json) -> Vec<(String, String)> {
    let mut all = every(settings);
    all.retain(|(_, command)| ours(command).is_some());
    all
}

/// Every hook that calls peerbus and is not ours.
pub(crate) fn strangers(settings: &Json) -> Vec<(String, String)> {
    let mut all = every(settings);
    all.retain(|(_, command)| {
        command.contains("peerbus") && command.contains("hook") && ours(command).is_none()
    });
    all
}

fn every(settings: &Json) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let events = settings.get("hooks").and_then(Json::as_object);
    for (event, groups) in events.into_iter().flatten() {
        let groups = groups.as_array().into_iter().flatten();
        let hooks = groups.filter_map(|group| group.get("hooks")?.as_array());
        for hook in hooks.flatten() {
            if let Some(command) = hook.get("command").and_then(Json::as_str) {
                found.push((event.clone(), command.to_owned()));
            }
        }
    }
    found
}

/// Takes the hooks of ours out of plain JSON, with the containers that this leaves empty.
pub(crate) fn strip(settings: &mut Json) {
    let Some(events) = settings.get_mut("hooks").and_then(Json::as_object_mut) else {
        return;
    };
    for groups in events.values_mut() {
        let Some(groups) = groups.as_array_mut() else {
            continue;
        };
        groups.retain_mut(|group| {
            let hooks = group.get_mut("hooks").and_then(Json::as_array_mut);
            hooks.is_none_or(|hooks| {
                let before = hooks.len();
                hooks.retain(|hook| {
                    let command = hook.get("command").and_then(Json::as_str);
                    command.and_then(ours).is_none()
                });
                hooks.len() == before || !hooks.is_empty()
            })
        });
    }
    events.retain(|_, groups| !groups.as_array().is_some_and(Vec::is_empty));
}
