//! What the reference says in tables, against the tables of the code.

use std::collections::BTreeSet;
use std::fs;

use peerbus_core::audit::AuditKey;
use peerbus_core::broker::BrokerConfig;
use peerbus_core::grant::NAMES_DEFAULT;
use peerbus_view::{Audience, PeerState};

use super::root;
use crate::support::Home;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The words between backticks in the first cells of a document's rows.
fn first_cells(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| Some(row.split_once(" |")?.0.to_owned()));
    let words = cells.flat_map(|cell| {
        let words = format!("`{cell}");
        let words: Vec<_> = words
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        words
    });
    words.collect()
}

#[test]
fn every_command_of_the_help_has_its_row() {
    let help = Home::new().run(&["--help"]);
    let listed = help
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("  "));
    let listed = listed.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let names: BTreeSet<_> = listed.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 20, "{names:?}");
    let rows = first_cells(&read("docs/COMMANDS.md"));
    for name in names {
        assert!(
            rows.contains(name),
            "docs/COMMANDS.md has no row for {name}"
        );
    }
}

#[test]
fn every_state_has_its_row() {
    let rows = first_cells(&read("docs/STATES.md"));
    let source = read("crates/wire/src/stage.rs");
    let (_, reads) = source.split_once("fn read(").expect("what reads a stage");
    let (reads, _) = reads.split_once("_ => return None").expect("its end");
    let stages = reads
        .split(" => ")
        .filter_map(|part| part.rsplit('"').nth(1));
    let stages: BTreeSet<_> = stages.collect();
    assert!(
        stages.len() > 15 && stages.contains("accepted"),
        "{stages:?}"
    );
    let sessions = [
        PeerState::Away,
        PeerState::Waits,
        PeerState::Stuck,
        PeerState::Busy,
        PeerState::Idle,
        PeerState::Online,
    ];
    let sessions = sessions.map(|state| state.word(Audience::Owner));
    for word in stages.into_iter().chain(sessions) {
        assert!(rows.contains(word), "docs/STATES.md has no row for {word}");
    }
}

/// A number as documents write it.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8_lossy(&groups.join(&b',')).into_owned()
}

#[test]
fn the_limits_are_those_of_the_broker() {
    const DAY: u64 = 86_400_000;
    const GIB: u64 = 1_073_741_824;
    const MIB: u64 = 1_048_576;
    let broker = BrokerConfig::new(Vec::new(), AuditKey([0; 32]));
    let rows = [
        ("messages owed to one peer", grouped(broker.queue_max)),
        (
            "mail owed to one peer",
            format!("{} GiB", broker.owed_to_max / GIB),
        ),
        (
            "waiting mail sent with one token",
            format!("{} GiB", broker.owed_by_max / GIB),
        ),
        ("names", grouped(NAMES_DEFAULT as u64)),
        ("names", grouped(broker.peers_max as u64)),
        ("connections", grouped(broker.connections_max as u64)),
        (
            "unacked mail is kept",
            format!("{} days", broker.expiry_ms / DAY),
        ),
        (
            "mail for a generated name",
            format!("{} days", broker.expiry_generated_ms / DAY),
        ),
        (
            "read mail and its ends",
            format!("{} days", broker.history_ms / DAY),
        ),
        (
            "read mail and its ends",
            format!("{} MiB", broker.history_bytes / MIB),
        ),
        (
            "rejected messages",
            format!("{} MiB", broker.dead_bytes / MIB),
        ),
        ("untold statements", grouped(broker.notices_max)),
        (
            "audit blocks",
            format!("{} days", broker.retention_ms / DAY),
        ),
        (
            "a registration",
            format!("{} s", broker.handshake_ms / 1_000),
        ),
    ];
    let document = read("docs/LIMITS.md");
    for (what, limit) in rows {
        let lead = format!("| {what}");
        let row = document.lines().find(|line| line.starts_with(&lead));
        let row = row.unwrap_or_else(|| panic!("docs/LIMITS.md has no row for {what}"));
        assert!(row.contains(&limit), "{limit}: {row}");
    }
}

/// Variables that pass between programs of peerbus alone.
const INTERNAL: [&str; 3] = ["PEERBUS_DRIVER", "PEERBUS_LIFELINE", "PEERBUS_RELAY"];

/// The variables of ours in a text.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.match_indices("PEERBUS_").map(|(at, _)| &text[at..]);
    let words = starts.map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_uppercase() || c == '_'));
        &rest[..end.unwrap_or(rest.len())]
    });
    words.filter(|word| !word.ends_with('_'))
}

#[test]
fn every_variable_of_the_help_has_its_row_and_every_row_its_reader() {
    let document = read("docs/CONFIGURATION.md");
    let rows = first_cells(&document);
    let mut sources = String::new();
    for entry in fs::read_dir(root().join("crates"))
        .expect("a directory")
        .flatten()
    {
        let name = entry.file_name();
        if name != "xtask" {
            collect(&entry.path().join("src"), &mut sources);
        }
    }
    let read: BTreeSet<_> = variables(&sources).collect();
    for row in rows.iter().filter(|row| row.starts_with("PEERBUS_")) {
        assert!(read.contains(row.as_str()), "no program reads {row}");
    }
    let args = Home::new();
    let verbs = ["serve", "adapter", "send", "run", "status"];
    let helps = verbs.map(|verb| args.run(&[verb, "--help"]).stdout);
    for variable in helps.iter().flat_map(|help| variables(help)) {
        let known = rows.contains(variable) || INTERNAL.contains(&variable);
        assert!(known, "docs/CONFIGURATION.md has no row for {variable}");
    }
}

/// Adds the text of every Rust file below a directory.
fn collect(directory: &std::path::Path, text: &mut String) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs") {
            text.push_str(&fs::read_to_string(path).expect("a source"));
        }
    }
}

#[test]
fn the_readme_names_the_repository_and_the_binary_of_the_workspace() {
    let readme = read("README.md");
    let install = format!(
        "cargo install --locked --git {} {}\n",
        env!("CARGO_PKG_REPOSITORY"),
        env!("CARGO_PKG_NAME")
    );
    assert!(readme.contains(&install), "{install}");
    // `cargo run` takes the one binary of the default members.
    assert!(
        readme.contains("cargo run --release -- serve"),
        "the broker"
    );
    assert!(read("Cargo.toml").contains("default-members = [\"crates/cli\"]"));
    assert!(
        readme.contains("\n    cargo test --workspace\n"),
        "the tests"
    );
    assert!(read(".ci/run").contains("cargo test --workspace"));
}

#[test]
fn the_index_names_every_page() {
    let index = read("docs/README.md");
    for (name, _) in super::documents() {
        let page = name
            .strip_prefix("docs/")
            .filter(|page| *page != "README.md");
        if let Some(page) = page {
            let linked = index.contains(&format!("]({page})"));
            assert!(linked, "docs/README.md does not link {page}");
        }
    }
}
