//! Who is not let in.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use super::*;

/// What a program is told that shows a code with a token.
#[track_caller]
fn told(code: &str, token: &str) -> String {
    let Err(NotLetIn::Refused(why)) = shows(code, token) else {
        panic!("it is let in, or not answered");
    };
    why
}

#[test]
fn a_code_lets_in_the_first_that_shows_it_once() {
    let desk = Desk::new();
    let code = desk.invite("laptop");
    let other = match code.strip_suffix('0') {
        Some(code) => format!("{code}1"),
        None => format!("{}0", &code[..code.len() - 1]),
    };
    assert!(told(&other, "a").contains("no invitation has this code"));
    let first = shows(&code, "a").expect("it is let in");
    assert_eq!(first.names, ["laptop*"]);
    assert_eq!(*first.key, desk.home.credential("hmac_secret"));
    // As if the answer had been lost.
    assert_eq!(shows(&code, "a"), Ok(first));
    assert!(told(&code, "b").contains("another join asked by this invitation first"));
    let stranger = Home::new();
    let said = join(&stranger, &code).fails(1);
    assert!(
        said.contains("another join asked") && said.contains("nothing was written"),
        "{said}"
    );
    assert_eq!(files(&stranger), []);
    let said = desk.says(&["invite", "list"]);
    assert!(
        said.starts_with("laptop: let in, and not here yet, until "),
        "{said}"
    );

    let (url, token) = (
        InviteCode::parse(&code).expect("a code").url,
        "a".repeat(64),
    );
    let used = |url: &str| {
        let mut peers = stranger.peerbus(&["peers"]);
        peers
            .env("PEERBUS_URL", url)
            .env("PEERBUS_TOKEN", &token)
            .env("PEERBUS_HMAC_SECRET", desk.home.credential("hmac_secret"));
        Finished::of(&mut peers)
    };
    let said = used(&url.to_string()).fails(1);
    assert!(said.contains("not signed by an authority"), "{said}");
    used(&url.written()).ok();
    eventually("it is used", || {
        let said = desk.says(&["invite", "list"]);
        said.starts_with("laptop: has joined, ").then_some(())
    });
    for token in ["a", "b"] {
        assert!(told(&code, token).contains("this invitation was used"));
    }

    let tried = |line: &str| line.split(" source").next().map(str::to_owned);
    let audited: Vec<_> = desk.audited().iter().filter_map(|it| tried(it)).collect();
    let laptop = ["joined", "joined", "taken", "taken", "used", "used"];
    let laptop = laptop.map(|outcome| format!("laptop join {outcome}"));
    assert_eq!(audited[0], "- join unknown");
    assert_eq!(audited[1..7], laptop);
    assert_eq!(audited.len(), 7);
    desk.broker.stop();
}

#[test]
fn after_ten_minutes_a_code_lets_nobody_in() {
    let desk = Desk::new();
    let code = desk.invite("pad");
    let file = desk.home.path().join(".config/peerbus/invitations.toml");
    let text = fs::read_to_string(&file).expect("invitations");
    let past = |line: &str| match line.starts_with("until = ") {
        true => "until = 2001-01-01T00:00:00Z\n".to_owned(),
        false => format!("{line}\n"),
    };
    fs::write(&file, text.lines().map(past).collect::<String>()).expect("our file");
    let said = join(&Home::new(), &code).fails(1);
    assert!(
        said.contains("the time of this invitation is over"),
        "{said}"
    );

    let audited = desk.audited();
    assert_eq!(audited, ["pad join expired source \"127.0.0.1\""]);
    desk.broker.stop();
}

#[test]
fn another_broker_at_that_address_is_told_nothing() {
    let (desk, other, laptop) = (Desk::new(), Desk::new(), Home::new());
    let (code, trap) = (desk.invite("laptop"), other.invite("laptop"));
    let [place, trap] = [&code, &trap].map(|code| code.split('/').next().expect("a place"));
    let said = join(&laptop, &code.replace(place, trap)).fails(1);
    let stranger = "its certificate is not the one that the invitation or the URL names";
    assert!(said.contains(stranger), "{said}");
    assert!(!laptop.credentials().exists());
    assert_eq!(other.audited(), [] as [&str; 0]);

    // Nor is it later, by a machine that has joined.
    join(&laptop, &code).ok();
    let text = fs::read_to_string(laptop.credentials()).expect("credentials");
    let port = |place: &str| place.rsplit(':').next().expect("a port").to_owned();
    let moved = text.replace(&format!(":{}#", port(place)), &format!(":{}#", port(trap)));
    assert_ne!(moved, text);
    fs::write(laptop.credentials(), moved).expect("our file");
    let said = laptop.run(&["peers", "--timeout", "5"]).fails(1);
    assert!(said.contains(stranger), "{said}");
    desk.broker.stop();
    other.broker.stop();
}

