//! How far a message got, as a list of steps and as a sentence.

use std::collections::BTreeMap;

use peerbus_adapter::{How, Receipt, State, rfc3339};
use peerbus_wire::neutralise;
use serde::Serialize;

use crate::rpc::schemars::{self, JsonSchema};

/// Most steps that are told of one message, and most peers that a sentence names.
const STEPS_MAX: usize = 64;
const NAMES_MAX: usize = 5;
/// Longest word and longest reason that another peer chose, in characters.
const WORD_CHARS: usize = 64;
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
    /// (not proven), `expired`, `dead`, `refused`, `settled`, `unknown`.
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
    /// Why.
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
            note: note(own(), now_ms),
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
        to: receipt.state.to().map(|to| neutralise(to, WORD_CHARS)),
        ..Step::default()
    };
    let word = |text: &str| Some(neutralise(text, WORD_CHARS));
    let why = |text: &str| (!text.is_empty()).then(|| neutralise(text, REASON_CHARS));
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
        State::Held { reason, .. } => {
            step.reason = why(reason);
            "held"
        }
        State::Acked { how, .. } => match how {
            Some(How::Seen { path, evidence }) => {
                (step.path, step.evidence) = (word(path), word(evidence));
                "seen"
            }
            Some(How::Pushed { path }) => {
                step.path = word(path);
                "acked"
            }
            None => "acked",
        },
        State::Expired { reason, .. } => {
            step.reason = why(reason);
            "expired"
        }
        State::Dead { reason, .. } => {
            step.reason = why(reason);
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

fn note<'a>(receipts: impl Iterator<Item = &'a Receipt> + Clone, now_ms: u64) -> String {
    let each = reached(receipts.clone());
    if let Some((_, (_, receipt))) = each.first_key_value().filter(|_| each.len() == 1) {
        return at_one(receipt, now_ms);
    }
    if !each.is_empty() {
        return at_many(&each);
    }
    let (mut recipients, mut settled) = (None, None);
    for receipt in receipts {
        match &receipt.state {
            State::Refused(refusal) => {
                let why = neutralise(&refusal.reason, REASON_CHARS);
                return format!("the broker refused it and queued nothing: {why}");
            }
            State::Accepted { recipients: n, .. } => recipients = Some(*n),
            State::Settled { recipients: n } => settled = Some(*n),
            _ => {}
        }
    }
    match (recipients, settled) {
        (_, Some(_)) => {
            "it is settled: acked or expired; how, the broker does not remember any more".into()
        }
        (Some(0), None) => "accepted, but there was nobody to get it".into(),
        (Some(_), None) => "the broker has it on disk; nothing more is known".into(),
        (None, None) => {
            "the broker knows no message of this sender with this id, or not any more".into()
        }
    }
}

/// The sentence about one recipient.
fn at_one(receipt: &Receipt, now_ms: u64) -> String {
    let safe = |text: &str| neutralise(text, WORD_CHARS);
    let why = |text: &str| neutralise(text, REASON_CHARS);
    let name = safe(receipt.state.to().unwrap_or_default());
    let ago = receipt
        .at_ms
        .map_or(String::new(), |at| format!(" {}", ago(at, now_ms)));
    match &receipt.state {
        State::Queued { .. } => {
            format!("it waits at the broker for {name}; no session of that name has it now")
        }
        State::Delivered { .. } => {
            format!("{name}'s adapter got it{ago} and has not shown it to the model yet")
        }
        State::Pushed { path, .. } => format!(
            "pushed to {name} over {}{ago}; nothing shows that it was read",
            safe(path)
        ),
        State::Presented { path, .. } => format!(
            "its text came into {name}'s conversation{ago}, by {}; no answer of the model after \
             it is known",
            safe(path)
        ),
        State::Held { reason, .. } if reason.is_empty() => {
            format!("it is held back at {name}")
        }
        State::Held { reason, .. } => format!("it is held back at {name}: {}", why(reason)),
        State::Acked { how, .. } => match how {
            Some(How::Seen { path, evidence }) => {
                format!(
                    "{name}'s model has seen it{ago}, by {}, {}",
                    safe(path),
                    shown_by(evidence)
                )
            }
            Some(How::Pushed { path }) => format!(
                "{name} acked it{ago} as pushed over {}; nothing shows that it was read",
                safe(path)
            ),
            None => format!("{name} acked it{ago}; not proven that it was read"),
        },
        State::Expired { reason, .. } => {
            format!("it expired and will not reach {name}: {}", why(reason))
        }
        State::Dead { reason, .. } => {
            format!("it was rejected at {name}: {}", why(reason))
        }
        State::Accepted { .. } | State::Refused(_) | State::Settled { .. } | State::Unknown => {
            String::new()
        }
    }
}

