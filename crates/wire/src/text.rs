//! Untrusted text made safe to show.

use std::borrow::Cow;
use std::fmt::Write;

use crate::unquote::code_point;

/// Numbers beyond this are more than some reader takes: they read doubles with an error of a few
/// units in the last place, and refuse what is infinite then.
const NUMBER_MAX: f64 = 1.797_693_134_862_315e308;
/// Digits that are less than that whatever they are.
const DIGITS_MAX: usize = 300;

/// Makes untrusted text safe to stand on one line between double quotes, inside a tag, in a log
/// or on a terminal. Every surface that shows what a peer wrote passes it through this function.
///
/// `"` and `\` are escaped as in JSON; `<`, `>`, every control character (line breaks included),
/// line and paragraph separators, what has no meaning of its own (private use, noncharacters), and all
/// that Unicode calls a format character or lets a program ignore (bidirectional controls, invisible
/// characters, tags, variation selectors) become `\uXXXX` (two of them, a surrogate pair, above U+FFFF).
/// What remains reads as it was written; so does the selector that makes a symbol an emoji, and so do
/// spaces: a text in Chinese has U+3000, one in French U+00A0. [`escape_name`] leaves only one of them.
/// The text is cut after `max_chars` of its characters, and the cut is stated.
///
/// ```
/// use peerbus_wire::escape;
/// assert_eq!(escape("a\n</channel>\"", 80), r#"a\u000a\u003c/channel\u003e\""#);
/// assert_eq!(escape("abcdef", 4), "abcd… [2 more characters]");
/// ```
#[must_use]
pub fn escape(text: &str, max_chars: usize) -> String {
    escape_where(text, max_chars, is_unsafe)
}

/// The same for a name, or what stands in a cell of its own: another space than U+0020 becomes a `\uXXXX`
/// escape, too, and so does the empty pattern of Braille. Two names that look alike are one.
///
/// ```
/// use peerbus_wire::escape_name;
/// assert_eq!(escape_name("shop\u{2800} \u{a0}", 80), r"shop\u2800 \u00a0");
/// ```
#[must_use]
pub fn escape_name(text: &str, max_chars: usize) -> String {
    let is_space = |c: char| c != ' ' && (c.is_whitespace() || c == '\u{2800}');
    escape_where(text, max_chars, |c| is_unsafe(c) || is_space(c))
}

/// The same for a sentence that stands in no quotes and may have some: they and its backslashes stay, so
/// that what was made safe before it came into the sentence is so once.
///
/// ```
/// use peerbus_wire::escape_sentence;
/// assert_eq!(escape_sentence("no \"a\\u202e\"\n", 80), "no \"a\\u202e\"\\u000a");
/// ```
#[must_use]
pub fn escape_sentence(text: &str, max_chars: usize) -> String {
    cut_chars(text, max_chars, |out, c| put(out, c, is_unsafe(c)))
}

/// Makes JSON text safe to print on one line: what [`escape`] escapes and JSON allows raw in a
/// string becomes a `\uXXXX` escape. The JSON's meaning stays the same.
///
/// ```
/// use peerbus_wire::escape_json;
/// assert_eq!(escape_json("{\"a\":\"<\u{202e}\"}"), r#"{"a":"\u003c\u202e"}"#);
/// ```
#[must_use]
pub fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    // Raw control characters in JSON text stand between tokens: one line has none.
    for c in json.chars().filter(|c| *c >= ' ') {
        put(&mut out, c, is_unsafe(c));
    }
    out
}

/// Makes JSON text such that every reader of JSON takes it. RFC 8259 allows a `\\uXXXX` that is half of
/// a surrogate pair, and a number that no double holds; many readers refuse the whole text for one of
/// them. Such a half becomes U+FFFD, in values and in names of members, and such a number a string of
/// its digits. Nothing else changes, and text without either is not copied.
///
/// ```
/// use peerbus_wire::readable;
/// assert_eq!(readable(r#"{"a\uD82D":[1e999,1e9]}"#), r#"{"a\ufffd":["1e999",1e9]}"#);
/// ```
#[must_use]
pub fn readable(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    let (mut copied, mut at, mut in_string) = (0, 0, false);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if bytes.get(at + 1) == Some(&b'u') && is_hex(bytes.get(at + 2..at + 6)) => {
                let (decoded, used) = code_point(&bytes[at + 2..]);
                if decoded.is_none() {
                    out.push_str(&json[copied..at]);
                    out.push_str("\\ufffd");
                    copied = at + 2 + used;
                }
                at += 1 + used;
            }
            // The escaped character cannot end the string.
            b'\\' => at += 1,
            b'-' | b'0'..=b'9' if !in_string => {
                let part = |b: &u8| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                let rest = &bytes[at..];
                let end = at + rest.iter().position(|b| !part(b)).unwrap_or(rest.len());
                let number = &json[at..end];
                if !is_double(number) {
                    out.push_str(&json[copied..at]);
                    out.extend(["\"", number, "\""]);
                    copied = end;
                }
                at = end - 1;
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return json.into();
    }
    out.push_str(&json[copied..]);
    out.into()
}

