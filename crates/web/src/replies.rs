//! What comes for a token's peer, as a stream that can be resumed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use peerbus_adapter::mailbox::{quote, receipt};
use peerbus_adapter::{Bus, Event, How, Inbound, Key, LinkState, NoticeId, Receipt, wall_ms};
use peerbus_mcp::Trail;
use peerbus_wire::{Conversation, escape_json};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use crate::App;
use crate::answer::Failure;

/// Time between two comments in a stream in which nothing happens.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What is kept for a reader that resumes, and what may wait for one that does not read: events, and
/// bytes of them.
const EVENTS_MAX: usize = 1_024;
const EVENTS_BYTES_MAX: usize = 8 * 1_048_576;
/// The path that an ack names.
const PATH: &str = "web";

/// `GET /v1/replies`.
pub(crate) async fn replies(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    match open(&app, &headers) {
        Ok(stream) => {
            let headers = [
                (header::CONTENT_TYPE, "text/event-stream"),
                (header::CACHE_CONTROL, "no-cache"),
            ];
            (headers, stream).into_response()
        }
        Err(failure) => failure.into_response(),
    }
}

fn open(app: &Arc<App>, headers: &HeaderMap) -> Result<Body, Failure> {
    let caller = app.admit(headers)?;
    let place = Arc::clone(&app.streams).try_acquire_owned().map_err(|_| {
        let why = "there are 64 streams, as many as may be; close one";
        Failure::new(StatusCode::TOO_MANY_REQUESTS, why).retry_after(5)
    })?;
    let replies = Arc::clone(&caller.peer.replies);
    let next = match headers.get("last-event-id") {
        None => replies.state().unread(),
        Some(cursor) => replies.resume(cursor.to_str().unwrap_or_default())?,
    };
    let numbers = replies.last.subscribe();
    replies.readers.send_modify(|readers| *readers += 1);
    let reader = Reader {
        replies,
        next,
        numbers,
        told: None,
        first: true,
        hash: caller.token.hash,
        tokens: app.tokens.changes(),
        _place: place,
    };
    let chunks = stream::unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((Ok::<_, Infallible>(chunk), reader))
    });
    Ok(Body::from_stream(chunks))
}

/// What came for a peer and is not forgotten yet.
pub(crate) struct Replies {
    bus: Bus,
    /// What tells numbers of this process from those of the one before.
    run: String,
    state: Mutex<Kept>,
    last: watch::Sender<u64>,
    readers: watch::Sender<usize>,
}

#[derive(Default)]
struct Kept {
    /// The number of the first event that is kept.
    first: u64,
    events: VecDeque<Told>,
    bytes: usize,
}

/// An event as it is written.
struct Told {
    text: Arc<str>,
    /// What is due once it was written to a reader.
    due: Due,
}

enum Due {
    Ack(Key),
    Notice(NoticeId),
    Nothing,
}

