//! The files of the repository.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::run::output;

/// The text of every file that git knows or would add, by path from the top, `/` between folders.
/// Empty when it is not UTF-8.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<String, String>,
}

/// One line of a Rust file. Comments are told from code by the quotes before them.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) number: usize,
    pub(crate) code: &'a str,
    pub(crate) comment: &'a str,
    /// It stands in a file of tests, or behind a `mod` under `#[cfg(test)]`, which ends its file.
    pub(crate) test: bool,
}

impl Tree {
    /// Reads the working tree at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        // Another user may own the checkout, as in CI: listing it runs none of it.
        let mut git = Command::new("git");
        git.args(["-c", "safe.directory=*", "ls-files", "-z"])
            .args(["--cached", "--others", "--exclude-standard"]);
        let listed = output(git.current_dir(root))?;
        let names = String::from_utf8_lossy(&listed);
        // A file that git lists but that was deleted is not there to be checked.
        let files = names.split_terminator('\0').filter_map(|path| {
            let bytes = std::fs::read(root.join(path)).ok()?;
            Some((
                path.to_owned(),
                String::from_utf8(bytes).unwrap_or_default(),
            ))
        });
        Ok(Self {
            files: files.collect(),
        })
    }

    /// The Rust files, line by line.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, Vec<Line<'_>>)> {
        let rust = self.files.iter().filter(|(path, _)| path.ends_with(".rs"));
        rust.map(|(path, text)| (path.as_str(), lines(path, text)))
    }

    /// Whether `path` names a file or a folder.
    pub(crate) fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let mut below = self.files.range(folder.clone()..);
        path.is_empty()
            || self.files.contains_key(path)
            || below.next().is_some_and(|(p, _)| p.starts_with(&folder))
    }

    /// A tree made of the given paths and texts.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(p, t)| ((*p).into(), (*t).into()));
        Self {
            files: files.collect(),
        }
    }
}

fn lines<'a>(path: &str, text: &'a str) -> Vec<Line<'a>> {
    let mut test = is_test_file(path);
    let mut guarded = false;
    let line = |(number, line): (usize, &'a str)| {
        test |= guarded && line.starts_with("mod ") && line.ends_with('{');
        guarded = line == "#[cfg(test)]" || (guarded && line.starts_with("#["));
        let (code, comment) = split(line);
        Line {
            number,
            code,
            comment,
            test,
        }
    };
    (1..).zip(text.lines()).map(line).collect()
}

/// Splits a line before its comment.
fn split(line: &str) -> (&str, &str) {
    let begins = |before: &str| {
        let quotes = before.matches('"').count();
        let escaped = before.matches("\\\"").count() + before.matches("'\"'").count();
        (quotes - escaped).is_multiple_of(2)
    };
    let mut slashes = line.match_indices("//").map(|(at, _)| line.split_at(at));
    slashes.find(|(code, _)| begins(code)).unwrap_or((line, ""))
}

/// Whether a file holds nothing but tests, benches or examples.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs")
        || path
            .split('/')
            .any(|part| ["tests", "benches", "examples"].contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_are_found() {
        let tree = Tree::of(&[("docs/a.md", ""), ("docs-b/c.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/") && tree.has("docs/a.md") && tree.has(""));
        assert!(!tree.has("doc") && !tree.has("docs/a") && !tree.has("docs/b.md"));
    }

    #[test]
    fn code_comments_and_tests_are_told_apart() {
        assert_eq!(
            split("let a = \"b // c\"; // d"),
            ("let a = \"b // c\"; ", "// d")
        );
        assert_eq!(split("let a = '\"'; // d"), ("let a = '\"'; ", "// d"));
        let text = "fn a() {}\n#[cfg(test)]\nuse b;\n#[cfg(test)]\n#[expect(x)]\nmod tests {\n}";
        let marked: Vec<bool> = lines("crates/a/src/b.rs", text)
            .iter()
            .map(|l| l.test)
            .collect();
        assert_eq!(marked, [false, false, false, false, false, true, true]);
        assert!(
            lines("crates/a/src/b/tests.rs", "x")[0].test && lines("tests/it/a.rs", "x")[0].test
        );
    }
}
