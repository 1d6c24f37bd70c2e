//! What the operator asks of a running broker over its Unix socket, and how it answers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use peerbus_core::broker::{Command, Denied, MessageHistory};
use peerbus_wire::{BrokerFrame, MessageId, PeerName};
use serde_json::json;
use tokio::sync::oneshot;

use crate::engine_input::{Answer, Content, Request};
use crate::shared::Shared;

/// `GET /status?id=ID[&from=NAME]`: how far the messages with that id got, whoever sent them, or
/// those of `NAME`. Receipts come in the frames of the wire.
pub(crate) async fn status(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    let Some(given) = parameter(&uri, "id") else {
        let text = "say which message: GET /status?id=ID, with &from=NAME for its sender\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let id = match MessageId::parse(&given) {
        Ok(id) => id,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let from = match name(&uri, "from").transpose() {
        Ok(from) => from.map(|name| name.key()),
        Err(error) => return (StatusCode::BAD_REQUEST, error).into_response(),
    };
    let Some(Answer::Status(histories)) = ask(&shared, Request::Status(id)).await else {
        return stopping();
    };
    let wanted = |history: &MessageHistory| {
        let sender = PeerName::parse(&history.from).map(|name| name.key()).ok();
        from.is_none() || from == sender
    };
    let told = histories.into_iter().filter(wanted).map(|history| {
        let frames = BrokerFrame::receipts(history.receipts).map(|frame| frame.encode());
        let frames: Vec<_> = frames.collect();
        let from = serde_json::Value::from(history.from);
        format!(r#"{{"from":{from},"frames":[{}]}}"#, frames.join(","))
    });
    let told: Vec<_> = told.collect();
    let body = format!(r#"{{"messages":[{}]}}"#, told.join(","));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// `POST /names/release?name=NAME`.
pub(crate) async fn release(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    let usage = "say which name: POST /names/release?name=NAME\n";
    match name(&uri, "name") {
        Some(Ok(name)) => command(&shared, Command::Release(name)).await,
        Some(Err(error)) => (StatusCode::BAD_REQUEST, error).into_response(),
        None => (StatusCode::BAD_REQUEST, usage).into_response(),
    }
}

/// `POST /names/retire?name=NAME[&to=SUCCESSOR]`.
pub(crate) async fn retire(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    let usage = "say which name: POST /names/retire?name=NAME, with &to=NAME for its successor\n";
    let (name, successor) = match (name(&uri, "name"), name(&uri, "to").transpose()) {
        (Some(Ok(name)), Ok(successor)) => (name, successor),
        (None, _) => return (StatusCode::BAD_REQUEST, usage).into_response(),
        (Some(Err(error)), _) | (_, Err(error)) => {
            return (StatusCode::BAD_REQUEST, error).into_response();
        }
    };
    command(&shared, Command::Retire { name, successor }).await
}

async fn command(shared: &Shared, command: Command) -> Response {
    let (Command::Release(name) | Command::Retire { name, .. }) = &command;
    let name = name.as_str().to_owned();
    match ask(shared, Request::Do(command)).await {
        Some(Answer::Done(Ok(()))) => Json(json!({"name": name})).into_response(),
        Some(Answer::Done(Err(denied))) => {
            let code = match denied {
                Denied::Unknown(_) => StatusCode::NOT_FOUND,
                Denied::Unfit(_) => StatusCode::CONFLICT,
            };
            (code, format!("{denied}\n")).into_response()
        }
        _ => stopping(),
    }
}

async fn ask(shared: &Shared, request: Request) -> Option<Answer> {
    let (sender, answer) = oneshot::channel();
    shared
        .engine
        .send_now(Content::Request(request, sender))
        .ok()?;
    answer.await.ok()
}

fn stopping() -> Response {
    let text = "peerbus is shutting down\n";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// A parameter of the query.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let mut pairs = uri.query()?.split('&');
    pairs.find_map(|pair| {
        let (found, value) = pair.split_once('=')?;
        (found == name).then(|| percent_decoded(value))
    })
}

/// A parameter that is a peer's name; `Err` is the answer's text.
fn name(uri: &Uri, parameter_name: &str) -> Option<Result<PeerName, String>> {
    let given = parameter(uri, parameter_name)?;
    Some(PeerName::parse(&given).map_err(|error| format!("{error}\n")))
}

/// Decodes `%XX`; what is no such escape stays, and fails the rules for names.
fn percent_decoded(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 16).ok()
        };
        match after.get(..2).filter(|_| byte == b'%').and_then(hex) {
            Some(escaped) => {
                decoded.push(escaped);
                rest = &after[2..];
            }
            None => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_query_are_decoded() {
        assert_eq!(percent_decoded("wild%40wasp%3A1"), "wild@wasp:1");
        assert_eq!(percent_decoded("50%"), "50%");
        assert_eq!(percent_decoded("%zz"), "%zz");
    }
}
