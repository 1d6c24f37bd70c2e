//! How far a message got: one word for it on the wire and everywhere else.

use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as NoWord, StrDeserializer};
use serde::{Deserialize, Serialize};

use crate::ids::{DeliveryKey, MessageId};
use crate::json::Raw;
use crate::limits::{HOW_BYTES_MAX, REASON_BYTES_MAX};
use crate::members::{Member, Members};
use crate::text::cut;
use crate::writer::Writer;

/// How far a message got, at its broker or at one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The broker has it on disk.
    Accepted(Accepted),
    /// The broker did not take it; nothing was queued.
    Refused(Refusal),
    /// Still owed to the recipient, which does not hold it now.
    Queued,
    /// Another broker owes it to the recipient.
    Forwarded,
    /// An adapter of the recipient holds it, not yet acked.
    Delivered,
    /// It was handed to the agent's runtime, not yet acked.
    Pushed {
        /// The wake path, such as `channel`.
        path: String,
    },
    /// It waits at the recipient.
    Held {
        /// Why, as a sentence; empty when there is nothing to say.
        why: String,
    },
    /// Its text is in the agent's conversation, not yet acked.
    Presented {
        /// The path by which it went, such as `hook`.
        path: String,
    },
    /// It was sent to one member of a group, and this one does not have it any more: another one gets it.
    Recalled {
        /// Why, as a sentence.
        why: String,
    },
    /// The recipient acked it. `None` when the ack says nothing (every v1 client): not proven.
    Acked(Option<How>),
    /// It was never acked and is not owed to the recipient any more.
    Expired {
        /// Why, as a sentence.
        why: String,
    },
    /// The recipient rejected it: its verification failed, or its user denied it.
    Dead {
        /// Why, as a sentence.
        why: String,
    },
    /// Its holder has read the request, and has said nothing more of it.
    Owed,
    /// Its holder works at the request, and says how far it is.
    Working {
        /// In the holder's words; empty when it says nothing.
        said: String,
    },
    /// A request has its result.
    Done {
        /// The message that is the result.
        reply: MessageId,
    },
    /// What the request wants did not succeed.
    Failed {
        /// The message that says why.
        reply: MessageId,
    },
    /// Its holder does not do what the request wants.
    Declined {
        /// Why, as a sentence.
        why: String,
    },
    /// Its sender took the request back.
    Withdrawn,
    /// The request has no result, and none is waited for any more.
    Unanswered {
        /// Why, as a sentence.
        why: String,
    },
    /// So many deliveries are settled, and how is not known any more.
    Settled {
        /// How many.
        recipients: u32,
    },
    /// This broker does not (or does not any more) know the message.
    Unknown,
}

/// What the broker says of a message that it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Number of recipients it is owed to.
    pub recipients: u32,
    /// How many of those are connected now.
    pub online: u32,
    /// The same bytes were accepted under this id before; nothing was queued again.
    pub duplicate: bool,
}

/// The claim of an ack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum How {
    /// Handed to the agent's runtime over `path`; nothing is proven.
    Pushed {
        /// The wake path, such as `channel`.
        path: String,
    },
    /// The model got it.
    Seen {
        /// The path by which it went, such as `drain`.
        path: String,
        /// What shows it, such as `tool_result`.
        evidence: String,
    },
}

/// Why the broker did not take a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people and agents: a sentence that names the thing, what was found and the remedy.
    pub reason: String,
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The envelope breaks a rule of form.
    Invalid,
    /// `from` is not the name of the connection.
    From,
    /// Nobody holds or has held the name in `to`.
    UnknownRecipient,
    /// The id was used before for something else.
    IdReused,
    /// The canonical envelope does not fit a deliver frame.
    TooLarge,
    /// The recipient's queue is full.
    QueueFull,
    /// The broker's disk is nearly full.
    DiskFull,
    /// What was sent with the sender's token and waits takes as many bytes as it may.
    Quota,
    /// The sender's token may not do that.
    Forbidden,
}

impl RefusalCode {
    /// A refusal of this kind.
    #[must_use]
    pub fn because(self, reason: impl Into<String>) -> Refusal {
        Refusal {
            code: self,
            reason: reason.into(),
        }
    }

    /// The code on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::From => "from",
            Self::UnknownRecipient => "unknown_recipient",
            Self::IdReused => "id_reused",
            Self::TooLarge => "too_large",
            Self::QueueFull => "queue_full",
            Self::DiskFull => "disk_full",
            Self::Quota => "quota",
            Self::Forbidden => "forbidden",
        }
    }

    /// Reads a code; one that is not known counts as [`RefusalCode::Invalid`].
    fn parse(text: &str) -> Self {
        let text: StrDeserializer<'_, NoWord> = text.into_deserializer();
        Self::deserialize(text).unwrap_or(Self::Invalid)
    }
}

