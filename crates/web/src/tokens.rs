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
//! headers = ["X-GitHub-Event"] # headers of a webhook that its receiver is shown
//! by = "bearer"                # how it is shown, see `Way`
//! secret = "…"                 # the token itself: only where bodies are signed with it
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use peerbus_core::TokenHash;
use peerbus_core::grant::NamePattern;
use peerbus_os::{dir, file};
use peerbus_wire::{PeerName, Token, TokenName, escape, hex};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::way::{Way, is_signed};

/// More than any such file has.
const FILE_BYTES_MAX: u64 = 1_048_576;
/// Tokens in it at most: each may have a connection to the broker.
pub const TOKENS_MAX: usize = 64;
/// What stands in front of a token's name in that of its peer.
const PREFIX: &str = "web:";
/// How often the file is looked at while nobody asks, so that a stream ends whose token does.
const LOOK: Duration = Duration::from_millis(250);
const HEADING: &str = "# Tokens of `peerbus web`: `peerbus web token add` makes one and shows it once. They are kept as hashes;\n\
                       # one that signs is also here as it is, in `secret`.\n\
                       # What changes here holds at once.\n\n";

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebFile {
    /// The gateway's own token; none: it uses the one of the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<BusToken>,
    /// The tokens of those who ask, by name.
    #[serde(default)]
    pub tokens: BTreeMap<String, WebToken>,
}

/// A token at the broker.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusToken {
    /// The token itself.
    pub token: String,
    /// It has the right to approve.
    #[serde(default)]
    pub approve: bool,
}

impl std::fmt::Debug for BusToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BusToken")
            .field("approve", &self.approve)
            .finish_non_exhaustive()
    }
}

/// A token of somebody who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebToken {
    /// Its hash, 64 hex digits.
    pub hash: String,
    /// Peers to whom it may write; empty: to everybody.
    #[serde(default)]
    pub to: Vec<String>,
    /// Its `yes ID` and `no ID` are verdicts, where a session's user says so.
    #[serde(default)]
    pub approve: bool,
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

fn is_usual(by: &Way) -> bool {
    *by == Way::Bearer
}

impl WebToken {
    /// One that admits whoever shows `token`, or signs with it.
    #[must_use]
    pub fn new(token: &Token, by: Way) -> Self {
        let text = || Hidden(token.expose().to_owned());
        Self {
            hash: hex::encode(&TokenHash::of(token).0),
            to: Vec::new(),
            approve: false,
            headers: Vec::new(),
            secret: by.signs().then(text),
            by,
        }
    }

    /// Whether it may write to a peer.
    pub(crate) fn may_write_to(&self, name: &PeerName) -> bool {
        let matches = |to: &String| NamePattern::parse(to).is_some_and(|to| to.matches(name));
        self.to.is_empty() || self.to.iter().any(matches)
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
/// When others can read or replace it, or a line of it is not what it should be.
pub fn read(path: &Path) -> Result<WebFile, String> {
    let failed = |why: String| format!("{} {why}", path.display());
    let unreadable = |error: std::io::Error| failed(format!("cannot be read: {error}"));
    let real = file::behind_link(path).map_err(unreadable)?;
    let opened = match file::open_regular(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(WebFile::default()),
        opened => opened.map_err(unreadable)?,
    };
    let metadata = opened.metadata().map_err(unreadable)?;
    if let Some(mode) = file::exposed_mode(&metadata) {
        let path = path.display();
        return Err(failed(format!(
            "can be read by others (mode {mode:04o}): run `chmod 600 {path}`"
        )));
    }
    for place in [path, real.as_path()] {
        dir::check_replacing(directory(place))
            .map_err(|error| failed(format!("cannot be trusted: {error}")))?;
    }
    let mut text = String::new();
    opened
        .take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    parse(&text).map_err(failed)
}

fn parse(text: &str) -> Result<WebFile, String> {
    let found: WebFile = toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        format!(
            "cannot be used: line {line}: {}: correct it, or put a copy of the file back",
            escape(error.message(), 200)
        )
    })?;
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
    if hash(token).is_none() {
        return Err(unusable("the hash", &token.hash) + ", which is not 64 hex digits");
    }
    if let Some(to) = token.to.iter().find(|to| NamePattern::parse(to).is_none()) {
        return Err(unusable("in `to`", to) + ": give names of peers such as build-*");
    }
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
    let is = |secret: &Token| hash(token).is_some_and(|hash| hash.matches(&TokenHash::of(secret)));
    match (token.by.signs(), text) {
        (true, Some(text)) if text.expose().is_empty() || !is(&text) => {
            Err("has a `secret` that is not what its `hash` is of: make it anew")
        }
        (true, None) => Err("signs, and has no `secret`: make it anew"),
        (false, Some(_)) => Err("has a `secret`, but does not sign: delete that line"),
        _ => Ok(()),
    }
}

