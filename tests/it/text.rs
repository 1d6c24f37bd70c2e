//! What people read: tables and texts on terminals of each width, and in a pipe.

mod decided;

use std::fs::File;
use std::process::Output;

use serde_json::json;
use unicode_width::UnicodeWidthStr as _;

use crate::conversation::peer;
use crate::support::{Broker, Finished, Home, Raw, eventually, python};

/// Columns of terminals.
const WIDTHS: [usize; 5] = [60, 80, 100, 130, 200];
const LONG: &str = "a-name-of-as-many-characters-as-a-name-can-have-which-are-64-aaa";

/// A command on a terminal so many columns wide, with some variables set.
fn on_a_terminal(home: &Home, columns: usize, args: &[&str], set: &[(&str, &str)]) -> String {
    in_which(home, columns, args, set, "")
}

/// The same, in which something is typed.
fn in_which(
    home: &Home,
    columns: usize,
    args: &[&str],
    set: &[(&str, &str)],
    typed: &str,
) -> String {
    let keys = home.path().join("typed");
    std::fs::write(&keys, typed).expect("our file");
    let mut command = home.command("python3");
    command.stdin(File::open(keys).expect("our file"));
    command.arg(python::script("it/terminal.py"));
    command.arg(columns.to_string());
    command.arg(env!("CARGO_BIN_EXE_peerbus")).args(args);
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "TZ"] {
        command.env_remove(name);
    }
    let Output { stdout, .. } = command.envs(set.iter().copied()).output().expect("python3");
    String::from_utf8(stdout).expect("utf-8")
}

/// What is shown there without colours, no line of it wider than the terminal.
#[track_caller]
fn fits(home: &Home, columns: usize, args: &[&str]) -> String {
    types(home, columns, args, "")
}

/// The same, where something is typed.
#[track_caller]
pub(crate) fn types(home: &Home, columns: usize, args: &[&str], typed: &str) -> String {
    let shown = in_which(home, columns, args, &[("NO_COLOR", "1")], typed);
    for line in shown.lines() {
        assert!(line.width() <= columns, "{columns}: {line}");
    }
    shown
}

/// A text as it was before it was broken into lines.
fn joined(shown: &str) -> String {
    shown.lines().map(str::trim).collect()
}

#[test]
fn a_table_fits_each_terminal_with_names_and_states_whole() {
    let home = Home::new();
    let broker = Broker::start(&home);
    assert_eq!(LONG.len(), 64);
    let _session = peer(&home, LONG);
    let _bob = Raw::register(&home, &broker, "bob");
    for columns in WIDTHS {
        let peers = fits(&home, columns, &["peers"]);
        assert!(joined(&peers).contains(LONG), "{columns}: {peers}");
        assert!(peers.contains("bob") && peers.contains("online"), "{peers}");
        let heads = ["PROJECT", "ACKS"].map(|head| peers.contains(head));
        // The long name hides no column.
        assert_eq!(heads, [true, columns >= 100], "{columns}: {peers}");
        let sessions = fits(&home, columns, &["session", "list"]);
        assert!(joined(&sessions).contains(LONG), "{columns}: {sessions}");
    }
    let all = on_a_terminal(&home, 60, &["peers", "--wide"], &[]);
    assert!(all.contains("PROCESS") && all.contains("ACKS"), "{all}");
    let list = home.run(&["session", "list"]).ok();
    assert!(
        list.starts_with("NAME") && list.contains(&format!("\n{LONG}")),
        "{list}"
    );
    let why = home.run(&["session", "stop", "nosuch"]).fails(1);
    assert!(why.contains(&format!("there are {LONG} (")), "{why}");
    broker.stop();
}

#[test]
fn wide_text_and_text_from_right_to_left_fits_a_table() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Raw::register(&home, &broker, LONG);
    let question = "測試都通過了嗎？ האם הבדיקות עברו? ".repeat(3);
    home.run(&["ask", LONG, &question, "--detach"]).ok();
    let other = "x".repeat(LONG.len());
    home.run(&["send", LONG, &question, "--name", &other]).ok();
    for columns in WIDTHS {
        for args in [
            &["history"][..],
            &["history", "--short"],
            &["tail", "--short"],
        ] {
            let shown = joined(&fits(&home, columns, args)).replace(' ', "");
            assert!(
                shown.contains(LONG) && shown.contains(&other),
                "{args:?}: {shown}"
            );
        }
        let requests = fits(&home, columns, &["requests"]);
        assert!(joined(&requests).contains(LONG), "{columns}: {requests}");
        assert!(requests.contains("delivered"), "{columns}: {requests}");
        let question = requests.contains("測試");
        assert_eq!(question, columns >= 130, "{columns}: {requests}");
    }
    broker.stop();
}

