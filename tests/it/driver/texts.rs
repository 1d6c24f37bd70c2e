//! Texts that are put into driven sessions, on the bus and off it.

use std::fmt::Write as _;
use std::fs::File;
use std::process::Stdio;

use serde_json::Value;

use super::{Driven, home, turns};
use crate::sessions::listed;
use crate::support::{Home, eventually};

/// Waits until the session that is called so is idle, and gives its entry.
fn idle(home: &Home, name: &str) -> Value {
    eventually("it is idle", || {
        let mut all = listed(home).into_iter();
        all.find(|it| it["wanted_name"] == name && it["status"] == "idle")
    })
}

#[test]
fn a_long_text_keeps_its_lines_and_a_run_off_the_bus_is_found_by_its_name() {
    let home = home();
    let driven = Driven::start(&home, &[]);
    let entry = idle(&home, "driven");
    assert!(entry["name"].is_null(), "{entry}");
    let table = home.run(&["session", "list"]).ok();
    assert!(table.contains("driven (off the bus)"), "{table}");

    let file = home.path().join("text");
    let inject = |text: &str| {
        std::fs::write(&file, text).expect("written");
        let mut inject = home.peerbus(&["session", "inject", "driven", "-", "--wait", "result=60"]);
        let input = File::open(&file).expect("there");
        inject
            .stdin(input)
            .stderr(Stdio::piped())
            .output()
            .expect("it ends")
    };
    let mut text = String::new();
    while text.len() < 250_000 {
        writeln!(text, "\tif a[{}] < b && c > 1 {{ \"x\" }}", text.len()).expect("written");
    }
    let output = inject(&text);
    assert!(output.status.success(), "{output:?}");
    let turn = turns(&home).pop().expect("a turn");
    let shown = turn.lines().filter_map(|line| line.strip_prefix("| "));
    let shown: String = shown.map(|line| format!("{line}\n")).collect();
    assert!(shown == text, "{}", &turn[..500]);

    let output = inject(&"x".repeat(256 * 1024));
    assert!(output.status.success(), "{output:?}");
    let output = inject(&"x".repeat(256 * 1024 + 1));
    assert_eq!(output.status.code(), Some(1));
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("262145 bytes, 262144 are the most"), "{why}");
    driven.stop();
}

#[test]
fn the_latest_session_is_the_one_that_was_active_last() {
    let home = home();
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = home.path().join("bin");
    let runs = ["one", "two"].map(|name| {
        let mut command = home.peerbus(&["run", "--name", name]);
        let command = command.env("PATH", format!("{}:{path}", bin.display()));
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let driven = Driven::of(command.spawn().expect("peerbus starts"));
        idle(&home, name);
        driven
    });
    home.run(&["session", "inject", "one", "hello", "--wait", "answer"])
        .ok();
    home.run(&["session", "stop", "--latest"]).ok();
    let left: Vec<_> = listed(&home)
        .iter()
        .map(|it| it["wanted_name"].clone())
        .collect();
    assert_eq!(left, ["two"]);
    drop(runs);
}
