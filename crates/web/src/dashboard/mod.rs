//! The page for a person, and what it asks. [`login`] says who may, [`bus`] has what the broker
//! tells, [`sessions`] what sessions of agents do, [`live`] tells the page what changes.

pub(crate) mod browser;
mod bus;
mod live;
mod login;
mod page;
mod sessions;
mod write;

use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use peerbus_view::{Audience, PeerState};
use peerbus_wire::escape_sentence;
use serde_json::Value;

use self::login::Login;
use crate::App;
use crate::answer::Failure;

/// Longest name or word that the page is told, in characters, and longest reason.
const NAME_CHARS: usize = 128;
const WHY_CHARS: usize = 600;

/// What about a state is for its user to act on, if the user looks at it.
fn alarm(state: PeerState, audience: Audience) -> Option<&'static str> {
    match (state, audience) {
        (PeerState::Waits, Audience::Owner) => Some("waits"),
        (PeerState::Stuck, Audience::Owner) => Some("stuck"),
        _ => None,
    }
}

pub(crate) struct Dashboard {
    pub(crate) login: Login,
    audited: bus::Checked,
    writer: write::Writer,
}

impl Dashboard {
    pub(crate) fn new() -> Self {
        Self {
            login: Login::new(),
            audited: Mutex::default(),
            writer: Mutex::default(),
        }
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
        .route("/dashboard/send", post(write::send))
        .route("/dashboard/link", post(login::link))
        .route_layer(from_fn_with_state(Arc::clone(app), login::only_in));
    Router::new()
        .route("/", get(login::page))
        .route("/open/{word}", get(login::open))
        .route("/link", post(login::ask))
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
        Err(why) => Failure::new(failed, escape_sentence(&why, WHY_CHARS)).into_response(),
    }
}
