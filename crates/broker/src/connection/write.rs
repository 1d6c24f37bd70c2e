//! The writing side of a connection.

use axum::extract::ws::{Message, WebSocket};
use futures_util::SinkExt;
use futures_util::stream::SplitSink;
use tokio::sync::mpsc::Receiver;

use super::End;
use crate::link::Link;
use crate::listener::Socket;
use crate::shared::Shared;
use crate::table::Outgoing;

/// Frames that are written before a flush at the latest.
const FLUSH_FRAMES_MAX: usize = 256;
/// Texts of this size go past the WebSocket layer, whose buffer would keep room for the largest
/// one for as long as the connection lives.
const LARGE_TEXT_BYTES: usize = 8_192;

/// Writes what is queued, everything there is per flush, until the queue is closed and empty.
pub(super) async fn write(
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
