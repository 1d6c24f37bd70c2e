//! The hooks in Claude Code's settings.

use jsonc_parser::ast::Value as Ast;
use serde_json::Value;

use super::draft::Draft;
use super::json::{self, Flaw, Node, Style};
use super::program::is_peerbus;
use super::{edit, words};

/// More rounds than any file needs.
const ROUNDS_MAX: usize = 1_000;

/// A hook to be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hook {
    pub(crate) event: &'static str,
    /// The whole command line.
    pub(crate) command: String,
    pub(crate) rewake: bool,
    pub(crate) timeout_s: u32,
}

impl Hook {
    fn node(&self) -> Node {
        let mut members = vec![
            ("type".to_owned(), Node::text("command")),
            ("command".to_owned(), Node::text(&self.command)),
        ];
        if self.rewake {
            members.push(("asyncRewake".to_owned(), Node::Flag(true)));
        }
        members.push(("timeout".to_owned(), Node::Number(self.timeout_s)));
        Node::Table(members)
    }
}

/// What follows `peerbus` in a hook's command line, if it is one of ours: `hook`, `hook wait`, and
/// nothing else. What does more, or anything in another way, is its writer's.
pub(crate) fn ours(command: &str) -> Option<String> {
    let (program, rest) = parts(command)?;
    let what = rest.join(" ");
    let known = matches!(what.as_str(), "hook" | "hook wait") && rest.len() <= 2;
    (known && is_peerbus(&program)).then_some(what)
}

/// The program that a command line starts.
pub(crate) fn program(command: &str) -> Option<String> {
    parts(command).map(|(program, _)| program)
}

fn parts(command: &str) -> Option<(String, Vec<String>)> {
    let mut words = words::split(command)?;
    (!words.is_empty()).then(|| (words.remove(0), words))
}

/// A hook of ours that stands in a file.
struct Standing {
    event: String,
    group: usize,
    index: usize,
    what: String,
}

/// Every hook of ours in the document.
fn standing(root: &Ast<'_>) -> Vec<Standing> {
    let mut found = Vec::new();
    let events = json::at(root, &["hooks"]).and_then(Ast::as_object);
    for event in events.iter().flat_map(|events| &events.properties) {
        let groups = event.value.as_array();
        for (group, value) in groups.iter().flat_map(|g| g.elements.iter().enumerate()) {
            for (index, hook) in hooks_of(value).iter().enumerate() {
                let command = json::at(hook, &["command"]).and_then(Ast::as_string_lit);
                if let Some(what) = command.and_then(|command| ours(&command.value)) {
                    found.push(Standing {
                        event: event.name.as_str().to_owned(),
                        group,
                        index,
                        what,
                    });
                }
            }
        }
    }
    found
}

fn hooks_of<'v, 'a>(group: &'v Ast<'a>) -> &'v [Ast<'a>] {
    json::at(group, &["hooks"])
        .and_then(Ast::as_array)
        .map_or(&[], |hooks| &hooks.elements)
}

/// Makes the hooks of ours exactly these; hooks of others stay.
pub(crate) fn set(draft: &mut Draft, hooks: &[Hook]) -> Result<(), Flaw> {
    let mut events: Vec<&str> = hooks.iter().map(|hook| hook.event).collect();
    events.dedup();
    let text = draft.text.clone();
    let there = match json::parse(&text)? {
        Some(root) => json::at(&root, &["hooks"]).is_some(),
        None => false,
    };
    if !there {
        let members = events.iter().map(|event| {
            let list = Node::List(vec![group(of_event(hooks, event))]);
            ((*event).to_owned(), list)
        });
        edit::set(draft, &["hooks"], &Node::Table(members.collect()))?;
        let lists = events.iter().map(|event| format!("hooks/{event}"));
        draft.made.extend(lists);
        return Ok(());
    }
    let unwanted = |found: &Standing| {
        !hooks.iter().any(|hook| {
            hook.event == found.event && ours(&hook.command).as_ref() == Some(&found.what)
        })
    };
    remove_where(draft, &unwanted, &|_| true)?;
    // The first one is put in last and comes to stand first.
    for event in events.iter().rev() {
        set_event(draft, event, &of_event(hooks, event))?;
    }
    Ok(())
}

fn of_event<'h>(hooks: &'h [Hook], event: &str) -> Vec<&'h Hook> {
    hooks.iter().filter(|hook| hook.event == event).collect()
}

fn group(hooks: Vec<&Hook>) -> Node {
    let list = Node::List(hooks.into_iter().map(Hook::node).collect());
    Node::table([("hooks", list)])
}

