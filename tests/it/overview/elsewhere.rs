//! A session of the same name at another broker.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use super::{asks, json, npm_test, of, signal};
use crate::orphans::Session;
use crate::requests::Holder;
use crate::sessions::{listed, names};
use crate::support::{Broker, Home, Mcp, eventually};

#[test]
fn a_namesake_at_another_broker_changes_nothing_that_is_told_of_a_peer() {
    let (home, far) = (Home::new(), Home::new());
    let (broker, there) = (Broker::start(&home), Broker::start(&far));
    let mut bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    bob.tell("status idle");
    let variables = [
        ("PEERBUS_URL", &*there.url()),
        ("PEERBUS_TOKEN", &far.credential("token")),
        ("PEERBUS_HMAC_SECRET", &far.credential("hmac_secret")),
    ];
    let mut namesake = Session::start_with(&home, "bob", &variables);
    eventually("both are listed", || {
        (names(&home) == ["bob", "bob"]).then_some(())
    });
    let mut ann = Mcp::start(&home, "generic", "ann", "some-bot");
    let mut told = || {
        let told = json(&home, &["peers", "--json"]);
        let told = told["peers"].as_array().expect("a list");
        let tool = ann.call("bus.peers", json!({}))["details"].clone();
        let tool = tool.as_array().expect("a list");
        let states = [told, tool].map(|all| of(all, "bob").expect("bob")["state"].clone());
        let sent = home.run(&["send", "bob", "hello"]).stdout;
        let status = home.run(&["status"]).ok();
        (states, format!("{sent}{status}"))
    };
    let does = |state: &str| {
        eventually(state, || {
            let all = listed(&home);
            all.iter().any(|it| it["status"] == state).then_some(())
        });
    };
    eventually("bob is idle", || {
        (told().0 == ["idle", "idle"]).then_some(())
    });

    asks(&mut namesake, 1, &npm_test());
    does("waiting_approval");
    let (states, said) = told();
    assert_eq!(states, ["idle", "idle"]);
    assert!(!said.contains("bob waits for you"), "{said}");
    // An agent is told what is true of either.
    let sent = Mcp::start(&home, "generic", "eve", "some-bot")
        .call("bus.send", json!({ "to": "bob", "body": "hello" }));
    let says = "; a session bob on this machine waits for its user";
    assert!(sent["note"].to_string().contains(says), "{sent}");
    // The agent `ann` of this test is told of no dialogs.
    eventually("the namesake's dialog is told", || {
        let said = home.apart(&["status"]).stdout;
        let asks = said.contains(") waits for you") && said.contains("npm test");
        asks.then_some(())
    });

    let adapter = namesake.adapter();
    namesake.tell("status idle");
    eventually("both are idle", || {
        let all = listed(&home);
        let mut bobs = all.iter().filter(|it| it["name"] == "bob");
        bobs.all(|it| it["status"] == "idle").then_some(())
    });
    signal(adapter, Signal::STOP);
    eventually("it is stopped", || {
        let list = home.run(&["session", "list"]).stdout;
        list.contains("stuck").then_some(())
    });
    let (states, said) = told();
    assert_eq!(states, ["idle", "idle"]);
    assert!(!said.contains("bob is stuck"), "{said}");
    signal(adapter, Signal::CONT);
    there.stop();
    broker.stop();
}

#[test]
fn what_waits_here_is_told_where_the_broker_is_elsewhere() {
    let (home, far) = (Home::new(), Home::new());
    let there = Broker::start(&far);
    let text = std::fs::read_to_string(far.credentials()).expect("credentials");
    let dir = home.credentials();
    let dir = dir.parent().expect("a directory");
    std::fs::create_dir_all(dir).expect("it is made");
    let text = format!("url = \"{}\"\n{text}", there.url());
    std::fs::write(home.credentials(), text).expect("it is written");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(home.credentials(), private).expect("our file");
    let mut bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    asks(&mut bob, 1, &npm_test());
    for args in [&["status"][..], &["status", "bob"], &["status", "--json"]] {
        eventually("its dialog is told", || {
            let said = home.apart(args).fails(2);
            let waits = said.contains("bob (process ") && said.contains(") waits for you");
            let way = said.contains("Bash: \"npm test\": answer in its window");
            (waits && way && said.contains("names a broker elsewhere")).then_some(())
        });
    }
    let other = home.apart(&["status", "cyd"]).fails(2);
    assert!(!other.contains("waits for you"), "{other}");

    let sent = |args: &[&str]| {
        let sent = home.run(&[&["send", "bob", "hello", "--json"], args].concat());
        let sent: serde_json::Value = serde_json::from_str(&sent.ok()).expect("JSON");
        sent["id"].as_str().expect("an id").to_owned()
    };
    let (named, nameless) = (sent(&["--name", "ann"]), sent(&[]));
    home.run(&["status", &named, "--name", "ann"]).ok();
    let said = home.run(&["status", &nameless, "--name", "ann"]).fails(1);
    let why = "a command without --name had its name only while it ran";
    assert!(said.contains(why), "{said}");
    assert!(!said.contains("peerbus history"), "{said}");
    there.stop();
}

