//! The kept corpus, and seeded mutations of it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failure ends the test"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use peerbus_fuzz::{TARGETS, Target};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

/// Pieces that what is read here is made of.
const PIECES: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"null",
    b"true",
    b"1e999",
    b"-0",
    b"0.1",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xe2\x80\xa8",
    b"\n",
    b"\r\n",
    b"#",
    b"//",
    b"/*",
    b"*/",
    b"=",
    b"'",
    b"\"\"\"",
    b"<",
    b"&",
    b" ",
    b"\0",
    b"\"from\":",
    b"\"FROM\":",
    b"\"body\":",
    b"\"type\":",
    b"peerbus",
    b"hmac_secret",
    b"18446744073709551616",
];

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let files = fs::read_dir(dir.join(target.name)).unwrap();
    let paths: BTreeSet<_> = files.map(|file| file.unwrap().path()).collect();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Prints what a target took when it panicked.
struct Taken<'b>(&'b Target, &'b [u8]);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(target, bytes) = self;
            eprintln!("{} does not take \"{}\"", target.name, bytes.escape_ascii());
        }
    }
}

fn take(target: &Target, bytes: &[u8]) {
    let _taken = Taken(target, bytes);
    (target.run)(bytes);
}

fn mutate(bytes: &mut Vec<u8>, all: &[Vec<u8>], rng: &mut StdRng) {
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..=bytes.len());
        let end = rng.random_range(at..=bytes.len().min(at + 16));
        match rng.random_range(0..6) {
            0 => drop(bytes.drain(at..end)),
            1 => drop(bytes.splice(at..at, PIECES.choose(rng).unwrap().iter().copied())),
            2 => drop(bytes.splice(at..end, PIECES.choose(rng).unwrap().iter().copied())),
            3 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            4 => {
                let other = all.choose(rng).unwrap();
                let from = rng.random_range(0..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let copy = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, copy));
            }
        }
    }
}

fn run(name: &str) {
    let target = Target::find(name).unwrap();
    let all = corpus(target);
    assert!(!all.is_empty(), "{name} has a corpus");
    for bytes in &all {
        take(target, bytes);
    }
    let mut rng = StdRng::seed_from_u64(7);
    for _ in 0..target.tries {
        let mut bytes = all.choose(&mut rng).unwrap().clone();
        mutate(&mut bytes, &all, &mut rng);
        take(target, &bytes);
    }
}

#[test]
fn any_bytes_as_a_client_frame() {
    run("client_frame");
}

#[test]
fn any_bytes_as_a_broker_frame() {
    run("broker_frame");
}

#[test]
fn any_bytes_as_what_bridges_say() {
    run("bridge");
}

#[test]
fn any_bytes_as_an_envelope() {
    run("envelope");
}

#[test]
fn any_bytes_as_a_canonical_form() {
    run("canonical");
}

#[test]
fn any_bytes_as_mcp_lines() {
    run("mcp_lines");
}

#[test]
fn any_bytes_as_a_hook_line() {
    run("hook_line");
}

#[test]
fn any_bytes_as_credentials() {
    run("credentials");
}

#[test]
fn any_bytes_as_a_url() {
    run("url");
}

#[test]
fn any_bytes_as_an_agents_configuration() {
    run("agent_config");
}

#[test]
fn any_bytes_as_rows() {
    run("rows");
}

#[test]
fn every_target_is_a_test() {
    let tests = include_str!("corpus.rs");
    for target in TARGETS {
        let run = format!("run(\"{}\");", target.name);
        assert!(tests.contains(&run), "{}", target.name);
    }
}
