//! Whose mail reaches an agent: its user's rules.

use std::fs;

use serde_json::Value;

use crate::orphans::Session;
use crate::sessions::names;
use crate::support::{Broker, Home, eventually};

/// Has the user's rules in the credentials file.
fn rules(home: &Home, rules: &str) {
    let file = home.credentials();
    let text = fs::read_to_string(&file).expect("credentials");
    let kept = text.lines().filter(|line| !line.starts_with("senders"));
    let kept: Vec<_> = kept.collect();
    fs::write(&file, format!("{}\nsenders = {rules}\n", kept.join("\n"))).expect("our file");
}

fn send(home: &Home, from: &str, body: &str) -> String {
    let sent = home
        .run(&["send", "bob", body, "--name", from, "--json"])
        .ok();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    sent["id"].as_str().expect("an id").to_owned()
}

fn status(home: &Home, id: &str, words: &str) -> String {
    eventually(words, || {
        let status = home.run(&["status", id]).ok();
        status.contains(words).then_some(status)
    })
}

/// A session that is on the bus.
fn session(home: &Home) -> Session {
    let session = Session::start(home, "bob");
    eventually("bob is there", || {
        names(home).contains(&"bob".to_owned()).then_some(())
    });
    session
}

/// What a hook of the session shows its model.
fn shown(bob: &mut Session) -> String {
    bob.tell(r#"hook 1 {"hook_event_name":"UserPromptSubmit","prompt":"go on"}"#);
    bob.hear("hook 1")
}

#[test]
fn mail_is_let_in_held_refused_or_dropped_as_the_user_has_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    rules(
        &home,
        r#"["ann=allow", "Cyd=hold", "dan=refuse", "eve=drop", "*=hold"]"#,
    );
    let mut bob = session(&home);
    let held = send(&home, "cyd", "please\n\u{1b}[2Jrun this");
    let declined = send(&home, "zoe", "and this");
    let refused = send(&home, "dan", "no");
    let dropped = send(&home, "eve", "never");
    send(&home, "ann", "hello");
    status(&home, &held, "held");
    let told = status(&home, &held, "the recipient's user decides");
    assert!(!told.contains("presented"), "{told}");
    status(
        &home,
        &refused,
        "the recipient takes no mail of this sender",
    );
    let told = status(&home, &dropped, "acked");
    assert!(!told.contains("drop"), "its sender learns nothing: {told}");
    let shown_now = shown(&mut bob);
    assert!(
        !shown_now.contains("cyd") && !shown_now.contains("zoe"),
        "{shown_now}"
    );

    let list = home.run(&["held"]).ok();
    assert!(
        list.contains(&format!("{held} from cyd to bob")) && list.contains("\\u001b[2Jrun this"),
        "{list}"
    );
    let list: Value =
        serde_json::from_str(&home.run(&["held", "list", "--json"]).ok()).expect("JSON");
    assert_eq!(list["held"].as_array().map(Vec::len), Some(2), "{list}");
    let said = home
        .run(&["held", "release", &held, "--from", "zoe"])
        .fails(1);
    assert!(said.contains("waits for you"), "{said}");
    home.run(&["held", "release", &held]).ok();
    status(&home, &held, "pushed");
    home.run(&["held", "refuse", &declined]).ok();
    status(&home, &declined, "declined this message");
    assert_eq!(home.run(&["held"]).ok(), "no mail waits for you\n");
    broker.stop();
}

#[test]
fn a_new_session_of_the_name_holds_it_too_and_rules_may_change() {
    let home = Home::new();
    let broker = Broker::start(&home);
    rules(&home, r#"["*=hold"]"#);
    let bob = session(&home);
    let held = send(&home, "cyd", "please run this");
    status(&home, &held, "the recipient's user decides");
    drop(bob);
    let _bob = session(&home);
    eventually("it is held again", || {
        home.run(&["held"]).stdout.contains(&held).then_some(())
    });
    rules(&home, r#"["cyd=refuse"]"#);
    broker.stop();
    let broker = Broker::start(&home);
    status(&home, &held, "the recipient takes no mail of this sender");
    broker.stop();
}

#[test]
fn an_agent_that_asks_what_waits_is_told_that_it_may_not_know() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = session(&home);
    let code = "import subprocess, sys\n\
        done = subprocess.run([sys.argv[1], 'held', '--json'], capture_output=True, text=True)\n\
        print(done.returncode, done.stdout.strip(), done.stderr.strip().replace(chr(10), ' '))";
    let call = serde_json::json!([code, env!("CARGO_BIN_EXE_peerbus"), ""]);
    bob.tell(&format!("ask {call}"));
    let said = bob.hear("asked");
    assert!(
        said.starts_with("1 ") && said.contains("there may be more"),
        "{said}"
    );
    broker.stop();
}

#[test]
fn rules_that_cannot_be_read_are_named_and_nothing_is_let_in() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let said = home
        .peerbus(&["peers"])
        .env("PEERBUS_FROM", "ann=allow all=keep")
        .output()
        .expect("peerbus starts");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        said.contains("PEERBUS_FROM has \"all=keep\", which is no rule"),
        "{said}"
    );
    rules(&home, r#"["ann"]"#);
    let said = home.run(&["peers"]).fails(2);
    assert!(
        said.contains("has wrong `senders`: \"ann\" is no rule"),
        "{said}"
    );
    broker.stop();
}
