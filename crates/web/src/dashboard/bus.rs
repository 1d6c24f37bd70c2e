//! What the broker tells its operator, as the page is told it: what peers wrote is made fit to be
//! shown here, and no body leaves this process whose signature was not checked.

use std::sync::{Arc, Mutex};

use axum::extract::{Query, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use peerbus_adapter::demand::{Tried, has_just_begun};
use peerbus_adapter::operator::{self, Events, OperatorAnswer, Streamless, encode_text};
use peerbus_adapter::{credentials, wall_ms};
use peerbus_node::index::{self, LiveSession};
use peerbus_os::sync::lock;
use peerbus_view::{
    Audience, FewPeers, MessageContent, MessagePage, MessageText, MessageView, PeerState, PeerView,
    Step, StepView, spoken,
};
use peerbus_wire::{Secret, escape, escape_name, escape_sentence, printable};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{NAME_CHARS, WHY_CHARS, alarm, beside};
use crate::App;
use crate::watch::all;

/// Longest text in a list, in characters.
const TEXT_CHARS: usize = 2_000;
/// Longest beginning of an open request's text, in characters.
const QUESTION_CHARS: usize = 240;
/// A check of the audit chain holds for so long, unless somebody asks for another one.
const CHECKED_MS: u64 = 60_000;
const PAGE: usize = 200;
/// How far back rates are told, and from how many messages at most.
const RATES_MS: u64 = 3_600_000;
const RATES_MAX: usize = 2_000;

/// What the last check of the audit chain came to, and when.
pub(super) type Checked = Mutex<Option<(u64, Result<String, String>)>>;

impl App {
    pub(super) fn secret(&self) -> Option<Secret> {
        credentials::secret_of(
            self.options.bus.secret.clone(),
            &self.options.bus.credentials,
        )
    }

    fn get(&self, target: &str) -> Result<OperatorAnswer, String> {
        operator::over(&self.options.operator, "GET", target)
    }

    /// What happens from now on. Where no broker is, one is started if this user's programs may.
    pub(super) fn events(&self) -> Result<Events, Streamless> {
        let connect = || operator::connect(&self.options.operator).map_err(Streamless::Away);
        let stream = match (connect(), self.options.bus.demand.starter()) {
            (Err(_), _) if let Some(why) = &self.options.elsewhere => {
                return Err(Streamless::Refused(why.clone()));
            }
            (Err(_), Some(starter)) => {
                if let Some(why) = starter.waits() {
                    return Err(Streamless::Away(why.into()));
                }
                match starter.start() {
                    Tried::Ready => connect()?,
                    Tried::Busy(why) | Tried::Failed(why) => return Err(Streamless::Away(why)),
                }
            }
            (stream, _) => stream?,
        };
        Events::on(stream, None)
    }

    /// A page of messages: fewer, where their texts are long.
    fn page(&self, query: &str) -> Result<MessagePage, String> {
        self.messages(
            &format!("/v1/messages?limit={PAGE}{query}"),
            self.audience(),
        )
    }

    /// Who reads the page: an agent that opened it is not the person whose agents these are.
    pub(super) fn audience(&self) -> Audience {
        match self.options.agent {
            true => Audience::Peer,
            false => Audience::Owner,
        }
    }

    /// Everybody that the broker knows, with what is known here of sessions of this machine.
    pub(super) fn peers(&self) -> Result<Value, String> {
        let (mut entries, omitted) = operator::peers(self.get("/v1/peers")?)?;
        index::look(&mut entries);
        let audience = self.audience();
        let sessions = match audience {
            Audience::Owner => all()?,
            Audience::Peer => Vec::new(),
        };
        let view = |entry| {
            let mut peer = PeerView::new(entry, audience);
            let is = |it: &&LiveSession| it.is(&peer.name, peer.started.as_deref());
            if let Some(session) = sessions.iter().find(is) {
                session.add_to(&mut peer);
            }
            peer
        };
        let all: Vec<PeerView> = entries.iter().map(view).collect();
        let alarms = FewPeers::alarms(&all);
        let told = |peer: &PeerView| {
            let mut told = json!(peer);
            let alarm = alarm(peer.is, audience).filter(|_| alarms.has(peer));
            told["alarm"] = json!(alarm);
            told["unseen"] = json!(peer.unseen());
            told["old"] = json!(peer.old);
            told
        };
        let more: Vec<String> = match audience {
            Audience::Owner => alarms.more().collect(),
            Audience::Peer => Vec::new(),
        };
        let all: Vec<Value> = all.iter().map(told).collect();
        let begun = has_just_begun(&self.get("/broker")?.ok()?);
        Ok(json!({ "peers": all, "more": more, "omitted": omitted, "begun": begun }))
    }

    /// Requests that have no result yet, the oldest first.
    pub(super) fn requests(&self) -> Result<Value, String> {
        let (mut all, secret) = (self.open_requests(self.audience())?, self.secret());
        self.tell_stopped(&mut all.messages)?;
        let shown = |message: &MessageView| {
            let request = message.request.as_ref()?;
            let shown = as_shown(message, secret.as_ref(), QUESTION_CHARS);
            let of = [
                "seq", "id", "from", "at", "thread", "reply_to", "text", "hidden",
            ];
            let of = of.map(|member| (member.to_owned(), shown[member].clone()));
            let mut told = Map::from_iter(of);
            told.insert("owes".into(), request.owes().into());
            let got = match &*message.state {
                _ if request.read => "read",
                "held" | "paused" => "kept",
                _ => "open",
            };
            told.insert("got".into(), got.into());
            told.insert("state".into(), request.state.as_str().into());
            let stops = [PeerState::Waits, PeerState::Stuck];
            let stops = stops.map(|state| state.word(Audience::Owner));
            told.insert("alarm".into(), stops.contains(&&*request.state).into());
            told.insert("left_s".into(), (request.left_ms / 1_000).into());
            Some(Value::from(told))
        };
        let more = all.before.is_some();
        let all: Vec<_> = all.messages.iter().filter_map(shown).collect();
        Ok(json!({ "requests": all, "more": more }))
    }

    /// Tells of recipients here that are stopped, of which a new broker has heard nothing.
    fn tell_stopped(&self, messages: &mut [MessageView]) -> Result<(), String> {
        if !all()?.iter().any(|session| session.stopped) {
            return Ok(());
        }
        let (mut peers, _) = operator::peers(self.get("/v1/peers")?)?;
        index::look(&mut peers);
        let audience = self.audience();
        messages
            .iter_mut()
            .for_each(|message| message.tell_stopped(&peers, audience));
        Ok(())
    }

    /// Checks the audit chain, or says what the last check came to.
    fn audit(&self, anew: bool) -> Result<Value, String> {
        let about: Value = read(&self.get("/broker")?.ok()?)?;
        let health: Value = read(&self.get("/healthz")?.body)?;
        let database = about["database"]
            .as_str()
            .ok_or("the broker names no database")?;
        let mut verified = lock(&self.dashboard.audited);
        let is_old = |at: u64| wall_ms().saturating_sub(at) > CHECKED_MS;
        let (at, found) = match &*verified {
            Some((at, found)) if !anew && !is_old(*at) => (*at, found.clone()),
            _ => (wall_ms(), (self.options.audit)(database.as_ref())),
        };
        *verified = Some((at, found.clone()));
        let says = |text: &String| printable(text);
        Ok(json!({
            "at": at,
            "ok": found.is_ok(),
            "says": found.as_ref().map_or_else(says, says),
            "health": shown(&health["status"]),
            "missing": health["missing"].as_str().map(printable),
            "broker": shown(&about["version"]),
        }))
    }
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("the broker's answer is not understood: {error}"))
}

