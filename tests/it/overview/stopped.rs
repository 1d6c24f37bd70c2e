//! Agents of whose mail nothing comes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use peerbus_test_support::preload::preload;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use super::{LATER_S, Late, STEADY_CLOCK, asks, json, list, npm_test, of, signal};
use crate::orphans::Session;
use crate::requests::Holder;
use crate::sessions::{listed, names};
use crate::support::{Broker, Home, Lines, Mcp, eventually};
use crate::web::page::Page;

#[test]
fn a_stopped_adapter_is_told_everywhere_in_one_word() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    let adapter = bob.adapter();
    signal(adapter, Signal::STOP);
    eventually("it is stopped", || {
        let peers = json(&home, &["peers", "--json"]);
        let peers = peers["peers"].as_array().expect("a list");
        (of(peers, "bob")?["state"] == "stuck").then_some(())
    });
    let why = "its adapter is stopped";
    let sent = home.run(&["send", "bob", "hello", "--json"]).ok();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    let id = sent["id"].as_str().expect("an id");
    let run = |args: &[&str]| home.run(args).stdout;
    for said in [
        run(&["send", "bob", "hello"]),
        run(&["status", id]),
        run(&["status"]),
        run(&["doctor"]),
        run(&["peers", "--json"]),
    ] {
        assert!(said.contains("stuck") && said.contains(why), "{said}");
        assert!(!said.contains("as its adapter says"), "{said}");
    }
    let goes_on = format!("`kill -CONT {adapter}` lets it go on");
    let ask = ["ask", "bob", "well?", "--timeout", "0.1"];
    let verbs = [&["send", "bob", "hello"][..], &["status", id], &ask];
    let others = [&["status"][..], &["doctor"], &["inbox", "bob"]];
    let others = others.into_iter();
    let others = others.chain([&["status", "--json"][..], &["peers", "--json"]]);
    let inject = &["session", "inject", "bob", "hello"][..];
    for args in verbs.into_iter().chain(others).chain([inject]) {
        let done = home.run(args);
        let said = done.stdout + &done.stderr;
        assert!(said.contains(&goes_on), "{args:?}: {said}");
    }
    for said in [run(&["peers"]), run(&["session", "list"])] {
        let row = said.lines().find(|line| line.starts_with("bob "));
        assert!(row.is_some_and(|row| row.contains("stuck")), "{said}");
    }
    let mut ann = Mcp::start(&home, "generic", "ann", "some-bot");
    let peers = ann.call("bus.peers", json!({}))["details"].clone();
    let project = eventually("ann is listed", || {
        let told = json(&home, &["peers", "--json"]);
        let project = of(&list(&told, "peers"), "ann")?["project"].clone();
        of(&listed(&home), "ann").filter(|ann| ann["project"] == project)?;
        Some(project)
    });
    assert!(project.is_string(), "{project}");
    let sent = ann.call("bus.send", json!({ "to": "bob", "body": "hello" }));
    let status = ann.call("bus.status", json!({ "id": sent["id"] }));
    let bob = of(peers.as_array().expect("a list"), "bob").expect("bob");
    for said in [bob, &status, &sent] {
        let said = said.to_string();
        assert!(said.contains("stuck") && said.contains(why), "{said}");
    }
    let status = run(&["status", id]);
    for said in [
        &status,
        &run(&["status", id, "--json"]),
        &run(&["inbox", "bob"]),
    ] {
        let told = said.contains("sent to bob's adapter") && said.contains(", which is stopped");
        assert!(told && !said.contains("got it"), "{said}");
    }
    assert_eq!(status.matches("bob is stuck").count(), 1, "{status}");
    signal(adapter, Signal::CONT);
    broker.stop();
}

/// How the page says that bob goes on.
fn way(page: &Page) -> Option<String> {
    let sessions = page.list("sessions");
    let way = of(&sessions, "bob")?["way_out"].as_str()?;
    Some(way.to_owned())
}

