//! What is not done, and why: a status, and `{"error": "a sentence"}`.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use peerbus_wire::escape;
use serde_json::{Map, Value};

/// Longest part of a sentence that others have a say in, in characters.
pub(crate) const SAID_CHARS: usize = 200;

/// Why a request is not granted.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    members: Map<String, Value>,
    /// Seconds.
    retry_after: Option<u64>,
    /// A client that sends a password only when it is asked for one is asked. Never to be said to our own
    /// page: its browser would ask the person.
    password: bool,
    encodings: bool,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self {
            status,
            members: Map::from_iter([("error".into(), Value::from(why.into()))]),
            retry_after: None,
            password: false,
            encodings: false,
        }
    }

    pub(crate) fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.members.insert(member.into(), value.into());
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn asks_for_password(mut self) -> Self {
        self.password = true;
        self
    }

    /// The body is encoded in a way that is not taken: says which one is.
    pub(crate) fn takes_no_encoding(mut self) -> Self {
        self.encodings = true;
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

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = Value::Object(self.members);
        let mut response = (self.status, axum::Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        let headers = response.headers_mut();
        if self.password {
            let scheme = HeaderValue::from_static("Basic realm=\"peerbus\"");
            headers.append(header::WWW_AUTHENTICATE, scheme);
        }
        if self.encodings {
            let identity = HeaderValue::from_static("identity");
            headers.insert(header::ACCEPT_ENCODING, identity);
        }
        if let Some(seconds) = self.retry_after {
            let seconds = HeaderValue::from(seconds);
            headers.insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}
