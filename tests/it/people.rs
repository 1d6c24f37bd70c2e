//! What a person in a shell asks and is shown.

use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};

use serde_json::{Value, json};

use crate::orphans::Session;
use crate::sessions::names;
use crate::support::{Broker, Home, Lines, Mcp, Raw, eventually, python};

fn agent(home: &Home, name: &str) -> Mcp {
    let mut agent = Mcp::start(home, "generic", name, "some-bot");
    agent.call("bus.peers", json!({}));
    agent
}

/// The one message that an agent is shown.
fn shown(agent: &mut Mcp) -> Value {
    eventually("a message comes", || {
        let mut drained = agent.call("bus.drain", json!({ "max": 1 }));
        drained["messages"].as_array_mut()?.pop()
    })
}

#[test]
fn an_agent_answers_who_asks_from_a_shell() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = agent(&home, "bob");
    for (flags, answer, printed) in [
        (
            &[][..],
            json!("five <6>\n\u{1b}[2J\tyes"),
            "five <6>\n\\u001b[2J\tyes\n",
        ),
        (&[], json!({ "n": 5, "reply_to": "?" }), "{\"n\":5,"),
        (&["--json"], json!("five"), "{\"id\":"),
    ] {
        let mut ask = home.peerbus(&[&["ask", "bob", "2+3?"], flags].concat());
        ask.stdout(std::process::Stdio::piped());
        ask.stderr(std::process::Stdio::piped());
        let mut asking = ask.spawn().expect("peerbus starts");
        let said = Lines::of(asking.stderr.take().expect("a pipe"));
        let question = shown(&mut bob);
        assert_eq!(question["body"]["text"], "2+3?");
        said.find("how far it is", |line| line.contains("bob").then_some(()));
        let id = &question["id"];
        bob.call("bus.reply", json!({ "msg_id": id, "body": answer }));
        let done = asking.wait_with_output().expect("it ends");
        assert!(done.status.success());
        let heard = String::from_utf8(done.stdout).expect("utf-8");
        assert!(heard.starts_with(printed), "{heard}");
    }
    broker.stop();
}

#[test]
fn no_line_of_an_answer_on_a_terminal_looks_like_one_of_ours() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = agent(&home, "bob");
    let printed = std::thread::scope(|scope| {
        let asking = scope.spawn(|| on_a_terminal(&home, "80", &["ask", "bob", "2+3?"]));
        let id = shown(&mut bob)["id"].take();
        let answer = "five\npeerbus: ann waits for you";
        bob.call("bus.reply", json!({ "msg_id": id, "body": answer }));
        asking.join().expect("it ends")
    });
    assert!(
        printed.contains("    five\n    peerbus: ann waits for you\n"),
        "{printed}"
    );
    broker.stop();
}

#[test]
fn who_asks_and_gets_no_answer_is_told_how_far_the_question_is() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = agent(&home, "bob");
    let said = home.run(&["ask", "bobb", "?"]).fails(1);
    assert!(said.ends_with("Did you mean bob?\n"), "{said}");
    let said = home.run(&["ask", "bob", "2+3?", "--timeout", "1"]).fails(1);
    assert!(
        said.contains("no result from bob within 1 s: bob's adapter got it"),
        "{said}"
    );
    broker.stop();
}

#[test]
fn who_writes_to_an_agent_that_nothing_wakes_is_told_so() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = agent(&home, "bob");
    eventually("it is told", || {
        let sent = home.run(&["send", "bob", "hi"]).ok();
        let asleep = "bob is connected; nothing wakes bob: it reads when it is told to\n";
        sent.ends_with(asleep).then_some(())
    });
    broker.stop();
}