#[test]
fn without_tls_nobody_is_let_in() {
    let desk = Desk::new();
    let code = InviteCode::parse(&desk.invite("laptop")).expect("a code");
    let mut raw = crate::support::Raw::connect(&desk.broker);
    let frame = json!({
        "protocol_version": "v1", "type": "join", "code": code.secret.expose(), "token": "t".repeat(64),
    });
    raw.say(&frame.to_string());
    let closed =
        peerbus_test_support::socket::Heard::Closed(1008, "first frame must be register".into());
    assert_eq!(raw.hear(), closed);
    assert!(
        desk.says(&["invite", "list"])
            .starts_with("laptop: invited, until ")
    );
    desk.broker.stop();
}

#[test]
fn a_code_is_not_spent_where_its_credentials_could_not_be_used() {
    let (desk, laptop) = (Desk::new(), Home::new());
    let code = desk.invite("laptop");
    let dir = laptop
        .credentials()
        .parent()
        .expect("a directory")
        .to_owned();
    fs::create_dir_all(&dir).expect("it is made");
    let mode = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("ours");
    mode(0o777);
    let said = join(&laptop, &code).fails(2);
    assert!(said.contains("cannot be trusted"), "{said}");
    mode(0o700);
    let said = desk.says(&["invite", "list"]);
    assert!(said.starts_with("laptop: invited, until "), "{said}");
    assert_eq!(desk.audited(), [] as [&str; 0]);
    join(&laptop, &code).ok();
    desk.broker.stop();
}

#[test]
fn a_machine_asks_again_where_the_broker_could_not_do_its_part() {
    let (desk, laptop) = (Desk::new(), Home::new());
    let code = desk.invite("laptop");
    let text = fs::read(desk.home.credentials()).expect("credentials");
    fs::write(desk.home.credentials(), "no TOML").expect("our file");
    let said = join(&laptop, &code).fails(1);
    assert!(
        said.contains("could not let this machine in")
            && said.contains("the same command asks again"),
        "{said}"
    );
    fs::write(desk.home.credentials(), text).expect("our file");
    join(&laptop, &code).ok();
    desk.broker.stop();
}

#[test]
fn a_record_that_is_damaged_is_named_and_not_replaced() {
    let (desk, laptop) = (Desk::new(), Home::new());
    join(&laptop, &desk.invite("laptop")).ok();
    let record = laptop.path().join(".local/state/peerbus/installed.json");
    let text = fs::read(&record).expect("a record");
    let code = desk.invite("pad");
    for damaged in [&text[..text.len() / 2], b""] {
        fs::write(&record, damaged).expect("our file");
        for said in [
            laptop.run(&["uninstall", "--join"]).fails(1),
            join(&laptop, &code).fails(1),
            laptop.run(&["install", "gemini"]).fails(1),
            laptop.run(&["uninstall", "--all"]).fails(1),
        ] {
            assert!(
                said.contains("installed.json has what was here before")
                    && said.contains("nothing was done: put a copy of it back"),
                "{said}"
            );
        }
        assert_eq!(fs::read(&record).expect("a record"), damaged);
    }
    fs::write(&record, text).expect("our file");
    laptop.run(&["uninstall", "--join"]).ok();
    assert!(!laptop.credentials().exists());
    desk.broker.stop();
}

#[test]
fn credentials_that_are_broken_are_named_and_not_shown() {
    let (desk, laptop) = (Desk::new(), Home::new());
    let code = desk.invite("laptop");
    Broker::start(&laptop).stop();
    let (text, token) = (
        fs::read_to_string(laptop.credentials()).expect("credentials"),
        laptop.credential("token"),
    );
    // The end of the string is lost.
    let broken = text.replace(&format!("{token}\""), &token);
    fs::write(laptop.credentials(), &broken).expect("our file");
    let said = join(&laptop, &code).fails(2);
    assert!(
        said.contains("credentials.toml is not TOML: line 2: "),
        "{said}"
    );
    assert!(!said.contains(&token), "{said}");
    assert_eq!(desk.audited(), [] as [&str; 0]);
    desk.broker.stop();
}