fn shown(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default(), NAME_CHARS)
}

/// A message for the page, with at most so many characters of its text. `None`: it is no message of
/// somebody's.
fn listed(message: &MessageView, secret: Option<&Secret>) -> Option<Value> {
    let said = message.content(secret);
    let is_listed = !said.is_probe(&message.from);
    is_listed.then(|| with(message, &said, TEXT_CHARS))
}

fn as_shown(message: &MessageView, secret: Option<&Secret>, chars: usize) -> Value {
    with(message, &message.content(secret), chars)
}

fn with(message: &MessageView, said: &MessageContent, chars: usize) -> Value {
    let trail = message.trail();
    let (text, hidden) = match &said.text {
        MessageText::Signed(body) => (Some(spoken(body)), None),
        MessageText::Hidden(why) => (None, Some(*why)),
    };
    let text = text.as_deref().map(|text| cut(text, chars));
    let (text, more) = text.map(|(text, more)| (printable(text), more)).unzip();
    json!({
        "seq": message.seq,
        "id": escape(&message.id, NAME_CHARS),
        "from": escape(&message.from, NAME_CHARS),
        "to": escape(&said.to, NAME_CHARS),
        "at": message.at,
        "thread": said.talk.thread.as_ref().map(|thread| escape_name(thread, NAME_CHARS)),
        "reply_to": said.talk.reply_to.as_ref().map(|id| escape(id.as_str(), NAME_CHARS)),
        "text": text,
        "more": more.unwrap_or(0),
        "meta": said.talk.meta.iter().map(meta).collect::<Vec<_>>(),
        "hidden": hidden,
        "state": escape(&message.state, NAME_CHARS),
        "tone": message.tone(),
        "ended": message.ended,
        "steps": trail.steps.iter().map(step).collect::<Vec<_>>(),
        "omitted": trail.omitted,
        "note": trail.note,
    })
}

