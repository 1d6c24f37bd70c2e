//! Which crate may know which.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Violation;
use super::tree::Tree;
use crate::run;

/// Our crates and those of ours that each may depend on. Anything not listed is forbidden.
const ALLOWED: &[(&str, &[&str])] = &[
    ("peerbus-os", &[]),
    ("peerbus-wire", &[]),
    ("peerbus-core", &["wire"]),
    ("peerbus-store", &["core", "wire"]),
    ("peerbus-broker", &["core", "wire", "store", "os"]),
    ("peerbus-adapter", &["core", "wire", "os"]),
    ("peerbus-mcp", &["adapter", "wire"]),
    ("peerbus-cc-adapter", &["mcp", "adapter", "wire", "os"]),
    (
        "peerbus",
        &[
            "os",
            "wire",
            "core",
            "store",
            "broker",
            "adapter",
            "mcp",
            "cc-adapter",
        ],
    ),
    ("peerbus-bench", &["core", "wire", "store"]),
    ("peerbus-instructions", &["core", "wire", "store"]),
    ("peerbus-sim", &["core", "wire", "store"]),
    ("peerbus-xtask", &[]),
];

/// Everything else that the pure crates may depend on.
const PURE: &[(&str, &[&str])] = &[
    (
        "peerbus-wire",
        &[
            "hmac",
            "serde",
            "serde_json",
            "sha2",
            "subtle",
            "thiserror",
            "zeroize",
        ],
    ),
    (
        "peerbus-core",
        &["blake3", "serde", "serde_json", "subtle", "thiserror"],
    ),
];

/// What the pure crates must not reach, however far down.
const IMPURE: [&str; 6] = [
    "tokio",
    "rusqlite",
    "libsqlite3-sys",
    "rand",
    "getrandom",
    "mio",
];

/// What cargo says of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    packages: Vec<Package>,
    /// Direct dependencies at run time of every package in the lock file, by name.
    graph: BTreeMap<String, BTreeSet<String>>,
    /// The keys of `[workspace.dependencies]` with their lines.
    declared: Vec<(String, usize)>,
}

/// One of our crates.
#[derive(Debug, Default)]
struct Package {
    name: String,
    manifest: String,
    /// Dependencies of any kind; true for one that only tests need.
    dependencies: Vec<(String, bool)>,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn read(tree: &Tree) -> Result<Self> {
        let output = run::cargo()
            .args(["metadata", "--format-version", "1"])
            .output()
            .context("cannot start cargo metadata")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "cargo metadata failed: {}",
            stderr.trim()
        );
        let manifest = tree.files.get("Cargo.toml").map_or("", |file| &file.text);
        Self::parse(&serde_json::from_slice(&output.stdout)?, manifest)
    }

    fn parse(metadata: &Value, manifest: &str) -> Result<Self> {
        let table: toml::Table = manifest.parse().context("cannot read Cargo.toml")?;
        let declared = table
            .get("workspace")
            .and_then(|workspace| workspace.get("dependencies")?.as_table())
            .map(|table| {
                table
                    .keys()
                    .map(|key| (key.clone(), line_of(manifest, key)))
                    .collect()
            })
            .unwrap_or_default();
        let root = metadata["workspace_root"].as_str().unwrap_or_default();
        let members: BTreeSet<&str> = texts(&metadata["workspace_members"]).collect();
        let mut names = BTreeMap::new();
        let mut packages = Vec::new();
        for package in items(&metadata["packages"]) {
            let (id, name) = (text(&package["id"]), text(&package["name"]));
            names.insert(id, name);
            if members.contains(id) {
                packages.push(Package {
                    name: name.to_owned(),
                    manifest: text(&package["manifest_path"])
                        .trim_start_matches(root)
                        .trim_start_matches('/')
                        .to_owned(),
                    dependencies: items(&package["dependencies"])
                        .map(|d| (text(&d["name"]).to_owned(), text(&d["kind"]) == "dev"))
                        .collect(),
                });
            }
        }
        let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in items(&metadata["resolve"]["nodes"]) {
            let needs = items(&node["deps"])
                .filter(|dep| items(&dep["dep_kinds"]).any(|kind| kind["kind"].is_null()))
                .filter_map(|dep| names.get(text(&dep["pkg"])).copied().map(str::to_owned));
            let name = names.get(text(&node["id"])).copied().unwrap_or_default();
            graph.entry(name.to_owned()).or_default().extend(needs);
        }
        Ok(Self {
            packages,
            graph,
            declared,
        })
    }

    /// Everything that `name` needs at run time.
    fn reach<'a>(&'a self, name: &'a str) -> BTreeSet<&'a str> {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![name]);
        while let Some(next) = todo.pop() {
            if seen.insert(next) {
                todo.extend(
                    self.graph
                        .get(next)
                        .into_iter()
                        .flatten()
                        .map(String::as_str),
                );
            }
        }
        seen
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    items(value).filter_map(Value::as_str)
}

/// The line on which a key of a TOML table is written, 0 when it is not found.
fn line_of(manifest: &str, key: &str) -> usize {
    let names = |line: &str| {
        line.split('=')
            .next()
            .is_some_and(|left| left.trim() == key)
    };
    manifest.lines().position(names).map_or(0, |at| at + 1)
}

