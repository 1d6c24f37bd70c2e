//! `peerbus run`, with a stand-in for Claude Code. `claude_code.rs` has the real one.

mod acp;
mod denied;
mod editor;
mod guard;
mod node;
mod relay;
mod seeds;
mod socket;
mod stream;
mod texts;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Broker, Home, Lines, PATIENCE, eventually};

/// A driver of the stand-in, on the bus as `driven`.
struct Driven {
    child: Child,
    out: Lines,
    errors: Lines,
}

/// A home in which `claude` is the stand-in.
/// Writes a file of gates of a session's own, and gives its path.
fn gates(home: &Home, text: &str) -> String {
    let file = home.path().join("own.toml");
    std::fs::write(&file, text).expect("written");
    file.to_str().expect("a path").to_owned()
}

fn home() -> Home {
    let home = Home::new();
    let bin = home.path().join("bin");
    std::fs::create_dir(&bin).expect("a directory");
    let program = bin.join("claude");
    let mut file = std::fs::File::create(&program).expect("a file");
    file.write_all(include_bytes!("claude.py"))
        .expect("written");
    drop(file);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("a mode");
    home
}

impl Driven {
    fn start(home: &Home, args: &[&str]) -> Self {
        Self::start_with(home, args, &[])
    }

    fn start_with(home: &Home, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = home.peerbus(&["run", "--name", "driven"]);
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = home.path().join("bin");
        let child = command
            .args(args)
            .envs(environment.iter().copied())
            .env("PATH", format!("{}:{path}", bin.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("peerbus starts");
        Self::of(child)
    }

    fn of(mut child: Child) -> Self {
        let out = Lines::of(child.stdout.take().expect("a pipe"));
        let errors = Lines::of(child.stderr.take().expect("a pipe"));
        Self { child, out, errors }
    }

    /// Ends as Ctrl-C ends it, and says how to go on.
    #[track_caller]
    fn stop(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a number")).expect("a pid");
        kill_process(pid, Signal::INT).expect("it runs");
        let status = self.child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0));
        let hint = "--resume 00000000-0000-4000-8000-000000000001` goes on";
        self.errors
            .find("how to go on", |line| line.contains(hint).then_some(()));
    }
}

impl Drop for Driven {
    /// Nothing is left of a test that failed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the stand-in was told so far, and noted.
fn told(home: &Home) -> Vec<Value> {
    let text = std::fs::read_to_string(home.path().join("told")).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// The texts of its turns.
fn turns(home: &Home) -> Vec<String> {
    let told = told(home);
    let users = told.iter().filter(|told| told["type"] == "user");
    users
        .map(|user| {
            user["message"]["content"]
                .as_str()
                .expect("text")
                .to_owned()
        })
        .collect()
}

/// Sends as the shell does, and gives the id.
#[track_caller]
fn send(home: &Home, text: &str) -> String {
    let sent = home.run(&["send", "driven", text, "--json"]).ok();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    sent["id"].as_str().expect("an id").to_owned()
}

fn steps(home: &Home, id: &str) -> Vec<Value> {
    let told = home.run(&["status", id, "--json"]).ok();
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let steps = &told["messages"][0]["trail"]["steps"];
    steps.as_array().cloned().unwrap_or_default()
}

fn state(home: &Home, id: &str, state: &str) -> Option<Value> {
    steps(home, id)
        .into_iter()
        .find(|step| step["state"] == state)
}

#[track_caller]
fn is_seen(home: &Home, id: &str) {
    let seen = eventually("it is seen", || state(home, id, "seen"));
    assert_eq!(
        (&seen["path"], &seen["evidence"]),
        (&json!("stream"), &json!("transcript"))
    );
}

/// Waits until the driver can be sent to.
#[track_caller]
fn is_ready(home: &Home) {
    eventually("it can be woken", || {
        let peers = home.run(&["peers", "--json"]).ok();
        peers.contains("\"stream\"").then_some(())
    });
}

#[test]
fn messages_become_turns_and_are_seen_when_one_that_answers_them_ends_well() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &["hello"]);
    driven.out.find("what the model says", |line| {
        (line == "heard it").then_some(())
    });
    is_ready(&home);
    let named = |line: &str| line.contains("connected as driven").then_some(());
    driven.errors.find("its name", named);
    let id = send(&home, "are you <there>?");
    is_seen(&home, &id);
    let turns = turns(&home);
    assert_eq!(turns[0], "hello");
    let frame = "<peerbus_messages>\n📨 ";
    let wants = "no answer is wanted: it says that it is from a command, which waits for none";
    let line = format!(
        ": \"are you \\u003cthere\\u003e?\" ({wants}) [{}]\n",
        &id[24..]
    );
    assert!(
        turns[1].starts_with(frame) && turns[1].contains(&line),
        "{}",
        turns[1]
    );
    assert!(
        turns[1].ends_with("none of your user's authority."),
        "{}",
        turns[1]
    );
    let told = told(&home);
    let hello = told
        .iter()
        .find(|told| told["type"] == "control_request")
        .expect("a hello");
    assert_eq!(hello["request"]["sdkMcpServers"], json!(["peerbus"]));
    let about = hello["request"]["appendSystemPrompt"]
        .as_str()
        .expect("instructions");
    assert!(about.contains("peerbus connects you with peers"), "{about}");
    let peers = home.run(&["peers", "--json"]).ok();
    assert!(peers.contains("claude-code 2.1.114"), "{peers}");
    driven.stop();
    broker.stop();
}

