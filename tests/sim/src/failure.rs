//! What the oracle says when a promise is broken.

use std::fmt;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which one: `I1` to `I12` as in docs/ARCHITECTURE.md, or a word for what has no number.
    pub rule: &'static str,
    /// What was seen.
    pub text: String,
}

impl Failure {
    /// Says that `rule` does not hold.
    #[must_use]
    pub fn new(rule: &'static str, text: impl Into<String>) -> Self {
        Self {
            rule,
            text: text.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}

/// Nothing, or the first broken promise.
pub type Verdict = Result<(), Failure>;

/// Fails with `rule` and the text unless `holds`.
pub(crate) fn ensure(holds: bool, rule: &'static str, text: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Failure::new(rule, text()))
    }
}
