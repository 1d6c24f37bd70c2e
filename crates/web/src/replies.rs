//! What comes for a token's peer, as a stream. A reader confirms what it had by showing the id of an event;
//! whatever nobody confirmed comes again.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use futures_util::{StreamExt as _, stream};
use peerbus_adapter::mailbox::{quote, receipt};
use peerbus_adapter::{Bus, How, Inbound, LinkState, Receipt, SessionEvent, rfc3339, wall_ms};
use peerbus_core::TokenHash;
use peerbus_os::sync::lock;
use peerbus_view::{Trail, Words};
use peerbus_wire::Conversation;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::App;
use crate::answer::Failure;
use crate::kept::{Cursor, Due, Kept, Mark, Resumed, Told, UNCONFIRMED_BYTES_MAX, UNCONFIRMED_MAX};
use crate::streams::STREAM;

/// Time between two comments in a stream in which nothing happens.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a reader that comes from an earlier process waits for the event that it had last. What comes
/// before that is then not told again.
const AWAITS: Duration = Duration::from_secs(1);
/// How long a reader waits until it comes back, in milliseconds.
const RETRY_MS: u64 = 500;
const PATH: &str = "web";

/// `GET /v1/replies`.
pub(crate) async fn replies(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<impl IntoResponse, Failure> {
    Ok((STREAM, open(&app, &request)?))
}

/// `POST /v1/replies`: a reader confirms what it has, and its stream goes on.
pub(crate) async fn confirm(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<StatusCode, Failure> {
    let caller = app.admit(&request)?;
    let cursor = cursor(request.headers())?.ok_or_else(|| {
        let why = "Last-Event-ID is missing: the id of the last event that you have";
        Failure::new(StatusCode::BAD_REQUEST, why)
    })?;
    // What others confirmed already needs no more.
    match caller.peer.replies.resume(cursor) {
        Resumed::Never => Err(no_event()),
        Resumed::At(_) | Resumed::Behind(_) | Resumed::Gone => Ok(StatusCode::NO_CONTENT),
    }
}

/// The event that a reader says it had last.
fn cursor(headers: &HeaderMap) -> Result<Option<Cursor<'_>>, Failure> {
    let given = headers.get("last-event-id").filter(|text| !text.is_empty());
    let Some(given) = given else {
        return Ok(None);
    };
    let cursor = given.to_str().ok().and_then(Cursor::parse);
    cursor.map(Some).ok_or_else(no_event)
}

fn no_event() -> Failure {
    let why = "Last-Event-ID is no event's id of this stream: send one as it came, or none";
    Failure::new(StatusCode::BAD_REQUEST, why)
}

fn open(app: &Arc<App>, request: &Request) -> Result<Body, Failure> {
    let caller = app.admit(request)?;
    let cursor = cursor(request.headers())?;
    let full = |why: &str| Failure::new(StatusCode::TOO_MANY_REQUESTS, why).retry_after(5);
    let own = Arc::clone(&caller.peer.streams).try_acquire_owned();
    let own = own.map_err(|_| full("this token has 4 streams, as many as it may: close one"))?;
    let place = app.streams.reader();
    let place = place.ok_or_else(|| full("there are as many streams as may be: close one"))?;
    let replies = Arc::clone(&caller.peer.replies);
    let mut awaited = None;
    let next = match cursor.map(|cursor| replies.resume(cursor)) {
        None => lock(&replies.state).unconfirmed(),
        Some(Resumed::At(next)) => next,
        Some(Resumed::Behind(mark)) => {
            awaited = Some((mark, Instant::now() + AWAITS));
            lock(&replies.state).unconfirmed()
        }
        Some(Resumed::Gone) => return Err(replies.gone()),
        Some(Resumed::Never) => return Err(no_event()),
    };
    let numbers = replies.last.subscribe();
    replies.readers.send_modify(|readers| *readers += 1);
    let reader = Reader {
        replies,
        next,
        awaited,
        numbers,
        hash: caller.token.hash,
        tokens: app.tokens.changes(),
        _places: (own, place),
    };
    let begin = format!("retry: {RETRY_MS}\n: connected\n\n");
    let chunks = stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        let (chunk, last) = reader.next().await?;
        Some((chunk, Some(reader).filter(|_| !last)))
    });
    let chunks = stream::once(std::future::ready(begin)).chain(chunks);
    Ok(Body::from_stream(chunks.map(Ok::<_, Infallible>)))
}

/// What came for a peer and is not forgotten yet.
pub(crate) struct Replies {
    bus: Bus,
    state: Mutex<Kept>,
    /// Tells that there is an event, or a confirmation.
    last: watch::Sender<()>,
    readers: watch::Sender<usize>,
}

