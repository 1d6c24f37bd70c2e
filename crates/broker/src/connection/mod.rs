//! One connection, from the upgrade to the end of its socket.
//!
//! Reading, writing and watching are three futures of one task, so an idle connection costs one
//! small allocation, and none of them waits for another: a client that writes while it is being
//! written to (v1 adapters ack in their read loop) is always read.

mod close;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use peerbus_core::TokenHash;
use peerbus_core::broker::BrokerInput;
use peerbus_os::clock::millis;
use peerbus_wire::limits::REGISTER_BYTES_MAX;
use peerbus_wire::{ClientFrame, CloseReason, Register};
use tokio::sync::mpsc::Receiver;
use tokio::time::sleep;
use tokio_tungstenite::tungstenite;

use self::close::CloseHandshake;
use crate::engine_input::{Content, EngineGone, Room};
use crate::joining;
use crate::link::{Answer, Link, Ping};
use crate::listener::Socket;
use crate::places::{Place, StrangersPlace};
use crate::shared::Shared;
use crate::table::Outgoing;

#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// The client sent a close frame.
    Goodbye,
    /// The socket broke or ended without a close frame.
    Lost,
    /// The connection was to be closed, and everything before that is sent.
    Drained,
    /// The connection was to be closed, and what was queued could not be sent in time.
    Cut,
    /// The client broke a rule of the protocol, or is given up.
    Closed(CloseReason),
    /// It broke one of WebSocket itself: the close code (RFC 6455 §7.4.1) and what is said of it.
    Violation(u16, &'static str),
}

/// Serves a connection. `place` is given back when its socket is closed.
pub(crate) async fn serve(
    ws: WebSocket,
    socket: Arc<Socket>,
    (place, stranger): (Place, StrangersPlace),
    shared: Arc<Shared>,
) {
    let (mut sink, mut stream) = ws.split();
    let Some((open, mut queue)) = Open::enter(&shared, stranger) else {
        let close = CloseHandshake::Close(CloseReason::GoingAway);
        return close.say(&mut sink, &mut stream, &socket, &shared).await;
    };
    let link = Arc::clone(&open.link);
    if let Some(process) = socket.process() {
        link.set_process(process);
    }
    let end = tokio::select! {
        end = read(&mut stream, &socket, &link, &shared) => end,
        end = write(&mut sink, &mut queue, &socket, &link, &shared) => end,
        end = watch(&link, &shared) => end,
    };
    open.leave(end == End::Goodbye && link.closing().is_none());
    drop(queue);
    tracing::debug!(conn = link.conn().0, ?end, "connection ends");
    if end == End::Cut {
        shared.cut.fetch_add(1, Ordering::Relaxed);
    }
    let close = CloseHandshake::after(end, link.closing());
    close.say(&mut sink, &mut stream, &socket, &shared).await;
    // Until here a client that never registered has a stranger's place.
    drop((link, place));
}

/// An entry of the connection table of which the engine knows. However the task ends, the engine
/// learns of it, once.
struct Open<'a> {
    link: Arc<Link>,
    goodbye: bool,
    shared: &'a Shared,
}

impl<'a> Open<'a> {
    /// `None` when the engine has stopped.
    fn enter(shared: &'a Shared, stranger: StrangersPlace) -> Option<(Self, Receiver<Outgoing>)> {
        let (link, queue) = shared.table.open(shared.clock.mono_ms(), stranger);
        let conn = link.conn();
        // The entry comes first: the engine's answer needs it, and an engine that stops closes
        // every entry after it has stopped taking inputs.
        if shared
            .engine
            .send_now(Content::Input(BrokerInput::Opened(conn)))
            .is_err()
        {
            shared.table.remove(&link);
            return None;
        }
        shared.metrics.opened.inc();
        Some((
            Self {
                link,
                goodbye: false,
                shared,
            },
            queue,
        ))
    }

    fn leave(mut self, goodbye: bool) {
        self.goodbye = goodbye;
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let conn = self.link.conn();
        self.shared.table.remove(&self.link);
        let closed = BrokerInput::Closed {
            conn,
            goodbye: self.goodbye,
        };
        // An engine that has stopped needs no word of it.
        let _stopped = self.shared.engine.send_now(Content::Input(closed));
    }
}

