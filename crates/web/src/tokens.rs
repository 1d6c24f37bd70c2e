//! The file `web.toml`: who may use the gateway, and the token with which it joins the bus.
//!
//! ```toml
//! [bus]
//! token = "…"                  # the gateway's own, at the broker
//! approve = false              # what it was made with
//!
//! [tokens.ci]                  # the peer web:ci
//! hash = "…"                   # never the token itself
//! to = ["reviewer", "build-*"] # to whom it may write; empty: to everybody
//! approve = false              # whether its words are verdicts on what a session asks
//! watch = false                # whether it may see what happens in sessions
//! inject = false               # whether it may put texts into them, and interrupt them
//! headers = ["X-GitHub-Event"] # headers of a webhook that its receiver is shown
//! by = "bearer"                # how it is shown, see `Way`
//! secret = "…"                 # the token itself: only where bodies are signed with it
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::HeaderMap;
use peerbus_adapter::credentials::random_hex;
use peerbus_core::TokenHash;
use peerbus_core::grant::NamePattern;
use peerbus_os::file::{self, Version};
use peerbus_os::private::{self, PrivateFile};
use peerbus_os::sync::lock;
use peerbus_wire::{PeerName, Token, TokenName, escape};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use toml_edit::{DocumentMut, Item, Table, TableLike};

use crate::way::{Way, is_signed};

const FILE: PrivateFile<WebFile> = PrivateFile {
    what: "gateway file",
    bytes_max: 1_048_576,
    readable: false,
    heading: "# Tokens of `peerbus web`: `peerbus web token add` makes one and shows it once. They are kept as hashes;\n\
              # one that signs is also here as it is, in `secret`.\n\
              # What changes here holds at once.\n\n",
    instead: "",
    parse,
};
/// Tokens in it at most: each may have a connection to the broker.
pub const TOKENS_MAX: usize = 64;
/// What stands in front of a token's name in that of its peer.
const PREFIX: &str = "web:";
/// How often the file is looked at while nobody asks, so that a stream ends whose token does.
const LOOK: Duration = Duration::from_millis(250);

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebFile {
    /// The gateway's own token; none: it uses the one of the credentials.
    pub bus: Option<BusToken>,
    /// The tokens of those who ask, by name.
    #[serde(default)]
    pub tokens: BTreeMap<String, WebToken>,
}

/// A token at the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusToken {
    /// The token itself.
    pub token: Hidden,
    /// It has the right to approve.
    #[serde(default)]
    pub approve: bool,
}

/// A token of somebody who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebToken {
    /// Its hash.
    pub hash: TokenHash,
    /// Peers to whom it may write; empty: to everybody.
    #[serde(default)]
    pub to: Vec<NamePattern>,
    /// Its `yes ID` and `no ID` are verdicts, where a session's user says so.
    #[serde(default)]
    pub approve: bool,
    /// It may see sessions of this machine, and what happens in them.
    #[serde(default, skip_serializing_if = "is_not")]
    pub watch: bool,
    /// It may put texts into sessions, and interrupt them, where their gates are open.
    #[serde(default, skip_serializing_if = "is_not")]
    pub inject: bool,
    /// Headers of a webhook that its receiver is shown.
    #[serde(default)]
    pub headers: Vec<String>,
    /// How it is shown.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub by: Way,
    /// The token itself, where it signs: a hash verifies no signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Hidden>,
}

/// A text that no log shows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hidden(pub String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hidden(…)")
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks it")]
fn is_not(right: &bool) -> bool {
    !right
}

fn is_usual(by: &Way) -> bool {
    *by == Way::Bearer
}

impl WebToken {
    /// One that admits whoever shows `token`, or signs with it.
    #[must_use]
    pub fn new(token: &Token, by: Way) -> Self {
        let text = || Hidden(token.expose().to_owned());
        Self {
            hash: TokenHash::of(token),
            to: Vec::new(),
            approve: false,
            watch: false,
            inject: false,
            headers: Vec::new(),
            secret: by.signs().then(text),
            by,
        }
    }