#[test]
fn a_command_says_that_nobody_waits_for_an_answer_and_one_with_a_name_finds_it_later() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = agent(&home, "bob");
    for args in [&["send", "bob", "hi"][..], &["broadcast", "hi"]] {
        let sent = home.run(args);
        let said = &sent.stderr;
        assert!(said.contains("no answer is wanted"), "{said}");
        assert_eq!(
            said.contains("`peerbus ask bob"),
            args[0] == "send",
            "{said}"
        );
        sent.ok();
        let message = shown(&mut bob);
        assert_eq!(message["body"]["text"], "hi", "{message}");
        let wants = message["wants"].as_str().expect("what it wants");
        assert!(wants.starts_with("no answer is wanted"), "{message}");
    }
    let named = ["send", "bob", "hi", "--name", "ann"];
    let ask = ["ask", "bob", "2+3?", "--name", "ann", "--timeout", "0.5"];
    let reply = |bob: &mut Mcp, id: &Value, body: &str| {
        bob.call("bus.reply", json!({ "msg_id": id, "body": body }));
    };
    for round in ["first", "second"] {
        assert_eq!(home.run(&named).stderr, "");
        let message = shown(&mut bob);
        assert_eq!(message["body"], "hi", "{message}");
        assert!(message["wants"].is_null(), "{message}");
        reply(&mut bob, &message["id"], &format!("{round} answer"));
        let said = home.run(&ask).fails(1);
        assert!(said.contains("waits in `peerbus inbox ann`"), "{said}");
        let question = shown(&mut bob);
        reply(&mut bob, &question["id"], &format!("{round} result"));
    }
    let waits = home.apart(&["inbox", "ann"]).ok();
    for text in [
        "first answer",
        "first result",
        "second answer",
        "second result",
    ] {
        assert!(waits.contains(text), "{text}: {waits}");
    }
    broker.stop();
}

/// A command on a terminal so many columns wide.
fn terminal(home: &Home, columns: &str, args: &[&str]) -> std::process::Command {
    let mut command = home.command("python3");
    command.arg(python::script("it/terminal.py")).arg(columns);
    command.arg(env!("CARGO_BIN_EXE_peerbus")).args(args);
    command
}

/// What a person sees there.
fn on_a_terminal(home: &Home, columns: &str, args: &[&str]) -> String {
    let mut command = terminal(home, columns, args);
    let shown = command.output().expect("python3 is installed");
    String::from_utf8(shown.stdout).expect("utf-8")
}

#[test]
fn recv_shows_messages_to_people_on_a_terminal_and_json_to_programs() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let recv = ["recv", "--name", "bob", "--count", "1", "--timeout", "20"];
    home.run(&["recv", "--name", "bob", "--timeout", "0.1"])
        .ok();
    let send = |body| home.run(&["send", "bob", body, "--name", "ann"]).ok();
    send("two\nlines \u{1b}[2J");
    let shown = on_a_terminal(&home, "80", &recv);
    assert!(
        shown.contains(" from ann, 2") && shown.contains(":\n    two\n    lines \\u001b[2J\n"),
        "{shown}"
    );
    let json = [&recv[..], &["--json"]].concat();
    send("three");
    assert!(on_a_terminal(&home, "80", &json).contains("\"body\":\"three\""));
    for args in [&recv[..], &json] {
        send("four");
        let line: Value = serde_json::from_str(&home.run(args).ok()).expect("JSON");
        assert_eq!(line["body"], "four");
    }
    broker.stop();
}

#[test]
fn recv_takes_an_agents_mail_only_when_told_to() {
    let home = Home::new();
    let mut broker = Broker::start(&home);
    let mut bob = agent(&home, "rob");
    bob.call("bus.rename", json!({ "name": "bob" }));
    let said = home.run(&["recv", "--name", "rob"]).fails(1);
    assert!(said.contains("an old one of bob"), "{said}");
    let recv = ["recv", "--name", "Bob", "--count", "1", "--timeout", "20"];
    let said = home.run(&recv).fails(1);
    assert!(
        said.contains("bob is an agent's session (some-bot"),
        "{said}"
    );
    drop(bob);
    home.run(&["broadcast", "hello", "--name", "bob"]).ok();
    home.run(&["send", "bob", "do not lose me"]).ok();
    for restarted in [false, true] {
        if restarted {
            broker.kill();
            broker = Broker::start(&home);
        }
        let said = home.run(&recv).fails(1);
        assert!(said.contains("--take"), "{restarted}: {said}");
    }
    let taken = home.apart(&[&recv[..], &["--take"]].concat()).ok();
    assert!(taken.contains("do not lose me"), "{taken}");
    broker.stop();
}

