//! Sessions of agents on this machine: what they do, what they ask their user, and mail that waits
//! for him. What is decided here goes to the session's node, which knows its gates.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use peerbus_adapter::mailbox::quote;
use peerbus_node::index::LiveSession;
use peerbus_node::{Denial, SessionNow, each};
use peerbus_view::{Audience, PeerState, span};
use peerbus_wire::{escape, escape_sentence, from_rfc3339, printable, short_id};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{NAME_CHARS, WHY_CHARS, alarm, beside};
use crate::App;
use crate::streams::{say, streamed};
use crate::watch::{all, connect, key, last, subscribe, watched};

/// Longest text of an event, in characters.
const TEXT_CHARS: usize = 8_000;
/// How long a list of what waits may take: the others' stand on the page after that.
const LISTED: Duration = Duration::from_secs(3);
/// A session that did not answer is not asked again for so long.
const QUIET: Duration = Duration::from_secs(60);
/// Events of the time before that somebody who watches is told.
const BEFORE: u64 = 50;
/// The sessions, as somebody is told of them.
pub(super) struct Sessions {
    audience: Audience,
    /// Those that hang.
    quiet: HashMap<PathBuf, Instant>,
}

impl Sessions {
    pub(super) fn new(audience: Audience) -> Self {
        let quiet = HashMap::new();
        Self { audience, quiet }
    }

    /// All of them, as the page is told.
    pub(super) fn now(&mut self) -> Result<Value, String> {
        let all = all()?;
        self.quiet.retain(|_, since| since.elapsed() < QUIET);
        let quiet = &self.quiet;
        let asked = each(&all, |session| {
            match session.stopped || quiet.contains_key(&session.socket) {
                true => Err("it does not answer: its adapter is stopped or hangs".into()),
                false => Asked::ask(session),
            }
        });
        let told = all.iter().zip(asked).map(|(session, asked)| {
            let asked = asked.unwrap_or_else(|| {
                Err("it was not asked: this process gets no more threads".into())
            });
            self.told(session, asked)
        });
        Ok(json!({ "sessions": told.collect::<Vec<_>>() }))
    }

    fn told(&mut self, listed: &LiveSession, asked: Result<Asked, String>) -> Value {
        match asked {
            Ok(Asked { now, held }) => {
                let mut told = self.about(&now.session);
                if self.audience == Audience::Owner {
                    told["way_out"] = json!(now.way_out());
                    told["first"] = json!(now.session.first());
                    told["unlisted"] = now.unlisted.into();
                    told["approvals"] = now.approvals.iter().map(request).collect();
                    told["paused"] = paused(&now.paused);
                    let denials = now.denials();
                    told["denials"] = json!(denials.map(|(says, way)| format!("{says}: {way}")));
                    told["denied"] = now.denied(0, None).iter().map(denied).collect();
                    match held {
                        Ok(held) => told["held"] = held.iter().map(mail).collect(),
                        Err(why) => told["refused"] = escape_sentence(&why, WHY_CHARS).into(),
                    }
                }
                told
            }
            Err(why) => {
                // One that is stopped is seen to go on.
                if !listed.stopped {
                    self.quiet
                        .entry(listed.socket.clone())
                        .or_insert_with(Instant::now);
                }
                let mut told = self.about(listed);
                told["silent"] = escape_sentence(&why, WHY_CHARS).into();
                if self.audience == Audience::Owner {
                    told["way_out"] = json!(SessionNow::listed(listed.clone()).way_out());
                }
                told
            }
        }
    }

    fn about(&self, session: &LiveSession) -> Value {
        let word = |text: &str| escape(text, NAME_CHARS);
        let state = session.state();
        let is_stuck = state == PeerState::Stuck && self.audience == Audience::Owner;
        json!({
            "key": escape(&key(session), NAME_CHARS),
            "id": word(&session.id),
            "name": session.name.as_deref().map(word),
            "wanted": session.wanted_name.as_deref().map(word),
            "goes_on": is_stuck.then(|| session.goes_on()),
            "client": word(&session.client),
            "cwd": session.cwd.as_ref().map(|cwd| word(&cwd.display().to_string())),
            "state": state.word(self.audience),
            "alarm": alarm(state, self.audience),
            "tried": session.tried(),
            "place": session.answered_at(),
            "started_at": word(&session.started_at),
            "approve": session.gates.approve,
            "opens": session.opens(),
            "approvals": [],
            "held": [],
        })
    }
}

fn denied(denied: &Denial) -> Value {
    let says = format!("{}: {}", denied.what, denied.why);
    json!({ "at": denied.at_ms, "says": escape_sentence(&says, WHY_CHARS) })
}

/// Mail that the loop governor keeps: how much, and why the last of it.
fn paused(whys: &[String]) -> Value {
    let why = whys.last().map(|why| escape_sentence(why, WHY_CHARS));
    why.map(|why| json!({ "count": whys.len(), "why": why }))
        .into()
}

/// The session that goes by a key.
fn named(key: &str) -> Result<LiveSession, String> {
    let found = all()?
        .into_iter()
        .find(|session| escape(&self::key(session), NAME_CHARS) == key);
    found.ok_or_else(|| "this session has ended".into())
}

