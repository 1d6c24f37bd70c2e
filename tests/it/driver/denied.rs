//! A driven session asks for a tool that nobody allows: everybody who waits hears of it.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use super::node::{asked, status};
use super::{Driven, gates, home, send, state, told};
use crate::overview::signal;
use crate::requests::open;
use crate::support::{Broker, Lines, eventually};
use crate::web::page::Page;

/// The letters of the request in a line.
fn letters(line: &str) -> Option<String> {
    let (_, rest) = line.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

#[test]
fn a_denial_for_want_of_an_answer_is_told_to_whoever_waits() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &[]);
    eventually("it is here", || (status(&home)? == "idle").then_some(()));
    let mut other = home.peerbus(&["ask", "driven", "are you there?"]);
    let mut other = other.stderr(Stdio::null()).spawn().expect("it starts");
    let other_id = eventually("its turn is over", || {
        let id = open(&home).first()?["id"].as_str()?.to_owned();
        state(&home, &id, "seen").map(|_| id)
    });
    let mut asking = home.peerbus(&["ask", "driven", "use a tool"]);
    let mut asking = asking.stderr(Stdio::piped()).spawn().expect("it starts");
    let said = Lines::of(asking.stderr.take().expect("a pipe"));
    let find = |lines: &Lines, begins: &str| {
        let is = |line: &str| {
            let denied = format!("{begins}driven was denied Bash: \"ls\" [");
            line.contains(&denied)
                && line.contains("the gate `approve` was closed; it still is, in ")
        };
        lines.find(begins, |line| is(line).then(|| line.to_owned()))
    };
    let id = letters(&find(&driven.errors, " ")).expect("letters");
    find(&said, "owes an answer; ");
    let message = told(&home)
        .into_iter()
        .find_map(|it| it.get("verdict").cloned());
    let message = message.expect("a verdict")["response"]["message"].to_string();
    assert!(
        message.contains("the gate `approve` was closed"),
        "{message}"
    );
    let over = home.run(&["session", "approve", &id]).fails(1);
    let says = format!("request {id} is over: denied, since the gate `approve` was closed");
    assert!(over.contains(&says), "{over}");
    let request = open(&home)[1]["id"].as_str().expect("an id").to_owned();
    for verb in [
        &["status"][..],
        &["status", "driven"],
        &["status", &request],
    ] {
        let shown = home.run(verb).ok();
        let denied = shown.matches("driven was denied Bash").count();
        assert_eq!(denied, 1, "{shown}");
    }
    let told = home.run(&["status", "driven", "--json"]).ok();
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let what = told["sessions"][0]["denied"][0]["what"].to_string();
    assert!(what.contains("driven was denied Bash"), "{told}");
    let shown = home.run(&["status", &other_id]).ok();
    assert!(!shown.contains("was denied"), "of another turn: {shown}");
    let file = home.credentials().with_file_name("sessions.toml");
    std::fs::write(file, "approve = true\n").expect("it is written");
    let shown = home.run(&["status", &request]).ok();
    let open_now = "the gate `approve` was closed; it is open now";
    assert!(shown.contains(open_now), "{shown}");
    other.kill().expect("it runs");
    other.wait().expect("it ends");
    eventually("it is audited", || {
        let said = home.run(&["audit", "sessions"]).ok();
        let record = format!("driven approve deny request_id {id} by nobody");
        said.contains(&record).then_some(())
    });
    home.run(&["requests", "cancel", &request]).ok();
    assert_eq!(asking.wait().expect("it ends").code(), Some(1));
    let shown = home.run(&["status", &request]).ok();
    assert!(!shown.contains("was denied"), "{shown}");
    driven.stop();
    broker.stop();
}

#[test]
fn what_was_denied_in_a_turn_without_a_message_is_told_of_the_session() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &["use a tool"]);
    let id = driven.errors.find("what was denied", |it| {
        it.contains("was denied").then(|| letters(it)).flatten()
    });
    let shown = home.run(&["status", "driven"]).ok();
    let denied = format!("driven was denied Bash: \"ls\" [{id}], ");
    assert!(shown.contains(&denied), "{shown}");
    let all = "denied at driven: 1 request, since nobody decided";
    let way = "`peerbus status driven`";
    for verb in ["status", "doctor"] {
        let shown = home.run(&[verb]).stdout;
        let mut lines = shown.lines().filter(|line| line.contains(all));
        let told = lines.next().is_some_and(|line| line.contains(way)) && lines.next().is_none();
        assert!(told, "{verb}: {shown}");
    }
    let page = Page::open(&home);
    eventually("the page says so", || {
        let told = page.list("sessions").first()?["denials"].clone();
        (told == format!("{all}: {way}")).then_some(())
    });
    driven.stop();
    broker.stop();
}

#[test]
fn the_terminal_says_what_is_asked_and_for_how_long_it_can_be_answered() {
    let home = home();
    let broker = Broker::start(&home);
    let file = gates(&home, "approve = true");
    let driven = Driven::start(&home, &["--gates", &file, "use a tool"]);
    let asked: Value = asked(&home);
    let id = asked["request_id"].as_str().expect("an id");
    let line = format!(
        "driven asks: Bash: \"ls\": `peerbus session approve {id}`; it is denied in 10 min, if nobody answers"
    );
    driven
        .errors
        .find("what it asks", |it| it.contains(&line).then_some(()));
    let list = home.run(&["session", "approve"]).ok();
    assert!(list.contains("it can be answered here until "), "{list}");
    std::fs::write(&file, "remote = [\"phone\"]").expect("it is written");
    let closed = home.run(&["session", "approve"]);
    let denied = "unless it is answered before: here once the gate is open, or by phone\n";
    assert!(closed.stdout.contains(denied), "{}", closed.stdout);
    assert!(
        !closed.stdout.contains("can be answered"),
        "{}",
        closed.stdout
    );
    let why = "so nothing there is answered from here: a person opens it with `approve = true` in ";
    assert!(closed.stderr.contains(why), "{}", closed.stderr);
    std::fs::write(&file, "approve = true").expect("it is written");
    home.run(&["session", "approve", id]).ok();
    let late = home.run(&["session", "approve", id]).fails(1);
    let says = format!("request {id} is over: allowed, by ");
    assert!(late.contains(&says), "{late}");
    driven.stop();
    broker.stop();
}

#[test]
fn a_driver_that_is_stopped_while_it_asks_is_stuck_in_what_is_told_of_its_mail() {
    let home = home();
    let broker = Broker::start(&home);
    let file = gates(&home, "approve = true");
    let driven = Driven::start(&home, &["--gates", &file, "use a tool"]);
    asked(&home);
    let id = send(&home, "hello");
    eventually("the broker knows that it asks", || {
        let told = home.run(&["status", &id]).ok();
        told.contains("driven waits for you").then_some(())
    });
    let process = driven.child.id();
    signal(process, Signal::STOP);
    let goes_on = format!("`kill -CONT {process}` lets it go on");
    for args in [&["inbox", "driven"][..], &["status", &id], &["status"]] {
        let told = eventually("it is stopped", || {
            let told = home.run(args).ok();
            told.contains(&goes_on).then_some(told)
        });
        let stuck = told.contains("stuck") && !told.contains("waits for you");
        assert!(stuck, "{args:?}: {told}");
    }
    signal(process, Signal::CONT);
    driven.stop();
    broker.stop();
}
