//! Messages in: `POST /hook/PEER` and `POST /v1/messages`. The answer is the broker's receipt.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use peerbus_adapter::{
    Bus, PeerName, Refusal, RefusalCode, SendError, SentMessage, Stage, similar, wall_ms,
};
use peerbus_node::approvals::in_words;
use peerbus_view::{Trail, Words, is_seen, reached};
use peerbus_wire::limits::{META_BYTES_MAX, META_MAX, WITHIN_MS_MAX};
use peerbus_wire::{Conversation, MessageId, Priority, escape, readable};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::App;
use crate::answer::Failure;
use crate::body::{self, BODY_BYTES_MAX, Said, bad, not_json};
use crate::kept::digest;
use crate::peers::Caller;
use crate::tokens::WebToken;

const ACCEPTS: Duration = Duration::from_secs(10);
/// How long it may take to look for names like an unknown one, or to tell how far a message got.
const LOOK_UP: Duration = Duration::from_secs(2);
const KEY_BYTES_MAX: usize = 255;
/// Where senders of webhooks name a delivery, the same when they repeat it.
const DELIVERIES: [&str; 6] = [
    "x-github-delivery",
    "x-gitea-delivery",
    "x-forgejo-delivery",
    "x-gitlab-event-uuid",
    "webhook-id",
    "x-request-uuid",
];

/// What is said of a body in which something was replaced.
const REPLACED: &str = "the body held what many readers of JSON refuse, and the message has this in its place: \
    U+FFFD for half of a surrogate pair, a text of its digits for a number that no double holds";

type Answer = Result<Json<Value>, Failure>;

/// Requests that are one, if they have the same.
pub(crate) enum Key {
    /// The caller's own; with another request it is a mistake.
    Asked(String),
    /// Of a delivery: its header and its value. Some senders use one for several messages.
    Delivery(&'static str, String),
}

impl Key {
    /// Where the answer of a request with this key is, or will be, and an id that the key and all that is
    /// wanted give: where the key's answer is forgotten, another message is not taken for this.
    pub(crate) fn cell(
        &self,
        caller: &Caller,
        wanted: &[&str],
    ) -> Result<(MessageId, Arc<OnceCell<Value>>), Failure> {
        let hash = String::from(caller.token.hash);
        let own: &[&str] = match self {
            Self::Asked(key) => &[&hash, key],
            Self::Delivery(header, key) => &[&hash, header, key],
        };
        let id = id_of(&[own, wanted].concat());
        let slot = match self {
            Self::Asked(_) => id_of(own),
            Self::Delivery(..) => id.clone(),
        };
        let cell = caller.peer.answered.cell(slot.as_str(), id.as_str());
        let cell = cell.ok_or_else(|| {
            let why = "this Idempotency-Key was used for another request: choose a new one";
            Failure::new(StatusCode::CONFLICT, why)
        })?;
        Ok((id, cell))
    }
}

/// What `POST /v1/messages` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<'a> {
    to: String,
    #[serde(borrow)]
    body: &'a RawValue,
    thread: Option<String>,
    reply_to: Option<String>,
    priority: Option<String>,
    /// In JSON `1000.0` is a whole number, too.
    within_ms: Option<f64>,
}

/// `POST /v1/messages`.
pub(crate) async fn message(State(app): State<Arc<App>>, request: Request) -> Answer {
    let caller = app.admit(&request)?;
    let key = key(request.headers())?;
    body::check(request.headers(), BODY_BYTES_MAX)?;
    let bodies = &caller.peer.bodies;
    let bytes = bodies.read(request.into_body(), BODY_BYTES_MAX).await?;
    let caller = app.still(caller)?;
    let text = readable(body::text(&bytes)?);
    let message: Message<'_> = serde_json::from_str(&text).map_err(|error| not_json(&error))?;
    let body = match message.body.get() {
        text if text.starts_with('"') => saying(&caller.token, text),
        other => other.to_owned(),
    };
    let mut said = Conversation::of(&body);
    place(&message, &mut said)?;
    said.hops = said.hops.max(u32::from(said.reply_to.is_some()));
    let answer = post(&caller, &message.to, &said.write(&body), key).await;
    answer.map(|answer| remarked(answer, matches!(text, Cow::Owned(_))))
}

