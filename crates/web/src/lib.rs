//! The gateway between the bus and what speaks HTTP: webhooks come in, replies go out, and a page
//! shows a person what happens. It is a client of the bus, one peer `web:NAME` a token.

#![expect(dead_code, reason = "what asks for a token comes next")]

mod answer;
mod dashboard;
mod guard;
mod listener;
pub mod tokens;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use peerbus_adapter::Config;
use serde_json::json;

use crate::answer::Failure;
use crate::guard::Site;
pub use crate::listener::{StartError, TlsFiles};
use crate::tokens::Tokens;

/// What a gateway needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen. Beyond loopback only with `tls`.
    pub listen: SocketAddr,
    /// The certificate and its key.
    pub tls: Option<TlsFiles>,
    /// How its peers join the bus; their names and their token come from `file`.
    pub bus: Config,
    /// `web.toml`.
    pub file: PathBuf,
    /// Where the broker may listen for its operator, on this machine.
    pub operator: Vec<PathBuf>,
}

/// What the handlers share.
pub(crate) struct App {
    site: Site,
    options: Options,
    tokens: Tokens,
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
    pub async fn bind(options: Options) -> Result<Self, StartError> {
        let listener = listener::Bound::new(options.listen, options.tls.as_ref()).await?;
        let site = Site {
            address: listener.address(),
            tls: options.tls.is_some(),
        };
        let tokens = Tokens::open(&options.file).map_err(StartError::Tokens)?;
        let app = Arc::new(App {
            site,
            tokens,
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
        format!("{}{}", self.url(), self.app.dashboard.link())
    }

    /// Serves until `stop` resolves.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let router = router(Arc::clone(&self.app));
        tokio::select! {
            () = self.listener.serve(router) => {}
            () = stop => {}
        }
    }
}

fn router(app: Arc<App>) -> Router {
    let site = app.site;
    Router::new()
        .route("/healthz", get(health))
        .merge(dashboard::router())
        .fallback(nothing)
        .method_not_allowed_fallback(nothing)
        .with_state(app)
        .layer(axum::middleware::from_fn_with_state(site, guard::guard))
}

async fn health() -> axum::Json<serde_json::Value> {
    axum::Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

async fn nothing(request: axum::extract::Request) -> Failure {
    Failure::not_here(&request)
}