impl Replies {
    pub(crate) fn new(bus: Bus) -> Self {
        Self {
            bus,
            state: Mutex::new(Kept::new(Bus::new_id().as_str().to_owned())),
            last: watch::Sender::new(()),
            readers: watch::Sender::new(0),
        }
    }

    /// Takes from the bus while somebody reads; until then it waits at the broker.
    pub(crate) async fn gather(self: Arc<Self>) {
        let (mut readers, mut link) = (self.readers.subscribe(), self.bus.link());
        loop {
            tokio::select! {
                // Lives as long as self.
                _some = readers.wait_for(|readers| *readers > 0) => {}
                _closed = link.wait_for(|link| *link == LinkState::Closed) => return,
            }
            if !lock(&self.state).has_room() {
                // A reader that confirms makes some.
                let mut told = self.last.subscribe();
                let room = async {
                    while !lock(&self.state).make_room() && told.changed().await.is_ok() {}
                };
                let _late = timeout(KEEP_ALIVE, room).await;
                continue;
            }
            let event = tokio::select! {
                event = self.bus.next() => event,
                _none = readers.wait_for(|readers| *readers == 0) => continue,
            };
            match event {
                Some(event) => self.keep(event),
                None => return,
            }
        }
    }

    fn keep(&self, event: SessionEvent) {
        let me = self.bus.name();
        let told = match event {
            SessionEvent::Message(message) => {
                let Some(said) = said(&message) else {
                    tracing::error!(id = %message.id, "a message cannot be told, and waits");
                    return;
                };
                let mark = mark(&me, &message);
                Told {
                    bytes: message.body.len(),
                    from: Some(message.from),
                    ..Told::new("message", &said, mark, Due::Ack(message.key))
                }
            }
            SessionEvent::Notice { receipt, id } => {
                let to = receipt.to.as_deref().unwrap_or_default();
                let mark = Mark::of(&[&me, receipt.id.as_str(), to, receipt.stage.word()]);
                let due = id.map_or(Due::Nothing, Due::Notice);
                Told::new("receipt", &fate(&receipt), mark, due)
            }
            SessionEvent::GaveUp { id } => {
                let why = "it was never confirmed, and is not sent again";
                let told = json!({ "id": id, "stage": "unknown", "reason": why });
                let mark = Mark::of(&[&me, id.as_str()]);
                Told::new("receipt", &told.to_string(), mark, Due::Nothing)
            }
            SessionEvent::Registered { .. }
            | SessionEvent::NotJoined { .. }
            | SessionEvent::Lapsed { .. } => return,
        };
        let due = lock(&self.state).push(told);
        self.settle(due);
        self.last.send_replace(());
    }

    /// A reader has had an event; what is due for it and what came before it is done.
    fn resume(&self, cursor: Cursor<'_>) -> Resumed {
        let (resumed, due) = lock(&self.state).resume(cursor);
        self.settle(due);
        self.last.send_replace(());
        resumed
    }

    fn settle(&self, all: Vec<Due>) {
        for due in all {
            match due {
                Due::Ack(key) => self.bus.ack(&key, How::Pushed { path: PATH.into() }),
                Due::Notice(id) => self.bus.ack_notice(id),
                Due::Nothing => {}
            }
        }
    }

    /// What followed a cursor was confirmed by others and forgotten.
    fn gone(&self) -> Failure {
        let state = lock(&self.state);
        let from = state.id_before(state.unconfirmed());
        let why = "what followed that Last-Event-ID was confirmed by another reader, and is not kept \
                   any more: go on without one, which gives what nobody confirmed; `peerbus \
                   history` on that machine has the rest";
        Failure::new(StatusCode::GONE, why).with("last_event_id", from)
    }
}

struct Reader {
    replies: Arc<Replies>,
    next: u64,
    /// The event that it had last, of an earlier process, and how long it waits for that to come again.
    awaited: Option<(Mark, Instant)>,
    numbers: watch::Receiver<()>,
    hash: TokenHash,
    tokens: watch::Receiver<Arc<crate::tokens::WebFile>>,
    _places: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.replies.readers.send_modify(|readers| *readers -= 1);
    }
}

impl Reader {
    /// What is written next, and whether it is the last.
    async fn next(&mut self) -> Option<(String, bool)> {
        loop {
            let now = Arc::clone(&self.tokens.borrow_and_update());
            if !now.tokens.values().any(|token| token.hash == self.hash) {
                return None;
            }
            self.numbers.borrow_and_update();
            let pause = match self.look()? {
                Ok(chunk) => return Some(chunk),
                Err(pause) => pause,
            };
            tokio::select! {
                changed = self.numbers.changed() => changed.ok()?,
                changed = self.tokens.changed() => changed.ok()?,
                () = sleep(pause) => {
                    if self.awaited.is_none() {
                        return Some((": \n\n".into(), false));
                    }
                }
            }
        }
    }