/// `POST /hook/PEER` and anything below it.
pub(crate) async fn hook(
    State(app): State<Arc<App>>,
    path: Result<Path<Vec<(String, String)>>, PathRejection>,
    request: Request,
) -> Answer {
    let admitted = match app.tokens.may_be_signed(request.headers()) {
        // Another token may be shown beside the signature; which one it is, the body tells.
        true => app.admit(&request).ok(),
        false => Some(app.admit(&request)?),
    };
    let Ok(Path(path)) = path else {
        return Err(bad("the path is not UTF-8: write the peer's name as it is"));
    };
    let to = path.into_iter().next().map(|(_, to)| to);
    let to = to.unwrap_or_default();
    let headers = request.headers();
    let key = key(headers)?.or_else(|| delivery(headers));
    body::check(headers, BODY_BYTES_MAX)?;
    let (parts, content) = request.into_parts();
    let (caller, bytes) = match admitted {
        Some(caller) => {
            let bytes = caller.peer.bodies.read(content, BODY_BYTES_MAX).await?;
            (app.still(caller)?, bytes)
        }
        None => {
            let bytes = app.unsigned.read(content, BODY_BYTES_MAX).await?;
            (app.admit_signed(&parts, &bytes)?, bytes)
        }
    };
    let text = body::text(&bytes)?;
    if text.trim().is_empty() {
        return Err(bad("the body is empty: send a text or JSON"));
    }
    let meta = meta(&parts.uri, &parts.headers, &caller.token)?;
    let mut replaced = false;
    let body = match body::said(&parts.headers, text) {
        Said::Json(json) => {
            let json = readable(&json);
            replaced = matches!(json, Cow::Owned(_));
            let json: &RawValue = serde_json::from_str(&json).map_err(|error| not_json(&error))?;
            json.get().to_owned()
        }
        Said::Text(text) => json!(text).to_string(),
    };
    let talk = Conversation {
        meta,
        ..Conversation::default()
    };
    let said = serde_json::from_str::<String>(&body);
    let body = match said.is_ok_and(|text| in_words(&text).is_some()) {
        // Anything around the words would make them a text like others.
        true => saying(&caller.token, &body),
        false if body.starts_with('{') => talk.write(&format!(r#"{{"content":{body}}}"#)),
        false => talk.write(&body),
    };
    let answer = post(&caller, &to, &body, key).await;
    answer.map(|answer| remarked(answer, replaced))
}

/// Says so where something in a body was replaced.
fn remarked(mut answer: Json<Value>, replaced: bool) -> Json<Value> {
    if replaced {
        answer.0["replaced"] = REPLACED.into();
    }
    answer
}

/// `GET /v1/messages/{id}`: how far a message got that was sent with the token.
pub(crate) async fn status(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let caller = app.admit(&request)?;
    let id = MessageId::parse(&id).map_err(|error| bad(error.to_string()))?;
    let id = id.as_str().to_owned();
    let asked = caller
        .peer
        .bus
        .statuses(std::slice::from_ref(&id), LOOK_UP)
        .await;
    let receipts = asked.map_err(|error| away(&error.to_string()))?;
    let reached = reached(receipts.iter());
    if reached.values().all(|last| last.stage == Stage::Unknown) {
        let why = format!("no message {id} of this token is known any more");
        return Err(Failure::new(StatusCode::NOT_FOUND, why));
    }
    let mut stages = reached.values().map(|last| Words::of(&last.stage).state);
    let stage = stages.find(|word| *word != "recalled").unwrap_or("queued");
    let seen = is_seen(&receipts);
    let Trail { steps, note, .. } = Trail::new(&id, &receipts, wall_ms());
    Ok(Json(
        json!({ "id": id, "stage": stage, "seen": seen, "note": note, "steps": steps }),
    ))
}

/// A JSON string as the body of a message. A session takes a body that is nothing but a text for a
/// verdict, if it reads like one: only tokens that may approve send such bodies.
fn saying(token: &WebToken, text: &str) -> String {
    match token.approve {
        true => text.to_owned(),
        false => format!(r#"{{"text":{text}}}"#),
    }
}

/// Puts a body into the place in a conversation that a request gives.
fn place(message: &Message<'_>, said: &mut Conversation) -> Result<(), Failure> {
    let id = |text: &str, what: &str| {
        MessageId::parse(text).map_err(|error| bad(format!("{what}: {error}")))
    };
    if let Some(thread) = &message.thread {
        said.thread = Some(id(thread, "thread")?.as_str().to_owned());
    }
    if let Some(reply_to) = &message.reply_to {
        said.reply_to = Some(id(reply_to, "reply_to")?);
    }
    if let Some(word) = &message.priority {
        let words = Priority::WORDS.join(", ");
        let priority = Priority::parse(word);
        said.priority = priority.ok_or_else(|| bad(format!("priority is one of {words}")))?;
    }
    if let Some(within_ms) = message.within_ms {
        let whole = within_ms.to_string().parse().ok();
        let whole = whole.filter(|ms| (1..=WITHIN_MS_MAX).contains(ms));
        let why = format!("within_ms is 1 to {WITHIN_MS_MAX}, which is 7 days");
        said.within_ms = Some(whole.ok_or_else(|| bad(why))?);
    }
    Ok(())
}

/// Where a webhook comes from: its method and path, its query, and what headers the token names.
fn meta(
    uri: &Uri,
    headers: &HeaderMap,
    token: &WebToken,
) -> Result<Vec<(String, String)>, Failure> {
    let mut meta = vec![
        ("method".to_owned(), "POST".to_owned()),
        ("path".to_owned(), uri.path().to_owned()),
    ];
    let mut put = |key: &str, value: String| {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let key: String = key.chars().map(letter).collect();
        if !key.is_empty() && meta.iter().all(|(other, _)| *other != key) {
            meta.push((key, value));
        }
    };
    for name in &token.headers {
        if let Some(value) = headers.get(name) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            put(&name.to_ascii_lowercase(), value);
        }
    }
    let query = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
    for (key, value) in query.map_err(|error| bad(error.body_text()))?.0 {
        put(&key, value);
    }
    let bytes: usize = meta
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if meta.len() > META_MAX || bytes > META_BYTES_MAX {
        return Err(bad(format!(
            "path, query and headers come to {} texts and {bytes} bytes; at most {META_MAX} and \
             {META_BYTES_MAX} are handed on: put it into the body",
            meta.len()
        )));
    }
    Ok(meta)
}

/// The key that a request has, if it has one.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<Key>, Failure> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = key.to_str().ok().filter(|text| is_key(text));
    let text =
        text.ok_or_else(|| bad("Idempotency-Key is 1 to 255 ASCII characters without a space"))?;
    Ok(Some(Key::Asked(text.to_owned())))
}

/// What a webhook's sender calls this delivery.
fn delivery(headers: &HeaderMap) -> Option<Key> {
    let named = |name: &'static str| {
        let text = headers.get(name)?.to_str().ok();
        Some(Key::Delivery(
            name,
            text.filter(|text| is_key(text))?.to_owned(),
        ))
    };
    DELIVERIES.into_iter().find_map(named)
}

