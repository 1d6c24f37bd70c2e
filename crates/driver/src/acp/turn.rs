//! What the updates of a turn, and its end, show of the texts that went in with it. Pure.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use peerbus_adapter::agents::Proof;
use peerbus_wire::jsonrpc::RpcError;
use serde_json::Value;

use super::lines::told;
use crate::protocol::{Heard, TurnEnd};

/// Calls and messages of a session that are remembered.
const BEGAN_MAX: usize = 65_536;
/// What a cancelled prompt is answered with that the model was never given.
const NEVER_SHOWN: i64 = -32_800;

/// A turn that is under way. Since a second prompt in a turn is lost by some agents and ends it in
/// others, there is one at a time.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) uuid: String,
    /// The mark of the push that it is.
    pub(super) mark: Option<String>,
    /// The question.
    pub(super) text: String,
    /// The same without instructions, until whoever watches is told of it.
    pub(super) asked: Option<String>,
    pub(super) signs: Signs,
    /// The instructions went before its text.
    pub(super) instructs: bool,
    /// The rest of a history comes in it: nothing is known to be of the turn.
    pub(super) is_mixed: bool,
}

impl Turn {
    /// Behind a history that was asked for: a user's text that is not this one's is of the history, and so
    /// is what came before and after it. Whether it is this one's.
    pub(super) fn echoes(&mut self, update: &Value) -> bool {
        let text = words(update);
        let is_piece = !text.is_empty() && self.text.starts_with(text);
        let is_own = is_piece || text.contains(&self.text);
        self.is_mixed = !is_own;
        if self.is_mixed {
            self.signs = Signs::default();
        }
        is_own
    }

    /// What whoever watches is told of its text, once it stands in the conversation.
    pub(super) fn told(&mut self) -> Vec<Heard> {
        let asked = self.asked.take().map(|text| told("user", &text.into()));
        asked.unwrap_or_default()
    }
}

/// Whether an update is a user's text.
pub(super) fn is_users(update: &Value) -> bool {
    let kind = update["sessionUpdate"].as_str();
    matches!(kind, Some("user_message_chunk" | "user_message"))
}

/// The words of an update, where either version has them.
pub(super) fn words(update: &Value) -> &str {
    let content = &update["content"];
    let text = content["text"].as_str().or(content[0]["text"].as_str());
    text.unwrap_or_default()
}

/// What was seen since a text went in.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signs {
    /// The text is known to stand in the conversation.
    pub(super) presented: bool,
    /// Words came under an id: the model's.
    spoke: bool,
    /// Words came.
    pub(super) said: bool,
    /// A tool was called.
    pub(super) called: bool,
}

/// The calls of tools and the messages of a session, by when they began: the rest of an earlier one may
/// come in a later turn.
#[derive(Debug, Default)]
pub(super) struct Began {
    turns: HashMap<u64, u64>,
    order: VecDeque<u64>,
    turn: u64,
    /// What came in this turn began in it, or in an earlier one.
    came: [bool; 2],
    /// Ids mean something in one turn only.
    is_anew: bool,
}

impl Began {
    /// Another turn begins.
    pub(super) fn next_turn(&mut self) {
        self.turn += 1;
        self.came = [false; 2];
    }

    /// The turn ended in an orderly way. Where all that came in it was under ids of earlier turns, those
    /// begin anew in each.
    pub(super) fn ended(&mut self) {
        self.is_anew |= self.came == [false, true];
    }

    /// Whether what an update is of began in this turn. `two`: by version 2, in which an update may begin
    /// a call.
    pub(super) fn is_fresh(&mut self, update: &Value, two: bool) -> bool {
        let call = update["toolCallId"].as_str();
        let message = update["messageId"].as_str();
        let Some(id) = call.or(message) else {
            return true;
        };
        let mut hash = DefaultHasher::new();
        (call.is_some(), id).hash(&mut hash);
        let hash = hash.finish();
        let begins = call.is_none()
            || update["sessionUpdate"] == "tool_call"
            || two && matches!(update["status"].as_str(), Some("pending" | "in_progress"));
        let is_agents = begins && !is_users(update);
        if let Some(turn) = self.turns.get_mut(&hash) {
            if self.is_anew && begins {
                *turn = self.turn;
            }
            let is_fresh = *turn == self.turn;
            self.came[usize::from(!is_fresh)] |= is_agents;
            return is_fresh;
        }
        self.came[0] |= is_agents;
        // Of another one the beginning was missed: it is of an earlier turn.
        self.turns.insert(hash, if begins { self.turn } else { 0 });
        self.order.push_back(hash);
        if self.order.len() > BEGAN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.turns.remove(&oldest);
        }
        begins
    }
}

