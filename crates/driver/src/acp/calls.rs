//! What was told of the calls of a session's tools. Pure.

use std::collections::{BTreeMap, VecDeque};

use peerbus_adapter::agents::Agent;
use serde_json::{Value, json};

use super::lines::LONG;
use super::permission::{CODEX, input, name_of_codex};

/// Calls of tools that are remembered: some agents ask by the id alone.
pub(super) const CALLS_MAX: usize = 256;
/// The bytes of all of them.
pub(super) const CALLS_BYTES: usize = 1 << 20;
/// The members of a call that are.
const MEMBERS: [&str; 8] = [
    "title", "name", "kind", "rawInput", "content", "_meta", "status", "cut",
];

/// The calls of a session's tools that were told of, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Calls(pub(super) VecDeque<Call>);

/// What was told of a call, as texts: values take many times as much.
#[derive(Debug, Default)]
pub(super) struct Call {
    id: String,
    pub(super) members: BTreeMap<&'static str, String>,
    pub(super) bytes: usize,
}

impl Call {
    fn note(&mut self, said: &Value) {
        // Copilot CLI tells of a call by its tool's name, and then asks by the tool's title.
        if !self.members.contains_key("told") && !said["title"].is_null() {
            let title = self.members.remove("title");
            self.members.extend(title.map(|title| ("told", title)));
        }
        for member in MEMBERS.into_iter().filter(|it| !said[*it].is_null()) {
            let text = said[member].to_string();
            self.bytes -= self.members.remove(member).map_or(0, |old| old.len());
            let (member, text) = match self.bytes + text.len() > LONG {
                true => ("cut", String::from("true")),
                false => (member, text),
            };
            self.bytes += text.len();
            let old = self.members.insert(member, text);
            self.bytes -= old.map_or(0, |old| old.len());
        }
    }

    fn value(&self) -> Value {
        let read = |text: &String| serde_json::from_str(text).unwrap_or_default();
        let members = self.members.iter();
        let members = members.map(|(name, text)| ((*name).to_owned(), read(text)));
        Value::Object(members.collect())
    }

    fn status(&self) -> &str {
        self.members.get("status").map_or("", String::as_str)
    }

    fn is_open(&self) -> bool {
        matches!(self.status(), "\"pending\"" | "\"in_progress\"")
    }

    fn is_over(&self) -> bool {
        matches!(self.status(), "\"completed\"" | "\"failed\"")
    }
}

impl Calls {
    /// Notes what an update says of a call.
    pub(crate) fn note(&mut self, update: &Value) {
        let Some(id) = update["toolCallId"].as_str() else {
            return;
        };
        let known = self.0.iter().position(|call| call.id == id);
        let known = known.and_then(|at| self.0.remove(at));
        // A call that begins has nothing of an earlier one under its id.
        let begins = update["sessionUpdate"] == "tool_call";
        let mut call = known.filter(|_| !begins).unwrap_or_else(|| Call {
            id: id.to_owned(),
            bytes: id.len(),
            ..Call::default()
        });
        call.note(update);
        self.0.push_back(call);
        let mut bytes: usize = self.0.iter().map(|call| call.bytes).sum();
        while bytes > CALLS_BYTES || self.0.len() > CALLS_MAX {
            bytes -= self.0.pop_front().map_or(bytes, |call| call.bytes);
        }
    }

    /// A turn has ended, and all calls with it. What the next one does under an old id is another call.
    pub(super) fn end(&mut self) {
        self.0.clear();
    }

    /// The calls that have not ended: what a question is about that names none, as OpenHands asks.
    pub(super) fn open(&self) -> Value {
        let open = self.0.iter().filter(|call| call.is_open()).map(Call::value);
        let told = |call: Value| json!({ "title": call["title"], "input": input(&call) });
        let open: Vec<_> = open.map(told).collect();
        if open.is_empty() {
            Value::Null
        } else {
            open.into()
        }
    }

    /// What is known of the call that a question is about.
    pub(crate) fn asked(&self, question: &Value, agent: &Agent) -> Value {
        let mut call = self.of(&question["toolCall"]);
        if agent.word == CODEX && question["_meta"]["is_mcp_tool_approval"] == true {
            name_of_codex(&mut call);
        }
        call
    }

    /// What the question says goes before.
    pub(super) fn of(&self, asked: &Value) -> Value {
        // A call that is over asks nothing: another one has its id.
        let mut known = self.0.iter().filter(|call| !call.is_over());
        let known = known.find(|call| asked["toolCallId"] == *call.id);
        let mut call = known.map(Call::value).unwrap_or_else(|| json!({}));
        if call["told"].is_null() && !asked["title"].is_null() {
            call["told"] = call["title"].take();
        }
        for member in MEMBERS {
            if !asked[member].is_null() {
                call[member] = asked[member].clone();
            }
        }
        call
    }
}
