//! What changes, as a stream for one page. A page that begins, or comes back, is told `ready`, and
//! asks for everything; so nothing is numbered or kept. A list is looked at when something says that
//! it may have changed: an event of the broker, or a file of the sessions.

use std::future::pending;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use peerbus_adapter::operator::{Events, Streamless};
use peerbus_node::index;
use peerbus_view::ADAPTER_STOPPED;
use peerbus_wire::{Secret, escape_sentence};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::WHY_CHARS;
use super::bus;
use super::sessions::Sessions;
use crate::App;
use crate::streams::{said, say, streamed};
use crate::watch::{Watched, begin, files, written};

/// The least time between two looks at a list: changes of that time are told together.
const PAUSE: Duration = Duration::from_secs(1);
/// The most, for a change of which nothing tells.
const UNTOLD: Duration = Duration::from_secs(30);
/// Between two attempts to reach a broker that is away.
const AGAIN: Duration = Duration::from_millis(250);

/// Lists that may have changed.
#[derive(Default)]
struct Changed {
    peers: Arc<Notify>,
    requests: Arc<Notify>,
    sessions: Arc<Notify>,
}

impl Changed {
    /// The broker told of something.
    fn hear(&self, kind: &str) {
        self.peers.notify_one();
        self.requests.notify_one();
        // The first session of this machine makes the directory that is watched; and not everywhere can
        // one be.
        if matches!(kind, "ready" | "registered" | "presence") {
            self.sessions.notify_one();
        }
    }
}

/// `GET /dashboard/live`.
pub(super) async fn live(State(app): State<Arc<App>>) -> Response {
    streamed(&app, |said, app| {
        let changed = Arc::new(Changed::default());
        let peers = Wake::by(&changed.peers);
        let requests = Wake::by(&changed.requests);
        let sessions = Wake {
            files: files(),
            // A peer is told with what its session's list says of it.
            also: Some(Arc::clone(&changed.peers)),
            stopped: Some(index::stopped),
            ..Wake::by(&changed.sessions)
        };
        let it = Arc::clone(app);
        tokio::spawn(look(said.clone(), "peers", peers, move || it.peers()));
        let it = Arc::clone(app);
        tokio::spawn(look(said.clone(), "requests", requests, move || {
            it.requests()
        }));
        let mut all = Sessions::new(app.audience());
        tokio::spawn(look(said.clone(), "sessions", sessions, move || all.now()));
        let it = Arc::clone(app);
        thread::spawn(move || follow(&it, &said, &changed));
    })
}

/// Tells what happens at the broker, over its restarts.
fn follow(app: &App, to: &Sender<String>, changed: &Changed) {
    let mut away = None;
    while !to.is_closed() {
        let (why, stays) = match app.events() {
            Ok(events) => {
                if !tell(app, events, to, changed) {
                    return;
                }
                away = None;
                ("the broker has ended".to_owned(), false)
            }
            Err(Streamless::Gone) => continue,
            Err(Streamless::Refused(why)) => (why, true),
            Err(Streamless::Away(why)) => (why, false),
        };
        if away.as_ref() != Some(&why) {
            say(
                to,
                "away",
                &json!({ "why": escape_sentence(&why, WHY_CHARS), "stays": stays }),
            );
            changed.hear("away");
            away = Some(why);
        }
        thread::sleep(AGAIN);
    }
}

/// Tells what comes until the broker ends, or the page has gone: then it is false.
fn tell(app: &App, mut events: Events, to: &Sender<String>, changed: &Changed) -> bool {
    let mut secret = app.secret();
    while let Ok(event) = events.read() {
        let Some(event) = event else {
            if to.is_closed() {
                return false;
            }
            continue;
        };
        changed.hear(&event.kind);
        let told = |secret: Option<&Secret>| {
            bus::event((&event.kind, &event.data), secret, app.options.agent)
        };
        let mut happened = match event.kind.as_str() {
            "ready" => Some(("ready", json!({}))),
            _ => told(secret.as_ref()),
        };
        if happened
            .as_ref()
            .is_some_and(|(_, data)| data["hidden"].is_string())
        {
            // The secret may have been changed.
            secret = app.secret();
            happened = told(secret.as_ref());
        }
        if let Some((kind, data)) = happened
            && !say(to, kind, &data)
        {
            return false;
        }
    }
    true
}