fn everything_tells_what_is_first(home: &Home, page: &Page, processes: &[u32], why: &str) {
    let ids = processes
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ");
    let first = format!("{why}: `kill -CONT {ids}` lets it go on; then ");
    let ask = &["ask", "bob", "well?", "--timeout", "0.1"][..];
    let told = [
        &["status"][..],
        &["status", "bob"],
        &["status", "--json"],
        &["doctor"],
    ];
    let said = |args: &[&str]| {
        let done = home.run(args);
        done.stdout + &done.stderr
    };
    for args in told
        .into_iter()
        .chain([&["send", "bob", "hello"], ask, &["inbox", "bob"]])
    {
        let said = eventually(args[0], || {
            Some(said(args)).filter(|it| it.contains(&first))
        });
        assert!(
            said.contains("waits for you") && !said.contains("known here"),
            "{args:?}: {said}"
        );
    }
    let goes_on = format!("`kill -CONT {ids}` lets it go on");
    let peers = json(home, &["peers", "--json"]);
    assert_eq!(
        of(&list(&peers, "peers"), "bob").expect("bob")["goes_on"],
        *goes_on
    );
    let way = eventually("the page tells it", || {
        way(page).filter(|it| it.contains(&first))
    });
    assert!(!way.contains("known here"), "{way}");
    let approve = said(&["session", "approve"]);
    assert!(!approve.contains("does not say"), "{approve}");
    assert!(approve.contains(&goes_on), "{approve}");
    let told = page.list("sessions");
    let told = of(&told, "bob").expect("bob");
    let is_listed = told["approvals"]
        .as_array()
        .is_some_and(|it| !it.is_empty());
    let first = told["first"].as_str().unwrap_or_default();
    // A stopped adapter lists none.
    assert!(is_listed || why.contains("adapter"), "{told}");
    assert!(!is_listed || first.contains(&goes_on), "{told}");
}

fn what_was_allowed_is_over(home: &Home, page: &Page, client: u32) {
    let status = home.run(&["status"]).ok();
    let id = status.split("`peerbus session approve ").nth(1);
    let id = id.and_then(|rest| rest.split('`').next()).expect(&status);
    home.run(&["session", "approve", id]).ok();
    let over = format!(
        "its process is stopped: `kill -CONT {client}` lets it go on; Bash: \"npm test\" is allowed, and it has \
         not gone on yet: if it asks still, answer in its window"
    );
    for args in [&["status"][..], &["doctor"], &["session", "approve"]] {
        let said = home.run(args);
        let said = said.stdout + &said.stderr;
        assert!(said.contains(&over), "{args:?}: {said}");
    }
    eventually("the page tells that it is over", || {
        way(page).filter(|it| it.contains(&over))
    });
}

#[test]
fn one_that_waits_and_is_stopped_has_to_go_on_first_as_everything_tells() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let gates = home.credentials().with_file_name("sessions.toml");
    fs::write(gates, "approve = true").expect("it is written");
    let mut bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    asks(&mut bob, 1, &npm_test());
    let page = Page::open(&home);
    eventually("it waits", || way(&page));
    let (adapter, client) = (bob.adapter(), bob.process());
    for (processes, why) in [
        (vec![adapter], "its adapter is stopped, as by Ctrl-Z"),
        (vec![client], "its process is stopped"),
        (
            vec![adapter, client],
            "its adapter is stopped, as by Ctrl-Z",
        ),
    ] {
        for process in &processes {
            signal(*process, Signal::STOP);
        }
        everything_tells_what_is_first(&home, &page, &processes, why);
        for process in &processes {
            signal(*process, Signal::CONT);
        }
    }
    signal(client, Signal::STOP);
    what_was_allowed_is_over(&home, &page, client);
    signal(client, Signal::CONT);
    broker.stop();
}

#[test]
fn a_stopped_adapter_is_stuck_when_its_broker_has_given_up_its_connection() {
    let home = Home::new();
    let path = home.path().join("clock");
    let clock = File::create(&path).expect("a file");
    clock.set_len(STEADY_CLOCK + 8).expect("room for a number");
    let mut serve = home.peerbus(&["serve", "--listen", "127.0.0.1:0"]);
    preload(home.path(), serve.env("PEERBUS_FAULTS", path));
    let broker = Broker::spawn(&mut serve);
    let bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    let adapter = bob.adapter();
    signal(adapter, Signal::STOP);
    home.run(&["ask", "bob", "well?", "--detach"]).ok();
    let later = clock.write_all_at(&LATER_S.to_ne_bytes(), STEADY_CLOCK);
    later.expect("a file of ours");
    eventually("its connection is given up", || {
        let peers = json(&home, &["peers", "--all", "--json"]);
        (of(&list(&peers, "peers"), "bob")?["online"] == false).then_some(())
    });
    let run = |args: &[&str]| home.run(args).ok();
    let goes_on = format!("`kill -CONT {adapter}` lets it go on");
    for args in [
        &["peers"][..],
        &["session", "list"],
        &["status"],
        &["status", "bob"],
        &["requests"],
        &["send", "bob", "hello"],
        &["doctor"],
    ] {
        let said = run(args);
        assert!(
            said.contains("stuck") && !said.contains("away"),
            "{args:?}: {said}"
        );
        let told = ["status", "send", "doctor"].contains(&args[0]);
        assert!(!told || said.contains(&goes_on), "{args:?}: {said}");
    }
    mail_says_that_bob_is_stuck(&home, &goes_on);
    signal(adapter, Signal::CONT);
    eventually("it is here again", || {
        let peers = json(&home, &["peers", "--json"]);
        (of(&list(&peers, "peers"), "bob")?["online"] == true).then_some(())
    });
    assert!(!run(&["status"]).contains("stuck"));
    broker.stop();
}

