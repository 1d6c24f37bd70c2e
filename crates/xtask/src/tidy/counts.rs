//! What must not grow: of each of these one more is a second way to do what is done already.
//!
//! A count that falls is written down here in the same change; one that has to rise needs a reason that
//! its reader accepts.

use std::collections::BTreeMap;

use super::Violation;
use super::prose::Prose;
use super::tree::{Line, Tree};

/// Files of production code that have a line of some kind.
struct Count {
    what: &'static str,
    line: fn(&str) -> bool,
    most: usize,
    remedy: &'static str,
}

const COUNTS: [Count; 7] = [
    // The wire's stages, a session's node and its plugins, and permissions in the driven client's stream.
    Count {
        what: "files that define frames told apart by a tag, as a protocol does",
        line: |line| line.contains("serde(tag = "),
        most: 4,
        remedy: "add to a protocol that is there: the wire, the operator's API, a session's socket",
    },
    // The broker (TCP and Unix), the gateway, a session's socket, receipts of Claude Code's inbox, sdk-url.
    Count {
        what: "files that listen",
        line: |line| line.contains("Listener::bind(") || line.contains(".listen(BACKLOG"),
        most: 6,
        remedy: "serve it where something listens already",
    },
    // The bounded reader itself, HTTP's head from the broker's socket, an answer at a terminal.
    Count {
        what: "files that read lines by hand",
        line: |line| {
            line.contains("read_until(")
                || line.contains(".read_line(")
                || line.contains("LinesCodec::new")
        },
        most: 3,
        remedy: "use the reader of bounded lines",
    },
    // The module of the messages.
    Count {
        what: "files that write JSON-RPC by hand",
        line: |line| line.contains("\"2.0\""),
        most: 1,
        remedy: "use the messages that stand in one module",
    },
    // Private files, and the files of clients that install edits.
    Count {
        what: "files that read TOML of ours",
        line: |line| line.contains("toml::from_str"),
        most: 2,
        remedy: "put it into a file that is there",
    },
    // The system's modules, and where Claude Code's managed settings are.
    Count {
        what: "files that ask which system this is",
        line: |line| line.contains("target_os"),
        most: 2,
        remedy: "ask for what is wanted in the crate of the operating system, and answer it for each",
    },
    // The view's lines and sentences, the names of the operator's events, the exit word of `send --wait`.
    Count {
        what: "files that turn a stage into words",
        line: |line| line.contains("Stage::") && line.contains("=> \""),
        most: 4,
        remedy: "print the words of the one view of a message",
    },
];

/// Of each 1,000 sentences of documents so many may have more than 40 words, and so many may begin with
/// a relative clause.
const LONG_PER_MILLE: usize = 5;
const SUBJECTS_PER_MILLE: usize = 2;
/// Words of all documents together outside of code, the list of changes and the table of seeds apart.
const WORDS: usize = 38_500;
/// Sentences of documentation comments that have more than 40 words, and those that begin with a
/// relative clause. A fall of some is written down here.
const COMMENTS_LONG: usize = 30;
const COMMENTS_SUBJECTS: usize = 1_345;
/// How far below a count of comments nothing has to be written down: changes that meet shift it.
const SLACK: usize = 30;

/// Checks the counts, and that a public type's name stands once in the workspace.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let files: Vec<_> = tree.rust().filter(|(path, _)| is_ours(path)).collect();
    let mut found = Vec::new();
    for count in &COUNTS {
        let has = |line: &Line| !line.test && (count.line)(line.code);
        let paths: Vec<&str> = files
            .iter()
            .filter(|(_, lines)| lines.iter().any(has))
            .map(|(path, _)| *path)
            .collect();
        if paths.len() != count.most {
            let what = format!(
                "{} {}, where {} are counted: {}",
                paths.len(),
                count.what,
                count.most,
                paths.join(", ")
            );
            found.push(Violation::new(file!(), 0, "count", what, count.remedy));
        }
    }
    found.extend(doubles(&files));
    found.extend(prose(tree));
    found
}

