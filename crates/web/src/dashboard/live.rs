//! What changes, as a stream for one page. A page that begins, or comes back, is told `ready`, and
//! asks for everything; so nothing is numbered or kept.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use peerbus_adapter::operator::{Events, Streamless};
use peerbus_wire::{Secret, escape};
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use super::WHY_CHARS;
use super::bus;
use super::sessions::Sessions;
use crate::App;
use crate::streams::{say, streamed};

/// Time between two looks at who is there and what is asked, and for a broker that is away.
const LOOK: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(250);

/// `GET /dashboard/live`.
pub(super) async fn live(State(app): State<Arc<App>>) -> Response {
    streamed(&app, |said, app| {
        let (it, to) = (Arc::clone(app), said.clone());
        thread::spawn(move || follow(&it, &to));
        let (it, to) = (Arc::clone(app), said.clone());
        thread::spawn(move || look(&to, "peers", || it.peers()));
        let (it, to) = (Arc::clone(app), said.clone());
        thread::spawn(move || look(&to, "requests", || it.requests()));
        let mut sessions = Sessions::default();
        thread::spawn(move || look(&said, "sessions", move || sessions.now()));
    })
}

/// Tells what happens at the broker, over its restarts.
fn follow(app: &App, to: &Sender<String>) {
    let mut away = None;
    while !to.is_closed() {
        let why = match app.events() {
            Ok(events) => {
                if !tell(app, events, to) {
                    return;
                }
                away = None;
                "the broker has ended".to_owned()
            }
            Err(Streamless::Gone) => continue,
            Err(Streamless::Refused(why) | Streamless::Away(why)) => why,
        };
        if away.as_ref() != Some(&why) {
            say(to, "away", &json!({ "why": escape(&why, WHY_CHARS) }));
            away = Some(why);
        }
        thread::sleep(AGAIN);
    }
}

/// Tells what comes until the broker ends, or the page has gone: then it is false.
fn tell(app: &App, mut events: Events, to: &Sender<String>) -> bool {
    let mut secret = app.secret();
    while let Ok(event) = events.read() {
        let Some(event) = event else {
            if to.is_closed() {
                return false;
            }
            continue;
        };
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

/// Tells a list whenever it has changed, and why where it cannot be read. What only grows older has
/// not changed.
fn look(to: &Sender<String>, list: &str, mut now: impl FnMut() -> Result<Value, String>) {
    let mut last = None;
    while !to.is_closed() {
        let (kind, found) = match now() {
            Ok(found) => (list, found),
            Err(why) => {
                let why = escape(&why, WHY_CHARS);
                ("unread", json!({ "list": list, "why": why }))
            }
        };
        let seen = Some((kind, ageless(&found)));
        if last != seen && !say(to, kind, &found) {
            return;
        }
        last = seen;
        thread::sleep(LOOK);
    }
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
    use tokio::sync::mpsc::channel;

    use super::*;
    use crate::streams::WAITING;

    #[test]
    fn a_list_that_cannot_be_read_is_told_and_what_is_read_again_is_told_anew() {
        let (said, mut told) = channel(WAITING);
        let mut found = vec![
            Ok(json!({ "sessions": [] })),
            Err("no\u{2028}\u{1b}place".to_owned()),
            Ok(json!({ "sessions": [] })),
        ];
        let looks = thread::spawn(move || {
            look(&said, "sessions", || {
                found.pop().unwrap_or(Err("the end".into()))
            });
        });
        let mut next = || told.blocking_recv().unwrap();
        let list = "event: sessions\ndata: {\"sessions\":[]}\n\n";
        assert_eq!(next(), list);
        let why = next();
        assert!(why.starts_with("event: unread\n"), "{why}");
        assert!(
            why.contains("u2028") && !why.contains(['\u{2028}', '\u{1b}']),
            "{why}"
        );
        assert_eq!(next(), list);
        drop(told);
        looks.join().unwrap();
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
