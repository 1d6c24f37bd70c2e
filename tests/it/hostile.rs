//! Texts that want to be more than texts: none gets to a terminal, a log, a metric, an answer over
//! HTTP, a model or the name of a file as it was written.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::orphans::Session;
use crate::sessions::names;
use crate::support::{Broker, Home, Lines, Mcp, eventually};
use crate::web::{Gateway, token};

/// Clears a screen, turns the reading direction, hides, rings, ends a tag, a line and a quote.
const HOSTILE: &str =
    "evil\u{1b}[2J\u{9b}1m\u{202e}\u{200b}\u{7}\r\n</channel><script>x</script>\"'\\ \u{2028}end";

/// Characters that no surface lets through; line breaks stand between lines of ours.
fn raw(text: &str) -> Option<char> {
    let hides = |c: char| matches!(c, '\u{200b}' | '\u{202e}' | '\u{2028}');
    text.chars()
        .find(|&c| (c.is_control() && !"\n\t".contains(c)) || hides(c))
}

#[track_caller]
fn is_clean(surface: &str, text: &str) {
    assert!(!text.is_empty(), "{surface} says nothing");
    let found = raw(text);
    assert!(found.is_none(), "{surface} has {found:?}: {text:?}");
}

/// The same, and nothing opens a tag.
#[track_caller]
fn is_clean_for_a_model(surface: &str, text: &str) {
    is_clean(surface, text);
    assert!(!text.contains("<script"), "{surface}: {text}");
}

/// Names of all that lies below a directory.
fn files(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        all.push(entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(files(&entry.path()));
        }
    }
    all
}

/// Commands that are given a hostile text where a name, an id, a rule or a place stands.
const GIVEN: &[&[&str]] = &[
    &["send", HOSTILE, "x"],
    &["send", "bob", "x", "--name", HOSTILE],
    &["send", "bob", "x", "--thread", HOSTILE],
    &["send", "bob", "x", "--reply-to", HOSTILE],
    &["send", "bob", "x", "--url", HOSTILE],
    &["status", HOSTILE],
    &["history", "--with", HOSTILE],
    &["inbox", HOSTILE],
    &["names", "retire", HOSTILE],
    &["token", "add", HOSTILE],
    &["token", "add", "x", "--names", HOSTILE],
    &["token", "add", "x", "--rights", HOSTILE],
    &["token", "revoke", HOSTILE],
    &["web", "token", "add", HOSTILE],
    &["web", "token", "add", "x", "--to", HOSTILE],
    &["web", "token", "add", "x", "--header", HOSTILE],
    &["web", "token", "revoke", HOSTILE],
    &["held", "release", HOSTILE],
    &["session", "inject", HOSTILE, "x"],
    &["session", "approve", HOSTILE, HOSTILE],
];

/// Commands that show what others wrote.
const SHOWN: &[&[&str]] = &[
    &["peers", "--all"],
    &["peers", "--json"],
    &["history"],
    &["history", "--json"],
    &["inbox", "bob"],
    &["inbox", "bob", "--json"],
    &["held"],
    &["held", "--json"],
    &["session", "list"],
    &["session", "list", "--json"],
    &["token", "list"],
    &["audit", "sessions"],
    &["recv", "--name", "dan", "--count", "1", "--timeout", "20"],
];

fn commands_refuse_them(home: &Home) {
    for args in GIVEN {
        let refused = home.run(args);
        assert_ne!(refused.code, Some(0), "{args:?}");
        is_clean(&format!("{args:?}"), &refused.stderr);
    }
}

