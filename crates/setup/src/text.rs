//! Other people's words, safe to show.

/// The start of a text, as it is but for what a terminal would obey or not show.
pub(crate) fn escape(text: &str, chars_max: usize) -> String {
    let begins: String = text.chars().take(chars_max).collect();
    let mut shown = peerbus_adapter::printable(&begins).replace('\n', "\\n");
    let count = text.chars().count();
    if count > chars_max {
        shown.push_str(&format!("… (cut here, {count} characters in all)"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_shown_and_quotes_stay() {
        let shown = escape("\"a\\b\"\t<c>\n\u{1b}\u{3164}\u{202e}", 80);
        assert_eq!(shown, "\"a\\b\"\t<c>\\n\\u001b\\u3164\\u202e");
        assert_eq!(escape("abc", 2), "ab… (cut here, 3 characters in all)");
    }
}
