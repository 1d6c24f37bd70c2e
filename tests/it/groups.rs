//! Groups, between real adapters and on the command line.

use std::process::Stdio;

use peerbus_test_support::message::envelope;
use peerbus_wire::short_id;
use serde_json::{Value, json};

use crate::support::{Broker, Home, Lines, Mcp, Raw, eventually};

/// An agent's session that works on the project `shop`.
pub(crate) fn agent(home: &Home, name: &str) -> Mcp {
    let project = home.path().join("shop");
    std::fs::create_dir_all(&project).expect("the project");
    let mut command = home.peerbus(&["adapter", "--adapter", "generic", "--name", name]);
    let mut mcp = Mcp::spawn(command.current_dir(project));
    mcp.initialize("some-bot");
    mcp
}

/// One that is on the bus, in a directory below the home.
fn inside(home: &Home, dir: &str, name: &str) -> Mcp {
    let dir = home.path().join(dir);
    std::fs::create_dir_all(&dir).expect("the project");
    let mut command = home.peerbus(&["adapter", "--adapter", "generic", "--name", name]);
    let mut mcp = Mcp::spawn(command.current_dir(dir));
    mcp.initialize("some-bot");
    mcp.call("bus.peers", json!({}));
    mcp
}

/// A repository with a worktree beside it, and what a session of each is a member of.
fn repository(home: &Home, dir: &str, tree: &str) {
    let (main, linked) = (home.path().join(dir), home.path().join(tree));
    let own = main.join(".git/worktrees/tree");
    for dir in [
        &own,
        &main.join(".git/objects"),
        &main.join(".git/refs"),
        &linked,
    ] {
        std::fs::create_dir_all(dir).expect("a directory");
    }
    for (file, text) in [
        (main.join(".git/HEAD"), "ref: refs/heads/main".to_owned()),
        (own.join("commondir"), "../..".to_owned()),
        (
            own.join("gitdir"),
            linked.join(".git").display().to_string(),
        ),
        (linked.join(".git"), format!("gitdir: {}", own.display())),
    ] {
        std::fs::write(file, text).expect("a file");
    }
}

#[test]
fn a_project_is_its_repository_with_its_worktrees_and_directories() {
    let home = Home::new();
    repository(&home, "shop", "elsewhere/shop-fix");
    let broker = Broker::start(&home);
    let mut main = inside(&home, "shop", "main");
    let mut tree = inside(&home, "elsewhere/shop-fix", "tree");
    let mut below = inside(&home, "shop/src/bin", "below");
    let sent = main.call("bus.send", json!({ "to": "#shop", "body": "lunch?" }));
    assert_eq!(sent["recipients"], 2, "{sent}");
    for session in [&mut tree, &mut below] {
        assert_eq!(session.drained()["group"], "shop");
    }
    broker.stop();
}

