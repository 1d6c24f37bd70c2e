//! The writing side of a connection.

use axum::extract::ws::{Message, WebSocket};
use futures_util::SinkExt;
use futures_util::stream::SplitSink;
use tokio::sync::mpsc::Receiver;

use super::End;
use crate::link::Link;
use crate::shared::Shared;
use crate::table::Outgoing;

/// Frames that are written before a flush at the latest.
const FLUSH_FRAMES_MAX: usize = 256;

/// Writes what is queued, everything there is per flush, until the queue is closed and empty.
pub(super) async fn write(
    sink: &mut SplitSink<WebSocket, Message>,
    queue: &mut Receiver<Outgoing>,
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
        if burst(sink, queue, next, link, shared).await.is_err() {
            return End::Lost;
        }
        link.writing(None);
    }
}

/// Writes `next` and what is queued behind it, flushes, and gives back the permits of the frames
/// that were answered.
async fn burst(
    sink: &mut SplitSink<WebSocket, Message>,
    queue: &mut Receiver<Outgoing>,
    mut next: Option<Outgoing>,
    link: &Link,
    shared: &Shared,
) -> Result<(), axum::Error> {
    let mut answers = 0;
    let mut frames = 0;
    while let Some(outgoing) = next {
        link.unqueue(outgoing.weight());
        answers += outgoing.answers();
        link.writing(Some(shared.clock.mono_ms()));
        sink.feed(Message::Text((&*outgoing.text()).into())).await?;
        frames += 1;
        let go_on = frames < FLUSH_FRAMES_MAX && !link.ping_is_wanted();
        next = if go_on { queue.try_recv().ok() } else { None };
    }
    link.writing(Some(shared.clock.mono_ms()));
    sink.flush().await?;
    if answers > 0 {
        link.answered(answers);
    }
    Ok(())
}