fn hash(token: &WebToken) -> Option<TokenHash> {
    Some(TokenHash(hex::decode(&token.hash)?))
}

/// Changes the file, which is made if need be. No other change comes in between.
///
/// # Errors
///
/// As for [`read`], or what `change` says.
pub fn edit<T>(
    path: &Path,
    change: impl FnOnce(&mut WebFile) -> Result<T, String>,
) -> Result<T, String> {
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}", path.display());
    let real = file::behind_link(path).map_err(failed)?;
    let dir = directory(&real);
    dir::create_private(dir).map_err(failed)?;
    let lock = File::open(dir).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let mut found = read(path)?;
    let done = change(&mut found)?;
    let text = toml::to_string(&found).map_err(|error| error.to_string())?;
    parse(&text).map_err(|why| format!("{} {why}", path.display()))?;
    file::replace_private(&real, format!("{HEADING}{text}").as_bytes())
        .and_then(|()| dir::sync(dir))
        .map_err(failed)?;
    Ok(done)
}

fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// What tells one version of a file from another: with when it was changed, its mode included, which
/// nobody can put back.
type Stamp = Option<(u64, i64, i64, u64)>;

fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.ctime(), found.ctime_nsec(), found.len()))
}

/// The tokens as they are now.
pub(crate) struct Tokens {
    path: PathBuf,
    seen: Mutex<Stamp>,
    now: watch::Sender<Arc<WebFile>>,
}

impl Tokens {
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let seen = Mutex::new(stamp(path));
        let now = watch::Sender::new(Arc::new(read(path)?));
        Ok(Self {
            path: path.to_owned(),
            seen,
            now,
        })
    }

    /// What the file says. While it cannot be used nobody is admitted.
    pub(crate) fn now(&self) -> Arc<WebFile> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(&self.path);
        if *seen != stamp {
            *seen = stamp;
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

    /// Whose token a request shows.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Option<(String, WebToken)> {
        let shows = |token: &WebToken| {
            let hash = hash(token);
            let is = |shown: &Token| {
                hash.as_ref()
                    .is_some_and(|hash| hash.matches(&TokenHash::of(shown)))
            };
            token.by.shown(headers).iter().any(is)
        };
        let now = self.now();
        let found = now.tokens.iter().find(|(_, token)| shows(token));
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
        let now = self.now();
        let found = now.tokens.iter().find(|(_, token)| signs(token));
        found.map(|(name, token)| (name.clone(), token.clone()))
    }

    /// Follows the file.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<WebFile>> {
        self.now.subscribe()
    }

    /// Looks at the file for ever.
    pub(crate) async fn look(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.now();
        }
    }
}

#[cfg(test)]
mod tests {
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
        edit(&path, |file| {
            file.tokens.insert("ci".into(), token("first-token"));
            Ok(())
        })
        .unwrap();
        assert_eq!(tokens.admit(&shown("first-token")).unwrap().0, "ci");
        assert_eq!(tokens.admit(&shown("second-token")), None);
        assert!(!fs::read_to_string(&path).unwrap().contains("first-token"));
        edit(&path, |file| {
            file.tokens.clear();
            Ok(())
        })
        .unwrap();
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
                "token ci has the hash \"zz\"",
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
                "token ci has in `to` \"a b\"",
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
        edit(&path, |file| {
            file.tokens.insert("ci".into(), token("first-token"));
            Ok(())
        })
        .unwrap();
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
