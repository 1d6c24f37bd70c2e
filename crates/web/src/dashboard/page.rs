//! The page's files, as they are served. They hold nothing secret.

use axum::extract::Path;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};

const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const FILES: [(&str, &str, &str); 11] = [
    ("style.css", CSS, include_str!("page/style.css")),
    ("icon.svg", SVG, include_str!("page/icon.svg")),
    ("app.js", JS, include_str!("page/app.js")),
    ("dom.js", JS, include_str!("page/dom.js")),
    ("messages.js", JS, include_str!("page/messages.js")),
    ("people.js", JS, include_str!("page/people.js")),
    ("requests.js", JS, include_str!("page/requests.js")),
    ("waiting.js", JS, include_str!("page/waiting.js")),
    ("notify.js", JS, include_str!("page/notify.js")),
    ("write.js", JS, include_str!("page/write.js")),
    ("rates.js", JS, include_str!("page/rates.js")),
];

/// The dashboard. A browser gets the key once, and keeps it.
pub(super) fn index(key: &str) -> Html<String> {
    Html(include_str!("page/index.html").replace("KEY", key))
}

/// What somebody sees who has opened no link.
pub(super) fn closed() -> Html<String> {
    says("This page is closed to this browser")
}

/// What somebody sees whose link opens nothing any more.
pub(super) fn used() -> Html<String> {
    says("This link was opened already, is older than ten minutes, or is of another process")
}

/// What somebody sees who may open none.
pub(super) fn refused() -> Html<String> {
    says("This link opens nothing for an agent, or for a program that is not known")
}

fn says(what: &str) -> Html<String> {
    Html(include_str!("page/closed.html").replace("WHAT", what))
}

/// `GET /page/FILE`.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, _, _)| *known == name) {
        Some((_, kind, text)) => {
            let kind: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, kind)];
            (kind, *text).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