/// A step as `peerbus status` has it.
fn step(step: &Step) -> Value {
    let mut told = json!(step);
    told["state"] = step.word().into();
    told["says"] = step.how().collect::<Vec<_>>().join(" ").into();
    told["tone"] = json!(step.tone());
    told
}

/// What a sender says of where its message comes from.
fn meta((key, value): &(String, String)) -> String {
    format!(
        "{}: {}",
        escape_name(key, NAME_CHARS),
        escape(value, WHY_CHARS)
    )
}

/// The first characters of a text, and how many follow.
fn cut(text: &str, chars: usize) -> (&str, usize) {
    match text.char_indices().nth(chars) {
        Some((end, _)) => (&text[..end], text[end..].chars().count()),
        None => (text, 0),
    }
}

/// What one event of the broker means to the page, on which an agent may look: its kind and its
/// data. `None`: nothing.
pub(super) fn event(
    (kind, data): (&str, &str),
    secret: Option<&Secret>,
    agent: bool,
) -> Option<(&'static str, Value)> {
    if kind == "accepted" {
        let mut message: MessageView = serde_json::from_str(data).ok()?;
        message.kept = agent;
        return Some(("message", listed(&message, secret)?));
    }
    if kind == "refused" {
        let value: Value = serde_json::from_str(data).ok()?;
        let why = escape_sentence(value["reason"].as_str()?, WHY_CHARS);
        return Some((
            "refused",
            json!({ "from": shown(&value["from"]), "reason": why }),
        ));
    }
    let StepView { seq, step, .. } = serde_json::from_str(data).ok()?;
    Some(("step", json!({ "seq": seq, "step": step })))
}

/// When each recent message was accepted, and how long it took until somebody's model had seen it.
fn timed(message: &MessageView) -> [Option<u64>; 3] {
    let seen = message.steps.iter().filter(|step| step.state == "seen");
    let first = seen.filter_map(Step::at_ms).min();
    let took = first.map(|at| at.saturating_sub(message.at));
    [Some(message.seq), Some(message.at), took]
}

/// Asks beside the runtime's threads.
async fn ask(
    app: Arc<App>,
    ask: impl FnOnce(&App) -> Result<Value, String> + Send + 'static,
) -> Response {
    beside(StatusCode::BAD_GATEWAY, move || ask(&app)).await
}

