//! Text that stands in markup of the client's.

/// Longest text that stands in an attribute, in characters.
const ATTRIBUTE_CHARS: usize = 128;

/// A text that can stand in an attribute: names have no other characters than these, and whoever
/// lets one through does not get to forge an attribute.
pub(crate) fn plain(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@:-".contains(c);
    text.chars()
        .take(ATTRIBUTE_CHARS)
        .map(|c| if plain(c) { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_cannot_end_itself() {
        assert_eq!(plain("bob:2@host.x-1"), "bob:2@host.x-1");
        assert_eq!(plain("a\"b c\n<é>"), "a_b_c____");
        assert_eq!(plain(&"x".repeat(200)).len(), ATTRIBUTE_CHARS);
    }
}