struct Asked {
    now: SessionNow,
    /// Mail; or why its node does not tell of it.
    held: Result<Vec<Value>, String>,
}

impl Asked {
    fn ask(session: &LiveSession) -> Result<Self, String> {
        let now = SessionNow::ask(session)?;
        let held = held_by(session);
        Ok(Self { now, held })
    }
}

/// Mail that waits at a session for its user.
fn held_by(session: &LiveSession) -> Result<Vec<Value>, String> {
    let mut client = connect(&session.socket)?.within(LISTED);
    match client.call("session/held", &json!({})) {
        Ok(answer) => Ok(answer["held"].as_array().cloned().unwrap_or_default()),
        // An older adapter's: it holds nothing.
        Err(why) if why.is_unknown() => Ok(Vec::new()),
        Err(why) => Err(why.into()),
    }
}

fn word(value: &Value) -> Value {
    match value.as_str() {
        Some(text) => escape(text, NAME_CHARS).into(),
        None => Value::Null,
    }
}

/// A value with all that it says: JSON keeps its form.
fn whole(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::String(text) => printable(text).into(),
        value => match serde_json::to_string_pretty(value) {
            Ok(text) => printable(&text).into(),
            Err(_) => Value::Null,
        },
    }
}

/// A request for the page: whole, since somebody decides by it. `digest`, `rule` and `raw` go back as
/// they came.
fn request(request: &Value) -> Value {
    let rules = list(&request["suggestions"]).map(|rule| {
        json!({
            "rule": rule["rule"],
            "shown": whole(&rule["rule"]),
            "destination": { "shown": word(&rule["destination"]), "raw": rule["destination"] },
        })
    });
    json!({
        "request_id": word(&request["request_id"]),
        "digest": word(&request["digest"]),
        "tool": whole(&request["tool"]),
        "description": whole(&request["description"]),
        "input": whole(&request["input"]),
        "blocked_path": whole(&request["blocked_path"]),
        "decision_reason": whole(&request["decision_reason"]),
        "agent_id": whole(&request["agent_id"]),
        "questions": list(&request["questions"]).map(question).collect::<Vec<_>>(),
        "cut": request["cut"].as_u64(),
        "until": request["until"].as_str().and_then(from_rfc3339),
        "rules": rules.collect::<Value>(),
    })
}

