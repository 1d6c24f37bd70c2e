//! Questions of a driven client about hooks that name no program of its own: a program at the node answers, if
//! one asked for that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::approvals::By;
use crate::claude_code;
use crate::control;
use crate::protocol::{EventKind, NodeError};
use crate::{Node, Shared};

/// How long an answer is waited for.
const WITHIN: Duration = Duration::from_secs(30);
/// Longest answer, in bytes of JSON.
const ANSWER_MAX: usize = 65_536;
/// Hooks that may wait at once; the rest is not asked about.
const OPEN_MAX: usize = 64;

/// The questions that wait for an answer, and how many want to give one.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    open: BTreeMap<String, oneshot::Sender<Value>>,
    listeners: usize,
}

impl Hooks {
    pub(crate) fn came(&mut self) {
        self.listeners += 1;
    }

    pub(crate) fn left(&mut self) {
        self.listeners -= 1;
        if self.listeners == 0 {
            // Nobody is waited for any more.
            self.open.clear();
        }
    }

    /// `None`: nobody would answer.
    fn open(&mut self, id: &str) -> Option<oneshot::Receiver<Value>> {
        if self.listeners == 0 || self.open.len() >= OPEN_MAX {
            return None;
        }
        let (answered, answer) = oneshot::channel();
        self.open.insert(id.to_owned(), answered);
        Some(answer)
    }

    fn answer(&mut self, id: &str, response: Value) -> Result<(), NodeError> {
        let over = || NodeError::unable("no hook waits under this `request_id`, or not any more");
        let waits = self.open.remove(id).ok_or_else(over)?;
        waits.send(response).map_err(|_| over())
    }
}

/// The answer that comes in time.
async fn answered(answer: Option<oneshot::Receiver<Value>>) -> Option<Value> {
    timeout(WITHIN, answer?).await.ok()?.ok()
}

/// A hook that the client waits with. Dropped, it is over, and everybody is told how.
struct Waiting {
    shared: Arc<Shared>,
    id: String,
    told: Value,
    by: By,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.state().hooks.open.remove(&self.id);
        self.told["by"] = self.by.to_string().into();
        self.shared.record(EventKind::Hook, self.told.take());
    }
}

impl Node {
    /// Asks what is to become of a hook, and gives the client's answer: nothing but braces where nobody has
    /// one. Dropped, the client does not want to know any more.
    pub async fn hook(&self, id: &str, request: &Value) -> Value {
        let shared = Arc::clone(&self.0);
        let about = |name: &str| request[name].clone();
        let mut asked = json!({ "request_id": id, "callback_id": about("callback_id") });
        for (name, value) in [
            ("tool_use_id", about("tool_use_id")),
            ("hook_event", request["input"]["hook_event_name"].clone()),
        ] {
            if value.is_string() {
                asked[name] = value;
            }
        }
        let mut waiting = Waiting {
            shared: Arc::clone(&shared),
            id: id.to_owned(),
            told: asked.clone(),
            by: By::Client,
        };
        waiting.told["subtype"] = "hook_callback".into();
        let gates = shared.gates();
        let may = gates.approve && gates.control;
        let answer = may.then(|| shared.state().hooks.open(id)).flatten();
        let is_asked = answer.is_some();
        if is_asked {
            asked["input"] = claude_code::bounded(&request["input"]);
            shared.record(EventKind::HookCallback, asked);
        }
        let answer = answered(answer).await;
        waiting.by = match answer {
            Some(_) => By::Node,
            None if is_asked => By::Timeout,
            None => By::Nobody,
        };
        let answer = answer.unwrap_or_else(|| json!({}));
        waiting.told["response"] = answer.clone();
        answer
    }
}

impl Shared {
    /// Gives the client an answer to a hook.
    pub(crate) fn answer_hook(
        &self,
        id: &str,
        response: Map<String, Value>,
    ) -> Result<(), NodeError> {
        let response = Value::from(response);
        if response.to_string().len() > ANSWER_MAX {
            let why = format!("`response` is longer than {ANSWER_MAX} bytes");
            return Err(NodeError::params(why));
        }
        control::answers(&response)?;
        self.state().hooks.answer(id, response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hook_waits_for_its_first_answer_no_longer_than_it_may_and_not_for_nobody() {
        let mut hooks = Hooks::default();
        assert!(hooks.open("a").is_none());
        hooks.came();
        let answer = hooks.open("a");
        assert!(hooks.answer("b", json!({})).is_err());
        hooks.answer("a", json!({ "continue": true })).unwrap();
        assert!(hooks.answer("a", json!({})).is_err());
        assert_eq!(answered(answer).await, Some(json!({ "continue": true })));
        let answer = hooks.open("late");
        assert!(answer.is_some());
        assert_eq!(answered(answer).await, None);
        assert!(hooks.answer("late", json!({})).is_err());
        let answer = hooks.open("left");
        hooks.came();
        hooks.left();
        assert!(hooks.open.contains_key("left"));
        hooks.left();
        let before = tokio::time::Instant::now();
        assert_eq!(answered(answer).await, None);
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[test]
    fn no_more_wait_than_may() {
        let mut hooks = Hooks::default();
        hooks.came();
        let open: Vec<_> = (0..=OPEN_MAX)
            .map(|id| hooks.open(&id.to_string()))
            .collect();
        assert_eq!(open.iter().flatten().count(), OPEN_MAX);
    }
}