/// Checks the directions, the third-party crates of the pure crates, and unused declarations.
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut found: Vec<Violation> = workspace.packages.iter().flat_map(directions).collect();
    for (name, allowed) in PURE {
        let Some(package) = workspace.packages.iter().find(|p| p.name == *name) else {
            continue;
        };
        let direct = package
            .dependencies
            .iter()
            .filter(|(_, dev)| !dev)
            .map(|(name, _)| name.as_str());
        let strange = direct.filter(|d| !d.starts_with("peerbus") && !allowed.contains(d));
        let reached = workspace.reach(name);
        let impure = IMPURE.into_iter().filter(|name| reached.contains(name));
        found.extend(strange.chain(impure).map(|dependency| {
            violation(
                &package.manifest,
                0,
                format!("{name} depends on {dependency}"),
                "keep the pure crates pure; a pure dependency is added to PURE in xtask's tidy",
            )
        }));
    }
    let used: BTreeSet<&str> = workspace
        .packages
        .iter()
        .flat_map(|package| package.dependencies.iter().map(|(name, _)| name.as_str()))
        .collect();
    let unused = workspace
        .declared
        .iter()
        .filter(|(name, _)| !used.contains(name.as_str()));
    found.extend(unused.map(|(name, line)| {
        violation(
            "Cargo.toml",
            *line,
            format!("no crate uses {name}"),
            "remove it from [workspace.dependencies]",
        )
    }));
    found
}

/// Checks what a crate of ours knows of the others.
fn directions(package: &Package) -> Vec<Violation> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
        let what = format!("{} has no place in the drawing of crates", package.name);
        return vec![violation(
            &package.manifest,
            0,
            what,
            "add it to ALLOWED in xtask's tidy and to docs/ARCHITECTURE.md",
        )];
    };
    let forbidden = package
        .dependencies
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| {
            let short = name.strip_prefix("peerbus-");
            *name == "peerbus" || short.is_some_and(|short| !allowed.contains(&short))
        });
    let mut found: Vec<Violation> = forbidden
        .map(|name| {
            let what = format!("{} must not know {name}", package.name);
            violation(
                &package.manifest,
                0,
                what,
                "see the drawing of crates in docs/ARCHITECTURE.md",
            )
        })
        .collect();
    let sqlite = package
        .dependencies
        .iter()
        .any(|(name, dev)| name == "rusqlite" && !dev);
    if sqlite && package.name != "peerbus-store" {
        let what = format!("{} depends on rusqlite", package.name);
        found.push(violation(
            &package.manifest,
            0,
            what,
            "go through peerbus-store",
        ));
    }
    found
}

fn violation(path: &str, line: usize, what: String, remedy: &str) -> Violation {
    Violation {
        path: path.to_owned(),
        line,
        rule: "dependency",
        what,
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            dependencies: dependencies
                .iter()
                .map(|(n, dev)| ((*n).to_owned(), *dev))
                .collect(),
        }
    }

    fn whats(workspace: &Workspace) -> Vec<String> {
        check(workspace).into_iter().map(|v| v.what).collect()
    }

    #[test]
    fn only_drawn_directions_are_allowed() {
        let fine = Workspace {
            packages: vec![
                package(
                    "peerbus-core",
                    &[("peerbus-wire", false), ("proptest", true)],
                ),
                package(
                    "peerbus",
                    &[("peerbus-broker", false), ("peerbus-cc-adapter", false)],
                ),
            ],
            ..Workspace::default()
        };
        assert_eq!(whats(&fine), [""; 0]);
        for (name, bad) in [
            ("peerbus-wire", "peerbus-core"),
            ("peerbus-core", "peerbus-store"),
            ("peerbus-adapter", "peerbus-broker"),
            ("peerbus-broker", "peerbus-adapter"),
            ("peerbus-mcp", "peerbus-core"),
            ("peerbus-sim", "peerbus-broker"),
            ("peerbus-broker", "peerbus"),
        ] {
            for dev in [false, true] {
                let workspace = Workspace {
                    packages: vec![package(name, &[(bad, dev)])],
                    ..Workspace::default()
                };
                assert_eq!(whats(&workspace), [format!("{name} must not know {bad}")]);
            }
        }
    }

    #[test]
    fn an_unknown_crate_and_sqlite_outside_the_store_are_found() {
        let stranger = Workspace {
            packages: vec![package("peerbus-extra", &[])],
            ..Workspace::default()
        };
        assert!(whats(&stranger)[0].contains("no place"));
        let sqlite = Workspace {
            packages: vec![package("peerbus-broker", &[("rusqlite", false)])],
            ..Workspace::default()
        };
        assert!(whats(&sqlite)[0].contains("rusqlite"));
    }

    #[test]
    fn metadata_shows_impure_and_unused_dependencies() {
        let metadata = serde_json::json!({
            "workspace_root": "/r",
            "workspace_members": ["c"],
            "packages": [
                {"id": "c", "name": "peerbus-core", "manifest_path": "/r/crates/core/Cargo.toml",
                 "dependencies": [{"name": "serde", "kind": null}, {"name": "axum", "kind": null},
                                  {"name": "tempfile", "kind": "dev"}]},
                {"id": "s", "name": "serde"}, {"id": "g", "name": "getrandom"}, {"id": "t", "name": "tokio"}
            ],
            "resolve": {"nodes": [
                {"id": "c", "deps": [{"pkg": "s", "dep_kinds": [{"kind": null}]},
                                     {"pkg": "t", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "s", "deps": [{"pkg": "g", "dep_kinds": [{"kind": null}]}]}
            ]}
        });
        let manifest = "[workspace.dependencies]\nserde = \"1\"\nclap = \"4\"\n";
        let workspace = Workspace::parse(&metadata, manifest).unwrap();
        let found = check(&workspace);
        let found: Vec<_> = found
            .iter()
            .map(|v| (v.path.as_str(), v.line, v.what.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("crates/core/Cargo.toml", 0, "peerbus-core depends on axum"),
                (
                    "crates/core/Cargo.toml",
                    0,
                    "peerbus-core depends on getrandom"
                ),
                ("Cargo.toml", 3, "no crate uses clap"),
            ]
        );
    }
}