#[test]
fn one_that_waits_and_is_no_session_of_this_home_is_answered_where_it_runs() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut far = Holder::new(&home, &broker, "far");
    far.does("waiting");
    let sent = json(&home, &["send", "far", "hello", "--json"]);
    let id = sent["id"].as_str().expect("an id");
    far.gets();
    for args in [
        &["status"][..],
        &["status", id],
        &["send", "far", "hello"],
        &["ask", "far", "well?", "--timeout", "0.1"],
    ] {
        eventually(args[0], || {
            let done = home.run(args);
            let said = done.stdout + &done.stderr;
            let (_, way) = said.split_once("far waits for you")?;
            way.contains("answer it where it runs").then_some(())
        });
    }
    broker.stop();
}

#[test]
fn a_peer_of_another_home_is_told_from_one_that_nobody_is() {
    let (home, far) = (Home::new(), Home::new());
    let broker = Broker::start(&home);
    let variables = [
        ("PEERBUS_URL", &*broker.url()),
        ("PEERBUS_TOKEN", &home.credential("token")),
        ("PEERBUS_HMAC_SECRET", &home.credential("hmac_secret")),
    ];
    let mut bob = Session::start_with(&far, "bob", &variables);
    let is_here = || {
        of(
            &json(&home, &["peers", "--json"])["peers"]
                .as_array()?
                .clone(),
            "bob",
        )
        .map(drop)
    };
    eventually("bob is on the bus", is_here);
    for with_another in [false, true] {
        let own = with_another.then(|| Session::start(&home, "ann"));
        let count = usize::from(with_another);
        eventually("ann has a session", || {
            (names(&home).len() == count).then_some(())
        });
        for args in [
            &["watch", "BOB"][..],
            &["inject", "bob", "go on"],
            &["stop", "bob"],
        ] {
            let why = home.run(&[&["session"], args].concat()).fails(1);
            let says =
                why.contains("bob is on the bus (") && why.contains("no session of this HOME");
            assert!(says, "{why}");
        }
        let why = home.run(&["session", "watch", "nosuch"]).fails(1);
        assert!(!why.contains("HOME"), "{why}");
        drop(own);
    }
    let why = home.run(&["tail", "nosuch"]).fails(1);
    assert!(why.contains("nobody here is called nosuch"), "{why}");
    assert_eq!(home.run(&["tail", "bob"]).ok(), "", "nothing was sent");
    asks(&mut bob, 1, &npm_test());
    eventually("bob asks", || {
        let said = home.apart(&["status"]).stdout;
        said.contains("bob waits for you").then_some(())
    });
    for args in [
        &["approve", "bob"][..],
        &["answer", "BOB", "1"],
        &["deny", "bob"],
        &["watch", "bob"],
    ] {
        let why = home.apart(&[&["session"], args].concat()).fails(1);
        let says = why.contains("bob waits for you (") && why.contains("no session of this HOME");
        let way = why.contains("answer it where it runs, or with `peerbus session approve`");
        assert!(says && way, "{args:?}: {why}");
    }
    let said = home.apart(&["session", "approve"]);
    let told = said.stdout + &said.stderr;
    let way = told.contains("bob waits for you") && told.contains("answer it where it runs");
    assert!(way, "{told}");
    drop(bob);
    eventually("bob has left", || {
        let why = home.run(&["session", "watch", "bob"]).fails(1);
        why.contains("bob is away, and no session of this HOME")
            .then_some(())
    });
    broker.stop();
}
