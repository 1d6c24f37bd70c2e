//! Words that comments and documents must not hold: notes about how the work went instead of
//! about the code, and names that a reader of the repository cannot look up.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::Tree;

/// Marks of unfinished work.
const MARKS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];
/// Phrases that tell history.
const HISTORY: [&str; 5] = [
    "previously",
    "as requested",
    "for now",
    "refactored",
    "as discussed",
];
/// Words that, followed by a number, point at a tracker or a plan.
const TAGS: [&str; 7] = [
    "plan",
    "task",
    "phase",
    "issue",
    "milestone",
    "ticket",
    "step",
];
/// Places outside the repository. Spelled in two parts so that this file does not hold them.
const PLACES: [&str; 3] = [
    concat!("/work", "/shared"),
    concat!("/work", "/main"),
    concat!("/work", "/.library"),
];

/// Checks the comments of Rust files, and every text for places outside the repository.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let documents: BTreeSet<&str> = tree
        .files
        .keys()
        .filter_map(|p| p.rsplit('/').next())
        .collect();
    let mut found = Vec::new();
    for (path, file) in &tree.files {
        for (line, text) in (1..).zip(file.text.lines()) {
            let mut add = |rule, what, remedy: &str| {
                found.push(Violation {
                    path: path.clone(),
                    line,
                    rule,
                    what,
                    remedy: remedy.to_owned(),
                });
            };
            if let Some(place) = PLACES.iter().find(|place| text.contains(**place)) {
                add(
                    "place",
                    format!("`{place}` is outside the repository"),
                    "say it in the repository's own terms",
                );
            }
            let Some(comment) = comment(path, text, file.rust.as_ref().map(|r| &r.lines), line)
            else {
                continue;
            };
            if let Some(phrase) = banned(comment) {
                add(
                    "words",
                    format!("comment says `{phrase}`"),
                    "describe the code as it is; history is git's",
                );
            }
            if let Some(name) = unknown_document(comment, &documents) {
                add(
                    "document",
                    format!("comment cites `{name}`, which is not in the repository"),
                    "cite a document that a reader has",
                );
            }
        }
    }
    found
}

/// The comment on a line of a file, if files of its kind have comments that are checked.
fn comment<'a>(
    path: &str,
    text: &'a str,
    rust: Option<&'a Vec<super::rust::Line>>,
    line: usize,
) -> Option<&'a str> {
    if let Some(lines) = rust {
        return lines
            .get(line - 1)
            .map(|l| l.comment.as_str())
            .filter(|c| !c.is_empty());
    }
    let hashed = [
        ".py",
        ".sh",
        ".toml",
        ".yaml",
        ".yml",
        "Dockerfile",
        ".ci/run",
    ];
    if !hashed.iter().any(|end| path.ends_with(end)) {
        return None;
    }
    text.split_once('#').map(|(_, comment)| comment)
}

/// The first banned word or phrase in a comment.
fn banned(comment: &str) -> Option<String> {
    let words: Vec<&str> = comment
        .split(|c: char| !(c.is_alphanumeric() || c == '#'))
        .filter(|w| !w.is_empty())
        .collect();
    if let Some(mark) = words.iter().find(|word| MARKS.contains(word)) {
        return Some((*mark).to_owned());
    }
    let flat = format!(" {} ", words.join(" ").to_lowercase());
    if let Some(phrase) = HISTORY
        .iter()
        .find(|phrase| flat.contains(&format!(" {phrase} ")))
    {
        return Some((*phrase).to_owned());
    }
    let numbered = |pair: &&[&str]| {
        let number = pair[1].trim_start_matches('#');
        TAGS.contains(&pair[0].to_lowercase().as_str())
            && number.starts_with(|c: char| c.is_ascii_digit())
    };
    words.windows(2).find(numbered).map(|pair| pair.join(" "))
}

/// The first name of a Markdown file in a comment that no file of the repository has.
fn unknown_document(comment: &str, documents: &BTreeSet<&str>) -> Option<String> {
    comment
        .split(|c: char| !(c.is_alphanumeric() || "._-/".contains(c)))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.ends_with(".md") && *word != ".md")
        .find(|word| !documents.contains(word.rsplit('/').next().unwrap_or(word)))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        check(&Tree::of(&[(path, text), ("docs/REAL.md", "")]))
            .into_iter()
            .map(|v| (v.line, v.rule))
            .collect()
    }

    #[test]
    fn notes_about_the_work_are_found_in_comments_only() {
        let cases = [
            "// TODO: more",
            "let a; // FIXME",
            "/* Previously it was 5. */",
            "/// See task 12.",
            "//! Phase 3 of it.",
            "// as requested",
            "// issue #7",
            "// good enough for now",
        ];
        for text in cases {
            assert_eq!(found("crates/a/src/a.rs", text), [(1, "words")], "{text}");
        }
        let fine =
            "let a = \"TODO\"; let previously = 1;\n// A task of its own reads; 2 issues; todos.";
        assert_eq!(found("crates/a/src/a.rs", fine), []);
        assert_eq!(found("tests/v1/a.py", "x = 1\n# TODO"), [(2, "words")]);
    }

    #[test]
    fn places_outside_the_repository_are_found_in_any_text() {
        let text = format!("see\n{}/a", concat!("/work", "/shared"));
        assert_eq!(found("docs/OTHER.md", &text), [(2, "place")]);
    }

    #[test]
    fn a_cited_document_must_exist() {
        assert_eq!(
            found("crates/a/src/a.rs", "// See docs/REAL.md. And REAL.md"),
            []
        );
        assert_eq!(
            found("crates/a/src/a.rs", "// See GONE.md, part 2."),
            [(1, "document")]
        );
    }
}
