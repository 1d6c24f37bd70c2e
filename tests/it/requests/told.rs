//! What is said of a request while it is open, and of an answer that cannot be taken.

use peerbus_test_support::message::envelope;
use serde_json::{Value, json};

use crate::orphans::Session;
use crate::sessions::names;
use crate::support::{Broker, Home, Raw, eventually};

use super::{Asking, Holder, detached, open};

#[test]
fn an_answer_that_cannot_be_taken_ends_the_wait_with_what_happened() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    let asking = Asking::start(&home, &["bob", "are the tests green?"]);
    bob.gets();
    bob.reads();
    bob.secret = "a secret of thirty-two bytes, of others".into();
    bob.answers("r1", json!({ "text": "forged" }));
    asking.says("message r1 is the result; it was not taken here: its signature does not hold");
    assert_eq!(asking.ends(), (Some(1), String::new()));
    broker.stop();
}

#[test]
fn a_request_of_one_who_has_left_hides_no_answer_to_another_one() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    let mut ann = Holder::new(&home, &broker, "ann");
    ann.sends("q1", "bob", &json!({ "text": "which port?" }));
    bob.gets();
    let question = bob.question.clone();
    let mut tmp = Raw::register_temporary(&home, &broker, "tmp");
    let body = json!({ "text": "?", "wants": "result", "within_ms": 60_000 }).to_string();
    let mut asked: Value =
        serde_json::from_str(&envelope(&ann.secret, "q1", "tmp", "bob", &body)).expect("JSON");
    asked["within_ms"] = 60_000.into();
    tmp.say(&asked.to_string());
    tmp.receipt("accepted");
    tmp.leave();
    bob.gets();
    assert_eq!(bob.question["from"], "tmp");
    bob.question = question;
    bob.answers("a1", json!({ "text": "4711" }));
    let status = home.run(&["status", "a1"]).ok();
    assert!(!status.contains("the result of a request"), "{status}");
    ann.gets();
    assert_eq!(ann.question["body"]["text"], "4711");
    assert_eq!(open(&home).len(), 1, "hers has no answer yet");
    broker.stop();
}

#[test]
fn who_asks_hears_at_once_that_the_session_left_that_had_the_request() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for step in ["pushed", "presented"] {
        let mut bob = Holder::new(&home, &broker, "bob");
        let asking = Asking::start(&home, &["bob", "review the parser"]);
        bob.gets();
        bob.say(json!({ "type": "progress", "state": step, "path": "socket" }));
        let says = match step {
            "pushed" => "pushed to bob over socket",
            _ => "came into bob's conversation",
        };
        asking.says(says);
        let status = home.run(&["status", "bob"]).ok();
        let may_be_read = ["bob has a request from shell-", ", not known to be read, "];
        assert!(may_be_read.iter().all(|it| status.contains(it)), "{status}");
        let id = bob.id();
        drop(bob);
        let left = "no session of that name has it now, and the next one gets it; the session that had \
                    it left";
        asking.says(left);
        let state = open(&home)[0]["request"]["state"].clone();
        assert_eq!(state, "queued", "{step}");
        for verb in ["status", "inbox"] {
            let which = if verb == "status" { &*id } else { "bob" };
            let shown = home.run(&[verb, which]).ok();
            assert!(shown.contains(left), "{shown}");
        }
        let status = home.run(&["status", "bob"]).ok();
        assert!(may_be_read.iter().all(|it| status.contains(it)), "{status}");
        let mut next = Holder::new(&home, &broker, "bob");
        next.gets();
        asking.says("and has not said what became of it");
        next.leaves();
        home.run(&["requests", "cancel", &id]).ok();
        assert_eq!(asking.ends().0, Some(1));
    }
    broker.stop();
}

