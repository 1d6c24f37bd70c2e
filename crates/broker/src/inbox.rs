//! The engine's input channel.
//!
//! Sending waits, without a thread, until there is room; receiving blocks the engine's thread
//! with a time-out. Room is counted in kibibytes so that large messages cannot pile up.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use peerbus_core::broker::Input;
use tokio::sync::{Semaphore, oneshot};

use crate::operator::{Answer, Request};
use crate::table::Link;

/// Room for letters that the engine has not taken, in units of [`UNIT_BYTES`].
const ROOM_UNITS: usize = 65_536;
/// A letter takes one unit, and one more for each full one of its bytes.
const UNIT_BYTES: usize = 1_024;

const _: () = assert!(
    peerbus_wire::limits::FRAME_BYTES_MAX / UNIT_BYTES + 1 < ROOM_UNITS,
    "the largest frame must fit"
);

/// What the engine is sent.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) content: Content,
    /// The frame's connection: its permit goes back there once the frame is handled.
    pub(crate) link: Option<Arc<Link>>,
    units: u32,
}

/// The content of a [`Letter`].
#[derive(Debug)]
pub(crate) enum Content {
    /// For the core.
    Input(Input),
    /// The operator wants something; where the answer goes.
    Request(Request, oneshot::Sender<Answer>),
    /// Close every connection, which may take so long to drain, and stop.
    Stop {
        /// Time for each connection to take what is queued for it.
        drain: Duration,
    },
}

impl Letter {
    /// Bytes that the letter stands for, rounded.
    pub(crate) fn bytes(&self) -> usize {
        self.units as usize * UNIT_BYTES
    }
}

/// The engine has stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineGone;

/// The sending side.
#[derive(Debug, Clone)]
pub(crate) struct Inbox {
    letters: Sender<Letter>,
    room: Arc<Semaphore>,
}

/// The engine's side.
#[derive(Debug)]
pub(crate) struct Letters {
    letters: Receiver<Letter>,
    room: Arc<Semaphore>,
}

#[expect(clippy::disallowed_methods, reason = "`room` bounds it, by bytes")]
pub(crate) fn inbox() -> (Inbox, Letters) {
    let (sender, receiver) = channel();
    let room = Arc::new(Semaphore::new(ROOM_UNITS));
    (
        Inbox {
            letters: sender,
            room: Arc::clone(&room),
        },
        Letters {
            letters: receiver,
            room,
        },
    )
}

impl Inbox {
    /// Sends a frame's input once there is room for its `bytes`.
    pub(crate) async fn send(
        &self,
        input: Input,
        link: &Arc<Link>,
        bytes: usize,
    ) -> Result<(), EngineGone> {
        let units = u32::try_from(1 + bytes / UNIT_BYTES).unwrap_or(u32::MAX);
        let permit = self
            .room
            .acquire_many(units)
            .await
            .map_err(|_closed| EngineGone)?;
        permit.forget();
        let link = Some(Arc::clone(link));
        let letter = Letter {
            content: Content::Input(input),
            link,
            units,
        };
        self.letters.send(letter).map_err(|_gone| EngineGone)
    }

    /// Sends what must not wait: a connection's first and last input, and commands. Their number
    /// is bounded by that of the connections.
    pub(crate) fn send_now(&self, content: Content) -> Result<(), EngineGone> {
        self.letters
            .send(Letter {
                content,
                link: None,
                units: 0,
            })
            .map_err(|_gone| EngineGone)
    }
}

impl Letters {
    /// Takes a letter, waiting for one at most this long.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Option<Letter> {
        let received = match timeout {
            None => self
                .letters
                .recv()
                .map_err(|_gone| RecvTimeoutError::Disconnected),
            Some(Duration::ZERO) => self.letters.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            }),
            Some(timeout) => self.letters.recv_timeout(timeout),
        };
        match received {
            Ok(letter) => Some(letter),
            Err(RecvTimeoutError::Timeout) => None,
            // Nobody can reach the broker any more: stop as if told to.
            Err(RecvTimeoutError::Disconnected) => Some(Letter {
                content: Content::Stop {
                    drain: Duration::ZERO,
                },
                link: None,
                units: 0,
            }),
        }
    }

    /// Takes a letter if one waits.
    pub(crate) fn take(&self) -> Option<Letter> {
        self.letters.try_recv().ok()
    }

    /// Whether no frame waits. Other letters do not count.
    pub(crate) fn is_empty(&self) -> bool {
        self.room.available_permits() == ROOM_UNITS
    }

    /// Gives the room of taken letters back.
    pub(crate) fn release(&self, bytes: usize) {
        self.room.add_permits(bytes / UNIT_BYTES);
    }
}

impl Drop for Letters {
    fn drop(&mut self) {
        self.room.close();
    }
}

#[cfg(test)]
mod tests {
    use peerbus_core::broker::ConnId;

    use super::*;
    use crate::table::Link;

    #[tokio::test]
    async fn a_full_inbox_makes_senders_wait_until_letters_are_taken() {
        let (inbox, letters) = inbox();
        let link = Arc::new(Link::new(ConnId(1), 0));
        let mebibyte = 1_048_576;
        let fits = ROOM_UNITS / (1 + mebibyte / UNIT_BYTES);
        for _ in 0..fits {
            inbox.send(Input::Tick, &link, mebibyte).await.unwrap();
        }
        let late = inbox.send(Input::Tick, &link, mebibyte);
        let mut late = std::pin::pin!(late);
        assert!(
            futures_util::future::poll_immediate(&mut late)
                .await
                .is_none(),
            "no room is left"
        );
        let taken = letters.take().unwrap();
        letters.release(taken.bytes());
        late.await.unwrap();
    }

    #[tokio::test]
    async fn senders_learn_that_the_engine_is_gone() {
        let (inbox, letters) = inbox();
        let link = Arc::new(Link::new(ConnId(1), 0));
        drop(letters);
        assert!(inbox.send(Input::Tick, &link, 0).await.is_err());
        assert!(inbox.send_now(Content::Input(Input::Tick)).is_err());
    }
}
