//! Who may ask at all, and what a browser may do with an answer.

use std::net::SocketAddr;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use peerbus_os::tcp;
use peerbus_wire::escape_sentence;

use crate::answer::{Failure, SAID_CHARS};

const SAID_BYTES_MAX: usize = 4_096;
/// A page of ours runs its own files and nothing else, and stands in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
const ALWAYS: [(HeaderName, &str); 3] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) tls: bool,
}

impl Site {
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme(), self.address)
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Why a request is not this machine's own doing. A page that had its own name resolve to our
    /// address asks for that name; one of another origin says so itself.
    fn refusal(&self, headers: &HeaderMap) -> Option<String> {
        let text = |name| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap_or_default())
        };
        let host = text(header::HOST).unwrap_or_default();
        let ip = self.address.ip();
        if ip.is_loopback() && !tcp::names_loopback(host, ip) {
            let url = self.url();
            return Some(format!(
                "the gateway is for this machine only; ask for it as {url}"
            ));
        }
        let own = |origin: &str| {
            let rest = origin.strip_prefix(self.scheme());
            let rest = rest.and_then(|rest| rest.strip_prefix("://"));
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
        };
        if text(header::ORIGIN).is_some_and(|origin| !own(origin)) {
            return Some("the gateway refuses requests of other origins' pages".into());
        }
        let fetch = |name| text(HeaderName::from_static(name));
        let foreign = matches!(fetch("sec-fetch-site"), Some("cross-site" | "same-site"));
        if foreign && fetch("sec-fetch-mode") != Some("navigate") {
            return Some("the gateway refuses requests of other sites' pages".into());
        }
        None
    }
}

/// Turns away what a page of somebody else's asks.
pub(crate) async fn guard(State(site): State<Site>, request: Request, next: Next) -> Response {
    let mut response = match site.refusal(request.headers()) {
        Some(why) => Failure::new(StatusCode::FORBIDDEN, why).into_response(),
        None => in_json(next.run(request).await).await,
    };
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// What was refused before a handler saw it, said as we say it.
async fn in_json(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_said = kind.is_some_and(|kind| !kind.as_bytes().starts_with(b"text/plain"));
    if is_said || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let said = to_bytes(response.into_body(), SAID_BYTES_MAX).await;
    let said = said.unwrap_or_default();
    let why = match said.is_empty() {
        true => status.canonical_reason().unwrap_or_default().to_lowercase(),
        false => escape_sentence(&String::from_utf8_lossy(&said), SAID_CHARS),
    };
    Failure::new(status, why).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &str, tls: bool, pairs: &[(&'static str, &str)]) -> bool {
        let headers = pairs.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        });
        let address = address.parse().unwrap();
        Site { address, tls }.refusal(&headers.collect()).is_some()
    }

    #[test]
    fn only_this_machine_and_our_own_page_are_heard() {
        let here = "127.0.0.1:47822";
        for (host, origin, admitted) in [
            (here, None, true),
            ("localhost:47822", None, true),
            ("[::1]:47822", None, true),
            ("evil.example", None, false),
            ("127.0.0.1.evil.example", None, false),
            ("", None, false),
            (here, Some("http://127.0.0.1:47822"), true),
            ("LocalHost:47822", Some("http://localhost:47822"), true),
            (here, Some("https://127.0.0.1:47822"), false),
            (here, Some("http://127.0.0.1:1"), false),
            (here, Some("http://evil.example"), false),
            (here, Some("null"), false),
        ] {
            let mut headers = vec![("host", host)];
            headers.extend(origin.map(|origin| ("origin", origin)));
            assert_eq!(
                refused(here, false, &headers),
                !admitted,
                "{host} {origin:?}"
            );
        }
        let named = [("host", "bus.lan:1"), ("origin", "https://bus.lan:1")];
        assert!(!refused("0.0.0.0:1", true, &named));
        let other = [("host", "bus.lan:1"), ("origin", "https://evil.example")];
        assert!(refused("0.0.0.0:1", true, &other));
    }

    #[test]
    fn another_sites_page_may_link_here_and_nothing_else() {
        let here = "127.0.0.1:47822";
        for (site, mode, admitted) in [
            ("cross-site", "no-cors", false),
            ("same-site", "cors", false),
            ("cross-site", "navigate", true),
            ("same-origin", "cors", true),
            ("none", "navigate", true),
        ] {
            let headers = [
                ("host", here),
                ("sec-fetch-site", site),
                ("sec-fetch-mode", mode),
            ];
            assert_eq!(refused(here, false, &headers), !admitted, "{site} {mode}");
        }
    }
}
