//! Files beside the packages must fit them, in names and versions.

use serde_json::Value;

use super::formats::MCP_NAME;
use super::platform::PLATFORMS;
use super::*;

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn metadata() -> Value {
    licences::metadata(&PLATFORMS[0].target("musl")).unwrap()
}

#[test]
fn a_package_needs_the_newest_c_library_that_its_binary_names() {
    let binary = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0";
    assert_eq!(libc_version(binary), Some(34));
    let packed = b"\0GLIBC_2.34\0GLIBC_ABI_DT_RELR\0";
    assert_eq!(libc_version(packed), Some(36));
    let control = control("amd64", binary, 7).unwrap();
    assert!(
        control.contains("\nDepends: libc6 (>= 2.34), libgcc-s1\n"),
        "{control}"
    );
    assert!(
        control.lines().skip(10).all(|line| line.starts_with(' ')),
        "{control}"
    );
}

#[test]
fn the_script_fetches_this_version() {
    let script = text("deploy/install.sh");
    assert!(script.contains(&format!("\nversion={VERSION}\n")));
}

#[test]
fn a_static_binary_makes_no_debian_package() {
    assert!(control("amd64", b"nothing", 7).is_err());
    assert!(architecture("sparc").is_err());
}

#[test]
fn what_is_linked_in_is_named_with_its_licence() {
    let notices = licences::text(&metadata()).unwrap();
    for part in ["\nring ", "\ntokio ", "Permission is hereby granted"] {
        assert!(notices.contains(part), "{part}");
    }
    // Used by tests alone.
    assert!(!notices.contains("\nproptest "));
}

#[test]
fn the_bill_of_materials_has_what_is_linked_with_its_sum_and_no_path() {
    let bill = sbom::of(&metadata(), &text("Cargo.lock")).unwrap();
    assert!(!bill.contains(&root().display().to_string()));
    let bill: Value = serde_json::from_str(&bill).unwrap();
    let component = |reference: &str| {
        let mut all = bill["components"].as_array().unwrap().iter();
        all.find(|one| one["bom-ref"].as_str().unwrap().starts_with(reference))
    };
    let tokio = component("tokio@").unwrap();
    assert_eq!(tokio["licenses"][0]["expression"], "MIT");
    assert_eq!(tokio["hashes"][0]["content"].as_str().unwrap().len(), 64);
    assert!(
        tokio["purl"]
            .as_str()
            .unwrap()
            .starts_with("pkg:cargo/tokio@")
    );
    assert!(component("peerbus-wire@").unwrap()["purl"].is_null());
    assert!(component("proptest@").is_none(), "tests alone use it");
    assert_eq!(bill["metadata"]["component"]["version"], VERSION);
    let dependencies = bill["dependencies"].as_array().unwrap();
    let of = |name: &str| {
        let mut all = dependencies.iter();
        let found = all.find(|one| one["ref"].as_str().unwrap().starts_with(name));
        found.unwrap()["dependsOn"].to_string()
    };
    assert!(of("peerbus@").contains("\"tokio@"));
    assert!(!of("peerbus@").contains("tempfile@"), "tests alone use it");
}

#[test]
fn what_binstall_fetches_is_an_archive() {
    let manifest: toml::Table = text("crates/cli/Cargo.toml").parse().unwrap();
    let binstall = &manifest["package"]["metadata"]["binstall"];
    assert_eq!(binstall["pkg-fmt"].as_str(), Some("tgz"));
    let overrides = binstall["overrides"].as_table().unwrap();
    assert_eq!(overrides.len(), PLATFORMS.len());
    for platform in &PLATFORMS {
        let of = &overrides[&platform.target("musl")];
        let said = |member: &str| of[member].as_str().unwrap().replace("{ version }", VERSION);
        let name = platform.archive();
        let url = said("pkg-url");
        assert_eq!(
            url,
            format!("{{ repo }}/releases/download/v{VERSION}/{name}.tar.gz")
        );
        assert_eq!(said("bin-dir"), format!("{name}/{{ bin }}"));
    }
}

