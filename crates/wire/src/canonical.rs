//! The canonical form: the bytes that are signed.

use crate::envelope::{DecodeError, Envelope};
use crate::json;

/// The eight signed members as bytes. String members may hold invalid UTF-8, which is written as
/// v1 writes it; `body` is raw JSON.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    /// `protocol_version`, `id`, `from`, `to`, `ts`, `source`, `kind`, in this order.
    pub strings: [&'a [u8]; 7],
    /// `body`; empty counts as `null`.
    pub body: &'a [u8],
}

/// What stands before each string member of the canonical form.
const LEADS: [&[u8]; 7] = [
    br#"{"protocol_version":""#,
    br#"","id":""#,
    br#"","from":""#,
    br#"","to":""#,
    br#"","ts":""#,
    br#"","source":""#,
    br#"","kind":""#,
];

/// The canonical form of `fields`.
///
/// # Errors
///
/// When the body is no JSON value or nests deeper than
/// [`crate::limits::DECODE_NESTING_MAX`].
pub fn canonical(fields: &Fields<'_>) -> Result<Vec<u8>, DecodeError> {
    if !fields.body.is_empty() {
        json::value(fields.body)?;
    }
    let mut out = Vec::with_capacity(capacity(fields));
    write_open(fields, &mut out);
    out.push(b'}');
    Ok(out)
}

impl Envelope {
    /// The canonical form of the envelope. See [`canonical`].
    ///
    /// # Errors
    ///
    /// As for [`canonical`].
    pub fn canonical(&self) -> Result<Vec<u8>, DecodeError> {
        canonical(&self.fields())
    }

    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields {
            strings: [
                self.protocol_version.as_bytes(),
                self.id.as_bytes(),
                self.from.as_bytes(),
                self.to.as_bytes(),
                self.ts.as_bytes(),
                self.source.as_bytes(),
                self.kind.as_bytes(),
            ],
            body: &self.body,
        }
    }
}

/// Room for the canonical form and the `hmac` of fields of which little needs an escape.
pub(crate) fn capacity(fields: &Fields<'_>) -> usize {
    let strings: usize = fields.strings.iter().map(|s| s.len()).sum();
    strings + fields.body.len() + fields.body.len() / 16 + 192
}

/// Writes the canonical form without its last brace. The body must be valid JSON.
pub(crate) fn write_open(fields: &Fields<'_>, out: &mut Vec<u8>) {
    for (lead, string) in LEADS.iter().zip(fields.strings) {
        out.extend_from_slice(lead);
        write_escaped(string, out);
    }
    out.extend_from_slice(br#"","body":"#);
    if fields.body.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        write_compact(fields.body, out);
    }
}

/// Writes the inside of a string: what JSON needs escaped, `<` `>` `&` U+2028 U+2029, and
/// `\ufffd` for each byte that is not UTF-8.
pub(crate) fn write_escaped(string: &[u8], out: &mut Vec<u8>) {
    let plain =
        |b: &u8| (0x20..0x7f).contains(b) && !matches!(b, b'"' | b'\\' | b'<' | b'>' | b'&');
    if string.iter().all(plain) {
        return out.extend_from_slice(string);
    }
    for chunk in string.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.extend_from_slice(br#"\""#),
                '\\' => out.extend_from_slice(br"\\"),
                '\u{8}' => out.extend_from_slice(br"\b"),
                '\t' => out.extend_from_slice(br"\t"),
                '\n' => out.extend_from_slice(br"\n"),
                '\u{c}' => out.extend_from_slice(br"\f"),
                '\r' => out.extend_from_slice(br"\r"),
                '\0'..'\u{20}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    write_unicode_escape(u32::from(c), out);
                }
                _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for _ in chunk.invalid() {
            out.extend_from_slice(br"\ufffd");
        }
    }
}

/// Writes valid JSON without the white space outside its strings and with `<` `>` `&` U+2028
/// U+2029 escaped; every other byte as it is.
pub(crate) fn write_compact(json: &[u8], out: &mut Vec<u8>) {
    let (mut copied, mut at, mut in_string) = (0, 0, false);
    while let Some(&byte) = json.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            // The escaped character cannot end the string.
            b'\\' => at += 1,
            b' ' | b'\t' | b'\n' | b'\r' if !in_string => {
                out.extend_from_slice(&json[copied..at]);
                copied = at + 1;
            }
            b'<' | b'>' | b'&' => {
                out.extend_from_slice(&json[copied..at]);
                write_unicode_escape(u32::from(byte), out);
                copied = at + 1;
            }
            0xe2 if matches!(json.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9])) => {
                out.extend_from_slice(&json[copied..at]);
                write_unicode_escape(0x2000 + u32::from(json[at + 2] & 0x7f), out);
                at += 2;
                copied = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    out.extend_from_slice(&json[copied..]);
}

fn write_unicode_escape(code: u32, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |shift: u32| HEX[(code >> shift) as usize & 15];
    out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}
