//! What changes, as a unified diff.

use similar::TextDiff;

use crate::text::escape;

const CONTEXT: usize = 3;
/// Longest line that is shown whole, in characters.
const LINE_CHARS_MAX: usize = 240;
/// A name with one of these in it has a value that is kept secret.
const SECRETS: [&str; 6] = ["token", "secret", "password", "key", "auth", "credential"];

/// The difference between two contents of a file; `None` stands for no file. Where a line that
/// changes is too long to see what changes in it, `plain` gives the contents in short lines.
pub(crate) fn unified(
    path: &str,
    before: Option<&str>,
    after: Option<&str>,
    plain: impl Fn(&str) -> Option<String>,
) -> String {
    let [from, to] = [before, after].map(|text| text.map_or("/dev/null", |_| path));
    let [old, new] = [before, after].map(Option::unwrap_or_default);
    let shown = diff(old, new, from, to);
    let long = |line: &str| line.starts_with(['+', '-']) && line.chars().count() > LINE_CHARS_MAX;
    let short = Some((old, new)).filter(|_| shown.lines().any(long));
    let short = short.and_then(|(old, new)| Some(diff(&plain(old)?, &plain(new)?, from, to)));
    let (shown, note) = match short {
        Some(short) => (
            short,
            "(shown in short lines; in the file they stay as they are)\n",
        ),
        None => (shown, ""),
    };
    let lines = shown
        .lines()
        .map(|line| escape(&masked(line), LINE_CHARS_MAX) + "\n");
    lines.chain([note.to_owned()]).collect()
}

fn diff(old: &str, new: &str, from: &str, to: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let mut unified = diff.unified_diff();
    unified.context_radius(CONTEXT).header(from, to).to_string()
}

/// Hides what a neighbour keeps secret: what is shown may be read by others. The rest of the line
/// goes with it.
fn masked(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let values = |word| {
        let found = lower.match_indices(word);
        found.filter_map(|(at, _)| Some(at + before_value(&line[at..])?))
    };
    match SECRETS.into_iter().flat_map(values).min() {
        Some(end) => format!("{} …", &line[..end]),
        None => line.to_owned(),
    }
}

/// The length of the end of a name and of the sign behind it.
fn before_value(text: &str) -> Option<usize> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let behind = text.trim_start_matches(in_name);
    let sign = behind.trim_start_matches(['"', '\'', ' ', '\t']);
    let has_value = sign.starts_with([':', '=']);
    has_value.then(|| text.len() - sign.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: Option<&str>, after: Option<&str>) -> String {
        unified("f", before, after, |text| {
            let read: serde_json::Value = serde_json::from_str(text).ok()?;
            serde_json::to_string_pretty(&read).ok()
        })
    }

    #[test]
    fn a_neighbours_secret_is_not_shown() {
        let before = "{\n  \"API_KEY\": \"hush\",\n  \"b\": 1\n}\n";
        let after = before.replace("{\n", "{\n  \"a\": 0,\n");
        let shown = shown(Some(before), Some(&after));
        assert!(shown.contains("+  \"a\": 0,"), "{shown}");
        assert!(!shown.contains("hush"), "{shown}");
        assert!(shown.contains("\"b\": 1"), "{shown}");
    }

    #[test]
    fn a_file_that_comes_or_goes_says_so() {
        assert!(shown(None, Some("x\n")).starts_with("--- /dev/null\n+++ f\n"));
        assert!(shown(Some("x\n"), None).starts_with("--- f\n+++ /dev/null\n"));
    }

    #[test]
    fn of_a_long_line_the_member_that_changes_is_shown() {
        let other = |n| format!(r#""hook-{n}": {{"command": "notify, {{[\"{n}\"]}}"}}"#);
        let others: Vec<_> = (10..50).map(other).collect();
        let before = format!("{{{}}}", others.join(","));
        let after = before.replace(&format!("{},", others[20]), "");
        for (before, after, sign) in [(&before, &after, '-'), (&after, &before, '+')] {
            let shown = shown(Some(before), Some(after));
            let changed = shown.lines().skip(2).filter(|line| line.starts_with(sign));
            let changed: Vec<_> = changed.map(|line| line[1..].trim()).collect();
            let expected = [
                r#""hook-30": {"#,
                r#""command": "notify, {[\"30\"]}""#,
                "},",
            ];
            assert_eq!(changed, expected, "{shown}");
            assert!(shown.contains("short lines"), "{shown}");
        }
    }

    #[test]
    fn no_secret_on_a_shared_line_is_shown() {
        for (line, shows) in [
            (
                r#"{"a": {"env": {"API_KEY": "hu\"sh", "B": "c"}}}"#,
                r#"{"a": {"env": {"API_KEY": …"#,
            ),
            ("env = { TOKEN = 'hush', B = \"c\" }", "env = { TOKEN = …"),
            (
                r#"{"Authorization":"Bearer hush"}"#,
                r#"{"Authorization": …"#,
            ),
            ("password = \"\"\"hush", "password = …"),
            (
                r#"["--token", "b:c", "key"]"#,
                r#"["--token", "b:c", "key"]"#,
            ),
        ] {
            let shown = shown(Some(line), None);
            assert!(
                shown.ends_with(&format!("\n-{shows}\n\\ No newline at end of file\n")),
                "{shown}"
            );
        }
    }
}
