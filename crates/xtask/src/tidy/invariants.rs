//! Each invariant of docs/ARCHITECTURE.md names the tests that check it, and they exist.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::Tree;

const DOCUMENT: &str = "docs/ARCHITECTURE.md";
/// Invariants are numbered I1 to this.
const COUNT: usize = 12;

/// Checks the table of invariants: a row `| I1 | statement | tests |` for each, tests in backticks.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let Some(document) = tree.files.get(DOCUMENT) else {
        return vec![violation(0, "there is no such document".into())];
    };
    let tests = test_functions(tree);
    let mut found = Vec::new();
    for number in 1..=COUNT {
        let id = format!("I{number}");
        let row = (1..).zip(document.text.lines()).find_map(|(line, text)| {
            let cells: Vec<&str> = text
                .trim()
                .trim_matches('|')
                .split('|')
                .map(str::trim)
                .collect();
            (cells.len() >= 3 && cells[0] == id).then(|| (line, cells[cells.len() - 1].to_owned()))
        });
        let Some((line, cell)) = row else {
            found.push(violation(
                0,
                format!("invariant {id} has no row `| {id} | … | `test` |`"),
            ));
            continue;
        };
        let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            found.push(violation(line, format!("invariant {id} names no test")));
        }
        let missing = named
            .iter()
            .filter(|n| !tests.contains(n.rsplit("::").next().unwrap_or(n)));
        found.extend(missing.map(|name| {
            violation(
                line,
                format!("invariant {id} names `{name}`, which is no test function"),
            )
        }));
    }
    found
}

fn violation(line: usize, what: String) -> Violation {
    Violation {
        path: DOCUMENT.into(),
        line,
        rule: "invariant",
        what,
        remedy:
            "name, in backticks in the last cell, the test that fails when the invariant breaks"
                .into(),
    }
}

/// The names of all functions under an attribute that makes them tests.
fn test_functions(tree: &Tree) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, source) in tree.rust() {
        let mut attribute = false;
        for line in &source.lines {
            let code = line.code.trim();
            if code.starts_with("#[") && (code.contains("test]") || code.contains("test(")) {
                attribute |= !code.contains("cfg(");
            }
            let Some((before, after)) = code.split_once("fn ") else {
                continue;
            };
            if attribute
                && before
                    .split_whitespace()
                    .all(|w| ["pub", "async"].contains(&w) || w.starts_with("#["))
            {
                names.extend(after.split(['(', '<']).next().map(str::to_owned));
            }
            attribute = false;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: &str = "#[test]\nfn plain() {}\n#[tokio::test(flavor = \"x\")]\n#[other]\nasync fn later() {}\n\
                         fn helper() {}\n#[cfg(test)]\nfn guarded() {}\n";

    fn rows(last: &str) -> String {
        let mut text: String = (1..COUNT)
            .map(|n| format!("| I{n} | holds | `a::plain` |\n"))
            .collect();
        text.push_str(last);
        text
    }

    fn found(document: &str) -> Vec<String> {
        let tree = Tree::of(&[(DOCUMENT, document), ("tests/it/a.rs", TESTS)]);
        check(&tree).into_iter().map(|v| v.what).collect()
    }

    #[test]
    fn every_invariant_names_existing_tests() {
        assert_eq!(
            found(&rows("| I12 | `hmac` holds | `plain`, `later` |")),
            [""; 0]
        );
        assert_eq!(found(&rows("")).len(), 1);
        assert!(found(&rows("| I12 | holds | none |"))[0].contains("names no test"));
        for name in ["helper", "guarded", "gone"] {
            assert!(found(&rows(&format!("| I12 | holds | `{name}` |")))[0].contains(name));
        }
    }

    #[test]
    fn a_missing_document_is_a_violation() {
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
