//! Relative links in Markdown files lead somewhere.

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
                let remedy = "name a file of the repository, relative to this one";
                Violation::new(path, line, "link", what, remedy)
            }));
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

/// Whether a link target in `from` exists. Addresses and anchors of the same page are not checked.
fn leads(tree: &Tree, from: &str, target: &str) -> bool {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return false,
            ".." => {}
            name => parts.push(name),
        }
    }
    !path.starts_with('/') && tree.has(&parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_links_must_resolve() {
        let text = "[a](b.md) [c](../README.md#x) [d](https://e/f) [g](#h) [i](../crates/)\n\
                    [j](gone.md)\n`[k](gone.md)`\n```\n[l](gone.md)\n```\n[m]: nope.md\n[n](../../o.md)";
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("docs/b.md", ""),
            ("README.md", ""),
            ("crates/a.rs", ""),
        ]);
        let lines: Vec<usize> = check(&tree).into_iter().map(|v| v.line).collect();
        assert_eq!(lines, [2, 7, 8]);
    }
}