fn shown_by(evidence: &str) -> String {
    match evidence {
        "transcript" => "shown by its transcript".into(),
        "tool_result" => "which read it with a tool".into(),
        "tool_call" => "which named it in a tool call".into(),
        other => format!("shown by {}", neutralise(other, WORD_CHARS)),
    }
}

/// The sentence about several recipients.
fn at_many(each: &BTreeMap<&str, (Reached, &Receipt)>) -> String {
    let mut groups = BTreeMap::<Reached, Vec<&str>>::new();
    for (name, (reached, _)) in each {
        groups.entry(*reached).or_default().push(name);
    }
    let group = |(reached, names): (&Reached, &Vec<&str>)| {
        let what = match reached {
            Reached::Queued => "waits at the broker for",
            Reached::Delivered => "with the adapter of",
            Reached::Pushed => "pushed, and not known to be read, to",
            Reached::Held => "held back at",
            Reached::Presented => "in the conversation, and not known to be read, of",
            Reached::Acked => "acked, not proven, by",
            Reached::Seen => "seen by the model of",
            Reached::Lost => "expired or rejected for",
        };
        format!("{what} {}", listed(names))
    };
    let told: Vec<String> = groups.iter().rev().map(group).collect();
    told.join("; ")
}

fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(NAMES_MAX);
    let shown: Vec<String> = shown.map(|name| neutralise(name, WORD_CHARS)).collect();
    let rest = names.len().saturating_sub(NAMES_MAX);
    match rest {
        0 => shown.join(", "),
        rest => format!("{} and {rest} more", shown.join(", ")),
    }
}

