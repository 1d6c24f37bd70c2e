//! Invitations: a file of them beside the tokens, and machines that ask to be let in by one.
//!
//! ```toml
//! [laptop]                            # what the machine is called, and its token
//! hash = "…"                          # of the secret, never that itself
//! until = 2027-01-31T00:10:00Z
//! holder = "…"                        # the hash of the token of the machine that asked first
//! joined = 2027-01-31T00:05:00Z       # when that token was used first
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use peerbus_core::grant::{Grant, NAMES_DEFAULT, NamePattern, Quotas, Right, Rights};
use peerbus_core::{Invitation, TokenHash, invitation_of};
use peerbus_os::private::{self, PrivateFile};
use peerbus_os::sync::lock;
use peerbus_os::tls::{Fingerprint, certificates};
use peerbus_wire::{JoinGrant, JoinRefusal, JoinRequest, TokenName};
use serde::{Deserialize, Serialize};

use crate::options::{Inviting, SecretSource};
use crate::tls::ServerTls;
use crate::tokens::{self, End, TokensWatch};

/// Their file, beside the credentials.
pub const INVITATIONS: &str = "invitations.toml";

const FILE: PrivateFile<Vec<Invitation>> = PrivateFile {
    what: "invitations file",
    bytes_max: 1_048_576,
    readable: false,
    heading: "# Machines that were invited: `peerbus invite` makes these. Secrets and tokens are kept as hashes.\n",
    instead: "",
    parse,
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    hash: TokenHash,
    until: End,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<TokenHash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    joined: Option<End>,
}

/// Reads the file. One that is not there has no invitations.
///
/// # Errors
///
/// A sentence: others can read or replace it, or a line of it is not what it should be.
pub fn read(path: &Path) -> Result<Vec<Invitation>, String> {
    Ok(FILE.read(path)?.unwrap_or_default())
}

/// Changes what stands in the file, which is made if need be. No other change comes in between.
///
/// # Errors
///
/// A sentence: the file cannot be used or written.
pub fn change<R>(path: &Path, act: impl FnOnce(&mut Vec<Invitation>) -> R) -> Result<R, String> {
    FILE.edit(path, |document, known| {
        let before = known.unwrap_or_default();
        let mut after = before.clone();
        let done = act(&mut after);
        let table = document.as_table_mut();
        for gone in before.iter().filter(|it| !after.contains(it)) {
            private::remove(table, gone.name.as_str());
        }
        for new in after.iter().filter(|it| !before.contains(it)) {
            private::insert(table, new.name.as_str(), private::table(&Entry::from(new))?)?;
        }
        Ok(done)
    })
}

/// Ends invitations, with the tokens of the machines that asked by them. Gives each that is gone, and
/// whether its token was admitted until now.
///
/// # Errors
///
/// A sentence: a file cannot be used or written. Invitations that are not gone stand there still.
pub fn end(
    path: &Path,
    tokens: &Path,
    which: impl Fn(&Invitation) -> bool,
) -> Result<Vec<(Invitation, bool)>, String> {
    if !read(path)?.iter().any(&which) {
        return Ok(Vec::new());
    }
    // First of all nobody is let in any more: a broker that is just doing it looks after it has.
    let closed: Vec<_> = change(path, |known| {
        let closed = known.iter_mut().filter(|it| which(it));
        closed.map(|it| (it.close(), it.clone()).1).collect()
    })?;
    let mut ended = Vec::new();
    for it in closed {
        let revoke = |holder| tokens::revoke_exactly(tokens, &it.name, &holder);
        let had_token = it.holder.map_or(Ok(false), revoke)?;
        change(path, |known| {
            known.retain(|other| other.secret != it.secret)
        })?;
        ended.push((it, had_token));
    }
    Ok(ended)
}

fn parse(text: &str) -> Result<Vec<Invitation>, String> {
    let entries: BTreeMap<String, Entry> = private::toml(text)?;
    let invitation = |(name, entry): (String, Entry)| {
        let name = TokenName::parse(&name);
        Some(Invitation {
            name: name?,
            secret: entry.hash,
            until_ms: entry.until.0,
            holder: entry.holder,
            joined_ms: entry.joined.map(|End(ms)| ms),
        })
    };
    let all: Option<_> = entries.into_iter().map(invitation).collect();
    all.ok_or("has an entry whose name is none of a token: correct it".into())
}

impl From<&Invitation> for Entry {
    fn from(invitation: &Invitation) -> Self {
        Self {
            hash: invitation.secret,
            until: End(invitation.until_ms),
            holder: invitation.holder,
            joined: invitation.joined_ms.map(End),
        }
    }
}

/// The rights of a machine that is let in: it may send, under names that begin with its own.
///
/// # Errors
///
/// A sentence: no peer could have such a name.
pub fn grant(name: &TokenName, token: TokenHash) -> Result<Grant, String> {
    let names = NamePattern::parse(&format!("{name}*"));
    let names = names.ok_or_else(|| format!("no name of a peer begins with {name}"))?;
    Ok(Grant {
        name: name.clone(),
        token,
        names: vec![names],
        expires_ms: None,
        rights: Rights::of([Right::Send]),
        quotas: Quotas {
            names: NAMES_DEFAULT,
            ..Quotas::default()
        },
    })
}

/// Where machines that were invited connect.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: Fingerprint,
    /// It is one of its usual addresses.
    pub(crate) usual: bool,
}

