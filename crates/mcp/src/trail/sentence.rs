//! How far a message got, as a sentence.

use std::collections::BTreeMap;

use peerbus_adapter::{How, Receipt, State};
use peerbus_wire::neutralise;

use crate::text::{says, word};

use super::{NAME_CHARS, REASON_CHARS, Reached, reached};

/// Most peers that a sentence names.
const NAMES_MAX: usize = 5;

/// The sentence about a message whose receipts these are, in order of time.
pub(super) fn of<'a>(receipts: impl Iterator<Item = &'a Receipt> + Clone, now_ms: u64) -> String {
    let each = reached(receipts.clone());
    if let Some((_, (_, receipt))) = each.first_key_value().filter(|_| each.len() == 1) {
        let here = |receipt: &Receipt| matches!(receipt.state, State::Accepted { online: 1.., .. });
        let queued = matches!(receipt.state, State::Queued { .. });
        if queued && receipts.clone().any(here) {
            return queued_behind(receipt);
        }
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

/// The sentence about a recipient that is connected and is not given the message yet.
fn queued_behind(receipt: &Receipt) -> String {
    let name = neutralise(receipt.state.to().unwrap_or_default(), NAME_CHARS);
    format!(
        "it waits at the broker for {name}; {name} is connected, its window is full or older mail \
         goes first"
    )
}

/// The sentence about one recipient.
fn at_one(receipt: &Receipt, now_ms: u64) -> String {
    let safe = |text: &str| neutralise(text, NAME_CHARS);
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
            word(path)
        ),
        State::Presented { path, .. } => format!(
            "its text came into {name}'s conversation{ago}, by {}; no answer of the model after \
             it is known",
            word(path)
        ),
        State::Held { to, reason } => {
            format!("it is held back at {name}: {}", says(to, reason))
        }
        State::Acked { how, .. } => match how {
            Some(How::Seen { path, evidence }) => {
                format!(
                    "{name}'s model has seen it{ago}, by {}, {}",
                    word(path),
                    shown_by(evidence)
                )
            }
            Some(How::Pushed { path }) => format!(
                "{name} acked it{ago} as pushed over {}; nothing shows that it was read",
                word(path)
            ),
            None => format!("{name} acked it{ago}; not proven that it was read"),
        },
        State::Expired { reason, .. } => {
            format!("it expired and will not reach {name}: {}", why(reason))
        }
        State::Dead { to, reason } => {
            format!("it was rejected at {name}: {}", says(to, reason))
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
        other => format!("shown by {}", word(other)),
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
    let shown: Vec<String> = shown.map(|name| neutralise(name, NAME_CHARS)).collect();
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
