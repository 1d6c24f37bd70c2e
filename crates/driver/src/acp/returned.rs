//! Texts that a tool gave to the model in the middle of a turn, and what comes of them.

use peerbus_adapter::agents::Proof;
use peerbus_wire::jsonrpc::RpcError;
use serde_json::Value;

use super::turn::{Signs, Usage};
use crate::protocol::Heard;
use crate::turns::{find, whole};

/// Texts that tools gave and of which it is open whether they were read.
const RETURNED_MAX: usize = 256;
/// As much of a text as shows that an output has some of it, in bytes.
const BEGINNING_BYTES: usize = 256;

/// Where a text is.
#[derive(Debug)]
enum Place {
    /// In a call that the agent did not show with it, or showed as failed.
    Unshown,
    /// In what this call returned, as the agent showed.
    In(String),
    /// In the conversation, since its call is done; with what was seen from then on.
    Here(Signs),
}

#[derive(Debug)]
struct Text {
    mark: String,
    /// All that the tool gave, as it stands there, and within JSON.
    whole: [String; 2],
    place: Place,
}

/// Texts that tools gave to the model, and what was seen since.
#[derive(Debug, Default)]
pub(super) struct Returned {
    texts: Vec<Text>,
    /// Under which id words came last, before the agent had the tool's result.
    last: Option<String>,
}

impl Returned {
    /// `line`: the answer of the tool that has the text with this mark.
    pub(super) fn add(&mut self, mark: &str, line: &str) {
        if self.texts.len() < RETURNED_MAX {
            self.texts.push(Text {
                mark: mark.to_owned(),
                whole: whole(mark, line),
                place: Place::Unshown,
            });
        }
    }

    fn waits(&self) -> bool {
        let mut all = self.texts.iter();
        all.any(|text| !matches!(text.place, Place::Here(_)))
    }

    /// Only words that begin after the agent said that the text's call is done can be of its result: it may
    /// have given up the call. That is the call whose output has all of the text: of less the model may have
    /// no more. `may_be_ours`: whether this one may.
    pub(super) fn update(&mut self, proof: Proof, update: &Value, fresh: bool, may_be_ours: bool) {
        let message = update["messageId"].as_str();
        let call = update["toolCallId"].as_str().filter(|_| may_be_ours);
        let status = update["status"].as_str().filter(|_| call.is_some());
        let (done, failed) = (status == Some("completed"), status == Some("failed"));
        if !done && message.is_some() && message == self.last.as_deref() {
            return;
        }
        for Text { whole, place, .. } in &mut self.texts {
            if let Place::Here(signs) = place {
                signs.update(proof, update, fresh);
                continue;
            }
            let has = |text: &str| whole.iter().any(|whole| text.contains(whole));
            let begins = |text: &str| whole.iter().any(|whole| text.contains(beginning(whole)));
            let Some(call) = call else { continue };
            if find(update, &has).is_some() {
                *place = Place::In(call.to_owned());
            } else if find(update, &begins).is_some() {
                *place = Place::Unshown;
            }
            match place {
                Place::In(of) if of == call && done => *place = Place::Here(Signs::default()),
                Place::In(of) if of == call && failed => *place = Place::Unshown,
                _ => {}
            }
        }
        if self.waits() || self.texts.is_empty() {
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
        all.map(move |Text { mark, place, .. }| {
            let mut signs = match place {
                Place::Here(signs) => signs,
                Place::Unshown | Place::In(_) => Signs::default(),
            };
            signs.called = false;
            // The request that called the tool is in the figure, too.
            let mut usage = if signs.said { usage } else { Usage(None) };
            Heard::Known(mark, signs.end(by, &mut usage, answer))
        })
    }
}

/// So much of a text that no other one begins likewise.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(BEGINNING_BYTES)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::acp::permission::may_be_ours;
    use crate::protocol::TurnEnd;

    fn tool(kind: &str, call: &str, status: &str, output: &str) -> Value {
        json!({ "sessionUpdate": kind, "toolCallId": call, "status": status,
            "rawOutput": { "content": [{ "text": output }] } })
    }

    /// Of the texts `pb-a` and `pb-b`, given by two calls that run at once: those that are proven by words
    /// after these updates.
    fn proven(updates: &[Value]) -> Vec<String> {
        let mut returned = Returned::default();
        for call in ["a", "b"] {
            let begins = tool("tool_call", call, "pending", "");
            returned.update(Proof::MessageId, &begins, true, true);
        }
        returned.add(
            "pb-a",
            r#"{"result":{"content":[{"text":"\"hi\" [pb-a]\n"}]}}"#,
        );
        returned.add("pb-b", "[pb-b]");
        proven_by_words(returned, updates)
    }

