//! The reading side of a connection.

use std::io;
use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket};
use futures_util::StreamExt;
use futures_util::stream::SplitStream;
use peerbus_core::TokenHash;
use peerbus_core::broker::BrokerInput;
use peerbus_wire::limits::REGISTER_BYTES_MAX;
use peerbus_wire::{ClientFrame, CloseReason, Register};
use tokio_tungstenite::tungstenite;

use super::End;
use crate::engine_input::{EngineGone, Room};
use crate::link::{Answer, Link, Ping};
use crate::listener::Socket;
use crate::shared::Shared;

/// Reads frames, parses them and hands them to the engine until the connection ends.
pub(super) async fn read(
    stream: &mut SplitStream<WebSocket>,
    socket: &Socket,
    link: &Arc<Link>,
    shared: &Shared,
) -> End {
    let mut first = true;
    let mut pace = None;
    loop {
        link.not_listening();
        link.may_read().await;
        let (frame, bytes) = match next_frame(stream, link, shared).await {
            Ok(read) => read,
            Err(end) => return end,
        };
        let introduces = std::mem::take(&mut first);
        if introduces {
            if bytes > REGISTER_BYTES_MAX {
                return End::Closed(CloseReason::RegisterTooLarge);
            }
            socket.set_introduced();
        }
        if link.closing().is_some() {
            // Read on, or the client could not finish what it writes and see the close frame.
            link.read_more(1);
            continue;
        }
        link.not_listening();
        match &frame {
            ClientFrame::Register(Register {
                token: Some(token), ..
            }) if introduces => {
                let tokens = shared.tokens.as_ref();
                pace = tokens.and_then(|tokens| tokens.pace(&TokenHash::of(token)));
            }
            ClientFrame::Envelope(_) => {
                if let Some(pace) = &pace {
                    pace.turn(shared.clock).await;
                }
                if !link.is_ext() {
                    shared.room().await;
                }
            }
            _ => {}
        }
        // Its answers are as many as the messages that it names.
        for _ in 1..Answer::to(&frame).frames() {
            link.may_read().await;
        }
        let room = room(bytes, shared).await;
        let _stopped = (shared.engine).send(BrokerInput::Frame(link.conn(), frame), link, room);
    }
}

/// The next frame and its size.
async fn next_frame(
    stream: &mut SplitStream<WebSocket>,
    link: &Arc<Link>,
    shared: &Shared,
) -> Result<(ClientFrame, usize), End> {
    loop {
        link.heard(shared.clock.mono_ms());
        let message = match stream.next().await {
            None => return Err(End::Lost),
            Some(Err(error)) => return Err(end_of(error)),
            Some(Ok(message)) => message,
        };
        match message {
            Message::Text(text) => return Ok((ClientFrame::parse(text.as_bytes()), text.len())),
            Message::Binary(_) => return Ok((ClientFrame::Binary, 0)),
            Message::Pong(payload) => {
                // One that nobody asked for costs the engine nothing.
                let told = payload == Ping::Core.payload() && link.core_ponged();
                if told && link.closing().is_none() {
                    let room = room(0, shared).await;
                    let _stopped = (shared.engine).send(BrokerInput::Pong(link.conn()), link, room);
                }
            }
            // Answered by the WebSocket layer.
            Message::Ping(_) => {}
            Message::Close(_) => return Err(End::Goodbye),
        }
    }
}

/// Room for a frame of so many bytes at the engine, which closes every connection when it stops: then
/// the writer and the watch see to the end.
async fn room(bytes: usize, shared: &Shared) -> Room {
    match shared.engine.room(bytes).await {
        Ok(room) => room,
        Err(EngineGone) => std::future::pending().await,
    }
}

fn end_of(error: axum::Error) -> End {
    use tungstenite::Error;
    use tungstenite::error::ProtocolError;

    match error.into_inner().downcast::<Error>().as_deref() {
        Ok(Error::Capacity(_)) => End::Closed(CloseReason::TooLarge),
        Ok(Error::Io(error)) if error.kind() == io::ErrorKind::FileTooLarge => {
            End::Closed(CloseReason::RegisterTooLarge)
        }
        Ok(Error::Utf8(_)) => End::Violation(1007, "text message is not valid UTF-8"),
        Ok(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => End::Lost,
        Ok(Error::Protocol(_)) => End::Violation(1002, "WebSocket protocol violated"),
        _ => End::Lost,
    }
}
