//! Texts that are put into driven sessions, on the bus and off it.

use std::fmt::Write as _;
use std::fs::File;
use std::process::Stdio;

use serde_json::{Value, json};

use super::node::status;
use super::{Driven, gates, home, turns};
use crate::sessions::listed;
use crate::support::{Broker, Home, Lines, eventually};

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

#[test]
fn what_a_turn_came_to_is_one_object() {
    let home = home();
    let broker = Broker::start(&home);
    let file = gates(&home, "approve = true");
    let driven = Driven::start(&home, &["--gates", &file]);
    eventually("it is idle", || (status(&home)? == "idle").then_some(()));
    let inject = |text: &'static str| {
        [
            "session",
            "inject",
            "driven",
            text,
            "--wait",
            "result=60",
            "--json",
        ]
    };
    let one = |said: &str| -> Value { serde_json::from_str(said).expect("one JSON") };
    let said = one(&home.run(&inject("hello")).ok());
    for (member, value) in [
        ("type", json!("result")),
        ("subtype", json!("success")),
        ("result", json!("heard it")),
        ("total_cost_usd", json!(0.25)),
        ("num_turns", json!(1)),
        ("permission_denials", json!([])),
    ] {
        assert_eq!(said[member], value, "{said}");
    }
    assert!(
        said["id"].is_string() && said["session_id"].is_string(),
        "{said}"
    );
    let failed = home
        .peerbus(&inject("fail after the answer"))
        .output()
        .expect("it ends");
    assert_eq!(failed.status.code(), Some(1));
    let said = one(&String::from_utf8(failed.stdout).expect("text"));
    assert_eq!(said["subtype"], "error_max_turns", "{said}");
    let why = String::from_utf8(failed.stderr).expect("text");
    assert!(
        why.contains("the turn failed: error_max_turns: too many turns"),
        "{why}"
    );

    let mut waits = home.peerbus(&inject("use a tool"));
    let waits = waits.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut waits = waits.spawn().expect("it starts");
    let errors = Lines::of(waits.stderr.take().expect("a pipe"));
    let id = errors.find("that it waits for its user", |line| {
        let (_, way) = line.split_once("`peerbus session approve ")?;
        let asks = "waits for you: Bash: \"ls\": `peerbus session approve ";
        assert!(line.contains(asks), "it has no window: {line}");
        Some(way.split('`').next()?.to_owned())
    });
    home.run(&["session", "deny", &id]).ok();
    let output = waits.wait_with_output().expect("it ends");
    assert_eq!(
        one(&String::from_utf8(output.stdout).expect("text"))["subtype"],
        "success"
    );
    driven.stop();
    broker.stop();
}