/// What reads worse than it did.
fn prose(tree: &Tree) -> Vec<Violation> {
    let (documents, comments) = (Prose::documents(tree), Prose::comments(tree));
    let share = |mille: usize| documents.sentences * mille / 1_000;
    let long = "sentences of documents over 40 words";
    let begins = "sentences of documents that begin with what, who or which";
    let measured = [
        (long, &documents.long, 0, share(LONG_PER_MILLE)),
        (begins, &documents.subjects, 0, share(SUBJECTS_PER_MILLE)),
        (
            "long sentences of comments",
            &comments.long,
            COMMENTS_LONG.saturating_sub(SLACK),
            COMMENTS_LONG,
        ),
        (
            "comments that begin with what, who or which",
            &comments.subjects,
            COMMENTS_SUBJECTS.saturating_sub(SLACK),
            COMMENTS_SUBJECTS,
        ),
    ];
    let mut found = Vec::new();
    for (what, places, least, most) in measured {
        if !(least..=most).contains(&places.len()) {
            let places_named = places
                .iter()
                .take(5)
                .map(|(path, line)| format!("{path}:{line}"));
            let places_named: Vec<_> = places_named.collect();
            let what = format!(
                "{} {what}, where {least} to {most} are counted: {}",
                places.len(),
                places_named.join(", ")
            );
            let remedy = "make two sentences of it, and a noun of the protocol the subject; or write a fall down";
            found.push(Violation::new(file!(), 0, "prose", what, remedy));
        }
    }
    if documents.words > WORDS {
        let what = format!(
            "{} words of documents, at most {WORDS} are allowed",
            documents.words
        );
        let remedy = "say it once, and shorter";
        found.push(Violation::new(file!(), 0, "prose", what, remedy));
    }
    found
}

/// Public types whose name another one has.
fn doubles(files: &[(&str, Vec<Line<'_>>)]) -> Vec<Violation> {
    let mut known: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    let mut found = Vec::new();
    for (path, lines) in files {
        for line in lines.iter().filter(|line| !line.test) {
            let Some(name) = public_type(line.code) else {
                continue;
            };
            if let Some((other, _)) = known.insert(name, (path, line.number)) {
                let what = format!("the public type `{name}` stands in {other} too");
                let remedy = "name both by what each is in the protocol";
                found.push(Violation::new(path, line.number, "name", what, remedy));
            }
        }
    }
    found
}

fn public_type(code: &str) -> Option<&str> {
    let mut words = code.strip_prefix("pub ")?.split(' ');
    let kind = words.next()?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&kind);
    let name = words.next().filter(|_| is_type)?;
    name.split(|c: char| !c.is_alphanumeric()).next()
}

/// What is built into the programs.
fn is_ours(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && !path.starts_with("crates/xtask/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_type_whose_name_another_has_is_found() {
        let files = [
            (
                "crates/a/src/lib.rs",
                "pub struct Told<'a> {\npub(crate) enum Page {",
            ),
            ("crates/b/src/lib.rs", "pub enum Told {\npub struct Page;\n"),
            ("crates/b/src/tests.rs", "pub enum Page {"),
        ];
        let found = doubles(&Tree::of(&files).rust().collect::<Vec<_>>());
        let said: Vec<_> = found.iter().map(|v| (v.path.as_str(), v.line)).collect();
        assert_eq!(said, [("crates/b/src/lib.rs", 1)]);
    }

    #[test]
    fn one_file_more_than_is_counted_is_found() {
        let files: Vec<_> = (0..20).map(|n| format!("crates/a/src/f{n}.rs")).collect();
        let files: Vec<_> = files
            .iter()
            .map(|path| (path.as_str(), "x.read_line(y)"))
            .collect();
        let found = check(&Tree::of(&files));
        assert!(
            found
                .iter()
                .any(|v| v.what.starts_with("20 files that read lines by hand"))
        );
    }
}