/// Reads frames, parses them and hands them to the engine until the connection ends.
async fn read(
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
        if introduces
            && let ClientFrame::Join(asked) = &frame
            && let Some(from) = socket.joins_from()
        {
            let tried = joining::tried(shared, asked.clone(), from).await;
            let tried = BrokerInput::Join(link.conn(), tried);
            let _stopped = shared.engine.send_now(Content::Input(tried));
            link.read_more(1);
            continue;
        }
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
        // One that costs more than a message goes alone.
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

/// Frames that are written before a flush at the latest.
const FLUSH_FRAMES_MAX: usize = 256;
/// Texts of this size go past the WebSocket layer, whose buffer would keep room for the largest
/// one for as long as the connection lives.
const LARGE_TEXT_BYTES: usize = 8_192;

/// Writes what is queued, everything there is per flush, until the queue is closed and empty.
async fn write(
    sink: &mut SplitSink<WebSocket, Message>,
    queue: &mut Receiver<Outgoing>,
    socket: &Socket,
    link: &Link,
    shared: &Shared,
) -> End {
    loop {
        let next = tokio::select! {
            biased;
            pings = link.wanted_pings() => {
                let mut result = Ok(());
                for ping in pings {
                    link.writing(Some(shared.clock.mono_ms()));
                    result = sink.feed(Message::Ping(ping.payload().into())).await.and(result);
                }
                if result.is_err() {
                    return End::Lost;
                }
                queue.try_recv().ok()
            }
            next = queue.recv() => match next {
                Some(next) => Some(next),
                None => return End::Drained,
            },
        };
        let written = burst(sink, queue, next, socket, link, shared).await;
        if written.is_none() {
            return End::Lost;
        }
        link.writing(None);
    }
}

/// Writes `next` and what is queued behind it, flushes, and gives back the permits of the frames
/// that were answered. `None`: nothing more can be written.
async fn burst(
    sink: &mut SplitSink<WebSocket, Message>,
    queue: &mut Receiver<Outgoing>,
    mut next: Option<Outgoing>,
    socket: &Socket,
    link: &Link,
    shared: &Shared,
) -> Option<()> {
    let (mut answers, mut done) = (0, 0);
    let mut frames = 0;
    while let Some(outgoing) = next {
        link.unqueue(outgoing.weight());
        answers += outgoing.answers();
        link.writing(Some(shared.clock.mono_ms()));
        done += outgoing.done();
        if let Some(text) = outgoing.text() {
            if text.len() < LARGE_TEXT_BYTES {
                sink.feed(Message::Text((&*text).into())).await.ok()?;
            } else {
                sink.flush().await.ok()?;
                socket.write_text(&text).await.ok()?;
            }
        }
        frames += 1;
        let go_on = frames < FLUSH_FRAMES_MAX && !link.ping_is_wanted();
        next = if go_on { queue.try_recv().ok() } else { None };
    }
    link.writing(Some(shared.clock.mono_ms()));
    sink.flush().await.ok()?;
    if answers > 0 {
        link.answered(answers);
    }
    if done > 0 {
        link.read_more(done);
    }
    Some(())
}

async fn watch(link: &Link, shared: &Shared) -> End {
    let ping_ms = millis(shared.times.ping_every);
    let silence_ms = millis(shared.times.silence_max);
    loop {
        let now_ms = shared.clock.mono_ms();
        let silent_ms = link.silent_ms(now_ms);
        let stuck_ms = link.stuck_ms(now_ms);
        if stuck_ms >= silence_ms {
            return End::Closed(CloseReason::TooSlow);
        }
        if silent_ms >= silence_ms {
            return End::Closed(CloseReason::Unresponsive);
        }
        // Of a client that was heard meanwhile, the next silence begins with another ping.
        let next_ms = if silent_ms < ping_ms {
            ping_ms - silent_ms
        } else {
            link.want_ping(Ping::Idle);
            ping_ms
        };
        let left_ms = silence_ms - silent_ms.max(stuck_ms);
        let next_ms = next_ms.min(left_ms).max(1);
        tokio::select! {
            () = sleep(Duration::from_millis(next_ms)) => {}
            closing = link.close_wanted() => {
                sleep(closing.drain).await;
                return End::Cut;
            }
        }
    }
}