fn is_key(text: &str) -> bool {
    (1..=KEY_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn away(why: &str) -> Failure {
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, why).retry_after(2)
}

/// Sends a body, once for a key.
async fn post(caller: &Caller, to: &str, body: &str, key: Option<Key>) -> Answer {
    if to.starts_with('#') {
        return Err(bad(format!(
            "\"{}\" is a group, and nothing is sent to groups from here: name a peer",
            escape(to, 80)
        )));
    }
    let name = PeerName::parse(to)
        .map_err(|error| bad(format!("\"{}\" is no peer's name: {error}", escape(to, 80))))?;
    if !caller.token.may_write_to(&name) {
        let why = format!("this token may not write to {name}");
        return Err(Failure::new(StatusCode::FORBIDDEN, why));
    }
    let Some(key) = key else {
        return send(caller, Bus::new_id(), &name, body, false)
            .await
            .map(Json);
    };
    let (id, cell) = key.cell(caller, &[name.as_str(), body])?;
    let answer = cell
        .get_or_try_init(|| send(caller, id, &name, body, true))
        .await?;
    Ok(Json(answer.clone()))
}

/// An id that these texts give, each time the same.
fn id_of(texts: &[&str]) -> MessageId {
    #[expect(clippy::expect_used, reason = "hex digits make a valid id")]
    MessageId::parse(&digest(texts)).expect("hex")
}

async fn send(
    caller: &Caller,
    id: MessageId,
    to: &PeerName,
    body: &str,
    repeated: bool,
) -> Result<Value, Failure> {
    let bus = &caller.peer.bus;
    match bus.send_as(id.clone(), to.as_str(), body, ACCEPTS).await {
        Ok(SentMessage {
            id,
            accepted: Some(accepted),
        }) => Ok(json!({
            "id": id, "state": "accepted", "to": to.as_str(), "online": accepted.online > 0,
        })),
        Ok(SentMessage { id, accepted: None }) => {
            Ok(json!({ "id": id, "state": "written", "to": to.as_str() }))
        }
        // Accepted before this process began.
        Err(SendError::Refused(Refusal {
            code: RefusalCode::IdReused,
            ..
        })) if repeated => Ok(json!({ "id": id.as_str(), "state": "accepted", "to": to.as_str() })),
        Err(error) => Err(unsent(caller, to, error).await),
    }
}

/// Why a message is not known to be accepted.
async fn unsent(caller: &Caller, to: &PeerName, error: SendError) -> Failure {
    let why = error.to_string();
    match error {
        SendError::Refused(refusal) => match refusal.code {
            RefusalCode::UnknownRecipient => unknown(caller, to).await,
            RefusalCode::Invalid => bad(why),
            RefusalCode::TooLarge => Failure::new(StatusCode::PAYLOAD_TOO_LARGE, why),
            RefusalCode::From | RefusalCode::Forbidden => Failure::new(StatusCode::FORBIDDEN, why),
            RefusalCode::IdReused => Failure::new(StatusCode::CONFLICT, why),
            RefusalCode::QueueFull | RefusalCode::DiskFull | RefusalCode::Quota => {
                Failure::new(StatusCode::INSUFFICIENT_STORAGE, why).retry_after(60)
            }
        },
        SendError::InvalidBody(_) | SendError::InvalidRecipient(_) => bad(why),
        SendError::TooLarge(_) => Failure::new(StatusCode::PAYLOAD_TOO_LARGE, why),
        SendError::TimedOut { id, left: true, .. } => {
            Failure::new(StatusCode::GATEWAY_TIMEOUT, why).with("id", id)
        }
        SendError::TimedOut { .. } | SendError::Overloaded(_) | SendError::Closed => away(&why),
    }
}

/// Nobody has that name. Names that the token may write to and that come near it are offered.
async fn unknown(caller: &Caller, to: &PeerName) -> Failure {
    let mut near = Vec::new();
    if let Ok(peers) = caller.peer.bus.peers(LOOK_UP).await {
        let may = |name: &String| {
            let name = PeerName::parse(name).ok();
            name.is_some_and(|name| caller.token.may_write_to(&name))
        };
        let others = peers.entries.into_iter().map(|peer| peer.name);
        let others: Vec<_> = others
            .filter(|name| *name != peers.me)
            .filter(may)
            .collect();
        near = similar(&others, to.as_str());
    }
    let why = match near.as_slice() {
        [] => format!(
            "nobody here is called {to}, or not any more: a peer can be written to once a session of \
             its name has joined, and `peerbus peers --all` shows who is known"
        ),
        near => format!(
            "nobody here is called {to}. Did you mean {}?",
            near.join(" or ")
        ),
    };
    Failure::new(StatusCode::NOT_FOUND, why).with("near", near)
}