/// A question that is answered by the number of an option, by several of them, or by a text.
fn question(question: &Value) -> Value {
    let options = list(&question["options"]).map(|option| {
        json!({ "label": whole(&option["label"]), "description": whole(&option["description"]) })
    });
    json!({
        "header": whole(&question["header"]),
        "question": whole(&question["question"]),
        "several": question["multiSelect"] == true,
        "options": options.collect::<Vec<_>>(),
    })
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A message that waits for the user. `raw` goes back as it came.
fn mail(mail: &Value) -> Value {
    let body = mail["text"].as_str().unwrap_or_default();
    let (text, within_ms) = quote::request(body)
        .map_or((body.into(), None), |(text, within_ms)| {
            (text, Some(within_ms))
        });
    json!({
        "id": word(&mail["id"]),
        "from": word(&mail["from"]),
        "token": word(&mail["token"]),
        "sent_at": word(&mail["sent_at"]),
        "text": printable(&text),
        "within": within_ms.map(|ms| span(ms / 1_000)),
        "digest": word(&mail["digest"]),
        "raw": { "id": mail["id"], "from": mail["from"], "digest": mail["digest"] },
    })
}

/// An event of a session for the page.
fn event(event: &Value, audience: Audience) -> Value {
    let beginning = |value: &Value| {
        let text = whole(value);
        let text = text.as_str().unwrap_or_default();
        let more = text.chars().count().saturating_sub(TEXT_CHARS);
        let shown: String = text.chars().take(TEXT_CHARS).collect();
        match more {
            0 => shown,
            more => format!("{shown}… [{more} more characters]"),
        }
    };
    let mut shown = Map::new();
    for (name, value) in event.as_object().into_iter().flatten() {
        let value = match (name.as_str(), value) {
            ("content" | "input" | "description" | "updatedInput", value) => {
                beginning(value).into()
            }
            ("suggestions" | "digest", _) => continue,
            (_, Value::String(text)) => escape(text, WHY_CHARS).into(),
            (_, Value::Number(_) | Value::Bool(_)) => value.clone(),
            _ => continue,
        };
        shown.insert(escape(name, NAME_CHARS), value);
    }
    if event["type"] == "status" {
        let state = PeerState::of(event["status"].as_str());
        shown.insert("state".into(), state.word(audience).into());
    }
    shown.into()
}

/// Whose messages a text is that came to an agent: each stands in a line, with its id in brackets.
fn senders(text: &str, known: &HashMap<String, String>) -> String {
    let mut names: Vec<&str> = Vec::new();
    // What stands behind a bar was put in by a program.
    for line in text.lines().filter(|line| !line.starts_with('|')) {
        let ids = line.split('[').skip(1);
        let mut ids = ids.filter_map(|rest| known.get(short_id(rest.split(']').next()?)));
        names.extend(ids.next().map(String::as_str));
    }
    names.dedup();
    names.join(", ")
}

#[derive(Deserialize)]
pub(super) struct Named {
    session: String,
}

/// `GET /dashboard/watch`: what happens in a session.
pub(super) async fn watch(State(app): State<Arc<App>>, Query(named): Query<Named>) -> Response {
    streamed(&app, |to, app| {
        let audience = app.audience();
        std::thread::spawn(move || {
            let ended = follow(&named.session, audience, &mut |told| {
                say(&to, "event", told)
            });
            let why = ended
                .err()
                .unwrap_or_else(|| "this session has ended".into());
            say(
                &to,
                "over",
                &json!({ "why": escape_sentence(&why, WHY_CHARS) }),
            );
        });
    })
}

fn follow(
    key: &str,
    audience: Audience,
    tell: &mut impl FnMut(&Value) -> bool,
) -> Result<(), String> {
    let mut client = connect(&named(key)?.socket)?;
    let last = last(&mut client)?;
    subscribe(&mut client, Some(last.saturating_sub(BEFORE)))?;
    let mut known = HashMap::new();
    watched(&mut client, &mut |found| {
        let Some(found) = found else {
            return tell(&json!({ "type": "" }));
        };
        if let [Some(id), Some(from)] = ["id", "from"].map(|name| found[name].as_str()) {
            known.insert(short_id(id).to_owned(), escape(from, NAME_CHARS));
        }
        let mut told = event(found, audience);
        let text = found["content"]
            .as_str()
            .filter(|_| found["role"] == "user");
        told["senders"] = senders(text.unwrap_or_default(), &known).into();
        tell(&told)
    })
}

/// An answer to what a session asks, as its node takes it.
#[derive(Deserialize)]
pub(super) struct Verdict {
    session: String,
    #[serde(flatten)]
    wish: Value,
}

/// `POST /dashboard/approval`.
pub(super) async fn approval(Json(verdict): Json<Verdict>) -> Response {
    beside(StatusCode::CONFLICT, move || {
        let mut client = connect(&named(&verdict.session)?.socket)?;
        let answer = client.call("session/approve", &verdict.wish)?;
        Ok(json!({ "decision": word(&answer["decision"]), "by": word(&answer["by"]) }))
    })
    .await
}

/// What is decided about a message that waits.
#[derive(Deserialize)]
pub(super) struct Decision {
    id: String,
    from: String,
    digest: Option<String>,
    release: bool,
}

/// `POST /dashboard/held`. A broadcast waits in each session; what else came under its id is not meant.
pub(super) async fn held(Json(decision): Json<Decision>) -> Response {
    beside(StatusCode::CONFLICT, move || {
        let method = match decision.release {
            true => "session/release",
            false => "session/refuse",
        };
        let Some(digest) = decision.digest else {
            return Err(
                "the adapter of its session is of an older version: start that session anew".into(),
            );
        };
        let params = json!({ "id": decision.id, "from": decision.from, "digest": digest });
        let mut done = 0;
        let all = all()?;
        let asked = each(&all, held_by);
        for (session, held) in all.iter().zip(asked) {
            let Some(Ok(held)) = held else {
                continue;
            };
            if held.iter().any(|mail| mail["digest"] == digest) {
                connect(&session.socket)?.call(method, &params)?;
                done += 1;
            }
        }
        match done {
            0 => Err("this message waits no more".into()),
            _ => Ok(json!({ "sessions": done })),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_labelled_by_those_whose_messages_it_is() {
        let known = [("a1", "ann"), ("b2", "bob")];
        let known = known.map(|(id, name)| (id.to_owned(), name.to_owned()));
        let known = HashMap::from(known);
        for (text, names) in [
            ("do it", ""),
            ("📨 msg from bob [b2] (reply to a1): \"see [a1]\"", "bob"),
            (
                "<x>\n📨 msg from bob [b2]: \"a\"\n📨 msg from ann [a1]: \"b\"",
                "bob, ann",
            ),
            ("see [c3] and [a", ""),
        ] {
            assert_eq!(senders(text, &known), names, "{text}");
        }
    }

    #[test]
    fn what_a_session_asks_is_shown_whole_and_nothing_in_it_moves_the_page() {
        let asked = json!({
            "request_id": "abcde", "digest": "00", "tool": "Bash\u{202e}",
            "until": "1970-01-01T00:00:01.000Z",
            "input": { "command": format!("{}\u{1b}[2J", "x".repeat(20_000)) },
            "suggestions": [{ "rule": "Bash(a\u{202e})", "destination": "session" }],
        });
        let shown = request(&asked);
        assert_eq!(shown["tool"], "Bash\\u202e");
        assert_eq!(shown["until"], 1_000);
        let input = shown["input"].as_str().unwrap();
        assert!(
            input.len() > 20_000 && input.contains("\\u001b[2J"),
            "{input}"
        );
        assert_eq!(shown["rules"][0]["rule"], "Bash(a\u{202e})");
        assert_eq!(shown["rules"][0]["shown"], "Bash(a\\u202e)");
    }
}