/// The same is told of mail, to people and to agents.
fn mail_says_that_bob_is_stuck(home: &Home, goes_on: &str) {
    let sent = home.run(&["send", "bob", "hello", "--json"]).ok();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    let id = sent["id"].as_str().expect("an id");
    for args in [
        &["ask", "bob", "again?", "--timeout", "0.1"][..],
        &["send", "bob", "hello", "--wait", "seen=0.1"],
        &["status", id],
    ] {
        let done = home.run(args);
        let said = done.stdout + &done.stderr;
        let told = said.contains("bob is stuck: its adapter is stopped") && said.contains(goes_on);
        assert!(
            told && !said.contains("no session of that name"),
            "{args:?}: {said}"
        );
    }
    // Nobody is to do anything about what has ended.
    home.run(&["ask", "bob", "never mind", "--detach"]).ok();
    let open = home.run(&["requests", "--json"]).ok();
    let mut open = open.lines();
    let asked = open.find(|line| line.contains("never mind")).expect("it");
    let asked: Value = serde_json::from_str(asked).expect("JSON");
    let asked = asked["id"].as_str().expect("an id");
    home.run(&["requests", "cancel", asked]).ok();
    let said = home.run(&["status", asked]).ok();
    assert!(
        said.contains("taken back") && !said.contains(goes_on),
        "{said}"
    );
    for args in [&["requests"][..], &["status", "bob"]] {
        let said = home.run(args).ok();
        let row = said.lines().find(|line| line.contains("again?"));
        assert!(
            row.is_some_and(|row| row.contains("stuck")),
            "{args:?}: {said}"
        );
    }
    assert_eq!(of(&listed(home), "bob").expect("bob")["state"], "stuck");
    let mut ann = Mcp::start(home, "generic", "ann", "some-bot");
    let sent = ann.call("bus.send", json!({ "to": "bob", "body": "hello" }));
    let asked = json!({ "to": "bob", "body": "well?", "timeout_s": 0 });
    let asked = ann.call("bus.ask", asked);
    let status = ann.call("bus.status", json!({ "id": sent["id"] }));
    for said in [sent, asked, status] {
        let said = said.to_string();
        let told = said.contains("bob is stuck: its adapter is stopped");
        assert!(
            told && !said.contains("away") && !said.contains("no session"),
            "{said}"
        );
    }
}

#[test]
fn what_lets_a_stopped_adapter_go_on_is_told_by_a_broker_that_never_heard_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    home.run(&["send", "bob", "hello"]).ok();
    let adapter = bob.adapter();
    signal(adapter, Signal::STOP);
    broker.kill();
    let broker = Broker::start(&home);
    let run = |args: &[&str]| home.run(args).stdout;
    let goes_on = format!("`kill -CONT {adapter}` lets it go on");
    for args in [
        &["status"][..],
        &["status", "bob"],
        &["doctor"],
        &["send", "bob", "hello"],
    ] {
        let said = run(args);
        assert!(said.contains(&goes_on), "{args:?}: {said}");
        assert!(
            said.contains("stuck: its adapter is stopped") && !said.contains("away"),
            "{args:?}: {said}"
        );
    }
    mail_says_that_bob_is_stuck(&home, &goes_on);
    for args in [&["peers"][..], &["requests"], &["status"]] {
        let said = run(args);
        assert!(
            said.contains("stuck") && !said.contains("away"),
            "{args:?}: {said}"
        );
        assert!(!said.contains("queued"), "{args:?}: {said}");
    }
    let page = Page::open(&home);
    eventually("the page tells the same of requests", || {
        let all = page.list("requests");
        let stuck = all.iter().all(|it| it["state"] == "stuck");
        (!all.is_empty() && stuck).then_some(())
    });
    signal(adapter, Signal::CONT);
    broker.stop();
}