/// The last figure of a session's tokens: agents report those of a turn, or the sum of all turns.
/// `None`: what the session used before is not known, as after a restart.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage(pub(super) Option<u64>);

impl Usage {
    /// Takes the figure of a turn. Whether it shows that the model worked: a turn that failed repeats
    /// the sum of those before it, and behind one without a figure the sum may be any.
    pub(super) fn grew(&mut self, usage: &Value) -> bool {
        let total = usage["totalTokens"].as_u64();
        let before = std::mem::replace(&mut self.0, total);
        total
            .zip(before)
            .is_some_and(|(total, before)| total > before)
    }
}

impl Signs {
    /// Takes an update of the turn. `fresh`: its call of a tool, or its message, began in this turn;
    /// the rest of an earlier one may still come. Whether it is the first that shows the text to be in
    /// the conversation.
    pub(super) fn update(&mut self, proof: Proof, update: &Value, fresh: bool) -> bool {
        let here = match update["sessionUpdate"].as_str() {
            Some("user_message_chunk" | "user_message") => true,
            Some("tool_call" | "tool_call_update") => {
                self.called |= fresh;
                fresh
            }
            Some("agent_message_chunk" | "agent_thought_chunk") => {
                fresh && self.words(proof, update)
            }
            _ => false,
        };
        let first = here && !self.presented;
        self.presented |= here;
        first
    }

    /// Whether they are the model's, as far as that shows before the turn ends.
    fn words(&mut self, proof: Proof, update: &Value) -> bool {
        let text = update["content"]["text"].as_str().unwrap_or_default();
        let has_words = !text.trim().is_empty();
        let has_id = has_words && update["messageId"].is_string();
        self.said |= has_words;
        self.spoke |= has_id;
        match proof {
            Proof::MessageId | Proof::Unknown => has_id,
            Proof::Words | Proof::Quota => has_words,
            Proof::Usage => false,
        }
    }

    /// Whether what followed a text in the history of a session is an answer of the model's.
    pub(super) fn answered(self, proof: Proof) -> bool {
        self.called
            || match proof {
                Proof::MessageId | Proof::Unknown => self.spoke,
                Proof::Words | Proof::Quota => self.said,
                Proof::Usage => false,
            }
    }

    /// What the answer to a prompt says. `two`: by version 2, which says what was never shown.
    pub(super) fn end(
        self,
        (proof, two): (Proof, bool),
        usage: &mut Usage,
        answer: &Result<Value, RpcError>,
    ) -> TurnEnd {
        let none = Value::Null;
        let figure = answer.as_ref().map_or(&none, |ended| &ended["usage"]);
        let grew = usage.grew(figure);
        let ended = match answer {
            Ok(_) if self.called => return TurnEnd::Well,
            Err(error) if error.code == NEVER_SHOWN && two && !self.presented && !self.said => {
                return TurnEnd::Unshown;
            }
            Err(error) => return TurnEnd::Failed(error.message.clone()),
            Ok(ended) => ended,
        };
        let quota = &ended["_meta"]["quota"]["token_count"]["output_tokens"];
        let proven = match proof {
            Proof::MessageId => self.spoke,
            Proof::Usage => grew,
            Proof::Quota => self.said && quota.as_u64() > Some(0),
            Proof::Words => self.said,
            Proof::Unknown => self.spoke || grew,
        };
        match ended["stopReason"].as_str().unwrap_or_default() {
            "cancelled" => TurnEnd::Stopped("cancelled".to_owned()),
            "error" => TurnEnd::Failed("the agent says that the turn failed".to_owned()),
            // No later request has the turn's text.
            "refusal" => TurnEnd::Failed("the model refused to answer".to_owned()),
            _ if proven => TurnEnd::Well,
            _ if self.said && proof == Proof::Unknown => TurnEnd::Unproven,
            reason => {
                let why = "the turn ended without an answer that is known to be the model's";
                TurnEnd::Failed(format!("{why} ({reason})"))
            }
        }
    }
}

