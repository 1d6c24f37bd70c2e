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
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peerbus_core::TokenHash;
use peerbus_core::grant::{Grant, NamePattern, Quotas, Right, Rights};
use peerbus_os::file;
use peerbus_wire::{TokenName, hex};
use toml_edit::{Array, Datetime, Document, DocumentMut, Item, Offset, Table, value};

use crate::pace::TokenPace;

/// More than any tokens file has.
const FILE_BYTES_MAX: u64 = 4 * 1_048_576;

/// Names that the broker gives to tokens that stand in no file.
const OURS: [&str; 2] = ["credentials", "env-"];

const NAME_RULE: &str = "cannot be a token's name: 1 to 32 of A-Z a-z 0-9 . _ -, and neither \
                         `credentials` nor `env-…`";

/// What stands in front of the first token.
const HEADING: &str = "# Tokens that `peerbus serve` admits. They are kept as hashes: `peerbus token add` makes one and\n\
                       # shows it once. What changes here holds at once.\n";

/// Why a tokens file cannot be used: a sentence that says where and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tokens file {}{}: {why}", .path.display(), .line.map_or(String::new(), |line| format!(", line {line}")))]
pub struct TokensError {
    path: PathBuf,
    line: Option<usize>,
    why: String,
}

/// Reads the tokens file. One that is not there has no tokens.
///
/// # Errors
///
/// When others can read or replace it, or a line of it is not what it should be.
pub fn read(path: &Path) -> Result<Vec<Grant>, TokensError> {
    match text(path)? {
        Some(text) => parse(&text).map_err(|(line, why)| failed(path, line, why)),
        None => Ok(Vec::new()),
    }
}

/// Puts a token into the file, which is made if need be.
///
/// # Errors
///
/// When there is one of that name, or the file cannot be used or written.
pub fn add(path: &Path, grant: &Grant) -> Result<(), TokensError> {
    edit(path, |document| {
        let name = grant.name.as_str();
        if OURS.iter().any(|ours| name.starts_with(ours)) {
            return Err(format!(
                "{name} is a name of the broker's own tokens: choose another one"
            ));
        }
        if let Some(known) = known(document, name) {
            return Err(format!(
                "there is a token {known} already: revoke it, or choose another name"
            ));
        }
        document.insert(name, Item::Table(written(grant)));
        Ok(())
    })
}

/// Takes a token out of the file, and gives its name as it stood there.
///
/// # Errors
///
/// When there is none of that name, or the file cannot be used or written.
pub fn revoke(path: &Path, name: &TokenName) -> Result<String, TokensError> {
    edit(path, |document| {
        let known = known(document, name.as_str()).ok_or_else(|| {
            format!("there is no token {name}: `peerbus token list` shows which there are")
        })?;
        document.remove(&known);
        Ok(known)
    })
}

/// A token's name as it stands in the file. Names ignore case; where a file has several that differ
/// in nothing else, the one that is spelt alike is meant.
fn known(document: &Table, name: &str) -> Option<String> {
    if document.contains_key(name) {
        return Some(name.to_owned());
    }
    let mut names = document.iter().map(|(known, _)| known);
    let found = names.find(|known| known.eq_ignore_ascii_case(name));
    found.map(ToOwned::to_owned)
}

fn failed(path: &Path, line: Option<usize>, why: String) -> TokensError {
    let path = path.to_owned();
    TokensError { path, line, why }
}

