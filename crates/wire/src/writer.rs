//! Writes the JSON of control frames: compact, members in the order of the calls.

use crate::PROTOCOL_VERSION;
use crate::canonical::write_escaped;

pub(crate) struct Writer {
    out: Vec<u8>,
    /// A value stands before the next one in the same container.
    comma: bool,
}

impl Writer {
    /// Opens a control frame: `{"protocol_version":"v1","type":KIND`.
    pub(crate) fn frame(kind: &str) -> Self {
        let mut writer = Self::open();
        writer
            .string("protocol_version", PROTOCOL_VERSION)
            .string("type", kind);
        writer
    }

    pub(crate) fn open() -> Self {
        let mut writer = Self {
            out: Vec::with_capacity(128),
            comma: false,
        };
        writer.begin(b'{');
        writer
    }

    /// Opens an array or an object as the next element.
    pub(crate) fn begin(&mut self, bracket: u8) -> &mut Self {
        self.separate();
        self.out.push(bracket);
        self.comma = false;
        self
    }

    /// Closes what [`Writer::begin`] opened.
    pub(crate) fn end(&mut self, bracket: u8) -> &mut Self {
        self.out.push(bracket);
        self.comma = true;
        self
    }

    /// The name of the next value.
    pub(crate) fn name(&mut self, name: &str) -> &mut Self {
        self.separate();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.comma = false;
        self
    }

    /// A string as the next element, or as the value of the last name.
    pub(crate) fn element(&mut self, text: &str) -> &mut Self {
        self.separate();
        self.out.push(b'"');
        write_escaped(text.as_bytes(), &mut self.out);
        self.out.push(b'"');
        self.comma = true;
        self
    }

    pub(crate) fn string(&mut self, name: &str, text: &str) -> &mut Self {
        self.name(name).element(text)
    }

    pub(crate) fn number(&mut self, name: &str, number: u64) -> &mut Self {
        self.raw(name, number.to_string())
    }

    /// A string, if there is one.
    pub(crate) fn some_string(&mut self, name: &str, text: Option<impl AsRef<str>>) -> &mut Self {
        match text {
            Some(text) => self.string(name, text.as_ref()),
            None => self,
        }
    }

    /// A number, if there is one.
    pub(crate) fn some_number(&mut self, name: &str, number: Option<u64>) -> &mut Self {
        match number {
            Some(number) => self.number(name, number),
            None => self,
        }
    }

    /// `true`, if it is set.
    pub(crate) fn flag(&mut self, name: &str, set: bool) -> &mut Self {
        match set {
            true => self.raw(name, "true"),
            false => self,
        }
    }

    /// A member whose value is JSON already.
    pub(crate) fn raw(&mut self, name: &str, json: impl AsRef<[u8]>) -> &mut Self {
        self.name(name);
        self.out.extend_from_slice(json.as_ref());
        self.comma = true;
        self
    }

    /// A member as it stands elsewhere: its name with the quotes, and its value.
    pub(crate) fn keep(&mut self, name: &[u8], json: &[u8]) {
        self.separate();
        for part in [name, b":", json] {
            self.out.extend_from_slice(part);
        }
        self.comma = true;
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn finish(mut self) -> String {
        self.end(b'}');
        // Only whole strings and ASCII were written.
        String::from_utf8(self.out).unwrap_or_default()
    }

    fn separate(&mut self) {
        if self.comma {
            self.out.push(b',');
        }
    }
}
