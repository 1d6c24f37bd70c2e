//! Who may look: a browser in which a link of this process was opened, while the process lives.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use peerbus_adapter::credentials::random_hex;
use peerbus_core::TokenHash;
use peerbus_wire::Token;
use serde_json::json;

use super::page;
use crate::App;
use crate::answer::Failure;

/// Links that wait to be opened, at most; the oldest go.
const LINKS_MAX: usize = 8;
/// How somebody gets in.
const REMEDY: &str = "start the gateway with `peerbus web --open`: it prints a link that opens the \
                      dashboard once, in one browser. From a browser that is in, \"Link for another \
                      browser\" makes one more";

/// The links that are still good, and what a browser shows that opened one.
pub(crate) struct Login {
    links: Mutex<VecDeque<TokenHash>>,
    cookie: String,
}

fn hash(text: &str) -> Option<TokenHash> {
    Some(TokenHash::of(&Token::parse(text)?))
}

impl Login {
    pub(crate) fn new() -> Self {
        Self {
            links: Mutex::default(),
            cookie: random_hex().to_string(),
        }
    }

    /// The path that opens the page, once. A secret.
    pub(crate) fn link(&self) -> String {
        let word = random_hex();
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.extend(hash(&word));
        while links.len() > LINKS_MAX {
            links.pop_front();
        }
        format!("/open/{}", &*word)
    }

    /// Whether this word opens it; not again.
    fn take(&self, word: &str) -> bool {
        let Some(shown) = hash(word) else {
            return false;
        };
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let found = links.iter().position(|link| link.matches(&shown));
        found.and_then(|at| links.remove(at)).is_some()
    }

    /// Whether a link was opened where this comes from. Cookies are for a host, whatever the port:
    /// that is in the name.
    fn admits(&self, port: u16, headers: &HeaderMap) -> bool {
        let name = cookie_name(port);
        let all = headers.get_all(header::COOKIE).iter();
        let all = all.filter_map(|cookies| cookies.to_str().ok());
        let mut pairs = all.flat_map(|cookies| cookies.split(';'));
        pairs.any(|pair| {
            let shown = pair.trim().split_once('=').filter(|(key, _)| *key == name);
            let both = shown.and_then(|(_, value)| hash(value).zip(hash(&self.cookie)));
            both.is_some_and(|(shown, ours)| ours.matches(&shown))
        })
    }
}

fn cookie_name(port: u16) -> String {
    format!("peerbus_{port}")
}

fn is_in(app: &App, headers: &HeaderMap) -> bool {
    let port = app.site.address.port();
    app.dashboard.login.admits(port, headers)
}

/// `GET /`.
pub(super) async fn page(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    if is_in(&app, &headers) {
        page::index().into_response()
    } else {
        (StatusCode::UNAUTHORIZED, page::closed()).into_response()
    }
}

/// `GET /open/WORD`. The page comes at once: a cookie of this kind does not go along when a browser
/// is sent on by a link that stands on another site.
pub(super) async fn open(
    State(app): State<Arc<App>>,
    Path(word): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    if is_in(&app, &headers) {
        return Redirect::to("/").into_response();
    }
    if method != Method::GET || !app.dashboard.login.take(&word) {
        return (StatusCode::FORBIDDEN, page::used()).into_response();
    }
    let secure = if app.site.tls { "; Secure" } else { "" };
    let cookie = format!(
        "{}={}; Path=/; HttpOnly; SameSite=Strict{secure}",
        cookie_name(app.site.address.port()),
        app.dashboard.login.cookie
    );
    ([(header::SET_COOKIE, cookie)], page::index()).into_response()
}

/// `POST /dashboard/link`: one more link.
pub(super) async fn link(State(app): State<Arc<App>>) -> Response {
    let link = format!("{}{}", app.site.url(), app.dashboard.link());
    axum::Json(json!({ "link": link })).into_response()
}

/// Lets through who is in; and what changes something only from the page itself.
pub(super) async fn only_in(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if !is_in(&app, headers) {
        let why = format!("the dashboard is closed to this browser: {REMEDY}");
        return Failure::new(StatusCode::UNAUTHORIZED, why).into_response();
    }
    // That it is ours was looked at before.
    if request.method() != Method::GET && !headers.contains_key(header::ORIGIN) {
        let why = "only the dashboard's own page asks this, and its browser says so (Origin)";
        return Failure::new(StatusCode::FORBIDDEN, why).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_link_opens_once_and_only_its_cookie_admits() {
        let login = Login::new();
        let (one, two) = (login.link(), login.link());
        let word = |link: &str| link.strip_prefix("/open/").unwrap().to_owned();
        assert!(!login.take("guess") && !login.take(""));
        assert!(login.take(&word(&one)) && !login.take(&word(&one)));
        assert!(login.take(&word(&two)));
        let admits = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            login.admits(7, &HeaderMap::from_iter([(header::COOKIE, value)]))
        };
        let good = format!("peerbus_7={}", login.cookie);
        assert!(admits(&good) && admits(&format!("a=b; {good}; c=d")));
        for bad in ["", "peerbus_7=", "peerbus_7=guess", "x"] {
            assert!(!admits(bad), "{bad}");
        }
        assert!(!admits(&format!("peerbus_8={}", login.cookie)));
        assert!(!login.admits(7, &HeaderMap::new()));
    }

    #[test]
    fn of_many_links_the_last_ones_are_good() {
        let login = Login::new();
        let links: Vec<_> = (0..=LINKS_MAX).map(|_| login.link()).collect();
        assert!(!login.take(&links[0]["/open/".len()..]));
        assert!(login.take(&links[1]["/open/".len()..]));
    }
}
