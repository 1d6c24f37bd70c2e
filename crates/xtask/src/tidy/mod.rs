//! The rules of the repository that neither the compiler nor clippy checks.
//!
//! Each rule reads a [`Tree`] (or cargo's metadata) and adds [`Violation`]s. A line may ask for an
//! exception with a comment on it or right above it: `tidy: allow RULE, because REASON`.

mod counts;
mod cycles;
mod deps;
mod invariants;
mod layout;
mod lines;
mod links;
mod prose;
pub(crate) mod tree;

use std::process::ExitCode;

use anyhow::Result;

use crate::run;
use tree::Tree;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    /// Counted from 1; 0 for the file as a whole.
    line: usize,
    rule: &'static str,
    what: String,
    remedy: String,
}

impl Violation {
    fn new(path: &str, line: usize, rule: &'static str, what: String, remedy: &str) -> Self {
        Self {
            path: path.to_owned(),
            line,
            rule,
            what,
            remedy: remedy.to_owned(),
        }
    }
}

pub(crate) fn run() -> Result<ExitCode> {
    let tree = Tree::read(&run::root())?;
    let mut violations = check(&tree);
    violations.extend(deps::check(&tree, &deps::packages()?));
    violations.sort();
    for v in &violations {
        let (path, line, what, rule, remedy) = (&v.path, v.line, &v.what, v.rule, &v.remedy);
        println!("{path}:{line}: {what} [{rule}]\n    {remedy}");
    }
    let files = tree.files.len();
    if violations.is_empty() {
        println!("tidy: {files} files, no violation");
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: {files} files, {} violations", violations.len());
    Ok(ExitCode::FAILURE)
}

fn check(tree: &Tree) -> Vec<Violation> {
    let rules = [
        counts::check,
        cycles::check,
        invariants::check,
        layout::check,
        lines::check,
        links::check,
        prose::check,
    ];
    let mut found: Vec<Violation> = rules.iter().flat_map(|rule| rule(tree)).collect();
    for (path, line, rule) in lines::exceptions(tree) {
        let before = found.len();
        let excused = |v: &Violation| (v.line == line || v.line == line + 1) && v.rule == rule;
        found.retain(|v| !(v.path == path && excused(v)));
        if found.len() == before {
            found.push(Violation::new(
                path,
                line,
                "exception",
                format!("exception for `{rule}` excuses nothing"),
                "remove it, or name the rule that is broken here",
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_excuses_its_rule_on_its_line_and_the_next_and_has_a_reason() {
        let lines = |text: &str| -> Vec<(usize, &'static str)> {
            let found = check(&Tree::of(&[("tests/it/a.rs", text)]));
            let here = found.iter().filter(|v| v.path == "tests/it/a.rs");
            here.map(|v| (v.line, v.rule)).collect()
        };
        let sleep = "fn a() { std::thread::sleep(D); }\n";
        let allow = "// tidy: allow sleep, because the clock is what is tested\n";
        assert_eq!(lines(&format!("{allow}{sleep}{sleep}")), [(3, "sleep")]);
        assert_eq!(lines(allow), [(1, "exception")]);
        let no_reason = format!("// tidy: allow sleep\n{sleep}");
        assert_eq!(lines(&no_reason), [(2, "sleep")]);
    }
}
