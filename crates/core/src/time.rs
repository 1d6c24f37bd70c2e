//! Time as an argument.

/// The two clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now {
    /// Milliseconds on a clock that never goes back; its zero means nothing. For deadlines.
    pub mono_ms: u64,
    /// Milliseconds since the Unix epoch. For what outlives the process: expiry, retention, audit.
    pub wall_ms: u64,
}
