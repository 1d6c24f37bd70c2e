//! What a session's transcript proves about what was shown to its model.
//!
//! The client writes one JSON object a line, each with a `uuid` and the `parentUuid` that it follows. A
//! line that holds a mark shows that the text stands in the conversation. It does not show that the
//! model got it: the line is written with the model's service down as well. Proof is a later answer of the model
//! that descends from it. The format is documented nowhere (seen with 2.1.330 and 2.1.114), so what
//! is not found says nothing.

mod tail;

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) use tail::watch;

/// Longest line that is looked at, in bytes. A result of a tool can hold a picture; its line is
/// part of the chain.
const LINE_MAX: usize = 8 << 20;
/// Lines that may stand between a mark and the answer to it.
const CHAIN_MAX: usize = 4_096;
/// Stands in a line with an answer of the model.
const REQUEST: &str = "\"requestId\"";
/// What the client writes where its user stopped the model.
const INTERRUPTED: &str = "[Request interrupted by user";

/// What a transcript shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The mark's text stands in the conversation.
    Presented(String),
    /// The model answered after the mark's text.
    Answered(String),
}

/// Reads one transcript as it grows. Bytes go in in any portions.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    partial: Vec<u8>,
    /// The rest of a line that is too long, or that began before the first byte.
    skipping: bool,
    chains: Vec<Chain>,
    /// The request whose answer was written last.
    request: Option<String>,
}

/// What descends from the line with a mark.
#[derive(Debug)]
struct Chain {
    mark: String,
    lines: BTreeSet<String>,
    /// Began to be answered before the mark was written: the rest of that answer is none to the
    /// mark.
    before: Option<String>,
}

impl Transcript {
    /// For bytes that begin in the middle of a line.
    pub(crate) fn in_mid_line() -> Self {
        Self {
            skipping: true,
            ..Self::default()
        }
    }

    /// Takes the next bytes and says what they show of `marks`. Others are forgotten.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], marks: &[String]) -> Vec<Evidence> {
        self.chains.retain(|chain| marks.contains(&chain.mark));
        let mut found = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            let skipped = std::mem::take(&mut self.skipping) || self.too_long(line);
            let mut whole = std::mem::take(&mut self.partial);
            if skipped {
                continue;
            }
            if whole.is_empty() {
                self.line(line, marks, &mut found);
            } else {
                whole.extend_from_slice(line);
                self.line(&whole, marks, &mut found);
            }
        }
        if self.skipping || self.too_long(bytes) {
            self.skipping = true;
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(bytes);
        }
        found
    }

    fn too_long(&self, more: &[u8]) -> bool {
        self.partial.len() + more.len() > LINE_MAX
    }

    fn line(&mut self, line: &[u8], marks: &[String], found: &mut Vec<Evidence>) {
        // Text to search, cheaper than JSON to parse: most lines are about nothing of ours.
        let Ok(text) = std::str::from_utf8(line) else {
            return;
        };
        let news = marks
            .iter()
            .filter(|mark| contains(text, mark) && !self.chains.iter().any(|c| c.mark == **mark));
        let news: Vec<&String> = news.collect();
        let answers = text.contains(REQUEST);
        if news.is_empty() && self.chains.is_empty() && !answers {
            return;
        }
        let Ok(line) = serde_json::from_str::<Line>(text) else {
            return;
        };
        let Some(uuid) = line.uuid.filter(|_| line.is_sidechain != Some(true)) else {
            return;
        };
        let presents = match line.kind.as_deref() {
            Some("user") => true,
            Some("attachment") => line
                .attachment
                .is_some_and(|attachment| !attachment.is_log()),
            _ => false,
        };
        let answer = line
            .request_id
            .filter(|_| line.kind.as_deref() == Some("assistant"));
        let proof = answer.as_ref().filter(|_| line.is_api_error != Some(true));
        let stopped = line.kind.as_deref() == Some("user") && is_interruption(text);
        if let Some(parent) = line.parent {
            self.chains.retain_mut(|chain| {
                if !chain.lines.contains(&parent) {
                    return true;
                }
                let answers = proof.is_some() && proof != chain.before.as_ref();
                if answers {
                    found.push(Evidence::Answered(chain.mark.clone()));
                }
                chain.lines.insert(uuid.clone());
                !answers && !stopped && chain.lines.len() < CHAIN_MAX
            });
        }
        if presents {
            for mark in news {
                found.push(Evidence::Presented(mark.clone()));
                self.chains.push(Chain {
                    mark: mark.clone(),
                    lines: BTreeSet::from([uuid.clone()]),
                    before: self.request.clone(),
                });
            }
        }
        self.request = answer.or(self.request.take());
    }
}

/// Whether a line of the user's says that the model was stopped. Others may speak of that.
fn is_interruption(line: &str) -> bool {
    if !line.contains(INTERRUPTED) {
        return false;
    }
    let line: Value = serde_json::from_str(line).unwrap_or_default();
    let content = &line["message"]["content"];
    let text = |block: &Value| block["type"] == "text";
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let first = blocks.iter().find(|block| text(block));
    let said = content.as_str().or_else(|| first?["text"].as_str());
    said.is_some_and(|said| said.starts_with(INTERRUPTED))
}

/// Whether the mark stands there, and not as the beginning of another one.
fn contains(text: &str, mark: &str) -> bool {
    text.match_indices(mark).any(|(at, _)| {
        let next = text[at + mark.len()..].chars().next();
        !next.is_some_and(|next| next.is_ascii_alphanumeric())
    })
}

/// What is read of a line. Members that are missing or of another type than expected say nothing.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    uuid: Option<String>,
    #[serde(rename = "parentUuid", default, deserialize_with = "lenient")]
    parent: Option<String>,
    #[serde(rename = "requestId", default, deserialize_with = "lenient")]
    request_id: Option<String>,
    #[serde(rename = "isApiErrorMessage", default, deserialize_with = "lenient")]
    is_api_error: Option<bool>,
    #[serde(rename = "isSidechain", default, deserialize_with = "lenient")]
    is_sidechain: Option<bool>,
    #[serde(default, deserialize_with = "lenient")]
    attachment: Option<Attachment>,
}

#[derive(Deserialize)]
struct Attachment {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: Option<String>,
}

impl Attachment {
    /// A hook's output as it was logged; what of it reached the model has a line of its own.
    fn is_log(&self) -> bool {
        self.kind.as_deref() == Some("hook_success")
    }
}

fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    let json = Box::<RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(json.get()).ok())
}

#[cfg(test)]
mod tests;