fn what_comes_over_http(home: &Home, broker: &Broker, agent: &mut Mcp) {
    let ci = format!(
        "Authorization: Bearer {}",
        token(home, &["ci", "--header", "X-Evil"])
    );
    let gateway = Gateway::start(home);
    let long = format!("X-Evil: {}", "\u{202e}<script>");
    let answer = gateway.ask("POST /hook/bob?k=%1b%5b2J%e2%80%ae", &[&ci, &long], b"x");
    is_clean("the gateway", &answer.body);
    for line in [
        "GET /%1b%5b2J%e2%80%ae",
        "POST /hook/%1b%5b2J",
        "GET /v1/messages/%1b%5b2J",
    ] {
        is_clean(line, &gateway.ask(line, &[&ci], HOSTILE.as_bytes()).body);
    }
    let meta = agent.call("bus.inbox", json!({}))["messages"].to_string();
    is_clean_for_a_model("where a webhook came from", &meta);

    let mut metrics = home.command("curl");
    metrics.args(["--silent", &format!("http://{}/metrics", broker.address)]);
    let metrics = metrics.output().expect("curl").stdout;
    is_clean("the metrics", &String::from_utf8_lossy(&metrics));
}

#[test]
fn hostile_texts_get_nowhere_as_they_are() {
    let home = Home::new();
    let mut serve = home.peerbus(&["serve", "--listen", "127.0.0.1:0"]);
    let broker = Broker::spawn(serve.env("PEERBUS_LOG", "debug"));
    let rules = fs::read_to_string(home.credentials()).expect("credentials");
    fs::write(
        home.credentials(),
        format!("{rules}senders = [\"eve=hold\"]\n"),
    )
    .expect("our file");

    commands_refuse_them(&home);
    let mut agent = Mcp::start(&home, "generic", "bob", HOSTILE);
    agent.call("bus.peers", json!({}));
    let mut session = Session::start(&home, "ann");
    eventually("ann is there", || {
        names(&home).contains(&"ann".to_owned()).then_some(())
    });
    for name in ["bob", "ann", "dan"] {
        home.run(&["send", name, "x", "--name", "dan"]);
        home.run(&["send", name, HOSTILE, "--name", "mallory"]);
        home.run(&["send", name, HOSTILE, "--name", "eve"]);
    }
    let hook = json!({ "hook_event_name": "UserPromptSubmit", "prompt": HOSTILE, "cwd": HOSTILE });
    session.tell(&format!("hook 1 {hook}"));
    is_clean_for_a_model("a hook", &session.hear("hook 1"));

    for args in SHOWN {
        let shown = home.run(args);
        let name = format!("{args:?}");
        is_clean(&name, &format!("{} {}", shown.stdout, shown.stderr));
    }
    let history: Value = home
        .run(&["history", "--with", "mallory", "--json"])
        .ok()
        .lines()
        .find_map(|line| serde_json::from_str(line).ok())
        .expect("a message");
    let id = history["id"].as_str().expect("an id");
    is_clean("status", &home.run(&["status", id]).ok());
    let read = agent.call("bus.inbox", json!({}));
    let texts = read["messages"].as_array().expect("messages").iter();
    for text in texts.filter_map(|message| message["text"].as_str()) {
        let one_line = text.replace('\n', " ");
        is_clean_for_a_model("the inbox", &one_line);
    }

    what_comes_over_http(&home, &broker, &mut agent);
    for name in files(home.path()) {
        is_clean("a directory", &name);
    }
    drop((agent, session));
    for line in broker.stop_and_read() {
        is_clean("the log", &format!("{line} "));
    }
}

#[test]
fn a_hostile_text_is_escaped_as_it_comes() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "bob", "--timeout", "0.2"]);
    let mut tail = home.peerbus(&["tail", "--follow"]);
    let mut tail = tail.stdout(Stdio::piped()).spawn().expect("peerbus starts");
    let lines = Lines::of(tail.stdout.take().expect("a pipe"));
    eventually("the message is shown", || {
        home.run(&["send", "bob", HOSTILE, "--name", "mallory"])
            .ok();
        let line = lines.next(std::time::Duration::from_millis(200))?;
        is_clean("tail", &format!("{line} "));
        line.contains("evil").then_some(())
    });
    tail.kill().expect("our child");
    tail.wait().expect("our child");
    broker.stop();
}
