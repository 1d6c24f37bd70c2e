//! How far a message got, as a list of steps and as a sentence.

pub(crate) mod sentence;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use peerbus_wire::{
    Accepted, How, MessageId, PeerName, Receipt, Refusal, Stage, escape, from_rfc3339, rfc3339,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::about::Around;
use crate::text::{self, NAME_CHARS, REASON_CHARS};

/// Most steps that are told of one message.
const STEPS_MAX: usize = 64;
/// The word for what a user let go on, with which the reason of its stage begins, too.
const RELEASED: &str = "released";

/// What is known of a message's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Trail {
    /// The message's id.
    pub id: String,
    /// What happened, in order.
    pub steps: Vec<Step>,
    /// So many later steps are left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted: usize,
    /// The same as a sentence.
    pub note: String,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// When, by the broker's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// What: `accepted`, `queued`, `forwarded` (to another domain), `delivered`, `pushed`, `presented`, `held`, `released` (by its user), `seen`, `acked`
    /// (nothing that is known here shows that it was seen), `expired`, `dead`, `refused`, `settled`, `unknown`;
    /// of a request that was read `owed`, `working`, and as it ends `done`, `failed`, `declined`, `withdrawn`,
    /// `unanswered`.
    pub state: Cow<'static, str>,
    /// At whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// By which path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What shows that it was seen; in quotes, what its peer says of that: untrusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// Why. What a peer says of it stands in quotes: untrusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many peers it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipients: Option<u32>,
    /// The id of the message that is the result of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
}

impl Trail {
    /// Puts together what the broker said of the message `id`, in order of time. `now_ms`: the
    /// wall clock.
    #[must_use]
    pub fn new(id: &str, receipts: &[Receipt], now_ms: u64) -> Self {
        Self::among(id, receipts, Around::alone(now_ms))
    }

    /// As [`Trail::new`], with what the list of peers tells: who of those that have not acked the
    /// message waits for its user or has no adapter, and whether the domain to which it goes can be
    /// reached.
    #[must_use]
    pub fn among(id: &str, receipts: &[Receipt], around: Around<'_>) -> Self {
        let own = || receipts.iter().filter(|receipt| receipt.id.as_str() == id);
        let note = sentence::of(own(), around);
        Self::of(id.to_owned(), own().map(Step::from).collect(), note)
    }

    /// As many of the steps as are told.
    pub(crate) fn of(id: String, mut steps: Vec<Step>, note: String) -> Self {
        let omitted = steps.len().saturating_sub(STEPS_MAX);
        steps.truncate(STEPS_MAX);
        Self {
            id,
            steps,
            omitted,
            note,
        }
    }

    /// When the broker says nothing of the message `id`, for the reason in `note`.
    #[must_use]
    pub fn unknown(id: &str, note: String) -> Self {
        Self::of(id.to_owned(), Vec::new(), note)
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
            // The session that had it is gone, and another one may have it; a request that was read,
            // too.
            Some(before) if matches!(now, Stage::Queued | Stage::Delivered) => {
                let went_on = matches!(before, Stage::Delivered | Stage::Acked(_) | Stage::Owed);
                went_on || before.is_progress() || now.rank() >= before.rank()
            }
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

/// Whether it is proven that each of its recipients has seen a message; of a request, whatever became
/// of it then.
#[must_use]
pub fn is_seen(receipts: &[Receipt]) -> bool {
    let proven = |to: &str| {
        let mut here = receipts.iter().filter(|it| it.to.as_deref() == Some(to));
        here.any(|receipt| text::is_proven(&receipt.stage))
    };
    let mut each = reached(receipts.iter());
    each.retain(|_, receipt| !matches!(receipt.stage, Stage::Recalled { .. }));
    !each.is_empty() && each.into_keys().all(proven)
}

/// Whether the list of peers may say more of a message: somebody has it; or it waits for its recipient, who may be stopped or in another domain.
#[must_use]
pub fn depends_on_peers(id: &str, receipts: &[Receipt]) -> bool {
    let own = || receipts.iter().filter(|receipt| receipt.id.as_str() == id);
    let far = |name: &str| PeerName::parse(name).is_ok_and(|name| name.address().is_some());
    let waits = |(name, receipt): (&str, &Receipt)| {
        receipt.stage == Stage::Queued || far(name) && !receipt.stage.is_final()
    };
    !open(own()).is_empty() || reached(own()).into_iter().any(waits)
}

/// Those that have it, and may have more to say of it.
pub(crate) fn open<'a>(
    receipts: impl Iterator<Item = &'a Receipt>,
) -> BTreeMap<&'a str, &'a Receipt> {
    let mut each = reached(receipts);
    each.retain(|_, receipt| match &receipt.stage {
        Stage::Delivered | Stage::Pushed { .. } | Stage::Presented { .. } => true,
        stage => matches!(stage, Stage::Acked(_) | Stage::Owed | Stage::Working { .. }),
    });
    each
}

/// A stage taken apart: its word, and what is said beside it, as its peer or the broker wrote it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Words<'a> {
    /// The word of [`Step::state`].
    pub state: &'static str,
    /// By which path.
    pub path: Option<&'a str>,
    /// What shows that it was seen, which may be [no proof](text::proof).
    pub evidence: Option<&'a str>,
    /// Why; never empty.
    pub reason: Option<&'a str>,
    /// How many peers it is about.
    pub recipients: Option<u32>,
    /// The message that is the result.
    pub reply: Option<&'a str>,
}

