//! A rule for a sender whose mail waits, put in front of the others.

use std::fmt;
use std::path::{Path, PathBuf};

use peerbus_peer::mailbox::SenderRule;
use peerbus_wire::PeerName;

use super::{Credentials, CredentialsError, FILE, load};

/// A rule by which all mail of a sender reaches the agents from now on, before it is written.
#[derive(Debug)]
pub struct SenderAllowance {
    path: PathBuf,
    from: PeerName,
}

impl SenderAllowance {
    /// The rule for a sender whose mail the file at `path` has wait.
    ///
    /// # Errors
    ///
    /// When the file cannot be used, or does not have it wait.
    pub fn of(path: &Path, from: PeerName) -> Result<Self, CredentialsError> {
        let unusable = |why| CredentialsError::Unusable(FILE.says(path, why));
        let path = path.to_owned();
        check(&load(&path)?, &from).map_err(unusable)?;
        Ok(Self { path, from })
    }

    /// Puts it in front of the rules in the file. Everything else in it stays.
    ///
    /// # Errors
    ///
    /// As for [`Self::of`], or when the file cannot be written.
    pub fn write(&self) -> Result<(), CredentialsError> {
        let written = FILE.edit(&self.path, |document, found| {
            check(&found.ok_or("is not there any more")?, &self.from)?;
            let rules = document.get_mut("senders");
            let rules = rules.and_then(|rules| rules.as_array_mut());
            let rules = rules.ok_or("has no `senders`")?;
            rules.insert(0, self.rule());
            // What was the first one stands directly behind the bracket.
            if let Some(next) = rules.get_mut(1).map(|next| next.decor_mut())
                && next
                    .prefix()
                    .and_then(|space| space.as_str())
                    .is_none_or(str::is_empty)
            {
                next.set_prefix(" ");
            }
            Ok(())
        });
        written.map_err(CredentialsError::Unusable)
    }

    fn rule(&self) -> String {
        format!("{}=allow", self.from)
    }
}

impl fmt::Display for SenderAllowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.path.display();
        write!(f, "\"{}\" in `senders` of {file}", self.rule())
    }
}

/// A session may have rules of its own, for which one in the file changes nothing.
fn check(found: &Credentials, from: &PeerName) -> Result<(), String> {
    match found.senders.as_ref().map(|rules| rules.rule(from)) {
        Some(SenderRule::Hold) => Ok(()),
        _ => Err(format!(
            "does not have mail of {from} wait: the session has rules of its own (PEERBUS_FROM), or has \
             not read that file yet; release the message without --always"
        )),
    }
}