#[test]
fn an_invitation_that_is_refused_ends_no_other_one() {
    let desk = Desk::new();
    let code = desk.invite("laptop");
    for (args, why) in [
        (["--address", "bad/x"], "give HOST or HOST:PORT"),
        (["--listen", "127.0.0.1:0"], "give a port other than 0"),
        (["--listen", "127.0.0.1:1"], "leave --listen out"),
    ] {
        let invite = [&["invite", "laptop"][..], &args].concat();
        let said = desk.home.run(&invite).fails(2);
        assert!(said.contains(why), "{said}");
    }
    join(&Home::new(), &code).ok();
    desk.broker.stop();
}

#[test]
fn an_address_of_another_machine_is_not_written_down() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let before = fs::read(home.credentials()).expect("credentials");
    // RFC 5737: no machine has it.
    let invite = ["invite", "laptop", "--listen", "192.0.2.1:4711"];
    let said = home.run(&invite).fails(2);
    assert!(said.contains("this machine has no such address"), "{said}");
    assert_eq!(fs::read(home.credentials()).expect("credentials"), before);
    broker.stop();
}

#[test]
fn of_two_invitations_at_once_the_second_knows_of_the_first() {
    let desk = Desk::new();
    desk.invite("laptop");
    let dir = desk.home.path().join(".config/peerbus");
    let file = dir.join("invitations.toml");
    let first = fs::read(&file).expect("invitations");
    desk.says(&["invite", "revoke", "laptop"]);
    let lock = fs::File::open(&dir).expect("a directory");
    lock.lock().expect("nobody else has it");
    let mut second = desk.home.peerbus(&["invite", "lap"]);
    second.stdout(Stdio::null()).stderr(Stdio::piped());
    let second = second.spawn().expect("it starts");
    let waits = format!(" WRITE {} ", second.id());
    eventually("it waits for its turn", || {
        let locks = fs::read_to_string("/proc/locks").expect("locks");
        let mut lines = locks.lines();
        lines.find(|it| it.contains("-> FLOCK") && it.contains(&waits))?;
        Some(())
    });
    fs::write(&file, first).expect("our file");
    drop(lock);
    let done = second.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(
        said.contains("the names of lap and of laptop, which was invited, too"),
        "{said}"
    );
    let said = desk.says(&["invite", "list"]);
    assert!(
        said.starts_with("laptop: invited") && said.lines().count() == 1,
        "{said}"
    );
    desk.broker.stop();
}

#[test]
fn an_agent_invites_nobody_and_joins_nothing() {
    let desk = Desk::new();
    let code = desk.invite("laptop");
    // From here on what this process runs stands below an agent.
    let mut agent = Mcp::start(&desk.home, "generic", "bob", "some-bot");
    agent.call("bus.peers", json!({}));
    for args in [
        &["invite", "pad"][..],
        &["invite", "revoke", "laptop"],
        &["invite", "off"],
        &["join", &code, "--yes"],
        &["uninstall", "--join"],
    ] {
        let said = desk.home.run(args).fails(1);
        assert!(
            said.contains("an agent, or what it runs, may not"),
            "{args:?}: {said}"
        );
    }
    let said = desk.home.apart(&["invite", "list"]).ok();
    assert!(said.starts_with("laptop: invited, until "), "{said}");
    desk.broker.stop();
}

#[test]
fn a_token_that_is_revoked_before_its_machine_came_is_not_given_again() {
    let desk = Desk::new();
    let code = desk.invite("laptop");
    shows(&code, "a").expect("it is let in");
    let said = desk.says(&["token", "revoke", "Laptop"]);
    assert!(
        said.contains("token laptop is revoked, and its invitation is at an end"),
        "{said}"
    );
    assert!(told(&code, "a").contains("no invitation has this code"));
    assert_eq!(desk.says(&["token", "list"]), "no tokens\n");
    assert_eq!(desk.says(&["invite", "list"]), "no machine was invited\n");
    desk.broker.stop();
}

#[test]
fn what_a_broker_made_here_once_the_joined_file_was_gone_stays() {
    let (desk, laptop) = (Desk::new(), Home::new());
    join(&laptop, &desk.invite("laptop")).ok();
    // As a run leaves it that is killed before it is done.
    fs::remove_file(laptop.credentials()).expect("credentials");
    Broker::start(&laptop).stop();
    let made = fs::read(laptop.credentials()).expect("credentials");
    let said = laptop.run(&["uninstall", "--join"]);
    assert!(
        said.stderr
            .contains("is not what `peerbus join` wrote, and stays"),
        "{}",
        said.stderr
    );
    said.ok();
    assert_eq!(fs::read(laptop.credentials()).expect("credentials"), made);
    let said = laptop.run(&["uninstall", "--join"]).stderr;
    assert!(said.contains("nothing to do"), "{said}");
    desk.broker.stop();
}