impl<'a> Words<'a> {
    /// Takes a stage apart.
    #[must_use]
    pub fn of(stage: &'a Stage) -> Self {
        let words = Self {
            state: match is_released(stage) {
                true => RELEASED,
                false => stage.word(),
            },
            ..Self::default()
        };
        match stage {
            Stage::Accepted(Accepted { recipients, .. }) | Stage::Settled { recipients } => Self {
                recipients: Some(*recipients),
                ..words
            },
            Stage::Refused(Refusal { reason, .. })
            | Stage::Held { why: reason }
            | Stage::Recalled { why: reason }
            | Stage::Working { said: reason }
            | Stage::Expired { why: reason }
            | Stage::Dead { why: reason }
            | Stage::Declined { why: reason }
            | Stage::Unanswered { why: reason } => Self {
                reason: Some(reason.as_str()).filter(|reason| !reason.is_empty()),
                ..words
            },
            Stage::Pushed { path } | Stage::Presented { path } => Self {
                path: Some(path),
                ..words
            },
            Stage::Acked(Some(How::Pushed { path })) => Self {
                state: "pushed",
                path: Some(path),
                ..words
            },
            Stage::Acked(Some(How::Seen { path, evidence })) => Self {
                state: text::proof(evidence).map_or(words.state, |_| "seen"),
                path: Some(path),
                evidence: Some(evidence),
                ..words
            },
            Stage::Done { reply } | Stage::Failed { reply } => Self {
                reply: Some(reply.as_str()),
                ..words
            },
            Stage::Acked(None)
            | Stage::Queued
            | Stage::Forwarded
            | Stage::Delivered
            | Stage::Owed
            | Stage::Withdrawn
            | Stage::Unknown => words,
        }
    }
}

/// Whether the user of a recipient has let go on what was held there, as that says it.
pub(crate) fn is_released(stage: &Stage) -> bool {
    let says = |why: &str| {
        why.strip_prefix(RELEASED)
            .is_some_and(|rest| rest.starts_with(':'))
    };
    matches!(stage, Stage::Held { why } if says(why))
}

/// The word of lists for where a message is. `seen`: it is proven that the model there has seen it.
pub(crate) fn word(stage: &Stage, seen: bool) -> &'static str {
    match stage {
        Stage::Owed | Stage::Acked(_) if seen => "seen",
        Stage::Owed => Words::of(&Stage::Acked(None)).state,
        // The governor's own word for it.
        Stage::Held { why } if why.starts_with("paused: ") => "paused",
        stage => Words::of(stage).state,
    }
}

/// What became of a message, as a sentence to its sender; `None` for progress as expected.
#[must_use]
pub fn fate(receipt: &Receipt) -> Option<String> {
    let Step { to, reason, .. } = receipt.into();
    let (id, to) = (&receipt.id, to.unwrap_or_default());
    let what = match &receipt.stage {
        Stage::Accepted(Accepted { recipients, .. }) => {
            return Some(format!(
                "your message {id}, of which it was not known, was accepted by the broker \
                 ({recipients} recipients)"
            ));
        }
        Stage::Refused(_) => " was refused by the broker and is not queued".to_owned(),
        Stage::Expired { .. } => format!(" to {to} expired and will not be delivered"),
        Stage::Dead { .. } => format!(" to {to} was not shown there and will not be"),
        stage if is_released(stage) => return None,
        Stage::Held { .. } => format!(" to {to} waits there"),
        Stage::Recalled { .. } => {
            format!(", which one of its group gets, is not with {to} any more")
        }
        Stage::Working { .. } => format!(" to {to} is being worked at"),
        Stage::Declined { .. } => format!(" to {to} was declined and will have no result"),
        Stage::Unanswered { .. } => format!(" to {to} has no result, and none is waited for"),
        // Else its result comes as a message.
        Stage::Done { reply } | Stage::Failed { reply } if receipt.key.is_some() => {
            format!(
                " to {to} was answered, and the answer found no room here: it is kept as {reply}"
            )
        }
        _ => return None,
    };
    let is_a_peers = matches!(
        receipt.stage,
        Stage::Dead { .. } | Stage::Held { .. } | Stage::Declined { .. }
    );
    let why = reason.or_else(|| is_a_peers.then(|| text::says(&to, "")));
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!("your message {id}{what}{why}"))
}

