//! Decodes JSON strings the way v1 does.

use std::borrow::Cow;

/// A decoded string, and whether something in it had to be replaced by U+FFFD.
pub(crate) struct Text<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) replaced: bool,
}

/// Decodes what stands between the quotes of a validated string: every byte that is not UTF-8 and
/// every surrogate without its other half becomes U+FFFD.
pub(crate) fn unquote(inner: &[u8], plain: bool) -> Text<'_> {
    if plain && let Ok(text) = std::str::from_utf8(inner) {
        let (text, replaced) = (Cow::Borrowed(text), false);
        return Text { text, replaced };
    }
    let (mut text, mut replaced) = (String::with_capacity(inner.len()), false);
    let mut rest = inner;
    while let Some(at) = rest.iter().position(|&b| b == b'\\') {
        replaced |= push_lossy(&mut text, &rest[..at]);
        let code = rest.get(at + 1).copied().unwrap_or(b'\\');
        rest = rest.get(at + 2..).unwrap_or_default();
        let decoded = match code {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let (decoded, used) = code_point(rest);
                replaced |= decoded.is_none();
                rest = &rest[used..];
                decoded.unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            itself => char::from(itself),
        };
        text.push(decoded);
    }
    replaced |= push_lossy(&mut text, rest);
    Text {
        text: Cow::Owned(text),
        replaced,
    }
}

/// The character that `XXXX` or `XXXX\uXXXX` names (`None` for a lone surrogate), and how many
/// bytes that took.
pub(crate) fn code_point(after_u: &[u8]) -> (Option<char>, usize) {
    let unit = |bytes: Option<&[u8]>| {
        let text = std::str::from_utf8(bytes?).ok()?;
        u32::from_str_radix(text, 16).ok()
    };
    let high = unit(after_u.get(..4)).unwrap_or(0xd800);
    if let Some(decoded) = char::from_u32(high) {
        return (Some(decoded), 4);
    }
    let low = match after_u.get(4..6) {
        Some(b"\\u") => unit(after_u.get(6..10)),
        _ => None,
    };
    match (high, low) {
        (0xd800..=0xdbff, Some(low @ 0xdc00..=0xdfff)) => (
            char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)),
            10,
        ),
        _ => (None, 4),
    }
}

/// Appends bytes, one U+FFFD for each that is not part of valid UTF-8. Says whether there were any.
fn push_lossy(text: &mut String, bytes: &[u8]) -> bool {
    let mut replaced = false;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for _ in chunk.invalid() {
            text.push(char::REPLACEMENT_CHARACTER);
            replaced = true;
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    #[test]
    fn strings_decode_as_v1_decodes_them() {
        let cases: [(&[u8], &str, bool); 9] = [
            (br#""plain""#, "plain", false),
            (br#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t", false),
            (br#""\u00e9\ud83d\ude00""#, "é😀", false),
            (br#""\ud800x""#, "\u{fffd}x", true),
            (br#""\ud800\ud83d\ude00""#, "\u{fffd}😀", true),
            (br#""\ude00\ud800""#, "\u{fffd}\u{fffd}", true),
            (br#""\ud800\u0041""#, "\u{fffd}A", true),
            (b"\"a\xe2\x80z\xff\"", "a\u{fffd}\u{fffd}z\u{fffd}", true),
            (b"\"\\n\xf0\x90\x80\"", "\n\u{fffd}\u{fffd}\u{fffd}", true),
        ];
        for (json, text, replaced) in cases {
            let found = crate::json::value(json).unwrap().string().unwrap();
            assert_eq!(
                (&*found.text, found.replaced),
                (text, replaced),
                "{}",
                json.escape_ascii()
            );
        }
    }
}
