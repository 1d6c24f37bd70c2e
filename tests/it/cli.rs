//! The command line's answers and exit codes.

use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, Raw};

#[test]
fn the_version_is_printed() {
    let said = Home::new().run(&["--version"]).ok();
    assert_eq!(said.trim(), concat!("peerbus ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn keygen_prints_keys_that_are_accepted_and_never_the_same() {
    let home = Home::new();
    let (one, two) = (home.run(&["keygen"]).ok(), home.run(&["keygen"]).ok());
    assert_ne!(one, two);
    let keys: Value = serde_json::from_str(&home.run(&["keygen", "--json"]).ok()).expect("JSON");
    assert!(keys["hmac_secret"].as_str().expect("a secret").len() >= 32);
}

#[test]
fn a_shell_gets_completions_and_man_its_pages() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = home.run(&["completions", shell]).ok();
        assert!(
            script.contains("--reply-to") || script.contains("reply-to"),
            "{shell}"
        );
    }
    home.run(&["man", "pages/man1"]).ok();
    let page = |name| std::fs::read_to_string(home.path().join("pages/man1").join(name));
    assert!(
        page("peerbus.1")
            .expect("a page")
            .contains("peerbus\\-send")
    );
    assert!(page("peerbus-session-watch.1").is_ok());
    let said = home.run(&["man", "/proc/none"]).fails(1);
    assert!(said.contains("cannot write to /proc/none"), "{said}");
}

#[test]
fn usage_and_configuration_errors_are_exit_code_2_and_say_what_to_do() {
    let home = Home::new();
    home.run(&["send", "bob"]).fails(2);
    home.run(&["frobnicate"]).fails(2);
    // A mistyped option is no message to anybody.
    for words in [&["send", "bob", "--wiat=seen"][..], &["broadcast", "--jsn"]] {
        let said = home.run(words).fails(2);
        assert!(said.contains("a similar argument exists"), "{said}");
    }
    for words in [&["send", "bob"][..], &["ask", "bob"], &["broadcast"]] {
        let said = home.run(&[words, &["hello", "there"]].concat()).fails(2);
        assert!(
            said.contains("before there") && said.contains("quotes"),
            "{said}"
        );
    }
    let said = home.run(&["send", "bob", "--", "--wiat=seen"]).fails(2);
    assert!(said.contains("no credentials"), "{said}");
    let said = home.run(&["recv", "--name", "no good"]).fails(2);
    assert!(said.contains("U+0020"), "{said}");
    let said = home.run(&["recv", "--name", "system"]).fails(2);
    assert!(said.contains("reserved"), "{said}");
    let said = home.run(&["peers", "--url", "http://x"]).fails(2);
    assert!(said.contains("ws://"), "{said}");
    let mut short = home.peerbus(&["peers"]);
    short
        .env("PEERBUS_TOKEN", "t")
        .env("PEERBUS_HMAC_SECRET", "seven77");
    let output = short.output().expect("peerbus starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("PEERBUS_HMAC_SECRET must be at least 32 bytes, got 7"),
        "{said}"
    );
}

#[test]
fn a_word_that_is_no_command_leads_to_the_one_that_is_meant() {
    let home = Home::new();
    for (word, command) in [
        ("version", "`peerbus --version`"),
        ("start", "`peerbus serve`"),
        ("logs", ".local/state/peerbus/broker.log"),
        ("list", "`peerbus peers`"),
        ("watch", "`peerbus session watch NAME`"),
        ("approve", "`peerbus session approve NAME`"),
    ] {
        let said = home.run(&[word]).fails(2);
        assert!(said.contains(command), "{word}: {said}");
        assert!(!said.contains("similar"), "{word}: {said}");
    }
    let keys = home.run(&["token", "keygen", "--json"]).ok();
    assert!(keys.contains("hmac_secret"), "{keys}");
}

#[test]
fn without_a_broker_a_verb_fails_with_what_is_known() {
    let home = Home::new();
    let said = home.run(&["send", "bob", "hello"]).fails(2);
    assert!(said.contains("peerbus serve"), "{said}");
    let said = home.run(&["recv", "--name", "bob"]).fails(2);
    assert!(said.contains("peerbus serve"), "{said}");
    Broker::start(&home).stop();
    let said = home
        .run(&["send", "--timeout", "0.5", "bob", "hello"])
        .fails(1);
    assert!(said.contains("not"), "{said}");
    let said = home
        .run(&["send", "--timeout", "2", "bob", "hello"])
        .fails(1);
    let state = home.path().join(".local/state/peerbus/peerbus.sock");
    let waited = format!(
        "peerbus: waiting for the broker: no broker is running here (no socket at {}",
        state.display()
    );
    assert_eq!(said.matches(&waited).count(), 1, "{said}");
    for verb in [&["status", "m1"][..], &["names", "release", "bob"]] {
        let said = home.run(verb).fails(1);
        assert!(
            said.contains(&state.display().to_string()) && said.contains("PEERBUS_URL=unix:"),
            "{said}"
        );
    }
    let said = home.run(&["peers", "--timeout", "0.5"]).fails(1);
    assert!(!said.is_empty());
}

#[test]
fn a_name_that_nobody_ever_had_is_refused_to_the_senders_face() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "bob", "--timeout", "0.1"])
        .ok();
    let said = home.run(&["send", "nobody-here", "hello"]).fails(1);
    assert_eq!(
        said,
        "peerbus: nobody here is called nobody-here, or not any more; `peerbus peers --all` shows \
         who is known\n"
    );
    let said = home.run(&["send", "bobb", "hello"]).fails(1);
    assert!(said.ends_with("Did you mean bob?\n"), "{said}");
    let said = home.run(&["send", "bob", ""]).fails(2);
    assert!(said.contains("the message is empty"), "{said}");
    broker.stop();
}

