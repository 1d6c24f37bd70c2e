//! The last words to a client, within bounded time.

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use peerbus_wire::CloseReason;
use tokio::time::{sleep, timeout};

use super::End;
use crate::link::Closing;
use crate::listener::Socket;
use crate::shared::Shared;

/// What is left to say when a connection ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CloseHandshake {
    /// Nobody listens.
    None,
    /// The client's close frame is to be answered.
    Answer,
    /// A close frame for a reason of the protocol.
    Close(CloseReason),
    /// A close frame for a violation of WebSocket itself.
    Violation(u16, &'static str),
}

impl CloseHandshake {
    pub(super) fn after(end: End, closing: Option<&Closing>) -> Self {
        let told = closing.map(|closing| closing.reason.clone());
        match (end, told) {
            (End::Lost, _) => Self::None,
            (End::Goodbye, _) => Self::Answer,
            (_, Some(reason)) | (End::Closed(reason), None) => Self::Close(reason),
            (End::Violation(code, text), None) => Self::Violation(code, text),
            // Both happen only once there is a reason to close.
            (End::Drained | End::Cut, None) => Self::None,
        }
    }

    /// Sends the close frame, waits for the client's, and leaves the rest to the socket's end.
    pub(super) async fn say(
        self,
        sink: &mut SplitSink<WebSocket, Message>,
        stream: &mut SplitStream<WebSocket>,
        socket: &Socket,
        shared: &Shared,
    ) {
        if let Self::Close(CloseReason::InvalidToken | CloseReason::NotJoined(_)) = self {
            // Whoever tries tokens, or codes, gets no more answers in this time than there are places for
            // connections that have not registered.
            sleep(shared.times.denied_delay).await;
        }
        let unreadable = matches!(
            self,
            Self::Close(CloseReason::TooLarge | CloseReason::RegisterTooLarge)
                | Self::Violation(..)
        );
        let frame = match &self {
            _ if socket.is_amid_frame() => return,
            Self::None => return,
            Self::Answer => None,
            Self::Close(reason) => Some(CloseFrame {
                code: reason.code(),
                reason: reason.text().into(),
            }),
            Self::Violation(code, text) => Some(CloseFrame {
                code: *code,
                reason: (*text).into(),
            }),
        };
        let handshake = async {
            match frame {
                Some(frame) => sink.send(Message::Close(Some(frame))).await?,
                None => sink.flush().await?,
            }
            while let Some(message) = stream.next().await {
                message?;
            }
            if unreadable {
                // The stream has ended but the client may still write: closing now would reset
                // the connection and take the close frame with it.
                socket.discard().await;
            }
            Ok::<(), axum::Error>(())
        };
        // However it ends, the socket is closed next.
        let _ended = timeout(shared.times.close_max, handshake).await;
    }
}
