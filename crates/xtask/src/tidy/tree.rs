//! The files of the repository.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::rust::Source;

/// Every file that git knows or would add, by path from the top, `/` between folders.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<String, File>,
}

/// One file.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// Its text; empty when it is not UTF-8.
    pub(crate) text: String,
    /// Its parts, for a Rust file.
    pub(crate) rust: Option<Source>,
}

/// A comment that excuses one violation.
#[derive(Debug)]
pub(crate) struct Exception {
    pub(crate) line: usize,
    pub(crate) rule: String,
}

impl Exception {
    /// Whether it excuses a violation on that line.
    pub(crate) fn covers(&self, line: usize) -> bool {
        line == self.line || line == self.line + 1
    }

    fn parse(line: usize, comment: &str) -> Option<Self> {
        let (_, rest) = comment.split_once("tidy: allow ")?;
        let (rule, reason) = rest.split_once(", because ")?;
        let named = !rule.is_empty() && rule.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        (named && !reason.trim().is_empty()).then(|| Self {
            line,
            rule: rule.to_owned(),
        })
    }
}

impl Tree {
    /// Reads the working tree at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let output = Command::new("git")
            // Whoever owns the checkout (in CI often another user): listing it runs none of it.
            .args(["-c", "safe.directory=*", "ls-files", "-z"])
            .args(["--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("cannot start git, which lists the files of the repository")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "git ls-files failed: {}",
            stderr.trim()
        );
        let mut tree = Self::default();
        for path in String::from_utf8_lossy(&output.stdout).split_terminator('\0') {
            // A file that git lists but that was deleted is not there to be checked.
            if let Ok(bytes) = std::fs::read(root.join(path)) {
                tree.add(path, String::from_utf8(bytes).unwrap_or_default());
            }
        }
        Ok(tree)
    }

    fn add(&mut self, path: &str, text: String) {
        let rust = path.ends_with(".rs").then(|| Source::parse(&text));
        self.files.insert(path.to_owned(), File { text, rust });
    }

    /// The Rust files.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.files
            .iter()
            .filter_map(|(path, file)| Some((path.as_str(), file.rust.as_ref()?)))
    }

    /// The exceptions that comments in Rust files ask for.
    pub(crate) fn exceptions(&self) -> impl Iterator<Item = (&str, Exception)> {
        self.rust().flat_map(|(path, source)| {
            (1..).zip(&source.lines).filter_map(move |(number, line)| {
                Some((path, Exception::parse(number, &line.comment)?))
            })
        })
    }

    /// Whether `path` names a file or a folder.
    pub(crate) fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&folder))
    }

    /// A tree made of the given paths and texts.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.add(path, (*text).to_owned());
        }
        tree
    }
}

/// Whether a file holds nothing but tests, benches or examples.
pub(crate) fn is_test_file(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    path.split('/')
        .any(|part| ["tests", "benches", "examples"].contains(&part))
        || file == "tests.rs"
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
    fn test_files_are_told_by_their_place() {
        assert!(is_test_file("tests/it/a.rs") && is_test_file("crates/a/src/b/tests.rs"));
        assert!(!is_test_file("crates/a/src/b.rs"));
    }
}