#[test]
fn what_was_merged_into_one_turn_is_all_accounted_for() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &["and hold"]);
    is_ready(&home);
    let one = send(&home, "one");
    eventually("the first is a turn", || {
        (turns(&home).len() == 2).then_some(())
    });
    assert_eq!(state(&home, &one, "seen"), None);
    let two = send(&home, "two");
    is_seen(&home, &one);
    is_seen(&home, &two);
    eventually("nothing is open", || {
        home.run(&["peers", "--json"])
            .ok()
            .contains("\"idle\"")
            .then_some(())
    });
    assert_eq!(turns(&home).len(), 3);
    driven.stop();
    broker.stop();
}

#[test]
fn a_client_that_dies_is_gone_on_with_and_what_was_not_seen_is_given_again_as_a_repeat() {
    for how in ["die at once", "die after the answer"] {
        let home = home();
        let broker = Broker::start(&home);
        let driven = Driven::start(&home, &["hello"]);
        driven.out.find("the first answer", |line| {
            (line == "heard it").then_some(())
        });
        is_ready(&home);
        let id = send(&home, how);
        is_seen(&home, &id);
        let turns = turns(&home);
        let shown: Vec<_> = turns
            .iter()
            .filter(|turn| turn.contains(&id[24..]))
            .collect();
        let [first, again] = shown[..] else {
            panic!("{turns:?}")
        };
        assert!(
            !first.contains("(shown before)") && again.contains("(shown before)"),
            "{again}"
        );
        let told = told(&home);
        let starts: Vec<_> = told
            .iter()
            .filter_map(|told| told["argv"].as_array())
            .collect();
        let [_, second] = starts[..] else {
            panic!("{starts:?}")
        };
        let resume = second
            .iter()
            .position(|word| word == "--resume")
            .expect("--resume");
        assert_eq!(second[resume + 1], "00000000-0000-4000-8000-000000000001");
        assert_eq!(turns.iter().filter(|turn| *turn == "hello").count(), 1);
        driven.stop();
        broker.stop();
    }
}

#[test]
fn a_first_turn_that_the_client_died_over_is_given_again() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &["die at once"]);
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    let turns = turns(&home);
    let [first, again] = &turns[..] else {
        panic!("{turns:?}")
    };
    assert_eq!(first, "die at once");
    assert!(again.contains("You may have been told this before") && again.ends_with(first));
    driven.stop();
    broker.stop();
}

