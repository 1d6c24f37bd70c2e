//! Tokens in a file, made, listed and revoked while the broker runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use peerbus_test_support::message::envelope;
use peerbus_test_support::socket::{Heard, registration};
use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, Raw};

const SECRET: &str = "no matter which, the broker cannot tell";

fn file(home: &Home) -> PathBuf {
    home.path().join(".config/peerbus/tokens.toml")
}

/// Makes a token; gives it.
fn add(home: &Home, args: &[&str]) -> String {
    let said = home.run(&[&["token", "add"], args].concat()).ok();
    said.trim().to_owned()
}

/// Registers with a token, in the extension.
fn join(broker: &Broker, name: &str, token: &str) -> Raw {
    let mut raw = Raw::connect(broker);
    let mut register = registration(name, token);
    register["ext"] = 1.into();
    raw.say(&register.to_string());
    raw
}

#[test]
fn the_pages_name_is_no_other_tokens_and_no_agents() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let why = home
        .run(&["token", "add", "eve", "--names", "dashboard"])
        .fails(2);
    assert!(why.contains("kept for the dashboard's page"), "{why}");
    let token = add(&home, &["eve", "--rights", "send"]);
    let Heard::Closed(1008, why) = join(&broker, "Dashboard", &token).hear() else {
        panic!("another token has the page's name");
    };
    assert_eq!(
        why,
        "name kept for the token credentials; choose another one"
    );
    let sends = ["send", "bob", "hello", "--name", "dashboard"];
    let why = home.run(&sends).fails(2);
    assert!(why.contains("choose another name"), "{why}");
    let mut agent = Mcp::start(&home, "generic", "mallory", "some-bot");
    agent.call("bus.peers", json!({}));
    let why = agent.call_fails("bus.rename", json!({ "name": "DASHBOARD" }));
    assert!(why.contains("kept for the dashboard's page"), "{why}");
    let mut page = join(&broker, "dashboard", &home.credential("token"));
    assert_eq!(page.next()["type"], "peers");
    broker.stop();
}

#[test]
fn a_token_is_shown_once_holds_at_once_and_admits_to_what_was_said() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let token = add(&home, &["phone", "--names", "phone", "--rights", "send"]);
    assert_eq!(token.len(), 64, "nothing else is on stdout: {token}");
    let text = fs::read_to_string(file(&home)).expect("a tokens file");
    assert!(!text.contains(&token), "the token itself is in the file");
    let mode = fs::metadata(file(&home))
        .expect("the file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut ann = Raw::register(&home, &broker, "ann");
    let mut phone = join(&broker, "phone", &token);
    assert_eq!(phone.next()["type"], "peers");
    phone.say(&envelope(SECRET, "m1", "phone", "ann", "1"));
    assert_eq!(phone.answer()["state"], "accepted");
    phone.say(&envelope(SECRET, "m2", "phone", "*", "1"));
    assert_eq!(phone.answer()["code"], "forbidden");
    assert_eq!(ann.delivery()["envelope"]["id"], "m1");
    let Heard::Closed(1008, why) = join(&broker, "ann2", &token).hear() else {
        panic!("it registered a name that it may not have");
    };
    assert_eq!(why, "name not allowed to this token: it may have phone");
    assert_eq!(home.run(&["token", "list"]).ok(), "phone: send; phone\n");
    broker.stop();
}

#[test]
fn a_revoked_token_ends_its_connections_at_once_and_the_adapter_says_why() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let token = add(&home, &["ci", "--rights", "send,broadcast,observe"]);
    let mut raw = join(&broker, "raw", &token);
    assert_eq!(raw.next()["type"], "peers");
    let mut command = home.peerbus(&["adapter", "--name", "bot"]);
    command
        .env("PEERBUS_TOKEN", &token)
        .env("PEERBUS_URL", broker.url())
        .env("PEERBUS_HMAC_SECRET", home.credential("hmac_secret"));
    let mut bot = Mcp::spawn(&mut command);
    bot.initialize("some-bot");
    bot.call("bus.peers", json!({}));

    let said = home.apart(&["token", "revoke", "ci"]).ok();
    assert!(said.contains("token ci is revoked"), "{said}");
    assert_eq!(raw.hear(), Heard::Closed(4005, "token was revoked".into()));
    let again = join(&broker, "raw", &token).hear();
    assert_eq!(again, Heard::Closed(1008, "invalid bearer token".into()));
    let said = bot.call_fails("bus.peers", json!({}));
    assert!(said.contains("token"), "{said}");
    let own = Raw::register(&home, &broker, "ann");
    drop(own);
    broker.stop();
}

