//! How far a message got, as a list of steps and as a sentence.

mod sentence;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use peerbus_adapter::{How, Receipt, State, rfc3339};
use peerbus_wire::neutralise;
use serde::Serialize;

use crate::rpc::schemars::{self, JsonSchema};
use crate::text;

/// Most steps that are told of one message.
const STEPS_MAX: usize = 64;
/// Longest name and longest reason, in characters.
const NAME_CHARS: usize = 64;
const REASON_CHARS: usize = 300;

/// What is known of a message's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Trail {
    /// The message's id.
    pub id: String,
    /// What happened, in order.
    pub steps: Vec<Step>,
    /// So many later steps are left out.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(with = "u32")]
    pub omitted: usize,
    /// The same as a sentence.
    pub note: String,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Step {
    /// When, by the broker's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub at: Option<String>,
    /// What: `accepted`, `queued`, `delivered`, `pushed`, `presented`, `held`, `seen`, `acked`
    /// (by what, its peer does not say), `expired`, `dead`, `refused`, `settled`, `unknown`.
    pub state: &'static str,
    /// At whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub to: Option<String>,
    /// By which path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub path: Option<String>,
    /// What shows that it was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub evidence: Option<String>,
    /// Why. What a peer says of it stands in quotes: untrusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub reason: Option<String>,
    /// How many peers it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub recipients: Option<u32>,
}

/// How far a message got at one recipient, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// It waits at the broker.
    Queued,
    /// An adapter has it.
    Delivered,
    /// Handed to the agent's runtime.
    Pushed,
    /// Held back there.
    Held,
    /// In the agent's conversation.
    Presented,
    /// Done with, and nothing shows that it was read.
    Acked,
    /// The model got it.
    Seen,
    /// It will not arrive.
    Lost,
}

impl Trail {
    /// Puts together what the broker said of the message `id`, in order of time. `now_ms`: the
    /// wall clock.
    #[must_use]
    pub fn new(id: &str, receipts: &[Receipt], now_ms: u64) -> Self {
        let own = || receipts.iter().filter(|receipt| receipt.id.as_str() == id);
        let total = own().count();
        Self {
            id: id.to_owned(),
            steps: own().take(STEPS_MAX).map(step).collect(),
            omitted: total.saturating_sub(STEPS_MAX),
            note: sentence::of(own(), now_ms),
        }
    }

    /// When the broker says nothing of the message `id`, for the reason in `note`.
    pub(crate) fn unknown(id: &str, note: String) -> Self {
        Self {
            id: id.to_owned(),
            steps: Vec::new(),
            omitted: 0,
            note,
        }
    }
}

/// How far a message got at each of its recipients, and the receipt that says so. `receipts` are in
/// order of time.
pub fn reached<'a>(
    receipts: impl Iterator<Item = &'a Receipt>,
) -> BTreeMap<&'a str, (Reached, &'a Receipt)> {
    let mut all = BTreeMap::<&str, (Reached, &Receipt)>::new();
    for receipt in receipts {
        let (Some(to), Some(now)) = (receipt.state.to(), of(&receipt.state)) else {
            continue;
        };
        let better = match all.get(to) {
            None => true,
            // The client's user may be asked after the push, and decide before another one.
            Some((Reached::Pushed | Reached::Held, _)) => now >= Reached::Pushed,
            Some((before, _)) => now >= *before,
        };
        if better {
            all.insert(to, (now, receipt));
        }
    }
    all
}

fn of(state: &State) -> Option<Reached> {
    Some(match state {
        State::Queued { .. } => Reached::Queued,
        State::Delivered { .. } => Reached::Delivered,
        State::Pushed { .. } => Reached::Pushed,
        State::Held { .. } => Reached::Held,
        State::Presented { .. } => Reached::Presented,
        State::Acked { how, .. } => match how {
            Some(How::Seen { .. }) => Reached::Seen,
            Some(How::Pushed { .. }) | None => Reached::Acked,
        },
        State::Expired { .. } | State::Dead { .. } => Reached::Lost,
        State::Accepted { .. } | State::Refused(_) | State::Settled { .. } | State::Unknown => {
            return None;
        }
    })
}

fn step(receipt: &Receipt) -> Step {
    let mut step = Step {
        at: receipt.at_ms.map(rfc3339),
        to: receipt.state.to().map(|to| neutralise(to, NAME_CHARS)),
        ..Step::default()
    };
    let word = |text: &str| Some(text::word(text).to_owned());
    let why = |text: &str| (!text.is_empty()).then(|| neutralise(text, REASON_CHARS));
    let said = |to: &str, text: &str| (!text.is_empty()).then(|| text::says(to, text));
    step.state = match &receipt.state {
        State::Accepted { recipients, .. } => {
            step.recipients = Some(*recipients);
            "accepted"
        }
        State::Refused(refusal) => {
            step.reason = why(&refusal.reason);
            "refused"
        }
        State::Queued { .. } => "queued",
        State::Delivered { .. } => "delivered",
        State::Pushed { path, .. } => {
            step.path = word(path);
            "pushed"
        }
        State::Presented { path, .. } => {
            step.path = word(path);
            "presented"
        }
        State::Held { to, reason } => {
            step.reason = said(to, reason);
            "held"
        }
        State::Acked { how, .. } => match how {
            Some(How::Seen { path, evidence }) => {
                (step.path, step.evidence) = (word(path), word(evidence));
                "seen"
            }
            Some(How::Pushed { path }) => {
                step.path = word(path);
                "pushed"
            }
            None => "acked",
        },
        State::Expired { reason, .. } => {
            step.reason = why(reason);
            "expired"
        }
        State::Dead { to, reason } => {
            step.reason = said(to, reason);
            "dead"
        }
        State::Settled { recipients } => {
            step.recipients = Some(*recipients);
            "settled"
        }
        State::Unknown => "unknown",
    };
    step
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