impl Replies {
    pub(crate) fn new(bus: Bus) -> Self {
        Self {
            bus,
            run: peerbus_adapter::Bus::new_id().as_str().to_owned(),
            state: Mutex::default(),
            last: watch::Sender::new(0),
            readers: watch::Sender::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, Kept> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            if !self.state().has_room() {
                // A reader that goes on, or one that leaves, makes some.
                let written = self.last.subscribe();
                let _room = timeout(KEEP_ALIVE, wait_for_room(&self, written)).await;
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

    fn keep(&self, event: Event) {
        let (name, data, due) = match event {
            Event::Message(message) => {
                let Some(said) = said(&message) else {
                    tracing::error!(id = %message.id, "a message cannot be told, and waits");
                    return;
                };
                ("message", said, Due::Ack(message.key))
            }
            Event::Notice { receipt, id } => {
                let due = id.map_or(Due::Nothing, Due::Notice);
                ("receipt", fate(&receipt), due)
            }
            Event::GaveUp { id } => {
                let why = "it was never confirmed, and is not sent again";
                let told = json!({ "id": id, "stage": "unknown", "reason": why });
                ("receipt", told.to_string(), Due::Nothing)
            }
            Event::Registered { .. } | Event::NotJoined { .. } | Event::Job { .. } => return,
        };
        let data = escape_json(&data);
        let mut state = self.state();
        let number = state.first + state.events.len() as u64;
        let text = format!("id: {}-{number}\nevent: {name}\ndata: {data}\n\n", self.run);
        state.bytes += text.len();
        state.events.push_back(Told {
            text: text.into(),
            due,
        });
        while !state.has_room() && state.forget() {}
        drop(state);
        self.last.send_replace(number + 1);
    }

    /// The number behind the cursor.
    fn resume(&self, cursor: &str) -> Result<u64, Failure> {
        let state = self.state();
        let number = cursor.rsplit_once('-').filter(|(run, _)| *run == self.run);
        let number = number.and_then(|(_, number)| number.parse::<u64>().ok());
        let next = number.and_then(|number| number.checked_add(1));
        let end = state.first + state.events.len() as u64;
        next.filter(|next| (state.first..=end).contains(next)).ok_or_else(|| {
            let unread = state.unread();
            let from = unread.checked_sub(1).filter(|_| unread > state.first);
            let from = from.map(|number| format!("{}-{number}", self.run));
            let why = "what followed that Last-Event-ID is not kept any more: go on without one, \
                       which gives what nobody read yet; `peerbus history` on that machine has the \
                       rest";
            Failure::new(StatusCode::GONE, why).with("last_event_id", from)
        })
    }

    /// The event with a number, if it has come already. `None`: it was read by others and forgotten.
    fn at(&self, number: u64) -> Option<Option<String>> {
        let state = self.state();
        let at = usize::try_from(number.checked_sub(state.first)?).unwrap_or(usize::MAX);
        let event = state.events.get(at);
        Some(event.map(|event| event.text.to_string()))
    }

    /// An event was written to a reader.
    fn written(&self, number: u64) {
        let mut state = self.state();
        let Some(at) = number.checked_sub(state.first) else {
            return;
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let Some(event) = state.events.get_mut(at) else {
            return;
        };
        let due = std::mem::replace(&mut event.due, Due::Nothing);
        drop(state);
        match due {
            Due::Ack(key) => self.bus.ack(&key, How::Pushed { path: PATH.into() }),
            Due::Notice(id) => self.bus.ack_notice(id),
            Due::Nothing => return,
        }
        self.last.send_modify(|_| {});
    }
}

async fn wait_for_room(replies: &Replies, mut written: watch::Receiver<u64>) {
    while !replies.state().make_room() && written.changed().await.is_ok() {}
}

impl Kept {
    fn has_room(&self) -> bool {
        self.events.len() < EVENTS_MAX && self.bytes < EVENTS_BYTES_MAX
    }

    /// Drops the oldest event if it was read.
    fn forget(&mut self) -> bool {
        let read = self
            .events
            .front()
            .is_some_and(|event| matches!(event.due, Due::Nothing));
        if let Some(event) = self.events.pop_front_if(|_| read) {
            self.bytes -= event.text.len();
            self.first += 1;
        }
        read
    }

    fn make_room(&mut self) -> bool {
        while !self.has_room() && self.forget() {}
        self.has_room()
    }

    /// The number of the first event that nobody read.
    fn unread(&self) -> u64 {
        let read = |event: &&Told| matches!(event.due, Due::Nothing);
        self.first + self.events.iter().take_while(read).count() as u64
    }
}

struct Reader {
    replies: Arc<Replies>,
    next: u64,
    numbers: watch::Receiver<u64>,
    /// The event that was handed to the connection last.
    told: Option<u64>,
    first: bool,
    hash: String,
    tokens: watch::Receiver<Arc<crate::tokens::WebFile>>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.replies.readers.send_modify(|readers| *readers -= 1);
    }
}

impl Reader {
    async fn next(&mut self) -> Option<String> {
        if std::mem::take(&mut self.first) {
            return Some(": connected\n\n".into());
        }
        // Whoever asks for more has written what it got.
        if let Some(number) = self.told.take() {
            self.replies.written(number);
        }
        loop {
            let now = Arc::clone(&self.tokens.borrow_and_update());
            if !now.tokens.values().any(|token| token.hash == self.hash) {
                return None;
            }
            self.numbers.borrow_and_update();
            let event = self.replies.at(self.next)?;
            if event.is_some() {
                self.told = Some(self.next);
                self.next += 1;
                return event;
            }
            tokio::select! {
                changed = self.numbers.changed() => changed.ok()?,
                changed = self.tokens.changed() => changed.ok()?,
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(": \n\n".into()),
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
        let reason = Trail::new(told.id.as_str(), std::slice::from_ref(told), wall_ms()).note;
        json!({ "id": told.id.as_str(), "to": told.to, "stage": told.stage.word(), "reason": reason })
    });
    told.to_string()
}
