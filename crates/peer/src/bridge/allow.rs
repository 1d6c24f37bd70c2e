//! Who of the other domain may write to whom here.

use peerbus_wire::PeerName;

use peerbus_core::grant::NamePattern;

/// The pairs that may. A rule reads `FROM -> TO`: patterns for the sender, with its domain or without,
/// and for the recipient as it is called at home.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allow(Vec<(NamePattern, NamePattern)>);

impl Allow {
    /// Reads rules. None at all let nobody in.
    ///
    /// # Errors
    ///
    /// The first text that is no rule.
    pub fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self, &'t str> {
        let rule = |text: &'t str| {
            let (from, to) = text.split_once("->").ok_or(text)?;
            let pattern = |side: &str| NamePattern::parse(side.trim()).ok_or(text);
            Ok((pattern(from)?, pattern(to)?))
        };
        texts
            .into_iter()
            .map(rule)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether a message with these addresses is let in.
    #[must_use]
    pub fn admits(&self, from: &PeerName, to: &PeerName) -> bool {
        let means = |pattern: &NamePattern, name: &PeerName| {
            let bare = name.address().map(|(bare, _)| bare);
            pattern.matches(name) || bare.is_some_and(|bare| pattern.matches(&bare))
        };
        let mut rules = self.0.iter();
        rules.any(|(sender, recipient)| means(sender, from) && means(recipient, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_a_sender_and_a_recipient() {
        let allow = Allow::parse(["alice@alpha -> bob", "ci-*->*", " dora@* -> bob-2 "]).unwrap();
        let admits = |from: &str, to: &str| {
            let name = |text| PeerName::parse(text).unwrap();
            allow.admits(&name(from), &name(to))
        };
        for (from, to) in [
            ("alice@alpha", "bob@beta"),
            ("Alice@alpha", "BOB@beta"),
            ("ci-7@alpha", "whoever@beta"),
            ("dora@alpha", "bob-2@beta"),
        ] {
            assert!(admits(from, to), "{from} -> {to}");
        }
        for (from, to) in [
            ("alice@alpha", "bob-2@beta"),
            ("alice@gamma", "bob@beta"),
            ("mallory@alpha", "bob@beta"),
        ] {
            assert!(!admits(from, to), "{from} -> {to}");
        }
        assert!(!Allow::default().admits(
            &PeerName::parse("alice@alpha").unwrap(),
            &PeerName::parse("bob@beta").unwrap()
        ));
        for wrong in ["alice", "alice -> ", "alice => bob", "-> bob", "a b -> c"] {
            assert_eq!(Allow::parse(["a -> b", wrong]), Err(wrong));
        }
    }
}
