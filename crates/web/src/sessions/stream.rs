//! What happens in sessions, as a stream. A reader goes on behind an event whose id it shows: that id names,
//! for each session, the last event that was told.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use futures_util::{StreamExt as _, stream};
use peerbus_node::NodeClient;
use peerbus_node::index::LiveSession;
use peerbus_os::sync::lock;
use peerbus_wire::{escape_json, escape_sentence};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::{Answer, WATCH, WHY_CHARS, about, beside, is_for, named, place, reachable};
use crate::App;
use crate::answer::Failure;
use crate::body::bad;
use crate::streams::{KEEP_ALIVE, STREAM};
use crate::tokens::{WebFile, WebToken};
use crate::watch::{begin, connect, files, last, subscribe, watched, written};

/// Sessions that one stream follows at most, each by a thread.
const FOLLOWED_MAX: usize = 64;
/// Events that wait for a reader; a session keeps those that follow.
const WAITING: usize = 16;
/// The least time between two looks at which sessions there are, and the most.
const PAUSE: Duration = Duration::from_millis(250);
const UNTOLD: Duration = Duration::from_secs(5);
/// How long a reader waits until it comes back, in milliseconds.
const RETRY_MS: u64 = 500;
/// The id of a stream in which nothing was told of any session.
const NONE: &str = "0";

/// Why nothing more is told of a session that was renamed.
const OTHER: &str = "this session has another name now, and this token is not for it";

/// For each session the last event that was told.
type Places = BTreeMap<String, u64>;

/// `GET /v1/sessions/events`.
pub(super) async fn of_all(State(app): State<Arc<App>>, request: Request) -> Answer {
    open(&app, request, None).await
}

/// `GET /v1/sessions/{id}/events`.
pub(super) async fn of_one(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    open(&app, request, Some(id)).await
}

async fn open(app: &Arc<App>, request: Request, meant: Option<String>) -> Answer {
    let caller = app.admit_to(&request, &[WATCH])?;
    let resumed = cursor(request.headers())?;
    let token = caller.token.clone();
    let only = match meant {
        Some(meant) => {
            let place = place(app, &caller).await?;
            Some(beside(place, move || named(&token, &meant)).await?)
        }
        None => None,
    };
    let full = |why: &str| Failure::new(StatusCode::TOO_MANY_REQUESTS, why).retry_after(5);
    let own = Arc::clone(&caller.peer.streams).try_acquire_owned();
    let own = own.map_err(|_| full("this token has 4 streams, as many as it may: close one"))?;
    let places = app.streams.watcher();
    let (watcher, place) =
        places.ok_or_else(|| full("there are as many streams as may be: close one"))?;
    let (to, events) = channel(WAITING);
    let stream = Following {
        token: caller.token.clone(),
        to,
        board: Arc::new(Mutex::new(Board {
            at: resumed.clone().unwrap_or_default(),
            ..Board::default()
        })),
    };
    let reader = Reader {
        board: Arc::clone(&stream.board),
        events,
        of_one: only.is_some(),
        token: caller.token.clone(),
        changes: app.tokens.changes(),
        app: Arc::clone(app),
        _places: [own, watcher, place],
    };
    let first = format!("retry: {RETRY_MS}\n\n{}", reader.event("ready", &json!({})));
    let old = resumed.is_some();
    match only {
        Some(session) => stream.follow(session, old),
        None => drop(tokio::spawn(stream.all(old))),
    }
    let chunks = stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        let (chunk, is_last) = reader.next().await?;
        Some((chunk, Some(reader).filter(|_| !is_last)))
    });
    let chunks = stream::once(std::future::ready(first)).chain(chunks);
    Ok((STREAM, Body::from_stream(chunks.map(Ok::<_, Infallible>))).into_response())
}

/// Where a reader says that it is.
fn cursor(headers: &HeaderMap) -> Result<Option<Places>, Failure> {
    let given = headers.get("last-event-id").filter(|text| !text.is_empty());
    let Some(given) = given else {
        return Ok(None);
    };
    let places = given.to_str().ok().and_then(parsed);
    places.map(Some).ok_or_else(|| {
        bad("Last-Event-ID is no event's id of this stream: send one as it came, or none")
    })
}

