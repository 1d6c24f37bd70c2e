//! What a line must not hold, and where.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::{Line, Tree};

struct Ban {
    rule: &'static str,
    code: &'static str,
    /// Whether it is banned in this file, in a test or not.
    place: fn(path: &str, test: bool) -> bool,
    remedy: &'static str,
}

const BANS: [Ban; 5] = [
    Ban {
        rule: "sleep",
        code: "thread::sleep",
        place: |_, test| test,
        remedy: "wait for the event itself, under a deadline",
    },
    Ban {
        rule: "ignored-test",
        code: "#[ignore",
        place: |_, _| true,
        remedy: "run the test, or delete it; say why when a tool it needs is missing",
    },
    Ban {
        rule: "function-size",
        code: "clippy::too_many_lines",
        place: |_, _| true,
        remedy: "split the function: 70 lines hold for everyone",
    },
    Ban {
        rule: "sdk",
        code: "rmcp::",
        place: |path, _| {
            !path.starts_with("crates/mcp/src/rpc/") && path != "crates/mcp/src/server.rs"
        },
        remedy: "go through crates/mcp/src/rpc",
    },
    Ban {
        rule: "line-reader",
        code: "read_until(",
        place: |path, test| {
            !test && path.starts_with("crates/") && path != "crates/os/src/lines.rs"
        },
        remedy: "read bounded lines with crates/os/src/lines.rs",
    },
];

/// How SQL statements begin.
const SQL: [&str; 11] = [
    "SELECT ",
    "INSERT INTO ",
    "INSERT OR ",
    "UPDATE ",
    "DELETE FROM ",
    "CREATE TABLE ",
    "CREATE INDEX ",
    "ALTER TABLE ",
    "PRAGMA ",
    "BEGIN IMMEDIATE",
    "VACUUM",
];

/// Where no agent may be named: what decides about messages, and what agents' adapters share.
const AGENTLESS: [&str; 4] = [
    "crates/peer/src/mailbox/",
    "crates/adapter/src/mailbox/",
    "crates/adapter/src/inbox/",
    "crates/adapter/src/transcript/",
];
/// Names of agents, in lower case.
const AGENTS: [&str; 6] = ["claude", "codex", "qwen", "opencode", "copilot", "gemini"];

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
const TAGS: &str = "plan task phase issue milestone ticket step";
/// Places outside the repository. Spelled in two parts so that this file does not hold them.
const PLACES: [&str; 3] = [
    concat!("/work", "/shared"),
    concat!("/work", "/main"),
    concat!("/work", "/.library"),
];
/// Ends of names of files whose comments begin with `#`.
const HASHED: &str = ".py .sh .toml .yaml .yml Dockerfile .ci/run";

/// Checks the code of Rust files, the comments of programs, and every text.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let names = tree.files.keys().filter_map(|path| path.rsplit('/').next());
    let documents: BTreeSet<&str> = names.collect();
    let mut found = Vec::new();
    for (path, lines) in tree.rust() {
        let own = path.starts_with("crates/xtask/");
        for line in lines {
            let ban = |ban: &&Ban| line.code.contains(ban.code) && (ban.place)(path, line.test);
            found.extend(BANS.iter().filter(|_| !own).filter(ban).map(|ban| {
                let what = format!("`{}` has no place here", ban.code);
                Violation::new(path, line.number, ban.rule, what, ban.remedy)
            }));
            // Tests may look into a database.
            let exempt = own || line.test || path.starts_with("crates/store/");
            if !exempt && is_sql(line.code) {
                let what = "this looks like SQL".into();
                let remedy = "put the statement behind a function of crates/store";
                found.push(Violation::new(path, line.number, "sql", what, remedy));
            }
            if let Some(agent) = named_agent(path, &line).filter(|_| !line.test) {
                let what = format!("`{agent}` is one agent's name");
                let remedy = "say it as data: a path's spec, or a trait that the agent's crate has";
                found.push(Violation::new(path, line.number, "agent", what, remedy));
            }
            found.extend(comment(path, line.number, line.comment, &documents));
        }
    }
    for (path, text) in &tree.files {
        let hashed = HASHED.split(' ').any(|end| path.ends_with(end));
        for (line, text) in (1..).zip(text.lines()) {
            if let Some(place) = PLACES.iter().find(|place| text.contains(**place)) {
                let what = format!("`{place}` is outside the repository");
                let remedy = "say it in the repository's own terms";
                found.push(Violation::new(path, line, "place", what, remedy));
            }
            if let Some((_, text)) = text.split_once('#').filter(|_| hashed) {
                found.extend(comment(path, line, text, &documents));
            }
        }
    }
    found
}

/// The exceptions that comments ask for: file, line and rule.
pub(super) fn exceptions(tree: &Tree) -> Vec<(&str, usize, &str)> {
    let mut found = Vec::new();
    for (path, lines) in tree.rust() {
        let asked = lines
            .iter()
            .filter_map(|line| Some((line.number, excused(line.comment)?)));
        found.extend(asked.map(|(line, rule)| (path, line, rule)));
    }
    found
}

/// The rule to which a comment asks for an exception.
fn excused(comment: &str) -> Option<&str> {
    let (_, rest) = comment.split_once("tidy: allow ")?;
    let (rule, reason) = rest.split_once(", because ")?;
    let named = rule.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    (named && !reason.trim().is_empty()).then_some(rule)
}

