//! What was said, who is there and what happens, for the operator's own programs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use peerbus_core::broker::{Broker, MessageHistory, OpenRequest};
use peerbus_core::store::{StoreError, Txn};
use peerbus_store::{History, HistoryRow, Page, Query as Meant};
use peerbus_view::{Around, Audience, MessageView, RequestView, depends_on_peers, spoken};
use peerbus_wire::{
    BrokerFrame, Conversation, Envelope, GroupName, MessageId, PeerName, PeersFrame, Seq, Stage,
    body_of, is_id_part,
};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use super::{HttpResult, ask, refused, stopping};
use crate::events::{LINGER, Next, STREAMS_MAX};
use crate::listener::Via;
use crate::shared::Shared;

/// Messages of a page, unless the request says how many, and at most.
const LIMIT: usize = 50;
const LIMIT_MAX: usize = 500;
/// Messages that are looked at for a text before an answer.
const LOOKED_MAX: usize = 5_000;
/// Bytes of an answer; those who ask read no more than 8 MiB.
const ANSWER_BYTES: usize = 6 * 1_048_576;
/// Messages of which the engine is asked at once: others have their turn in between.
const AT_ONCE: usize = 16;
/// Ids that are listed where a part may be of several.
const IDS_LISTED: usize = 10;
/// Time between two comments in a stream in which nothing happens.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const JSON: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];

#[derive(Deserialize)]
pub(crate) struct Wanted {
    with: Option<String>,
    owed: Option<String>,
    thread: Option<String>,
    text: Option<String>,
    id: Option<String>,
    since: Option<u64>,
    before: Option<u64>,
    limit: Option<usize>,
    /// For whom the sentences are: `owner` (unless said) or `peer`.
    #[serde(default)]
    audience: Audience,
}

/// `GET /v1/messages`: the newest that are meant.
pub(crate) async fn messages(
    State(shared): State<Arc<Shared>>,
    Query(wanted): Query<Wanted>,
) -> HttpResult {
    let with = match &wanted.with {
        Some(name) if name.starts_with('#') => {
            GroupName::parse(name).map(drop).map_err(|e| e.to_string())
        }
        Some(name) => PeerName::parse(name).map(drop).map_err(|e| e.to_string()),
        None => Ok(()),
    };
    let owed = wanted.owed.as_deref().map(PeerName::parse).transpose();
    let names = with.and(owed.map(drop).map_err(|e| e.to_string()));
    names.map_err(|error| refused(StatusCode::BAD_REQUEST, error))?;
    let limit = wanted.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let why = format!("limit must be 1 to {LIMIT_MAX}");
        return Err(refused(StatusCode::BAD_REQUEST, why));
    }
    let thread = match &wanted.thread {
        // A conversation has the id of its first message, unless its sender chose another.
        Some(text) if is_id_part(text) => Some(whole(&shared, text).await?.to_string()),
        thread => thread.clone(),
    };
    let meant = Meant {
        with: wanted.with,
        owed: wanted.owed,
        thread,
        since_ms: wanted.since,
        before: wanted.before.map(Seq),
    };
    let owed = meant.owed.clone();
    let text = wanted.text.map(|text| text.to_lowercase());
    let page = read(&shared, move |history| match text {
        Some(text) => saying(history, meant, limit, &text),
        None => history.find(&meant, limit),
    });
    let page = page.await?;
    let whose = (owed.as_deref(), wanted.audience);
    answer(&shared, (page, BTreeMap::new()), whose).await
}

/// The id that is meant by it, or by a part of it. What is a part of none stands for itself.
async fn whole(shared: &Arc<Shared>, text: &str) -> Result<MessageId, Response> {
    let text = MessageId::parse(text).map_err(|error| refused(StatusCode::BAD_REQUEST, error))?;
    if !is_id_part(text.as_str()) {
        return Ok(text);
    }
    let part = text.clone();
    let found = read(shared, move |history| history.ids(&part, IDS_LISTED + 1)).await?;
    match &found[..] {
        [] => Ok(text),
        [one] => {
            MessageId::parse(one).map_err(|error| refused(StatusCode::INTERNAL_SERVER_ERROR, error))
        }
        many => {
            let more = if many.len() > IDS_LISTED {
                " and more"
            } else {
                ""
            };
            let many = many[..many.len().min(IDS_LISTED)].join(", ");
            let why = format!("{text} may be each of these: {many}{more}; give more of the id");
            Err(refused(StatusCode::CONFLICT, why))
        }
    }
}

