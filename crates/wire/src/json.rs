//! JSON as bytes: a strict scanner that finds members and values without decoding them.
//!
//! It accepts exactly what RFC 8259 allows, except that strings may hold bytes that are not UTF-8
//! and nesting is bounded by [`DECODE_NESTING_MAX`]. It never recurses.

use crate::limits::DECODE_NESTING_MAX;
use crate::unquote::{Text, unquote};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// A validated value: its bytes without the white space around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) kind: Type,
    /// A string without a backslash.
    plain: bool,
    /// Open arrays and objects at its deepest point.
    pub(crate) depth: u16,
}

/// Offset of the first byte that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) at: usize,
    /// It is nested deeper than is read.
    pub(crate) deep: bool,
}

/// Reads `bytes` as one value. Of an object, `visit` gets every member, name first, in order;
/// what it gets counts only when the whole text turns out to be valid.
pub(crate) fn members<'a>(
    bytes: &'a [u8],
    mut visit: impl FnMut(Raw<'a>, Raw<'a>),
) -> Result<Raw<'a>, SyntaxError> {
    let mut scan = Scanner { bytes, at: 0 };
    scan.space();
    if scan.peek() != Some(b'{') {
        return scan.only_value();
    }
    let start = scan.at;
    let mut depth = 0;
    scan.at += 1;
    scan.space();
    if !scan.take(b'}') {
        loop {
            let name = scan.string_value()?;
            scan.colon()?;
            let value = scan.value(1)?;
            depth = depth.max(value.depth);
            visit(name, value);
            scan.space();
            if scan.take(b'}') {
                break;
            }
            scan.expect(b',')?;
            scan.space();
        }
    }
    let text = &bytes[start..scan.at];
    scan.end()?;
    Ok(Raw {
        text,
        kind: Type::Object,
        plain: false,
        depth: depth + 1,
    })
}

pub(crate) fn value(bytes: &[u8]) -> Result<Raw<'_>, SyntaxError> {
    let mut scan = Scanner { bytes, at: 0 };
    scan.space();
    scan.only_value()
}

impl<'a> Raw<'a> {
    /// The decoded string; `None` when the value is no string.
    pub(crate) fn string(&self) -> Option<Text<'a>> {
        (self.kind == Type::String).then(|| unquote(&self.text[1..self.text.len() - 1], self.plain))
    }

    pub(crate) fn bool(&self) -> Option<bool> {
        (self.kind == Type::Bool).then_some(self.text == b"true")
    }

    /// A number without sign, fraction and exponent; larger ones count as `u64::MAX`.
    pub(crate) fn unsigned(&self) -> Option<u64> {
        if self.kind != Type::Number || !self.text.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let digit = |n: u64, &b: &u8| n.saturating_mul(10).saturating_add(u64::from(b - b'0'));
        Some(self.text.iter().fold(0, digit))
    }

    /// The elements of an array; `None` when the value is none.
    pub(crate) fn elements(&self) -> Option<Vec<Raw<'a>>> {
        if self.kind != Type::Array {
            return None;
        }
        let mut scan = Scanner {
            bytes: self.text,
            at: 1,
        };
        let mut elements = Vec::new();
        scan.space();
        if scan.take(b']') {
            return Some(elements);
        }
        loop {
            scan.space();
            elements.push(scan.value(1).ok()?);
            scan.space();
            if scan.take(b']') {
                return Some(elements);
            }
            scan.expect(b',').ok()?;
        }
    }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn fail<T>(&self) -> Result<T, SyntaxError> {
        let (at, deep) = (self.at, false);
        Err(SyntaxError { at, deep })
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), SyntaxError> {
        if self.take(byte) { Ok(()) } else { self.fail() }
    }

    fn end(&mut self) -> Result<(), SyntaxError> {
        self.space();
        if self.at == self.bytes.len() {
            Ok(())
        } else {
            self.fail()
        }
    }

    fn only_value(mut self) -> Result<Raw<'a>, SyntaxError> {
        let value = self.value(0)?;
        self.end()?;
        Ok(value)
    }

    /// The colon after a member's name, and the white space around it.
    fn colon(&mut self) -> Result<(), SyntaxError> {
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(())
    }

    /// A value that starts here, inside `outer` open containers.
    fn value(&mut self, outer: usize) -> Result<Raw<'a>, SyntaxError> {
        let start = self.at;
        let (mut plain, mut depth) = (false, 0);
        let kind = match self.peek() {
            Some(b'"') => {
                plain = self.string()?;
                Type::String
            }
            Some(open @ (b'{' | b'[')) => {
                depth = self.container(outer)?;
                if open == b'{' {
                    Type::Object
                } else {
                    Type::Array
                }
            }
            _ => self.scalar()?,
        };
        Ok(Raw {
            text: &self.bytes[start..self.at],
            kind,
            plain,
            depth,
        })
    }

    fn string_value(&mut self) -> Result<Raw<'a>, SyntaxError> {
        let start = self.at;
        let plain = self.string()?;
        Ok(Raw {
            text: &self.bytes[start..self.at],
            kind: Type::String,
            plain,
            depth: 0,
        })
    }

    /// Skips an array or object with all that is in it and gives its depth.
    fn container(&mut self, outer: usize) -> Result<u16, SyntaxError> {
        let mut open = Nesting {
            depth: 0,
            objects: [0; DECODE_NESTING_MAX.div_ceil(64)],
        };
        let mut deepest = 0;
        loop {
            // A value starts here.
            let mut complete = true;
            match self.peek() {
                Some(bracket @ (b'{' | b'[')) => {
                    if outer + open.depth >= DECODE_NESTING_MAX {
                        let (at, deep) = (self.at, true);
                        return Err(SyntaxError { at, deep });
                    }
                    let object = bracket == b'{';
                    open.push(object);
                    deepest = deepest.max(open.depth);
                    self.at += 1;
                    self.space();
                    if self.take(if object { b'}' } else { b']' }) {
                        open.depth -= 1;
                    } else {
                        complete = false;
                        if object {
                            self.string()?;
                            self.colon()?;
                        }
                    }
                }
                Some(b'"') => {
                    self.string()?;
                }
                _ => {
                    self.scalar()?;
                }
            }
            while complete {
                if open.depth == 0 {
                    return Ok(u16::try_from(deepest).unwrap_or(u16::MAX));
                }
                complete = self.after_value(&mut open)?;
            }
        }
    }

    /// What follows a value inside a container: a close (true: a value is complete again) or a
    /// comma (false: the next value starts).
    fn after_value(&mut self, open: &mut Nesting) -> Result<bool, SyntaxError> {
        self.space();
        let object = open.innermost_is_object();
        if self.take(if object { b'}' } else { b']' }) {
            open.depth -= 1;
            return Ok(true);
        }
        self.expect(b',')?;
        self.space();
        if object {
            self.string()?;
            self.colon()?;
        }
        Ok(false)
    }

    /// Skips a string and says whether it has no backslash.
    fn string(&mut self) -> Result<bool, SyntaxError> {
        self.expect(b'"')?;
        let mut plain = true;
        loop {
            let rest = &self.bytes[self.at..];
            let stop = |&b: &u8| b < 0x20 || b == b'"' || b == b'\\';
            self.at += rest.iter().position(stop).unwrap_or(rest.len());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(plain);
                }
                Some(b'\\') => {
                    plain = false;
                    self.at += 1;
                    self.escape()?;
                }
                _ => return self.fail(),
            }
        }
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    let Some(b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') = self.peek() else {
                        return self.fail();
                    };
                    self.at += 1;
                }
            }
            _ => return self.fail(),
        }
        Ok(())
    }

    fn scalar(&mut self) -> Result<Type, SyntaxError> {
        match self.peek() {
            Some(b't') => self.word(b"true", Type::Bool),
            Some(b'f') => self.word(b"false", Type::Bool),
            Some(b'n') => self.word(b"null", Type::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.fail(),
        }
    }

    fn word(&mut self, word: &[u8], kind: Type) -> Result<Type, SyntaxError> {
        for &byte in word {
            self.expect(byte)?;
        }
        Ok(kind)
    }

    fn number(&mut self) -> Result<Type, SyntaxError> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(Type::Number)
    }

    fn digits(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            self.fail()
        } else {
            Ok(())
        }
    }
}

