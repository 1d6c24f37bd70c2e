//! Which crate may know which.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Violation;
use crate::run;

/// What tests stand on: nobody but a test may know it.
const SUPPORT: &str = "peerbus-test-support";

/// Our crates and those of ours that each may depend on. Anything not listed is forbidden.
const ALLOWED: &[(&str, &[&str])] = &[
    ("peerbus-os", &[]),
    ("peerbus-agents", &[]),
    ("peerbus-wire", &[]),
    ("peerbus-view", &["wire"]),
    ("peerbus-core", &["wire"]),
    ("peerbus-store", &["core", "wire", "os", "test-support"]),
    (
        "peerbus-broker",
        &["core", "view", "wire", "store", "os", "test-support"],
    ),
    (
        "peerbus-adapter",
        &["core", "view", "wire", "os", "agents", "test-support"],
    ),
    (
        "peerbus-mcp",
        &["adapter", "view", "wire", "os", "test-support"],
    ),
    (
        "peerbus-node",
        &["adapter", "core", "view", "wire", "os", "test-support"],
    ),
    (
        "peerbus-cc-adapter",
        &[
            "mcp",
            "node",
            "adapter",
            "wire",
            "os",
            "agents",
            "test-support",
        ],
    ),
    (
        "peerbus-wake",
        &[
            "mcp",
            "node",
            "adapter",
            "view",
            "wire",
            "os",
            "agents",
            "test-support",
        ],
    ),
    (
        "peerbus-driver",
        &["mcp", "node", "adapter", "wire", "os", "test-support"],
    ),
    (
        "peerbus-setup",
        &["adapter", "view", "agents", "os", "side-channel"],
    ),
    ("peerbus-side-channel", &["adapter", "core", "wire", "os"]),
    (
        "peerbus-bridge",
        &["adapter", "core", "wire", "os", "test-support"],
    ),
    (
        "peerbus-web",
        &[
            "node",
            "adapter",
            "core",
            "view",
            "wire",
            "os",
            "test-support",
        ],
    ),
    (
        "peerbus",
        &[
            "agents",
            "wire",
            "core",
            "view",
            "store",
            "broker",
            "adapter",
            "mcp",
            "node",
            "cc-adapter",
            "wake",
            "driver",
            "setup",
            "side-channel",
            "web",
            "test-support",
        ],
    ),
    ("peerbus-bench", &["core", "wire", "store", "test-support"]),
    (
        "peerbus-fuzz",
        &[
            "wire",
            "core",
            "store",
            "adapter",
            "mcp",
            "cc-adapter",
            "setup",
        ],
    ),
    ("peerbus-instructions", &["core", "wire", "store"]),
    ("peerbus-sim", &["core", "wire", "store"]),
    (SUPPORT, &["wire"]),
    ("peerbus-xtask", &[]),
];

/// What the pure crates may use besides: nothing with a clock, randomness or I/O.
const PURE: &[(&str, &[&str])] = &[
    (
        "peerbus-wire",
        &[
            "blake3",
            "data-encoding",
            "hmac",
            "serde",
            "serde_json",
            "sha2",
            "subtle",
            "thiserror",
            "zeroize",
        ],
    ),
    ("peerbus-view", &["schemars", "serde", "serde_json"]),
    (
        "peerbus-core",
        &["blake3", "serde", "serde_json", "subtle", "thiserror"],
    ),
];

/// One of our crates.
#[derive(Debug)]
pub(super) struct Package {
    name: String,
    manifest: String,
    /// Dependencies of any kind; true for one that only tests need.
    dependencies: Vec<(String, bool)>,
}

/// Asks cargo for our crates.
pub(super) fn packages() -> Result<Vec<Package>> {
    let output = run::cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .context("cannot start cargo metadata")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let ok = output.status.success();
    ensure!(ok, "cargo metadata failed: {}", stderr.trim());
    Ok(parse(&serde_json::from_slice(&output.stdout)?))
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

/// Checks what each crate knows.
pub(super) fn check(packages: &[Package]) -> Vec<Violation> {
    packages.iter().flat_map(check_one).collect()
}

fn check_one(package: &Package) -> Vec<Violation> {
    let listed = |table: &[(&str, &'static [&'static str])]| {
        table
            .iter()
            .find(|row| row.0 == package.name)
            .map(|row| row.1)
    };
    let violation = |what: String, remedy: &str| {
        Violation::new(&package.manifest, 0, "dependency", what, remedy)
    };
    let Some(allowed) = listed(ALLOWED) else {
        let what = format!("{} has no place in the drawing of crates", package.name);
        let remedy = "add it to ALLOWED in xtask's tidy and to docs/ARCHITECTURE.md";
        return vec![violation(what, remedy)];
    };
    let mut found = Vec::new();
    for (name, dev) in &package.dependencies {
        let what = format!("{} must not know {name}", package.name);
        // Nobody may know the binary, `peerbus`.
        let ours = name
            .strip_prefix("peerbus")
            .map(|rest| rest.trim_start_matches('-'));
        match ours {
            Some(ours) if !allowed.contains(&ours) => {
                let remedy = "see the drawing of crates in docs/ARCHITECTURE.md";
                found.push(violation(what, remedy));
            }
            // The bench runs what tests run.
            Some(_) if !dev && name == SUPPORT && package.name != "peerbus-bench" => {
                found.push(violation(what, "move it to dev-dependencies"));
            }
            None if !dev && listed(PURE).is_some_and(|pure| !pure.contains(&&**name)) => {
                let remedy =
                    "core and wire stay pure; a pure crate is added to PURE in xtask's tidy";
                found.push(violation(what, remedy));
            }
            // The fuzzer writes rows that no store would.
            None if !dev
                && name == "rusqlite"
                && !matches!(&*package.name, "peerbus-store" | "peerbus-fuzz") =>
            {
                found.push(violation(what, "go through peerbus-store"));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(name: &str, dependency: &str, dev: bool) -> Vec<String> {
        let packages = [Package {
            name: name.to_owned(),
            manifest: String::new(),
            dependencies: vec![(dependency.to_owned(), dev)],
        }];
        check(&packages).into_iter().map(|v| v.what).collect()
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
        let found = check(&packages);
        assert_eq!(found[0].path, "crates/core/Cargo.toml");
        assert_eq!(found[0].what, "peerbus-core must not know axum");
        assert_eq!(found.len(), 1);
    }
}