    /// Whether a session is one of those that it is for, by the name that it has.
    pub(crate) fn may_reach(&self, session: Option<&str>) -> bool {
        let name = session.and_then(|name| PeerName::parse(name).ok());
        self.to.is_empty() || name.is_some_and(|name| self.may_write_to(&name))
    }

    pub(crate) fn may_write_to(&self, name: &PeerName) -> bool {
        self.to.is_empty() || self.to.iter().any(|to| to.matches(name))
    }
}

/// The name of a token's peer.
///
/// # Errors
///
/// The rule, when the token's name cannot be one.
pub fn peer(name: &str) -> Result<PeerName, String> {
    let rule = || {
        let shown = escape(name, 80);
        format!("\"{shown}\" cannot be a token's name: 1 to 32 of A-Z a-z 0-9 . _ -")
    };
    TokenName::parse(name).ok_or_else(rule)?;
    PeerName::parse(&format!("{PREFIX}{name}")).map_err(|_| rule())
}

/// Reads the file. One that is not there has no tokens.
///
/// # Errors
///
/// A sentence: others can read or replace it, or a line of it is not what it should be.
pub fn read(path: &Path) -> Result<WebFile, String> {
    Ok(FILE.read(path)?.unwrap_or_default())
}

fn parse(text: &str) -> Result<WebFile, String> {
    let found: WebFile = private::toml(text)?;
    for (name, token) in &found.tokens {
        check(name, token)?;
        let same = |other: &&String| *other != name && other.eq_ignore_ascii_case(name);
        if let Some(other) = found.tokens.keys().find(same) {
            return Err(format!(
                "cannot be used: the tokens {name} and {other} would be one peer, since names ignore \
                 case: rename one"
            ));
        }
    }
    if found.tokens.len() > TOKENS_MAX {
        return Err(format!(
            "has {} tokens; at most {TOKENS_MAX} can be",
            found.tokens.len()
        ));
    }
    Ok(found)
}

fn check(name: &str, token: &WebToken) -> Result<(), String> {
    peer(name).map_err(|why| format!("cannot be used: {why}"))?;
    let unusable = |what: &str, found: &str| {
        format!(
            "cannot be used: token {name} has {what} \"{}\"",
            escape(found, 80)
        )
    };
    let header = |name: &&String| axum::http::HeaderName::try_from(name.as_str()).is_err();
    if let Some(name) = token.headers.iter().find(header) {
        return Err(unusable("in `headers`", name) + ", which is no header's name");
    }
    let shows = token.by.shows_in().map_or("", |name| name.as_str());
    let mut headers = token.headers.iter();
    if let Some(name) = headers.find(|name| name.eq_ignore_ascii_case(shows)) {
        let why = ", in which the token itself stands: its receiver would see it";
        return Err(unusable("in `headers`", name) + why);
    }
    check_secret(token).map_err(|why| format!("cannot be used: token {name} {why}"))
}

/// A token that signs has a secret, which is what its hash is of; no other one has.
fn check_secret(token: &WebToken) -> Result<(), &'static str> {
    let text = token
        .secret
        .as_ref()
        .and_then(|Hidden(text)| Token::parse(text));
    let is = |secret: &Token| token.hash.matches(&TokenHash::of(secret));
    match (token.by.signs(), text) {
        (true, Some(text)) if text.expose().is_empty() || !is(&text) => {
            Err("has a `secret` that is not what its `hash` is of: make it anew")
        }
        (true, None) => Err("signs, and has no `secret`: make it anew"),
        (false, Some(_)) => Err("has a `secret`, but does not sign: delete that line"),
        _ => Ok(()),
    }
}

/// Puts a token into the file, which is made if need be.
///
/// # Errors
///
/// A sentence: there is one of that name, or the file cannot be used or written.
pub fn add(path: &Path, name: &str, token: &WebToken) -> Result<(), String> {
    let entry = private::table(token)?;
    FILE.edit(path, |document, _| {
        let put = private::insert(tokens_in(document)?, name, entry);
        put.map_err(|known| {
            format!("there is a token {known} already: revoke it, or choose another name")
        })
    })
}

