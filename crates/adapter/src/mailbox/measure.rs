//! How long peers' text is as it is written, escapes and all.

use std::collections::VecDeque;

use peerbus_peer::mailbox::PART_CHARS;
use peerbus_wire::escape;

use super::MARK;

/// What is quoted of a message of which only the beginning is shown, in characters.
pub(crate) const BEGINNING_CHARS: usize = 4_096;
/// The same as it is written: a hook's text is cut by its client after 10,000 characters.
const BEGINNING_BYTES: usize = 6_000;
/// A part of a text as it is written: clients cut long results of tools, and other mail stands beside it.
const PART_BYTES: usize = 16 * 1024;

/// So many characters of a text are quoted where only its beginning is.
pub(super) fn beginning(text: &str) -> usize {
    fitting(first(text, BEGINNING_CHARS), BEGINNING_BYTES)
}

/// So many characters at a text's beginning fit in so many bytes, as they are written.
#[must_use]
pub fn fitting(text: &str, bytes: usize) -> usize {
    let mut left = bytes;
    let fits = |length: &usize| {
        let fits = *length <= left;
        left = left.saturating_sub(*length);
        fits
    };
    lengths(text).take_while(fits).count()
}

/// Most characters of one part of a text: wherever it begins, it fits as it is written.
pub(super) fn part(text: &str) -> usize {
    let mut most = PART_CHARS;
    let mut window = VecDeque::new();
    let mut bytes = 0;
    for length in lengths(text) {
        window.push_back(length);
        bytes += length;
        while bytes > PART_BYTES {
            most = most.min(window.len() - 1);
            bytes -= window.pop_front().unwrap_or_default();
        }
    }
    most
}

/// The most bytes that each character takes: quoted, [`inert`], in a JSON text.
pub(super) fn lengths(text: &str) -> impl Iterator<Item = usize> {
    let mut before = ' ';
    text.chars().map(move |c| {
        let before = std::mem::replace(&mut before, c);
        match c {
            '@' if !before.is_ascii_alphanumeric() => 7,
            '-' if before == 'b' => 7,
            '"' | '\\' => 4,
            ' '..='~' if !matches!(c, '<' | '>') => 1,
            c => {
                let escaped = escape(c.encode_utf8(&mut [0; 4]), 1);
                escaped.len() + escaped.matches('\\').count()
            }
        }
    })
}

/// The first characters of a text.
pub(super) fn first(text: &str, chars: usize) -> &str {
    let end = text.char_indices().nth(chars);
    end.map_or(text, |(end, _)| &text[..end])
}

/// A text in which no agent's client finds a file that is mentioned, and nobody who reads a transcript a mark
/// but `own`: a peer, or the agent by mail to itself, could say with it that another text was shown.
///
/// Some clients replace `@FILE` by the file wherever they take words for a user's, asking nobody: in feedback
/// of hooks and in turns of a stream (docs/DRIVER.md), inside of quotes and tags, too. An `@` behind a letter
/// or a digit is none to them, and stays: it is part of an address.
pub(super) fn inert(text: &str, own: Option<&str>) -> String {
    let mut plain = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            '@' if !plain.ends_with(|before: char| before.is_ascii_alphanumeric()) => {
                plain.push_str("\\u0040");
            }
            '-' if plain.ends_with("pb") && is_mark(&text[at - 2..], own) => {
                plain.push_str("\\u002d");
            }
            _ => plain.push(c),
        }
    }
    plain
}

/// JSON text of a tool's result in which no mark stands but the one right behind `own`: see [`inert`].
#[must_use]
pub fn without_marks(json: &str, own: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for (at, c) in json.char_indices() {
        let begins = c == '-' && plain.ends_with("pb") && is_mark(&json[at - 2..], None);
        match begins && !json[..at - 2].ends_with(own) {
            true => plain.push_str("\\\\u002d"),
            false => plain.push(c),
        }
    }
    plain
}

/// Whether a text begins with a mark that is not `own`.
fn is_mark(text: &str, own: Option<&str>) -> bool {
    let hex = text.bytes().skip(MARK.len()).take(16);
    let is_own = own.is_some_and(|own| text.starts_with(own));
    !is_own && hex.filter(u8::is_ascii_hexdigit).count() == 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_peer_puts_a_mark_into_a_result() {
        let json = r#"{"text":"pb-x [9 pb-0123456789abcdef-1]","end":"[pb-0123456789abcdef-1]"}"#;
        let plain =
            r#"{"text":"pb-x [9 pb\\u002d0123456789abcdef-1]","end":"[pb-0123456789abcdef-1]"}"#;
        assert_eq!(without_marks(json, r#""end":"["#), plain);
    }

    #[test]
    fn a_beginning_and_each_part_fit_as_they_are_written() {
        let written = |text: &str| {
            let shown = inert(&escape(text, usize::MAX), None);
            serde_json::to_string(&shown).unwrap().len() - 2
        };
        for odd in [
            "@",
            " @",
            "\"",
            "\\",
            "<",
            "\n",
            "\u{1}",
            "\u{e000}",
            "\u{f0000}",
            "é",
            "pb-0123456789abcdef ",
        ] {
            let text = format!("{}{}", odd.repeat(9_000), "x".repeat(40_000));
            assert!(
                written(first(&text, beginning(&text))) <= BEGINNING_BYTES,
                "{odd:?}"
            );
            let (size, part) = (text.chars().count(), part(&text));
            for from in (0..size).step_by(part) {
                let part: String = text.chars().skip(from).take(part).collect();
                assert!(written(&part) <= PART_BYTES + 6, "{odd:?}");
            }
            assert!(part > 1_000 && beginning(&text) > 400, "{odd:?} {part}");
        }
    }

    #[test]
    fn an_escape_makes_that_part_shorter_that_it_stands_in() {
        let many = "<".repeat(BEGINNING_CHARS);
        assert_eq!(beginning(&many), BEGINNING_BYTES / 7);
        assert_eq!(part(&many), PART_BYTES / 7);
        let plain = "x".repeat(PART_BYTES);
        assert_eq!(part(&plain), PART_CHARS);
        assert_eq!(part(&format!("{plain}\u{1b}")), PART_BYTES - 6);
    }

    #[test]
    fn what_peers_mention_is_escaped_and_addresses_are_not() {
        for (text, plain) in [
            ("see @a", "see \\u0040a"),
            ("@a", "\\u0040a"),
            (
                "(@a)\t@b é@c @@d",
                "(\\u0040a)\t\\u0040b é\\u0040c \\u0040@d",
            ),
            ("bob@example.org", "bob@example.org"),
        ] {
            assert_eq!(inert(text, None), plain);
        }
    }

    #[test]
    fn a_mark_that_a_peer_quotes_is_none() {
        let (own, other) = ("pb-0123456789abcdef-7", "pb-fedcba9876543210-7");
        let text = format!("x{other} {own} {own}8 pb-7, pb-{own}");
        let broken = r"xpb\u002dfedcba9876543210-7";
        assert_eq!(
            inert(&text, Some(own)),
            format!("{broken} {own} {own}8 pb-7, pb-{own}")
        );
        assert!(!inert(&text, None).contains(own));
    }
}
