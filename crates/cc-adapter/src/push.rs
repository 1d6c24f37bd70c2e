//! What is pushed.

use std::collections::BTreeMap;

use peerbus_adapter::{Inbound, Kind};
use peerbus_wire::neutralise;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Longest text of a message that is pushed, in characters. A cut is stated.
const TEXT_CHARS: usize = 65_536;
/// Longest attribute, in characters.
const ATTRIBUTE_CHARS: usize = 128;

/// One push: the content of a `<channel>` tag and its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Push {
    content: String,
    meta: Vec<(&'static str, String)>,
}

impl Push {
    /// A peer's message.
    pub(crate) fn message(message: &Inbound) -> Self {
        let kind = match message.kind {
            Kind::Msg => "msg",
            Kind::Broadcast => "broadcast",
        };
        let from = attribute(&message.from);
        let text = neutralise(&text(&message.body), TEXT_CHARS);
        Self {
            content: format!("📨 {kind} from {from}: \"{text}\""),
            meta: vec![
                ("from", from),
                ("source", attribute(&message.source)),
                ("msg_id", attribute(&message.id)),
                ("kind", kind.to_owned()),
            ],
        }
    }

    /// The session's own name.
    pub(crate) fn announce(name: &str) -> Self {
        let name = attribute(name);
        Self {
            content: format!("📡 connected as {name}"),
            meta: vec![("kind", "system".to_owned()), ("self", name)],
        }
    }

    /// A notice of the bus itself. `sentence` holds no peer's text that is not neutralised.
    pub(crate) fn notice(sentence: &str) -> Self {
        Self {
            content: format!("📮 {sentence}"),
            meta: vec![("kind", "system".to_owned())],
        }
    }

    /// The params of `notifications/claude/channel`.
    pub(crate) fn params(&self) -> Value {
        let meta = self
            .meta
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Value::from(&**value)));
        serde_json::json!({ "content": self.content, "meta": meta.collect::<Map<_, _>>() })
    }
}

/// What a body says: itself if it is a text, else its `text`, `message` or `content` if that is
/// one, else its JSON.
fn text(body: &str) -> String {
    if let Ok(text) = serde_json::from_str(body) {
        return text;
    }
    let members = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(body).unwrap_or_default();
    let said = ["text", "message", "content"]
        .iter()
        .filter_map(|key| members.get(*key))
        .find_map(|value| serde_json::from_str::<String>(value.get()).ok());
    said.unwrap_or_else(|| body.to_owned())
}

/// A text that can stand in an attribute: names, ids and sources have no other characters than
/// these, and whoever lets one through does not get to forge an attribute.
fn attribute(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@:-".contains(c);
    text.chars()
        .take(ATTRIBUTE_CHARS)
        .map(|c| if plain(c) { c } else { '_' })
        .collect()
}
