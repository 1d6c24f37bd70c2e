//! The engine's input channel.
//!
//! Sending waits, without a thread, until there is room; receiving blocks the engine's thread
//! with a time-out. Room is counted in kibibytes so that large messages cannot pile up.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use peerbus_core::Now;
use peerbus_core::broker::{Broker, BrokerInput};
use peerbus_core::store::{StoreError, Txn};
use tokio::sync::Semaphore;

use crate::link::Link;

/// Room for inputs that the engine has not taken, in units of [`UNIT_BYTES`].
const ROOM_UNITS: usize = 65_536;
/// An input takes one unit, and one more for each full one of its bytes.
const UNIT_BYTES: usize = 1_024;

const _: () = assert!(
    peerbus_wire::limits::FRAME_BYTES_MAX / UNIT_BYTES + 1 < ROOM_UNITS,
    "the largest frame must fit"
);

pub(crate) struct EngineInput {
    pub(crate) content: Content,
    /// The frame's connection: its permit goes back there once the frame is handled.
    pub(crate) link: Option<Arc<Link>>,
    units: u32,
}

pub(crate) enum Content {
    Input(BrokerInput),
    Request(Request),
    /// Close every connection, which may take so long to drain, and stop.
    Stop {
        drain: Duration,
    },
}

/// What an operator wants done within a transaction. It gives what tells him of it.
pub(crate) type Request =
    Box<dyn FnOnce(&mut Broker, Now, &mut dyn Txn) -> Result<Tell, StoreError> + Send>;

/// Called once what it tells is on disk.
pub(crate) type Tell = Box<dyn FnOnce() + Send>;

impl EngineInput {
    /// Bytes that the input stands for, rounded.
    pub(crate) fn bytes(&self) -> usize {
        self.units as usize * UNIT_BYTES
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineGone;

/// Room for one frame, which is given back when what was sent with it is taken.
#[derive(Debug)]
pub(crate) struct Room(u32);

#[derive(Debug, Clone)]
pub(crate) struct EngineSender {
    inputs: Sender<EngineInput>,
    room: Arc<Semaphore>,
}

#[derive(Debug)]
pub(crate) struct EngineReceiver {
    inputs: Receiver<EngineInput>,
    room: Arc<Semaphore>,
}

#[expect(clippy::disallowed_methods, reason = "`room` bounds it, by bytes")]
pub(crate) fn engine_channel() -> (EngineSender, EngineReceiver) {
    let (sender, receiver) = channel();
    let room = Arc::new(Semaphore::new(ROOM_UNITS));
    (
        EngineSender {
            inputs: sender,
            room: Arc::clone(&room),
        },
        EngineReceiver {
            inputs: receiver,
            room,
        },
    )
}

impl EngineSender {
    /// Waits until there is room for a frame of so many bytes, which [`EngineSender::send`] takes.
    /// Apart from it, so that a connection that reads keeps no frame in what it waits with.
    pub(crate) async fn room(&self, bytes: usize) -> Result<Room, EngineGone> {
        let units = u32::try_from(1 + bytes / UNIT_BYTES).unwrap_or(u32::MAX);
        let permit = self.room.acquire_many(units).await;
        permit.map_err(|_closed| EngineGone)?.forget();
        Ok(Room(units))
    }

    /// Sends a frame's input.
    pub(crate) fn send(
        &self,
        input: BrokerInput,
        link: &Arc<Link>,
        room: Room,
    ) -> Result<(), EngineGone> {
        let input = EngineInput {
            content: Content::Input(input),
            link: Some(Arc::clone(link)),
            units: room.0,
        };
        self.inputs.send(input).map_err(|_gone| EngineGone)
    }

    /// Sends what must not wait: a connection's first and last input, and commands. Their number
    /// is bounded by that of the connections.
    pub(crate) fn send_now(&self, content: Content) -> Result<(), EngineGone> {
        self.inputs
            .send(EngineInput {
                content,
                link: None,
                units: 0,
            })
            .map_err(|_gone| EngineGone)
    }
}

impl EngineReceiver {
    /// Takes an input, waiting for one at most this long.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<EngineInput> {
        match self.inputs.recv_timeout(timeout) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            // Nobody can reach the broker any more: stop as if told to.
            Err(RecvTimeoutError::Disconnected) => Some(EngineInput {
                content: Content::Stop {
                    drain: Duration::ZERO,
                },
                link: None,
                units: 0,
            }),
        }
    }

    pub(crate) fn take(&self) -> Option<EngineInput> {
        self.inputs.try_recv().ok()
    }

    /// Whether no frame waits. Other inputs do not count.
    pub(crate) fn is_empty(&self) -> bool {
        self.room.available_permits() == ROOM_UNITS
    }

    /// Gives the room of taken inputs back.
    pub(crate) fn release(&self, bytes: usize) {
        self.room.add_permits(bytes / UNIT_BYTES);
    }
}

impl Drop for EngineReceiver {
    fn drop(&mut self) {
        self.room.close();
    }
}

#[cfg(test)]
mod tests {
    use peerbus_core::broker::ConnId;

    use super::*;
    use crate::places::StrangersPlace;

    #[tokio::test]
    async fn a_full_channel_makes_senders_wait_until_inputs_are_taken() {
        let (engine, inputs) = engine_channel();
        let link = Arc::new(Link::new(ConnId(1), 0, StrangersPlace::default()));
        let mebibyte = 1_048_576;
        let fits = ROOM_UNITS / (1 + mebibyte / UNIT_BYTES);
        for _ in 0..fits {
            let room = engine.room(mebibyte).await.unwrap();
            engine.send(BrokerInput::Tick, &link, room).unwrap();
        }
        let late = engine.room(mebibyte);
        let mut late = std::pin::pin!(late);
        assert!(
            futures_util::future::poll_immediate(&mut late)
                .await
                .is_none(),
            "no room is left"
        );
        let taken = inputs.take().unwrap();
        inputs.release(taken.bytes());
        late.await.unwrap();
    }

    #[tokio::test]
    async fn senders_learn_that_the_engine_is_gone() {
        let (engine, inputs) = engine_channel();
        drop(inputs);
        assert!(engine.room(0).await.is_err());
        assert!(engine.send_now(Content::Input(BrokerInput::Tick)).is_err());
    }
}