/// Which of the open containers are objects: one bit each.
struct Nesting {
    depth: usize,
    objects: [u64; DECODE_NESTING_MAX.div_ceil(64)],
}

impl Nesting {
    fn push(&mut self, object: bool) {
        let (word, bit) = (self.depth / 64, 1 << (self.depth % 64));
        if object {
            self.objects[word] |= bit;
        } else {
            self.objects[word] &= !bit;
        }
        self.depth += 1;
    }

    fn innermost_is_object(&self) -> bool {
        let last = self.depth - 1;
        self.objects[last / 64] & (1 << (last % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_says_where() {
        let cases: [(&[u8], usize); 14] = [
            (b"", 0),
            (b"  ", 2),
            (b"{", 1),
            (b"{\"a\" 1}", 5),
            (b"{\"a\":1,}", 7),
            (b"[1,]", 3),
            (b"[1 2]", 3),
            (b"[1}", 2),
            (b"{\"a\":[{]}", 7),
            (b"01", 1),
            (b"tru", 3),
            (b"\"a\x01\"", 2),
            (b"\"\\u12g4\"", 5),
            (b"1 1", 2),
        ];
        for (text, at) in cases {
            assert_eq!(
                value(text).err(),
                Some(SyntaxError { at, deep: false }),
                "{}",
                text.escape_ascii()
            );
            assert!(members(text, |_, _| {}).is_err(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn members_come_in_order_with_their_bytes() {
        let text = br#" { "a" : [ 1, {"b":[]} ] , "a":"x\n", "" : -1.5e3,"t":true } "#;
        let mut seen = Vec::new();
        let top = members(text, |name, value| {
            seen.push((name.text, value.text, value.kind, value.depth));
        });
        let expected: [(&[u8], &[u8], Type, u16); 4] = [
            (br#""a""#, br#"[ 1, {"b":[]} ]"#, Type::Array, 3),
            (br#""a""#, br#""x\n""#, Type::String, 0),
            (br#""""#, b"-1.5e3", Type::Number, 0),
            (br#""t""#, b"true", Type::Bool, 0),
        ];
        assert_eq!(seen, expected);
        assert_eq!(top.map(|top| (top.kind, top.depth)), Ok((Type::Object, 4)));
        let array = value(b"[ 1 , \"x\",[2,3] ]").unwrap();
        let elements: Vec<_> = array
            .elements()
            .unwrap()
            .iter()
            .map(|raw| raw.text)
            .collect();
        assert_eq!(elements, [b"1" as &[u8], b"\"x\"", b"[2,3]"]);
    }
}
