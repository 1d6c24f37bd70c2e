//! The body of a request: how it comes, and how it is read.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::error::Error as _;
use std::iter::successors;
use std::sync::Mutex;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use peerbus_os::sync::lock;
use peerbus_wire::{escape, escape_sentence};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::answer::{Failure, SAID_CHARS};

/// Longest body of most requests.
pub(crate) const BODY_BYTES_MAX: usize = 1_048_576;
/// Longest body with a text for a session: images of 3 MiB may stand in it, and the session's socket takes no
/// line of more than 4 MiB.
pub(crate) const PROMPT_BYTES_MAX: usize = 3_670_016;
/// How long a request's body may take to come.
const BODY: Duration = Duration::from_secs(30);
/// Bodies that may come at once before their signature is looked at.
pub(crate) const UNSIGNED_MAX: usize = 64;
/// Bodies that may come at once from one token.
pub(crate) const BODIES_OF_TOKEN: usize = 32;
/// What some programs put in front of a text.
const BOM: char = '\u{feff}';

/// Checks that a body is worth reading: its length, at most `max`, and how it is encoded.
pub(crate) fn check(headers: &HeaderMap, max: usize) -> Result<(), Failure> {
    let length = text_of(headers, header::CONTENT_LENGTH).parse::<u64>().ok();
    if length.is_some_and(|length| length > max as u64) {
        return Err(too_large(max));
    }
    let unsupported = |what: &str, found: &str| {
        let found = escape(found, SAID_CHARS);
        let why =
            format!("{what} \"{found}\" is not taken: send the body in UTF-8, not compressed");
        Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)
    };
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let is_none = |value: &[u8]| value.is_empty() || value.eq_ignore_ascii_case(b"identity");
    if let Some(other) = encodings.find(|value| !is_none(value.as_bytes())) {
        let found = String::from_utf8_lossy(other.as_bytes());
        return Err(
            unsupported("Content-Encoding", &found).saying(header::ACCEPT_ENCODING, "identity")
        );
    }
    match charset(text_of(headers, header::CONTENT_TYPE)) {
        Some(other) if !["utf-8", "utf8", "us-ascii"].contains(&&*other.to_ascii_lowercase()) => {
            Err(unsupported("the charset", other))
        }
        _ => Ok(()),
    }
}

/// The text of a header, empty where there is none.
fn text_of(headers: &HeaderMap, name: HeaderName) -> &str {
    let value = headers
        .get(name)
        .map(|value| value.to_str().unwrap_or_default().trim());
    value.unwrap_or_default()
}

/// What a content type says of how its text is written.
fn charset(kind: &str) -> Option<&str> {
    let mut parameters = kind.split(';').skip(1);
    parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is = name.trim().eq_ignore_ascii_case("charset");
        is.then(|| value.trim().trim_matches('"'))
    })
}

/// Bodies that are on their way, by arrival: dropping one's sender gives it up.
pub(crate) struct Arriving {
    most: usize,
    places: Mutex<VecDeque<oneshot::Sender<()>>>,
}

impl Arriving {
    pub(crate) fn new(most: usize) -> Self {
        let places = Mutex::default();
        Self { most, places }
    }

    /// The body of a request, of at most `max` bytes, unless too many come after it.
    pub(crate) async fn read(&self, content: Body, max: usize) -> Result<Bytes, Failure> {
        let (place, given_up) = oneshot::channel();
        {
            let mut places = lock(&self.places);
            places.retain(|place| !place.is_closed());
            places.push_back(place);
            if places.len() > self.most {
                places.pop_front();
            }
        }
        tokio::select! {
            read = read(content, max) => read,
            _none = given_up => {
                let why = "too many requests came while this one was on its way; send it again";
                Err(Failure::new(StatusCode::TOO_MANY_REQUESTS, why).retry_after(1))
            }
        }
    }
}

async fn read(body: Body, max: usize) -> Result<Bytes, Failure> {
    let bytes = timeout(BODY, to_bytes(body, max)).await;
    let bytes = bytes.map_err(|_late| {
        let why = format!("the body did not come within {} s", BODY.as_secs());
        Failure::new(StatusCode::REQUEST_TIMEOUT, why)
    })?;
    bytes.map_err(|error| {
        let mut causes = successors(error.source(), |&error| error.source());
        // It ended in a way that HTTP does not know.
        match causes.any(|error| error.is::<hyper::Error>()) {
            true => bad("the body broke off, or its chunks are none: send all of it"),
            false => too_large(max),
        }
    })
}