#[test]
fn a_verb_does_not_wait_for_a_name_that_is_in_use() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Mcp::start(&home, "generic", "bob", "some-bot");
    bob.call("bus.peers", json!({}));
    let said = home
        .run(&["send", "bob", "hello", "--name", "bob"])
        .fails(1);
    assert!(
        said.contains("the name bob is in use by \"some-bot")
            && said.ends_with("another name (--name)\n"),
        "{said}"
    );
    let take = ["recv", "--name", "bob", "--take", "--timeout", "0.5"];
    let said = home.run(&take).fails(1);
    assert!(said.contains("may not take the mail of"), "{said}");
    let said = home.apart(&take).fails(1);
    assert!(!said.contains("PEERBUS_NAME"), "{said}");
    assert!(said.contains("trying again every"), "{said}");
    broker.stop();
}

#[test]
fn a_name_is_put_together_from_who_runs_the_session() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let recv = ["recv", "--name", "{user}.ci", "--timeout", "0.5"];
    let mut ann = home.peerbus(&recv);
    let heard = ann.env("LOGNAME", "ann").output().expect("peerbus starts");
    let said = String::from_utf8_lossy(&heard.stderr);
    assert_eq!(said, "listening as ann.ci\n");
    broker.stop();
}

#[test]
fn results_are_json_where_a_script_asks_for_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "bob", "--timeout", "0.1"])
        .ok();
    let sent: Value =
        serde_json::from_str(&home.run(&["send", "--json", "bob", "x"]).ok()).expect("JSON");
    assert_eq!(
        (&sent["status"], &sent["to"]),
        (&"accepted".into(), &"bob".into())
    );
    let all: Value =
        serde_json::from_str(&home.run(&["broadcast", "--json", "x"]).ok()).expect("JSON");
    assert_eq!(all["recipients"], 0, "bob said goodbye: {all}");
    let peers: Value = serde_json::from_str(&home.run(&["peers", "--json"]).ok()).expect("JSON");
    assert_eq!(peers["peers"][0]["name"], "bob");
    assert_eq!(peers["peers"][0]["unacked"], 1);
    let audit: Value =
        serde_json::from_str(&home.run(&["audit", "verify", "--json"]).ok()).expect("JSON");
    assert_eq!(audit["ok"], true);
    broker.stop();
}

#[test]
fn two_brokers_on_one_database_are_refused() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let other = home.path().join("other.sock");
    let other = other.to_str().expect("utf-8");
    let said = home
        .run(&["serve", "--listen", "127.0.0.1:0", "--socket", other])
        .fails(2);
    assert!(said.contains("peerbus.db"), "{said}");
    // Of two hindrances the one that says what is going on.
    let said = home.run(&["serve", "--listen", &broker.address]).fails(2);
    assert!(said.contains("in use by another broker"), "{said}");
    broker.stop();
}

#[test]
fn the_operator_frees_a_name_of_another_token() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "bob", "--timeout", "0.1"])
        .ok();
    let said = home.apart(&["names", "release", "bob"]).ok();
    assert!(said.contains("bob"), "{said}");
    let said = home.apart(&["names", "release", "nobody"]).fails(1);
    assert!(said.starts_with("peerbus: no peer named nobody"), "{said}");
    broker.stop();
}

#[test]
fn a_send_says_what_is_so() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let nobody = home.run(&["broadcast", "hi"]).ok();
    assert!(nobody.contains("nobody gets it"), "{nobody}");
    for name in ["alice", "Bob"] {
        drop(Raw::register(&home, &broker, name));
    }
    for (args, says) in [
        (&["send", "bOB", "hi"][..], "; Bob is "),
        (
            &["send", "alice", "hi", "--name", "alice"],
            "it waits for who receives as alice",
        ),
    ] {
        let said = home.run(args).ok();
        assert!(said.contains(says), "{said}");
    }
    home.run(&["send", "no good", "hi"]).fails(2);
    // Whoever reads it may be gone: it is sent all the same.
    let mut closed = home.peerbus(&["send", "alice", "hi"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = closed.stdout(writer).status().expect("peerbus starts");
    assert_eq!(status.code(), Some(0));
    let first: Vec<_> = broker.stop_and_read();
    assert!(!first.join("\n").contains("schema"), "{first:?}");
}

#[test]
fn who_has_a_broker_elsewhere_is_told_that_it_is_asked_there() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let address = broker.url();
    broker.stop();
    let file = home.credentials();
    let text = std::fs::read_to_string(&file).expect("credentials");
    std::fs::write(
        &file,
        format!(
            "url = \"{}\"\n{text}",
            address.replace("127.0.0.1", "192.0.2.1")
        ),
    )
    .expect("our file");
    for args in [&["status", "m1"][..], &["inbox", "bob"], &["history"]] {
        let mut command = home.peerbus(args);
        // One may be started: none is.
        command.env_remove("PEERBUS_AUTOSTART");
        let output = command.output().expect("peerbus starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("names a broker elsewhere (ws://192.0.2.1")
                && said.contains("--name FROM"),
            "{said}"
        );
    }
    assert!(!home.path().join(".local/state/peerbus/broker.log").exists());
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let home = Home::new();
    let broker = Broker::start(&home);
    drop(Raw::register(&home, &broker, "bob"));
    home.run(&["send", "bob", "hello"]).ok();
    for args in [
        &["history"][..],
        &["peers"],
        &["inbox", "bob"],
        &["tail"],
        &["names", "list"],
        &["mcp", "list"],
        &["doctor"],
        &["completions", "bash"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = home.peerbus(args);
        let output = command.stdout(writer).output().expect("peerbus starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
    }
    broker.stop();
}
