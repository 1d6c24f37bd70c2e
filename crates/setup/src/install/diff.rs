//! What changes, as a unified diff.

use similar::{ChangeTag, TextDiff};

use crate::text::escape;

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
    let long = has_long_change(&old, &new);
    let [old, new] = [old, new].map(|text| if long { pieces(&text).into() } else { text });
    let diff = TextDiff::from_lines(old.as_ref(), new.as_ref());
    let mut unified = diff.unified_diff();
    let text = unified.context_radius(CONTEXT).header(from, to).to_string();
    let mut shown = String::new();
    for line in text.lines() {
        shown.push_str(&escape(&masked(line), LINE_CHARS_MAX));
        shown.push('\n');
    }
    if long {
        shown.push_str("(long lines are shown in pieces; in the file they stay as they are)\n");
    }
    shown
}

/// Whether a line that changes is too long to see what changes in it.
fn has_long_change(old: &str, new: &str) -> bool {
    let diff = TextDiff::from_lines(old, new);
    diff.iter_all_changes().any(|change| {
        change.tag() != ChangeTag::Equal && change.value().chars().count() > LINE_CHARS_MAX
    })
}

/// JSON, or something like it, with one item on a line.
fn pieces(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (token, behind) = rest.split_at(token_len(rest));
        rest = behind;
        let bracket = matches!(c, '}' | ']');
        let before = out.trim_end_matches([' ', '\t']);
        if bracket && !before.ends_with(['\n', '{', '[']) {
            out.push('\n');
        }
        out.push_str(token);
        let ends = matches!(c, ',' | '{' | '[') || (bracket && rest.starts_with(['}', ']']));
        if ends
            && !rest
                .trim_start_matches([' ', '\t'])
                .starts_with(['\n', '\r', '}', ']'])
        {
            out.push('\n');
            rest = rest.trim_start_matches([' ', '\t']);
        }
    }
    out
}

/// The length of a quoted string that a text starts with, else of its first character.
fn token_len(text: &str) -> usize {
    let mut chars = text.char_indices();
    let Some((_, first)) = chars.next() else {
        return 0;
    };
    if !matches!(first, '"' | '\'') {
        return first.len_utf8();
    }
    let mut escaped = false;
    for (at, c) in chars {
        match c {
            '\n' => return at,
            _ if escaped => escaped = false,
            '\\' => escaped = first == '"',
            _ if c == first => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Hides what a neighbour keeps secret: what is shown may be read by others.
fn masked(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    // The name that was read last, whether it goes on, and whether its value comes.
    let (mut name, mut in_word, mut value) = ("", false, false);
    while let Some(c) = rest.chars().next() {
        let at = line.len() - rest.len();
        let (token, behind) = rest.split_at(token_len(rest));
        rest = behind;
        match c {
            '"' | '\'' if value && is_secret(name) => {
                out.push_str("\"…\"");
                if rest.starts_with(c) {
                    // A string over several lines.
                    return out;
                }
                value = false;
            }
            ' ' | '\t' => {
                out.push_str(token);
                in_word = false;
            }
            ':' | '=' => {
                out.push_str(token);
                (value, in_word) = (true, false);
            }
            _ => {
                out.push_str(token);
                let start = if in_word { at - name.len() } else { at };
                name = &line[start..at + token.len()];
                in_word = c.is_ascii_alphanumeric() || "_-.".contains(c);
                value = false;
            }
        }
    }
    out
}

fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 6] = ["token", "secret", "password", "key", "auth", "credential"];
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
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

    #[test]
    fn of_a_long_line_what_changes_is_shown() {
        let other = |n| format!(r#""hook-{n}": {{"command": "notify, {{[\"{n}\"]}}"}}"#);
        let others: Vec<_> = (0..40).map(other).collect();
        let before = format!("{{{}}}", others.join(","));
        let after = before.replace(&format!("{},", others[20]), "");
        assert_ne!(after, before);
        let (before, after) = (before.into_bytes(), after.into_bytes());
        for (before, after, sign) in [(&before, &after, '-'), (&after, &before, '+')] {
            let shown = unified("f", before, true, Some(after));
            let changed: Vec<_> = shown
                .lines()
                .skip(2)
                .filter(|line| line.starts_with(['+', '-']))
                .collect();
            let expected = [
                r#""hook-20": {"#,
                r#""command": "notify, {[\"20\"]}""#,
                "},",
            ];
            assert_eq!(
                changed,
                expected.map(|line| format!("{sign}{line}")),
                "{shown}"
            );
            assert!(shown.contains("long lines"), "{shown}");
        }
    }

    #[test]
    fn no_secret_on_a_shared_line_is_shown() {
        for (line, shows) in [
            (
                r#"{"a": {"env": {"API_KEY": "hu\"sh", "B": "c"}}}"#,
                r#"{"a": {"env": {"API_KEY": "…", "B": "c"}}}"#,
            ),
            (
                "env = { TOKEN = 'hush', B = \"c\" }",
                "env = { TOKEN = \"…\", B = \"c\" }",
            ),
            (
                r#"{"Authorization":"Bearer hush"}"#,
                r#"{"Authorization":"…"}"#,
            ),
            (r#"{"PEERBUS_TOKEN": "hush"}"#, r#"{"PEERBUS_TOKEN": "…"}"#),
            ("password = \"\"\"hush", "password = \"…\""),
            (
                r#"["--token", "b:c", "key"]"#,
                r#"["--token", "b:c", "key"]"#,
            ),
            (r#"{"keys": true, "b": "c"}"#, r#"{"keys": true, "b": "c"}"#),
        ] {
            let shown = unified("f", line.as_bytes(), true, None);
            assert!(
                shown.ends_with(&format!("\n-{shows}\n\\ No newline at end of file\n")),
                "{shown}"
            );
        }
    }
}
