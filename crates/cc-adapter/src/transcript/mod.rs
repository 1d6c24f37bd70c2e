//! How the lines of a session's transcript read.
//!
//! The client writes one JSON object a line, each with a `uuid` and the `parentUuid` that it follows.
//! The format is documented nowhere (seen with 2.1.330 and 2.1.114).

use peerbus_adapter::mailbox::{Evidence, EvidenceSource, Readable, SessionSource as _, Snapshot};
use peerbus_adapter::transcript::{LineReader, TranscriptLine, Transcripts};
use peerbus_mcp::BusCalls;
use peerbus_wire::lenient;
use serde::Deserialize;
use serde_json::Value;

use crate::session::{ClaudeSession, places};

/// What the client writes where its user stopped the model.
const INTERRUPTED: &str = "[Request interrupted by user";

/// Marks that the client has put a summary in the place of the conversation.
const COMPACTED: &str = "compact_boundary";

/// What stands in the place of the model where the client wrote an answer itself.
const SYNTHETIC: &str = "<synthetic>";

/// Why a model stopped that does not answer.
const REFUSAL: &str = "refusal";

fn transcripts(session: ClaudeSession) -> Transcripts {
    let reader = || -> Box<dyn LineReader> { Box::<Lines>::default() };
    Transcripts::new(move |snapshot| places(&session, snapshot), reader)
}

/// The two witnesses of an answer: the session's transcript, and our module in the client, of which this knows
/// that it is linked. Its word comes by itself.
pub(crate) struct Witnesses {
    session: ClaudeSession,
    transcripts: Transcripts,
}

impl Witnesses {
    pub(crate) fn new(session: ClaudeSession) -> Self {
        let transcripts = transcripts(session.clone());
        Self {
            session,
            transcripts,
        }
    }
}

impl EvidenceSource for Witnesses {
    fn readable(&self, snapshot: &Snapshot) -> Readable {
        match self.session.is_linked() {
            true => Readable::Now,
            false => self.transcripts.readable(snapshot),
        }
    }

    fn begin(&mut self, snapshot: &Snapshot) {
        self.transcripts.begin(snapshot);
    }

    fn watch(
        &mut self,
        snapshot: &Snapshot,
        marks: &[String],
        found: &mut dyn FnMut(Evidence),
    ) -> bool {
        let linked = self.session.is_linked();
        self.transcripts.watch(snapshot, marks, &mut |evidence| {
            if linked && evidence.is_answer() {
                let mark = evidence.mark();
                tracing::info!(
                    mark,
                    "the transcript shows an answer of which the module said nothing"
                );
            }
            found(evidence);
        })
    }
}

/// Those of these marks for which the transcript, if there is one, shows no answer.
pub(crate) fn unanswered(session: &ClaudeSession, mut marks: Vec<String>) -> Vec<String> {
    let snapshot = session.snapshot();
    let mut transcripts = transcripts(session.clone());
    if transcripts.readable(&snapshot) != Readable::Now {
        return Vec::new();
    }
    transcripts.begin(&snapshot);
    let mut answered = Vec::new();
    transcripts.watch(&snapshot, &marks, &mut |found| {
        if found.is_answer() {
            answered.push(found.mark().to_owned());
        }
    });
    marks.retain(|mark| !answered.contains(mark));
    marks
}

/// The same as what happened in the session.
pub(crate) fn events(session: ClaudeSession) -> peerbus_node::Transcript {
    peerbus_node::Transcript {
        find: Box::new(move |snapshot| {
            let places = places(&session, snapshot);
            let name = format!("{}.jsonl", places.id?);
            let named = places.directories.iter().map(|dir| dir.join(&name));
            // A file that a hook named may be that of the session before `/clear`.
            let told = places.file.filter(|file| file.ends_with(&name));
            let all: Vec<_> = told.into_iter().chain(named).collect();
            let there = all.iter().find(|path| path.is_file());
            // Where none is there yet, one will be.
            there.or(all.first()).cloned()
        }),
        read: peerbus_node::claude_code::read,
    }
}