/// What says that a list may have changed.
struct Wake {
    told: Arc<Notify>,
    files: Vec<Watched>,
    /// Another list, of which the files tell, too.
    also: Option<Arc<Notify>>,
    /// Processes that are stopped. Those say nothing, and are looked at while the page is open.
    stopped: Option<fn() -> Vec<u32>>,
    /// The same, as they were at the last look at the list.
    before: Vec<u32>,
}

impl Wake {
    fn by(told: &Arc<Notify>) -> Self {
        Self {
            told: Arc::clone(told),
            files: Vec::new(),
            also: None,
            stopped: None,
            before: Vec::new(),
        }
    }

    /// From now on no change of a file that can be watched is missed, and of no process.
    fn begin(&mut self) {
        begin(&mut self.files);
        self.before = self.stopped.map_or_else(Vec::new, |stopped| stopped());
    }

    /// `within`: at most so long.
    async fn wait(&mut self, within: Duration) {
        let changed = async {
            tokio::select! {
                () = written(&mut self.files) => {}
                () = stops(self.stopped, &self.before) => {}
            }
        };
        tokio::select! {
            () = self.told.notified() => {}
            () = changed => {
                if let Some(also) = &self.also {
                    also.notify_one();
                }
            }
            () = sleep(within) => {}
        }
    }
}

/// Waits until other processes are stopped than before.
async fn stops(stopped: Option<fn() -> Vec<u32>>, before: &[u32]) {
    let Some(stopped) = stopped else {
        return pending().await;
    };
    while stopped() == before {
        sleep(PAUSE).await;
    }
}