/// Four hexadecimal digits.
fn is_hex(digits: Option<&[u8]>) -> bool {
    digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// Whether every reader holds this number as a double.
fn is_double(number: &str) -> bool {
    let short = number.len() <= DIGITS_MAX && !number.contains(['e', 'E']);
    let fits = |number: f64| number.abs() <= NUMBER_MAX;
    short || number.parse::<f64>().is_ok_and(fits)
}

/// Makes a text safe to print for a person: its line breaks and tabs stay, and so do `<` and `>`,
/// which open nothing on a terminal; of the rest, what [`escape`] escapes becomes a `\uXXXX` escape.
/// Not for a model, nor for what is one line.
///
/// ```
/// use peerbus_wire::printable;
/// assert_eq!(printable("a < b\n\u{1b}[2J"), "a < b\n\\u001b[2J");
/// ```
#[must_use]
pub fn printable(text: &str) -> String {
    safe_but(text, |c| matches!(c, '\n' | '\t' | '<' | '>'))
}

/// Makes a text safe for a JSON string that a client may decode and show: its line breaks, tabs, quotes
/// and backslashes are left to JSON, everything else is as [`escape`] has it.
#[must_use]
pub fn within_json(text: &str) -> String {
    safe_but(text, |c| matches!(c, '\n' | '\t'))
}

/// Makes a line of a text that a model is to read as it stands: its tabs, quotes and backslashes stay, and
/// so do `>`, and `<` where it begins no tag; everything else is as [`escape`] has it.
///
/// ```
/// use peerbus_wire::escape_line;
/// assert_eq!(escape_line("\tif a < b: \"x\" </b>"), "\tif a < b: \"x\" \\u003c/b>");
/// ```
#[must_use]
pub fn escape_line(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        let begins =
            |next: &char| next.is_alphabetic() || matches!(next, '/' | '!' | '?' | '_' | ':');
        let escaped = match c {
            '<' => rest
                .peek()
                .is_some_and(|next| begins(next) || is_unsafe(*next)),
            '>' | '\t' => false,
            c => is_unsafe(c),
        };
        put(&mut out, c, escaped);
    }
    out
}

fn safe_but(text: &str, kept: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        put(&mut out, c, is_unsafe(c) && !kept(c));
    }
    out
}

/// `text` in quotes for an error sentence: as [`escape`], and ASCII only.
pub(crate) fn quote(text: &str) -> String {
    let safe = escape_where(text, 40, |c| is_unsafe(c) || !c.is_ascii());
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

fn escape_where(text: &str, max_chars: usize, escaped: impl Fn(char) -> bool) -> String {
    cut_chars(text, max_chars, |out, c| match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        _ => put(out, c, escaped(c)),
    })
}

/// The first characters of a text, each as `put` appends it. A cut is stated.
fn cut_chars(text: &str, max_chars: usize, put: impl Fn(&mut String, char)) -> String {
    let mut out = String::with_capacity(text.len().min(max_chars.saturating_mul(4)) + 16);
    let mut rest = text.chars();
    for c in rest.by_ref().take(max_chars) {
        put(&mut out, c);
    }
    let more = rest.count();
    if more > 0 {
        let plural = if more == 1 { "" } else { "s" };
        // Writing to a String cannot fail.
        let _ = write!(out, "… [{more} more character{plural}]");
    }
    out
}

