//! The tokens file: which tokens admit connections, and to what.
//!
//! ```toml
//! [phone]                             # what the token is called
//! hash = "…"                          # never the token itself
//! names = ["phone", "phone-*"]        # absent: every name
//! rights = ["send", "observe"]        # absent: it may only receive
//! expires = 2027-01-31T00:00:00Z      # absent: never
//! max_names = 10                      # absent: 1000
//! max_connections = 4                 # absent: as many as the broker has
//! max_bytes = 1000000                 # absent: what every token may have waiting
//! max_per_second = 100                # messages; absent: as many as they like
//! ```

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use peerbus_core::TokenHash;
use peerbus_core::grant::{
    BRIDGE_TOKEN, GATEWAY, GATEWAY_TOKEN, Grant, NAMES_DEFAULT, NamePattern, PAGE, Quotas, Right,
    Rights, is_of_gateway,
};
use peerbus_os::file::{self, Version};
use peerbus_os::private::{self, PrivateFile};
use peerbus_os::sync::lock;
use peerbus_wire::TokenName;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::value::{Datetime, Offset};

use crate::pace::TokenPace;

const FILE: PrivateFile<Vec<Grant>> = PrivateFile {
    what: "tokens file",
    bytes_max: 4 * 1_048_576,
    readable: false,
    heading: "# Tokens that `peerbus serve` admits. They are kept as hashes: `peerbus token add` makes one and\n\
              # shows it once. What changes here holds at once.\n",
    instead: "",
    parse,
};

/// Names that the broker gives to tokens that stand in no file.
const OURS: [&str; 2] = ["credentials", "env-"];

const NAME_RULE: &str = "cannot be a token's name: 1 to 32 of A-Z a-z 0-9 . _ -, and neither \
                         `credentials` nor `env-…`";

/// What the file says of a token.
#[derive(Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a token: `[NAME]`, and what follows it"
)]
struct Entry {
    hash: TokenHash,
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Spanned<Vec<NamePattern>>>,
    #[serde(default)]
    rights: Vec<Right>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<End>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_names: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_connections: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_per_second: Option<NonZeroU32>,
}

/// Reads the tokens file. One that is not there has no tokens.
///
/// # Errors
///
/// A sentence: others can read or replace it, or a line of it is not what it should be.
pub fn read(path: &Path) -> Result<Vec<Grant>, String> {
    Ok(FILE.read(path)?.unwrap_or_default())
}

/// Puts a token of the user's into the file, which is made if need be.
///
/// # Errors
///
/// A sentence: there is one of that name, or it is a name of a program's own token; what it keeps is kept
/// for another one, the gateway's or the page's; or the file cannot be used or written.
pub fn add(path: &Path, grant: &Grant) -> Result<(), String> {
    check_name(&grant.name)?;
    if grant.names.iter().any(|it| is_of_gateway(it.as_str())) {
        return Err(format!(
            "the names {GATEWAY} are the gateway's, and `peerbus web` makes its token: give other names"
        ));
    }
    if grant.keeps(PAGE) {
        return Err(format!(
            "the name {PAGE} is kept for the dashboard's page, as which you write: give other names"
        ));
    }
    put(path, grant, false).map(|_put| ())
}

/// Fails where a token of the user's cannot have a name, whatever tokens there are.
///
/// # Errors
///
/// A sentence that says whose it is.
pub fn check_name(name: &TokenName) -> Result<(), String> {
    let name = name.as_str();
    if OURS.iter().any(|ours| name.starts_with(ours)) {
        return Err(format!(
            "{name} is a name of the broker's own tokens: choose another one"
        ));
    }
    if is_programs(name) {
        let program = name.to_ascii_lowercase();
        return Err(format!(
            "{name} is what `peerbus {program}` calls a token of its own: choose another name"
        ));
    }
    Ok(())
}

/// Whether a program calls a token of its own so.
fn is_programs(name: &str) -> bool {
    let mut programs = [GATEWAY_TOKEN, BRIDGE_TOKEN].into_iter();
    programs.any(|program| name.eq_ignore_ascii_case(program))
}

/// Has the file admit the own token of a program, or of a machine that was invited, as it is here, in place of what it says of that token. Whether
/// that changed anything.
///
/// # Errors
///
/// A sentence: another token has its name, or keeps a name of it; or the file cannot be used or written.
pub fn admit(path: &Path, grant: &Grant) -> Result<bool, String> {
    put(path, grant, true)
}

