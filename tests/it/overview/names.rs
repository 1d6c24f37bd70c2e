//! A name where an id is meant.

use std::process::Stdio;

use peerbus_test_support::socket::registration;
use rustix::process::Signal;

use super::{STATES, World, json, list, of, signal};
use crate::orphans::Session;
use crate::support::{Broker, Home, Lines, Mcp, Raw, eventually};
use crate::web::page::Page;

/// A text with each figure as one zero.
fn zeros(text: &str) -> String {
    let mut zeros = text.replace(|c: char| c.is_ascii_digit(), "0");
    while zeros.contains("00") {
        zeros = zeros.replace("00", "0");
    }
    zeros
}

fn nothing_is_paused_of_a_name_that_is_retired(home: &Home, name: &str) {
    let tail = home.run(&["tail", name]).ok();
    let paused = format!("→ {name}  paused {name} says: \"paused: ");
    assert!(tail.contains(&paused), "{tail}");
    home.apart(&["names", "retire", name]).ok();
    eventually("nothing is paused of what has expired", || {
        let held = home.run(&["held"]).stderr;
        let status = home.run(&["status"]).ok();
        let is_paused = held.contains("paused at") || status.contains("paused at");
        (!is_paused).then_some(())
    });
}

#[test]
fn a_name_in_the_place_of_an_id_leads_to_that_agent() {
    let mut world = World::new();
    world.begin();
    world.known();
    let home = &world.home;
    home.run(&["send", "unread", "are\nyou there?", "--name", "ann"])
        .ok();
    for (name, says) in [
        (
            "ASKS",
            "asks waits for you 0 s: Bash: \"npm test\": answer in its window (claude-code, process ",
        ),
        ("unread", "unread is stuck"),
        (
            "unread",
            "unseen from ann, pushed, 0 s: are\\u000ayou there?",
        ),
        ("holds", "holds owes shell-"),
        ("holds", " an answer, seen, 0 s: ready?"),
        ("loops", "paused at loops: 1 message: 2 replies led"),
        ("loops", "\npaused from fine-1, 0 s: Thank you!"),
        ("fine-2", "fine-2  busy"),
    ] {
        let said = home.run(&["status", name]).ok();
        assert!(zeros(&said).contains(&zeros(says)), "{name}: {said}");
        let others = STATES
            .iter()
            .filter(|(it, ..)| !name.eq_ignore_ascii_case(it));
        for (other, ..) in others {
            let row = |line: &str| line.starts_with(&format!("{other} "));
            assert!(!said.lines().any(row), "{name}: {said}");
        }
    }
    let inbox = zeros(&home.run(&["inbox", "ASKS"]).ok());
    assert!(inbox.contains("asks waits for you 0 s: Bash"), "{inbox}");
    let told = json(home, &["status", "holds", "--json"]);
    assert_eq!(told["messages"], json!([]));
    assert_eq!(told["peers"][0]["name"], "holds");
    assert_eq!(told["requests"].as_array().map(Vec::len), Some(1), "{told}");
    let why = home.run(&["status", "hold"]).fails(1);
    assert!(
        why.contains("nobody here is called hold,")
            && why.contains("`peerbus peers --all`")
            && why.contains("mean holds"),
        "{why}"
    );
    // An id that somebody chose hides nobody.
    world.peers[3].sends("asks", "fine-2", &json!({ "text": "an id" }));
    let both = home.run(&["status", "asks"]).ok();
    assert!(
        both.contains("an id") && both.contains("npm test"),
        "{both}"
    );

    let history = home.run(&["history", "holds"]).ok();
    assert!(
        history.contains("→ holds") && !history.contains("→ owes"),
        "{history}"
    );
    let why = home.run(&["history", "nosuch"]).fails(1);
    assert!(why.contains("nobody here is called nosuch"), "{why}");

    let why = home.run(&["session", "approve", "loops"]).fails(1);
    assert!(why.contains("asks nothing now: idle"), "{why}");
    let asked = home.run(&["session", "approve", "questions"]);
    assert!(asked.stdout.contains("Red or blue?"), "{}", asked.stdout);
    let why = asked.fails(1);
    assert!(why.contains("`peerbus session answer "), "{why}");
    nobody_is_asked_again_for_what_was_answered(home);
    nothing_is_paused_of_a_name_that_is_retired(home, "loops");
    signal(world.frozen.process(), Signal::CONT);
    world.broker.stop();
}

fn nobody_is_asked_again_for_what_was_answered(home: &Home) {
    let asked = home.run(&["session", "approve", "asks"]);
    assert!(asked.stdout.contains("npm test"), "{}", asked.stdout);
    assert!(asked.fails(1).contains("gate `approve` is closed"));
    let gates = home.credentials().with_file_name("sessions.toml");
    std::fs::write(gates, "approve = true").expect("it is written");
    home.run(&["session", "approve", "asks"]).ok();
    // Its dialog is open still.
    let answered = r#"waits for you: Bash: "npm test" is allowed, and it has not gone on yet"#;
    let why = home.run(&["session", "approve", "asks"]).fails(1);
    assert!(why.contains(answered), "{why}");
    let all = home.run(&["session", "approve"]).stderr;
    assert!(all.contains(answered), "{all}");
}

