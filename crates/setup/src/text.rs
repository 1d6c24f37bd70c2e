//! Other people's words, safe to show.

/// The start of a text, as it is but for what a terminal would obey or not show.
pub(crate) fn escape(text: &str, chars_max: usize) -> String {
    let mut shown = String::new();
    for c in text.chars().take(chars_max) {
        match c {
            '"' | '\'' | '\\' | '\t' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    let count = text.chars().count();
    if count > chars_max {
        shown.push_str(&format!("… (cut here, {count} characters in all)"));
    }
    shown
}