/// Takes a token out of the file, and gives its name as it stood there.
///
/// # Errors
///
/// A sentence: there is none of that name, or the file cannot be used or written.
pub fn revoke(path: &Path, name: &str) -> Result<String, String> {
    FILE.edit(path, |document, _| {
        let found = private::remove(tokens_in(document)?, name);
        found.ok_or_else(|| {
            let name = escape(name, 80);
            format!("there is no token {name}: `peerbus web token list` shows which there are")
        })
    })
}

/// The gateway's own token, made if there is none, with the right to approve if one of the tokens
/// has it.
///
/// # Errors
///
/// A sentence: the file cannot be used or written.
pub fn bus(path: &Path) -> Result<BusToken, String> {
    FILE.edit(path, |document, found| {
        let WebFile { bus, tokens } = found.unwrap_or_default();
        let token = bus.as_ref().map(|bus| bus.token.clone());
        let own = BusToken {
            token: token.unwrap_or_else(|| Hidden(random_hex().to_string())),
            approve: tokens.values().any(|token| token.approve),
        };
        if bus.as_ref() != Some(&own) {
            document.insert("bus", private::table(&own)?);
        }
        Ok(own)
    })
}

/// The table of tokens in the file, made if there is none.
fn tokens_in(document: &mut DocumentMut) -> Result<&mut dyn TableLike, String> {
    let tokens = document.entry("tokens").or_insert_with(|| {
        let mut tokens = Table::new();
        tokens.set_implicit(true);
        Item::Table(tokens)
    });
    tokens
        .as_table_like_mut()
        .ok_or_else(|| "`tokens` is no table".into())
}

pub(crate) struct Tokens {
    path: PathBuf,
    seen: Mutex<Version>,
    now: watch::Sender<Arc<WebFile>>,
}