#[test]
fn an_old_name_leads_to_the_present_one_and_says_so() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Mcp::start(&home, "generic", "bob", "some-bot");
    bob.call("bus.peers", json!({}));
    home.run(&["send", "bob", "hello", "--name", "ann"]).ok();
    bob.call("bus.rename", json!({ "name": "robert" }));
    home.run(&["send", "robert", "are you there?", "--name", "ann"])
        .ok();
    for (args, says, tells) in [
        (&["inbox", "bob"][..], "are you there?", true),
        (&["inbox", "robert"], "are you there?", false),
        (&["status", "bob"], "unseen from ann", true),
        (&["status", "robert"], "unseen from ann", false),
        (&["requests", "Bob"], "from or for robert", true),
        (&["requests", "robert"], "from or for robert", false),
        (&["history", "bob"], "ann → bob (robert)", true),
        (&["history"], "ann → bob (robert)", true),
        (&["history", "robert"], "ann → robert", true),
        (&["session", "list", "bob"], "\nrobert ", true),
    ] {
        let said = home.apart(args);
        let shown = format!("{args:?}: {} {}", said.stdout, said.stderr);
        assert!(said.stdout.contains(says), "{shown}");
        let told = said.stderr.to_lowercase();
        let told = told.matches("bob is an old name of robert\n").count();
        assert_eq!(told, usize::from(tells), "{shown}");
    }
    // The same mail, whichever of the names it went to.
    for name in ["bob", "robert"] {
        for args in [["history", name], ["tail", name]] {
            let said = home.apart(&args).ok();
            let both = said.contains("ann → bob (robert)") && said.contains("ann → robert");
            assert!(both, "{args:?}: {said}");
        }
    }
    for name in ["bob", "robert"] {
        let mut tail = home.peerbus(&["tail", "--follow", "--json", name]);
        let mut tail = tail.stdout(Stdio::piped()).spawn().expect("it starts");
        let said = Lines::of(tail.stdout.take().expect("a pipe"));
        said.find("what was before", |line| {
            line.contains("robert").then_some(())
        });
        let sent = json(&home, &["send", "bob", "hello", "--name", "ann", "--json"]);
        let id = sent["id"].as_str().expect("an id");
        for event in [r#""event":"accepted""#, r#""event":"step""#] {
            let is_it = |line: &str| line.contains(id) && line.contains(event);
            said.find(event, |line| is_it(line).then_some(()));
        }
        tail.kill().expect("our child");
        tail.wait().expect("our child");
    }
    let page = Page::open(&home);
    eventually("the page knows both names", || {
        let robert = of(&page.list("peers"), "robert")?["old"].clone();
        (robert == json!(["bob"])).then_some(())
    });
    let none = home.apart(&["held", "bob"]).ok();
    assert!(none.contains("at robert or from robert"), "{none}");
    for verb in ["approve", "deny"] {
        let why = home.apart(&["session", verb, "bob"]).fails(1);
        assert!(why.contains("whether robert ("), "{why}");
    }
    let why = home.apart(&["session", "interrupt", "bob"]).fails(1);
    assert!(!why.contains("no session has"), "{why}");
    words_that_mean_nobody_are_told(&home);
    who_takes_an_old_name_got_none_of_its_mail(&home, &broker);
    broker.stop();
}

fn words_that_mean_nobody_are_told(home: &Home) {
    for args in [["inbox", "bop"], ["status", "bop"]] {
        let nobody = home.apart(&args).fails(1);
        assert!(nobody.contains("nobody here is called bop"), "{nobody}");
    }
    for verb in ["history", "tail"] {
        let nobody = home.apart(&[verb, "#nosuch"]).fails(1);
        assert!(nobody.contains("nobody here is in #nosuch"), "{nobody}");
    }
    let why = home.apart(&["inbox", "#shop"]).fails(2);
    assert!(why.contains("`peerbus history '#shop'` shows"), "{why}");
}

fn who_takes_an_old_name_got_none_of_its_mail(home: &Home, broker: &Broker) {
    let mut bob = registration("bob", &home.credential("token"));
    bob["ext"] = 1.into();
    bob["presence"] = json!({ "client": "some-bot" });
    let _bob = Raw::register_as(broker, &bob);
    for args in [["history", "robert"], ["tail", "robert"]] {
        let said = home.apart(&args).ok();
        assert!(said.contains("ann → bob (robert)"), "{args:?}: {said}");
    }
    home.apart(&["names", "retire", "robert"]).ok();
    for args in [["history", "bob"], ["tail", "bob"]] {
        let said = home.apart(&args).ok();
        let accepted = said.lines().filter(|line| line.contains("→ bob"));
        let own = accepted.filter(|line| !line.contains("→ bob (robert)"));
        assert_eq!(own.count(), 0, "{args:?}: {said}");
    }
}

#[test]
fn lists_of_peers_and_of_sessions_call_a_client_alike() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Session::start(&home, "bob");
    let _ann = Mcp::start(&home, "generic", "ann", "some-bot");
    for name in ["ann", "bob"] {
        eventually(name, || {
            let told = json(&home, &["peers", "--json"]);
            let client = of(&list(&told, "peers"), name)?["client"].clone();
            let said = home.run(&["session", "list"]).ok();
            let row = said.lines().find(|line| line.starts_with(name))?;
            row.contains(client.as_str()?).then_some(())
        });
    }
    let sessions = home.run(&["session", "list"]).ok();
    let rows: Vec<_> = sessions.lines().map(|row| &row[..4]).collect();
    assert_eq!(rows, ["NAME", "ann ", "bob "], "{sessions}");
    let _abe = Raw::register(&home, &broker, "abe");
    for verb in ["peers", "status"] {
        let table = home.apart(&[verb]).ok();
        let rows = table.lines().skip_while(|line| !line.starts_with("NAME"));
        let names: Vec<_> = rows
            .skip(1)
            .filter_map(|row| row.split(' ').next())
            .collect();
        assert_eq!(names, ["ann", "bob", "abe"], "{verb}: {table}");
    }
    broker.stop();
}