impl Stage {
    /// Its word on the wire.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.row().1
    }

    /// How far it is, to compare with others of the same recipient: what is known to be seen comes
    /// after every other ack, and what is lost comes last.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.row().0
    }

    const fn row(&self) -> (usize, &'static str) {
        match self {
            Self::Unknown => (0, "unknown"),
            Self::Accepted(_) => (1, "accepted"),
            Self::Refused(_) => (2, "refused"),
            Self::Settled { .. } => (3, "settled"),
            Self::Queued => (4, "queued"),
            Self::Forwarded => (5, "forwarded"),
            Self::Delivered => (6, "delivered"),
            Self::Pushed { .. } => (7, "pushed"),
            Self::Held { .. } => (8, "held"),
            Self::Presented { .. } => (9, "presented"),
            Self::Recalled { .. } => (10, "recalled"),
            Self::Acked(None | Some(How::Pushed { .. })) => (11, "acked"),
            Self::Acked(Some(How::Seen { .. })) => (12, "acked"),
            Self::Owed => (13, "owed"),
            Self::Working { .. } => (14, "working"),
            Self::Expired { .. } => (15, "expired"),
            Self::Dead { .. } => (16, "dead"),
            Self::Withdrawn => (17, "withdrawn"),
            Self::Unanswered { .. } => (18, "unanswered"),
            Self::Declined { .. } => (19, "declined"),
            Self::Failed { .. } => (20, "failed"),
            Self::Done { .. } => (21, "done"),
        }
    }

    /// Its recipient will not get it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Expired { .. } | Self::Dead { .. })
    }

    /// It will not get further at its recipient, but for a request that was read.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.is_lost() || self.is_end() || matches!(self, Self::Acked(_))
    }

    /// A request ended so.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.rank() >= Self::Withdrawn.rank()
    }

    /// What a recipient may say of a message that it has not acked, or of a request that it has.
    #[must_use]
    pub fn is_progress(&self) -> bool {
        matches!(
            self,
            Self::Pushed { .. } | Self::Held { .. } | Self::Presented { .. } | Self::Working { .. }
        )
    }

    /// It is about one recipient.
    #[must_use]
    pub fn is_at_one(&self) -> bool {
        self.rank() >= Self::Queued.rank()
    }

    /// Reads `state` and what belongs to it. `None` when something is missing, or of a later
    /// version.
    pub(crate) fn read(members: &Members<'_>) -> Option<Self> {
        let why = || {
            let reason = members.string(Member::Reason).unwrap_or_default();
            cut(&reason, REASON_BYTES_MAX).into_owned()
        };
        let path = || part(members, Member::Path);
        let recipients = || members.number(Member::Recipients, 0);
        let reply = || MessageId::parse(&members.string(Member::Reply)?).ok();
        Some(match &*members.string(Member::State)? {
            "unknown" => Self::Unknown,
            "accepted" => Self::Accepted(Accepted {
                recipients: recipients()?,
                online: members.number(Member::Online, 0)?,
                duplicate: members.flag(Member::Duplicate)?,
            }),
            "refused" => {
                let code = members.string(Member::Code).unwrap_or_default();
                let code = RefusalCode::parse(&code);
                Self::Refused(Refusal {
                    code,
                    reason: why(),
                })
            }
            "settled" => Self::Settled {
                recipients: recipients()?,
            },
            "queued" => Self::Queued,
            "forwarded" => Self::Forwarded,
            "delivered" => Self::Delivered,
            "pushed" => Self::Pushed { path: path()? },
            "held" => Self::Held { why: why() },
            "presented" => Self::Presented { path: path()? },
            "recalled" => Self::Recalled { why: why() },
            "acked" => Self::Acked(how(members)),
            "expired" => Self::Expired { why: why() },
            "dead" => Self::Dead { why: why() },
            "owed" => Self::Owed,
            "working" => Self::Working { said: why() },
            "done" => Self::Done { reply: reply()? },
            "failed" => Self::Failed { reply: reply()? },
            "declined" => Self::Declined { why: why() },
            "withdrawn" => Self::Withdrawn,
            "unanswered" => Self::Unanswered { why: why() },
            _ => return None,
        })
    }

    /// Writes `state`, `to` when there is one, and what belongs to it.
    pub(crate) fn write(&self, to: Option<&str>, writer: &mut Writer) {
        writer.string("state", self.word()).some_string("to", to);
        match self {
            Self::Accepted(accepted) => {
                writer
                    .number("recipients", accepted.recipients.into())
                    .number("online", accepted.online.into())
                    .flag("duplicate", accepted.duplicate);
            }
            Self::Refused(refusal) => {
                writer.string("code", refusal.code.as_str());
                writer.string("reason", &cut(&refusal.reason, REASON_BYTES_MAX));
            }
            Self::Settled { recipients } => {
                writer.number("recipients", (*recipients).into());
            }
            Self::Pushed { path } | Self::Presented { path } => {
                writer.string("path", &claim(path));
            }
            Self::Held { why }
            | Self::Recalled { why }
            | Self::Working { said: why }
            | Self::Expired { why }
            | Self::Dead { why }
            | Self::Declined { why }
            | Self::Unanswered { why } => {
                writer.string("reason", &cut(why, REASON_BYTES_MAX));
            }
            Self::Done { reply } | Self::Failed { reply } => {
                writer.string("reply", reply.as_str());
            }
            Self::Acked(how) => write_how(how.as_ref(), writer),
            Self::Queued
            | Self::Forwarded
            | Self::Delivered
            | Self::Owed
            | Self::Withdrawn
            | Self::Unknown => {}
        }
    }

    /// Bytes of the words in it, as far as they are written, before any character is escaped.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let claimed = |words: &String| words.len().min(HOW_BYTES_MAX);
        match self {
            Self::Refused(refusal) => refusal.reason.len().min(REASON_BYTES_MAX),
            Self::Held { why }
            | Self::Recalled { why }
            | Self::Working { said: why }
            | Self::Expired { why }
            | Self::Dead { why }
            | Self::Declined { why }
            | Self::Unanswered { why } => why.len().min(REASON_BYTES_MAX),
            Self::Done { reply } | Self::Failed { reply } => reply.as_str().len(),
            Self::Pushed { path }
            | Self::Presented { path }
            | Self::Acked(Some(How::Pushed { path })) => claimed(path),
            Self::Acked(Some(How::Seen { path, evidence })) => claimed(path) + claimed(evidence),
            _ => 0,
        }
    }
}

