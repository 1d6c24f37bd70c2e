//! What changes, as a unified diff.

use similar::TextDiff;

/// Lines of context.
const CONTEXT: usize = 3;
/// Longest line that is shown whole, in characters.
const LINE_CHARS_MAX: usize = 240;

/// The difference between two contents of a file; `None` stands for no file.
pub(crate) fn unified(path: &str, before: &[u8], existed: bool, after: Option<&[u8]>) -> String {
    let old = String::from_utf8_lossy(before);
    let new = String::from_utf8_lossy(after.unwrap_or_default());
    let from = if existed { path } else { "/dev/null" };
    let to = if after.is_some() { path } else { "/dev/null" };
    let diff = TextDiff::from_lines(old.as_ref(), new.as_ref());
    let mut unified = diff.unified_diff();
    let text = unified.context_radius(CONTEXT).header(from, to).to_string();
    let mut shown = String::new();
    for line in text.lines() {
        shown.push_str(&visible(&masked(line), LINE_CHARS_MAX));
        shown.push('\n');
    }
    shown
}

/// Hides what a neighbouring line keeps secret: what is shown may be read by others.
fn masked(line: &str) -> String {
    const SECRET: [&str; 6] = ["token", "secret", "password", "key", "auth", "credential"];
    let assigned = line.find([':', '=']);
    let Some(at) = assigned.filter(|_| line.starts_with([' ', '-', '+'])) else {
        return line.to_owned();
    };
    let (name, value) = line.split_at(at + 1);
    let name_low = name.to_ascii_lowercase();
    let secret = SECRET.iter().any(|word| name_low.contains(word));
    let quoted = value.trim_start().starts_with(['"', '\'']);
    if secret && quoted && !line.contains("PEERBUS_") {
        return format!("{name} \"…\"");
    }
    line.to_owned()
}

/// The start of a text, as it is but for what a terminal would obey or not show.
pub(crate) fn visible(text: &str, chars_max: usize) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbours_secret_is_not_shown() {
        let before = b"{\n  \"API_KEY\": \"hush\",\n  \"b\": 1\n}\n";
        let after = b"{\n  \"a\": 0,\n  \"API_KEY\": \"hush\",\n  \"b\": 1\n}\n";
        let shown = unified("f", before, true, Some(after));
        assert!(shown.contains("+  \"a\": 0,"), "{shown}");
        assert!(!shown.contains("hush"), "{shown}");
        assert!(shown.contains("\"b\": 1"), "{shown}");
    }

    #[test]
    fn a_file_that_comes_or_goes_says_so() {
        assert!(unified("f", b"", false, Some(b"x\n")).starts_with("--- /dev/null\n+++ f\n"));
        assert!(unified("f", b"x\n", true, None).starts_with("--- f\n+++ /dev/null\n"));
    }
}
