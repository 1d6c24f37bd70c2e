//! Sessions of agents on this machine, for those who ask over HTTP: `/v1/sessions`. What is asked for goes to
//! the session's node, which knows its gates.

mod stream;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use peerbus_node::index::LiveSession;
use peerbus_node::{NodeClient, NodeRefusal, SessionNow, which};
use peerbus_wire::escape_sentence;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::{AcquireError, OwnedSemaphorePermit};

use crate::App;
use crate::answer::{Failure, said};
use crate::body::{self, BODY_BYTES_MAX, PROMPT_BYTES_MAX, not_json};
use crate::peers::{Caller, nobody};
use crate::send;
use crate::tokens::WebToken;
use crate::watch::{all, connect};

/// Longest sentence of a session, in characters.
const WHY_CHARS: usize = 600;

type Answer = Result<Response, Failure>;
type Place = Result<OwnedSemaphorePermit, AcquireError>;

/// What a token needs for something: its word, and whether it has it.
type Right = (&'static str, fn(&WebToken) -> bool);

const WATCH: Right = ("watch", |token| token.watch);
const INJECT: Right = ("inject", |token| token.inject);
const APPROVE: Right = ("approve", |token| token.approve);

pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/sessions", get(list))
        .route("/v1/sessions/events", get(stream::of_all))
        .route("/v1/sessions/{id}/events", get(stream::of_one))
        .route("/v1/sessions/{id}/inject", post(inject))
        .route("/v1/sessions/{id}/approve", post(approve))
        .route("/v1/sessions/{id}/interrupt", post(interrupt))
}

impl App {
    /// Whose request it is, if the token has these rights.
    fn admit_to(self: &Arc<Self>, request: &Request, rights: &[Right]) -> Result<Caller, Failure> {
        let caller = self.admit(request)?;
        may(&caller, rights)?;
        Ok(caller)
    }

    /// The same, with the request's body, of at most `max` bytes.
    async fn admit_with<T: DeserializeOwned>(
        self: &Arc<Self>,
        request: Request,
        rights: &[Right],
        max: usize,
    ) -> Result<(Caller, T), Failure> {
        let caller = self.admit_to(&request, rights)?;
        body::check(request.headers(), max)?;
        let bytes = caller.peer.bodies.read(request.into_body(), max).await?;
        let caller = self.still(caller)?;
        may(&caller, rights)?;
        let wanted = serde_json::from_str(body::text(&bytes)?).map_err(|error| not_json(&error))?;
        Ok((caller, wanted))
    }
}

fn may(caller: &Caller, rights: &[Right]) -> Result<(), Failure> {
    let Some((word, _)) = rights.iter().find(|(_, has)| !has(&caller.token)) else {
        return Ok(());
    };
    let why = format!(
        "this token has not the right `{word}`: a person makes one with `peerbus web token add NAME --{word}`"
    );
    Err(Failure::new(StatusCode::FORBIDDEN, why))
}

/// `GET /v1/sessions`.
async fn list(State(app): State<Arc<App>>, request: Request) -> Answer {
    let caller = app.admit_to(&request, &[WATCH])?;
    let token = caller.token.clone();
    let found = beside(place(&app, &caller).await?, move || {
        let mut all = SessionNow::all(reachable(&token)?);
        // One that has another name by now.
        all.retain(|(now, _)| token.may_reach(now.session.name.as_deref()));
        let told = all.iter().map(|(now, silent)| told(now, *silent));
        Ok(json!({ "sessions": told.collect::<Vec<_>>() }))
    });
    Ok(said(&found.await?))
}

/// A session with what it asks; `silent`: its node does not answer, and this is as the list has it.
fn told(now: &SessionNow, silent: bool) -> Value {
    let mut told = about(&now.session);
    told["status"] = json!(now.session.status);
    told["stuck"] = json!(now.session.stuck);
    told["gates"] = json!(now.session.gates);
    told["approvals"] = json!(now.approvals);
    told["unlisted"] = now.unlisted.into();
    told["silent"] = silent.into();
    told
}

/// What does not change while a session does something.
fn about(session: &LiveSession) -> Value {
    json!({
        "node": session.node(),
        "id": session.id,
        "name": session.name,
        "client": session.client,
        "cwd": session.cwd,
        "started_at": session.started_at,
    })
}

/// The sessions that a token is for.
fn reachable(token: &WebToken) -> Result<Vec<LiveSession>, Failure> {
    let mut all = all().map_err(|why| away(&why))?;
    all.retain(|session| token.may_reach(session.name.as_deref()));
    Ok(all)
}

/// The session that is meant by a word, among those that a token is for.
fn named(token: &WebToken, word: &str) -> Result<LiveSession, Failure> {
    let all = reachable(token)?;
    match which::meant(&all, word)[..] {
        [] => Err(nowhere()),
        [one] => Ok(one.clone()),
        _ => {
            let why = "several sessions have this id or name: name one by its `node`";
            Err(Failure::new(StatusCode::CONFLICT, why))
        }
    }
}