/// Whether a statement begins after a quote, or in a line that goes on with a literal.
fn is_sql(code: &str) -> bool {
    code.split('"').any(|part| {
        let part = part.trim_start();
        SQL.iter().any(|statement| part.starts_with(statement))
    })
}

/// An agent that is named where none may be.
fn named_agent(path: &str, line: &Line) -> Option<&'static str> {
    let text = format!("{} {}", line.code, line.comment).to_lowercase();
    let placed = AGENTLESS.iter().any(|place| path.starts_with(place));
    AGENTS
        .into_iter()
        .find(|agent| placed && text.contains(agent))
}

fn comment(
    path: &str,
    line: usize,
    comment: &str,
    documents: &BTreeSet<&str>,
) -> Option<Violation> {
    if let Some(phrase) = banned(comment) {
        let what = format!("comment says `{phrase}`");
        let remedy = "describe the code as it is; history is git's";
        return Some(Violation::new(path, line, "words", what, remedy));
    }
    let name = unknown_document(comment, documents)?;
    let what = format!("comment cites `{name}`, which is not in the repository");
    let remedy = "cite a document that a reader has";
    Some(Violation::new(path, line, "document", what, remedy))
}

/// The first banned word or phrase in a comment.
fn banned(comment: &str) -> Option<String> {
    let words = comment.split(|c: char| !(c.is_alphanumeric() || c == '#'));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let flat = format!(" {} ", words.join(" ").to_lowercase());
    let mark = words.iter().find(|word| MARKS.contains(word));
    let told = HISTORY
        .iter()
        .find(|phrase| flat.contains(&format!(" {phrase} ")));
    let numbered = words.windows(2).find(|pair| {
        let number = pair[1].trim_start_matches('#');
        let word = pair[0].to_lowercase();
        TAGS.split(' ').any(|tag| tag == word) && number.starts_with(|c: char| c.is_ascii_digit())
    });
    mark.or(told)
        .map(|phrase| (*phrase).to_owned())
        .or_else(|| Some(numbered?.join(" ")))
}

/// The first name of a Markdown file in a comment that no file of the repository has.
fn unknown_document(comment: &str, documents: &BTreeSet<&str>) -> Option<String> {
    let words = comment.split(|c: char| !(c.is_alphanumeric() || "._-/".contains(c)));
    let mut names = words
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.ends_with(".md") && *word != ".md");
    names
        .find(|name| !documents.contains(name.rsplit('/').next().unwrap_or(name)))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let tree = Tree::of(&[(path, text), ("docs/REAL.md", "")]);
        check(&tree).iter().map(|v| (v.line, v.rule)).collect()
    }

    #[test]
    fn banned_code_is_found_where_it_is_banned() {
        let sleep = "fn a() { thread::sleep(d); }";
        assert_eq!(found("tests/it/a.rs", sleep), [(1, "sleep")]);
        assert_eq!(found("crates/a/src/a.rs", sleep), []);
        let ignored = "#[ignore = \"slow\"]";
        assert_eq!(found("tests/it/a.rs", ignored), [(1, "ignored-test")]);
        let allowed = "#[allow(clippy::too_many_lines)]";
        assert_eq!(found("crates/a/src/a.rs", allowed), [(1, "function-size")]);
        let sdk = "use rmcp::model::Tool;";
        assert_eq!(found("crates/mcp/src/tools/a.rs", sdk), [(1, "sdk")]);
        assert_eq!(found("crates/mcp/src/rpc/a.rs", sdk), []);
        assert_eq!(found("crates/a/src/a.rs", "// rmcp::model"), []);
        let lines = "let n = read.read_until(10, &mut line)?;";
        assert_eq!(found("crates/a/src/a.rs", lines), [(1, "line-reader")]);
        assert_eq!(found("crates/os/src/lines.rs", lines), []);
    }

    #[test]
    fn an_agent_is_named_in_its_own_place_only() {
        for text in ["let is = name == \"Codex\";", "// As Qwen does it."] {
            for place in [
                "crates/peer/src/mailbox/a.rs",
                "crates/adapter/src/inbox/a.rs",
            ] {
                assert_eq!(found(place, text), [(1, "agent")], "{text}");
            }
            assert_eq!(found("crates/mcp/src/wake/a.rs", text), []);
            assert_eq!(found("crates/peer/src/session/a.rs", text), []);
        }
    }

    #[test]
    fn sql_stands_in_the_store_only() {
        let sql = "fn a() {\n q(\"SELECT 1 FROM t\");\n q(\"\n   PRAGMA x\");\n q(\"Update it\");";
        assert_eq!(
            found("crates/broker/src/a.rs", sql),
            [(2, "sql"), (4, "sql")]
        );
        assert_eq!(found("crates/store/src/a.rs", sql), []);
        assert_eq!(found("tests/it/a.rs", sql), []);
    }

    #[test]
    fn notes_about_the_work_are_found_in_comments_only() {
        let cases = [
            "// TODO: more",
            "let a; // FIXME",
            "// Previously it was 5.",
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
        let real = "// See docs/REAL.md. And REAL.md";
        assert_eq!(found("crates/a/src/a.rs", real), []);
        let gone = "// See GONE.md, part 2.";
        assert_eq!(found("crates/a/src/a.rs", gone), [(1, "document")]);
    }
}