#[test]
fn an_agent_is_stuck_for_as_long_as_before_when_the_broker_is_started_anew() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let late = Late::start(&home, "unread");
    eventually("it is listed", || {
        (names(&home) == ["unread"]).then_some(())
    });
    late.lets_mail_wait(&home);
    let since = || {
        let since = of(&listed(&home), "unread")?["stuck_at"].clone();
        since.is_string().then_some(since)
    };
    let before = eventually("it is stuck", since);
    let send = ["send", "unread", "hello"];
    let told = [
        &["status"][..],
        &["status", "unread"],
        &["doctor"],
        &["inbox", "unread"],
    ];
    for args in told.into_iter().chain([&send[..]]) {
        let done = home.run(args);
        let said = done.stdout + &done.stderr;
        let remedy = ", or end it and start it anew";
        assert!(said.contains(remedy), "{args:?}: {said}");
    }
    broker.kill();
    for args in [&["status"][..], &["status", "unread"], &["doctor"]] {
        let done = home.run(args);
        let said = done.stdout + &done.stderr;
        let told = said.contains("stuck") && said.contains(", or end it and start it anew");
        assert!(told, "without a broker {args:?}: {said}");
    }
    let broker = Broker::start(&home);
    eventually("the new broker is told", || {
        let told = json(&home, &["peers", "--json"]);
        (of(&list(&told, "peers"), "unread")?["state"] == "stuck").then_some(())
    });
    assert_eq!(since().as_ref(), Some(&before));
    let process = late.session.process();
    signal(process, Signal::STOP);
    let why = eventually("there is another reason", || {
        home.run(&["status"]).ok();
        let unread = of(&listed(&home), "unread")?.clone();
        let is_other = unread["stuck"].as_str()?.contains("is stopped");
        is_other.then_some(unread["stuck_at"].clone())
    });
    assert_ne!(why, before, "it is younger");
    signal(process, Signal::CONT);
    broker.stop();
}

/// A client that writes to its adapter what it reads.
const CLIENT: &str = "import subprocess, sys
adapter = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, bufsize=0)
for line in sys.stdin.buffer:
    adapter.stdin.write(line)
adapter.stdin.close()
adapter.wait()";

/// The agent ida, whose adapter is below a client of its own.
fn behind_a_client(home: &Home) -> Mcp {
    let mut client = home.command("python3");
    client.args(["-c", CLIENT, env!("CARGO_BIN_EXE_peerbus")]);
    client.args(["adapter", "--adapter", "generic", "--name", "ida"]);
    let mut ida = Mcp::spawn(&mut client);
    ida.initialize("some-bot");
    eventually("ida is listed", || (names(home) == ["ida"]).then_some(()));
    ida
}

#[test]
fn a_stopped_client_that_nothing_wakes_is_told_with_what_lets_it_go_on() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ida = behind_a_client(&home);
    let client = ida.pid().as_raw_nonzero().get();
    let client = u32::try_from(client).expect("a process");
    signal(client, Signal::STOP);
    home.run(&["send", "ida", "hello"]).ok();
    let goes_on = format!("`kill -CONT {client}` lets it go on");
    for verb in ["status", "doctor"] {
        let says = || home.run(&[verb]).stdout.contains(&goes_on).then_some(());
        eventually(verb, says);
    }
    signal(client, Signal::CONT);
    broker.stop();
}

#[test]
fn a_client_that_stops_is_shown_to_somebody_who_watches() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ida = behind_a_client(&home);
    let mut watch = home.peerbus(&["status", "--watch"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = Lines::of(watch.stdout.take().expect("a pipe"));
    let shows = |what: &str| lines.find(what, |line| line.contains(what).then_some(()));
    shows("ida");
    // Meanwhile all that the broker tells of is shown.
    for _ in 0..50 {
        assert_eq!(names(&home), ["ida"]);
    }
    let client = u32::try_from(ida.pid().as_raw_nonzero().get()).expect("a process");
    signal(client, Signal::STOP);
    shows(&format!("`kill -CONT {client}` lets it go on"));
    signal(client, Signal::CONT);
    shows("online");
    watch.kill().expect("our child");
    watch.wait().expect("our child");
    broker.stop();
}

#[test]
fn a_broker_that_has_just_started_says_that_its_peers_may_not_be_back_yet() {
    let home = Home::new();
    let mut broker = Some(Broker::start(&home));
    for name in ["ann", "bob"] {
        let mut peer = Holder::new(&home, broker.as_ref().expect("it runs"), name);
        peer.shows(json!({ "client": "some-bot" }));
        peer.leaves();
    }
    for args in [&["status"][..], &["status", "bob"], &["peers"]] {
        eventually("it has just started", || {
            broker.take().expect("it runs").stop();
            broker = Some(Broker::start(&home));
            let done = home.run(args);
            let said = done.stdout + &done.stderr;
            let says = "the broker has just started: not all peers may be back yet\n";
            said.contains(says).then_some(())
        });
    }
    broker.take().expect("it runs").stop();
}