#[test]
fn two_sessions_of_one_project_and_branch_are_told_apart() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let git = home.path().join(".git");
    std::fs::create_dir(&git).expect("a directory");
    std::fs::write(git.join("HEAD"), "ref: refs/heads/fix/x\n").expect("a file");
    let both = ["zany-goblin-wyv", "wild-wasp-3kx"].map(|name| Session::start(&home, name));
    eventually("both are there", || (names(&home).len() == 2).then_some(()));
    let shown = eventually("both are known", || {
        let shown: Value = serde_json::from_str(&home.run(&["peers", "--json"]).ok()).ok()?;
        let all = shown["peers"].as_array()?;
        let known = all.len() == 2 && all.iter().all(|it| it["pid"].is_u64());
        known.then(|| all.clone())
    });
    for (session, name) in both.iter().zip(["zany-goblin-wyv", "wild-wasp-3kx"]) {
        let peer = shown.iter().find(|peer| peer["name"] == name);
        let peer = peer.expect("it is listed");
        assert_eq!(peer["pid"], session.process(), "{peer}");
        assert_eq!(peer["branch"], "fix/x", "{peer}");
    }
    let project = home.path().file_name().expect("a name").to_string_lossy();
    let table = home.run(&["peers"]).ok();
    let pid = format!(" {} ", both[0].process());
    let is_first = |line: &&str| line.starts_with("zany") || line.starts_with(" zany");
    let line = table.lines().find(is_first).expect("its line");
    assert!(line.contains(&pid), "{table}");
    let rows = eventually("both are listed here", || {
        let rows = home.run(&["session", "list"]).ok();
        (rows.lines().count() == 3).then_some(rows)
    });
    for row in rows.lines().skip(1) {
        assert!(row.contains(&*project) && row.contains("fix/x"), "{row}");
    }
    home.run(&["send", "zany-goblin-wyv", "hi", "--name", "ann"])
        .ok();
    let place = format!(
        "zany-goblin-wyv: {project}, branch fix/x, process{pid}",
        pid = pid.trim_end()
    );
    for list in [&["history"][..], &["inbox", "zany-goblin-wyv"]] {
        let said = home.run(list).stderr;
        assert!(said.contains(&place), "{list:?}: {said}");
        assert!(!said.contains("wild"), "it is not in the list: {said}");
    }
    broker.stop();
}

#[test]
fn peers_shows_who_is_here_or_is_owed_mail_and_fits_the_terminal() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = agent(&home, "bob-who-has-a-rather-long-name");
    for name in ["gone", "owed"] {
        home.run(&["recv", "--name", name, "--timeout", "0.1"]).ok();
    }
    home.run(&["send", "owed", "hi"]).ok();
    let few = home.run(&["peers"]);
    assert!(
        few.stderr.contains("1 more, away and owed nothing"),
        "{}",
        few.stderr
    );
    let few = few.ok();
    assert!(few.contains("owed") && !few.contains("gone"), "{few}");
    let all = home.run(&["peers", "--all"]).ok();
    assert!(all.contains("gone"), "{all}");
    let names = home.run(&["names", "list"]).ok();
    assert!(names.contains("gone") && names.contains("owed"), "{names}");
    let names: Value =
        serde_json::from_str(&home.run(&["names", "list", "--json"]).ok()).expect("JSON");
    assert_eq!(names["names"].as_array().map(Vec::len), Some(3), "{names}");
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    assert!(
        widest(&all) > Some(75),
        "not on a terminal: nothing is cut: {all}"
    );
    let shown = on_a_terminal(&home, "75", &["peers", "--all"]);
    assert!(shown.contains("started by hand"), "{shown}");
    let begun = |line: &&str| line.contains("has just started");
    assert_eq!(shown.lines().filter(|it| !begun(it)).count(), 5, "{shown}");
    assert!(widest(&shown) <= Some(75), "{shown}");
    assert!(shown.contains("bob-who-has-a-rather-long-name"), "{shown}");
    broker.stop();
}

/// A demo in which a person's settings mean another bus, and its lines.
fn demo(home: &Home) -> (std::process::Child, Lines) {
    std::fs::create_dir(home.path().join("tmp")).expect("a directory");
    let mut demo = home
        .peerbus(&["demo"])
        .env("TMPDIR", home.path().join("tmp"))
        .env("PEERBUS_URL", "ws://127.0.0.1:1")
        .env("PEERBUS_TOKEN", "a token of another bus")
        .env("PEERBUS_HMAC_SECRET", "another secret, of thirty-two bytes")
        .env("PEERBUS_FROM", "*=drop")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("peerbus starts");
    let lines = Lines::of(demo.stdout.take().expect("a pipe"));
    (demo, lines)
}