/// Reads lines. Each says all that there is to know of it, but for the tool of a result.
#[derive(Default)]
struct Lines {
    calls: BusCalls,
}

impl LineReader for Lines {
    fn read(&mut self, text: &str) -> Option<TranscriptLine> {
        let line: Written = serde_json::from_str(text).ok()?;
        let uuid = line.uuid.filter(|_| line.is_sidechain != Some(true))?;
        let presents = match line.kind.as_deref() {
            Some("user") => true,
            Some("attachment") => line.attachment.is_some_and(|it| it.carries()),
            _ => false,
        };
        let is = |kind: &str| line.kind.as_deref() == Some(kind);
        // A service behind a gateway may give a request no id; its answer has one. So has what the
        // client itself writes in the model's place.
        let message = line.message.unwrap_or_default();
        let blocks = message.content.unwrap_or_default();
        let prompts = is("user") && !blocks.iter().any(Block::is_result);
        for block in blocks {
            let tool = block.name.unwrap_or_default();
            self.calls.add(&tool, block.id);
        }
        let own = message.model.as_deref() == Some(SYNTHETIC);
        let refuses = message.stop_reason.as_deref() == Some(REFUSAL);
        let answer = message
            .id
            .filter(|id| message.model.is_some() && !id.is_empty());
        let request = line.request_id.or(answer).filter(|_| is("assistant"));
        Some(TranscriptLine {
            id: uuid,
            parent: line.parent,
            prompts,
            presents,
            answers: request.is_some() && line.is_api_error != Some(true) && !own && !refuses,
            request,
            stopped: is("user") && is_interruption(text),
        })
    }

    fn is_anew(&self, text: &str) -> bool {
        let compacted = |line: Written| {
            line.is_summary == Some(true) || line.subtype.as_deref() == Some(COMPACTED)
        };
        serde_json::from_str(text).is_ok_and(compacted)
    }

    fn result(&self, line: &str) -> Option<Value> {
        // What stands beside the message may be nested too deep for a value.
        let line: Written = serde_json::from_str(line).ok()?;
        let blocks = line.message?.content?.into_iter();
        let results: Vec<_> = blocks.filter(Block::is_result).collect();
        let is_ours = |block: &&Block| self.calls.has(block.call.as_deref());
        let ours = results.iter().filter(is_ours);
        let ours = ours.map(|block| block.content.clone().unwrap_or_default());
        (!results.is_empty()).then(|| ours.collect())
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

/// What is read of a line. Members that are missing or of another type than expected say nothing.
#[derive(Deserialize)]
struct Written {
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
    #[serde(rename = "isCompactSummary", default, deserialize_with = "lenient")]
    is_summary: Option<bool>,
    #[serde(default, deserialize_with = "lenient")]
    subtype: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    attachment: Option<Attachment>,
    #[serde(default, deserialize_with = "lenient")]
    message: Option<Message>,
}

/// What the model's service sent.
#[derive(Default, Deserialize)]
struct Message {
    #[serde(default, deserialize_with = "lenient")]
    id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    model: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    stop_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    content: Option<Vec<Block>>,
}

/// A part of it; a call of a tool has a name, the result of one has the call's id.
#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: Option<String>,
    #[serde(rename = "tool_use_id", default, deserialize_with = "lenient")]
    call: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    content: Option<Value>,
    #[serde(default, deserialize_with = "lenient")]
    id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    name: Option<String>,
}

impl Block {
    fn is_result(&self) -> bool {
        self.kind.as_deref() == Some("tool_result")
    }
}

#[derive(Deserialize)]
struct Attachment {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: Option<String>,
}

impl Attachment {
    /// Texts of ours come in it. Others quote files, which anybody writes. A hook's output is logged,
    /// too; what of it reached the model has a line of its own.
    fn carries(&self) -> bool {
        match self.kind.as_deref() {
            Some("queued_command" | "plugin_note") => true,
            Some(kind) => kind.starts_with("hook_") && kind != "hook_success",
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
