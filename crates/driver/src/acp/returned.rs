//! Texts that a tool gave to the model in the middle of a turn, and what comes of them.

use peerbus_adapter::agents::Proof;
use peerbus_wire::jsonrpc::RpcError;
use serde_json::Value;

use super::turn::{Signs, Usage};
use crate::protocol::Heard;

/// Texts that tools gave and of which it is open whether they were read.
const RETURNED_MAX: usize = 256;

/// Texts that tools gave to the model, and what was seen since.
#[derive(Debug, Default)]
pub(super) struct Returned {
    texts: Vec<(String, Option<Signs>)>,
    /// Under which id words came last, before the agent had the tool's result.
    last: Option<String>,
}

impl Returned {
    pub(super) fn add(&mut self, mark: &str) {
        if self.texts.len() < RETURNED_MAX {
            self.texts.push((mark.to_owned(), None));
        }
    }

    /// Only words that begin after the agent said that the tool is done can be of its result: it may have
    /// given up the call.
    pub(super) fn update(&mut self, proof: Proof, update: &Value, fresh: bool) {
        let done = update["sessionUpdate"] == "tool_call_update" && update["status"] == "completed";
        let message = update["messageId"].as_str();
        if !done && message.is_some() && message == self.last.as_deref() {
            return;
        }
        let mut waits = false;
        for (_, signs) in &mut self.texts {
            match signs {
                Some(signs) => {
                    signs.update(proof, update, fresh);
                }
                None if done => *signs = Some(Signs::default()),
                None => waits = true,
            }
        }
        if waits || self.texts.is_empty() {
            self.last = message.map(str::to_owned).or(self.last.take());
        }
    }

    /// A turn ended, with this answer. Of the tools that the model called at the same time one may return
    /// before another begins: a call proves nothing here.
    pub(super) fn end(
        &mut self,
        by: (Proof, bool),
        usage: Usage,
        answer: &Result<Value, RpcError>,
    ) -> impl Iterator<Item = Heard> {
        let all = std::mem::take(&mut self.texts).into_iter();
        all.map(move |(mark, signs)| {
            let mut signs = signs.unwrap_or_default();
            signs.called = false;
            Heard::Known(mark, signs.end(by, &mut usage.clone(), answer))
        })
    }
}