#[test]
fn two_projects_of_one_name_have_two_groups_that_say_so() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut first = inside(&home, "acme/api", "ac");
    let mut second = inside(&home, "globex/api", "gl");
    let note = |answer: &Value| answer["note"].as_str().expect("a note").to_owned();
    let told = note(&second.call("bus.peers", json!({})));
    for says in ["is #api-2; #api is that of another", "/acme/api\""] {
        assert!(told.contains(says), "{told}");
    }
    assert!(!note(&first.call("bus.peers", json!({}))).contains("api-2"));
    let why = first.call_fails("bus.send", json!({ "to": "#api", "body": "a password" }));
    assert!(
        why.contains("nobody else of this token is in #api now"),
        "{why}"
    );
    let sent = second.call("bus.send", json!({ "to": "#api", "body": "hello" }));
    assert!(
        note(&sent).contains("mind that the group of this project is #api-2"),
        "{sent}"
    );
    let dir = home.path().join("globex/api");
    let mut command = home.peerbus(&["adapter", "--adapter", "cc", "--name", "third"]);
    let mut third = Mcp::spawn(command.current_dir(dir));
    let instructions = third.initialize("claude-code")["instructions"].to_string();
    assert!(
        instructions.contains("this project is #api-2; #api is"),
        "{instructions}"
    );
    third.call("bus.send", json!({ "to": "#api-2", "body": "ours" }));
    assert_eq!(second.drained()["body"], "ours");
    let peers = home.run(&["peers"]);
    let says = format!(
        "#api-2 is the project \"{}/globex/api\"",
        home.path().display()
    );
    assert!(peers.stderr.contains(&says), "{}", peers.stderr);
    let mut shell = home.peerbus(&["send", "#api", "from a shell"]);
    let shell = crate::support::Finished::of(shell.current_dir(home.path().join("globex/api")));
    assert!(
        shell.stderr.contains("this project is #api-2"),
        "{}",
        shell.stderr
    );

    // What its directory is called is an address, whatever that is.
    let mut odd = inside(&home, "日本語", "odd");
    let mut even = inside(&home, "日本語/", "even");
    odd.call("bus.send", json!({ "to": "#日本語", "body": "ja" }));
    assert_eq!(even.drained()["group"], "e697a5e69cace8aa9e");
    home.run(&["send", "#日本語", "from afar"]).ok();
    assert_eq!(even.drained()["body"]["text"], "from afar");
    broker.stop();
}

#[test]
fn names_that_come_to_the_same_are_not_one_group() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for (at, dir) in ["a b", "a-b", "config", ".config/", "api!", "api-"]
        .iter()
        .enumerate()
    {
        inside(&home, dir, &format!("p{at}")).close();
    }
    let listed = home.run(&["peers", "--all", "--json"]).ok();
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let mut groups: Vec<_> = listed["peers"].as_array().expect("peers").iter().collect();
    groups.sort_by_key(|peer| peer["name"].as_str());
    let groups: Vec<_> = groups.iter().map(|peer| &peer["groups"][0]).collect();
    assert_eq!(
        groups,
        ["#a-b", "#a-b-2", "#config", "#config-2", "#api-", "#api--2"]
    );
    // A state directory that takes nothing: the name is nobody else's all the same.
    std::fs::remove_dir_all(home.path().join(".local/state/peerbus/projects")).expect("links");
    std::fs::write(home.path().join(".local/state/peerbus/projects"), "").expect("a file");
    let mut mcp = inside(&home, "x/shop", "alone");
    let told = mcp.call("bus.peers", json!({}))["note"].to_string();
    assert!(
        told.contains("the group of this project is #shop-"),
        "{told}"
    );
    broker.stop();
}

#[test]
fn a_name_may_hold_a_project_without_a_latin_letter() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for dir in ["日本語", "проект", "é", "🙂"] {
        let mut mcp = inside(&home, dir, "{project}-codex");
        let me = mcp.call("bus.peers", json!({}))["self"].to_string();
        assert!(me.ends_with("-codex\"") && me.len() > 10, "{dir}: {me}");
    }
    broker.stop();
}

/// One that is on the bus.
fn here(home: &Home, name: &str) -> Mcp {
    let mut mcp = agent(home, name);
    mcp.call("bus.peers", json!({}));
    mcp
}

#[test]
fn everyone_in_a_project_gets_what_is_sent_to_it_and_who_is_away_later() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let [mut alice, mut bob, cyd] = ["alice", "bob", "cyd"].map(|name| here(&home, name));
    let listed = bob.call("bus.peers", json!({}));
    assert_eq!(listed["details"][0]["groups"], json!(["#shop"]), "{listed}");
    cyd.close();
    let sent = alice.call("bus.send", json!({ "to": "#shop", "body": "lunch?" }));
    assert_eq!(sent["recipients"], 2, "{sent}");
    let note = sent["note"].as_str().expect("a note");
    assert!(note.contains("for 2 members of #shop"), "{note}");
    let got = bob.drained();
    assert_eq!(
        (&got["from"], &got["group"]),
        (&json!("alice"), &json!("shop"))
    );
    assert_eq!(got["kind"], "msg");
    let mut cyd = agent(&home, "cyd");
    assert_eq!(cyd.drained()["body"], "lunch?");
    broker.stop();
}