impl Tokens {
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let seen = Mutex::new(file::version(path));
        let now = watch::Sender::new(Arc::new(read(path)?));
        Ok(Self {
            path: path.to_owned(),
            seen,
            now,
        })
    }

    /// What the file says. While it cannot be used nobody is admitted.
    pub(crate) fn now(&self) -> Arc<WebFile> {
        let mut seen = lock(&self.seen);
        let version = file::version(&self.path);
        if *seen != version {
            *seen = version;
            let found = read(&self.path).unwrap_or_else(|why| {
                tracing::error!("nobody is admitted: {why}");
                WebFile::default()
            });
            self.now.send_if_modified(|now| {
                let changed = **now != found;
                *now = Arc::new(found);
                changed
            });
        }
        drop(seen);
        Arc::clone(&self.now.borrow())
    }

    /// Whether the file has this token, and as it is here.
    pub(crate) fn has(&self, token: &WebToken) -> bool {
        self.now().tokens.values().any(|it| it == token)
    }

    /// Whose token a request shows.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Option<(String, WebToken)> {
        let shows = |token: &WebToken| {
            let is = |shown: &Token| token.hash.matches(&TokenHash::of(shown));
            token.by.shown(headers).iter().any(is)
        };
        self.find(shows)
    }

    fn find(&self, is: impl Fn(&WebToken) -> bool) -> Option<(String, WebToken)> {
        let now = self.now();
        let found = now.tokens.iter().find(|(_, token)| is(token));
        found.map(|(name, token)| (name.clone(), token.clone()))
    }

    /// Whether a request has a signature where one of the tokens signs.
    pub(crate) fn may_be_signed(&self, headers: &HeaderMap) -> bool {
        let now = self.now();
        let mut all = now.tokens.values();
        all.any(|token| token.by.signature(headers).is_some())
    }

    /// With whose token a request is signed.
    pub(crate) fn signer(&self, headers: &HeaderMap, body: &[u8]) -> Option<(String, WebToken)> {
        let signs = |token: &WebToken| {
            let signature = token.by.signature(headers).zip(token.secret.as_ref());
            signature.is_some_and(|(signature, Hidden(secret))| is_signed(secret, body, &signature))
        };
        self.find(signs)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Arc<WebFile>> {
        self.now.subscribe()
    }

    pub(crate) async fn look(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn token(text: &str) -> WebToken {
        WebToken::new(&Token::parse(text).unwrap(), Way::Bearer)
    }

    /// The headers of a request that shows a token.
    fn shown(token: &str) -> HeaderMap {
        let value = format!("Bearer {token}").parse().unwrap();
        HeaderMap::from_iter([(axum::http::header::AUTHORIZATION, value)])
    }

    #[test]
    fn a_token_admits_until_it_is_taken_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.toml");
        let tokens = Tokens::open(&path).unwrap();
        assert_eq!(tokens.admit(&shown("first-token")), None);
        add(&path, "ci", &token("first-token")).unwrap();
        assert_eq!(tokens.admit(&shown("first-token")).unwrap().0, "ci");
        assert_eq!(tokens.admit(&shown("second-token")), None);
        assert!(!fs::read_to_string(&path).unwrap().contains("first-token"));
        assert_eq!(revoke(&path, "CI").unwrap(), "ci");
        assert_eq!(tokens.admit(&shown("first-token")), None);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let hash = "0".repeat(64);
        for (text, says) in [
            ("[tokens.ci]\n".into(), "line 1: missing field `hash`"),
            ("x = 1".into(), "line 1: unknown field `x`"),
            (
                "[tokens.ci]\nhash = \"zz\"".into(),
                "line 2: a token's hash has 64 hex digits in `tokens.ci.hash`: correct it",
            ),
            (
                format!("[tokens.ci]\nhash=\"{hash}\"\n[tokens.CI]\nhash=\"{hash}\""),
                "the tokens CI and ci would be one peer",
            ),
            (
                format!("[tokens.\"a b\"]\nhash=\"{hash}\""),
                "\"a b\" cannot be a token's name",
            ),
            (
                format!("[tokens.ci]\nhash=\"{hash}\"\nto=[\"a b\"]"),
                "line 3: \"a b\" is no name of peers such as build-* in `tokens.ci.to`",
            ),
            (
                format!("[tokens.ci]\nhash=\"{hash}\"\nheaders=[\"a b\"]"),
                "token ci has in `headers` \"a b\"",
            ),
            (
                format!("[tokens.ci]\nhash=\"{hash}\"\nheaders=[\"authorization\"]"),
                "in which the token itself stands",
            ),
            (
                format!("[tokens.ci]\nhash=\"{hash}\"\nby=\"digest\""),
                "line 3: 'digest' is no way to show a token",
            ),
            (
                format!("[tokens.ci]\nhash=\"{hash}\"\nby=\"signature\""),
                "token ci signs, and has no `secret`",
            ),
            (
                format!("[tokens.ci]\nhash=\"{hash}\"\nby=\"signature\"\nsecret=\"x\""),
                "that is not what its `hash` is of",
            ),
            (
                format!("[tokens.ci]\nhash=\"{hash}\"\nsecret=\"x\""),
                "does not sign",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_file_that_becomes_unusable_admits_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.toml");
        add(&path, "ci", &token("first-token")).unwrap();
        let tokens = Tokens::open(&path).unwrap();
        assert!(tokens.admit(&shown("first-token")).is_some());
        file::set_mode(&path, 0o644).unwrap();
        assert_eq!(tokens.admit(&shown("first-token")), None);
        file::set_mode(&path, 0o600).unwrap();
        assert!(tokens.admit(&shown("first-token")).is_some());
        fs::write(&path, "nonsense").unwrap();
        assert_eq!(tokens.admit(&shown("first-token")), None);
        fs::remove_file(&path).unwrap();
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert_eq!(tokens.admit(&shown("first-token")), None);
    }
}
