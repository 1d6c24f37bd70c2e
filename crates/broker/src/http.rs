//! HTTP: the upgrade to WebSocket on any path, health, metrics, and the operator's requests.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use peerbus_os::tcp::names_loopback;
use peerbus_store::WitnessFile;
use peerbus_wire::limits::FRAME_BYTES_MAX;
use serde_json::json;
use tokio::time::timeout;

use crate::connection;
use crate::control;
use crate::listener::{Site, Via};
use crate::operator;
use crate::shared::{Phase, Shared};

/// A connection's read buffer. The default of 128 KiB would dominate what an idle one costs.
const READ_BUFFER_BYTES: usize = 2_048;
/// Bytes that gather before they are written without a flush.
const WRITE_BUFFER_BYTES: usize = 8_192;
/// How long the engine may take to say how other domains are reached.
const ANSWERS: Duration = Duration::from_secs(1);
/// An engine that has not looked up for this long counts as stuck.
const STUCK_MS: u64 = 10_000;

const SERVER: &str = concat!("peerbus/", env!("CARGO_PKG_VERSION"));

pub(crate) fn router(shared: Arc<Shared>, site: Site) -> Router {
    let router = Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics));
    let router = match site {
        Site::Tcp(_) => router,
        Site::Unix => router
            .route("/broker", get(control::about))
            .route("/stop", post(control::stop))
            .route("/names/release", post(operator::release))
            .route("/names/retire", post(operator::retire))
            .route("/v1/names/{name}", get(operator::named))
            .route("/tokens/reload", post(operator::reload))
            .route("/audit/acknowledge", post(operator::acknowledge))
            .route("/v1/events", get(operator::history::events))
            .route("/v1/messages", get(operator::history::messages))
            .route("/v1/messages/{id}", get(operator::history::message))
            .route("/requests/withdraw", post(operator::withdraw))
            .route("/v1/requests", get(operator::history::requests))
            .route("/v1/peers", get(operator::history::peers))
            .route("/v1/history/purge", post(operator::history::purge)),
    };
    router
        .fallback(other)
        .with_state(shared)
        .layer(middleware::from_fn_with_state(site, guard))
}

/// Turns browsers away, and closes the socket after every plain answer.
async fn guard(State(site): State<Site>, request: Request, next: Next) -> Response {
    let via = request.extensions().get::<ConnectInfo<Via>>();
    let mut response = if via.is_some_and(|via| via.0.0.lacks_tls()) {
        // RFC 2817, section 4.2.
        let text = "peerbus speaks TLS here: use wss:// (or https://)\n";
        let upgrade = [(header::UPGRADE, "TLS/1.3")];
        (StatusCode::UPGRADE_REQUIRED, upgrade, text).into_response()
    } else if let Some(text) = refusal(site, request.headers()) {
        (StatusCode::FORBIDDEN, text).into_response()
    } else {
        next.run(request).await
    };
    let server = HeaderValue::from_static(SERVER);
    response.headers_mut().insert(header::SERVER, server);
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Why a request may come from a web page. No page has business here: one of a foreign origin
/// says so itself, and one that had its own name resolve to our address (DNS rebinding) still
/// asks for that name.
fn refusal(site: Site, headers: &HeaderMap) -> Option<String> {
    if headers.contains_key(header::ORIGIN) {
        return Some(
            "peerbus refuses requests of web pages, which carry an Origin header; a client that \
             is not a browser must send none\n"
                .into(),
        );
    }
    let Site::Tcp(address) = site else {
        return None;
    };
    let host = headers.get(header::HOST)?;
    let known = |host: &HeaderValue| {
        host.to_str()
            .is_ok_and(|host| names_loopback(host, address.ip()))
    };
    if !address.ip().is_loopback() || known(host) {
        return None;
    }
    Some(format!(
        "peerbus listens on {address} for this machine only; ask for it by that address\n"
    ))
}

/// Everything that is no route: upgrades, whatever their path, and a short answer at `/`.
async fn other(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(via): ConnectInfo<Via>,
    request: Request,
) -> Response {
    let (mut parts, _body) = request.into_parts();
    if !parts.headers.contains_key(header::UPGRADE) {
        return match (&parts.method, parts.uri.path()) {
            (&Method::GET, "/") => {
                "peerbus broker: connect here with a WebSocket client\n".into_response()
            }
            (method, path) => {
                let text = format!("peerbus has no {method} {path}\n");
                (StatusCode::NOT_FOUND, text).into_response()
            }
        };
    }
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(rejection) => return rejection.into_response(),
    };
    if shared.health.phase() != Phase::Running {
        return operator::stopping();
    }
    let Some((place, stranger)) = shared.places.take(via.0.is_tcp()).await else {
        let text = format!(
            "peerbus has {} connections, as many as it may have of this kind ({} in all, fewer over \
             TCP, and half of them before they register); close some, or raise its limit\n",
            shared.connections(),
            shared.places.max
        );
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    via.0.set_upgraded();
    upgrade
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .on_upgrade(move |ws| connection::serve(ws, via.0, (place, stranger), shared))
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    let stuck = shared.health.busy_ms(shared.clock.mono_ms()) > STUCK_MS;
    let missing = shared.witness.as_ref().and_then(WitnessFile::missing);
    let (code, status) = match shared.health.phase() {
        Phase::Running if stuck => (StatusCode::SERVICE_UNAVAILABLE, "stuck"),
        Phase::Running if missing.is_some() => (StatusCode::SERVICE_UNAVAILABLE, "incomplete"),
        Phase::Running => (StatusCode::OK, "ok"),
        Phase::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        Phase::Failed => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
    };
    let body = json!({
        "status": status,
        "version": env!("CARGO_PKG_VERSION"),
        "connections": shared.connections(),
        "peers": shared.health.peers(),
        "missing": missing.map(|missing| missing.to_string()),
    });
    (code, Json(body)).into_response()
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let (connections, peers) = (shared.connections(), shared.health.peers());
    let log_lost = shared.log_lost.map_or(0, |log_lost| log_lost());
    if shared.has_domain {
        // Metrics are asked for when something is wrong, too.
        let asked = operator::ask(&shared, |broker, now, txn| broker.joined(now, txn));
        if let Ok(Ok(joined)) = timeout(ANSWERS, asked).await {
            shared.metrics.set_joined(&joined);
        }
    }
    match shared.metrics.text(connections, peers, log_lost) {
        Ok(text) => ([(header::CONTENT_TYPE, TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn pages_are_refused_and_clients_are_not() {
        let loopback = Site::Tcp("127.0.0.1:47821".parse().unwrap());
        let everywhere = Site::Tcp("0.0.0.0:47821".parse().unwrap());
        let cases = [
            (loopback, "127.0.0.1:47821", true),
            (loopback, "localhost:1", true),
            (loopback, "LOCALHOST", true),
            (loopback, "[::1]:47821", true),
            (loopback, "evil.example:47821", false),
            (loopback, "127.0.0.1.evil.example", false),
            (loopback, "", false),
            (everywhere, "broker.lan:47821", true),
            (Site::Unix, "whatever", true),
        ];
        for (site, host, admitted) in cases {
            let refused = refusal(site, &headers(&[(header::HOST, host)]));
            assert_eq!(refused.is_none(), admitted, "{site:?} {host}: {refused:?}");
        }
        let page = headers(&[(header::HOST, "127.0.0.1:47821"), (header::ORIGIN, "null")]);
        assert!(refusal(loopback, &page).is_some());
        assert!(refusal(everywhere, &page).is_some());
    }
}