fn parsed(text: &str) -> Option<Places> {
    if text == NONE {
        return Some(Places::new());
    }
    let place = |one: &str| {
        let (node, seq) = one.split_once(':')?;
        if !is_node(node) || !seq.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some((node.to_owned(), seq.parse().ok()?))
    };
    let places: Option<Places> = text.split(',').map(place).collect();
    places.filter(|places| places.len() <= FOLLOWED_MAX)
}

/// Whether an id of an event can name this.
fn is_node(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(fits)
}

/// What a stream knows.
#[derive(Default)]
struct Board {
    /// What was written of each session.
    at: Places,
    /// Those that a thread follows.
    followed: BTreeSet<String>,
    /// Those of which it was said that they cannot be followed.
    over: BTreeSet<String>,
}

/// What a thread that follows a session tells.
enum Told {
    /// It tells what comes after this event.
    Began(Value, u64),
    Event(Value),
    /// It tells nothing more; why, unless the session has ended.
    Over(Option<String>),
}

#[derive(Clone)]
struct Following {
    token: WebToken,
    to: Sender<(String, Told)>,
    board: Arc<Mutex<Board>>,
}

impl Following {
    /// Follows all sessions, those that begin later, too. `old`: those that the reader did not know begin
    /// at their first event, and not now.
    async fn all(self, mut old: bool) {
        let mut files = files();
        loop {
            begin(&mut files);
            let token = self.token.clone();
            if let Ok(Ok(all)) = spawn_blocking(move || reachable(&token)).await {
                lock(&self.board).forget_but(&all);
                for session in all {
                    self.clone().follow(session, old);
                }
                old = true;
            }
            let next = async {
                sleep(PAUSE).await;
                let _late = timeout(UNTOLD, written(&mut files)).await;
            };
            tokio::select! {
                () = self.to.closed() => return,
                () = next => {}
            }
        }
    }

    /// Follows a session, unless that is done already.
    fn follow(self, session: LiveSession, old: bool) {
        let node = session.node();
        let since = {
            let mut board = lock(&self.board);
            let full = board.followed.len() >= FOLLOWED_MAX;
            if full || !is_node(&node) || !board.followed.insert(node.clone()) {
                return;
            }
            board.at.get(&node).copied().or(old.then_some(0))
        };
        let Self { token, to, .. } = self;
        thread::spawn(move || {
            let say = |told| to.blocking_send((node.clone(), told)).is_ok();
            let follow = || {
                // Answers of the connection that has the events would gather them.
                let mut names = connect(&session.socket)?;
                let mut is_for = || Ok::<_, String>(is_for(&token, &mut names)?);
                let (mut client, seq) = at(&session, since)?;
                if !is_for()? {
                    return Err(OTHER.to_owned());
                }
                say(Told::Began(about(&session), seq));
                let mut allowed = Ok(true);
                watched(&mut client, &mut |event| {
                    let Some(event) = event else {
                        return !to.is_closed();
                    };
                    allowed = is_for();
                    allowed == Ok(true) && say(Told::Event(event.clone()))
                })?;
                match allowed? {
                    true => Ok(()),
                    false => Err(OTHER.to_owned()),
                }
            };
            say(Told::Over(follow().err()));
        });
    }
}

impl Board {
    /// Forgets where it was in sessions that are gone.
    fn forget_but(&mut self, all: &[LiveSession]) {
        let live: BTreeSet<_> = all.iter().map(LiveSession::node).collect();
        let followed = &self.followed;
        self.at
            .retain(|node, _| live.contains(node) || followed.contains(node));
        self.over.retain(|node| live.contains(node));
    }
}

/// Connects to a session for what comes after this event, or from now on.
fn at(session: &LiveSession, since: Option<u64>) -> Result<(NodeClient, u64), String> {
    let mut client = connect(&session.socket)?;
    let since = match since {
        // A number that lies ahead is that of a node before this one.
        Some(since) if since > last(&mut client)? => Some(0),
        since => since,
    };
    let seq = subscribe(&mut client, since)?;
    Ok((client, seq))
}