#[test]
fn a_session_joins_and_leaves_and_a_shell_does_likewise() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let [mut alice, mut bob] = ["alice", "bob"].map(|name| here(&home, name));
    let why = alice.call_fails("bus.send", json!({ "to": "#reviewers", "body": "?" }));
    assert!(
        why.contains("nobody else of this token is in #reviewers now; its groups are #shop"),
        "{why}"
    );
    let joined = bob.call("bus.join", json!({ "group": "#Reviewers" }));
    assert_eq!(joined["groups"], json!(["#reviewers", "#shop"]));
    let wrong = bob.call_fails("bus.join", json!({ "group": "a b" }));
    assert!(wrong.contains("a group is # and 1 to 64 of"), "{wrong}");
    let said = home.run(&["send", "#reviewers", "please look"]).ok();
    assert!(
        said.contains("for 1 member of #reviewers (1 connected)"),
        "{said}"
    );
    assert_eq!(bob.drained()["group"], "reviewers");
    let peers = home.run(&["peers"]).ok();
    assert!(peers.contains(" shop #reviewers #shop "), "{peers}");

    // It goes on, so it has read that. Who runs below an agent is told what every recipient was shown.
    bob.call("bus.peers", json!({}));
    for with in ["#reviewers", "bob"] {
        eventually("it is told", || {
            let told = home.run(&["history", "--with", with]).ok();
            told.contains("please look").then_some(())
        });
    }
    let none = home.run(&["history", "--with", "#shop"]).ok();
    assert_eq!(none, "no messages\n");

    let left = bob.call("bus.leave", json!({ "group": "reviewers" }));
    assert_eq!(left["note"], "you are in #shop now");
    let mut listener = home.peerbus(&[
        "recv",
        "--name",
        "dora",
        "--group",
        "reviewers",
        "--count",
        "1",
    ]);
    let listener = std::thread::spawn(move || crate::support::Finished::of(&mut listener));
    eventually("dora has joined", || {
        let sent = home.run(&["send", "#reviewers", "again"]);
        (sent.code == Some(0)).then_some(())
    });
    let line = listener.join().expect("recv ends").ok();
    let line: Value = serde_json::from_str(line.trim()).expect("a line of JSON");
    assert_eq!(
        (&line["group"], &line["body"]["text"]),
        (&json!("reviewers"), &json!("again"))
    );
    broker.stop();
}

#[test]
fn a_tail_of_a_group_or_of_one_in_it_shows_what_is_said_in_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = joins(&home, &broker, "bob");
    let says = |text: &str| home.run(&["send", "--name", "ann", "#crowd", text]).ok();
    says("before");
    let of = ["bob", "ann", "#crowd"];
    let mut tails = of.map(|of| {
        let mut command = home.peerbus(&["tail", "--follow", of]);
        command.stdout(Stdio::piped()).spawn().expect("tail")
    });
    let shown = tails.each_mut().map(|tail| {
        let lines = Lines::of(tail.stdout.take().expect("a pipe"));
        let wait = |text: &str| lines.find(text, |line| line.contains(text).then_some(()));
        wait(r##"ann → #crowd  "before""##);
        wait("ann → bob  delivered");
        lines
    });
    let id = says("live");
    let id = id.split([' ', ':']).nth(1).expect("an id");
    for lines in &shown {
        let said = format!(r##"{} ann → #crowd  "live""##, short_id(id));
        lines.find("live", |line| line.contains(&said).then_some(()));
        let step = format!("{} ann → bob  delivered", short_id(id));
        lines.find("how far", |line| line.contains(&step).then_some(()));
    }
    for tail in &mut tails {
        tail.kill().expect("it is ours");
        tail.wait().expect("it is ours");
    }
    broker.stop();
}

#[test]
fn who_left_a_group_is_not_in_it_again_when_its_broker_comes_back() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut alice = here(&home, "alice");
    alice.call("bus.join", json!({ "group": "reviewers" }));
    alice.call("bus.leave", json!({ "group": "shop" }));
    broker.kill();
    let broker = Broker::start(&home);
    let groups = eventually("alice is back", || {
        let peers: Value =
            serde_json::from_str(&home.run(&["peers", "--json"]).ok()).expect("JSON");
        let mut peers = peers["peers"].as_array()?.iter();
        let alice = peers.find(|it| it["name"] == "alice" && it.get("away_s").is_none())?;
        Some(alice["groups"].clone())
    });
    assert_eq!(groups, json!(["#reviewers"]));
    broker.stop();
}

