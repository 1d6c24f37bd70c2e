//! A text on its way from what it is to what it will be.

use std::collections::BTreeSet;
use std::ops::Range;

use super::json::Splice;

/// A text and what was put into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) text: String,
    /// Texts that peerbus put in, now or earlier, as they stand there now.
    pub(crate) inserted: Vec<String>,
    /// Objects and lists that peerbus made, as paths such as `hooks/Stop`.
    pub(crate) made: BTreeSet<String>,
}

impl Draft {
    /// A text with what earlier installs put into it.
    pub(crate) fn new(
        text: impl Into<String>,
        inserted: &[String],
        made: &BTreeSet<String>,
    ) -> Self {
        let text = text.into();
        let inserted = inserted
            .iter()
            .filter(|part| text.contains(*part))
            .cloned()
            .collect();
        let made = made.clone();
        Self {
            text,
            inserted,
            made,
        }
    }

    /// Applies a change, and remembers what it puts in.
    pub(crate) fn apply(&mut self, splice: Splice) {
        let Splice { range, text } = splice;
        let inside = self.inserted.iter().position(|part| {
            let found = self.text.match_indices(part.as_str());
            found
                .map(|(at, part)| at..at + part.len())
                .any(|part| strictly_within(&range, &part))
        });
        if let Some(which) = inside {
            let part = &self.inserted[which];
            let at = self
                .text
                .match_indices(part.as_str())
                .map(|(at, _)| at)
                .find(|at| strictly_within(&range, &(*at..at + part.len())));
            let at = at.unwrap_or_default();
            let mut changed = part.clone();
            changed.replace_range(range.start - at..range.end - at, &text);
            self.inserted[which] = changed;
        } else if range.is_empty() {
            self.inserted.push(text.clone());
        }
        self.text.replace_range(range, &text);
    }

    /// Takes every remembered text out again. `None` when one of them is no longer there as it was
    /// put in, or cannot be told from another text.
    pub(crate) fn reverted(&self) -> Option<String> {
        let mut parts = self.inserted.clone();
        // The longest first: a shorter one may be a piece of it.
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        parts.dedup();
        let mut text = self.text.clone();
        for part in parts {
            let wanted = self.inserted.iter().filter(|other| **other == part).count();
            if part.is_empty() || text.matches(part.as_str()).count() != wanted {
                return None;
            }
            text = text.replace(part.as_str(), "");
        }
        Some(text)
    }
}

fn strictly_within(inner: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start < inner.start && inner.end < outer.end
}
