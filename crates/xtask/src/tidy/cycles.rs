//! No two modules of a crate import each other in a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Violation;
use super::tree::{Line, Tree};

/// The modules of a place, and whom each imports, with the file and line that says so.
type Imports<'a> = BTreeMap<&'a str, BTreeMap<String, (&'a str, usize)>>;

/// Checks every folder below a crate's `src`, that included: modules beside each other.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let rust = tree.files.keys().filter(|path| path.ends_with(".rs"));
    let places: BTreeSet<&str> = rust.flat_map(|path| folders(path)).collect();
    places
        .iter()
        .flat_map(|place| circles(tree, place))
        .collect()
}

/// The folders of a file, from its crate's `src` on.
fn folders(path: &str) -> impl Iterator<Item = &str> {
    let src = path.split_once("/src/").map(|(place, _)| place.len() + 4);
    let ends = path.match_indices('/').map(|(at, _)| at);
    ends.filter(move |end| src.is_some_and(|src| *end >= src))
        .filter_map(|end| path.get(..end))
}

fn circles(tree: &Tree, place: &str) -> Vec<Violation> {
    let mut imports = Imports::new();
    for (path, lines) in tree.rust() {
        let Some((within, file)) = within(path, place) else {
            continue;
        };
        // The place's own `mod.rs` and `lib.rs` may know all their modules.
        let Some(from) = file.first().copied() else {
            continue;
        };
        let all: Vec<&str> = within.iter().chain(&file).copied().collect();
        let known = imports.entry(from).or_default();
        for (line, target) in targets(&lines, &all) {
            let inner = target
                .iter()
                .zip(&within)
                .all(|(named, part)| named == part);
            let to = target.into_iter().nth(within.len()).filter(|_| inner);
            if let Some(to) = to.filter(|to| to != from) {
                known.entry(to).or_insert((path, line));
            }
        }
    }
    let mut found = Vec::new();
    for from in imports.keys() {
        let Some(circle) = circle(&imports, from) else {
            continue;
        };
        // Each circle is said once, from its first module.
        if circle.iter().min() == Some(from) {
            let (path, line) = imports[from][circle[1 % circle.len()]];
            let what = format!(
                "modules import each other: {} -> {from}",
                circle.join(" -> ")
            );
            let remedy = "move what both need to a module that knows neither";
            found.push(Violation::new(path, line, "cycle", what, remedy));
        }
    }
    found
}

/// The module path of `place` in its crate, and of a file below it.
fn within<'a>(path: &'a str, place: &'a str) -> Option<(Vec<&'a str>, Vec<&'a str>)> {
    let file = path.strip_prefix(place)?.strip_prefix('/')?;
    let (_, inner) = place.split_once("/src").unwrap_or(("", ""));
    let mut modules: Vec<&str> = file.strip_suffix(".rs")?.split('/').collect();
    modules.pop_if(|last| ["mod", "lib", "main"].contains(last));
    Some((
        inner.split('/').filter(|part| !part.is_empty()).collect(),
        modules,
    ))
}

/// The shortest way from a module back to itself.
fn circle<'a>(imports: &'a Imports<'_>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut ways = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let last = imports.get(way.last()?).into_iter();
        for next in last.flat_map(BTreeMap::keys) {
            if *next == start {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push_back([&way[..], &[next]].concat());
            }
        }
    }
    None
}

/// The modules and items of the crate that the production code of module `own` names, with lines.
fn targets(lines: &[Line<'_>], own: &[&str]) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let (mut begin, mut import) = (0, String::new());
    for line in lines.iter().filter(|line| !line.test) {
        let code = line.code.trim();
        let starts = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
        let used = starts.iter().find_map(|start| code.strip_prefix(start));
        if import.is_empty() && used.is_none() {
            let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            found.extend(words.filter_map(|word| Some((line.number, resolve(word, own)?))));
            continue;
        }
        if import.is_empty() {
            begin = line.number;
        }
        import.push_str(used.unwrap_or(code));
        if let Some(tree) = import.strip_suffix(';') {
            let paths = expand(tree);
            found.extend(
                paths
                    .iter()
                    .filter_map(|path| Some((begin, resolve(path, own)?))),
            );
            import.clear();
        }
    }
    found
}

/// The paths of `a::{b, c::d}`.
fn expand(tree: &str) -> Vec<String> {
    let (mut found, mut before) = (Vec::new(), vec![String::new()]);
    for token in format!("{tree},").split_inclusive(['{', '}', ',']) {
        let (name, mark) = token.split_at(token.len() - 1);
        let path = format!(
            "{}{}",
            before.last().map_or("", String::as_str),
            name.trim()
        );
        match mark {
            "{" => before.push(path),
            "}" => {
                found.push(path);
                before.pop();
            }
            _ => found.push(path),
        }
    }
    found
}

/// A path from the top of the crate, if it says that it is one of this crate.
fn resolve(path: &str, own: &[&str]) -> Option<Vec<String>> {
    let own = || own.iter().map(|part| (*part).to_owned()).collect();
    let mut base: Option<Vec<String>> = None;
    for part in path.split("::").filter(|part| !part.is_empty()) {
        match part {
            "crate" => base = Some(Vec::new()),
            "self" => base = Some(own()),
            "super" => drop(base.get_or_insert_with(own).pop()),
            name => base.as_mut()?.push(name.to_owned()),
        }
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files))
            .into_iter()
            .map(|v| v.what)
            .collect()
    }

    #[test]
    fn modules_that_import_each_other_are_found() {
        let files = [
            ("crates/x/src/lib.rs", "mod a; mod b; use a::A;"),
            (
                "crates/x/src/a/mod.rs",
                "use crate::{\n    c::{C, D},\n    b::B,\n};",
            ),
            ("crates/x/src/b.rs", "fn f() -> super::c::C {}"),
            ("crates/x/src/c/d.rs", "use super::super::a::A;"),
        ];
        assert_eq!(found(&files), ["modules import each other: a -> c -> a"]);
    }

    #[test]
    fn tests_comments_and_the_modules_above_make_no_circle() {
        let files = [
            ("crates/x/src/a.rs", "use crate::b::B; use super::X;"),
            (
                "crates/x/src/b.rs",
                "// crate::a\n#[cfg(test)]\nmod tests {\n use crate::a::A;\n}",
            ),
            ("crates/x/src/b/tests.rs", "use crate::a::A;"),
            ("crates/x/src/c.rs", "use self::d::D;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn the_modules_of_a_big_module_are_looked_at_too() {
        let files = [
            ("crates/peer/src/session/mod.rs", "use self::ack::A;"),
            ("crates/peer/src/session/ack.rs", "use super::conn::C;"),
            (
                "crates/peer/src/session/conn.rs",
                "use crate::session::{ack, Session};",
            ),
        ];
        assert_eq!(
            found(&files),
            ["modules import each other: ack -> conn -> ack"]
        );
    }
}
