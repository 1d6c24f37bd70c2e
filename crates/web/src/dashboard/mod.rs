//! The page for a person, and what it asks. [`login`] says who may, [`bus`] has what the broker
//! tells, [`sessions`] what sessions of agents do, [`live`] tells the page what changes.

pub(crate) mod browser;
mod bus;
mod live;
mod login;
mod page;
mod sessions;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use self::bus::Source;
use self::login::Login;
use crate::{App, GatewayOptions};

/// What the dashboard keeps.
pub(crate) struct Dashboard {
    login: Login,
    source: Source,
}

impl Dashboard {
    pub(crate) fn new(options: &GatewayOptions) -> Self {
        Self {
            login: Login::new(),
            source: Source::new(options),
        }
    }

    /// The path that opens the page, once. A secret.
    pub(crate) fn link(&self) -> String {
        self.login.link()
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
