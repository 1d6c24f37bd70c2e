//! What a bearer token admits to.

use std::num::NonZeroU32;
use std::sync::Arc;

use peerbus_wire::{PeerName, TokenName};
use serde::{Deserialize, Serialize};

use crate::TokenHash;

/// The names of the gateway's peers.
pub const GATEWAY: &str = "web:*";
/// How those names begin.
const GATEWAY_PREFIX: &str = "web:";
/// What the gateway's own token is called.
pub const GATEWAY_TOKEN: &str = "web";
/// What the bridges' own token is called.
pub const BRIDGE_TOKEN: &str = "bridge";

/// The name as which the operator writes on the dashboard's page.
pub const PAGE: &str = "dashboard";

/// Names that a token may have when nothing else is said.
pub const NAMES_DEFAULT: usize = 1_000;

/// A token that admits connections, and to what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What the token is called. No two have the same name.
    pub name: TokenName,
    /// Its hash.
    pub token: TokenHash,
    /// Names that it may register; none of them: every name.
    pub names: Vec<NamePattern>,
    /// It admits nobody from then on, wall clock, milliseconds since the Unix epoch.
    pub expires_ms: Option<u64>,
    /// The rights of its peers.
    pub rights: Rights,
    /// How much it may take of what others need, too.
    pub quotas: Quotas,
}

impl Grant {
    /// What a token that nothing is said of admits to: every name, and every right that has
    /// nothing to do with the broker's operation.
    #[must_use]
    pub fn usual(name: TokenName, token: TokenHash) -> Self {
        Self {
            name,
            token,
            names: Vec::new(),
            expires_ms: None,
            rights: Rights::of([
                Right::Send,
                Right::Broadcast,
                Right::Observe,
                Right::Approve,
            ]),
            quotas: Quotas::default(),
        }
    }

    /// The same for a token of the operator's, which has the page's name for itself.
    #[must_use]
    pub fn of_operator(self) -> Self {
        let names = ["*", PAGE].into_iter().filter_map(NamePattern::parse);
        Self {
            names: names.collect(),
            ..self
        }
    }

    /// Tokens that admit to what is usual, called `WORD-1` and so on.
    #[must_use]
    pub fn numbered(word: &str, tokens: Vec<TokenHash>) -> Vec<Self> {
        let grant = |(number, token)| {
            let name = TokenName::parse(&format!("{word}-{number}"))?;
            Some(Self::usual(name, token))
        };
        (1_u32..).zip(tokens).filter_map(grant).collect()
    }

    /// Whether the token may register a name.
    #[must_use]
    pub fn allows(&self, name: &PeerName) -> bool {
        // Only a bridge has another domain in its own name.
        self.names.is_empty() || self.names.iter().any(|pattern| pattern.covers(name))
    }

    /// Whether the name is this token's: a pattern of it names that one and no other, or the peers of the
    /// gateway and no others. No token of which that is not so may have it.
    #[must_use]
    pub fn keeps(&self, name: &str) -> bool {
        self.kept().any(|pattern| pattern.means(name))
    }

    /// What of its names is no other token's.
    pub fn kept(&self) -> impl Iterator<Item = &NamePattern> {
        self.names.iter().filter(|pattern| pattern.keeps())
    }

    /// The names that it may register, for people.
    #[must_use]
    pub fn allowed(&self) -> String {
        let names: Vec<_> = self.names.iter().map(NamePattern::as_str).collect();
        names.join(", ")
    }

    /// Whether its time is over.
    #[must_use]
    pub fn is_expired(&self, wall_ms: u64) -> bool {
        self.expires_ms.is_some_and(|end_ms| end_ms <= wall_ms)
    }
}

/// Something that a token may do besides registering, receiving and acking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Send to one peer.
    Send,
    /// Send to all.
    Broadcast,
    /// See what peers of other tokens do, and how much is owed to them.
    Observe,
    /// Do what the broker's operator does. Nothing asks for it yet.
    Operate,
    /// Say yes to what a session of another token asks its user, where its user lets it.
    Approve,
    /// Speak for the peers of another domain's broker.
    Bridge,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Send,
        Self::Broadcast,
        Self::Observe,
        Self::Operate,
        Self::Approve,
        Self::Bridge,
    ];

    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Broadcast => "broadcast",
            Self::Observe => "observe",
            Self::Operate => "operate",
            Self::Approve => "approve",
            Self::Bridge => "bridge",
        }
    }

    /// Reads its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.as_str() == word)
    }
}

/// A set of rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights(u8);

impl Rights {
    /// These and no others.
    #[must_use]
    pub fn of(rights: impl IntoIterator<Item = Right>) -> Self {
        let bit = |set: u8, right: Right| set | 1 << right as u8;
        Self(rights.into_iter().fold(0, bit))
    }

    /// Whether this one is among them.
    #[must_use]
    pub fn has(self, right: Right) -> bool {
        self.0 & 1 << right as u8 != 0
    }

    /// Those that are among them, in the order of [`Right::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.has(*right))
    }
}

/// How much a token may take of what others need, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Names that it may have; temporary ones do not count.
    pub names: usize,
    /// Connections that may be registered at once; `None`: as many as the broker has.
    pub connections: Option<usize>,
    /// Bytes of envelopes that its peers sent and that are owed to anybody, each copy of a broadcast
    /// counted; `None`: what the broker allows every token.
    pub bytes: Option<u64>,
    /// Messages that its peers may send in a second, all of them together; what is more waits at
    /// its sender. `None`: as many as they like.
    pub per_second: Option<NonZeroU32>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            names: NAMES_DEFAULT,
            connections: None,
            bytes: None,
            per_second: None,
        }
    }
}

