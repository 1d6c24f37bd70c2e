//! The gateway between the bus and what speaks HTTP: webhooks come in, replies go out, and a page
//! shows a person what happens. It is a client of the bus, one peer `web:NAME` a token.

mod answer;
mod answered;
mod body;
mod dashboard;
mod guard;
mod kept;
mod listener;
mod other;
mod peers;
mod replies;
mod requests;
mod send;
mod sessions;
mod strangers;
mod streams;
pub mod tokens;
mod watch;
mod way;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, StatusCode, header};
use axum::routing::{get, post};
use peerbus_adapter::BusConfig;
pub use peerbus_os::tls::ServerTls;
use serde_json::json;

use crate::answer::Failure;
pub use crate::dashboard::browser::show;
use crate::guard::Site;
pub use crate::other::OtherGateway;
use crate::peers::Peers;
use crate::streams::Streams;
use crate::tokens::Tokens;
pub use crate::way::Way;

/// The settings of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Where to listen. Beyond loopback only with `tls`.
    pub listen: SocketAddr,
    /// The certificate and its key.
    pub tls: Option<ServerTls>,
    /// How its peers join the bus; their names and their token come from `file`.
    pub bus: BusConfig,
    /// `web.toml`.
    pub file: PathBuf,
    /// The token in `file` is meant for that broker.
    pub own_token: bool,
    /// Where the broker may listen for its operator, on this machine.
    pub operator: Vec<PathBuf>,
    /// Why none is started where none listens there: another one is meant.
    pub elsewhere: Option<String>,
    /// Checks the audit chain of the database at a path: what it is like, or what is wrong.
    pub audit: fn(&Path) -> Result<String, String>,
    /// It was started by an agent, or by what one runs: texts that were not shown to all whom they
    /// are for are kept from who looks.
    pub agent: bool,
}

/// The state that handlers share.
pub(crate) struct App {
    site: Site,
    options: GatewayOptions,
    tokens: Tokens,
    peers: Peers,
    streams: Streams,
    unsigned: body::Arriving,
    dashboard: dashboard::Dashboard,
}

/// A gateway that listens.
pub struct Gateway {
    listener: listener::Bound,
    app: Arc<App>,
}

impl Gateway {
    /// Reads the files and binds the address.
    ///
    /// # Errors
    ///
    /// A sentence that names the file or the address, what was found and the remedy.
    pub async fn bind(options: GatewayOptions) -> Result<Self, String> {
        let listener = listener::Bound::new(options.listen, options.tls.as_ref()).await?;
        let site = Site {
            address: listener.address,
            tls: options.tls.is_some(),
        };
        let tokens = Tokens::open(&options.file)?;
        let app = Arc::new(App {
            site,
            tokens,
            peers: Peers::default(),
            streams: Streams::new(),
            unsigned: body::Arriving::new(body::UNSIGNED_MAX),
            dashboard: dashboard::Dashboard::new(),
            options,
        });
        Ok(Self { listener, app })
    }

    /// Where it listens: `http://127.0.0.1:47822`.
    #[must_use]
    pub fn url(&self) -> String {
        self.app.site.url()
    }

    /// An address that opens the dashboard, once. A secret.
    #[must_use]
    pub fn link(&self) -> String {
        format!("{}{}", self.url(), self.app.dashboard.login.link())
    }

    /// The gateway that runs at this address already, without TLS, if one does; it is asked for a link.
    #[must_use]
    pub fn other(address: SocketAddr) -> Option<OtherGateway> {
        OtherGateway::at(address)
    }

    /// A link of the gateway that runs at `https://HOST:PORT`, whose certificate this machine's authorities
    /// know. A secret.
    ///
    /// # Errors
    ///
    /// Why there is none, as a sentence.
    pub async fn trusted_link(host: &str, port: u16) -> Result<String, String> {
        other::trusted_link(host, port).await
    }

    /// Serves until `stop` resolves.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let router = router(Arc::clone(&self.app));
        tokio::select! {
            () = self.listener.serve(router) => {}
            () = self.app.tokens.look() => {}
            () = self.app.follow_tokens() => {}
            () = stop => {}
        }
        self.app.leave().await;
    }
}

fn router(app: Arc<App>) -> Router {
    let site = app.site;
    let not_here = |code| move |request: Request| async move { Failure::not_here(code, &request) };
    Router::new()
        .route("/healthz", get(health))
        .route("/openapi.json", get(openapi))
        .route("/hook/{peer}", post(send::hook))
        .route("/hook/{peer}/", post(send::hook))
        .route("/hook/{peer}/{*rest}", post(send::hook))
        .route("/v1/messages", post(send::message))
        .route("/v1/messages/{id}", get(send::status))
        .route("/v1/requests", get(requests::requests))
        .route("/v1/replies", get(replies::replies).post(replies::confirm))
        .merge(sessions::router())
        .merge(dashboard::router(&app))
        .fallback(not_here(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(not_here(StatusCode::METHOD_NOT_ALLOWED))
        .with_state(app)
        .layer(axum::middleware::from_fn_with_state(site, guard::guard))
}

async fn health() -> axum::Json<serde_json::Value> {
    axum::Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// `GET /openapi.json`.
async fn openapi() -> ([(HeaderName, &'static str); 1], &'static str) {
    const JSON: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
    (JSON, include_str!("openapi.json"))
}
