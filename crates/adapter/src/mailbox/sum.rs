//! Whether a text, or a result of ours, is all there where its mark stands: clients cut the end, or the middle, out
//! of what is too long.

use serde_json::Value;

/// The member of a tool's result in which mail goes along, and the one that says what in its call was replaced.
/// Our modules in clients know both, too.
pub const ALONG: &str = "unseen";
/// See [`ALONG`].
pub const REPLACED: &str = "replaced";
/// The largest prime below 2^26: a product of two numbers below it is exact in JavaScript, too.
const PRIME: u64 = 67_108_859;

/// Proves that a text is all there: how many UTF-16 code units it has, and the value modulo a prime of the
/// polynomial whose coefficients are its characters. The sums of several texts add up. The point at which it is
/// taken comes from the mark, which no peer can guess: a client that puts something else of the same length in the
/// place of what it cut has another value, but for as many cases in 67 million as the text has characters at most.
#[derive(Debug)]
pub struct Sum {
    point: u64,
    units: usize,
    value: u64,
}

impl Sum {
    fn new(mark: &str) -> Self {
        let digits = mark.get(3..16).unwrap_or_default();
        let point = u64::from_str_radix(digits, 16).unwrap_or_default() % PRIME;
        Self {
            point,
            units: 0,
            value: 0,
        }
    }

    /// That of a text, as it stands before its mark.
    #[must_use]
    pub fn of_text(text: &str, mark: &str) -> String {
        let mut sum = Self::new(mark);
        sum.add(text);
        sum.word()
    }

    /// That of all texts in a result of ours, names of members included, without what is put to it once its end is
    /// written. Clients write numbers anew, each in its own way.
    #[must_use]
    pub fn of_result(result: &Value, mark: &str) -> String {
        let mut sum = Self::new(mark);
        for (name, value) in result.as_object().into_iter().flatten() {
            if !["end", ALONG, REPLACED].contains(&name.as_str()) {
                sum.add(name);
                sum.add_all(value);
            }
        }
        sum.word()
    }

    /// Whether this is the sum of the end of a text: some clients join the texts of a result, or put words before.
    pub(crate) fn ends(text: &str, sum: &str, mark: &str) -> bool {
        let units = sum.split('.').next().and_then(|units| units.parse().ok());
        let mut have = 0;
        let lacks = |(_, c): &(usize, char)| {
            let lacks = Some(have) < units;
            have += c.len_utf16();
            lacks
        };
        let from = text.char_indices().rev().take_while(lacks).last();
        let from = from.map_or(text.len(), |(from, _)| from);
        Self::of_text(&text[from..], mark) == sum
    }

    fn add_all(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add(text),
            Value::Array(all) => all.iter().for_each(|value| self.add_all(value)),
            Value::Object(members) => members.iter().for_each(|(name, value)| {
                self.add(name);
                self.add_all(value);
            }),
            _ => {}
        }
    }

    fn add(&mut self, text: &str) {
        let add = |value, c: char| (value * self.point + u64::from(c)) % PRIME;
        self.value = (self.value + text.chars().fold(0, add)) % PRIME;
        self.units += text.encode_utf16().count();
    }

    fn word(&self) -> String {
        format!("{}.{}", self.units, self.value)
    }
}