    /// What it is written next, or how long it waits; nothing more, if what it had last was confirmed by
    /// others and forgotten.
    fn look(&mut self) -> Option<Result<(String, bool), Duration>> {
        let mut state = lock(&self.replies.state);
        if let Some((mark, until)) = &self.awaited {
            let left = until.saturating_duration_since(Instant::now());
            if state.awaits(mark) && !left.is_zero() {
                return Some(Err(left));
            }
            self.awaited = None;
            self.next = state.unconfirmed();
        }
        loop {
            let (events, bytes) = state.under_way(self.next);
            let full = events >= UNCONFIRMED_MAX || bytes >= UNCONFIRMED_BYTES_MAX;
            match state.at(self.next)? {
                Some(event) if !full => {
                    self.next += 1;
                    if !event.is_empty() {
                        return Some(Ok((event.to_string(), false)));
                    }
                }
                None if !full && state.make_room() => return Some(Err(KEEP_ALIVE)),
                // Nothing can come any more until something is confirmed.
                _ => {
                    let why = format!(
                        ": {events} events are unconfirmed. Come back with the id of the last one as \
                         Last-Event-ID\n\n"
                    );
                    return Some(Ok((why, true)));
                }
            }
        }
    }
}

/// A message, with its text as a person reads it and its body as it was sent.
#[derive(Serialize)]
struct Said<'a> {
    id: &'a str,
    from: &'a str,
    kind: &'a str,
    ts: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<&'a str>,
    /// It may have been written to a reader before.
    again: bool,
    text: &'a str,
    body: &'a RawValue,
}

/// Names a message. Another one may have its sender's name and its id, of another token or when a
/// temporary peer has left.
fn mark(me: &str, message: &Inbound) -> Mark {
    let token = message.token.as_deref().unwrap_or_default();
    let (from, id, ts) = (&message.from, &message.id, &message.ts);
    Mark::of(&[me, from, id, token, ts, &message.body])
}

fn said(message: &Inbound) -> Option<String> {
    let talk = Conversation::of(&message.body);
    let said = Said {
        id: &message.id,
        from: &message.from,
        kind: quote::kind(message.kind),
        ts: &message.ts,
        reply_to: talk.reply_to.as_ref().map(|id| id.as_str()),
        thread: talk.thread.as_deref(),
        again: message.again,
        text: &quote::said(&message.body),
        body: serde_json::from_str(&message.body).ok()?,
    };
    serde_json::to_string(&said).ok()
}

/// What became of a message that was sent with the token.
fn fate(told: &Receipt) -> String {
    let known = receipt(told);
    let told = known.unwrap_or_else(|| {
        let at = told.at_ms.map(rfc3339);
        // It comes again as it is, whenever that is.
        let undated = Receipt {
            at_ms: None,
            ..told.clone()
        };
        let reason = Trail::new(told.id.as_str(), &[undated], wall_ms()).note;
        let Words { state, reply, .. } = Words::of(&told.stage);
        let mut said = json!({
            "id": told.id.as_str(), "to": told.to, "at": at, "stage": state, "reason": reason,
        });
        // The message that is the result of a request.
        if let Some(reply) = reply {
            said["reply"] = reply.into();
        }
        said
    });
    told.to_string()
}

#[cfg(test)]
mod tests {
    use peerbus_adapter::{Key, Kind, Stage};
    use peerbus_wire::MessageId;

    use super::*;

    fn inbound(body: &str, token: Option<&str>) -> Inbound {
        Inbound {
            key: Key::local(1),
            id: "m1".into(),
            from: "deploy".into(),
            source: String::new(),
            kind: Kind::Msg,
            ts: String::new(),
            body: body.into(),
            again: false,
            to: None,
            group: None,
            one: false,
            token: token.map(str::to_owned),
            approves: false,
            age_ms: 0,
            within_ms: 0,
        }
    }

    #[test]
    fn another_message_under_a_used_name_and_id_has_another_mark() {
        let first = inbound("1", None);
        let again = Inbound {
            again: true,
            ..first.clone()
        };
        assert_eq!(mark("web:ci", &first), mark("web:ci", &again));
        for other in [inbound("2", None), inbound("1", Some("eve"))] {
            assert_ne!(mark("web:ci", &first), mark("web:ci", &other));
        }
    }

    #[test]
    fn what_comes_again_says_when_it_was_so_and_no_age() {
        let told = Receipt {
            id: MessageId::parse("m1").unwrap(),
            at_ms: Some(1),
            key: None,
            to: Some("bob".into()),
            stage: Stage::Delivered,
        };
        let said: serde_json::Value = serde_json::from_str(&fate(&told)).unwrap();
        assert_eq!(said["at"], "1970-01-01T00:00:00.001Z");
        let reason = "bob got it and has not said what became of it";
        assert_eq!(said["reason"], reason);
    }
}