impl Reached {
    /// The address that is told: where it listens for them, if it was told to; else the first of its `usual`
    /// addresses that others can reach.
    pub(crate) fn of(
        told: Option<Result<SocketAddr, String>>,
        usual: &[SocketAddr],
        files: &ServerTls,
    ) -> Option<Result<Self, String>> {
        let is_far = |at: &&SocketAddr| !at.ip().to_canonical().is_loopback();
        let usual = usual.iter().find(is_far).copied();
        let is_usual = told.is_none();
        let address = told.or(usual.map(Ok))?;
        Some(address.and_then(|address| {
            let certificate = certificates(&files.cert)?;
            let certificate = certificate.first().map(Fingerprint::of);
            let certificate = certificate.ok_or("there is no certificate")?;
            Ok(Self {
                address,
                certificate,
                usual: is_usual,
            })
        }))
    }
}

/// Lets machines in that were invited.
pub(crate) struct Invited {
    pub(crate) file: PathBuf,
    /// The tokens file, into which their tokens go.
    tokens: PathBuf,
    /// Tokens that stand in no file: the broker's own.
    own: Vec<Grant>,
    secret: SecretSource,
    /// One after another: each reads and writes files.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// Tokens that have not been used.
    fresh: Mutex<BTreeSet<TokenHash>>,
}

impl fmt::Debug for Invited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invited({})", self.file.display())
    }
}

impl Invited {
    /// `None`: no machine is let in, or there is no file for its token.
    pub(crate) fn open(given: Option<Inviting>, tokens: Option<&TokensWatch>) -> Option<Self> {
        let Inviting { file, secret, .. } = given?;
        let known = read(&file).unwrap_or_else(|error| {
            tracing::warn!("{error}; no machine is let in until that is mended");
            Vec::new()
        });
        let fresh = known.iter().filter(|it| it.joined_ms.is_none());
        let tokens = tokens?;
        Some(Self {
            fresh: Mutex::new(fresh.filter_map(|it| it.holder).collect()),
            tokens: tokens.path.clone(),
            own: tokens.base.clone(),
            turn: tokio::sync::Mutex::default(),
            file,
            secret,
        })
    }

    /// Lets a machine in that shows the secret of an invitation, whose name is given in any case.
    pub(crate) fn admit(
        &self,
        asked: &JoinRequest,
        now_ms: u64,
    ) -> (Option<TokenName>, Result<JoinGrant, JoinRefusal>) {
        let (secret, token) = (TokenHash::of(&asked.code), TokenHash::of(&asked.token));
        let failed = |error: String| {
            tracing::warn!("a machine that was invited is not let in: {error}");
            JoinRefusal::Failed
        };
        let found = read(&self.file).map(|mut known| {
            let found = invitation_of(&mut known, &secret);
            found.map(|it| (it.name.clone(), it.ask(now_ms, token)))
        });
        let name = match found.map_err(failed) {
            Err(refusal) => return (None, Err(refusal)),
            Ok(None) => return (None, Err(JoinRefusal::Unknown)),
            Ok(Some((name, Err(refusal)))) => return (Some(name), Err(refusal)),
            Ok(Some((name, Ok(())))) => name,
        };
        let given = || {
            let known = tokens::read(&self.tokens).map_err(failed)?;
            let mut others = known.iter().filter(|it| it.name != name).chain(&self.own);
            if let Some(Grant { name: other, .. }) = others.find(|it| it.token == token) {
                return Err(failed(format!(
                    "it shows the token {other}, which is in use here: `peerbus join` there makes a token of \
                     its own"
                )));
            }
            // Whatever fails from here on, the same machine may ask again.
            let bound = change(&self.file, |known| {
                let found = invitation_of(known, &secret);
                found.map_or(Err(JoinRefusal::Unknown), |it| it.ask(now_ms, token))
            });
            bound.map_err(failed)??;
            let key = (self.secret)().map_err(failed)?;
            let grant = grant(&name, token).map_err(failed)?;
            let names = grant
                .names
                .iter()
                .map(|it| it.as_str().to_owned())
                .collect();
            lock(&self.fresh).insert(token);
            tokens::admit(&self.tokens, &grant).map_err(failed)?;
            // It may have been ended meanwhile, by a command that found no token yet.
            let mut known = read(&self.file).map_err(failed)?;
            if !invitation_of(&mut known, &secret).is_some_and(|it| it.holds(now_ms, &token)) {
                tokens::revoke_exactly(&self.tokens, &name, &token).map_err(failed)?;
                return Err(JoinRefusal::Unknown);
            }
            Ok(JoinGrant { key, names })
        };
        let given = given();
        (Some(name), given)
    }

    /// A peer has registered with a token. The first time with that of a machine that was let in ends its
    /// invitation.
    pub(crate) fn registered(self: &Arc<Self>, token: &TokenHash, now_ms: u64) {
        if !lock(&self.fresh).remove(token) {
            return;
        }
        let (invited, used) = (Arc::clone(self), *token);
        // The engine waits for no file.
        let thread = std::thread::Builder::new().name("peerbus-invited".into());
        if let Err(error) = thread.spawn(move || invited.joined(&used, now_ms)) {
            tracing::warn!(%error, "that a machine has joined is not written down");
            lock(&self.fresh).insert(*token);
        }
    }

    /// Writes down that a machine is in. Where that fails, the next registration with its token tries again.
    fn joined(&self, token: &TokenHash, now_ms: u64) {
        let ended = change(&self.file, |known| {
            known.iter_mut().any(|it| it.registered(now_ms, token))
        });
        if let Err(error) = ended {
            tracing::warn!("{error}; the machine that has joined may ask again meanwhile");
            lock(&self.fresh).insert(*token);
        }
    }
}

#[cfg(test)]
mod tests;