/// Names of peers: the characters of a name, and `*` for any number of any of them. Case does not
/// matter. Other domains choose their names: `*` alone stands for those, too, and with an `@` a pattern says of which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern(Arc<str>);

impl NamePattern {
    /// Reads a pattern of 1 to 64 characters. `None` when it is none, or one that no name can match.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = PeerName::parse(&text.replace('*', "0")).is_ok() && !text.contains("**");
        fits.then(|| Self(text.into()))
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the names that are meant are no other token's.
    fn keeps(&self) -> bool {
        !self.0.contains('*') || self.0.eq_ignore_ascii_case(GATEWAY)
    }

    /// Whether a name is one of those that are meant.
    #[must_use]
    pub fn matches(&self, name: &PeerName) -> bool {
        let is_for_domains = &*self.0 == "*" || self.0.contains('@');
        (is_for_domains || name.address().is_none()) && self.means(name.as_str())
    }

    /// Whether a name is one of those, or such a name of another domain: for what keeps somebody out.
    #[must_use]
    pub fn covers(&self, name: &PeerName) -> bool {
        self.means(name.as_str())
    }

    fn means(&self, name: &str) -> bool {
        let mut pieces = self.0.split('*');
        let Some(mut rest) = strip(name, pieces.next().unwrap_or_default()) else {
            return false;
        };
        let Some(last) = pieces.next_back() else {
            return rest.is_empty();
        };
        for piece in pieces {
            let found = (0..rest.len()).find_map(|at| strip(rest.get(at..)?, piece));
            let Some(after) = found else { return false };
            rest = after;
        }
        let end = rest.len().checked_sub(last.len());
        end.and_then(|at| rest.get(at..))
            .is_some_and(|end| end.eq_ignore_ascii_case(last))
    }
}

impl TryFrom<String> for NamePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no name of peers such as build-*");
        Self::parse(&text).ok_or_else(wrong)
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.as_str().to_owned()
    }
}

/// Fails for a name that is the page's, and no agent's or command's to have.
///
/// # Errors
///
/// A sentence.
pub fn not_the_pages(name: PeerName) -> Result<PeerName, &'static str> {
    match name.as_str().eq_ignore_ascii_case(PAGE) {
        true => Err(
            "it is kept for the dashboard's page, as which the user writes: choose another name",
        ),
        false => Ok(name),
    }
}

/// Whether a name, or all that a pattern means, is of the gateway's peers, each of which has a token of its own there.
#[must_use]
pub fn is_of_gateway(name: &str) -> bool {
    strip(name, GATEWAY_PREFIX).is_some()
}

/// What stands behind a beginning, whose case does not matter. Names are ASCII.
fn strip<'t>(text: &'t str, beginning: &str) -> Option<&'t str> {
    let head = text.get(..beginning.len())?;
    head.eq_ignore_ascii_case(beginning)
        .then(|| text.get(beginning.len()..))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_the_names_that_a_reader_expects() {
        let cases = [
            ("phone", "phone", true),
            ("phone", "PHONE", true),
            ("phone", "phone2", false),
            ("phone", "my-phone", false),
            ("build-*", "build-7", true),
            ("build-*", "Build-", true),
            ("build-*", "build", false),
            ("build-*", "rebuild-7", false),
            ("*", "anything", true),
            ("*-ci", "shop-ci", true),
            ("*-ci", "shop-ci-2", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*bb", "ab", false),
            ("a*a", "a", false),
            // Another domain calls its peers as it likes.
            ("build-*", "build-7@beta", false),
            ("*-ci", "x@shop-ci", false),
            ("build-*@beta", "build-7@beta", true),
            ("build-*@*", "build-7@beta", true),
            ("*", "build-7@beta", true),
        ];
        for (pattern, name, expected) in cases {
            let pattern = NamePattern::parse(pattern).unwrap();
            let name = PeerName::parse(name).unwrap();
            assert_eq!(pattern.matches(&name), expected, "{pattern:?} {name}");
        }
        for bad in ["", "a b", "-x*", "a**", "é*", &"x".repeat(65), "user"] {
            assert_eq!(NamePattern::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_token_keeps_the_names_that_are_said_without_a_star_and_those_of_the_gateway() {
        let token = TokenHash([0; 32]);
        let mut grant = Grant::usual(TokenName::parse("t").unwrap(), token);
        assert!(!grant.keeps("phone"), "every name is nobody's own");
        grant.names = vec![NamePattern::parse("bridge*").unwrap()];
        assert!(grant.allows(&PeerName::parse("bridge@beta").unwrap()));
        grant.names.clear();
        grant.names = ["phone", "build-*", "*", "web:*"]
            .map(|text| NamePattern::parse(text).unwrap())
            .to_vec();
        for (name, kept) in [
            ("phone", true),
            ("Phone", true),
            ("phone2", false),
            ("build-7", false),
            ("web:phone", true),
            ("web", false),
        ] {
            assert_eq!(grant.keeps(name), kept, "{name}");
        }
        let of_gateway = |text| is_of_gateway(NamePattern::parse(text).unwrap().as_str());
        assert!(
            ["web:*", "WEB:*", "web:ci", "Web:c*"]
                .into_iter()
                .all(of_gateway)
        );
        assert!(
            !["web", "web*", "*", "my-web:ci"]
                .into_iter()
                .any(of_gateway)
        );
    }

    #[test]
    fn rights_are_a_set() {
        let rights = Rights::of([Right::Send, Right::Bridge]);
        assert_eq!(
            rights.iter().collect::<Vec<_>>(),
            [Right::Send, Right::Bridge]
        );
        assert!(!rights.has(Right::Broadcast));
        for right in Right::ALL {
            assert_eq!(Right::parse(right.as_str()), Some(right));
        }
    }
}