#[test]
fn a_file_that_is_wrong_stops_no_running_broker_and_starts_none() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let token = add(&home, &["ci"]);
    let mut raw = join(&broker, "raw", &token);
    assert_eq!(raw.next()["type"], "peers");
    let good = fs::read_to_string(file(&home)).expect("a tokens file");
    fs::write(file(&home), format!("{good}max_names = \"many\"\n")).expect("the file is ours");
    broker.stderr.find("a warning", |line| {
        let named =
            line.contains("tokens.toml cannot be used: line ") && line.contains("`ci.max_names`");
        (named && line.contains("stay as they are")).then_some(())
    });
    let mut more = join(&broker, "more", &token);
    assert_eq!(more.next()["type"], "peers", "it keeps what it had");
    broker.stop();
    let said = home.run(&["serve", "--listen", "127.0.0.1:0"]).fails(2);
    assert!(
        said.contains("tokens.toml cannot be used: line ") && said.contains("`ci.max_names`"),
        "{said}"
    );
    let said = home.run(&["token", "add", "other"]).fails(2);
    assert!(
        said.contains("`ci.max_names`"),
        "a wrong file is not edited: {said}"
    );
}

#[test]
fn a_line_that_somebody_takes_out_of_the_file_ends_the_token() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let token = add(&home, &["ci"]);
    let mut raw = join(&broker, "raw", &token);
    assert_eq!(raw.next()["type"], "peers");
    fs::write(file(&home), "").expect("the file is ours");
    assert_eq!(raw.hear(), Heard::Closed(4005, "token was revoked".into()));
    broker.stop();
}

#[test]
fn who_may_send_so_many_a_second_waits_and_holds_up_nobody_else() {
    const MESSAGES: usize = 100;
    let home = Home::new();
    let broker = Broker::start(&home);
    let token = add(&home, &["ci", "--max-per-second", "1"]);
    let mut bob = Raw::register(&home, &broker, "bob");
    let mut ann = Raw::register(&home, &broker, "ann");
    let mut ci = join(&broker, "ci", &token);
    assert_eq!(ci.next()["type"], "peers");
    // Whoever is registered changes nothing with another token.
    ci.say(r#"{"protocol_version":"v1","type":"register","token":"made-up","name":"ci"}"#);
    for n in 0..MESSAGES {
        ci.say(&envelope(SECRET, &format!("m{n}"), "ci", "bob", "1"));
    }
    assert_eq!(
        ci.answer()["state"],
        "accepted",
        "the first one goes at once"
    );
    ann.say(&envelope(SECRET, "hers", "ann", "bob", "1"));
    let mut before = 0;
    while bob.delivery()["envelope"]["from"] != "ann" {
        before += 1;
    }
    assert!(before < MESSAGES, "all of a token's messages went at once");
    // As fast as it likes, from now on.
    let text = fs::read_to_string(file(&home)).expect("a tokens file");
    let lines = text.lines().filter(|line| !line.contains("max_per_second"));
    fs::write(file(&home), lines.collect::<Vec<_>>().join("\n")).expect("the file is ours");
    let mut accepted = 1;
    while accepted < MESSAGES {
        let frame = ci.next();
        let receipts = frame["receipts"].as_array().expect("receipts");
        let refused = receipts.iter().any(|receipt| receipt["code"].is_string());
        assert!(!refused, "nothing is refused: {frame}");
        let said = |receipt: &&Value| receipt["state"] == "accepted";
        accepted += receipts.iter().filter(said).count();
    }
    broker.stop();
}

#[test]
fn names_of_tokens_ignore_case_and_none_is_over_when_it_is_made() {
    let home = Home::new();
    add(&home, &["Tk"]);
    let said = home.run(&["token", "add", "tk"]).fails(2);
    assert!(said.contains("there is a token Tk already"), "{said}");
    home.run(&["token", "add", "w", "--days", "0"]).fails(2);
    let said = home.apart(&["token", "revoke", "TK"]).ok();
    assert!(said.contains("token Tk is revoked"), "{said}");
    assert_eq!(home.run(&["token", "list"]).ok(), "no tokens\n");
    // An older file may have both.
    let line = |name: &str, digit: &str| format!("[{name}]\nhash = \"{}\"\n", digit.repeat(64));
    let both = line("Tk", "0") + &line("tk", "1");
    fs::write(file(&home), both).expect("the file is ours");
    let said = home.apart(&["token", "revoke", "tk"]).ok();
    assert!(said.contains("token tk is revoked"), "{said}");
    assert!(home.run(&["token", "list"]).ok().starts_with("Tk: "));
}
