//! Agents that do what hardly any does.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

use super::{Editor, is_woken_as, noted};
use crate::support::{Broker, Home, eventually};

#[test]
fn an_agent_that_takes_nothing_any_more_ends_it_with_a_sentence() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let mut editor = Editor::with_session(&home);
    editor.prompt("go deaf");
    editor.shows("agent_message_chunk", "I hear nothing");
    editor.say(json!({ "method": "_agent/say", "params": { "line": "still there?" } }));
    let is_said = |line: &str| line.contains("takes nothing any more").then_some(());
    editor.driven.errors.find("why", is_said);
    let ended = editor.driven.child.wait().expect("it ends");
    assert_eq!(ended.code(), Some(1));
}

#[test]
fn a_path_is_meant_where_it_was_started_and_not_in_a_sessions_directory() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let start = home.path().join("start");
    std::fs::create_dir(&start).expect("a directory");
    std::fs::copy(home.credentials(), start.join("own.toml")).expect("copied");
    let editor = Editor::start_in(&home, &start, &["--credentials", "own.toml"], &[]);
    editor.open(&home);
    is_woken_as(&home, "driven");
}

#[test]
fn an_agent_that_ignores_sigterm_does_not_outlive_its_guard() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let editor = Editor::start_in(&home, home.path(), &[], &["stubborn"]);
    editor.open(&home);
    let agent = noted(&home, "pid").pop().expect("a number");
    let agent = Pid::from_raw(i32::try_from(agent.as_i64().expect("one")).expect("small"));
    let agent = agent.expect("a pid");
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.as_raw_nonzero()));
    let status = status.expect("Linux");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
    let guard = parent.and_then(|parent| Pid::from_raw(parent.parse().ok()?));
    kill_process(guard.expect("a guard"), Signal::KILL).expect("it runs");
    eventually("it is gone", || {
        test_kill_process(agent).is_err().then_some(())
    });
}
