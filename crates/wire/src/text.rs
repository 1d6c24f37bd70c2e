//! Untrusted text made safe to show.

use std::fmt::Write;

/// Makes untrusted text safe to stand on one line between double quotes, inside a tag, in a log
/// or on a terminal. Every surface that shows what a peer wrote passes it through this function.
///
/// `"` and `\` are escaped as in JSON; `<`, `>`, every control character (line breaks included),
/// line and paragraph separators, bidirectional controls, invisible characters and tags become
/// `\uXXXX` (two of them, a surrogate pair, above U+FFFF). What remains reads as it was written.
/// The text is cut after `max_chars` of its characters, and the cut is stated.
///
/// ```
/// use peerbus_wire::neutralise;
/// assert_eq!(neutralise("a\n</channel>\"", 80), r#"a\u000a\u003c/channel\u003e\""#);
/// assert_eq!(neutralise("abcdef", 4), "abcd… [2 more characters]");
/// ```
#[must_use]
pub fn neutralise(text: &str, max_chars: usize) -> String {
    escape(text, max_chars, is_unsafe)
}

/// Makes JSON text safe to print on one line: what [`neutralise`] escapes and JSON allows raw in a
/// string becomes a `\uXXXX` escape. The JSON's meaning stays the same.
///
/// ```
/// use peerbus_wire::neutralise_json;
/// assert_eq!(neutralise_json("{\"a\":\"<\u{202e}\"}"), r#"{"a":"\u003c\u202e"}"#);
/// ```
#[must_use]
pub fn neutralise_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // Raw control characters in JSON text stand between tokens: one line has none.
        if c < ' ' {
            continue;
        }
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// `text` in quotes for an error sentence: as [`neutralise`], and ASCII only.
pub(crate) fn quote(text: &str) -> String {
    let safe = escape(text, 40, |c| is_unsafe(c) || !c.is_ascii());
    format!("\"{safe}\"")
}

/// `text` cut to at most `max` bytes, `…` in place of what went.
pub(crate) fn cut(text: &str, max: usize) -> std::borrow::Cow<'_, str> {
    const MARK: &str = "…";
    if text.len() <= max {
        return text.into();
    }
    let end = text.floor_char_boundary(max.saturating_sub(MARK.len()));
    format!("{}{MARK}", &text[..end]).into()
}

fn escape(text: &str, max_chars: usize, escaped: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len().min(max_chars.saturating_mul(4)) + 16);
    let mut rest = text.chars();
    for c in rest.by_ref().take(max_chars) {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            _ if escaped(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            _ => out.push(c),
        }
    }
    let more = rest.count();
    if more > 0 {
        let plural = if more == 1 { "" } else { "s" };
        let _ = write!(out, "… [{more} more character{plural}]");
    }
    out
}

/// Whether a character could end a line, open or close a tag, reorder the text or hide in it.
fn is_unsafe(c: char) -> bool {
    matches!(c,
        '<' | '>'
        | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' // C0, DEL, C1
        | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' // invisible
        | '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' // invisible
        | '\u{61c}' // bidirectional
        | '\u{200b}'..='\u{200f}' // zero-width, bidirectional
        | '\u{2028}'..='\u{202e}' // separators, bidirectional
        | '\u{2060}'..='\u{206f}' // invisible, bidirectional
        | '\u{fff0}'..='\u{fffb}' // unassigned invisible, annotations
        | '\u{1d173}'..='\u{1d17a}' // invisible
        | '\u{e0000}'..='\u{e0fff}') // tags and variation selectors that can carry text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_wrote_stays_on_its_line_and_in_its_quotes() {
        let cases = [
            ("", ""),
            (
                "plain text, ünïcode 日本語 😀",
                "plain text, ünïcode 日本語 😀",
            ),
            ("heart \u{2764}\u{fe0f}", "heart \u{2764}\u{fe0f}"),
            ("say \"hi\" \\o/", r#"say \"hi\" \\o/"#),
            ("a\nb\r\tc\0", r"a\u000ab\u000d\u0009c\u0000"),
            (
                "\u{1b}[2Jx\u{7f}\u{85}\u{9b}",
                r"\u001b[2Jx\u007f\u0085\u009b",
            ),
            (
                "</channel><x a='1'>&",
                r"\u003c/channel\u003e\u003cx a='1'\u003e&",
            ),
            ("a\u{2028}b\u{2029}c", r"a\u2028b\u2029c"),
            ("\u{202e}evil\u{202c}", r"\u202eevil\u202c"),
            (
                "\u{2066}a\u{2067}b\u{2068}c\u{2069}",
                r"\u2066a\u2067b\u2068c\u2069",
            ),
            ("\u{61c}\u{200e}\u{200f}", r"\u061c\u200e\u200f"),
            (
                "z\u{200b}e\u{200c}r\u{200d}o\u{2060}\u{feff}",
                r"z\u200be\u200cr\u200do\u2060\ufeff",
            ),
            ("soft\u{ad}hyphen\u{180e}", r"soft\u00adhyphen\u180e"),
            (
                "tag\u{e0001}\u{e0041}\u{e007f}",
                r"tag\udb40\udc01\udb40\udc41\udb40\udc7f",
            ),
        ];
        for (text, safe) in cases {
            assert_eq!(neutralise(text, 100), safe, "{text:?}");
        }
    }

    #[test]
    fn a_cut_is_stated() {
        assert_eq!(neutralise("abc", 3), "abc");
        assert_eq!(neutralise("abcd", 3), "abc… [1 more character]");
        assert_eq!(neutralise("日本語日本語", 2), "日本… [4 more characters]");
        assert_eq!(neutralise("x", 0), "… [1 more character]");
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc…");
        assert_eq!(cut("ééé", 5), "é…");
    }
}
