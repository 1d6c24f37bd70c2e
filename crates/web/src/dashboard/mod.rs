//! The page for a person, and what it asks. [`login`] says who may, [`bus`] has what the broker
//! tells, [`sessions`] what sessions of agents do, [`live`] tells the page what changes.

pub(crate) mod browser;
mod bus;
mod live;
mod login;
mod page;
mod sessions;

use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use peerbus_wire::escape;
use serde_json::Value;

use self::login::Login;
use crate::App;
use crate::answer::Failure;

/// Longest name or word that the page is told, in characters, and longest reason.
const NAME_CHARS: usize = 128;
const WHY_CHARS: usize = 600;

pub(crate) struct Dashboard {
    pub(crate) login: Login,
    audited: bus::Checked,
}

impl Dashboard {
    pub(crate) fn new() -> Self {
        let (login, audited) = (Login::new(), Mutex::default());
        Self { login, audited }
    }
}

pub(crate) fn router(app: &Arc<App>) -> Router<Arc<App>> {
    let closed = Router::new()
        .route("/dashboard/live", get(live::live))
        .route("/dashboard/messages", get(bus::messages))
        .route("/dashboard/message", get(bus::message))
        .route("/dashboard/rates", get(bus::rates))
        .route("/dashboard/audit", get(bus::audit))
        .route("/dashboard/watch", get(sessions::watch))
        .route("/dashboard/approval", post(sessions::approval))
        .route("/dashboard/held", post(sessions::held))
        .route("/dashboard/link", post(login::link))
        .route_layer(from_fn_with_state(Arc::clone(app), login::only_in));
    Router::new()
        .route("/", get(login::page))
        .route("/open/{word}", get(login::open))
        .route("/page/{file}", get(page::file))
        .merge(closed)
}

/// Asks beside the runtime's threads. Where that comes to nothing, this status and a sentence say so.
async fn beside(
    failed: StatusCode,
    ask: impl FnOnce() -> Result<Value, String> + Send + 'static,
) -> Response {
    let done = tokio::task::spawn_blocking(ask).await;
    match done.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(value) => Json(value).into_response(),
        Err(why) => Failure::new(failed, escape(&why, WHY_CHARS)).into_response(),
    }
}
