//! What the two ends say to each other: one JSON text a line.

use serde::{Deserialize, Serialize};

/// The version of these lines. Ends of different versions have nothing to say to each other.
pub(super) const VERSION: u32 = 1;
/// Longest first line of a hook, in bytes: the input of a tool stands in it as a text.
pub const ASK_MAX: usize = 128 * 1024;
/// Longest line of a program that speaks JSON-RPC, in bytes.
pub(super) const RPC_MAX: usize = 1024 * 1024;
/// Longest line of an adapter, in bytes.
pub(super) const TELL_MAX: usize = 4 * 1024 * 1024;

/// What a hook says first.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask<T> {
    /// The version of what it speaks.
    pub(super) v: u32,
    /// It waits for something to show. Otherwise it wants an answer at once.
    pub wait: bool,
    /// What happened, as its agent's adapter understands it.
    pub on: T,
}

/// What the adapter answers: a text to show, or none. The hook then says [`Took`], and shows the
/// text when it is told [`Go`] in turn: whoever gives up in between leaves no doubt at the other
/// end.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tell {
    pub(super) v: u32,
    #[serde(default)]
    pub(super) text: Option<String>,
}

impl Tell {
    pub(super) fn new(text: Option<String>) -> Self {
        Self { v: VERSION, text }
    }
}

/// The hook has the text.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Took {
    pub(super) took: bool,
}

/// The text is the hook's to show.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Go {
    pub(super) go: bool,
}

/// A line.
pub(super) fn write(what: &impl Serialize) -> Option<Vec<u8>> {
    let mut line = serde_json::to_vec(what).ok()?;
    line.push(b'\n');
    Some(line)
}
