//! One statement about one message.

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::ids::MessageId;
use crate::limits::REASON_BYTES_MAX;
use crate::stage::{How, Stage, claim};
use crate::text::cut;

/// What became of a message at the other side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Flat", try_from = "Flat")]
pub struct StreamItem {
    /// The message,
    pub told: Told,
    /// and how far it is: what it may be about one recipient, `settled` or `unknown`.
    pub stage: Stage,
}

/// Which statement it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Told {
    /// The message's number at home; 0 when the other side does not know it (any more).
    #[serde(rename = "n", skip_serializing_if = "is_default")]
    pub number: u64,
    /// The message's id; `None` when it could not be read. One of the two is there.
    #[serde(skip_serializing_if = "is_default")]
    pub id: Option<MessageId>,
    /// When it came to be, by the clock over there, in milliseconds since the epoch; 0: not known.
    #[serde(rename = "at", skip_serializing_if = "is_default")]
    pub at_ms: u64,
    /// It is about the message's end: nothing more comes of it.
    #[serde(skip_serializing_if = "is_default")]
    pub end: bool,
}

/// A message of which it is asked what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inquiry {
    /// Its number at home, at least 1.
    #[serde(rename = "n")]
    pub number: u64,
    /// Its id.
    pub id: MessageId,
}

impl StreamItem {
    /// What became of the message of this number and id.
    #[must_use]
    pub fn new(number: u64, id: Option<MessageId>, at_ms: u64, stage: Stage) -> Self {
        // Nothing more comes of one that is so far.
        let end = stage.is_final() || matches!(stage, Stage::Settled { .. } | Stage::Unknown);
        let told = Told {
            number,
            id,
            at_ms,
            end,
        };
        Self { told, stage }
    }
}

impl Told {
    /// Whether it says which message it is about.
    pub(super) fn is_named(&self) -> bool {
        self.number > 0 || self.id.is_some()
    }
}

/// The JSON of a [`StreamItem`].
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct Flat {
    #[serde(flatten)]
    told: Told,
    state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    how: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    evidence: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// What it is of a request: an older bridge reads `state` alone.
    #[serde(rename = "as", skip_serializing_if = "String::is_empty")]
    of_request: String,
}

impl From<StreamItem> for Flat {
    fn from(StreamItem { told, stage }: StreamItem) -> Self {
        let (state, of_request) = match &stage {
            Stage::Working { .. } => ("held", stage.word()),
            Stage::Declined { .. } => ("dead", stage.word()),
            Stage::Unanswered { .. } => ("expired", stage.word()),
            _ => (stage.word(), ""),
        };
        let mut flat = Self {
            told: Told { end: false, ..told },
            state: state.to_owned(),
            of_request: of_request.to_owned(),
            ..Self::default()
        };
        match stage {
            Stage::Pushed { path } | Stage::Presented { path } => flat.path = claim(&path),
            Stage::Held { why }
            | Stage::Working { said: why }
            | Stage::Expired { why }
            | Stage::Dead { why }
            | Stage::Declined { why }
            | Stage::Unanswered { why } => {
                flat.reason = cut(&why, REASON_BYTES_MAX).into_owned();
            }
            Stage::Acked(Some(How::Pushed { path })) => {
                "pushed".clone_into(&mut flat.how);
                flat.path = claim(&path);
            }
            Stage::Acked(Some(How::Seen { path, evidence })) => {
                "seen".clone_into(&mut flat.how);
                flat.path = claim(&path);
                flat.evidence = claim(&evidence);
            }
            _ => {}
        }
        flat
    }
}

impl TryFrom<Flat> for StreamItem {
    type Error = &'static str;

    fn try_from(flat: Flat) -> Result<Self, Self::Error> {
        const ODD: &str = "it breaks a rule";
        let part = |text: &str| (!text.is_empty()).then(|| claim(text)).ok_or(ODD);
        let why = || cut(&flat.reason, REASON_BYTES_MAX).into_owned();
        let path = || part(&flat.path);
        let stage = match (&*flat.of_request, &*flat.state) {
            ("working", _) => Stage::Working { said: why() },
            ("declined", _) => Stage::Declined { why: why() },
            ("unanswered", _) => Stage::Unanswered { why: why() },
            (_, "delivered") => Stage::Delivered,
            (_, "pushed") => Stage::Pushed { path: path()? },
            (_, "presented") => Stage::Presented { path: path()? },
            (_, "held") => Stage::Held { why: why() },
            (_, "acked") => Stage::Acked(match &*flat.how {
                "pushed" => Some(How::Pushed { path: path()? }),
                "seen" => Some(How::Seen {
                    path: path()?,
                    evidence: part(&flat.evidence)?,
                }),
                _ => None,
            }),
            (_, "expired") => Stage::Expired { why: why() },
            (_, "dead") => Stage::Dead { why: why() },
            (_, "settled") => Stage::Settled { recipients: 1 },
            (_, "unknown") => Stage::Unknown,
            _ => return Err(ODD),
        };
        let told = flat.told;
        Ok(Self::new(told.number, told.id, told.at_ms, stage))
    }
}
