//! What the operator asks of a running broker over its Unix socket, and how it answers.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path as PathOf, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use peerbus_core::Now;
use peerbus_core::broker::{Broker, BrokerInput, Command, Denied};
use peerbus_core::store::{StoreError, Txn};
use peerbus_wire::{PeerName, Seq};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use crate::engine_input::Content;
use crate::shared::Shared;

pub(crate) mod history;

/// What queries say.
#[derive(Deserialize)]
pub(crate) struct Asked {
    name: Option<String>,
    /// The successor of that name.
    to: Option<String>,
    /// A message's number.
    seq: Option<u64>,
    /// A tokens file.
    file: Option<PathBuf>,
    /// A database.
    db: Option<PathBuf>,
    /// The version of a program that asks for the end of an older broker.
    pub(crate) newer: Option<String>,
    /// Who asks for the end is a broker that somebody runs by hand, or as a service.
    pub(crate) takeover: Option<String>,
}

/// An answer, or why there is none.
pub(crate) type HttpResult = Result<Response, Response>;

/// `GET /v1/names/NAME`: the present name of the peer that has or had it, and those that it had before.
pub(crate) async fn named(
    State(shared): State<Arc<Shared>>,
    PathOf(given): PathOf<String>,
) -> HttpResult {
    let nobody = || refused(StatusCode::NOT_FOUND, "nobody has that name, or had it");
    let name = name(Some(&given))?.ok_or_else(nobody)?;
    let find = move |broker: &mut Broker, _, _: &mut dyn Txn| Ok(broker.names_of(&name));
    let (present, old) = ask(&shared, find).await?.ok_or_else(nobody)?;
    Ok(Json(json!({ "name": present, "old": old })).into_response())
}

/// `POST /names/release?name=NAME`.
pub(crate) async fn release(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<Asked>,
) -> HttpResult {
    let usage = "say which name: POST /names/release?name=NAME";
    let name = name(asked.name.as_ref())?.ok_or_else(|| refused(StatusCode::BAD_REQUEST, usage))?;
    command(&shared, Command::Release(name)).await
}

/// `POST /names/retire?name=NAME[&to=SUCCESSOR]`.
pub(crate) async fn retire(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<Asked>,
) -> HttpResult {
    let usage = "say which name: POST /names/retire?name=NAME, with &to=NAME for its successor";
    let successor = name(asked.to.as_ref());
    let name = name(asked.name.as_ref())?.ok_or_else(|| refused(StatusCode::BAD_REQUEST, usage))?;
    let successor = successor?;
    command(&shared, Command::Retire { name, successor }).await
}

/// `POST /audit/acknowledge?db=PATH`: takes what the witness saw and the database has not as known.
/// The path, without symbolic links, must be that of this broker's database.
pub(crate) async fn acknowledge(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<Asked>,
) -> Response {
    let Some(witness) = &shared.witness else {
        return stopping();
    };
    if asked.db.as_deref() != Some(witness.database()) {
        let ours = witness.database().display();
        let why = format!("this broker's database is {ours}: POST /audit/acknowledge?db={ours}");
        return refused(StatusCode::CONFLICT, why);
    }
    match witness.acknowledge() {
        Ok(missing) => {
            let missing = missing.map(|missing| missing.to_string());
            Json(json!({"acknowledged": missing})).into_response()
        }
        Err(error) => {
            let why = format!("the witness of the database cannot be written: {error}");
            refused(StatusCode::INTERNAL_SERVER_ERROR, why)
        }
    }
}

/// `POST /tokens/reload?file=PATH`: reads the tokens file again, and answers when what it says holds.
/// The path, without symbolic links, must be that of this broker's file.
pub(crate) async fn reload(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<Asked>,
) -> HttpResult {
    let Some(tokens) = &shared.tokens else {
        let why = "this broker has no tokens file";
        return Err(refused(StatusCode::CONFLICT, why));
    };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let ours = real(&tokens.path);
    if asked.file.as_deref().map(real) != Some(ours.clone()) {
        let why = format!("this broker's tokens file is {}", ours.display());
        return Err(refused(StatusCode::CONFLICT, why));
    }
    let grants = tokens.read();
    let grants = grants.map_err(|error| refused(StatusCode::CONFLICT, error));
    let grants = BrokerInput::Grants(grants?);
    let act = move |broker: &mut Broker, now, txn: &mut dyn Txn| broker.handle(now, grants, txn);
    ask(&shared, act).await?;
    Ok(Json(json!({})).into_response())
}

/// `POST /requests/withdraw?seq=NUMBER`: takes a request back in its asker's name.
pub(crate) async fn withdraw(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<Asked>,
) -> HttpResult {
    let usage = "say which request: POST /requests/withdraw?seq=NUMBER";
    let seq = asked
        .seq
        .ok_or_else(|| refused(StatusCode::BAD_REQUEST, usage))?;
    command(&shared, Command::Withdraw(Seq(seq))).await
}

async fn command(shared: &Shared, command: Command) -> HttpResult {
    let of = match &command {
        Command::Release(name) | Command::Retire { name, .. } => json!({"name": name.as_str()}),
        Command::Withdraw(seq) => json!({"seq": seq.0}),
    };
    let act = move |broker: &mut Broker, now, txn: &mut dyn Txn| broker.operate(now, &command, txn);
    ask(shared, act).await?.map_err(|denied| {
        let code = match denied {
            Denied::Unknown(_) => StatusCode::NOT_FOUND,
            Denied::Unfit(_) => StatusCode::CONFLICT,
        };
        refused(code, denied)
    })?;
    Ok(Json(of).into_response())
}

/// Has the engine do something, and gives what came of it once that is on disk; or says that the broker
/// stops.
pub(crate) async fn ask<T: Send + 'static>(
    shared: &Shared,
    act: impl FnOnce(&mut Broker, Now, &mut dyn Txn) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Response> {
    let (sender, answer) = oneshot::channel();
    let request = Content::Request(Box::new(move |broker, now, txn| {
        let done = act(broker, now, txn)?;
        // Whoever asked may have gone.
        Ok(Box::new(move || drop(sender.send(done))))
    }));
    let sent = shared.engine.send_now(request);
    sent.map_err(|_gone| stopping())?;
    answer.await.map_err(|_gone| stopping())
}

pub(crate) fn stopping() -> Response {
    refused(StatusCode::SERVICE_UNAVAILABLE, "peerbus is shutting down")
}

pub(crate) fn refused(code: StatusCode, why: impl Display) -> Response {
    (code, format!("{why}\n")).into_response()
}

/// A parameter that is a peer's name.
#[expect(
    clippy::result_large_err,
    reason = "the answer of a handler, as it goes out"
)]
fn name(given: Option<&String>) -> Result<Option<PeerName>, Response> {
    let name = given.map(|name| PeerName::parse(name)).transpose();
    name.map_err(|error| refused(StatusCode::BAD_REQUEST, error))
}
