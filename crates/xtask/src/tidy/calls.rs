//! Names that code must not use, and where.

use super::Violation;
use super::tree::{Tree, is_test_file};

/// A name in code that is banned in some places.
struct Ban {
    name: &'static str,
    rule: &'static str,
    place: fn(&Place<'_>) -> bool,
    remedy: &'static str,
}

/// Where a line of code stands.
struct Place<'a> {
    path: &'a str,
    test: bool,
}

impl Place<'_> {
    fn is_in(&self, folders: &[&str]) -> bool {
        folders.iter().any(|folder| self.path.starts_with(folder))
    }
}

fn everywhere(_: &Place<'_>) -> bool {
    true
}

fn pure(place: &Place<'_>) -> bool {
    place.is_in(&["crates/core/", "crates/wire/"])
}

fn pure_and_shipped(place: &Place<'_>) -> bool {
    pure(place) && !place.test
}

fn silent(place: &Place<'_>) -> bool {
    !place.test && !place.is_in(&["crates/cli/", "crates/xtask/"])
}

fn tests(place: &Place<'_>) -> bool {
    place.test
}

const CLOCK: &str = "take the time as an argument: core and wire read no clock";
const ORDER: &str = "use a BTreeMap or BTreeSet: outputs must not depend on hash order";
const IO: &str = "core and wire do no I/O: move it to a shell crate";
const STDOUT: &str = "use tracing: stdout belongs to MCP";
const UNBOUNDED: &str = "use a bounded channel with a stated capacity";
const STUB: &str = "write it, or leave it out";

const BANS: &[Ban] = &[
    Ban {
        name: "Instant::now",
        rule: "clock",
        place: pure,
        remedy: CLOCK,
    },
    Ban {
        name: "SystemTime::now",
        rule: "clock",
        place: pure,
        remedy: CLOCK,
    },
    Ban {
        name: "HashMap",
        rule: "hash-order",
        place: pure,
        remedy: ORDER,
    },
    Ban {
        name: "HashSet",
        rule: "hash-order",
        place: pure,
        remedy: ORDER,
    },
    Ban {
        name: "std::fs",
        rule: "io",
        place: pure_and_shipped,
        remedy: IO,
    },
    Ban {
        name: "std::net",
        rule: "io",
        place: pure_and_shipped,
        remedy: IO,
    },
    Ban {
        name: "std::env",
        rule: "io",
        place: pure_and_shipped,
        remedy: IO,
    },
    Ban {
        name: "std::thread",
        rule: "io",
        place: pure_and_shipped,
        remedy: IO,
    },
    Ban {
        name: "println!",
        rule: "print",
        place: silent,
        remedy: STDOUT,
    },
    Ban {
        name: "print!",
        rule: "print",
        place: silent,
        remedy: STDOUT,
    },
    Ban {
        name: "thread::sleep",
        rule: "sleep",
        place: tests,
        remedy: "wait for the event itself, under a deadline",
    },
    Ban {
        name: "#[ignore",
        rule: "ignored-test",
        place: everywhere,
        remedy: "run the test, or delete it; say why when a tool it needs is missing",
    },
    Ban {
        name: "unbounded_channel",
        rule: "unbounded",
        place: everywhere,
        remedy: UNBOUNDED,
    },
    Ban {
        name: "mpsc::channel()",
        rule: "unbounded",
        place: everywhere,
        remedy: UNBOUNDED,
    },
    Ban {
        name: "todo!",
        rule: "stub",
        place: everywhere,
        remedy: STUB,
    },
    Ban {
        name: "unimplemented!",
        rule: "stub",
        place: everywhere,
        remedy: STUB,
    },
    Ban {
        name: "clippy::too_many_lines",
        rule: "function-size",
        place: everywhere,
        remedy: "split the function: 70 lines hold for everyone",
    },
];

