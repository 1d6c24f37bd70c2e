//! The trace of a run: a hash over everything that happened, and its text if it is wanted.

use std::fmt::Write as _;

/// A running hash, and perhaps the lines that went into it.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hasher: blake3::Hasher,
    lines: Option<String>,
}

impl Trace {
    /// Starts a trace. `keep` keeps the text.
    #[must_use]
    pub(crate) fn new(keep: bool) -> Self {
        Self {
            hasher: blake3::Hasher::new(),
            lines: keep.then(String::new),
        }
    }

    /// Adds an event: what happened, when, to whom, and the bytes that belong to it.
    pub(crate) fn note(&mut self, at_ms: u64, what: &str, whom: u64, bytes: &str) {
        self.hasher.update(&at_ms.to_le_bytes());
        self.hasher.update(what.as_bytes());
        self.hasher.update(&whom.to_le_bytes());
        self.hasher.update(&(bytes.len() as u64).to_le_bytes());
        self.hasher.update(bytes.as_bytes());
        if let Some(lines) = &mut self.lines {
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "{at_ms:>8} {what:<12} {whom:>4} {bytes}");
        }
    }

    /// The hash so far, in hex.
    #[must_use]
    pub(crate) fn hash(&self) -> String {
        self.hasher.finalize().to_hex()[..32].to_owned()
    }

    /// The text, if it was kept.
    #[must_use]
    pub(crate) fn take_lines(&mut self) -> String {
        self.lines.take().unwrap_or_default()
    }
}
