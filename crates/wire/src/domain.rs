//! Domains: brokers of several machines, and addresses that name one of them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::limits::{DOMAIN_BYTES_MAX, MARK_BYTES_MAX};
use crate::name::PeerName;

/// What the name of a bridge begins with; the domain to which it leads follows.
const BRIDGE: &str = "bridge@";

/// The name of a broker among others: 1-16 of `[a-z0-9-]`, a letter or a digit at both ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Domain(Arc<str>);

impl Domain {
    /// Checks `text` against the rule. `None`: it is no domain.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let ok = (1..=DOMAIN_BYTES_MAX).contains(&text.len())
            && text.bytes().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        ok.then(|| Self(text.into()))
    }

    /// The domain as it is on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name under which the bridge to this domain registers.
    #[must_use]
    pub fn bridge(&self) -> Option<PeerName> {
        PeerName::parse(&format!("{BRIDGE}{self}")).ok()
    }

    /// The address from elsewhere of a peer that has this name here. `None` when it is too long for
    /// an address.
    #[must_use]
    pub fn address(&self, name: &PeerName) -> Option<PeerName> {
        PeerName::parse(&format!("{name}@{self}")).ok()
    }
}

impl FromStr for Domain {
    type Err = NoDomain;

    fn from_str(text: &str) -> Result<Self, NoDomain> {
        Self::parse(text).ok_or(NoDomain)
    }
}

/// A text is no domain. The message states the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 1 to 16 of a-z 0-9 -, with a letter or a digit at both ends")]
pub struct NoDomain;

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PeerName {
    /// The name and the domain of an address: what stands before and behind the last `@`, if that
    /// can be a name and a domain. Domains are read in any case.
    #[must_use]
    pub fn address(&self) -> Option<(Self, Domain)> {
        let (name, domain) = self.as_str().rsplit_once('@')?;
        let domain = Domain::parse(&domain.to_ascii_lowercase())?;
        Some((Self::parse(name).ok()?, domain))
    }

    /// The domain to which a bridge of this name leads.
    #[must_use]
    pub fn bridged(&self) -> Option<Domain> {
        let (name, domain) = self.address()?;
        let bridge = name
            .as_str()
            .eq_ignore_ascii_case(BRIDGE.trim_end_matches('@'));
        bridge.then_some(domain)
    }
}

/// A short text that means something to whoever made it: 1-128 printable ASCII characters without
/// spaces. A broker's epoch is one, and what a bridge has its broker keep.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Mark(Arc<str>);

impl Mark {
    /// Checks `text` against the rule.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let ok = (1..=MARK_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_graphic());
        ok.then(|| Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_follow_the_rule() {
        for good in ["a", "alpha", "0", "eu-west-1", &"d".repeat(16)] {
            assert!(Domain::parse(good).is_some(), "{good}");
        }
        for bad in ["", "Alpha", "a.b", "-a", "a-", "a b", "é", &"d".repeat(17)] {
            assert!(Domain::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn an_address_is_a_name_and_a_domain() {
        let of = |text: &str| {
            let (name, domain) = PeerName::parse(text).unwrap().address()?;
            Some((name.as_str().to_owned(), domain.as_str().to_owned()))
        };
        let pair = |name: &str, domain: &str| Some((name.to_owned(), domain.to_owned()));
        assert_eq!(of("bob@beta"), pair("bob", "beta"));
        assert_eq!(of("Bob@BETA"), pair("Bob", "beta"));
        assert_eq!(of("a@b@c"), pair("a@b", "c"));
        for no in ["bob", "bob@", "bob@a.b", "user@beta", "bob@-x"] {
            assert_eq!(of(no), None, "{no}");
        }
        let bridge = Domain::parse("beta").unwrap().bridge().unwrap();
        assert_eq!(bridge.as_str(), "bridge@beta");
        assert_eq!(bridge.bridged(), Domain::parse("beta"));
        assert_eq!(PeerName::parse("bob@beta").unwrap().bridged(), None);
    }
}
