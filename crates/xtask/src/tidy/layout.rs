//! What stands at the top, and how long files may be.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::Tree;

const FILE_LINES_MAX: usize = 500;

/// Everything that the top level may hold.
const TOP: &str = ".cargo .ci .claude-plugin .clippy.toml .config .deny.toml .dockerignore .editorconfig \
    .gitattributes .github .gitignore .rustfmt.toml CHANGELOG.md CHANNELS_SCHEMA.md CONTRIBUTING.md Cargo.lock \
    Cargo.toml LICENSE README.md crates deploy docs llms.txt tests";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let names = tree.files.keys().filter_map(|path| path.split('/').next());
    let top: BTreeSet<&str> = names.collect();
    let strange = top
        .into_iter()
        .filter(|name| !TOP.split(' ').any(|known| known == *name));
    let mut found: Vec<Violation> = strange
        .map(|name| {
            let what = "the top level has no place for this".into();
            let remedy = "move it below crates/, deploy/, docs/ or tests/";
            Violation::new(name, 0, "top-level", what, remedy)
        })
        .collect();
    for (path, text) in &tree.files {
        let ends = [".rs", ".py", ".sh", ".ci/run"];
        let lines = text.lines().count();
        if ends.iter().any(|end| path.ends_with(end)) && lines > FILE_LINES_MAX {
            let what = format!("{lines} lines, at most {FILE_LINES_MAX} are allowed");
            let remedy = "split the file by what it decides";
            let line = FILE_LINES_MAX + 1;
            found.push(Violation::new(path, line, "file-size", what, remedy));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_level_is_bare_and_a_source_file_has_at_most_500_lines() {
        let (fits, long) = ("x\n".repeat(500), "x\n".repeat(501));
        let tree = Tree::of(&[
            ("Cargo.toml", ""),
            ("crates/a.rs", &fits),
            ("crates/b.rs", &long),
            ("docs/c.md", &long),
            ("notes.txt", ""),
            ("tests/a", ""),
        ]);
        let found = check(&tree);
        let found: Vec<_> = found.iter().map(|v| (&*v.path, v.line, v.rule)).collect();
        let expected = [
            ("notes.txt", 0, "top-level"),
            ("crates/b.rs", 501, "file-size"),
        ];
        assert_eq!(found, expected);
    }
}
