//! What peers wrote, quoted: on one line, between quotes that nothing inside them can close.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use peerbus_adapter::Kind;
use peerbus_wire::neutralise;
use serde_json::value::RawValue;

use super::letter::Mail;

/// Longest text of a message that is quoted whole, in characters.
pub(crate) const TEXT_CHARS: usize = 65_536;
/// What is quoted of a message of which only the beginning is shown, in characters.
pub(crate) const BEGINNING_CHARS: usize = 4_096;
/// The same with its escapes, in bytes: a hook's text is cut by its client after 10,000 characters.
const BEGINNING_BYTES: usize = 6_000;
/// Longest name or id that is shown, in characters.
const NAME_CHARS: usize = 128;

/// Members of a body that tell its place in a conversation, and are shown apart from its text.
const CONVERSATION: [&str; 4] = ["reply_to", "thread", "priority", "hops"];

/// How a message is shown on a line of its own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Showing {
    /// It may have been shown before.
    pub(crate) repeat: bool,
    /// Only its beginning.
    pub(crate) cut: bool,
}

/// A message as one line: `📨 msg from bob [ID] (…): "TEXT"`.
pub(crate) fn line(mail: &Mail, how: Showing) -> String {
    let inbound = &mail.inbound;
    let mut line = format!(
        "📨 {} from {} [{}]",
        kind(inbound.kind),
        plain(&inbound.from),
        plain(&inbound.id)
    );
    // Writing to a String cannot fail.
    if how.repeat {
        line.push_str(" (shown before)");
    }
    if let Some(id) = &mail.talk.reply_to {
        let _ = write!(line, " (reply to {})", plain(id.as_str()));
    }
    if let Some(thread) = &mail.talk.thread {
        let _ = write!(line, " (thread {})", plain(thread));
    }
    if let Some(to) = &inbound.to {
        let _ = write!(line, " (sent to {})", plain(to));
    }
    let _ = write!(line, ": {}", quoted(&said(&inbound.body), how.cut));
    line
}

/// A text in quotes. A cut is stated after them, where no peer can write.
pub(crate) fn quoted(text: &str, beginning: bool) -> String {
    let (chars, bytes) = if beginning {
        (BEGINNING_CHARS, BEGINNING_BYTES)
    } else {
        (TEXT_CHARS, usize::MAX)
    };
    let mut max = chars;
    loop {
        let end = text
            .char_indices()
            .nth(max)
            .map_or(text.len(), |(end, _)| end);
        let (shown, rest) = text.split_at(end);
        let shown = neutralise(shown, usize::MAX);
        if shown.len() > bytes {
            // Escapes take more room than what they stand for.
            max = max.min(shown.len()) * bytes / shown.len();
            continue;
        }
        return match rest.chars().count() {
            0 => format!("\"{shown}\""),
            more => format!(
                "\"{shown}\"… [{more} more characters: read all of it with the bus inbox tool, \
                 `ids`]"
            ),
        };
    }
}

/// What a body says: itself if it is a text, else its `text`, `message` or `content` if that is
/// one, else its JSON.
pub(crate) fn said(body: &str) -> Cow<'_, str> {
    if let Ok(text) = serde_json::from_str::<String>(body) {
        return text.into();
    }
    let members = members(body);
    let said = ["text", "message", "content"]
        .iter()
        .filter_map(|key| members.get(*key))
        .find_map(|value| serde_json::from_str::<String>(value.get()).ok());
    said.map_or(Cow::Borrowed(body), Cow::Owned)
}

/// All that a body says besides its place in a conversation: its text, if there is nothing else in
/// it, or its JSON.
pub(crate) fn all_of(body: &str) -> Cow<'_, str> {
    if let Ok(text) = serde_json::from_str::<String>(body) {
        return text.into();
    }
    let mut members = members(body);
    members.retain(|name, _| !CONVERSATION.contains(&name.as_str()));
    let only = members.first_key_value().filter(|_| members.len() == 1);
    let text = only
        .filter(|(name, _)| *name == "text")
        .and_then(|(_, value)| serde_json::from_str::<String>(value.get()).ok());
    text.map_or(Cow::Borrowed(body), Cow::Owned)
}

fn members(body: &str) -> BTreeMap<String, Box<RawValue>> {
    serde_json::from_str(body).unwrap_or_default()
}

/// A text for a JSON string that a client may decode and show: its line breaks, tabs, quotes and
/// backslashes are left to JSON, everything else is as [`neutralise`] has it.
pub(crate) fn within_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let kept = |c: char| matches!(c, '\n' | '\t' | '"' | '\\');
        if kept(c) {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let end = rest.find(kept).unwrap_or(rest.len());
        out.push_str(&neutralise(&rest[..end], usize::MAX));
        rest = &rest[end..];
    }
    out
}

/// The word for a kind.
pub(crate) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Msg => "msg",
        Kind::Broadcast => "broadcast",
    }
}

/// A text that can stand in an attribute or outside quotes: names, ids and sources have no other
/// characters than these, and whoever lets one through does not get to forge an attribute.
pub(crate) fn plain(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@:-".contains(c);
    text.chars()
        .take(NAME_CHARS)
        .map(|c| if plain(c) { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_its_text_and_inbox_readers_miss_nothing_else() {
        let cases = [
            (r#""hello""#, "hello", "hello"),
            (
                r#"{"text":"t","message":"m"}"#,
                "t",
                r#"{"text":"t","message":"m"}"#,
            ),
            (r#"{"text":"t","reply_to":"1","hops":2}"#, "t", "t"),
            (
                r#"{"text":7,"message":"m"}"#,
                "m",
                r#"{"text":7,"message":"m"}"#,
            ),
            (
                r#"{"content":"c","n":1e400}"#,
                "c",
                r#"{"content":"c","n":1e400}"#,
            ),
            (
                r#"{"n":1.50,"a":[]}"#,
                r#"{"n":1.50,"a":[]}"#,
                r#"{"n":1.50,"a":[]}"#,
            ),
            ("[1,2]", "[1,2]", "[1,2]"),
            ("null", "null", "null"),
            ("1e400", "1e400", "1e400"),
        ];
        for (body, short, all) in cases {
            assert_eq!((&*said(body), &*all_of(body)), (short, all), "{body}");
        }
    }

    #[test]
    fn a_cut_is_stated_outside_the_quotes() {
        let text = "x".repeat(BEGINNING_CHARS + 7);
        let shown = quoted(&text, true);
        assert!(
            shown.contains("x\"… [7 more characters"),
            "{}",
            &shown[4_000..]
        );
        assert_eq!(quoted(&text, false), format!("\"{text}\""));
        let long = "x".repeat(TEXT_CHARS + 1);
        assert!(quoted(&long, false).contains("\"… [1 more characters"));
        let escaped = quoted(&"<".repeat(BEGINNING_CHARS), true);
        assert!(escaped.len() < BEGINNING_BYTES + 100 && escaped.contains("c\"… [3096 more"));
    }

    #[test]
    fn what_a_client_decodes_from_json_is_safe_and_keeps_its_lines() {
        let text = "a\n\t\"b\\\"</x>\u{202e}\u{1b}[2J é";
        let shown = within_json(text);
        assert_eq!(shown, "a\n\t\"b\\\"\\u003c/x\\u003e\\u202e\\u001b[2J é");
    }
}