/// The history of a session, as the agent repeats it.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// Something was repeated.
    pub(super) any: bool,
    /// The text of the turn that was under way is in it.
    here: bool,
    /// What follows it.
    pub(super) signs: Signs,
    began: Began,
}

impl Replay {
    pub(super) fn take(
        &mut self,
        (proof, two): (Proof, bool),
        kind: &str,
        update: &Value,
        left: Option<&str>,
    ) {
        match kind {
            "user_message_chunk" | "user_message" => {
                self.any = true;
                let text = words(update);
                match left.is_some_and(|left| text.contains(left)) {
                    true => {
                        (self.here, self.signs) = (true, Signs::default());
                        self.began.next_turn();
                    }
                    // Behind an answer another turn begins; before one it is a note of the agent's.
                    false => self.here &= self.signs == Signs::default(),
                }
            }
            "agent_message_chunk" | "agent_thought_chunk" | "tool_call" | "tool_call_update" => {
                self.any = true;
                let fresh = self.began.is_fresh(update, two);
                if self.here {
                    self.signs.update(proof, update, fresh);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chunk(text: &str, id: Option<&str>) -> Value {
        json!({ "sessionUpdate": "agent_message_chunk", "messageId": id,
            "content": { "type": "text", "text": text } })
    }

    fn ended(proof: Proof, updates: &[Value], answer: Value) -> TurnEnd {
        let mut signs = Signs::default();
        for update in updates {
            signs.update(proof, update, true);
        }
        signs.end((proof, false), &mut Usage(Some(15)), &Ok(answer))
    }

    #[test]
    fn words_in_the_models_place_prove_nothing_where_the_agent_says_errors_so() {
        let words = [chunk("Error: 400", None)];
        let end = json!({ "stopReason": "end_turn" });
        let sum = json!({ "stopReason": "end_turn", "usage": { "totalTokens": 15 } });
        for (proof, end) in [
            (Proof::MessageId, &end),
            (Proof::Usage, &end),
            (Proof::Usage, &sum),
            (Proof::Quota, &end),
        ] {
            let end = ended(proof, &words, end.clone());
            assert!(matches!(end, TurnEnd::Failed(_)), "{proof:?}: {end:?}");
        }
        assert_eq!(ended(Proof::Words, &words, end.clone()), TurnEnd::Well);
        let nothing = ended(Proof::Words, &[chunk("", None)], end.clone());
        assert!(matches!(nothing, TurnEnd::Failed(_)), "{nothing:?}");
        let refused = ended(Proof::Words, &words, json!({ "stopReason": "refusal" }));
        assert!(matches!(refused, TurnEnd::Failed(_)), "{refused:?}");
        assert_eq!(ended(Proof::Unknown, &words, end), TurnEnd::Unproven);
        assert_eq!(ended(Proof::Unknown, &words, sum), TurnEnd::Unproven);
    }

    #[test]
    fn each_proof_proves_and_a_call_of_a_tool_does_whatever_ends_the_turn() {
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t" });
        let more = json!({ "stopReason": "end_turn", "usage": { "totalTokens": 16 } });
        let quota = json!({ "stopReason": "end_turn",
            "_meta": { "quota": { "token_count": { "output_tokens": 1 } } } });
        let end = json!({ "stopReason": "end_turn" });
        let (named, words) = ([chunk("hi", Some("m"))], [chunk("hi", None)]);
        for (proof, updates, answer) in [
            (Proof::MessageId, &named, &end),
            (Proof::Unknown, &named, &end),
            (Proof::Unknown, &words, &more),
            (Proof::Usage, &words, &more),
            (Proof::Quota, &words, &quota),
        ] {
            assert_eq!(ended(proof, updates, answer.clone()), TurnEnd::Well);
        }
        let denied = json!({ "stopReason": "cancelled" });
        assert_eq!(
            ended(Proof::Usage, std::slice::from_ref(&call), denied.clone()),
            TurnEnd::Well
        );
        // With an error for an answer nothing but a tool that names the message proves anything.
        let mut signs = Signs::default();
        signs.update(Proof::Usage, &call, true);
        let failed = Err(RpcError::new(-32_603, "failed"));
        let end = signs.end((Proof::Usage, false), &mut Usage::default(), &failed);
        assert!(matches!(end, TurnEnd::Failed(_)), "{end:?}");
        let end = ended(Proof::Usage, &words, denied);
        assert!(matches!(end, TurnEnd::Stopped(_)), "{end:?}");
        let mut usage = Usage::default();
        let failed = RpcError::new(NEVER_SHOWN, "cancelled");
        let failed = Err(failed);
        let end = Signs::default().end((Proof::Words, true), &mut usage, &failed);
        assert_eq!(end, TurnEnd::Unshown);
        let mut said = Signs::default();
        said.update(Proof::Usage, &chunk("hi", None), true);
        for (signs, two) in [(Signs::default(), false), (said, true)] {
            let end = signs.end((Proof::Words, two), &mut usage, &failed);
            assert!(matches!(end, TurnEnd::Failed(_)), "{end:?}");
        }
    }

    #[test]
    fn the_rest_of_what_began_before_is_not_of_this_turn() {
        let call = |kind: &str, id: &str, status: &str| json!({ "sessionUpdate": kind, "toolCallId": id, "status": status });
        let mut began = Began::default();
        began.next_turn();
        assert!(began.is_fresh(&call("tool_call", "a", "pending"), false));
        assert!(began.is_fresh(&call("tool_call_update", "a", "completed"), false));
        assert!(began.is_fresh(&chunk("one", Some("m")), false));
        began.next_turn();
        for update in [
            call("tool_call", "a", "pending"),
            call("tool_call_update", "a", "in_progress"),
            // Its beginning was never heard.
            call("tool_call_update", "b", "in_progress"),
            call("tool_call_update", "b", "pending"),
            chunk("the rest", Some("m")),
        ] {
            assert!(!began.is_fresh(&update, false), "{update}");
        }
        assert!(began.is_fresh(&call("tool_call_update", "c", "pending"), true));
        assert!(began.is_fresh(&call("tool_call_update", "d", "in_progress"), true));
        assert!(began.is_fresh(&chunk("no id", None), false));
    }

    #[test]
    fn ids_that_begin_anew_in_each_turn_are_known_by_a_turn_that_had_no_others() {
        let call = |kind: &str| json!({ "sessionUpdate": kind, "toolCallId": "call_0" });
        let mut began = Began::default();
        began.next_turn();
        assert!(began.is_fresh(&chunk("one", Some("m1")), false));
        assert!(began.is_fresh(&call("tool_call"), false));
        began.ended();
        began.next_turn();
        assert!(!began.is_fresh(&chunk("two", Some("m1")), false));
        began.ended();
        for _ in 0..2 {
            began.next_turn();
            assert!(!began.is_fresh(&call("tool_call_update"), false));
            for update in [
                chunk("n", Some("m1")),
                call("tool_call"),
                call("tool_call_update"),
            ] {
                assert!(began.is_fresh(&update, false), "{update}");
            }
            began.ended();
        }
    }

    #[test]
    fn usage_that_a_resumed_session_repeats_proves_nothing() {
        let of = |total: u64| json!({ "totalTokens": total });
        let mut usage = Usage::default();
        // It may be any earlier sum.
        assert!(!usage.grew(&of(15)));
        assert!(!usage.grew(&of(15)));
        assert!(usage.grew(&of(30)));
        assert!(!usage.grew(&Value::Null));
        // The sum of the turn without a figure is in the next one.
        assert!(!usage.grew(&of(45)));
        assert!(usage.grew(&of(60)));
    }

    #[test]
    fn what_has_no_words_or_began_in_an_earlier_turn_shows_nothing() {
        let thought = json!({ "sessionUpdate": "agent_thought_chunk", "content": {} });
        let call = json!({ "sessionUpdate": "tool_call_update", "status": "completed" });
        for (update, fresh) in [
            (chunk("", Some("m")), true),
            (chunk(" \n", Some("m")), true),
            (thought, true),
            (chunk("the rest", Some("m")), false),
            (call, false),
        ] {
            for proof in [Proof::MessageId, Proof::Words, Proof::Unknown] {
                let mut signs = Signs::default();
                assert!(!signs.update(proof, &update, fresh), "{update}");
                assert_eq!(signs, Signs::default(), "{update}");
            }
        }
    }
}