#[test]
fn a_text_is_whole_wrapped_on_a_terminal_and_on_one_line_in_a_pipe() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Raw::register(&home, &broker, "bob");
    let words = "I am working on the parser. ".repeat(8) + &"x".repeat(220) + " 測試都通過了嗎？";
    let text = format!("{words}\n11-26 10:00:00 eve → bob  \u{1b}[2J\u{202e}forged");
    home.run(&["send", "bob", &text, "--name", "ann"]).ok();
    for verb in ["history", "tail"] {
        for columns in WIDTHS {
            let shown = fits(&home, columns, &[verb]);
            let whole = joined(&shown).replace(' ', "");
            assert!(
                whole.contains(&words.replace(' ', "")),
                "{columns}: {shown}"
            );
            assert!(
                shown.contains("\n    11-26 10:00:00 eve"),
                "it begins no line: {shown}"
            );
            assert!(shown.contains("\\u001b[2J\\u202eforged"), "{shown}");
            let short = fits(&home, columns, &[verb, "--short"]);
            let line = short.lines().next().expect("a line");
            assert!(
                line.ends_with("…\"") && line.contains("ann → bob"),
                "{short}"
            );
            assert!(
                columns < 100 || line.width() > columns - 3,
                "{columns}: {line}"
            );
        }
        let piped = home.run(&[verb]).ok();
        let line = piped.lines().next().expect("a line");
        assert!(
            line.contains(&words) && line.ends_with("forged\""),
            "{piped}"
        );
    }
    broker.stop();
}

#[test]
fn what_commands_say_fits_each_terminal() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Raw::register(&home, &broker, LONG);
    for columns in WIDTHS {
        for args in [&["audit", "verify"][..], &["guide"]] {
            fits(&home, columns, args);
        }
        let asked = home.run(&["ask", LONG, "?", "--detach", "--json"]).ok();
        let asked: serde_json::Value = serde_json::from_str(&asked).expect("JSON");
        let id = asked["id"].as_str().expect("an id");
        let back = fits(&home, columns, &["requests", "cancel", id]);
        assert!(joined(&back).replace(' ', "").contains(LONG), "{back}");
    }
    let guide = fits(&home, 60, &["guide"]);
    let whole = home.run(&["guide"]).ok();
    assert!(whole.lines().any(|line| line.width() > 60), "raw in a pipe");
    assert_eq!(
        joined(&guide).replace(' ', ""),
        joined(&whole).replace(' ', "")
    );
    fits(&home, 60, &["demo"]);
    broker.stop();
}

#[test]
fn times_are_of_the_readers_clock_and_a_z_says_where_they_are_not() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Raw::register(&home, &broker, "bob");
    let sent = home
        .run(&["send", "bob", "hi", "--name", "ann", "--json"])
        .ok();
    let sent: serde_json::Value = serde_json::from_str(&sent).expect("JSON");
    let id = sent["id"].as_str().expect("an id");
    let minute = |args: &[&str], zone: &str| {
        let shown = on_a_terminal(&home, 80, args, &[("TZ", zone)]);
        let mut words = shown.split([' ', 'T', '\n']);
        let time = words
            .find(|word| word.matches(':').count() == 2)
            .expect("a time");
        let number = |at: usize| time[at..at + 2].parse::<u32>().expect("a number");
        (number(0) * 60 + number(3), time.ends_with('Z'))
    };
    for verb in [&["history"][..], &["status", id]] {
        let (utc, z) = minute(verb, "UTC0");
        assert!(z, "{verb:?}");
        let (local, z) = minute(verb, "XXX-05:45");
        assert_eq!((local, z), ((utc + 345) % 1_440, false), "{verb:?}");
    }
    broker.stop();
}

#[test]
fn what_is_yours_to_act_on_has_a_colour_on_a_terminal_and_none_in_a_pipe() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Raw::register(&home, &broker, "bob");
    home.run(&["send", "bob", "hi", "--name", "ann"]).ok();
    let key = bob.delivery()["delivery_key"].take();
    let held = json!({ "type": "progress", "state": "held", "reason": "x", "id": key, "protocol_version": "v1" });
    bob.say(&held.to_string());
    eventually("it is held", || {
        home.run(&["history"]).ok().contains("held").then_some(())
    });
    let red = "\u{1b}[1;31mheld\u{1b}[0m";
    for (set, colours) in [
        (&[][..], true),
        (&[("NO_COLOR", "1")], false),
        (&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], false),
        (&[("NO_COLOR", ""), ("CLICOLOR_FORCE", "0")], true),
    ] {
        let shown = on_a_terminal(&home, 80, &["history"], set);
        assert_eq!(shown.contains(red), colours, "{set:?}: {shown}");
        assert_eq!(shown.contains('\u{1b}'), colours, "{set:?}: {shown}");
    }
    assert!(!home.run(&["history"]).ok().contains('\u{1b}'));
    let mut forced = home.peerbus(&["history"]);
    let forced = Finished::of(forced.env("CLICOLOR_FORCE", "1")).ok();
    assert!(forced.contains(red), "{forced}");
    broker.stop();
}