fn ago(at_ms: u64, now_ms: u64) -> String {
    match now_ms.saturating_sub(at_ms) / 1_000 {
        0 => "just now".to_owned(),
        seconds @ 1..120 => format!("{seconds} s ago"),
        seconds @ 120..7_200 => format!("{} min ago", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use peerbus_adapter::{Refusal, RefusalCode};
    use peerbus_wire::MessageId;

    use super::*;

    const NOW: u64 = 1_763_769_640_000;

    fn trail(states: Vec<State>) -> Trail {
        let count = states.len() as u64;
        let receipt = |(n, state): (u64, State)| Receipt {
            id: MessageId::parse("m1").unwrap(),
            state,
            key: None,
            at_ms: Some(NOW - 40_000 - 1_000 * (count - 1 - n)),
        };
        let receipts: Vec<_> = (0..).zip(states).map(receipt).collect();
        Trail::new("m1", &receipts, NOW)
    }

    fn accepted() -> State {
        State::Accepted {
            recipients: 1,
            online: 1,
            duplicate: false,
        }
    }

    fn seen(to: &str, path: &str, evidence: &str) -> State {
        let how = How::Seen {
            path: path.into(),
            evidence: evidence.into(),
        };
        State::Acked {
            to: to.into(),
            how: Some(how),
        }
    }

    /// Checks the sentence, and that nothing is called seen that is not.
    fn says(state: State, sentence: &str) {
        let how = match &state {
            State::Acked { how, .. } => how.as_ref(),
            _ => None,
        };
        let claims = matches!(how, Some(How::Seen { .. }));
        let trail = trail(vec![accepted(), state]);
        assert!(trail.note.starts_with(sentence), "{}", trail.note);
        assert_eq!(trail.note.contains("seen"), claims, "{}", trail.note);
        assert_eq!(trail.steps[1].state == "seen", claims);
    }

    #[test]
    fn the_sentence_says_what_is_known() {
        let to = || "bob".to_owned();
        let path = || "channel".to_owned();
        let held = |reason: &str| State::Held {
            to: to(),
            reason: reason.into(),
        };
        let reason = || "old".to_owned();
        let cases = [
            (
                State::Queued { to: to() },
                "it waits at the broker for bob; no session",
            ),
            (
                State::Delivered { to: to() },
                "bob's adapter got it 40 s ago and has not shown",
            ),
            (
                State::Pushed {
                    to: to(),
                    path: path(),
                },
                "pushed to bob over channel 40 s ago; nothing shows that it was read",
            ),
            (
                State::Presented {
                    to: to(),
                    path: path(),
                },
                "its text came into bob's conversation 40 s ago, by channel; no answer",
            ),
            (
                held("over\nbudget"),
                r"it is held back at bob: over\u000abudget",
            ),
            (held(""), "it is held back at bob"),
            (
                State::Expired {
                    to: to(),
                    reason: reason(),
                },
                "it expired and will not reach bob: old",
            ),
            (
                State::Dead {
                    to: to(),
                    reason: reason(),
                },
                "it was rejected at bob: old",
            ),
        ];
        for (state, sentence) in cases {
            says(state, sentence);
        }
    }

    #[test]
    fn seen_is_said_only_with_evidence() {
        let acked = |how| State::Acked {
            to: "bob".into(),
            how,
        };
        let pushed = How::Pushed {
            path: "channel".into(),
        };
        let cases = [
            (
                seen("bob", "socket", "transcript"),
                "bob's model has seen it 40 s ago, by socket, shown by its transcript",
            ),
            (
                seen("bob", "drain", "tool_result"),
                "bob's model has seen it 40 s ago, by drain, which read it with a tool",
            ),
            (
                acked(Some(pushed)),
                "bob acked it 40 s ago as pushed over channel; nothing shows",
            ),
            (acked(None), "bob acked it 40 s ago; not proven"),
        ];
        for (state, sentence) in cases {
            says(state, sentence);
        }
    }

    #[test]
    fn what_is_about_no_recipient_is_said_too() {
        let refusal = Refusal {
            code: RefusalCode::QueueFull,
            reason: "full".into(),
        };
        for (states, sentence) in [
            (vec![], "the broker knows no message"),
            (vec![State::Unknown], "the broker knows no message"),
            (
                vec![State::Refused(refusal)],
                "the broker refused it and queued nothing: full",
            ),
            (vec![accepted()], "the broker has it on disk"),
            (
                vec![accepted(), State::Settled { recipients: 1 }],
                "it is settled",
            ),
        ] {
            assert!(trail(states).note.starts_with(sentence), "{sentence}");
        }
    }

    #[test]
    fn the_furthest_step_counts() {
        let (to, path) = (|| "bob".to_owned(), || "hook".to_owned());
        let pushed = || State::Pushed {
            to: to(),
            path: path(),
        };
        let presented = || State::Presented {
            to: to(),
            path: path(),
        };
        let held = || State::Held {
            to: to(),
            reason: "asks".into(),
        };
        let note = |states| trail(states).note;
        assert!(note(vec![pushed(), presented(), pushed()]).contains("conversation"));
        assert!(note(vec![pushed(), held()]).contains("asks"));
        assert!(note(vec![held(), pushed()]).starts_with("pushed"));
        assert!(note(vec![seen("bob", "x", "y"), presented()]).contains("seen"));
        let order: Vec<_> = trail(vec![accepted(), pushed()]).steps;
        assert_eq!((order[0].state, order[1].state), ("accepted", "pushed"));
        assert_eq!(order[1].at.as_deref(), Some("2025-11-22T00:00:00.000Z"));
        assert_eq!(order[1].path.as_deref(), Some("hook"));
    }

    #[test]
    fn many_recipients_are_counted_and_peer_text_is_neutralised() {
        let queued = |n: usize| State::Queued {
            to: format!("p{n}"),
        };
        let mut states: Vec<_> = (0..7).map(queued).collect();
        states.push(seen("alice", "socket", "transcript"));
        let all = trail(states);
        assert_eq!(
            all.note,
            "seen by the model of alice; waits at the broker for p0, p1, p2, p3, p4 and 2 more"
        );
        let odd = trail(vec![seen("bob", "<x>\n", "y\u{202e}")]);
        assert!(odd.note.contains(r"\u003cx\u003e\u000a") && odd.note.contains(r"y\u202e"));
        let long = trail((0..80).map(queued).collect());
        assert_eq!(
            (long.steps.len(), long.omitted),
            (STEPS_MAX, 80 - STEPS_MAX)
        );
    }
}
