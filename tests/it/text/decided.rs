//! What people decide by, and mail that waits: whole, on terminals of each width.

use std::fs;

use serde_json::json;

use crate::orphans::Session;
use crate::sessions::names;
use crate::support::{Broker, Home, Raw, eventually};

use super::{LONG, WIDTHS, fits, joined, types};

/// Words that fit no line, wide ones, ones from right to left, and what forges a line of ours.
fn hard() -> String {
    let words = "I am working on the parser. ".repeat(8) + &"x".repeat(220);
    format!(
        "{words} 測試都通過了嗎？{} האם הבדיקות עברו?\npath: /tmp\u{1b}[2J\u{202e}",
        " ".repeat(210)
    )
}

#[track_caller]
fn is_whole(shown: &str) {
    let (said, whole) = (joined(shown).replace(' ', ""), hard().replace(' ', ""));
    let (text, forged) = whole.split_once('\n').expect("two lines");
    assert!(said.contains(text) && said.contains(LONG), "{shown}");
    let forged = forged
        .replace('\u{1b}', "\\u001b")
        .replace('\u{202e}', "\\u202e");
    assert!(said.contains(&forged), "{shown}");
    assert!(!shown.contains("\npath: "), "{shown}");
}

/// A session of that name that is on the bus.
fn session(home: &Home) -> Session {
    let session = Session::start(home, LONG);
    eventually("it is there", || {
        names(home).contains(&LONG.to_owned()).then_some(())
    });
    session
}

#[test]
fn an_inbox_and_what_is_received_fit_each_terminal() {
    let home = Home::new();
    let broker = Broker::start(&home);
    drop(Raw::register(&home, &broker, "bob"));
    for columns in WIDTHS {
        home.run(&["send", "bob", &hard(), "--name", LONG]).ok();
        let waits = fits(&home, columns, &["inbox", "bob"]);
        assert!(waits.contains("queued") || waits.contains("accepted"));
        assert!(joined(&waits).contains(LONG), "{columns}: {waits}");
        let text = joined(&waits).replace(' ', "");
        assert!(text.contains("morecharacters"), "{waits}");
        let recv = ["recv", "--name", "bob", "--count", "1"];
        is_whole(&fits(&home, columns, &recv));
    }
    broker.stop();
}

#[test]
fn mail_that_waits_for_its_user_is_whole_on_each_terminal_and_so_is_the_question() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let credentials = home.credentials();
    let text = fs::read_to_string(&credentials).expect("credentials");
    fs::write(&credentials, format!("{text}\nsenders = [\"*=hold\"]\n")).expect("our file");
    let _session = session(&home);
    let sent = home.run(&["send", LONG, &hard(), "--name", "ann", "--json"]);
    let sent: serde_json::Value = serde_json::from_str(&sent.ok()).expect("JSON");
    let id = sent["id"].as_str().expect("an id");
    eventually("it is held", || {
        home.run(&["held"]).ok().contains(id).then_some(())
    });
    for columns in WIDTHS {
        is_whole(&fits(&home, columns, &["held"]));
        let asked = types(&home, columns, &["held", "release", id], "no\n");
        assert!(asked.contains("nothing was answered"), "{asked}");
        is_whole(&asked);
    }
    let piped = home.run(&["held"]).ok();
    assert!(piped.lines().any(|line| line.contains(&"x".repeat(220))));
    broker.stop();
}

#[test]
fn what_an_agent_asks_is_whole_on_each_terminal_and_so_is_the_question() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let gates = home.credentials().with_file_name("sessions.toml");
    fs::write(gates, "approve = true").expect("our file");
    let mut session = session(&home);
    let asks = json!({
        "hook_event_name": "PermissionRequest", "tool_name": "Bash",
        "tool_input": { "command": "x".repeat(220), "description": "測試都通過了嗎？".repeat(20) },
        "permission_suggestions": [],
    });
    session.tell(&format!("hook 1 {asks}"));
    session.tell("status waiting");
    eventually("it asks", || {
        let status = home.run(&["status", LONG]).ok();
        let asks = status.contains("waits for you") && status.contains("Bash: ");
        asks.then_some(())
    });
    for columns in WIDTHS {
        let approve = ["session", "approve", LONG];
        let asked = types(&home, columns, &approve, "no\n");
        assert!(asked.contains("nothing was answered"), "{asked}");
        let status = fits(&home, columns, &["status", LONG]);
        let whole = joined(&status).replace(' ', "");
        assert!(whole.contains("waitsforyou"), "{status}");
        for shown in [fits(&home, columns, &approve[..2]), asked] {
            let whole = joined(&shown).replace(' ', "");
            let is_there = |text: &str| assert!(whole.contains(text), "{columns}: {shown}");
            is_there(LONG);
            is_there("mayituseBash?");
            is_there(&"x".repeat(220));
            is_there(&"測試都通過了嗎？".repeat(20));
        }
    }
    broker.stop();
}

#[test]
fn what_is_asked_before_all_of_peerbus_goes_fits_each_terminal() {
    let home = Home::new();
    for columns in WIDTHS {
        let purge = ["uninstall", "--all", "--purge"];
        let asked = types(&home, columns, &purge, "no\n");
        assert!(asked.contains("Type yes to go on:"), "{asked}");
        assert!(asked.contains("nothing was deleted"), "{asked}");
    }
}
