//! Relative links in Markdown files lead somewhere, to their headings, too, and so do the documents
//! that programs name to their users.

use super::Violation;
use super::tree::Tree;

/// Checks every `[text](target)` and `[label]: target` outside of code.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        let mut fenced = false;
        for (line, text) in (1..).zip(text.lines()) {
            if text.trim_start().starts_with("```") {
                fenced = !fenced;
            }
            if fenced {
                continue;
            }
            let broken = targets(&without_code(text))
                .into_iter()
                .filter(|target| !leads(tree, path, target));
            found.extend(broken.map(|target| {
                let what = format!("link to `{target}` leads nowhere");
                let remedy =
                    "name a file of the repository, relative to this one, and a heading of it";
                Violation::new(path, line, "link", what, remedy)
            }));
        }
    }
    found.extend(named(tree));
    found
}

/// Documents that are named in the code of programs and are not there.
fn named(tree: &Tree) -> Vec<Violation> {
    let ours = |path: &str| path.starts_with("crates/") && !path.starts_with("crates/xtask/");
    let mut found = Vec::new();
    for (path, lines) in tree.rust().filter(|(path, _)| ours(path)) {
        for line in lines.iter().filter(|line| !line.test) {
            let words = line
                .code
                .split(|c: char| !(c.is_alphanumeric() || "._-/".contains(c)));
            let names = words.filter_map(|word| Some(&word[word.find("docs/")?..]));
            let gone = names.filter(|name| name.ends_with(".md") && !tree.has(name));
            found.extend(gone.map(|name| {
                let what = format!("`{name}` is named to users and is not there");
                let remedy = "name the page that says it now";
                Violation::new(path, line.number, "link", what, remedy)
            }));
        }
    }
    found
}

/// The anchors of a document's headings.
fn anchors(text: &str) -> Vec<String> {
    let (mut fenced, mut found) = (false, Vec::new());
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if !fenced && heading.len() < line.len() && heading.starts_with(' ') {
            let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
            let anchor: String = heading.trim().to_lowercase().chars().filter(kept).collect();
            found.push(anchor.replace(' ', "-"));
        }
    }
    found
}

/// The line with its code spans blanked.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

fn targets(text: &str) -> Vec<String> {
    let inline = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next());
    let defined = text
        .starts_with('[')
        .then(|| text.split_once("]: "))
        .flatten();
    let defined = defined.and_then(|(_, rest)| rest.split(' ').next());
    inline.chain(defined).map(str::to_owned).collect()
}

/// Whether a link target in `from` exists, and the heading in it. Addresses are not checked.
fn leads(tree: &Tree, from: &str, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let mut parts: Vec<&str> = from.split('/').collect();
    if !path.is_empty() {
        parts.pop();
    }
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return false,
            ".." => {}
            name => parts.push(name),
        }
    }
    let path_there = parts.join("/");
    let headed = |text: &String| anchors(text).iter().any(|known| known == anchor);
    let text = tree
        .files
        .get(&path_there)
        .filter(|_| path_there.ends_with(".md"));
    let heads = anchor.is_empty() || text.is_none_or(headed);
    !path.starts_with('/') && tree.has(&path_there) && heads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_links_must_resolve() {
        let text = "[a](b.md) [c](../README.md#a-b) [d](https://e/f) [g](#h) [i](../crates/)\n\
                    [j](gone.md)\n`[k](gone.md)`\n```\n[l](gone.md)\n```\n[m]: nope.md\n[n](../../o.md)";
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("docs/b.md", "## `One` two!\n\n[a](a.md#gone) [b](#one-two)"),
            ("README.md", "# A b"),
            ("crates/a.rs", ""),
        ]);
        let lines: Vec<usize> = check(&tree).into_iter().map(|v| v.line).collect();
        assert_eq!(lines, [1, 2, 7, 8, 3]);
    }

    #[test]
    fn a_document_that_a_program_names_must_exist() {
        let text = "fn a() { b(\"see docs/b.md or (docs/gone.md)\"); } // docs/other.md\n";
        let tree = Tree::of(&[("crates/a/src/a.rs", text), ("docs/b.md", "")]);
        let found: Vec<String> = check(&tree).into_iter().map(|v| v.what).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`docs/gone.md`"));
    }
}
