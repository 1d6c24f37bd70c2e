//! Each invariant of docs/ARCHITECTURE.md, each threat of docs/THREAT_MODEL.md, and each row of
//! docs/SEEDS.md names the tests that check it, and they exist.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::Tree;

/// A table in a document: the letter before the numbers of its rows, and what such a row is.
const TABLES: [(&str, char, &str); 7] = [
    ("docs/ARCHITECTURE.md", 'I', "invariant"),
    ("docs/THREAT_MODEL.md", 'T', "threat"),
    (SEEDS, 'A', "row"),
    (SEEDS, 'B', "row"),
    (SEEDS, 'C', "row"),
    (SEEDS, 'D', "row"),
    (SEEDS, 'E', "row"),
];
const SEEDS: &str = "docs/SEEDS.md";

/// Checks the tables: rows `| I1 | statement | tests |`, numbered without a gap, with tests in
/// backticks in the last cell.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let tests = test_functions(tree);
    let tables = TABLES.iter();
    tables
        .flat_map(|(document, letter, kind)| {
            let text = tree.files.get(*document).map_or("", String::as_str);
            let row = rows(text, *letter, kind, &tests);
            row.into_iter().map(|(line, what)| {
                let remedy = "name, in backticks in the last cell, the test that fails when this does not hold";
                Violation::new(document, line, "invariant", what, remedy)
            })
        })
        .collect()
}

/// What is wrong with the rows of a table, and in which lines.
fn rows(text: &str, letter: char, kind: &str, tests: &BTreeSet<&str>) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut number = 0;
    for (line, text) in (1..).zip(text.lines()) {
        let cells: Vec<&str> = text.trim().trim_matches('|').split('|').collect();
        let [id, _, .., named] = cells[..] else {
            continue;
        };
        let id = id.trim();
        let counted = id.strip_prefix(letter).and_then(|rest| rest.parse().ok());
        let Some(counted) = counted else { continue };
        number += 1;
        if counted != number {
            found.push((line, format!("{letter}{number} is missing before {id}")));
            number = counted;
        }
        let named: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            found.push((line, format!("{kind} {id} names no test")));
        }
        let missing = named.iter().filter(|name| !tests.contains(**name));
        found.extend(missing.map(|name| {
            let what = format!("{kind} {id} names `{name}`, which is no test function");
            (line, what)
        }));
    }
    if number == 0 {
        found.push((0, format!("there is no table with {letter}1, a {kind}")));
    }
    found
}

/// The names of all functions under an attribute that makes them tests.
fn test_functions(tree: &Tree) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for (_, lines) in tree.rust() {
        let mut test = false;
        for code in lines.iter().map(|line| line.code.trim()) {
            let attribute = code.starts_with("#[");
            test |= attribute
                && (code.contains("test]") || code.contains("test("))
                && !code.contains("cfg(");
            let name = code.trim_start_matches("async ").strip_prefix("fn ");
            names.extend(
                name.filter(|_| test)
                    .and_then(|name| name.split(['(', '<']).next()),
            );
            test &= attribute;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: &str = "#[test]\nfn plain() {}\n#[tokio::test(flavor = \"x\")]\n#[other]\nasync fn later() {}\n\
                         fn helper() {}\n#[cfg(test)]\nfn guarded() {}\n";

    fn found(last_row: &str) -> Vec<String> {
        let document = format!("| | holds |\n|---|---|\n| I1 | x | `plain` |\n{last_row}");
        let threats = "| T1 | x | y | `later` |\n";
        let seeds = ["A", "B", "C", "D", "E"].map(|it| format!("| {it}1 | x | y | `plain` |\n"));
        let tree = Tree::of(&[
            ("docs/ARCHITECTURE.md", &document),
            ("docs/THREAT_MODEL.md", threats),
            (SEEDS, &seeds.concat()),
            ("tests/it/a.rs", TESTS),
        ]);
        check(&tree).into_iter().map(|v| v.what).collect()
    }

    #[test]
    fn every_invariant_names_existing_tests() {
        assert_eq!(found("| I2 | `hmac` holds | `plain`, `later` |"), [""; 0]);
        assert!(found("| I2 | holds | none |")[0].contains("names no test"));
        for name in ["helper", "guarded", "gone"] {
            assert!(found(&format!("| I2 | holds | `{name}` |"))[0].contains(name));
        }
    }

    #[test]
    fn the_table_has_no_gap_and_is_there() {
        assert_eq!(
            found("| I3 | holds | `plain` |"),
            ["I2 is missing before I3"]
        );
        assert_eq!(check(&Tree::of(&[])).len(), 7);
    }
}
