//! One statement about one message.

use serde::{Deserialize, Serialize};

use crate::ids::MessageId;
use crate::limits::REASON_BYTES_MAX;
use crate::stage::{How, Stage, claim};
use crate::text::cut;

/// What became of a message at the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamItem {
    /// The message,
    pub told: Told,
    /// and how far it is: what it may be about one recipient, `settled` or `unknown`.
    pub stage: Stage,
}

/// Which statement it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    /// The message's number at home; 0 when the other side does not know it (any more).
    pub number: u64,
    /// The message's id; `None` when it could not be read. One of the two is there.
    pub id: Option<MessageId>,
    /// When it came to be, by the clock over there, in milliseconds since the epoch; 0: not known.
    pub at_ms: u64,
    /// It is about the message's end: nothing more comes of it.
    pub end: bool,
}

impl StreamItem {
    /// What became of the message of this number and id.
    #[must_use]
    pub fn new(number: u64, id: Option<MessageId>, at_ms: u64, stage: Stage) -> Self {
        let end = ends(&stage);
        let told = Told {
            number,
            id,
            at_ms,
            end,
        };
        Self { told, stage }
    }
}

/// Whether nothing more comes of a message that is so far.
fn ends(stage: &Stage) -> bool {
    stage.is_final() || matches!(stage, Stage::Settled { .. } | Stage::Unknown)
}

/// The JSON of an [`StreamItem`], or of a [`Told`], which has no `state`.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub(super) struct Flat {
    #[serde(rename = "n", skip_serializing_if = "is_zero")]
    number: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    id: String,
    #[serde(skip_serializing_if = "is_zero")]
    at: u64,
    #[serde(skip_serializing_if = "super::is_false")]
    end: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    how: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    evidence: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Flat {
    pub(super) fn told(told: &Told) -> Self {
        Self {
            number: told.number,
            id: told
                .id
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            at: told.at_ms,
            end: told.end,
            ..Self::default()
        }
    }

    pub(super) fn of(item: &StreamItem) -> Self {
        let mut flat = Self {
            state: item.stage.word().to_owned(),
            end: false,
            ..Self::told(&item.told)
        };
        match &item.stage {
            Stage::Pushed { path } | Stage::Presented { path } => flat.path = claim(path),
            Stage::Held { why } | Stage::Expired { why } | Stage::Dead { why } => {
                flat.reason = cut(why, REASON_BYTES_MAX).into_owned();
            }
            Stage::Acked(Some(How::Pushed { path })) => {
                "pushed".clone_into(&mut flat.how);
                flat.path = claim(path);
            }
            Stage::Acked(Some(How::Seen { path, evidence })) => {
                "seen".clone_into(&mut flat.how);
                flat.path = claim(path);
                flat.evidence = claim(evidence);
            }
            _ => {}
        }
        flat
    }

    pub(super) fn as_told(&self) -> Option<Told> {
        let id = match &*self.id {
            "" => None,
            id => Some(MessageId::parse(id).ok()?),
        };
        (self.number > 0 || id.is_some()).then_some(Told {
            number: self.number,
            id,
            at_ms: self.at,
            end: self.end,
        })
    }

    /// `None` when it breaks a rule.
    pub(super) fn item(&self) -> Option<StreamItem> {
        let part = |text: &str| (!text.is_empty()).then(|| claim(text));
        let why = || cut(&self.reason, REASON_BYTES_MAX).into_owned();
        let path = || part(&self.path);
        let stage = match &*self.state {
            "delivered" => Stage::Delivered,
            "pushed" => Stage::Pushed { path: path()? },
            "presented" => Stage::Presented { path: path()? },
            "held" => Stage::Held { why: why() },
            "acked" => Stage::Acked(match &*self.how {
                "pushed" => Some(How::Pushed { path: path()? }),
                "seen" => Some(How::Seen {
                    path: path()?,
                    evidence: part(&self.evidence)?,
                }),
                _ => None,
            }),
            "expired" => Stage::Expired { why: why() },
            "dead" => Stage::Dead { why: why() },
            "settled" => Stage::Settled { recipients: 1 },
            "unknown" => Stage::Unknown,
            _ => return None,
        };
        let told = self.as_told()?;
        Some(StreamItem::new(told.number, told.id, told.at_ms, stage))
    }
}

/// The JSON of a message that is asked about.
#[derive(Serialize, Deserialize)]
pub(super) struct Asked {
    n: u64,
    id: String,
}

impl Asked {
    pub(super) fn of((number, id): &(u64, MessageId)) -> Self {
        Self {
            n: *number,
            id: id.to_string(),
        }
    }

    pub(super) fn read(&self) -> Option<(u64, MessageId)> {
        let id = MessageId::parse(&self.id).ok()?;
        (self.n > 0).then_some((self.n, id))
    }
}