pub(crate) fn text(bytes: &[u8]) -> Result<&str, Failure> {
    let text = str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        bad(format!(
            "the body is no UTF-8 (byte {at}): send text or JSON in UTF-8"
        ))
    })?;
    Ok(text.strip_prefix(BOM).unwrap_or(text))
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    Text(&'a str),
    Json(Cow<'a, str>),
}

/// What a webhook's body says: of a form with the one field `payload`, what that does.
pub(crate) fn said<'a>(headers: &HeaderMap, text: &'a str) -> Said<'a> {
    let kind = text_of(headers, header::CONTENT_TYPE).split(';').next();
    let kind = kind.unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || kind.ends_with("+json") {
        return Said::Json(text.into());
    }
    if kind == "application/x-www-form-urlencoded" {
        let mut fields = form_urlencoded::parse(text.as_bytes());
        let payload = fields.next().filter(|(name, _)| name == "payload");
        if let (Some((_, json)), None) = (payload, fields.next()) {
            let json = json.strip_prefix(BOM).unwrap_or(&json).to_owned();
            return Said::Json(json.into());
        }
    }
    Said::Text(text)
}

pub(crate) fn bad(why: impl Into<String>) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, why)
}

/// Objects and lists in each other that `serde_json` reads.
const LEVELS_MAX: usize = 127;

pub(crate) fn not_json(error: &serde_json::Error) -> Failure {
    let (line, column) = (error.line(), error.column());
    let said = escape_sentence(&error.to_string(), 200);
    let why = match said.starts_with("recursion limit exceeded") {
        true => format!(
            "the body is JSON that is nested too deep: at most {LEVELS_MAX} levels are read"
        ),
        false => format!("the body is not the JSON that is wanted: {said}"),
    };
    bad(why).with("line", line).with("column", column)
}

fn too_large(max: usize) -> Failure {
    let why = format!("the body is too large: at most {max} bytes");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(kind: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())])
    }

    #[test]
    fn a_body_is_what_its_type_says() {
        const FORM: &str = "application/x-www-form-urlencoded; charset=UTF-8";
        let text = Said::Text;
        let json = |text: &'static str| Said::Json(text.into());
        for (kind, body, says) in [
            ("text/plain", "{}", text("{}")),
            ("Application/JSON; charset=utf-8", "{}", json("{}")),
            ("application/cloudevents+json", "{}", json("{}")),
            (FORM, "payload=%7B%22a%22%3A+1%7D", json("{\"a\": 1}")),
            (FORM, "build failed", text("build failed")),
            (FORM, "payload=1&x=2", text("payload=1&x=2")),
            (FORM, "x=2&payload=1", text("x=2&payload=1")),
            ("", "payload=1", text("payload=1")),
        ] {
            assert_eq!(said(&headers(kind), body), says, "{kind} {body}");
        }
        assert_eq!(super::text("\u{feff}{}".as_bytes()).unwrap(), "{}");
    }

    #[test]
    fn only_what_can_be_read_is_taken() {
        for kind in [
            "text/plain",
            "x; charset=\"Utf-8\"",
            "x;a=b;CHARSET=us-ascii",
        ] {
            assert!(check(&headers(kind), BODY_BYTES_MAX).is_ok(), "{kind}");
        }
        for kind in [
            "text/plain; charset=iso-8859-1",
            "application/json;charset=utf-16",
        ] {
            assert!(check(&headers(kind), BODY_BYTES_MAX).is_err(), "{kind}");
        }
        for (encoding, taken) in [
            ("identity", true),
            ("Identity", true),
            ("gzip", false),
            ("gzip, identity", false),
        ] {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_ENCODING, encoding.parse().unwrap())]);
            assert_eq!(check(&headers, BODY_BYTES_MAX).is_ok(), taken, "{encoding}");
        }
    }

    #[test]
    fn json_that_is_nested_too_deep_is_called_that() {
        let read = |levels: usize| {
            let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            serde_json::from_str::<serde_json::Value>(&text)
        };
        assert!(read(LEVELS_MAX).is_ok());
        let deep = not_json(&read(LEVELS_MAX + 1).unwrap_err());
        assert!(format!("{deep:?}").contains("nested too deep: at most 127"));
        let other = not_json(&serde_json::from_str::<u8>("[").unwrap_err());
        assert!(format!("{other:?}").contains("not the JSON"));
    }
}
