//! How a token is shown: each in its own way, and in no other.

use std::fmt;
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use peerbus_wire::{Token, escape, hex};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Where GitHub, Gitea and Forgejo sign.
const SIGNED_IN: HeaderName = HeaderName::from_static("x-hub-signature-256");
/// What stands in front of such a signature; others leave it out.
const SCHEME: &str = "sha256=";

/// How a token is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Way {
    /// `Authorization: Bearer TOKEN`.
    #[default]
    Bearer,
    /// `Authorization: Basic …`, the token as password or as user.
    Basic,
    /// It is the value of this header.
    Header(HeaderName),
    /// Not at all: this header has the HMAC-SHA256 of the body under it, in hex digits.
    Signature(HeaderName),
}

/// A word that is no way.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{}' is no way to show a token: bearer, basic, header:NAME (such as header:X-Gitlab-Token), \
     signature (in X-Hub-Signature-256) or signature:NAME",
    escape(.0, 80)
)]
pub struct NoWay(String);

impl FromStr for Way {
    type Err = NoWay;

    fn from_str(text: &str) -> Result<Self, NoWay> {
        let header = |name: &str| name.parse().map_err(|_| NoWay(text.to_owned()));
        match text.split_once(':') {
            None if text == "bearer" => Ok(Self::Bearer),
            None if text == "basic" => Ok(Self::Basic),
            None if text == "signature" => Ok(Self::Signature(SIGNED_IN)),
            Some(("header", name)) => header(name).map(Self::Header),
            Some(("signature", name)) => header(name).map(Self::Signature),
            _ => Err(NoWay(text.to_owned())),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bearer => f.write_str("bearer"),
            Self::Basic => f.write_str("basic"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Signature(name) if *name == SIGNED_IN => f.write_str("signature"),
            Self::Signature(name) => write!(f, "signature:{name}"),
        }
    }
}

impl TryFrom<String> for Way {
    type Error = NoWay;

    fn try_from(text: String) -> Result<Self, NoWay> {
        text.parse()
    }
}

impl From<Way> for String {
    fn from(way: Way) -> Self {
        way.to_string()
    }
}

impl Way {
    /// It is not shown: what is sent is signed with it.
    #[must_use]
    pub fn signs(&self) -> bool {
        matches!(self, Self::Signature(_))
    }

    /// The header in which the token itself stands.
    pub(crate) fn shows_in(&self) -> Option<&HeaderName> {
        match self {
            Self::Bearer | Self::Basic => Some(&header::AUTHORIZATION),
            Self::Header(name) => Some(name),
            Self::Signature(_) => None,
        }
    }

    /// What may be a token that is shown in this way.
    pub(crate) fn shown(&self, headers: &HeaderMap) -> Vec<Token> {
        let Some(value) = self.shows_in().and_then(|name| only(headers, name)) else {
            return Vec::new();
        };
        let text = value.to_str().unwrap_or_default().trim();
        let (scheme, rest) = text.split_once(' ').unwrap_or_default();
        match self {
            Self::Bearer if scheme.eq_ignore_ascii_case("bearer") => {
                Token::parse(rest.trim()).into_iter().collect()
            }
            Self::Basic if scheme.eq_ignore_ascii_case("basic") => of_basic(rest.trim()),
            Self::Header(_) => Token::parse(text).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The signature in a request, if its token signs.
    pub(crate) fn signature(&self, headers: &HeaderMap) -> Option<[u8; 32]> {
        let Self::Signature(name) = self else {
            return None;
        };
        let text = only(headers, name)?.to_str().ok()?.trim();
        hex::decode(text.strip_prefix(SCHEME).unwrap_or(text))
    }
}

/// The value of a header that is there once: of several nobody knows which one is meant.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut all = headers.get_all(name).iter();
    all.next().filter(|_| all.next().is_none())
}

/// Password and user of `user:password`: senders differ in where they let one put a token.
fn of_basic(text: &str) -> Vec<Token> {
    let decoded = BASE64.decode(text.as_bytes()).ok();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let Some((user, password)) = decoded.as_deref().and_then(|both| both.split_once(':')) else {
        return Vec::new();
    };
    let both = [password, user].into_iter();
    both.filter(|text| !text.is_empty())
        .filter_map(Token::parse)
        .collect()
}

/// Whether a body was signed under a secret, in a time that tells nothing.
pub(crate) fn is_signed(secret: &str, body: &[u8], signature: &[u8; 32]) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
        return false;
    };
    mac.update(body);
    mac.verify_slice(signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn shown(way: &str, pairs: &[(&'static str, &str)]) -> Vec<String> {
        let all = way.parse::<Way>().unwrap().shown(&headers(pairs));
        all.iter().map(|token| token.expose().to_owned()).collect()
    }

    #[test]
    fn ways_are_read_as_they_are_written() {
        for text in [
            "bearer",
            "basic",
            "header:x-gitlab-token",
            "signature",
            "signature:x-sig",
        ] {
            assert_eq!(text.parse::<Way>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "Bearer",
            "header",
            "header:",
            "header:a b",
            "signature:",
            "basic:x",
        ] {
            assert!(bad.parse::<Way>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_is_found_where_its_way_says_and_nowhere_else() {
        let both = BASE64.encode(b"ci:token");
        let user = BASE64.encode(b"token:");
        let basic = format!("Basic {both}");
        let header = [("x-gitlab-token", "token")];
        assert_eq!(
            shown("bearer", &[("authorization", "bEARER  token")]),
            ["token"]
        );
        assert_eq!(
            shown("basic", &[("authorization", &basic)]),
            ["token", "ci"]
        );
        assert_eq!(
            shown("basic", &[("authorization", &format!("basic {user}"))]),
            ["token"]
        );
        assert_eq!(shown("header:X-Gitlab-Token", &header), ["token"]);
        for (way, pairs) in [
            ("bearer", &[("authorization", basic.as_str())][..]),
            ("bearer", &header),
            ("bearer", &[("authorization", "token")]),
            ("basic", &[("authorization", "Bearer token")]),
            ("basic", &[("authorization", "Basic token")]),
            ("header:x-other", &header),
            (
                "header:x-gitlab-token",
                &[("x-gitlab-token", "token"), ("x-gitlab-token", "other")],
            ),
            (
                "signature",
                &[
                    ("authorization", "Bearer token"),
                    ("x-hub-signature-256", "token"),
                ],
            ),
        ] {
            assert_eq!(shown(way, pairs), Vec::<String>::new(), "{way} {pairs:?}");
        }
    }

    #[test]
    fn a_body_is_signed_as_github_signs_it() {
        // GitHub's own example.
        let secret = "It's a Secret to Everybody";
        let digits = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let way: Way = "signature".parse().unwrap();
        for text in [format!("sha256={digits}"), digits.to_uppercase()] {
            let signature = way
                .signature(&headers(&[("x-hub-signature-256", &text)]))
                .unwrap();
            assert!(is_signed(secret, b"Hello, World!", &signature));
            assert!(!is_signed(secret, b"Hello, World", &signature));
            assert!(!is_signed("", b"Hello, World!", &signature));
        }
        for bad in ["", "sha256=", &digits[1..], &format!("sha1={digits}")] {
            let found = way.signature(&headers(&[("x-hub-signature-256", bad)]));
            assert_eq!(found, None, "{bad}");
        }
    }
}