#[test]
fn a_request_is_unread_until_it_is_read_and_owed_from_then_on() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    let id = detached(&home, &["bob", "review the parser"]);
    let status = home.run(&["status", "bob"]).ok();
    assert_eq!(status.matches("review the parser").count(), 1, "{status}");
    assert!(status.contains(", not known to be read, "), "{status}");
    bob.gets();
    bob.reads();
    let owed = eventually("it is read", || {
        let status = home.run(&["status", "bob"]).ok();
        let owes = status.contains("bob owes shell-") && status.contains(" an answer, seen");
        owes.then_some(status)
    });
    // The same columns and words in each list of peers.
    let line = |table: &str, begins: &str| {
        let line = table.lines().rfind(|line| line.starts_with(begins));
        let words: Vec<_> = line.unwrap_or(table).split_whitespace().collect();
        words.iter().map(|&it| it.to_owned()).collect::<Vec<_>>()
    };
    let peers = home.run(&["peers"]).ok();
    let heads = ["NAME", "STATE", "UNSEEN", "OWES", "PROJECT"];
    for table in [&owed, &peers] {
        assert_eq!(line(table, "NAME ")[..5], heads, "{table}");
        assert_eq!(
            line(table, "bob ")[..4],
            ["bob", "online", "0", "1"],
            "{table}"
        );
    }
    for which in ["bob", &id, &id[24..]] {
        let row = home.run(&["requests", which]).ok();
        assert!(row.contains("review the parser"), "{which}: {row}");
    }
    let none = home.run(&["requests", "ann"]).ok();
    assert!(
        none.starts_with("no open request is from or for ann"),
        "{none}"
    );
    bob.answers("r1", json!({ "text": "two bugs" }));
    detached(&home, &["bob", "and the lexer?", "--name", "ann"]);
    let open = home.run(&["requests"]).ok();
    assert!(
        open.contains("and the lexer?") && !open.contains("two bugs"),
        "{open}"
    );
    broker.stop();
}

#[test]
fn who_takes_the_mail_of_a_name_ends_what_that_had_read() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    let mut succ = Holder::new(&home, &broker, "succ");
    let asking = Asking::start(&home, &["bob", "review the parser"]);
    bob.gets();
    bob.reads();
    asking.says("bob's model has seen it and owes an answer");
    home.apart(&["names", "retire", "bob", "--to", "succ"]).ok();
    succ.gets();
    asking.says("before that bob had it");
    let id = succ.id();
    let said = home.run(&["status", &id]).ok();
    assert!(
        said.lines()
            .next()
            .is_some_and(|line| line.ends_with(" to succ")),
        "{said}"
    );
    succ.answers("s1", json!({ "text": "two bugs" }));
    assert_eq!(asking.ends(), (Some(0), "two bugs\n".to_owned()));
    broker.stop();
}

#[test]
fn a_name_is_taken_where_a_person_gives_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _peers = ["bob", "eve"].map(|name| Raw::register(&home, &broker, name));
    for name in ["bob", "eve"] {
        home.run(&["send", name, "hi", "--name", "ann"]).ok();
    }
    let tail = home.run(&["tail", "bob"]).ok();
    assert!(tail.contains("→ bob") && !tail.contains("→ eve"), "{tail}");
    let held = home.run(&["held", "bob"]).ok();
    assert_eq!(held, "no mail waits for you at bob or from bob\n");
    let _cyd = Session::start(&home, "cyd");
    eventually("cyd is listed", || (names(&home) == ["cyd"]).then_some(()));
    let list = home.run(&["session", "list", "cyd"]).ok();
    assert!(
        list.starts_with("NAME  STATE") && list.contains("\ncyd "),
        "{list}"
    );
    let why = home.run(&["session", "list", "nosuch"]).fails(1);
    assert!(why.contains("the name nosuch; there are cyd ("), "{why}");
    broker.stop();
}

#[test]
fn a_command_whose_answer_nobody_gets_is_told_where_it_is() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    let id = detached(&home, &["bob", "and the lexer?"]);
    bob.gets();
    bob.reads();
    drop(bob);
    let asker = open(&home)[0]["from"].as_str().expect("a name").to_owned();
    let said = eventually("bob's name is free", || {
        let args = ["send", &asker, "fine", "--name", "bob", "--reply-to", &id];
        let run = home.run(&args);
        (run.code == Some(0)).then(|| run.stderr.clone() + &run.stdout)
    });
    assert!(said.contains("it is kept under the request"), "{said}");
    broker.stop();
}

#[test]
fn a_peer_owes_what_it_was_asked_whether_it_has_read_it_or_not() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    let owes = |count: u64| {
        eventually("what bob owes", || {
            let told = home.run(&["peers", "--json"]).ok();
            let told: Value = serde_json::from_str(&told).expect("JSON");
            (told["peers"][0]["owes"] == count).then_some(())
        });
    };
    detached(&home, &["bob", "are the tests green?"]);
    owes(1);
    bob.gets();
    bob.reads();
    detached(&home, &["bob", "and the build?"]);
    owes(2);
    bob.leaves();
    detached(&home, &["bob", "still?"]);
    owes(3);
    broker.stop();
}