#[test]
fn a_shell_that_cannot_join_says_so_and_ends() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut zoe = Raw::register(&home, &broker, "zoe");
    let all: Vec<_> = (0..64).map(|n| format!("g{n}")).collect();
    let join = json!({ "protocol_version": "v1", "type": "peers", "join": all });
    zoe.say(&join.to_string());
    while zoe.next()["groups"].as_array().map(Vec::len) != Some(64) {}
    drop(zoe);
    let wrong = home
        .run(&["recv", "--name", "zoe", "--group", "extra"])
        .fails(1);
    let why =
        "zoe is not in #extra: a peer is in at most 64 groups, and this would be in 65: leave some";
    assert!(wrong.contains(why), "{wrong}");
    let many = (0..65).flat_map(|n| ["--group".to_owned(), format!("g{n}")]);
    let many: Vec<_> = ["recv", "--name", "zoe"]
        .map(str::to_owned)
        .into_iter()
        .chain(many)
        .collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let wrong = home.run(&many).fails(2);
    assert!(wrong.contains("--group is given 65 times"), "{wrong}");
    broker.stop();
}

#[test]
fn a_job_goes_to_one_and_to_the_next_when_that_is_killed_before_it_saw_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let [mut alice, bob] = ["alice", "bob"].map(|name| here(&home, name));
    let job = json!({ "to": "#shop", "one": true, "body": "review this" });
    let sent = alice.call("bus.send", job.clone());
    assert_eq!(sent["recipients"], 1, "{sent}");
    let note = sent["note"].as_str().expect("a note");
    assert!(note.contains("with one member of #shop"), "{note}");
    let wrong = alice.call_fails("bus.send", json!({ "to": "bob", "one": true, "body": "?" }));
    assert!(wrong.contains("`one` is for a group"), "{wrong}");
    let id = sent["id"].as_str().expect("an id").to_owned();
    let mut status = |says: &str| {
        eventually(says, || {
            let told = alice.call("bus.status", json!({ "id": id }));
            let note = told["messages"][0]["note"].as_str()?;
            note.contains(says).then(|| note.to_owned())
        })
    };
    status("bob's adapter got it");
    let mut cyd = here(&home, "cyd");
    drop(bob);
    let got = cyd.drained();
    let mark = json!(true);
    assert_eq!(
        (&got["one"], &got["shown_before"], &got["group"]),
        (&mark, &mark, &json!("shop")),
        "{got}"
    );
    let note = status("cyd");
    assert!(
        note.ends_with("before that bob had it (its session ended)"),
        "{note}"
    );
    cyd.call("bus.ack", json!({ "ids": [got["id"]] }));
    status("cyd's model has seen it");
    broker.stop();
}

