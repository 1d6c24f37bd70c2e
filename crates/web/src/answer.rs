//! What is not done, and why: a status, and `{"error": "a sentence"}`.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use peerbus_wire::{escape, escape_json};
use serde_json::{Map, Value};

/// Longest part of a sentence that others have a say in, in characters.
pub(crate) const SAID_CHARS: usize = 200;

/// Why a request is not granted.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    members: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        let bearer = (header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        let asks = status == StatusCode::UNAUTHORIZED;
        Self {
            status,
            members: Map::from_iter([("error".into(), Value::from(why.into()))]),
            headers: Vec::from_iter(asks.then_some(bearer)),
        }
    }

    pub(crate) fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.members.insert(member.into(), value.into());
        self
    }

    pub(crate) fn saying(mut self, header: HeaderName, value: &'static str) -> Self {
        self.headers.push((header, HeaderValue::from_static(value)));
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.headers.push((header::RETRY_AFTER, seconds.into()));
        self
    }

    /// There is no such place, or it does something else.
    pub(crate) fn not_here(status: StatusCode, request: &Request) -> Self {
        let (method, path) = (request.method().as_str(), request.uri().path());
        let (method, path) = (escape(method, 20), escape(path, SAID_CHARS));
        let why = format!("there is no {method} {path} here; /openapi.json lists what there is");
        Self::new(status, why)
    }
}

/// An answer with words of others, in which nothing moves a terminal or hides from a reader.
pub(crate) fn said(value: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, escape_json(&value.to_string())).into_response()
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = axum::Json(Value::Object(self.members));
        (self.status, AppendHeaders(self.headers), body).into_response()
    }
}
