//! How far a message got, as a list of steps and as a sentence.

mod sentence;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use peerbus_wire::{How, PeerEntry, PeerName, Receipt, Stage, escape, rfc3339};
use schemars::JsonSchema;
use serde::Serialize;

use crate::about::About;
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
    /// What: `accepted`, `queued`, `forwarded` (to another domain), `delivered`, `pushed`, `presented`, `held`, `seen`, `acked`
    /// (nothing that is known here shows that it was seen), `expired`, `dead`, `refused`, `settled`, `unknown`.
    pub state: &'static str,
    /// At whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub to: Option<String>,
    /// By which path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub path: Option<String>,
    /// What shows that it was seen; in quotes, what its peer says of that: untrusted.
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

impl Trail {
    /// Puts together what the broker said of the message `id`, in order of time. `now_ms`: the
    /// wall clock.
    #[must_use]
    pub fn new(id: &str, receipts: &[Receipt], now_ms: u64) -> Self {
        Self::among(id, receipts, now_ms, &[])
    }

    /// As [`Trail::new`], with what the list of peers tells: who of those that have not acked the
    /// message waits for its user or has no adapter, and whether the domain to which it goes can be
    /// reached.
    #[must_use]
    pub fn among(id: &str, receipts: &[Receipt], now_ms: u64, peers: &[PeerEntry]) -> Self {
        let own = || receipts.iter().filter(|receipt| receipt.id.as_str() == id);
        let total = own().count();
        let open = open(own());
        let open = peers.iter().filter(|peer| open.contains(&peer.name));
        let waits = open
            .map(About::new)
            .filter(|peer| peer.activity == Some("waiting"));
        let waits: Vec<About> = waits.collect();
        let note = sentence::of(own(), now_ms, peers) + &sentence::waiting(&waits);
        Self {
            id: id.to_owned(),
            steps: own().take(STEPS_MAX).map(step).collect(),
            omitted: total.saturating_sub(STEPS_MAX),
            note,
        }
    }

    /// When the broker says nothing of the message `id`, for the reason in `note`.
    #[must_use]
    pub fn unknown(id: &str, note: String) -> Self {
        Self {
            id: id.to_owned(),
            steps: Vec::new(),
            omitted: 0,
            note,
        }
    }
}

/// What says how far a message got at each of its recipients. `receipts` are in order of time.
pub fn reached<'a>(receipts: impl Iterator<Item = &'a Receipt>) -> BTreeMap<&'a str, &'a Receipt> {
    let mut all = BTreeMap::<&str, &Receipt>::new();
    for receipt in receipts {
        let Some(to) = receipt.to.as_deref() else {
            continue;
        };
        let (now, before) = (&receipt.stage, all.get(to).map(|before| &before.stage));
        let later = match before {
            None => true,
            // It was passed on, or has come back.
            Some(Stage::Recalled { .. }) => true,
            _ if matches!(now, Stage::Recalled { .. }) => true,
            // The client's user may be asked after the push, and decide before another one.
            Some(Stage::Pushed { .. } | Stage::Held { .. }) => now.is_progress() || now.is_final(),
            Some(before) => now.rank() >= before.rank(),
        };
        if later {
            all.insert(to, receipt);
        }
    }
    all
}

/// Whether the list of peers may say more of a message: somebody has it and has not acked it, or it
/// is not at its recipient yet, who may be in another domain.
#[must_use]
pub fn depends_on_peers(id: &str, receipts: &[Receipt]) -> bool {
    let own = || receipts.iter().filter(|receipt| receipt.id.as_str() == id);
    let far = |name: &str| PeerName::parse(name).is_ok_and(|name| name.address().is_some());
    let mut each = reached(own()).into_iter();
    !open(own()).is_empty() || each.any(|(name, receipt)| far(name) && !receipt.stage.is_final())
}

/// Those that have it and have not acked it.
fn open<'a>(receipts: impl Iterator<Item = &'a Receipt>) -> Vec<String> {
    let has = |stage: &Stage| {
        matches!(
            stage,
            Stage::Delivered | Stage::Pushed { .. } | Stage::Presented { .. }
        )
    };
    let each = reached(receipts).into_iter();
    each.filter(|(_, receipt)| has(&receipt.stage))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn step(receipt: &Receipt) -> Step {
    let mut step = Step {
        at: receipt.at_ms.map(rfc3339),
        state: receipt.stage.word(),
        to: receipt.to.as_deref().map(|to| escape(to, NAME_CHARS)),
        ..Step::default()
    };
    let peer = receipt.to.as_deref().unwrap_or_default();
    let word = |text: &str| Some(text::word(text).to_owned());
    let why = |text: &str| (!text.is_empty()).then(|| escape(text, REASON_CHARS));
    match &receipt.stage {
        Stage::Accepted(accepted) => step.recipients = Some(accepted.recipients),
        Stage::Settled { recipients } => step.recipients = Some(*recipients),
        Stage::Refused(refusal) => step.reason = why(&refusal.reason),
        Stage::Recalled { why: reason } | Stage::Expired { why: reason } => {
            step.reason = why(reason);
        }
        Stage::Held { why: said } => {
            step.reason = (!said.is_empty()).then(|| text::says(peer, said));
        }
        Stage::Dead { why: said } => {
            step.reason = (!said.is_empty()).then(|| text::rejected(peer, said));
        }
        Stage::Pushed { path } | Stage::Presented { path } => step.path = word(path),
        Stage::Acked(Some(How::Seen { path, evidence })) => {
            step.path = word(path);
            step.evidence = Some(match text::proof(evidence) {
                Some(_) => {
                    step.state = "seen";
                    evidence.clone()
                }
                None => text::says(peer, evidence),
            });
        }
        Stage::Acked(Some(How::Pushed { path })) => {
            (step.state, step.path) = ("pushed", word(path))
        }
        Stage::Acked(None)
        | Stage::Queued
        | Stage::Forwarded
        | Stage::Delivered
        | Stage::Unknown => {}
    }
    step
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