#[test]
fn a_job_waits_for_the_first_that_comes_whatever_is_deleted_of_its_past() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let bob = here(&home, "bob");
    let sent = home
        .run(&["send", "--one", "#shop", "review this", "--json"])
        .ok();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    let id = sent["id"].as_str().expect("an id");
    eventually("bob has it", || {
        let told = home.run(&["status", id]).ok();
        let has = |line: &str| line.contains("delivered") && line.contains("bob");
        told.lines().any(has).then_some(())
    });
    bob.close();
    let status = eventually("bob has left", || {
        let told = home.run(&["status", id]).ok();
        told.contains("its session ended").then_some(told)
    });
    assert!(
        status.contains("it waits at the broker for one of #shop"),
        "{status}"
    );
    home.apart(&["history", "purge"]).ok();
    let wrong = home.run(&["send", "--one", "bob", "review this"]).fails(2);
    assert!(wrong.contains("--one is for a group"), "{wrong}");
    let line = home
        .run(&["recv", "--name", "cyd", "--group", "shop", "--count", "1"])
        .ok();
    let line: Value = serde_json::from_str(line.trim()).expect("a line of JSON");
    let mark = json!(true);
    assert_eq!(
        (&line["one"], &line["shown_before"], &line["body"]["text"]),
        (&mark, &mark, &json!("review this"))
    );
    let mut bob = here(&home, "bob");
    let none = bob.call("bus.drain", json!({}));
    assert_eq!(none["messages"], json!([]), "{none}");
    let said = home.run(&["audit", "verify"]).ok();
    assert!(said.starts_with("OK "), "{said}");
    drop(bob);
    let said = home.run(&["send", "--one", "#shop", "and this"]).ok();
    assert!(said.contains("for the first of #shop that comes"), "{said}");
    broker.stop();
}

/// Members of a group, and messages for it, in so many rounds that each begin with a killed broker.
const MEMBERS: usize = 100;
const MESSAGES: usize = 1_000;
const ROUNDS: usize = 5;

/// One that has joined a group.
fn joins(home: &Home, broker: &Broker, name: &str) -> Raw {
    let mut raw = Raw::register(home, broker, name);
    raw.say(r#"{"protocol_version":"v1","type":"peers","join":["crowd"]}"#);
    while raw.next()["groups"] != json!(["crowd"]) {}
    raw
}

/// Sends these until each is accepted for every member.
fn sends(caster: &mut Raw, secret: &str, ids: &[String]) {
    for id in ids {
        caster.say(&envelope(secret, id, "caster", "#crowd", "1"));
    }
    let mut accepted = 0;
    while accepted < ids.len() {
        let frame = caster.next();
        for receipt in frame["receipts"].as_array().expect("receipts") {
            assert_eq!(receipt["state"], "accepted", "{receipt}");
            assert_eq!(receipt["recipients"], MEMBERS, "{receipt}");
            accepted += 1;
        }
    }
}

/// The ids of what waits for a member, as they come.
fn reads(home: &Home, broker: &Broker, name: &str) -> Vec<String> {
    let mut raw = Raw::register(home, broker, name);
    let read = |_| {
        let delivery = raw.delivery();
        let key = &delivery["delivery_key"];
        let ack = json!({ "protocol_version": "v1", "type": "ack", "id": key });
        raw.say(&ack.to_string());
        delivery["envelope"]["id"].as_str().map(str::to_owned)
    };
    (0..MESSAGES).filter_map(read).collect()
}

#[test]
fn a_group_of_a_hundred_gets_everything_in_order_from_a_broker_that_is_killed() {
    let home = Home::new();
    let mut broker = Broker::start(&home);
    let names: Vec<_> = (0..MEMBERS).map(|n| format!("m{n}")).collect();
    for name in &names {
        drop(joins(&home, &broker, name));
    }
    let secret = home.credential("hmac_secret");
    let ids: Vec<_> = (0..MESSAGES).map(|n| format!("{n:06}")).collect();
    for round in ids.chunks(MESSAGES / ROUNDS) {
        let mut caster = Raw::register(&home, &broker, "caster");
        // Of some it is confirmed that they were taken; of the others nobody knows.
        for id in round {
            caster.say(&envelope(&secret, id, "caster", "#crowd", "1"));
        }
        caster.receipt("accepted");
        broker.kill();
        broker = Broker::start(&home);
        let mut caster = Raw::register(&home, &broker, "caster");
        sends(&mut caster, &secret, round);
    }
    for name in &names {
        assert_eq!(reads(&home, &broker, name), ids, "{name}");
    }
    broker.stop();
}