/// Puts a token into the file, in the place of itself where it `replaces` that; whether that changed
/// anything. What it keeps must be kept for no other one.
fn put(path: &Path, grant: &Grant, replaces: bool) -> Result<bool, String> {
    let name = grant.name.as_str();
    let entry = private::table(&Entry::from(grant))?;
    FILE.edit(path, |document, known| {
        let known = known.unwrap_or_default();
        if replaces && known.contains(grant) {
            return Ok(false);
        }
        let named = |known: &&Grant| known.name.as_str().eq_ignore_ascii_case(name);
        match known.iter().find(named) {
            Some(own) if replaces && own.token == grant.token => {
                private::remove(document.as_table_mut(), own.name.as_str());
            }
            Some(other) if replaces => {
                let (other, file) = (&other.name, path.display());
                let maker = match is_programs(name) {
                    true => format!("`peerbus {name}` made for itself"),
                    false => "the machine that asks has made".to_owned(),
                };
                return Err(format!(
                    "the token {other} in {file} is none that {maker}: give what uses it a token of another \
                     name, and end it with `peerbus token revoke {other}`"
                ));
            }
            _ => {}
        }
        check_kept(&known, grant)?;
        let put = private::insert(document.as_table_mut(), name, entry);
        put.map_err(|known| {
            format!("there is a token {known} already: revoke it, or choose another name")
        })?;
        Ok(true)
    })
}

/// Fails where a name that a token keeps is kept for another one.
fn check_kept(known: &[Grant], grant: &Grant) -> Result<(), String> {
    for other in known.iter().filter(|other| other.token != grant.token) {
        let both = grant.kept().find(|name| other.keeps(name.as_str()));
        let both = both.or_else(|| other.kept().find(|name| grant.keeps(name.as_str())));
        if let Some(name) = both {
            let (name, other) = (name.as_str(), &other.name);
            return Err(format!(
                "the name {name} is kept for the token {other}: `peerbus token revoke {other}` first, or \
                 give another name"
            ));
        }
    }
    Ok(())
}

/// Takes a token out of the file, and gives its name as it stood there.
///
/// # Errors
///
/// A sentence: there is none of that name, or the file cannot be used or written.
pub fn revoke(path: &Path, name: &TokenName) -> Result<String, String> {
    FILE.edit(path, |document, _| {
        let found = private::remove(document.as_table_mut(), name.as_str());
        found.ok_or_else(|| {
            format!("there is no token {name}: `peerbus token list` shows which there are")
        })
    })
}

/// Takes this very token out of the file, if it stands there under that name. Whether it did.
///
/// # Errors
///
/// As for [`revoke`].
pub(crate) fn revoke_exactly(
    path: &Path,
    name: &TokenName,
    token: &TokenHash,
) -> Result<bool, String> {
    let is_it = |known: &Grant| {
        known.token == *token && known.name.as_str().eq_ignore_ascii_case(name.as_str())
    };
    // A file that is not there stays so.
    if !read(path)?.iter().any(is_it) {
        return Ok(false);
    }
    FILE.edit(path, |document, known| {
        let is_there = known.unwrap_or_default().iter().any(is_it);
        Ok(is_there && private::remove(document.as_table_mut(), name.as_str()).is_some())
    })
}

/// Reads the file's text.
fn parse(text: &str) -> Result<Vec<Grant>, String> {
    let entries: BTreeMap<Spanned<String>, Entry> = private::toml(text)?;
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    let mut grants: Vec<Grant> = Vec::new();
    for (name, entry) in entries {
        let wrong = |at: usize, why: &str| {
            let line = private::line(text, at);
            format!("cannot be used: line {line}: [{}] {why}", name.get_ref())
        };
        let at = name.span().start;
        let named = TokenName::parse(name.get_ref())
            .filter(|name| !OURS.iter().any(|ours| name.as_str().starts_with(ours)))
            .ok_or_else(|| wrong(at, NAME_RULE))?;
        let empty = entry.names.as_ref();
        if let Some(names) = empty.filter(|names| names.get_ref().is_empty()) {
            let why = "has empty `names`: leave them out, and every name may be registered";
            return Err(wrong(names.span().start, why));
        }
        if let Some(same) = grants.iter().find(|other| other.token == entry.hash) {
            let why = format!("is the same token as [{}]: take one out", same.name);
            return Err(wrong(at, &why));
        }
        grants.push(entry.grant(named));
    }
    Ok(grants)
}

impl Entry {
    fn grant(self, name: TokenName) -> Grant {
        Grant {
            name,
            token: self.hash,
            names: self.names.map(Spanned::into_inner).unwrap_or_default(),
            expires_ms: self.expires.map(|End(ms)| ms),
            rights: Rights::of(self.rights),
            quotas: Quotas {
                names: self.max_names.unwrap_or(NAMES_DEFAULT),
                connections: self.max_connections,
                bytes: self.max_bytes,
                per_second: self.max_per_second,
            },
        }
    }
}