    /// The texts that words after these updates prove.
    fn proven_by_words(mut returned: Returned, updates: &[Value]) -> Vec<String> {
        let words = json!({ "sessionUpdate": "agent_message_chunk", "messageId": "m",
            "content": { "type": "text", "text": "I see" } });
        for update in updates.iter().chain([&words]) {
            returned.update(Proof::MessageId, update, true, true);
        }
        let end = Ok(json!({ "stopReason": "end_turn" }));
        let all = returned.end((Proof::MessageId, false), Usage::default(), &end);
        let well = all.filter_map(|heard| match heard {
            Heard::Known(mark, end) => (end == TurnEnd::Well).then_some(mark),
            _ => None,
        });
        well.collect()
    }

    #[test]
    fn of_calls_that_run_at_once_each_proves_its_own_text_alone() {
        const A: &str = "\"hi\" [pb-a]";
        let done = |call, output| tool("tool_call_update", call, "completed", output);
        let failed = |call, output| tool("tool_call_update", call, "failed", output);
        let shown = |call, output| tool("tool_call_update", call, "in_progress", output);
        for (updates, expected) in [
            (&[done("a", A)][..], &["pb-a"][..]),
            (&[done("b", "[pb-b]"), failed("a", "")], &["pb-b"]),
            (&[shown("a", A), done("a", "")], &["pb-a"]),
            (&[shown("a", A), done("b", "")], &[]),
            (&[done("a", A), done("b", "[pb-b]")], &["pb-a", "pb-b"]),
            (&[done("a", r#"\"hi\" [pb-a]"#)], &["pb-a"]),
            // The mark alone is no text.
            (&[failed("a", ""), done("b", "a log of [pb-a]")], &[]),
            // No output shows the texts.
            (&[done("a", "")], &[]),
            (&[done("a", ""), done("b", "")], &[]),
            (&[shown("a", A), failed("a", ""), done("b", "")], &[]),
            (&[failed("a", ""), done("b", "")], &[]),
            (&[done("c", "")], &[]),
        ] {
            assert_eq!(proven(updates), expected, "{updates:?}");
        }
    }

    #[test]
    fn a_text_of_which_the_agent_shows_a_part_is_not_proven() {
        let text = format!("{} [pb-a]", "word ".repeat(100));
        for (shown, expected) in [(&*text, &["pb-a"][..]), (&text[..300], &[]), ("", &[])] {
            let mut returned = Returned::default();
            let begins = tool("tool_call", "a", "pending", "");
            returned.update(Proof::MessageId, &begins, true, true);
            returned.add("pb-a", &text);
            let done = tool("tool_call_update", "a", "completed", shown);
            assert_eq!(proven_by_words(returned, &[done]), expected, "{shown}");
        }
    }

    #[test]
    fn a_call_of_another_tool_proves_nothing_whatever_it_shows() {
        for (kind, expected) in [("other", &["pb-a"][..]), ("execute", &[])] {
            let mut returned = Returned::default();
            returned.add("pb-a", "[pb-a]");
            let mut done = tool("tool_call_update", "b", "completed", "[pb-a]");
            done["kind"] = kind.into();
            returned.update(Proof::MessageId, &done, true, may_be_ours(&done));
            assert_eq!(proven_by_words(returned, &[]), expected, "{kind}");
        }
    }

    #[test]
    fn usage_proves_no_text_but_one_that_was_shown_whole_and_done_before_words() {
        let text = format!("{} [pb-a]", "word ".repeat(100));
        let update = |status, output| tool("tool_call_update", "a", status, output);
        let words =
            json!({ "sessionUpdate": "agent_message_chunk", "content": { "text": "I see" } });
        for (updates, expected) in [
            (vec![], false),
            (vec![words.clone()], false),
            (vec![update("failed", ""), words.clone()], false),
            (vec![update("failed", &text), words.clone()], false),
            (vec![update("in_progress", &text), words.clone()], false),
            (
                vec![update("completed", &text[..300]), words.clone()],
                false,
            ),
            (
                vec![update("completed", "stored in a file"), words.clone()],
                false,
            ),
            (vec![update("completed", ""), words.clone()], false),
            // The request that called the tool is in the figure, too.
            (vec![update("completed", &text)], false),
            (vec![update("completed", &text), words.clone()], true),
            (
                vec![tool("tool_call", "b", "completed", &text), words],
                true,
            ),
        ] {
            for proof in [Proof::Usage, Proof::Unknown] {
                let mut returned = Returned::default();
                returned.update(proof, &tool("tool_call", "a", "pending", ""), true, true);
                returned.add("pb-a", &text);
                for update in &updates {
                    returned.update(proof, update, true, true);
                }
                let usage = json!({ "totalTokens": 2 });
                let end = Ok(json!({ "stopReason": "end_turn", "usage": usage }));
                let mut all = returned.end((proof, false), Usage(Some(1)), &end);
                let is_well = |heard| matches!(heard, Heard::Known(_, end) if end == TurnEnd::Well);
                let proven = all.next().is_some_and(is_well);
                assert_eq!(proven, expected, "{proof:?}: {updates:?}");
            }
        }
    }
}
