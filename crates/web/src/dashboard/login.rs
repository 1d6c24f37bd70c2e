//! Who may look: a browser in which a link of this process was opened, while the process lives. It
//! shows a cookie and a key. No script reads the cookie, but a browser sends it to every port of the
//! host; the key only our own page has.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use peerbus_adapter::credentials::random_hex;
use peerbus_core::TokenHash;
use peerbus_os::sync::lock;
use peerbus_wire::Token;
use serde_json::json;

use super::{beside, page};
use crate::answer::Failure;
use crate::other::Ends;
use crate::{App, strangers};

/// Links that wait to be opened, at most; the oldest go.
const LINKS_MAX: usize = 8;
/// How long they wait.
const LINK_LASTS: Duration = Duration::from_secs(600);
const KEY: HeaderName = HeaderName::from_static("x-peerbus-key");
/// How somebody gets in.
const REMEDY: &str = "\"Link for another browser\" at the end of a dashboard that is open makes a link, \
                      which opens it once, in one browser. Where none is open, `peerbus web --open` in a \
                      terminal of yours asks this gateway for one; where it gets none, end this gateway \
                      and start it again so";

/// The links that are still good, and what a browser shows that opened one.
pub(crate) struct Login {
    links: Mutex<VecDeque<(TokenHash, Instant)>>,
    cookie: String,
    key: String,
}

fn hash(text: &str) -> Option<TokenHash> {
    Some(TokenHash::of(&Token::parse(text)?))
}

/// Whether this was shown, in a time that tells nothing.
fn is(ours: &str, shown: &str) -> bool {
    let both = hash(ours).zip(hash(shown));
    both.is_some_and(|(ours, shown)| ours.matches(&shown))
}

impl Login {
    pub(crate) fn new() -> Self {
        Self {
            links: Mutex::default(),
            cookie: random_hex().to_string(),
            key: random_hex().to_string(),
        }
    }

    /// The path that opens the page, once. A secret.
    pub(crate) fn link(&self) -> String {
        let word = random_hex();
        let mut links = lock(&self.links);
        links.extend(hash(&word).map(|word| (word, Instant::now())));
        while links.len() > LINKS_MAX {
            links.pop_front();
        }
        format!("/open/{}", &*word)
    }

    /// Whether this word opens it; not again.
    fn take(&self, word: &str, now: Instant) -> bool {
        let Some(shown) = hash(word) else {
            return false;
        };
        let mut links = lock(&self.links);
        links.retain(|(_, made)| now.saturating_duration_since(*made) < LINK_LASTS);
        let found = links.iter().position(|(link, _)| link.matches(&shown));
        found.and_then(|at| links.remove(at)).is_some()
    }

    /// Whether a link was opened in the browser that this comes from. Cookies are for a host, whatever
    /// the port: that is in the name.
    fn knows(&self, port: u16, headers: &HeaderMap) -> bool {
        let name = cookie_name(port);
        let all = headers.get_all(header::COOKIE).iter();
        let all = all.filter_map(|cookies| cookies.to_str().ok());
        let mut pairs = all.flat_map(|cookies| cookies.split(';'));
        pairs.any(|pair| {
            let shown = pair.trim().split_once('=').filter(|(key, _)| *key == name);
            shown.is_some_and(|(_, value)| is(&self.cookie, value))
        })
    }

    /// Whether this comes from the page itself, in such a browser.
    fn admits(&self, port: u16, headers: &HeaderMap) -> bool {
        let key = headers.get(KEY).and_then(|key| key.to_str().ok());
        self.knows(port, headers) && is(&self.key, key.unwrap_or_default())
    }
}

fn cookie_name(port: u16) -> String {
    format!("peerbus_{port}")
}

fn is_known(app: &App, headers: &HeaderMap) -> bool {
    let port = app.site.address.port();
    app.dashboard.login.knows(port, headers)
}

/// `GET /`.
pub(super) async fn page(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    if is_known(&app, &headers) {
        page::index("").into_response()
    } else {
        (StatusCode::UNAUTHORIZED, page::closed()).into_response()
    }
}

/// `GET /open/WORD`. The page comes at once: a cookie of this kind does not go along when a browser
/// is sent on by a link that stands on another site. A link lies in a file for the browser, where an agent
/// finds it, too; in a gateway of an agent's own it decides nothing.
pub(super) async fn open(
    State(app): State<Arc<App>>,
    Path(word): Path<String>,
    Extension(ends): Extension<Ends>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let is_agents = app.options.agent;
    let may_open = move || is_agents || ends.may_open().is_ok();
    if !tokio::task::spawn_blocking(may_open).await.unwrap_or(false) {
        return (StatusCode::FORBIDDEN, page::refused()).into_response();
    }
    if method != Method::GET || !app.dashboard.login.take(&word, Instant::now()) {
        return match is_known(&app, &headers) {
            true => Redirect::to("/").into_response(),
            false => (StatusCode::FORBIDDEN, page::used()).into_response(),
        };
    }
    let secure = if app.site.tls { "; Secure" } else { "" };
    let Login { cookie, key, .. } = &app.dashboard.login;
    let name = cookie_name(app.site.address.port());
    let cookie = format!("{name}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}");
    ([(header::SET_COOKIE, cookie)], page::index(key)).into_response()
}

/// `POST /dashboard/link`: one more link, for the address by which the page is asked.
pub(super) async fn link(State(app): State<Arc<App>>) -> Response {
    axum::Json(json!({ "path": app.dashboard.login.link() })).into_response()
}

/// `POST /link`: one more link, for a program that this user runs and no agent does.
pub(super) async fn ask(State(app): State<Arc<App>>, Extension(ends): Extension<Ends>) -> Response {
    beside(StatusCode::FORBIDDEN, move || {
        ends.may_have_a_link()?;
        Ok(json!({ "path": app.dashboard.login.link() }))
    })
    .await
}

/// Lets through who is in; and what changes something only from the page itself.
pub(super) async fn only_in(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let port = app.site.address.port();
    if !app.dashboard.login.admits(port, headers) {
        let why = format!("the dashboard is closed to this browser: {REMEDY}");
        return Failure::new(StatusCode::UNAUTHORIZED, why).into_response();
    }
    strangers::known(request.extensions());
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
        let (one, old) = (login.link(), login.link());
        let take = |word: &str| login.take(word, Instant::now());
        let word = |link: &str| link.strip_prefix("/open/").unwrap().to_owned();
        assert!(!take("guess") && !take(""));
        assert!(take(&word(&one)) && !take(&word(&one)));
        let late = Instant::now() + LINK_LASTS;
        assert!(!login.take(&word(&old), late));
        assert!(!take(&word(&old)), "it is gone");
        let two = login.link();
        assert!(take(&word(&two)));
        let asks = |cookie: &str, key: &str| {
            let [cookie, key] = [cookie, key].map(|text| HeaderValue::from_str(text).unwrap());
            login.admits(
                7,
                &HeaderMap::from_iter([(header::COOKIE, cookie), (KEY, key)]),
            )
        };
        let admits = |cookie: &str| asks(cookie, &login.key);
        let good = format!("peerbus_7={}", login.cookie);
        assert!(admits(&good) && admits(&format!("a=b; {good}; c=d")));
        assert!(!asks(&good, "") && !asks(&good, "guess"), "a cookie alone");
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
        assert!(!login.take(&links[0]["/open/".len()..], Instant::now()));
        assert!(login.take(&links[1]["/open/".len()..], Instant::now()));
    }
}
