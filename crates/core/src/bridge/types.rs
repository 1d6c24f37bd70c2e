//! What goes in and what comes out.

use std::sync::Arc;

use peerbus_wire::bridge::Epoch;
use peerbus_wire::{
    Ack, Carried, ClientFrame, DeliveryKey, Mark, MessageId, Receipt, Received, Seq, Stage,
};

/// Names a message of the stream until it is acked there. The shell makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// What the machine is told.
#[derive(Debug, Clone)]
pub enum BridgeInput {
    /// The own broker has registered this bridge, as the last [`BridgeOutput::Register`] asked for.
    /// Nothing of an older connection may be handed in from here on.
    Greeted {
        /// The broker's epoch.
        epoch: Epoch,
        /// The mark that this bridge had it keep, if any.
        mark: Option<String>,
    },
    /// The connection to the own broker is over.
    Lost,
    /// The own broker delivers a message for the other domain.
    Deliver {
        /// Its delivery key, which is its number.
        number: u64,
        /// Its id.
        id: MessageId,
        /// The carried text.
        envelope: Arc<str>,
    },
    /// The own broker says what became of messages that were taken.
    Receipts(Vec<Receipt>),
    /// The own broker has answered the oldest [`ToBroker::Barrier`].
    Barrier,
    /// The own broker has answered [`ToBroker::Forwarded`]: numbers and ids, at most 256.
    Forwarded(Vec<(u64, MessageId)>),
    /// A message of the stream, on the subject of the two domains.
    Stream {
        /// Which one.
        stream: StreamId,
        /// The value of its header [`peerbus_wire::bridge::HEAD`]; empty when it has none.
        head: String,
        /// Its payload.
        payload: Vec<u8>,
    },
    /// The stream did not take a message.
    Unpublished {
        /// The message.
        number: u64,
        /// A sentence when it never will: its sender is told so, as a word of this bridge. `None`: later
        /// perhaps.
        never: Option<String>,
    },
    /// A message outside of the stream, on the subject of the two domains.
    Outside(Vec<u8>),
    /// A deadline has come.
    Tick,
}

/// What the machine wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BridgeOutput {
    /// Close the connection to the own broker if there is one, and register anew with this as the
    /// epoch of the far broker; after a [`BridgeInput::Lost`] when it can be reached again.
    Register(String),
    /// Send this to the own broker.
    Broker(ToBroker),
    /// Publish a message to the stream.
    Publish {
        /// Its number.
        number: u64,
        /// The value of its header [`peerbus_wire::bridge::HEAD`].
        head: String,
        /// Its payload.
        envelope: Arc<str>,
    },
    /// Ack a message of the stream: it is not needed there any more, or its home sends it again.
    Ack(StreamId),
    /// Give a message of the stream back: it can be taken later.
    Later(StreamId),
    /// Send this to the other bridge, outside of the stream; it may get lost.
    Outside(String),
    /// Something happened that is counted, and perhaps logged.
    Event(BridgeEvent),
}

/// What goes to the own broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToBroker {
    /// Take this message of the other domain, and keep the mark in the same transaction.
    Take {
        /// The mark.
        mark: String,
        /// An earlier take was refused since the last one that had this, and its answer was read.
        /// Without it, what follows a refused one is refused, too.
        again: bool,
        /// The message.
        envelope: Carried,
    },
    /// How far a message is over there: `forwarded`, a progress, or an end (`acked`, `dead`,
    /// `expired`).
    Says {
        /// Its number.
        number: u64,
        /// How far.
        stage: Stage,
    },
    /// The notice with this key was passed on.
    AckNotice(DeliveryKey),
    /// What became of these messages, which were taken? At most 256.
    Status(Vec<MessageId>),
    /// What is forwarded and has not ended, after this number in the order of the last answer?
    Forwarded(Option<u64>),
    /// Answer this when everything before it is on disk.
    Barrier,
}

/// What an operator wants to know or to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BridgeEvent {
    /// The far broker has another epoch than the one that was known, or the first one: it is new, or
    /// was restored from a backup. What it does not remember is sent again.
    NewEpoch(Epoch),
    /// The own broker has another epoch than before.
    OwnEpoch(Epoch),
    /// Messages were sent for the first time since the bridge registered.
    Sent(u64),
    /// Messages were sent again.
    Resent(u64),
    /// Messages were confirmed by the other side.
    Confirmed(u64),
    /// A message was taken.
    Taken,
    /// A message came that was known.
    Doubled,
    /// A message came without what stands before it; it is asked for again.
    Gap {
        /// The last number that was taken.
        taken: u64,
        /// The number that came.
        came: u64,
    },
    /// A message came that was sent in another life of one of the brokers, or is of a domain that is
    /// away. What is owed of it comes again.
    Stale,
    /// Something of the other side's was not believed, for this reason. Untrusted: a reason may quote
    /// names that are valid peer names, nothing else.
    Refused {
        /// The message's id, if it is about one and has one.
        id: Option<MessageId>,
        /// The reason.
        why: String,
    },
    /// The own broker takes no message now, for this reason; it is tried again.
    Waits(String),
    /// The stream did not take a message; it is sent again.
    Full,
    /// The other bridge has not been heard of since this time, on the machine's clock. Nothing is
    /// given up.
    Away {
        /// Since when.
        since_ms: u64,
    },
    /// The other bridge is heard of again.
    Back,
    /// Statements of the other side's did not fit and are asked for later.
    Crowded(u64),
}

impl BridgeInput {
    /// What the own broker says. `None`: nothing that a bridge wants to know. A frame that cannot be
    /// what it should is left out likewise.
    #[must_use]
    pub fn received(received: Received) -> Option<Self> {
        Some(match received {
            Received::Peers(peers) if peers.ext.is_some() => Self::Greeted {
                epoch: Epoch::parse(peers.epoch?.as_str())?,
                mark: peers.mark.map(|mark| mark.as_str().to_owned()),
            },
            // Who is where is no barrier, and nothing for the machine.
            Received::Peers(peers) if peers.domain.is_some() => return None,
            Received::Peers(_) => Self::Barrier,
            Received::Deliver(delivery) => {
                let Carried { id, text, .. } = delivery.envelope.carry().ok()?;
                Self::Deliver {
                    number: delivery.key.seq()?.0,
                    id,
                    envelope: text,
                }
            }
            Received::Receipts(receipts) => Self::Receipts(receipts),
            Received::Forwarded(messages) => {
                let numbered = messages
                    .into_iter()
                    .filter_map(|it| Some((it.key.seq()?.0, it.id)));
                Self::Forwarded(numbered.collect())
            }
            Received::Recall(_)
            | Received::Renamed(_)
            | Received::Retired(_)
            | Received::Unknown => return None,
        })
    }
}

impl ToBroker {
    /// The frame. `None`: it has a mark that is none, which no bridge makes.
    #[must_use]
    pub fn frame(self) -> Option<ClientFrame> {
        Some(match self {
            Self::Take {
                mark,
                again,
                envelope,
            } => ClientFrame::Take {
                mark: Mark::parse(&mark)?,
                again,
                envelope: Ok(envelope),
            },
            Self::Says { number, stage } => ClientFrame::Progress {
                key: Seq(number).key(),
                stage,
            },
            Self::AckNotice(key) => ClientFrame::Ack(Ack { key, how: None }),
            Self::Status(ids) => ClientFrame::Status { ids },
            Self::Forwarded(after) => ClientFrame::Forwarded {
                after: after.map(|number| Seq(number).key()),
            },
            Self::Barrier => ClientFrame::Peers,
        })
    }
}
