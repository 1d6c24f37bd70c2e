//! What stands at the top, and how long files may be.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::Tree;

/// Longest source file, in lines.
const FILE_LINES_MAX: usize = 500;

/// Everything that the top level may hold.
const TOP: [&str; 18] = [
    ".cargo",
    ".ci",
    ".clippy.toml",
    ".config",
    ".deny.toml",
    ".dockerignore",
    ".editorconfig",
    ".gitattributes",
    ".gitignore",
    ".rustfmt.toml",
    "CHANNELS_SCHEMA.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "crates",
    "deploy",
    "docs",
];

/// Checks the top level and the length of source files.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let top: BTreeSet<&str> = tree
        .files
        .keys()
        .filter_map(|path| path.split('/').next())
        .collect();
    let mut found: Vec<Violation> = top
        .into_iter()
        .filter(|name| *name != "tests" && !TOP.contains(name))
        .map(|name| Violation {
            path: name.to_owned(),
            line: 0,
            rule: "top-level",
            what: "the top level has no place for this".into(),
            remedy: "move it below crates/, deploy/, docs/ or tests/".into(),
        })
        .collect();
    for (path, file) in &tree.files {
        let lines = file.text.lines().count();
        let source = [".rs", ".py", ".sh", ".ci/run"]
            .iter()
            .any(|end| path.ends_with(end));
        if source && lines > FILE_LINES_MAX {
            found.push(Violation {
                path: path.clone(),
                line: FILE_LINES_MAX + 1,
                rule: "file-size",
                what: format!("{lines} lines, at most {FILE_LINES_MAX} are allowed"),
                remedy: "split the file by what it decides".into(),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_level_is_bare() {
        let tree = Tree::of(&[
            ("Cargo.toml", ""),
            ("tests/a", ""),
            ("notes.txt", ""),
            ("src/a.rs", ""),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|v| (v.path, v.rule)).collect();
        let expected = [
            ("notes.txt".to_owned(), "top-level"),
            ("src".to_owned(), "top-level"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_source_file_has_at_most_500_lines() {
        let (fits, long) = ("x\n".repeat(500), "x\n".repeat(501));
        let tree = Tree::of(&[
            ("crates/a.rs", &fits),
            ("crates/b.rs", &long),
            ("docs/c.md", &long),
        ]);
        let found: Vec<_> = check(&tree)
            .into_iter()
            .map(|v| (v.path, v.line, v.rule))
            .collect();
        assert_eq!(found, [("crates/b.rs".to_owned(), 501, "file-size")]);
    }
}