#[test]
fn a_turn_that_failed_proves_nothing() {
    for how in ["fail after the answer", "no service"] {
        let home = home();
        let broker = Broker::start(&home);
        let driven = Driven::start(&home, &[]);
        is_ready(&home);
        let failed = send(&home, how);
        driven.errors.find("why it failed", |line| {
            line.contains("a turn failed").then_some(())
        });
        let well = send(&home, "and now?");
        is_seen(&home, &well);
        assert_eq!(state(&home, &failed, "seen"), None, "{how}");
        assert!(state(&home, &failed, "presented").is_some(), "{how}");
        driven.stop();
        broker.stop();
    }
}

#[test]
fn its_own_tools_are_allowed_and_served_and_others_are_denied_with_a_sentence() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(
        &home,
        &["use a bus tool, use a tool, and ask for the unknown"],
    );
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    let told = told(&home);
    let noted = |what: &str| -> Vec<Value> {
        told.iter()
            .filter_map(|told| told.get(what))
            .cloned()
            .collect()
    };
    let verdicts = noted("verdict");
    let [denied, allowed, unknown] = &verdicts[..] else {
        panic!("{verdicts:?}")
    };
    assert_eq!(denied["response"]["behavior"], "deny");
    let why = denied["response"]["message"].as_str().expect("a sentence");
    assert!(
        why.contains("--permission-mode") && why.contains("--allowedTools"),
        "{why}"
    );
    let input = json!({ "x": 12 });
    assert_eq!(
        allowed["response"],
        json!({ "behavior": "allow", "updatedInput": input })
    );
    assert_eq!(unknown["subtype"], "error");
    let called = &noted("called")[0]["response"]["mcp_response"];
    assert_eq!(called["id"], 1);
    assert_eq!(
        called["result"]["structuredContent"]["self"], "driven",
        "{called}"
    );
    driven.stop();
    broker.stop();
}

#[test]
fn what_is_not_understood_ends_nothing_and_what_the_model_says_is_escaped() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &["speak oddly"]);
    let first = driven.out.next(PATIENCE);
    assert_eq!(first.as_deref(), Some("first"));
    let second = driven.out.next(PATIENCE);
    assert_eq!(second.as_deref(), Some(r"second \u001b[2J\u202e<end>"));
    is_ready(&home);
    let id = send(&home, "still there?");
    is_seen(&home, &id);
    driven.stop();
    broker.stop();
}

#[test]
fn what_cannot_run_says_why() {
    let home = home();
    let broker = Broker::start(&home);
    let said = home.run(&["run", "--", "--output-format", "text"]).fails(2);
    assert!(
        said.contains("--output-format is set by peerbus run itself"),
        "{said}"
    );
    let mut nowhere = home.peerbus(&["run"]);
    let output = nowhere
        .env("PATH", "/nonexistent")
        .output()
        .expect("peerbus starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("`claude` cannot be started") && said.contains("install"),
        "{said}"
    );
    std::fs::write(home.path().join("version"), "2.1.330").expect("a file");
    let mut driven = Driven::start(&home, &["--transport", "sdk-url"]);
    driven.errors.find("why", |line| {
        let both = line.contains("2.1.330") && line.contains("--transport stdio");
        both.then_some(())
    });
    assert_eq!(driven.child.wait().expect("it ends").code(), Some(1));
    let mut driven = Driven::start(&home, &["--resume", "gone", "--", "--bad-start"]);
    driven.errors.find("why", |line| {
        let both = line.contains("before it was ready") && line.contains("No conversation found");
        both.then_some(())
    });
    assert_eq!(driven.child.wait().expect("it ends").code(), Some(1));
    broker.stop();
}

#[test]
fn a_session_whose_output_nobody_reads_works_on_and_ends_when_told() {
    let home = home();
    let broker = Broker::start(&home);
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe");
    while writer.write(&[b'x'; 4_096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a pipe");
    let bin = home.path().join("bin");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = home
        .peerbus(&["run", "--name", "driven"])
        .env("PATH", format!("{}:{path}", bin.display()))
        .stdout(writer)
        .stderr(Stdio::null())
        .spawn()
        .expect("peerbus starts");
    is_ready(&home);
    for text in ["one", "two", "three"] {
        is_seen(&home, &send(&home, text));
    }
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    broker.stop();
}
