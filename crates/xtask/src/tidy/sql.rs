//! SQL lives in the store.

use super::Violation;
use super::tree::{Tree, is_test_file};

/// How statements begin, with what must follow somewhere for the ones that are English words too.
const STATEMENTS: [(&str, &str); 11] = [
    ("SELECT ", " FROM "),
    ("SELECT ", "("),
    ("INSERT ", "INTO "),
    ("UPDATE ", " SET "),
    ("DELETE ", "FROM "),
    ("CREATE TABLE ", ""),
    ("CREATE INDEX ", ""),
    ("ALTER TABLE ", ""),
    ("PRAGMA ", ""),
    ("BEGIN IMMEDIATE", ""),
    ("VACUUM", ""),
];

/// Finds SQL in string literals outside of the store. Integration tests may look into a database.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in tree.rust() {
        let exempt = ["crates/store/", "crates/xtask/"]
            .iter()
            .any(|folder| path.starts_with(folder));
        if exempt || is_test_file(path) {
            continue;
        }
        for (line, text) in &source.strings {
            if source.lines.get(line - 1).is_some_and(|l| l.test) || !is_sql(text) {
                continue;
            }
            found.push(Violation {
                path: path.to_owned(),
                line: *line,
                rule: "sql",
                what: "a string literal that looks like SQL".into(),
                remedy: "put the statement behind a function of crates/store".into(),
            });
        }
    }
    found
}

fn is_sql(text: &str) -> bool {
    let text = text.trim_start();
    STATEMENTS.iter().any(|(start, then)| {
        text.strip_prefix(start)
            .is_some_and(|rest| format!(" {rest}").contains(then))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_is_found_outside_the_store_only() {
        let sql = "fn a() {\n q(\"SELECT 1 FROM t\");\n q(\"  DELETE FROM t\"); q(\"PRAGMA x\"); }";
        let lines = |path| -> Vec<usize> {
            check(&Tree::of(&[(path, sql)]))
                .into_iter()
                .map(|v| v.line)
                .collect()
        };
        assert_eq!(lines("crates/broker/src/a.rs"), [2, 3, 3]);
        assert_eq!(lines("crates/store/src/a.rs"), [0; 0]);
        assert_eq!(lines("tests/it/a.rs"), [0; 0]);
    }

    #[test]
    fn english_is_not_sql() {
        for text in [
            "SELECT",
            "UPDATE the file",
            "Delete from it",
            "select a from b",
        ] {
            assert!(!is_sql(text), "{text}");
        }
    }
}