/// What stands in the file; `None` when there is none.
fn text(path: &Path) -> Result<Option<String>, TokensError> {
    let fails = |why: String| failed(path, None, why);
    let unreadable = |error: std::io::Error| fails(format!("cannot be read: {error}"));
    let real = file::behind_link(path).map_err(unreadable)?;
    let file = match file::open_regular(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(unreadable)?,
    };
    let metadata = file.metadata().map_err(unreadable)?;
    if let Some(mode) = file::exposed_mode(&metadata) {
        return Err(fails(format!(
            "others can read or write it (mode {mode:04o}): run `chmod 600 {}`",
            path.display()
        )));
    }
    for place in [path, real.as_path()] {
        peerbus_os::dir::check_replacing(directory(place))
            .map_err(|error| fails(format!("cannot be trusted: {error}")))?;
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    Ok(Some(text))
}

fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn edit<T>(
    path: &Path,
    change: impl FnOnce(&mut Table) -> Result<T, String>,
) -> Result<T, TokensError> {
    let unlocked = |error| {
        failed(
            path,
            None,
            format!("its directory cannot be locked: {error}"),
        )
    };
    // What is written through a link is where it is looked for in another place, too.
    let real = file::behind_link(path)
        .map_err(|error| failed(path, None, format!("cannot be written: {error}")))?;
    let dir = directory(&real);
    peerbus_os::dir::create_private(dir).map_err(unlocked)?;
    // Each of two edits at once would write what the other did not know. The file itself is replaced.
    let lock = File::open(dir).map_err(unlocked)?;
    lock.lock().map_err(unlocked)?;
    // A file that is wrong is not made worse.
    read(path)?;
    let old = text(path)?.unwrap_or_else(|| HEADING.to_owned());
    let mut document =
        DocumentMut::from_str(&old).map_err(|error| failed(path, None, error.to_string()))?;
    let done = change(document.as_table_mut()).map_err(|why| failed(path, None, why))?;
    file::replace_private(&real, document.to_string().as_bytes())
        .and_then(|()| peerbus_os::dir::sync(dir))
        .map_err(|error| failed(path, None, format!("cannot be written: {error}")))?;
    Ok(done)
}

fn written(grant: &Grant) -> Table {
    let list = |words: Vec<&str>| value(words.into_iter().collect::<Array>());
    let mut table = Table::new();
    table.insert("hash", value(hex::encode(&grant.token.0)));
    if !grant.names.is_empty() {
        table.insert(
            "names",
            list(grant.names.iter().map(NamePattern::as_str).collect()),
        );
    }
    table.insert(
        "rights",
        list(grant.rights.iter().map(Right::as_str).collect()),
    );
    if let Some(end_ms) = grant.expires_ms
        && let Ok(end) = Datetime::from_str(&format!("{}Z", peerbus_wire::utc(end_ms / 1_000)))
    {
        table.insert("expires", value(end));
    }
    let number = |n: usize| value(i64::try_from(n).unwrap_or(i64::MAX));
    if grant.quotas.names != Quotas::default().names {
        table.insert("max_names", number(grant.quotas.names));
    }
    if let Some(connections) = grant.quotas.connections {
        table.insert("max_connections", number(connections));
    }
    if let Some(bytes) = grant.quotas.bytes {
        table.insert(
            "max_bytes",
            number(usize::try_from(bytes).unwrap_or(usize::MAX)),
        );
    }
    if let Some(messages) = grant.quotas.per_second {
        table.insert("max_per_second", value(i64::from(messages.get())));
    }
    table
}

type Wrong = (Option<usize>, String);

/// Reads the file's text; an error has the number of its line.
fn parse(text: &str) -> Result<Vec<Grant>, Wrong> {
    let line = |at: usize| {
        Some(
            1 + text
                .get(..at)
                .map_or(0, |before| before.matches('\n').count()),
        )
    };
    let document = Document::parse(text).map_err(|error| {
        let at = error.span().map(|span| span.start);
        (
            at.and_then(line),
            format!("it is not TOML: {}", error.message()),
        )
    })?;
    let mut grants: Vec<Grant> = Vec::new();
    for (name, item) in document.as_table() {
        let at = |item: &Item| item.span().and_then(|span| line(span.start));
        let Some(table) = item.as_table_like() else {
            let why = format!("{name} stands in no table: a token is `[NAME]` and what follows it");
            return Err((at(item), why));
        };
        let wrong = |item: &Item, why: &str| (at(item), format!("[{name}] {why}"));
        let named = TokenName::parse(name)
            .filter(|_| !OURS.iter().any(|ours| name.starts_with(ours)))
            .ok_or_else(|| wrong(item, NAME_RULE))?;
        if !table.contains_key("hash") {
            return Err(wrong(item, "has no `hash`: `peerbus token add` writes it"));
        }
        let mut grant = Grant {
            rights: Rights::default(),
            ..Grant::usual(named, TokenHash([0; 32]))
        };
        for (key, item) in table.iter() {
            set(&mut grant, key, item).map_err(|why| wrong(item, &format!("`{key}` {why}")))?;
        }
        if let Some(same) = grants.iter().find(|other| other.token == grant.token) {
            return Err(wrong(
                item,
                &format!("is the same token as [{}]", same.name),
            ));
        }
        grants.push(grant);
    }
    Ok(grants)
}

/// Takes one line of a token's.
fn set(grant: &mut Grant, key: &str, item: &Item) -> Result<(), String> {
    let quotas = &mut grant.quotas;
    match key {
        "hash" => grant.token = digest(item)?,
        "names" => {
            let expected = "a name of peers such as \"build-*\"";
            grant.names = words(item, NamePattern::parse, expected)?;
            if grant.names.is_empty() {
                return Err("is empty: leave it out, and every name may be registered".into());
            }
        }
        "rights" => {
            let expected = "one of send, broadcast, observe, operate, approve and bridge";
            grant.rights = Rights::of(words(item, Right::parse, expected)?);
        }
        "expires" => grant.expires_ms = Some(moment(item)?),
        "max_names" => quotas.names = number(item)?,
        "max_connections" => quotas.connections = Some(number(item)?),
        "max_bytes" => quotas.bytes = Some(number(item)? as u64),
        "max_per_second" => {
            let messages = number(item)?.try_into().ok().and_then(NonZeroU32::new);
            quotas.per_second = Some(messages.ok_or("is not a number from 1 on")?);
        }
        _ => {
            return Err("is not known: hash, names, rights, expires, max_names, \
                        max_connections, max_bytes and max_per_second are"
                .into());
        }
    }
    Ok(())
}

fn digest(item: &Item) -> Result<TokenHash, String> {
    let hash = item.as_str().and_then(hex::decode);
    hash.map(TokenHash)
        .ok_or_else(|| "is not 64 hex digits in quotes: `peerbus token add` writes them".to_owned())
}

fn words<T>(
    item: &Item,
    read: impl Fn(&str) -> Option<T>,
    expected: &str,
) -> Result<Vec<T>, String> {
    let list = item.as_array().ok_or("is not a list in [ ]")?;
    let each = list.iter().map(|word| {
        let word = word.as_str().unwrap_or_default();
        read(word).ok_or_else(|| format!("has {word:?}, expected {expected}"))
    });
    each.collect()
}

fn number(item: &Item) -> Result<usize, String> {
    let number = item.as_integer().and_then(|n| usize::try_from(n).ok());
    number.ok_or_else(|| "is not a number from 0 on".to_owned())
}

/// Milliseconds since the Unix epoch of a date and time with an offset.
fn moment(item: &Item) -> Result<u64, String> {
    let wrong = || "is not a time such as 2027-01-31T00:00:00Z (without quotes)".to_owned();
    let given = item.as_datetime().ok_or_else(wrong)?;
    let (Some(date), Some(time), Some(offset)) = (given.date, given.time, given.offset) else {
        return Err(wrong());
    };
    let minutes = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let days = peerbus_wire::days(date.year.into(), date.month.into(), date.day.into());
    let seconds = i64::try_from(days.ok_or_else(wrong)? * 86_400).unwrap_or(i64::MAX)
        + i64::from(time.hour) * 3_600
        + (i64::from(time.minute) - minutes) * 60
        + i64::from(time.second.unwrap_or(0));
    u64::try_from(seconds)
        .map(|seconds| seconds * 1_000)
        .map_err(|_| wrong())
}

/// A tokens file that is looked at again and again.
#[derive(Debug)]
pub(crate) struct TokensWatch {
    path: PathBuf,
    /// Tokens that stand in no file.
    base: Vec<Grant>,
    seen: Mutex<Seen>,
    paces: Mutex<BTreeMap<TokenHash, Arc<TokenPace>>>,
}

/// Tells versions of a file apart; `None` of one that is not there.
type Mark = Option<(u64, u64, i64, i64)>;

/// What a file looked like.
#[derive(Debug)]
struct Seen {
    /// When it was last read.
    read: Mark,
    /// When it was last looked at.
    looked: Mark,
}

impl TokensWatch {
    /// Reads the file for the first time, and gives what admits connections.
    pub(crate) fn new(path: PathBuf, base: Vec<Grant>) -> Result<(Self, Vec<Grant>), TokensError> {
        let now = mark(&path);
        let watch = Self {
            seen: Mutex::new(Seen {
                read: now,
                looked: now,
            }),
            paces: Mutex::default(),
            path,
            base,
        };
        let grants = watch.read()?;
        Ok((watch, grants))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What admits connections now: what the file says of a token counts, whatever else is said of it.
    pub(crate) fn read(&self) -> Result<Vec<Grant>, TokensError> {
        Ok(self.with_base(read(&self.path)?))
    }

    fn with_base(&self, mut grants: Vec<Grant>) -> Vec<Grant> {
        let named = |known: &[Grant], grant: &Grant| known.iter().any(|k| k.token == grant.token);
        let base = self
            .base
            .iter()
            .filter(|grant| !named(&grants, grant))
            .cloned();
        let base: Vec<_> = base.collect();
        grants.extend(base);
        self.set_paces(&grants);
        grants
    }

    fn set_paces(&self, grants: &[Grant]) {
        let mut paces = lock(&self.paces);
        paces.retain(|token, _| grants.iter().any(|grant| grant.token == *token));
        for grant in grants {
            let pace = paces.entry(grant.token).or_default();
            pace.set(grant.quotas.per_second);
        }
    }

    /// How fast the peers of a token may send, if it is one.
    pub(crate) fn pace(&self, token: &TokenHash) -> Option<Arc<TokenPace>> {
        lock(&self.paces).get(token).cloned()
    }

    /// Reads the file again if it has changed since it was last read, and is as it was when it was last
    /// looked at: an editor that writes it in place has emptied it for a moment, and no token ends by that.
    pub(crate) fn changed(&self) -> Option<Result<Vec<Grant>, TokensError>> {
        let now = mark(&self.path);
        let mut seen = lock(&self.seen);
        let before = std::mem::replace(&mut seen.looked, now);
        if now == seen.read || now != before {
            return None;
        }
        let read = read(&self.path);
        if mark(&self.path) != now {
            return None;
        }
        seen.read = now;
        Some(read.map(|grants| self.with_base(grants)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn mark(path: &Path) -> Mark {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

#[cfg(test)]
mod tests;