#[test]
fn the_mcp_registry_is_told_of_the_packages_of_this_version() {
    let server: Value = serde_json::from_str(&text("deploy/server.json")).unwrap();
    assert_eq!(server["name"], MCP_NAME);
    assert_eq!(server["version"], VERSION);
    assert!(
        server["description"].as_str().unwrap().len() <= 100,
        "the registry's limit"
    );
    let packages = server["packages"].as_array().unwrap();
    let kinds = packages
        .iter()
        .map(|package| package["registryType"].as_str());
    assert_eq!(kinds.collect::<Vec<_>>(), [Some("npm"), Some("pypi")]);
    for package in packages {
        assert_eq!(package["identifier"], "peerbus");
        assert_eq!(package["version"], VERSION);
        assert_eq!(package["packageArguments"][0]["value"], "adapter");
    }
}

/// launchd itself is on macOS only: this is what can be said of the file elsewhere.
#[test]
fn the_launch_agent_is_a_property_list_that_starts_the_broker() {
    const READ: &str = "import json, plistlib, sys; \
                        print(json.dumps(plistlib.load(open(sys.argv[1], 'rb'))))";
    let file = root().join("deploy/peerbus.plist");
    let read = crate::run::output(Command::new("python3").args(["-c", READ]).arg(file)).unwrap();
    let agent: Value = serde_json::from_slice(&read).unwrap();
    assert_eq!(agent["Label"], "io.github.peerbus");
    let arguments = agent["ProgramArguments"].as_array().unwrap();
    // launchd knows neither `~` nor variables.
    assert_eq!(arguments[..2], ["/bin/sh", "-c"]);
    let line = arguments[2].as_str().unwrap();
    assert!(
        line.starts_with("exec \"$HOME/.local/bin/peerbus\" serve "),
        "{line}"
    );
    assert!(crate::run::output(Command::new("/bin/sh").args(["-n", "-c", line])).is_ok());
    assert_eq!(agent["KeepAlive"]["SuccessfulExit"], false);
    assert_eq!(agent["Umask"], 0o77);
}

#[test]
fn the_workflows_run_what_is_there() {
    let mut verbs = 0;
    for workflow in ["ci.yml", "release.yml"] {
        let text = text(&format!(".github/workflows/{workflow}"));
        for (_, rest) in text
            .match_indices("cargo xtask ")
            .map(|(at, word)| text.split_at(at + word.len()))
        {
            let mut words = rest.split_whitespace();
            assert_eq!(words.next(), Some("package"), "{workflow}");
            let kind = words.next().unwrap_or_default();
            let known =
                ["all", "formula"].contains(&kind) || KINDS.iter().any(|(of, _)| *of == kind);
            assert!(known, "{workflow}: package {kind}");
            verbs += 1;
        }
        let paths = text.split([' ', '\n', '"']).filter(|word| {
            let starts = [".ci/", "deploy/", "tests/", "crates/", "./.ci/"];
            starts.iter().any(|start| word.starts_with(start))
        });
        for path in paths {
            assert!(root().join(path).exists(), "{workflow}: {path}");
        }
        let crates = text
            .split_whitespace()
            .filter(|word| word.starts_with("peerbus-"));
        for name in crates.filter(|name| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        }) {
            let folder = name.trim_start_matches("peerbus-");
            let there = root().join("crates").join(folder).exists();
            assert!(there, "{workflow}: {name}");
        }
    }
    assert!(verbs >= 2, "the workflows package nothing");
}

#[test]
fn what_a_release_build_leaves_unoptimised_a_package_says_again() {
    let manifest: toml::Value = toml::from_str(&text("Cargo.toml")).unwrap();
    let named = |profile: &str| manifest["profile"][profile]["package"].as_table().unwrap();
    let dist = named("dist");
    for (name, release) in named("release") {
        // It is inherited otherwise.
        for setting in release.as_table().unwrap().keys() {
            let said = dist.get(name).and_then(|package| package.get(setting));
            assert!(
                said.is_some(),
                "[profile.dist.package] lacks {setting} of {name}"
            );
        }
    }
}
