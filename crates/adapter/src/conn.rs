//! Moves frames between one open WebSocket and the session.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Sink, SinkExt as _, Stream as _, StreamExt as _};
use peerbus_peer::session::ConnectionEnd;
use peerbus_wire::CloseReason;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::dial::Socket;
use crate::shared::Shared;

/// Messages that are read before what they caused is written.
const READ_BATCH: usize = 64;

pub(crate) struct Conn {
    socket: Socket,
    /// Something was written since the last complete flush.
    dirty: bool,
    /// The last question that was put to the broker.
    asked: u64,
}

impl Conn {
    pub(crate) fn new(socket: Socket, shared: &Shared) -> Self {
        shared.pulse.heard();
        Self {
            socket,
            dirty: false,
            asked: shared.pulse.asked(),
        }
    }

    pub(crate) async fn run(&mut self, shared: &Shared) -> ConnectionEnd {
        poll_fn(|cx| self.poll(cx, shared)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>, shared: &Shared) -> Poll<ConnectionEnd> {
        if let Err(error) = self.write(cx, shared) {
            return Poll::Ready(ended(error));
        }
        for _ in 0..READ_BATCH {
            if !shared.with(|session, _| session.wants_read()) {
                // The host makes room by an ack, which wakes the driver.
                return self.write_replies(cx, shared);
            }
            match Pin::new(&mut self.socket).poll_next(cx) {
                Poll::Pending => return self.write_replies(cx, shared),
                Poll::Ready(None) => return Poll::Ready(broken("the connection was closed")),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(ended(error)),
                Poll::Ready(Some(Ok(Message::Close(frame)))) => {
                    return Poll::Ready(closed(frame));
                }
                Poll::Ready(Some(Ok(message))) => {
                    shared.pulse.heard();
                    if let Message::Pong(payload) = &message
                        && let Ok(number) = payload.as_ref().try_into()
                    {
                        shared.pulse.answered(u64::from_be_bytes(number));
                    }
                    shared.with(|session, now| match message {
                        Message::Text(text) => session.handle_text(now, text.as_bytes()),
                        _ => session.handle_alive(now),
                    });
                }
            }
        }
        // There may be more to read: let others have their turn, then come again.
        cx.waker().wake_by_ref();
        self.write_replies(cx, shared)
    }

    fn write_replies(&mut self, cx: &mut Context<'_>, shared: &Shared) -> Poll<ConnectionEnd> {
        match self.write(cx, shared) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(ended(error)),
        }
    }

    /// Writes what the session has, as far as the socket takes it, with one flush.
    fn write(&mut self, cx: &mut Context<'_>, shared: &Shared) -> Result<(), Error> {
        loop {
            match Pin::new(&mut self.socket).poll_ready(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(ready) => ready?,
            }
            let asked = shared.pulse.asked();
            let message = if asked != self.asked {
                self.asked = asked;
                Message::Ping(asked.to_be_bytes().to_vec().into())
            } else if let Some(frame) = shared.with(|session, _| session.poll_transmit()) {
                Message::text(frame.encode())
            } else {
                break;
            };
            Pin::new(&mut self.socket).start_send(message)?;
            self.dirty = true;
        }
        if self.dirty
            && let Poll::Ready(flushed) = Pin::new(&mut self.socket).poll_flush(cx)
        {
            flushed?;
            self.dirty = false;
            shared.with(|session, _| session.handle_flushed());
        }
        Ok(())
    }

    pub(crate) fn ping(&mut self) {
        // A failure shows at the next write.
        if Pin::new(&mut self.socket)
            .start_send(Message::Ping(Vec::new().into()))
            .is_ok()
        {
            self.dirty = true;
        }
    }

    /// Flushes what the session still has, says goodbye and waits for the answer: closing a
    /// socket with unread data would cut off what the broker has not read yet. `false` when that
    /// takes longer than `limit`.
    pub(crate) async fn goodbye(mut self, shared: &Shared, limit: Duration) -> bool {
        let farewell = async {
            while let Some(frame) = shared.with(|session, _| session.poll_transmit()) {
                self.socket.feed(Message::text(frame.encode())).await?;
            }
            let frame = CloseFrame {
                code: CloseCode::Normal,
                reason: "goodbye".into(),
            };
            self.socket.send(Message::Close(Some(frame))).await?;
            while let Some(Ok(_)) = self.socket.next().await {}
            Ok::<(), Error>(())
        };
        matches!(tokio::time::timeout(limit, farewell).await, Ok(Ok(())))
    }
}

fn broken(why: &str) -> ConnectionEnd {
    ConnectionEnd::Broken { why: why.into() }
}

fn closed(frame: Option<CloseFrame>) -> ConnectionEnd {
    match frame {
        Some(frame) => ConnectionEnd::Closed {
            code: frame.code.into(),
            text: frame.reason.as_str().into(),
        },
        None => broken("the broker closed the connection without a reason"),
    }
}

fn ended(error: Error) -> ConnectionEnd {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => broken("the connection was closed"),
        // Of TLS: the end came without a word.
        Error::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
            broken("the connection was closed")
        }
        Error::Io(error) => broken(&format!("the connection broke: {error}")),
        Error::Capacity(_) => broken(&format!(
            "the broker sent a message over the limit ({})",
            CloseReason::TooLarge.text()
        )),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => broken(
            "the connection ended without a word: the broker was killed, or the way to it broke",
        ),
        _ => broken("the connection broke: the broker violated the WebSocket protocol"),
    }
}