/// Tells a list whenever it has changed, and why where it cannot be read. What only grows older has
/// not changed.
async fn look<F>(to: Sender<String>, list: &'static str, mut wake: Wake, mut now: F)
where
    F: FnMut() -> Result<Value, String> + Send + 'static,
{
    let mut last = None;
    loop {
        wake.begin();
        let looked = spawn_blocking(move || (now(), now));
        // It panicked, which is told where that is caught.
        let Ok((found, again)) = looked.await else {
            return;
        };
        now = again;
        let (kind, found) = match found {
            Ok(found) => (list, found),
            Err(why) => {
                let why = escape_sentence(&why, WHY_CHARS);
                ("unread", json!({ "list": list, "why": why }))
            }
        };
        let seen = Some((kind, ageless(&found)));
        if last != seen && to.send(said(kind, &found)).await.is_err() {
            return;
        }
        last = seen;
        let within = if has_stopped(&found) {
            Duration::ZERO
        } else {
            UNTOLD
        };
        let next = async {
            sleep(PAUSE).await;
            wake.wait(within).await;
        };
        tokio::select! {
            () = to.closed() => return,
            () = next => {}
        }
    }
}

/// Whether one in a list is stopped: nothing tells that it goes on.
fn has_stopped(found: &Value) -> bool {
    let lists = found.as_object().into_iter().flat_map(Map::values);
    let mut all = lists.filter_map(Value::as_array).flatten();
    all.any(|one| one["tried"] == ADAPTER_STOPPED)
}

/// Without the members that count seconds.
fn ageless(value: &Value) -> Value {
    match value {
        Value::Array(all) => all.iter().map(ageless).collect(),
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, _)| !name.ends_with("_s"));
            kept.map(|(name, value)| (name.clone(), ageless(value)))
                .collect()
        }
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use peerbus_adapter::hooks::INDEX;
    use tokio::sync::mpsc::channel;

    use super::*;
    use crate::streams::WAITING;

    #[tokio::test(start_paused = true)]
    async fn a_list_that_cannot_be_read_is_told_and_what_is_read_again_is_told_anew() {
        let (said, mut told) = channel(WAITING);
        let mut found = vec![
            Ok(json!({ "sessions": [] })),
            Err("no\u{2028}\u{1b}place".to_owned()),
            Ok(json!({ "sessions": [] })),
        ];
        let changed = Changed::default();
        let looks = look(said, "sessions", Wake::by(&changed.sessions), move || {
            found.pop().unwrap_or(Err("the end".into()))
        });
        let looks = tokio::spawn(looks);
        let mut next = async || {
            changed.hear("ready");
            told.recv().await.unwrap()
        };
        let list = "event: sessions\ndata: {\"sessions\":[]}\n\n";
        assert_eq!(next().await, list);
        let why = next().await;
        assert!(why.starts_with("event: unread\n"), "{why}");
        assert!(
            why.contains("u2028") && !why.contains(['\u{2028}', '\u{1b}']),
            "{why}"
        );
        assert_eq!(next().await, list);
        drop(told);
        looks.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_looked_at_that_nothing_says_has_changed() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        let (said, _told) = channel(WAITING);
        let changed = Changed::default();
        let looks = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&looks);
        let dir = tempfile::tempdir().unwrap();
        let index = dir.path().join(INDEX);
        let wake = Wake {
            files: Watched::new(&index).into_iter().collect(),
            also: Some(Arc::clone(&changed.peers)),
            ..Wake::by(&changed.sessions)
        };
        tokio::spawn(look(said, "sessions", wake, move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(json!({}))
        }));
        let after = async |time| {
            sleep(time).await;
            looks.load(Ordering::Relaxed)
        };
        assert_eq!(after(UNTOLD).await, 1);
        for _ in 0..20 {
            changed.hear("ready");
            changed.hear("registered");
        }
        assert_eq!(after(PAUSE / 2).await, 2, "at once");
        changed.hear("ready");
        assert_eq!(after(PAUSE / 4).await, 2, "what comes soon waits");
        assert_eq!(after(PAUSE * 2).await, 3);
        changed.hear("step");
        assert_eq!(after(PAUSE * 2).await, 3, "a message is nothing to it");
        std::fs::write(dir.path().join("another"), "").unwrap();
        std::fs::write(&index, "").unwrap();
        changed.peers.notified().await;
        changed.peers.notified().await;
        assert_eq!(after(PAUSE * 2).await, 4, "of the file");
        assert_eq!(after(UNTOLD + PAUSE).await, 5, "at last");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_with_one_that_is_stopped_is_looked_at_again_soon() {
        let (said, mut told) = channel(WAITING);
        let mut found = vec![
            json!({}),
            json!({ "peers": [{ "tried": ADAPTER_STOPPED }] }),
        ];
        let wake = Wake::by(&Changed::default().peers);
        tokio::spawn(look(said, "peers", wake, move || {
            Ok(found.pop().unwrap_or_default())
        }));
        assert!(told.recv().await.unwrap().contains("stopped"));
        let goes_on = tokio::time::timeout(2 * PAUSE, told.recv()).await;
        assert!(goes_on.is_ok(), "it is looked at within two seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_stops_is_looked_at_within_two_seconds() {
        use std::sync::atomic::{AtomicU32, Ordering};

        static STOPPED: AtomicU32 = AtomicU32::new(0);
        let (said, mut told) = channel(WAITING);
        let changed = Changed::default();
        let wake = Wake {
            also: Some(Arc::clone(&changed.peers)),
            stopped: Some(|| vec![STOPPED.load(Ordering::Relaxed)]),
            ..Wake::by(&changed.sessions)
        };
        tokio::spawn(look(said, "sessions", wake, || {
            Ok(json!({ "stopped": STOPPED.load(Ordering::Relaxed) }))
        }));
        assert!(told.recv().await.unwrap().contains(":0}"));
        for stopped in [4711, 0] {
            sleep(4 * PAUSE).await;
            STOPPED.store(stopped, Ordering::Relaxed);
            let next = tokio::time::timeout(2 * PAUSE, told.recv());
            let next = next.await.unwrap().unwrap();
            assert!(next.contains(&format!(":{stopped}}}")), "{next}");
            changed.peers.notified().await;
        }
    }

    #[test]
    fn no_text_in_an_event_ends_a_line_of_it() {
        let (said, mut told) = channel(1);
        let text = "a\u{2028}\u{2029}\u{85}\r\n\nevent: x";
        thread::spawn(move || say(&said, "event", &json!({ "rule": text })));
        let told = told.blocking_recv().unwrap();
        let lines: Vec<_> = told
            .split(['\u{2028}', '\u{2029}', '\u{85}', '\r', '\n'])
            .collect();
        let ["event: event", data, "", ""] = lines[..] else {
            panic!("{told:?}");
        };
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["rule"], text);
    }

    #[test]
    fn what_only_grows_older_is_no_news() {
        let peers = |away: u64, online: bool| json!({ "peers": [{ "name": "ada", "away_s": away, "online": online }] });
        assert_eq!(ageless(&peers(1, false)), ageless(&peers(2, false)));
        assert_ne!(ageless(&peers(1, false)), ageless(&peers(1, true)));
    }
}
