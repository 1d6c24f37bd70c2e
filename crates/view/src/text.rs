//! What peers wrote, made fit to be shown.

use peerbus_wire::{How, PeerName, Stage, escape, escape_sentence};

/// Longest reason that is repeated, in characters.
pub(crate) const REASON_CHARS: usize = 300;
/// Longest name, in characters.
pub(crate) const NAME_CHARS: usize = 64;
/// Longest word for a path or for evidence, in bytes.
const WORD_BYTES: usize = 16;

/// A reason that a peer gave, in quotes and under its name.
#[must_use]
pub fn says(name: &str, reason: &str) -> String {
    let (name, reason) = (escape(name, NAME_CHARS), escape(reason, REASON_CHARS));
    match reason.as_str() {
        "" => format!("{name} gives no reason"),
        reason => format!("{name} says: \"{reason}\""),
    }
}

/// Why a message was rejected, in quotes. Under its recipient's name, unless that is in another domain: brokers
/// and bridges on the way there have reasons of their own, and say in them who they are.
#[must_use]
pub fn rejected(to: &str, reason: &str) -> String {
    let abroad = PeerName::parse(to).is_ok_and(|name| name.address().is_some());
    match escape(reason, REASON_CHARS).as_str() {
        quoted if abroad && !quoted.is_empty() => format!("the reason given is \"{quoted}\""),
        _ => says(to, reason),
    }
}

/// A sentence of the broker's about a delivery to `to`: in it words of peers stand in quotes, escaped. Of
/// another domain's broker that is not known.
pub(crate) fn of_broker(to: &str, sentence: &str) -> String {
    let abroad = PeerName::parse(to).is_ok_and(|name| name.address().is_some());
    match abroad {
        true => escape(sentence, REASON_CHARS),
        false => escape_sentence(sentence, REASON_CHARS),
    }
}

/// How the gate for answers is opened, which this file keeps.
#[must_use]
pub fn opens_approve(file: &str) -> String {
    format!("a person opens it with `approve = true` in {file}, at once also for what is asked now")
}

/// What others wrote, in quotes, in a sentence that may name a command: nothing in it reads like one.
#[must_use]
pub fn quoted(text: &str, chars: usize) -> String {
    let text = escape(text, chars).replace(['`', '"'], "'");
    format!("\"{text}\"")
}

/// Whether this names a terminal: `pts/3`, `tty1`.
pub(crate) fn is_terminal(name: &str) -> bool {
    let number = name.strip_prefix("pts/").or(name.strip_prefix("tty"));
    number.is_some_and(|it| {
        !it.is_empty() && it.len() < 8 && it.bytes().all(|b| b.is_ascii_alphanumeric())
    })
}

/// A length of time as a person says it, in one unit: `40 s`, `3 min`, `5 h`, `2 days`.
#[must_use]
pub fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// How long ago something was, as a person says it: `just now`, `40 s ago`.
#[must_use]
pub fn ago(at_ms: u64, now_ms: u64) -> String {
    match now_ms.saturating_sub(at_ms) / 1_000 {
        0 => "just now".to_owned(),
        seconds => format!("{} ago", span(seconds)),
    }
}

/// A word that a peer chose for a path or for evidence, without [how much](shown) was shown by it.
/// What has not the form of one is not repeated: it stands outside of quotes.
#[must_use]
pub fn word(text: &str) -> &str {
    let text = match shown(text) {
        Some(_) => text.split(' ').next().unwrap_or_default(),
        None => text,
    };
    let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if plain && (1..=WORD_BYTES).contains(&text.len()) {
        text
    } else {
        "other"
    }
}

/// How much of a message was shown, and of how much, in characters, where a path says that it was a
/// part: `inbox 16384/40000`.
#[must_use]
pub fn shown(path: &str) -> Option<(u64, u64)> {
    let (_, part) = path.split_once(' ')?;
    let (shown, of) = part.split_once('/')?;
    Some((shown.parse().ok()?, of.parse().ok()?))
}

/// What evidence shows, as part of a sentence; `None` for a word that none of our adapters says.
/// A peer chose it: it may be made up.
#[must_use]
pub fn proof(evidence: &str) -> Option<&'static str> {
    Some(match evidence {
        "transcript" => "shown by its transcript",
        "model_call" => "shown by a call of its model",
        "tool_result" => "which read it with a tool",
        "tool_call" => "which named it in a tool call",
        _ => return None,
    })
}

/// Whether a message is acked as seen with evidence that is known here. Other evidence is a claim.
#[must_use]
pub fn is_proven(stage: &Stage) -> bool {
    match stage {
        Stage::Acked(Some(How::Seen { evidence, .. })) => proof(evidence).is_some(),
        _ => false,
    }
}