/// `GET /dashboard/messages`: the newest, or those before one, or a conversation's, as the broker is asked
/// for them.
pub(super) async fn messages(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Response {
    let query = query.map(|query| format!("&{query}")).unwrap_or_default();
    // That a text which is not shown has a word would tell of it.
    let searched = query.contains("&text=");
    ask(app, move |app| {
        let mut page = app.page(&query)?;
        app.tell_stopped(&mut page.messages)?;
        let secret = app.secret();
        let all = page.messages.iter();
        let all = all.filter_map(|one| listed(one, secret.as_ref()));
        let is_told = |one: &Value| !searched || one["hidden"].is_null();
        let all: Vec<_> = all.filter(is_told).collect();
        Ok(json!({ "messages": all, "before": page.before }))
    })
    .await
}

#[derive(Deserialize)]
pub(super) struct One {
    id: String,
    seq: u64,
    #[serde(default)]
    whole: bool,
}

/// `GET /dashboard/message`: one as it is now, with `whole=true` all of its text.
pub(super) async fn message(State(app): State<Arc<App>>, Query(one): Query<One>) -> Response {
    ask(app, move |app| {
        let (id, next) = (encode_text(&one.id), one.seq.saturating_add(1));
        let target = format!("/v1/messages/{id}?before={next}");
        let mut page = app.messages(&target, app.audience())?;
        app.tell_stopped(&mut page.messages)?;
        let found = page.messages.iter().find(|message| message.seq == one.seq);
        let found = found.ok_or("the broker knows this message no more")?;
        let chars = if one.whole { usize::MAX } else { TEXT_CHARS };
        Ok(as_shown(found, app.secret().as_ref(), chars))
    })
    .await
}

/// `GET /dashboard/rates`: of the last hour, for each message its number, when it was accepted, and
/// after how many milliseconds it was seen.
pub(super) async fn rates(State(app): State<Arc<App>>) -> Response {
    ask(app, |app| {
        let since = wall_ms().saturating_sub(RATES_MS);
        let (mut all, mut before) = (Vec::new(), String::new());
        let whole = loop {
            let page = app.page(&format!("&since={since}{before}"))?;
            all.extend(page.messages.iter().map(timed));
            match page.before {
                Some(next) if all.len() < RATES_MAX => before = format!("&before={next}"),
                next => break next.is_none(),
            }
        };
        Ok(json!({ "messages": all, "whole": whole, "now": wall_ms() }))
    })
    .await
}

#[derive(Deserialize)]
pub(super) struct Anew {
    #[serde(default)]
    anew: bool,
}

/// `GET /dashboard/audit`: what the audit chain is like.
pub(super) async fn audit(
    State(app): State<Arc<App>>,
    Query(Anew { anew }): Query<Anew>,
) -> Response {
    ask(app, move |app| app.audit(anew)).await
}

#[cfg(test)]
mod tests {
    use peerbus_wire::Envelope;

    use super::*;

    fn accepted(secret: &Secret, body: &str) -> String {
        let mut envelope = Envelope {
            protocol_version: "v1".into(),
            id: "m1".into(),
            from: "eve".into(),
            to: "ada".into(),
            kind: "msg".into(),
            body: body.into(),
            ..Envelope::default()
        };
        envelope.hmac = secret.sign(&envelope.canonical().unwrap());
        let hmac = &envelope.hmac;
        let text = format!(
            r#"{{"protocol_version":"v1","id":"m1","from":"eve","to":"ada","ts":"","source":"","kind":"msg","body":{body},"hmac":"{hmac}"}}"#
        );
        let view = MessageView {
            seq: 7,
            id: "m1".into(),
            from: "eve".into(),
            ..MessageView::default()
        };
        view.write(Some(&text))
    }

    #[test]
    fn a_text_that_is_not_signed_stays_here_and_one_that_is_can_steer_nothing() {
        let secret = Secret::new(&[7; 32]).unwrap();
        let body = r#"{"text":"\u202e\u001b[2J<b>pay</b>","meta":{"path":"/\u202e"}}"#;
        let data = accepted(&secret, body);
        let (kind, told) = event(("accepted", &data), Some(&secret), false).unwrap();
        assert_eq!((kind, &told["seq"]), ("message", &json!(7)));
        assert_eq!(told["text"], "\\u202e\\u001b[2J<b>pay</b>");
        assert_eq!(told["meta"][0], "path: /\\u202e");
        let other = Secret::new(&[8; 32]).unwrap();
        for secret in [None, Some(&other)] {
            let (_, told) = event(("accepted", &data), secret, false).unwrap();
            assert!(told["hidden"].is_string(), "{told}");
            assert!(!told.to_string().contains("pay"), "{told}");
        }
        let long = format!("\"{}\"", "x".repeat(3_000));
        let (_, told) = event(
            ("accepted", &accepted(&secret, &long)),
            Some(&secret),
            false,
        )
        .unwrap();
        assert_eq!(told["more"], 1_000);
    }

    #[test]
    fn a_step_is_told_with_what_shows_it() {
        let data = r#"{"seq":7,"id":"m1","from":"eve","at":9,"step":{"at":"1970-01-01T00:00:00.009Z","state":"seen","to":"ada","path":"drain","evidence":"tool_call"}}"#;
        let (kind, told) = event(("settled", data), None, false).unwrap();
        assert_eq!(kind, "step");
        let step = &told["step"];
        assert_eq!(
            (&step["state"], &step["evidence"]),
            (&json!("seen"), &json!("tool_call")),
            "{told}"
        );
        assert!(event(("settled", "nonsense"), None, false).is_none());
    }
}
