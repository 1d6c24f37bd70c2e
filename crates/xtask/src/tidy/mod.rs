//! The rules of the repository that neither the compiler nor clippy checks.
//!
//! Each rule reads a [`Tree`] (or cargo's metadata) and adds [`Violation`]s. A line may ask for an
//! exception with a comment on it or right above it: `tidy: allow RULE, because REASON`.

mod calls;
mod deps;
mod invariants;
mod layout;
mod links;
mod rust;
mod sql;
mod tree;
mod words;

use std::process::ExitCode;

use anyhow::Result;

use crate::run;
use tree::Tree;

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: String,
    /// Counted from 1; 0 for the file as a whole.
    line: usize,
    rule: &'static str,
    what: String,
    remedy: String,
}

/// Checks the working tree and prints what it finds.
pub(crate) fn run() -> Result<ExitCode> {
    let root = run::root();
    let tree = Tree::read(&root)?;
    let mut violations = check(&tree);
    violations.extend(deps::check(&deps::Workspace::read(&tree)?));
    violations.sort();
    for Violation {
        path,
        line,
        rule,
        what,
        remedy,
    } in &violations
    {
        println!("{path}:{line}: {what} [{rule}]\n    {remedy}");
    }
    if violations.is_empty() {
        println!("tidy: {} files, no violation", tree.files.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "tidy: {} files, {} violations",
        tree.files.len(),
        violations.len()
    );
    Ok(ExitCode::FAILURE)
}

/// Applies every rule that reads files, and the exceptions.
fn check(tree: &Tree) -> Vec<Violation> {
    let rules = [
        calls::check,
        invariants::check,
        layout::check,
        links::check,
        sql::check,
        words::check,
    ];
    let mut found: Vec<Violation> = rules.iter().flat_map(|rule| rule(tree)).collect();
    let mut unused = Vec::new();
    for (path, exception) in tree.exceptions() {
        let before = found.len();
        found.retain(|v| !(v.path == path && v.rule == exception.rule && exception.covers(v.line)));
        if found.len() == before {
            unused.push(Violation {
                path: path.to_owned(),
                line: exception.line,
                rule: "exception",
                what: format!("exception for `{}` excuses nothing", exception.rule),
                remedy: "remove it, or name the rule that is broken here".into(),
            });
        }
    }
    found.extend(unused);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_excuses_its_rule_on_its_line_and_the_next() {
        let tree = Tree::of(&[(
            "tests/it/a.rs",
            "// tidy: allow sleep, because the clock is what is tested\n\
             fn a() { std::thread::sleep(D); }\n\
             fn b() { std::thread::sleep(D); }\n",
        )]);
        let found: Vec<_> = check(&tree)
            .into_iter()
            .filter(|v| v.rule == "sleep")
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].line, 3);
    }

    #[test]
    fn an_exception_that_excuses_nothing_is_a_violation() {
        let tree = Tree::of(&[(
            "tests/it/a.rs",
            "// tidy: allow sleep, because of a reason\n",
        )]);
        assert!(
            check(&tree)
                .iter()
                .any(|v| v.rule == "exception" && v.line == 1)
        );
    }

    #[test]
    fn an_exception_without_a_reason_is_none() {
        let tree = Tree::of(&[(
            "tests/it/a.rs",
            "std::thread::sleep(D); // tidy: allow sleep\n",
        )]);
        assert!(check(&tree).iter().any(|v| v.rule == "sleep"));
    }
}