/// Of the messages that are meant those in whose text this stands, in lower case: at most `limit`, and
/// fewer where many others stand between them.
fn saying(
    history: &History,
    mut meant: Meant,
    limit: usize,
    text: &str,
) -> Result<Page, StoreError> {
    let (mut page, mut looked, mut bytes) = (Page::default(), 0, 0);
    loop {
        let found = history.find(&meant, LIMIT_MAX)?;
        looked += found.messages.len();
        for row in found.messages {
            let carried = row.envelope.as_deref().unwrap_or_default();
            let decoded = Envelope::decode(carried.as_bytes()).ok();
            let body = decoded.and_then(|it| String::from_utf8(it.envelope.body).ok());
            if !body.is_some_and(|body| spoken(&body).to_lowercase().contains(text)) {
                continue;
            }
            bytes += carried.len();
            let seq = row.head.seq;
            page.messages.push(row);
            if page.messages.len() >= limit || bytes >= ANSWER_BYTES {
                page.before = Some(seq);
                return Ok(page);
            }
        }
        page.before = found.before;
        match found.before {
            Some(next) if looked < LOOKED_MAX => meant.before = Some(next),
            _ => return Ok(page),
        }
    }
}

/// `GET /v1/messages/{id}`: those that go by an id, or the one that a part of an id means.
pub(crate) async fn message(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(Wanted {
        before, audience, ..
    }): Query<Wanted>,
) -> HttpResult {
    let id = whole(&shared, &id).await?;
    let before = before.map(Seq);
    let page = read(&shared, move |history| history.by_id(&id, before, LIMIT)).await?;
    answer(&shared, (page, BTreeMap::new()), (None, audience)).await
}

/// `GET /v1/requests`: those that have no result, or those of them that `id` or a part of it names, the
/// oldest first. Of too many each token's are told in turn, and `before` is no null.
pub(crate) async fn requests(
    State(shared): State<Arc<Shared>>,
    Query(Wanted { audience, id, .. }): Query<Wanted>,
) -> HttpResult {
    let find = move |broker: &mut Broker, now, txn: &mut dyn Txn| {
        broker.open_requests(now, txn, id.as_deref())
    };
    let (open, more) = ask(&shared, find).await?;
    let seqs: Vec<_> = open.iter().map(|request| request.seq).collect();
    let last = seqs.last().copied().filter(|_| more);
    let mut page = read(&shared, move |history| history.of(&seqs)).await?;
    page.before = page.before.or(last);
    let open = open.into_iter().map(|it| (it.seq, it)).collect();
    answer(&shared, (page, open), (None, audience)).await
}