/// The stage at one recipient that an event tells in the words of [`Words`], given its members. What is proven
/// may be called `seen`.
#[must_use]
pub fn stage_of(member: impl Fn(&str) -> String) -> Option<Stage> {
    let (path, why) = (member("path"), member("reason"));
    let reply = || MessageId::parse(&member("reply")).ok();
    Some(match member("stage").as_str() {
        "pushed" => Stage::Pushed { path },
        "presented" => Stage::Presented { path },
        "held" | RELEASED => Stage::Held { why },
        "seen" => Stage::Acked(Some(How::Seen {
            path,
            evidence: member("evidence"),
        })),
        "acked" if path.is_empty() => Stage::Acked(None),
        "acked" => Stage::Acked(Some(How::Pushed { path })),
        "expired" => Stage::Expired { why },
        "dead" => Stage::Dead { why },
        "working" => Stage::Working { said: why },
        "declined" => Stage::Declined { why },
        "withdrawn" => Stage::Withdrawn,
        "unanswered" => Stage::Unanswered { why },
        "done" => Stage::Done { reply: reply()? },
        "failed" => Stage::Failed { reply: reply()? },
        _ => return None,
    })
}

/// What a receipt says, made fit to be shown.
impl From<&Receipt> for Step {
    fn from(receipt: &Receipt) -> Self {
        let words = Words::of(&receipt.stage);
        let peer = receipt.to.as_deref().unwrap_or_default();
        Step {
            at: receipt.at_ms.map(rfc3339),
            state: words.state.into(),
            to: receipt.to.as_deref().map(|to| escape(to, NAME_CHARS)),
            path: words.path.map(|path| text::word(path).to_owned()),
            evidence: words.evidence.map(|evidence| match text::proof(evidence) {
                Some(_) => evidence.to_owned(),
                None => text::says(peer, evidence),
            }),
            reason: words.reason.map(|why| match &receipt.stage {
                Stage::Held { .. } | Stage::Working { .. } | Stage::Declined { .. } => {
                    text::says(peer, why)
                }
                Stage::Dead { .. } => text::rejected(peer, why),
                Stage::Recalled { .. } | Stage::Unanswered { .. } => text::of_broker(peer, why),
                _ => escape(why, REASON_CHARS),
            }),
            recipients: words.recipients,
            reply: words.reply.map(str::to_owned),
        }
    }
}

impl Step {
    /// When, in milliseconds since the epoch.
    #[must_use]
    pub fn at_ms(&self) -> Option<u64> {
        from_rfc3339(self.at.as_deref()?)
    }

    /// Its word as lists of messages have it: what the governor keeps is paused.
    #[must_use]
    pub fn word(&self) -> &str {
        let why = self.reason.as_deref().filter(|_| self.state == "held");
        let said = why.and_then(|why| Some(why.split_once(" says: \"")?.1));
        match said.is_some_and(|said| said.starts_with("paused: ")) {
            true => "paused",
            false => &self.state,
        }
    }

    /// What is said beside the word, part by part: by which path, what shows it, why, of how many.
    pub fn how(&self) -> impl Iterator<Item = String> {
        let path = self.path.as_deref().map(|path| format!("by {path}"));
        let evidence = self.evidence.as_deref().map(|what| format!("({what})"));
        let recipients = self.recipients.map(|count| match count {
            1 => "1 recipient".to_owned(),
            count => format!("{count} recipients"),
        });
        let reply = self.reply.as_deref().map(|id| format!("message {id}"));
        [path, evidence, self.reason.clone(), recipients, reply]
            .into_iter()
            .flatten()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