struct Reader {
    board: Arc<Mutex<Board>>,
    events: Receiver<(String, Told)>,
    of_one: bool,
    token: WebToken,
    changes: watch::Receiver<Arc<WebFile>>,
    app: Arc<App>,
    _places: [OwnedSemaphorePermit; 3],
}

impl Reader {
    /// What is written next, and whether it is the last.
    async fn next(&mut self) -> Option<(String, bool)> {
        loop {
            let told = tokio::select! {
                told = timeout(KEEP_ALIVE, self.events.recv()) => Some(told),
                changed = self.changes.changed() => {
                    changed.ok()?;
                    None
                }
            };
            // What the token was for may have changed.
            if !self.app.tokens.has(&self.token) {
                return None;
            }
            let Some(told) = told else {
                continue;
            };
            let Ok(told) = told else {
                return Some((": \n\n".into(), false));
            };
            let (node, told) = told?;
            let is_last = self.of_one && matches!(told, Told::Over(_));
            if let Some(text) = self.told(node, told) {
                return Some((text, is_last));
            }
        }
    }

    fn told(&self, node: String, told: Told) -> Option<String> {
        let mut board = lock(&self.board);
        let (kind, data) = match told {
            Told::Began(session, seq) => {
                board.over.remove(&node);
                board.at.insert(node, seq);
                ("session".to_owned(), session)
            }
            Told::Event(mut event) => {
                if let Some(seq) = event["seq"].as_u64() {
                    board.at.insert(node.clone(), seq);
                }
                let kind = kind(&event);
                if let Value::Object(members) = &mut event {
                    members.insert("node".into(), node.into());
                }
                (kind, event)
            }
            Told::Over(why) => {
                board.followed.remove(&node);
                let ended = why.is_none();
                if ended {
                    board.at.remove(&node);
                } else if !board.over.insert(node.clone()) {
                    return None;
                }
                let why = why.unwrap_or_else(|| "this session has ended".into());
                let why = escape_sentence(&why, WHY_CHARS);
                (
                    "over".to_owned(),
                    json!({ "node": node, "ended": ended, "why": why }),
                )
            }
        };
        drop(board);
        Some(self.event(&kind, &data))
    }

    /// An event as it is written.
    fn event(&self, kind: &str, data: &Value) -> String {
        let board = lock(&self.board);
        let at = board.at.iter().map(|(node, seq)| format!("{node}:{seq}"));
        let at: Vec<_> = at.collect();
        let id = match at.is_empty() {
            true => NONE.to_owned(),
            false => at.join(","),
        };
        let data = escape_json(&data.to_string());
        format!("event: {kind}\nid: {id}\ndata: {data}\n\n")
    }
}

/// The name of an event of a session. Its process says it, and another one may say anything.
fn kind(event: &Value) -> String {
    let kind = event["type"].as_str().unwrap_or_default();
    let is_word = (1..=32).contains(&kind.len())
        && kind
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    match is_word {
        true => kind.to_owned(),
        false => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_one_of_ours_and_as_long_as_ours_can_be() {
        let places = |text| parsed(text).map(|places| places.into_iter().collect::<Vec<_>>());
        assert_eq!(places("0"), Some(vec![]));
        let two = vec![("1.2".to_owned(), 3), ("4.5".to_owned(), 6)];
        assert_eq!(places("4.5:6,1.2:3"), Some(two));
        let many = |count: usize| {
            let all: Vec<_> = (0..count).map(|n| format!("{n}.1:1")).collect();
            all.join(",")
        };
        assert!(parsed(&many(FOLLOWED_MAX)).is_some());
        for wrong in [
            "", "1", "1.2:", ":1", "1.2:+1", "1.2:-1", "a\nb:1", "1:1,", "é:1",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong:?}");
        }
        assert_eq!(parsed(&many(FOLLOWED_MAX + 1)), None);
    }

    #[test]
    fn what_a_session_calls_an_event_adds_no_line() {
        for (said, told) in [
            (json!("tool_call"), "tool_call"),
            (json!("x\ndata: {}\n\nevent: over"), "unknown"),
            (json!("\u{2028}"), "unknown"),
            (json!(""), "unknown"),
            (json!(1), "unknown"),
        ] {
            assert_eq!(kind(&json!({ "type": said })), told);
        }
    }
}