fn set_event(draft: &mut Draft, event: &str, hooks: &[&Hook]) -> Result<(), Flaw> {
    let mut missing = Vec::new();
    for hook in hooks {
        if !update(draft, hook)? {
            missing.push(*hook);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let text = draft.text.clone();
    let style = Style::of(&text);
    let root = json::parse(&text)?;
    let list = root
        .as_ref()
        .and_then(|root| json::at(root, &["hooks", event]));
    match list {
        Some(list) => {
            let array = json::array(list, &format!("hooks.{event}"))?;
            draft.apply(json::into_array(&text, array, &group(missing), &style));
            Ok(())
        }
        None => edit::set(draft, &["hooks", event], &Node::List(vec![group(missing)])),
    }
}

/// Brings a hook that is there up to date. `false`: there is none. A second one of the same kind
/// is taken out.
fn update(draft: &mut Draft, hook: &Hook) -> Result<bool, Flaw> {
    let what = ours(&hook.command);
    let same = |found: &Standing| found.event == hook.event && Some(&found.what) == what.as_ref();
    for _ in 0..ROUNDS_MAX {
        let text = draft.text.clone();
        let Some(root) = json::parse(&text)? else {
            return Ok(false);
        };
        let mut found = standing(&root).into_iter().filter(same);
        let Some(first) = found.next() else {
            return Ok(false);
        };
        if let Some(second) = found.next() {
            remove(draft, &root, &second);
            continue;
        }
        let Some(value) = locate(&root, &first) else {
            return Ok(false);
        };
        let Node::Table(members) = hook.node() else {
            return Ok(true);
        };
        let wrong = members
            .into_iter()
            .find(|(name, node)| json::at(value, &[name]).map(json::plain) != Some(node.plain()));
        let Some((name, node)) = wrong else {
            return Ok(true);
        };
        let style = Style::of(&text);
        match json::at(value, &[&name]) {
            Some(old) => draft.apply(json::Splice {
                range: json::range(old),
                text: node.plain().to_string(),
            }),
            None => {
                let object = json::object(value, "a hook")?;
                draft.apply(json::into_object(&text, object, &name, &node, &style));
            }
        }
    }
    Ok(true)
}

fn locate<'v, 'a>(root: &'v Ast<'a>, found: &Standing) -> Option<&'v Ast<'a>> {
    let groups = json::at(root, &["hooks", &found.event])?.as_array()?;
    hooks_of(groups.elements.get(found.group)?).get(found.index)
}

/// Takes one out, with its group if that has no other.
fn remove(draft: &mut Draft, root: &Ast<'_>, found: &Standing) {
    let Some(list) = json::at(root, &["hooks", &found.event]) else {
        return;
    };
    let Some(group) = list
        .as_array()
        .and_then(|groups| groups.elements.get(found.group))
    else {
        return;
    };
    let removals = match json::at(group, &["hooks"]) {
        Some(hooks) if hooks_of(group).len() > 1 => json::removal(&draft.text, hooks, found.index),
        _ => json::removal(&draft.text, list, found.group),
    };
    edit::take(draft, removals);
}

/// Takes out every hook of ours, and the lists that this leaves empty if `droppable` says so.
pub(crate) fn unset(draft: &mut Draft, droppable: &dyn Fn(&str) -> bool) -> Result<(), Flaw> {
    remove_where(draft, &|_| true, droppable)
}

fn remove_where(
    draft: &mut Draft,
    unwanted: &dyn Fn(&Standing) -> bool,
    droppable: &dyn Fn(&str) -> bool,
) -> Result<(), Flaw> {
    for _ in 0..ROUNDS_MAX {
        let text = draft.text.clone();
        let Some(root) = json::parse(&text)? else {
            return Ok(());
        };
        let Some(found) = standing(&root).into_iter().find(unwanted) else {
            return Ok(());
        };
        remove(draft, &root, &found);
        drop_if_empty(draft, &found.event, droppable)?;
    }
    Ok(())
}

fn drop_if_empty(
    draft: &mut Draft,
    event: &str,
    droppable: &dyn Fn(&str) -> bool,
) -> Result<(), Flaw> {
    let text = draft.text.clone();
    let Some(root) = json::parse(&text)? else {
        return Ok(());
    };
    let list = json::at(&root, &["hooks", event]).and_then(Ast::as_array);
    let empty = list.is_some_and(|list| list.elements.is_empty());
    if empty && droppable(&format!("hooks/{event}")) {
        edit::unset(draft, &["hooks", event], droppable)?;
    }
    Ok(())
}

/// Every hook of ours in plain JSON: event and command line.
pub(crate) fn commands(settings: &Value) -> Vec<(String, String)> {
    let mut all = every(settings);
    all.retain(|(_, command)| ours(command).is_some());
    all
}

/// Every hook that calls peerbus and is not ours.
pub(crate) fn strangers(settings: &Value) -> Vec<(String, String)> {
    let mut all = every(settings);
    all.retain(|(_, command)| {
        command.contains("peerbus") && command.contains("hook") && ours(command).is_none()
    });
    all
}

fn every(settings: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let events = settings.get("hooks").and_then(Value::as_object);
    for (event, groups) in events.into_iter().flatten() {
        let groups = groups.as_array().into_iter().flatten();
        let hooks = groups.filter_map(|group| group.get("hooks")?.as_array());
        for hook in hooks.flatten() {
            if let Some(command) = hook.get("command").and_then(Value::as_str) {
                found.push((event.clone(), command.to_owned()));
            }
        }
    }
    found
}

/// Takes the hooks of ours out of plain JSON, with what that leaves empty.
pub(crate) fn strip(settings: &mut Value) {
    let Some(events) = settings.get_mut("hooks").and_then(Value::as_object_mut) else {
        return;
    };
    for groups in events.values_mut() {
        let Some(groups) = groups.as_array_mut() else {
            continue;
        };
        groups.retain_mut(|group| {
            let hooks = group.get_mut("hooks").and_then(Value::as_array_mut);
            hooks.is_none_or(|hooks| {
                let before = hooks.len();
                hooks.retain(|hook| {
                    let command = hook.get("command").and_then(Value::as_str);
                    command.and_then(ours).is_none()
                });
                hooks.len() == before || !hooks.is_empty()
            })
        });
    }
    events.retain(|_, groups| !groups.as_array().is_some_and(Vec::is_empty));
}