impl From<&Grant> for Entry {
    fn from(grant: &Grant) -> Self {
        let quotas = grant.quotas;
        Self {
            hash: grant.token,
            names: (!grant.names.is_empty()).then(|| Spanned::new(0..0, grant.names.clone())),
            rights: grant.rights.iter().collect(),
            expires: grant.expires_ms.map(End),
            max_names: (quotas.names != NAMES_DEFAULT).then_some(quotas.names),
            max_connections: quotas.connections,
            max_bytes: quotas.bytes,
            max_per_second: quotas.per_second,
        }
    }
}

/// When a token's time is over, in milliseconds since the Unix epoch: a date and time with an offset.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "toml::Value", into = "toml::Value")]
pub(crate) struct End(pub(crate) u64);

impl From<End> for toml::Value {
    fn from(End(ms): End) -> Self {
        let text = format!("{}Z", peerbus_wire::utc(ms / 1_000));
        text.parse().map_or(Self::String(text), Self::Datetime)
    }
}

impl TryFrom<toml::Value> for End {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Self, Self::Error> {
        const WRONG: &str = "it is not a time such as 2027-01-31T00:00:00Z (without quotes)";
        let Datetime {
            date: Some(date),
            time: Some(time),
            offset: Some(offset),
        } = value.as_datetime().copied().ok_or(WRONG)?
        else {
            return Err(WRONG);
        };
        let minutes = match offset {
            Offset::Z => 0,
            Offset::Custom { minutes } => i64::from(minutes),
        };
        let days = peerbus_wire::days(date.year.into(), date.month.into(), date.day.into());
        let seconds = i64::try_from(days.ok_or(WRONG)? * 86_400).unwrap_or(i64::MAX)
            + i64::from(time.hour) * 3_600
            + (i64::from(time.minute) - minutes) * 60
            + i64::from(time.second.unwrap_or(0));
        let seconds = u64::try_from(seconds).map_err(|_| WRONG)?;
        Ok(Self(seconds * 1_000))
    }
}

/// A tokens file that is looked at again and again.
#[derive(Debug)]
pub(crate) struct TokensWatch {
    pub(crate) path: PathBuf,
    /// Tokens that stand in no file.
    pub(crate) base: Vec<Grant>,
    /// The file as it was read last, and as it was when it was last looked at.
    seen: Mutex<(Version, Version)>,
    paces: Mutex<BTreeMap<TokenHash, Arc<TokenPace>>>,
}

impl TokensWatch {
    /// Reads the file for the first time, and gives what admits connections.
    pub(crate) fn new(path: PathBuf, base: Vec<Grant>) -> Result<(Self, Vec<Grant>), String> {
        let now = file::version(&path);
        let watch = Self {
            seen: Mutex::new((now, now)),
            paces: Mutex::default(),
            path,
            base,
        };
        let grants = watch.read()?;
        Ok((watch, grants))
    }

    /// What admits connections now: what the file says of a token counts, whatever else is said of it.
    pub(crate) fn read(&self) -> Result<Vec<Grant>, String> {
        Ok(self.with_base(read(&self.path)?))
    }

    fn with_base(&self, mut grants: Vec<Grant>) -> Vec<Grant> {
        let named = |known: &[Grant], grant: &Grant| known.iter().any(|k| k.token == grant.token);
        let mut base = self.base.clone();
        base.retain(|grant| !named(&grants, grant));
        grants.extend(base);
        let mut paces = lock(&self.paces);
        paces.retain(|token, _| grants.iter().any(|grant| grant.token == *token));
        for grant in &grants {
            let pace = paces.entry(grant.token).or_default();
            pace.set(grant.quotas.per_second);
        }
        grants
    }

    /// How fast the peers of a token may send, if it is one.
    pub(crate) fn pace(&self, token: &TokenHash) -> Option<Arc<TokenPace>> {
        lock(&self.paces).get(token).cloned()
    }

    /// Reads the file again if it has changed since it was last read, and is as it was when it was last
    /// looked at: an editor that writes it in place has emptied it for a moment, and no token ends by that.
    pub(crate) fn changed(&self) -> Option<Result<Vec<Grant>, String>> {
        let now = file::version(&self.path);
        let mut seen = lock(&self.seen);
        let before = std::mem::replace(&mut seen.1, now);
        if now == seen.0 || now != before {
            return None;
        }
        let read = read(&self.path);
        if file::version(&self.path) != now {
            return None;
        }
        seen.0 = now;
        Some(read.map(|grants| self.with_base(grants)))
    }
}

#[cfg(test)]
mod tests;