/// Answers with messages and what became of them, as many as an answer has room for, and at least one. Of
/// those that are owed to one peer the steps at that one are told.
async fn answer(
    shared: &Shared,
    (page, open): (Page, BTreeMap<Seq, OpenRequest>),
    (owed, audience): (Option<&str>, Audience),
) -> HttpResult {
    let (mut all, mut bytes, mut before) = (Vec::new(), 0, page.before);
    let (mut last, mut peers) = (None, None);
    let mut messages = page.messages.into_iter();
    'page: loop {
        let some: Vec<_> = messages.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            break;
        }
        for (found, known) in histories(shared, some).await? {
            let over = known.receipts.iter().any(|receipt| receipt.stage.is_end());
            if over && open.contains_key(&found.head.seq) {
                // It ended since the engine was asked which are open.
                continue;
            }
            let id = &found.head.id;
            if peers.is_none()
                && depends_on_peers(id.as_str(), &known.receipts)
                && let BrokerFrame::Peers(frame) = all_peers(shared).await?
            {
                peers = Some(frame.peers.unwrap_or_default());
            }
            let around = Around {
                now_ms: shared.clock.now().wall_ms,
                peers: peers.as_deref().unwrap_or_default(),
                audience,
            };
            let text = found.envelope.as_deref();
            let signed = Envelope::decode(text.unwrap_or_default().as_bytes()).ok();
            let view = MessageView {
                seq: found.head.seq.0,
                from: signed.map_or(known.from, |decoded| decoded.envelope.from),
                at: found.head.accepted_ms,
                request: open.get(&found.head.seq).map(|open| {
                    let whom = (&*open.to, open.holder.as_deref());
                    RequestView::new(whom, open.left_ms, &known.receipts, around)
                }),
                ..MessageView::new(id, &known.receipts, owed, around)
            };
            let view = view.write(text);
            bytes += view.len();
            if bytes > ANSWER_BYTES && last.is_some() {
                before = last;
                break 'page;
            }
            last = Some(found.head.seq);
            all.push((found.head.seq, view));
        }
    }
    let before = json!(before.map(|seq| seq.0));
    if !open.is_empty() {
        all.sort_unstable_by_key(|(seq, _)| *seq);
    }
    let all: Vec<_> = all.into_iter().map(|(_, view)| view).collect();
    let all = all.join(",");
    let body = format!(r#"{{"before":{before},"messages":[{all}]}}"#);
    Ok((JSON, body).into_response())
}

/// What became of messages: of those that are under way the engine knows more than the disk.
async fn histories(
    shared: &Shared,
    messages: Vec<HistoryRow>,
) -> Result<Vec<(HistoryRow, MessageHistory)>, Response> {
    let open = |found: &&HistoryRow| {
        // A request that was read goes on.
        let text = found.envelope.as_deref().map(body_of);
        let wants = text.is_some_and(|body| Conversation::of(body).within_ms.is_some());
        let last = |stage: &Stage| !wants || stage.is_end() || stage.is_lost();
        // Where it was and is not any more is no end.
        let ends = found
            .fates
            .iter()
            .filter(|fate| !matches!(*fate.stage, Stage::Recalled { .. }) && last(&fate.stage));
        let ended = ends.count() >= found.head.recipients as usize;
        !ended || found.envelope.is_none()
    };
    let open = messages.iter().filter(open);
    let open: Vec<Seq> = open.map(|found| found.head.seq).collect();
    let known = match open.is_empty() {
        true => Vec::new(),
        false => {
            ask(shared, move |broker, _, txn| {
                broker.histories_of(&open, txn)
            })
            .await?
        }
    };
    let mut known = known.into_iter().peekable();
    let histories = messages.into_iter().map(|found| {
        let known = known.next_if(|history| history.seq == found.head.seq);
        let known = known.unwrap_or_else(|| MessageHistory {
            seq: found.head.seq,
            from: String::new(),
            receipts: MessageHistory::ended(&found.head, &found.fates),
        });
        (found, known)
    });
    Ok(histories.collect())
}

/// Reads the history beside the engine.
async fn read<T: Send + 'static>(
    shared: &Arc<Shared>,
    read: impl FnOnce(&History) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Response> {
    let witness = shared.witness.as_ref().ok_or_else(stopping)?;
    let path = witness.database().to_owned();
    let failed = |why: String| refused(StatusCode::INTERNAL_SERVER_ERROR, why);
    let done = tokio::task::spawn_blocking(move || read(&History::open(&path)?)).await;
    done.map_err(|error| failed(format!("the history cannot be read: {error}")))?
        .map_err(|error| failed(error.to_string()))
}

/// `POST /v1/history/purge`: deletes what ended until now, and answers when that is done.
pub(crate) async fn purge(State(shared): State<Arc<Shared>>) -> HttpResult {
    let mut until = None;
    loop {
        match ask(&shared, move |broker, now, txn| {
            broker.purge(now, until, txn)
        })
        .await?
        {
            (from, true) => until = Some(from),
            (_, false) => return Ok(Json(json!({})).into_response()),
        }
    }
}

/// `GET /v1/peers`: all of them, as `peers` tells them.
pub(crate) async fn peers(State(shared): State<Arc<Shared>>) -> HttpResult {
    let frame = all_peers(&shared).await?;
    Ok((JSON, frame.encode().to_string()).into_response())
}