/// What an ack, or a receipt that repeats it, claims. A claim that does not say all that it must
/// is none.
pub(crate) fn how(members: &Members<'_>) -> Option<How> {
    match &*members.string(Member::How)? {
        "pushed" => Some(How::Pushed {
            path: part(members, Member::Path)?,
        }),
        "seen" => Some(How::Seen {
            path: part(members, Member::Path)?,
            evidence: part(members, Member::Evidence)?,
        }),
        _ => None,
    }
}

/// A word of a claim; `None` when it is absent or empty.
pub(crate) fn part(members: &Members<'_>, name: Member) -> Option<String> {
    let text = members.string(name)?;
    (!text.is_empty()).then(|| claim(&text))
}

pub(crate) fn write_how(how: Option<&How>, writer: &mut Writer) {
    match how {
        None => {}
        Some(How::Pushed { path }) => {
            writer.string("how", "pushed").string("path", &claim(path));
        }
        Some(How::Seen { path, evidence }) => {
            writer.string("how", "seen").string("path", &claim(path));
            writer.string("evidence", &claim(evidence));
        }
    }
}

/// `path` and `evidence` are short printable ASCII: other characters become `?`, more are cut.
pub(crate) fn claim(text: &str) -> String {
    let printable = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
    text.chars().take(HOW_BYTES_MAX).map(printable).collect()
}

/// One statement about one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The message's id, as its sender gave it.
    pub id: MessageId,
    /// When it came to be, in milliseconds since the epoch on the broker's wall clock.
    pub at_ms: Option<u64>,
    /// Present on statements that the broker keeps until they are acked like a delivery
    /// (`expired`, `dead` and ends of requests); ack this key once the statement has been passed on.
    pub key: Option<DeliveryKey>,
    /// The recipient that it is about, if it is about one.
    pub to: Option<String>,
    /// How far the message got.
    pub stage: Stage,
}

impl Receipt {
    /// A statement about the message `id` as a whole, without a time.
    #[must_use]
    pub fn new(id: MessageId, stage: Stage) -> Self {
        Self {
            id,
            at_ms: None,
            key: None,
            to: None,
            stage,
        }
    }

    /// A statement about the delivery to the recipient `to`, which was made at `at_ms`.
    #[must_use]
    pub fn at_one(id: MessageId, to: impl Into<String>, stage: Stage, at_ms: u64) -> Self {
        Self {
            at_ms: Some(at_ms),
            to: Some(to.into()),
            ..Self::new(id, stage)
        }
    }

    /// `None` when it cannot be read, such as that of a later version.
    pub(crate) fn read(raw: &Raw<'_>) -> Option<Self> {
        let members = Members::of(raw)?;
        let stage = Stage::read(&members)?;
        let to = match stage.is_at_one() {
            true => Some(members.string(Member::To)?.into_owned()),
            false => None,
        };
        let key = members.string(Member::Key);
        Some(Self {
            id: MessageId::parse(&members.string(Member::Id)?).ok()?,
            at_ms: members.time(Member::At),
            key: key.and_then(|key| DeliveryKey::parse(&key)),
            to,
            stage,
        })
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.begin(b'{').string("id", self.id.as_str());
        self.stage.write(self.to.as_deref(), writer);
        writer
            .some_string("key", self.key.as_ref().map(DeliveryKey::as_str))
            .some_number("at", self.at_ms)
            .end(b'}');
    }

    /// Bytes of what it says besides its id, before any character is escaped.
    pub(crate) fn bytes(&self) -> usize {
        let to = self.to.as_ref().map_or(0, String::len);
        let key = self.key.as_ref().map_or(0, |key| key.as_str().len());
        self.stage.bytes() + to + key
    }

    /// An upper bound for its length: any character may take six bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        6 * self.bytes() + self.id.as_str().len() + 192
    }
}