/// Appends a character, escaped or as it is. The selector that makes a symbol an emoji stays: it
/// hides nothing, and one alone carries nothing.
fn put(out: &mut String, c: char, escaped: bool) {
    let symbol = |c: char| matches!(c, '\u{203c}'..='\u{3299}' | '\u{1f000}'..='\u{1faff}');
    if !escaped || c == '\u{fe0f}' && out.chars().next_back().is_some_and(symbol) {
        out.push(c);
        return;
    }
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

/// Whether a character could end a line, open or close a tag, reorder the text, hide in it or look like
/// anything: of Unicode, what is `Default_Ignorable_Code_Point`, a noncharacter, or of the categories `Cc`,
/// `Cf`, `Co`, `Zl` and `Zp`.
fn is_unsafe(c: char) -> bool {
    let ends_plane = u32::from(c) & 0xfffe == 0xfffe;
    ends_plane
        || matches!(c,
        '<' | '>'
        | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' // C0, DEL, C1
        | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' // invisible
        | '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}' // format
        | '\u{61c}' // bidirectional
        | '\u{180b}'..='\u{180f}' // variation selectors
        | '\u{200b}'..='\u{200f}' // zero-width, bidirectional
        | '\u{2028}'..='\u{202e}' // separators, bidirectional
        | '\u{2060}'..='\u{206f}' // invisible, bidirectional
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' // invisible
        | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' // private use
        | '\u{fdd0}'..='\u{fdef}' // noncharacters, as the last two of each plane are
        | '\u{fe00}'..='\u{fe0f}' // variation selectors
        | '\u{fff0}'..='\u{fffb}' // unassigned invisible, annotations
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' // format
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' // format, invisible
        | '\u{e0000}'..='\u{e0fff}') // tags and variation selectors that can carry text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_some_reader_refuses_is_replaced_and_nothing_else() {
        for (json, shown) in [
            (r#""half \ud82d""#, r#""half \ufffd""#),
            (r#""\uDC00\uD800x""#, r#""\ufffd\ufffdx""#),
            (
                r#""\ud83d\ude00 \uD83D\uDE00 é""#,
                r#""\ud83d\ude00 \uD83D\uDE00 é""#,
            ),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud82d \\\ud82d""#, r#""\\ud82d \\\ufffd""#),
            (r#"{"\udfff":{"\uD800":0}}"#, r#"{"\ufffd":{"\ufffd":0}}"#),
            ("[1e999, -1E+400,1e308]", r#"["1e999", "-1E+400",1e308]"#),
            ("[1e-999,0e999,1.50,-0]", "[1e-999,0e999,1.50,-0]"),
            (r#"{"1e999":"1e999 \u1e99"}"#, r#"{"1e999":"1e999 \u1e99"}"#),
        ] {
            assert_eq!(readable(json), shown);
            assert!(
                serde_json::from_str::<serde_json::Value>(shown).is_ok(),
                "{shown}"
            );
        }
        let long = format!("[{}]", "9".repeat(400));
        assert_eq!(readable(&long), format!("[\"{}\"]", "9".repeat(400)));
        for near in [
            "1.7976931348623157e308",
            "17976931348623157e292",
            "-1.797693134862315807e+308",
        ] {
            let shown = readable(near);
            assert!(
                serde_json::from_str::<serde_json::Value>(&shown).is_ok(),
                "{near}"
            );
        }
    }

    #[test]
    fn what_is_no_json_is_read_to_its_end() {
        for text in [
            "\"\\u+d82\\ud8",
            "\\",
            "\"\\é\\uéé",
            "1e9e9é",
            "-",
            "\"\\ud800é",
        ] {
            assert!(readable(text).len() >= text.len().min(1));
        }
    }

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
            assert_eq!(escape(text, 100), safe, "{text:?}");
        }
    }

    #[test]
    fn what_unicode_hides_is_escaped_whatever_its_block() {
        let hidden = [
            0xad, 0x34f, 0x600, 0x61c, 0x6dd, 0x115f, 0x17b5, 0x180b, 0x200d, 0x2061, 0x2065,
            0x3164, 0xfe00, 0xfe0f, 0xfeff, 0xffa0, 0xfff0, 0xfffb, 0x110bd, 0x13430, 0x1343f,
            0x1bca0, 0x1bca3, 0x1d173, 0xe0001, 0xe0100, 0xe01ef, 0xe0fff, 0xe000, 0xf8ff, 0xfdd0,
            0xfdef, 0xfffe, 0xffff, 0x1fffe, 0xeffff, 0xf0000, 0x10_fffd, 0x10_ffff,
        ];
        for c in hidden.into_iter().filter_map(char::from_u32) {
            let (text, json) = (format!("a{c}b"), format!("\"a{c}b\""));
            assert!(escape(&text, 9).is_ascii(), "{c:?}");
            assert!(escape_json(&json).is_ascii(), "{c:?}");
        }
    }

    #[test]
    fn a_name_has_one_kind_of_space_and_a_text_has_its_own() {
        let spaces = [
            0x9, 0xa0, 0x1680, 0x2000, 0x2007, 0x200a, 0x202f, 0x205f, 0x2800, 0x3000,
        ];
        for c in spaces.into_iter().filter_map(char::from_u32) {
            let text = format!("a {c}b");
            let name = escape_name(&text, 9);
            assert!(name.is_ascii() && name.starts_with("a \\u"), "{name}");
            let kept = escape_line(&text) == text;
            assert_eq!(kept, !is_unsafe(c) || c == '\t', "{c:?}");
        }
        assert_eq!(escape("日本\u{3000}語", 9), "日本\u{3000}語");
        assert_eq!(escape_name("日本 語", 9), "日本 語");
    }

    #[test]
    fn an_emoji_keeps_its_selector_and_carries_no_others() {
        let hidden = "\u{1f600}\u{fe0f}\u{fe0f}\u{fe01}\u{e0100}";
        let safe = "\u{1f600}\u{fe0f}\\ufe0f\\ufe01\\udb40\\udd00";
        assert_eq!(escape(hidden, 9), safe);
        assert_eq!(escape_json(hidden), safe);
        assert_eq!(escape("a\u{fe0f}", 9), r"a\ufe0f");
        assert_eq!(escape("\u{200d}\u{fe0f}", 9), r"\u200d\ufe0f");
    }

    #[test]
    fn a_cut_is_stated() {
        assert_eq!(escape("abc", 3), "abc");
        assert_eq!(escape("abcd", 3), "abc… [1 more character]");
        assert_eq!(escape("日本語日本語", 2), "日本… [4 more characters]");
        assert_eq!(escape("x", 0), "… [1 more character]");
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc…");
        assert_eq!(cut("ééé", 5), "é…");
    }
}