async fn all_peers(shared: &Shared) -> Result<BrokerFrame, Response> {
    let asked = ask(shared, |broker, now, txn| {
        let frame = broker.all_peers(now, txn)?;
        let peers = match &frame {
            BrokerFrame::Peers(PeersFrame { peers, .. }) => peers.as_deref().unwrap_or_default(),
            _ => &[],
        };
        let conns = peers.iter().map(|peer| broker.connection(&peer.name));
        let conns = conns.collect::<Vec<_>>();
        Ok((frame, conns))
    });
    let (mut frame, conns) = asked.await?;
    if let BrokerFrame::Peers(PeersFrame { peers, .. }) = &mut frame {
        for (peer, conn) in peers.iter_mut().flatten().zip(conns) {
            peer.stopped = conn.is_some_and(|conn| shared.table.is_stopped(conn));
        }
    }
    Ok(frame)
}

/// Whether what happens to each message is to be told.
async fn watch(shared: &Shared, watched: bool) -> Result<(), Response> {
    ask(shared, move |broker, _, _| {
        broker.watch(watched);
        Ok(())
    })
    .await
}

/// A stream of the log; counted while it lives.
struct Reader {
    shared: Arc<Shared>,
    changes: watch::Receiver<u64>,
    after: u64,
    /// What is said before anything else.
    first: Option<String>,
    over: bool,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some(turn) = self.shared.events.leave() else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        // Without a runtime everything ends anyway.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(LINGER).await;
                if shared.events.end(turn) {
                    let _stopped = watch(&shared, false).await;
                    // Somebody may have come in between.
                    if shared.events.is_watched() {
                        let _stopped = watch(&shared, true).await;
                    }
                }
            });
        }
    }
}

/// `GET /v1/events`: what happens, from now on or behind `Last-Event-ID`.
pub(crate) async fn events(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(via): ConnectInfo<Via>,
    headers: HeaderMap,
) -> HttpResult {
    let Some(begins) = shared.events.enter() else {
        let why =
            format!("there are {STREAMS_MAX} streams of events, as many as may be; close one");
        return Err(refused(StatusCode::TOO_MANY_REQUESTS, why));
    };
    let mut reader = Reader {
        changes: shared.events.changes(),
        after: shared.events.last(),
        first: None,
        over: false,
        shared: Arc::clone(&shared),
    };
    if begins {
        watch(&shared, true).await?;
    }
    if let Some(cursor) = headers.get("last-event-id") {
        let cursor = cursor.to_str().unwrap_or_default();
        match shared.events.resume(cursor) {
            Some(after) => reader.after = after,
            None => return Err((StatusCode::GONE, gone(&shared)).into_response()),
        }
    }
    // It may stay open for days.
    via.0.set_upgraded();
    let cursor = shared.events.cursor(reader.after);
    reader.first = Some(format!("id: {cursor}\nevent: ready\ndata: {{}}\n\n"));
    let events = stream::unfold(reader, |mut reader| async move {
        let text = reader.next().await?;
        Some((Ok::<_, Infallible>(text), reader))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, Body::from_stream(events)).into_response())
}

/// From where somebody can go on whose cursor is gone.
fn gone(shared: &Shared) -> String {
    format!(
        "what followed that Last-Event-ID is not kept any more: go on without one, or from {}, and \
         read what you missed at /v1/messages?since=MILLISECONDS\n",
        shared.events.cursor(shared.events.last())
    )
}

impl Reader {
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.over {
            return None;
        }
        loop {
            match self.shared.events.next(self.after) {
                Next::Event(number, event) => {
                    self.after = number;
                    return Some(event.to_string());
                }
                Next::Closed => return None,
                Next::Gone => {
                    self.over = true;
                    let why = json!({ "reason": gone(&self.shared).trim() });
                    return Some(format!("event: gone\ndata: {why}\n\n"));
                }
                Next::Nothing => {}
            }
            match tokio::time::timeout(KEEP_ALIVE, self.changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some(": \n\n".into()),
            }
        }
    }
}