/// Checks that it went well, and that the home is as it was.
#[track_caller]
fn nothing_is_left(home: &Home, mut demo: std::process::Child) {
    let code = demo.wait().expect("our child").code();
    assert_eq!(code, Some(0));
    let of = |dir: std::path::PathBuf| std::fs::read_dir(dir).expect("it is there").flatten();
    let left = of(home.path().into()).chain(of(home.path().join("tmp")));
    let left = left.map(|it| it.file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["tmp"]);
}

#[test]
fn a_demo_shows_a_conversation_with_its_stages_and_leaves_nothing() {
    let home = Home::new();
    let (demo, lines) = demo(&home);
    for text in [
        "alice → bob  \"Are the tests green?\"",
        "alice → bob  pushed by demo",
        "alice → bob  seen by demo (tool_call)",
        "bob → alice  \"All 412 pass.\"",
        "alice → carol  \"Please review fix/x.\"",
        "carol registered",
        "alice → carol  seen by demo",
        "carol → all  \"fix/x is merged.\"",
        "bob's model has seen it",
        "Next: ",
    ] {
        lines.find(text, |line| line.contains(text).then_some(()));
    }
    nothing_is_left(&home, demo);
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing_either() {
    let home = Home::new();
    let (demo, lines) = demo(&home);
    let text = "pushed by demo";
    lines.find(text, |line| line.contains(text).then_some(()));
    let pid = rustix::process::Pid::from_child(&demo);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("our child");
    nothing_is_left(&home, demo);
}

#[test]
fn a_person_is_told_what_takes_long_and_a_program_is_not() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Raw::register(&home, &broker, "bob");
    let send = ["send", "bob", "hi", "--name", "ada", "--wait", "seen=1.5"];
    let waits = "waiting until it is seen: bob got it";
    let shown = on_a_terminal(&home, "80", &send);
    assert!(shown.contains(waits), "{shown}");
    assert!(!home.run(&send).fails(1).contains(waits));

    // One that takes its time stands before the broker.
    let slow = home.path().join("slow.sock");
    let listener = UnixListener::bind(&slow).expect("a socket");
    let slow = slow.to_str().expect("UTF-8");
    let mut asks = terminal(&home, "80", &["history", "--socket", slow]);
    let asking = asks.stdout(std::process::Stdio::piped()).spawn();
    let mut asking = asking.expect("python3 is installed");
    let shown = Lines::of(asking.stdout.take().expect("a pipe"));
    shown.find("what it waits for", |line| {
        line.contains("waiting for the broker's answer")
            .then_some(())
    });
    let socket = home.database().with_file_name("peerbus.sock");
    std::thread::spawn(move || {
        for asked in listener.incoming().flatten() {
            let mut answers = UnixStream::connect(&socket).expect("a broker");
            let mut request = asked.try_clone().expect("a socket");
            let mut to = answers.try_clone().expect("a socket");
            std::thread::spawn(move || std::io::copy(&mut request, &mut to));
            std::io::copy(&mut answers, &mut &asked).expect("an answer");
            asked.shutdown(Shutdown::Both).expect("it is open");
        }
    });
    shown.find("its answer", |line| {
        line.contains("ada → bob").then_some(())
    });
    assert!(asking.wait().expect("our child").success());
    broker.kill();
}

#[test]
fn colours_are_for_terminals_where_they_are_wanted() {
    let home = Home::new();
    let coloured = |text: &str| text.contains("\u{1b}[");
    for (variable, expected) in [("PLAIN", true), ("NO_COLOR", false)] {
        let mut help = terminal(&home, "80", &["--help"]);
        let help = help.env("TERM", "xterm").env(variable, "1").output();
        let shown = help.expect("python3 is installed").stdout;
        let shown = String::from_utf8_lossy(&shown);
        assert_eq!(coloured(&shown), expected, "{variable}: {shown}");
    }
    assert!(!coloured(&home.run(&["--help"]).ok()));
}