/// Finds banned names in the code of Rust files.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in tree.rust() {
        let test_file = is_test_file(path);
        for (line, parts) in (1..).zip(&source.lines) {
            let place = Place {
                path,
                test: test_file || parts.test,
            };
            let bans = BANS
                .iter()
                .filter(|b| uses(&parts.code, b.name) && (b.place)(&place));
            found.extend(bans.map(|ban| Violation {
                path: path.to_owned(),
                line,
                rule: ban.rule,
                what: format!("`{}` has no place here", ban.name),
                remedy: ban.remedy.to_owned(),
            }));
        }
    }
    found
}

/// Whether `code` holds `name` as a word of its own.
fn uses(code: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = code;
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let open = !(before.ends_with(word) && name.starts_with(word));
        let closed = !(after.starts_with(word) && name.ends_with(word));
        if open && closed {
            return true;
        }
        rest = after;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        check(&Tree::of(&[(path, text)]))
            .into_iter()
            .map(|v| v.rule)
            .collect()
    }

    #[test]
    fn clocks_and_hash_maps_are_kept_out_of_the_pure_crates() {
        for crate_name in ["core", "wire"] {
            let path = format!("crates/{crate_name}/src/a.rs");
            assert_eq!(rules(&path, "let t = Instant::now();"), ["clock"]);
            assert_eq!(
                rules(&path, "let t = std::time::SystemTime::now();"),
                ["clock"]
            );
            assert_eq!(rules(&path, "let m: HashMap<u8, u8>;"), ["hash-order"]);
            assert_eq!(rules(&path, "use std::fs;"), ["io"]);
        }
        assert_eq!(
            rules(
                "crates/broker/src/a.rs",
                "Instant::now(); HashMap::new(); std::fs::x();"
            ),
            [""; 0]
        );
        assert_eq!(
            rules(
                "crates/core/src/a.rs",
                "// HashMap\nlet a = \"HashMap\"; MyHashMapped"
            ),
            [""; 0]
        );
    }

    #[test]
    fn printing_is_for_the_programs_and_for_tests() {
        assert_eq!(rules("crates/mcp/src/a.rs", "println!();"), ["print"]);
        assert_eq!(rules("crates/mcp/src/a.rs", "eprintln!();"), [""; 0]);
        assert_eq!(rules("crates/cli/src/a.rs", "println!();"), [""; 0]);
        assert_eq!(
            rules(
                "crates/mcp/src/a.rs",
                "#[cfg(test)]\nmod t {\nprintln!();\n}"
            ),
            [""; 0]
        );
    }

    #[test]
    fn tests_do_not_sleep_and_are_not_ignored() {
        assert_eq!(rules("tests/it/a.rs", "std::thread::sleep(d);"), ["sleep"]);
        assert_eq!(
            rules(
                "crates/a/src/a.rs",
                "#[cfg(test)]\nmod t {\nthread::sleep(d);\n}"
            ),
            ["sleep"]
        );
        assert_eq!(rules("crates/a/src/a.rs", "thread::sleep(d);"), [""; 0]);
        assert_eq!(
            rules("tests/it/a.rs", "#[ignore = \"slow\"]"),
            ["ignored-test"]
        );
    }

    #[test]
    fn stubs_and_unbounded_channels_are_found_everywhere() {
        assert_eq!(
            rules("crates/a/src/a.rs", "unbounded_channel::<u8>()"),
            ["unbounded"]
        );
        assert_eq!(rules("crates/a/src/a.rs", "mpsc::channel()"), ["unbounded"]);
        assert_eq!(rules("crates/a/src/a.rs", "mpsc::channel(8)"), [""; 0]);
        assert_eq!(rules("tests/it/a.rs", "todo!()"), ["stub"]);
        assert_eq!(rules("tests/it/a.rs", "unimplemented!()"), ["stub"]);
        assert_eq!(
            rules("tests/it/a.rs", "#[allow(clippy::too_many_lines)]"),
            ["function-size"]
        );
    }
}
