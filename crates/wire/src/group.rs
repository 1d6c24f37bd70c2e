//! Names of groups.

use std::fmt;
use std::sync::Arc;

use crate::limits::NAME_BYTES_MAX;

/// A group's name: 1-64 of `[a-z0-9._-]`, the first a letter or a digit. Upper case is read as lower
/// case. Its address has a `#` in front, with which no peer's name begins.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupName(Arc<str>);

/// A text is no group's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a group is # and 1 to 64 of a-z 0-9 . _ -, the first a letter or a digit")]
pub struct NoGroup;

impl GroupName {
    /// Reads a name, with or without the `#`.
    ///
    /// # Errors
    ///
    /// [`NoGroup`] says the whole rule.
    pub fn parse(text: &str) -> Result<Self, NoGroup> {
        let text = text.strip_prefix('#').unwrap_or(text);
        let odd = |c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c));
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if text.len() > NAME_BYTES_MAX || text.contains(odd) || !first {
            return Err(NoGroup);
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }

    /// The name that comes nearest to a text, such as that of a directory: what a group's name cannot
    /// have becomes `-`. In a text without a Latin letter other scripts' letters become their bytes in
    /// hex, so that not all such texts come to the same. `None` when nothing is left.
    #[must_use]
    pub fn near(text: &str) -> Option<Self> {
        Self::parse(&Self::spell(text)?).ok()
    }

    /// The same as [`GroupName::near`], with capitals as they stand there.
    #[must_use]
    pub fn spell(text: &str) -> Option<String> {
        let latin = text.contains(|c: char| c.is_ascii_alphabetic());
        let mut near = String::new();
        for c in text.chars() {
            match c {
                c if c.is_ascii_alphanumeric() || "._-".contains(c) => near.push(c),
                c if latin || c.is_ascii() => near.push('-'),
                c => near.push_str(&crate::hex::encode(c.encode_utf8(&mut [0; 4]).as_bytes())),
            }
        }
        let near = near.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        let near = near.get(..NAME_BYTES_MAX).unwrap_or(near);
        (!near.is_empty()).then(|| near.to_owned())
    }

    /// The name, without the `#`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The address.
impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_follow_the_rule() {
        for (text, name) in [("#shop", "shop"), ("Shop", "shop"), ("#a.b_c-9", "a.b_c-9")] {
            assert_eq!(GroupName::parse(text).unwrap().as_str(), name, "{text}");
        }
        for bad in ["", "#", "##a", "#a!", "a b", "-a", "a@b", &"n".repeat(65)] {
            assert_eq!(GroupName::parse(bad), Err(NoGroup), "{bad}");
        }
        assert_eq!(GroupName::parse("shop").unwrap().to_string(), "#shop");
    }

    #[test]
    fn a_directory_gives_a_group() {
        for (text, name) in [
            ("My Shop", "my-shop"),
            (".config", "config"),
            ("läden", "l-den"),
            ("2024", "2024"),
            ("дом-1", "d0b4d0bed0bc-1"),
        ] {
            assert_eq!(GroupName::near(text).unwrap().as_str(), name, "{text}");
        }
        assert_eq!(GroupName::near("..."), None);
        assert_eq!(GroupName::near(&"x".repeat(80)).unwrap().as_str().len(), 64);
    }
}
