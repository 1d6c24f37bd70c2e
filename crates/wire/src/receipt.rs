//! Receipts: what became of a message, said to its sender.

use crate::ids::{DeliveryKey, MessageId};
use crate::json::Raw;
use crate::members::{Member, Members};
use crate::stage::Stage;
use crate::writer::Writer;

/// One statement about one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The message's id, as its sender gave it.
    pub id: MessageId,
    /// When it came to be, in milliseconds since the epoch on the broker's wall clock.
    pub at_ms: Option<u64>,
    /// Present on statements that the broker keeps until they are acked like a delivery
    /// (`expired` and `dead`); ack this key once the statement has been passed on.
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
