//! What goes in and what comes out.

use std::sync::Arc;

use peerbus_wire::{ClientFrame, MessageId, Received};

/// Names a message of the stream until it is acked there. The shell makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// What the machine is told.
#[derive(Debug, Clone)]
pub enum BridgeInput {
    /// The own broker says something. With its answer to the last [`BridgeOutput::Register`] a
    /// connection begins: nothing of an older one may be handed in from there on.
    Broker(Received),
    /// The connection to the own broker is over.
    Lost,
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
    Broker(ClientFrame),
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

/// What an operator wants to know or to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BridgeEvent {
    /// The far broker has another epoch than the one that was known, or the first one: it is new, or
    /// was restored from a backup. What it does not remember is sent again.
    NewEpoch,
    /// The own broker has another epoch than before.
    OwnEpoch,
    /// A message was sent for the first time since the bridge registered.
    Sent,
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
    /// The other bridge has not been heard of for long. Nothing is given up.
    Away,
    /// The other bridge is heard of again.
    Back,
    /// A statement of the other side's did not fit and is asked for later.
    Crowded,
}