fn nowhere() -> Failure {
    let why = "no session of this id or name lives here, or none that this token is for";
    Failure::new(StatusCode::NOT_FOUND, why)
}

/// Whether a token is for a session by the name that it has at this moment, or will have once it is on the
/// bus again. The list of sessions is written a little later than a name changes.
fn is_for(token: &WebToken, client: &mut NodeClient) -> Result<bool, NodeRefusal> {
    if token.to.is_empty() {
        return Ok(true);
    }
    let told = client.call("session/status", &json!({}))?;
    let mut names = ["name", "wanted_name"].iter();
    let name = names.find_map(|member| told[*member].as_str());
    Ok(token.may_reach(name))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prompt {
    /// A text, or blocks.
    prompt: Value,
    mode: Option<String>,
}

/// `POST /v1/sessions/{id}/inject`.
async fn inject(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Answer {
    let key = send::key(request.headers());
    let admitted = app.admit_with(request, &[INJECT], PROMPT_BYTES_MAX);
    let (caller, wanted): (_, Prompt) = admitted.await?;
    let source = caller.peer.bus.name();
    let params = json!({ "prompt": wanted.prompt, "mode": wanted.mode, "source": source });
    let Some(key) = key? else {
        return call(&app, &caller, id, "session/inject", params).await;
    };
    let (_, cell) = key.cell(&caller, &["inject", &id, &params.to_string()])?;
    let (place, token) = (place(&app, &caller).await?, caller.token);
    // A client that goes away may repeat it, and gets the answer that comes meanwhile.
    let asked = tokio::spawn(async move {
        let asked = cell.get_or_try_init(|| ask(place, token, id, "session/inject", params));
        asked.await.cloned()
    });
    let told = asked
        .await
        .unwrap_or_else(|error| Err(away(&error.to_string())))?;
    Ok(said(&told))
}

/// `POST /v1/sessions/{id}/interrupt`.
async fn interrupt(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let caller = app.admit_to(&request, &[INJECT])?;
    let params = json!({ "source": caller.peer.bus.name() });
    call(&app, &caller, id, "session/interrupt", params).await
}

/// `POST /v1/sessions/{id}/approve`: of what was seen, so for those who may watch.
async fn approve(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Answer {
    let rights = [WATCH, APPROVE];
    let (caller, mut wish): (_, Map<String, Value>) =
        app.admit_with(request, &rights, BODY_BYTES_MAX).await?;
    // The path says which.
    wish.remove("session_id");
    let by = caller.peer.bus.name();
    wish.insert("source".into(), json!(by));
    tracing::info!(%by, request = ?wish.get("request_id"), "a token answers what a session asks");
    call(&app, &caller, id, "session/approve", wish.into()).await
}

/// Asks a session, and answers as its node does.
async fn call(
    app: &App,
    caller: &Caller,
    meant: String,
    method: &'static str,
    params: Value,
) -> Answer {
    let (place, token) = (place(app, caller).await?, caller.token.clone());
    Ok(said(&ask(place, token, meant, method, params).await?))
}

async fn ask(
    place: Place,
    token: WebToken,
    meant: String,
    method: &'static str,
    params: Value,
) -> Result<Value, Failure> {
    let asked = beside(place, move || {
        let session = named(&token, &meant)?;
        let mut client = connect(&session.socket).map_err(|why| away(&why))?;
        if !is_for(&token, &mut client).map_err(refused)? {
            return Err(nowhere());
        }
        client.call(method, &params).map_err(refused)
    });
    asked.await
}

/// One of the questions that a token may ask at once.
async fn place(app: &App, caller: &Caller) -> Result<Place, Failure> {
    // Never closed.
    let place = Arc::clone(&caller.peer.questions).acquire_owned().await;
    // That may have taken its time.
    if !app.tokens.has(&caller.token) {
        return Err(nobody());
    }
    Ok(place)
}

/// Asks beside the runtime's threads.
async fn beside<T: Send + 'static>(
    place: Place,
    ask: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let asked = tokio::task::spawn_blocking(move || {
        let asked = ask();
        drop(place);
        asked
    });
    asked
        .await
        .unwrap_or_else(|error| Err(away(&error.to_string())))
}

fn away(why: &str) -> Failure {
    Failure::new(
        StatusCode::SERVICE_UNAVAILABLE,
        escape_sentence(why, WHY_CHARS),
    )
    .retry_after(2)
}

/// Why a session does not do what it was asked: its own sentence.
fn refused(refusal: NodeRefusal) -> Failure {
    let status = match &refusal {
        NodeRefusal::Lost(_) => return away(&String::from(refusal)),
        refusal if refusal.is_closed() => StatusCode::FORBIDDEN,
        refusal if refusal.is_wrong() => StatusCode::BAD_REQUEST,
        _ => StatusCode::CONFLICT,
    };
    Failure::new(status, escape_sentence(&String::from(refusal), WHY_CHARS))
}
