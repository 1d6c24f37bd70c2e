//! What bridges say to each other: the head of a message in the stream, and what goes outside of it.
//!
//! All of it comes from another machine and is untrusted: what cannot be read whole is refused, and
//! every list and every text has a bound.

mod item;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use item::{Inquiry, StreamItem, Told};

use crate::limits::{FRAME_BYTES_MAX, STATUS_IDS_MAX};

/// The header of a message in the stream that has its [`StreamHead`].
pub const HEAD: &str = "Peerbus-Bridge";

/// Longest epoch, in bytes.
pub const EPOCH_BYTES_MAX: usize = 64;

/// Largest carried envelope that goes to another domain, in bytes: it fits a `take` frame, and with its
/// head what a stream takes that is not told otherwise.
pub const ENVELOPE_BYTES_MAX: usize = FRAME_BYTES_MAX - 512;

/// With what a bridge registers while it does not know the epoch of the far broker. It is delivered
/// nothing then.
pub const UNKNOWN: &str = "unknown";

/// Largest message outside the stream, in bytes.
pub const OUTSIDE_BYTES_MAX: usize = 262_144;

/// Most statements in one message outside the stream.
pub const ITEMS_MAX: usize = 64;

/// Most messages that are asked about at a time.
pub const ASK_MAX: usize = STATUS_IDS_MAX;

/// The version of all this.
const VERSION: u32 = 1;

/// A life of a broker's database: another one after a restore, and for another database. 1 to 64 of
/// `[A-Za-z0-9_-]`, and not [`UNKNOWN`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Epoch(Arc<str>);

impl Epoch {
    /// `None` when it does not follow the rule.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let ok = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
        let fits = (1..=EPOCH_BYTES_MAX).contains(&text.len());
        let epoch = fits && text != UNKNOWN && text.bytes().all(ok);
        epoch.then(|| Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Epoch> for String {
    fn from(epoch: Epoch) -> Self {
        epoch.to_string()
    }
}

impl TryFrom<String> for Epoch {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("it breaks the rule for epochs")
    }
}

/// What stands with a message in the stream: `1 EPOCH FOR NUMBER AFTER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamHead {
    /// The sending broker's epoch, in which the numbers count.
    pub epoch: Epoch,
    /// The epoch of the broker that it is for: what the sender knows of it does not hold for another.
    pub meant_for: Epoch,
    /// The message's number, at least 1.
    pub number: u64,
    /// The number before it of what is neither confirmed nor given up, or 0: it is taken by whoever
    /// has everything up to that one.
    pub after: u64,
}

impl StreamHead {
    /// The header's value.
    #[must_use]
    pub fn encode(&self) -> String {
        let Self {
            epoch,
            meant_for,
            number,
            after,
        } = self;
        format!("{VERSION} {epoch} {meant_for} {number} {after}")
    }

    /// `None` when it is of another version, or breaks a rule.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let mut words = value.split(' ');
        let mut word = || words.next();
        let version = number(word()?)?;
        let head = Self {
            epoch: Epoch::parse(word()?)?,
            meant_for: Epoch::parse(word()?)?,
            number: number(word()?)?,
            after: number(word()?)?,
        };
        let fits = version == u64::from(VERSION) && word().is_none() && head.after < head.number;
        fits.then_some(head)
    }
}

/// How far the messages of one epoch were taken: the mark that a bridge has its broker keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The epoch of the broker that they come from.
    pub epoch: Epoch,
    /// Everything up to this number was taken, or needs not be.
    pub number: u64,
}

impl Position {
    /// As it is kept: at most 85 bytes, `EPOCH:NUMBER`.
    #[must_use]
    pub fn encode(&self) -> String {
        format!("{}:{}", self.epoch, self.number)
    }

    /// `None` when it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (epoch, digits) = text.split_once(':')?;
        Some(Self {
            epoch: Epoch::parse(epoch)?,
            number: number(digits)?,
        })
    }
}

/// A number without a sign, written in one way only.
fn number(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    let one_way = digits == "0" || !digits.starts_with('0');
    (plain && one_way).then(|| digits.parse().ok()).flatten()
}

/// A message outside the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// The epoch of the broker of the bridge that says it.
    pub epoch: Epoch,
    /// That of the broker of the bridge that is told, as far as it is known. Only a
    /// [`Saying::Hello`] needs none.
    #[serde(rename = "for", default, skip_serializing_if = "is_default")]
    pub meant_for: Option<Epoch>,
    /// What is said.
    #[serde(rename = "say")]
    pub saying: Saying,
}

/// What bridges say to each other outside the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Saying {
    /// This bridge is here.
    Hello {
        /// Everything up to this number, in the epoch that it is meant for, was taken; 0: nothing.
        taken: u64,
        /// Something after it came without what stands before: send again from there.
        #[serde(default, skip_serializing_if = "is_default")]
        gap: bool,
    },
    /// What became of messages of the other side's.
    Stages {
        /// At most [`ITEMS_MAX`] statements.
        items: Vec<StreamItem>,
        /// They answer [`Saying::Ask`] and are not repeated.
        #[serde(default, skip_serializing_if = "is_default")]
        answer: bool,
    },
    /// These statements were passed on.
    Noted(Vec<Told>),
    /// What became of these? At most [`ASK_MAX`] messages.
    Ask(Vec<Inquiry>),
}

/// The JSON of an [`Outside`].
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u32,
    #[serde(flatten)]
    outside: T,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Outside {
    /// The JSON text; at most [`OUTSIDE_BYTES_MAX`] bytes if no list is longer than it may be.
    #[must_use]
    pub fn encode(&self) -> String {
        let (v, outside) = (VERSION, self);
        // Strings and numbers can always be written.
        serde_json::to_string(&Versioned { v, outside }).unwrap_or_default()
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// When it is too large, no JSON of this version, or breaks a rule: a sentence, which repeats
    /// nothing of what was found.
    pub fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() > OUTSIDE_BYTES_MAX {
            return Err("it is larger than such a message may be");
        }
        let read: Versioned<Self> = serde_json::from_slice(bytes)
            .map_err(|_| "it cannot be read by this version, or breaks a rule of it")?;
        if read.v != VERSION {
            return Err("it is of another version");
        }
        let outside = read.outside;
        let (count, most, named) = match &outside.saying {
            Saying::Hello { .. } => (0, 0, true),
            Saying::Stages { items, .. } => {
                let named = items.iter().all(|item| item.told.is_named());
                (items.len(), ITEMS_MAX, named)
            }
            Saying::Noted(told) => (told.len(), ITEMS_MAX, told.iter().all(Told::is_named)),
            Saying::Ask(asked) => {
                let named = asked.iter().all(|message| message.number > 0);
                (asked.len(), ASK_MAX, named)
            }
        };
        if count > most {
            return Err("it has more entries than such a message may have");
        }
        if !named {
            return Err("an entry of it says of no message");
        }
        if outside.meant_for.is_none() && !matches!(outside.saying, Saying::Hello { taken: 0, .. })
        {
            return Err("it does not say for which epoch it is meant");
        }
        Ok(outside)
    }
}
