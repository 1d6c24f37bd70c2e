//! Which crate may know which: as docs/ARCHITECTURE.md draws it, and nothing else.

use anyhow::Result;
use serde_json::Value;

use super::Violation;
use super::tree::Tree;
use crate::run::{self, output};

/// The document with the drawing, a line for some crates: their names, what they are, whom they know.
const DRAWING: &str = "docs/ARCHITECTURE.md";
/// What tests stand on: nobody but a test may know it.
const SUPPORT: &str = "peerbus-test-support";

/// What the pure crates may use besides: nothing with a clock, randomness or I/O.
const PURE: [(&str, &str); 4] = [
    (
        "peerbus-wire",
        "blake3 data-encoding hmac serde serde_json sha2 subtle thiserror zeroize",
    ),
    ("peerbus-view", "schemars serde serde_json"),
    ("peerbus-core", "blake3 serde serde_json subtle thiserror"),
    ("peerbus-peer", "blake3 thiserror"),
];

#[derive(Debug)]
pub(super) struct Package {
    name: String,
    manifest: String,
    /// Dependencies of any kind; true for one that only tests need.
    dependencies: Vec<(String, bool)>,
}

pub(super) fn packages() -> Result<Vec<Package>> {
    let metadata = ["metadata", "--format-version", "1", "--no-deps"];
    let output = output(run::cargo().args(metadata))?;
    Ok(parse(&serde_json::from_slice(&output)?))
}

fn parse(metadata: &Value) -> Vec<Package> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let root = format!("{}/", text(&metadata["workspace_root"]));
    let packages = items(&metadata["packages"]).into_iter();
    let package = |package: Value| Package {
        name: text(&package["name"]),
        manifest: text(&package["manifest_path"]).replacen(&root, "", 1),
        dependencies: items(&package["dependencies"])
            .iter()
            .map(|d| (text(&d["name"]), text(&d["kind"]) == "dev"))
            .collect(),
    };
    packages.map(package).collect()
}

pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Violation> {
    let packages = packages.iter();
    packages
        .flat_map(|package| check_one(tree, package))
        .collect()
}

/// The words behind `knows` in the line of the drawing with a crate.
fn drawn<'t>(tree: &'t Tree, package: &str) -> Option<Vec<&'t str>> {
    let document = tree.files.get(DRAWING)?;
    let short = match package
        .trim_start_matches("peerbus")
        .trim_start_matches('-')
    {
        "" => "cli",
        "test-support" => "support",
        short => short,
    };
    let is_named = |line: &str| {
        let names = line.split("  ").next().unwrap_or_default().split(", ");
        names
            .map(|name| name.trim_start_matches("tests/"))
            .any(|name| name == short)
    };
    let known = document.lines().find_map(|line| {
        let (left, known) = line
            .split_once(" knows ")
            .or_else(|| line.split_once(" know "))?;
        is_named(left).then_some(known)
    })?;
    let words = known.split([',', ';', ' ']);
    Some(words.filter(|word| !word.is_empty()).collect())
}

fn check_one(tree: &Tree, package: &Package) -> Vec<Violation> {
    let violation = |what: String, remedy: &str| {
        Violation::new(&package.manifest, 0, "dependency", what, remedy)
    };
    let Some(allowed) = drawn(tree, &package.name) else {
        let what = format!("{} has no place in the drawing of crates", package.name);
        return vec![violation(what, "draw it in docs/ARCHITECTURE.md")];
    };
    let pure = PURE.iter().find(|(name, _)| *name == package.name);
    let is_impure =
        |name: &str| pure.is_some_and(|(_, pure)| !pure.split(' ').any(|it| it == name));
    let mut found = Vec::new();
    for (name, dev) in &package.dependencies {
        // Nobody may know the binary, `peerbus`.
        let ours = name
            .strip_prefix("peerbus")
            .map(|rest| rest.trim_start_matches('-'));
        let remedy = match ours {
            // The bench runs what tests run.
            _ if name == SUPPORT && package.name == "peerbus-bench" => continue,
            _ if name == SUPPORT && !dev => "move it to dev-dependencies",
            _ if name == SUPPORT && allowed.contains(&"support") => continue,
            Some(ours) if !allowed.contains(&ours) => {
                "see the drawing of crates in docs/ARCHITECTURE.md"
            }
            None if !dev && is_impure(name) => {
                "pure crates stay so; a pure crate is added to PURE in xtask's tidy"
            }
            // The fuzzer writes rows that no store would.
            None if !dev
                && name == "rusqlite"
                && !matches!(&*package.name, "peerbus-store" | "peerbus-fuzz") =>
            {
                "go through peerbus-store"
            }
            _ => continue,
        };
        found.push(violation(
            format!("{} must not know {name}", package.name),
            remedy,
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: &str = include_str!("../../../../docs/ARCHITECTURE.md");

    fn whats(name: &str, dependency: &str, dev: bool) -> Vec<String> {
        let packages = [Package {
            name: name.to_owned(),
            manifest: String::new(),
            dependencies: vec![(dependency.to_owned(), dev)],
        }];
        let tree = Tree::of(&[(DRAWING, DRAWN)]);
        check(&tree, &packages)
            .into_iter()
            .map(|v| v.what)
            .collect()
    }

    #[test]
    fn only_drawn_directions_are_allowed() {
        assert_eq!(whats("peerbus-core", "peerbus-wire", false), [""; 0]);
        assert_eq!(whats("peerbus", "peerbus-broker", false), [""; 0]);
        for (name, bad) in [
            ("peerbus-wire", "peerbus-core"),
            ("peerbus-core", "peerbus-store"),
            ("peerbus-adapter", "peerbus-broker"),
            ("peerbus-broker", "peerbus-adapter"),
            ("peerbus-sim", "peerbus-broker"),
            ("peerbus-broker", "peerbus"),
        ] {
            for dev in [false, true] {
                let expected = [format!("{name} must not know {bad}")];
                assert_eq!(whats(name, bad, dev), expected);
            }
        }
        assert!(whats("peerbus-extra", "serde", false)[0].contains("no place"));
        assert_eq!(whats("peerbus-mcp", SUPPORT, true), [""; 0]);
        assert_eq!(whats("peerbus-mcp", SUPPORT, false).len(), 1);
        for stranger in [
            "peerbus-wire",
            "peerbus-core",
            "peerbus-setup",
            "peerbus-sim",
        ] {
            assert_eq!(whats(stranger, SUPPORT, true).len(), 1, "{stranger}");
        }
    }

    #[test]
    fn pure_crates_stay_pure_and_sqlite_belongs_to_the_store() {
        assert_eq!(whats("peerbus-core", "axum", false).len(), 1);
        assert_eq!(whats("peerbus-core", "tempfile", true).len(), 0);
        assert_eq!(whats("peerbus-broker", "rusqlite", false).len(), 1);
        assert_eq!(whats("peerbus-store", "rusqlite", false).len(), 0);
    }

    #[test]
    fn metadata_is_read() {
        let packages = parse(&serde_json::json!({
            "workspace_root": "/r",
            "packages": [{"name": "peerbus-core", "manifest_path": "/r/crates/core/Cargo.toml",
                "dependencies": [{"name": "axum", "kind": null}, {"name": "tempfile", "kind": "dev"}]}],
        }));
        let found = check(&Tree::of(&[(DRAWING, DRAWN)]), &packages);
        assert_eq!(found[0].path, "crates/core/Cargo.toml");
        assert_eq!(found[0].what, "peerbus-core must not know axum");
        assert_eq!(found.len(), 1);
    }
}
