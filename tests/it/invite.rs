//! A second machine in two commands: `peerbus invite` here, `peerbus join` there.

mod netns;
mod off;
mod refused;
mod ssh;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use peerbus_adapter::Token;
use peerbus_adapter::invited::{InviteCode, NotLetIn, ask};
use peerbus_test_support::socket::free;
use peerbus_wire::JoinGrant;
use serde_json::json;

use crate::support::{Broker, Finished, Home, Mcp, eventually};

/// A machine with a broker that listens for others.
struct Desk {
    home: Home,
    broker: Broker,
}

impl Desk {
    fn new() -> Self {
        let home = Home::new();
        let broker = Broker::start(&home);
        let invite = ["invite", "laptop", "--listen", &free().to_string()];
        let said = home.run(&invite).fails(1);
        assert!(
            said.contains("was started by hand: restart it, and invite the machine then"),
            "{said}"
        );
        broker.stop();
        let broker = Broker::start(&home);
        Self { home, broker }
    }

    /// Invites a machine; gives the code.
    fn invite(&self, name: &str) -> String {
        let code = self.home.run(&["invite", name]).ok();
        assert_eq!(code.lines().count(), 1, "nothing else is on stdout: {code}");
        code.trim().to_owned()
    }

    fn says(&self, args: &[&str]) -> String {
        self.home.run(args).ok()
    }

    /// What the audit chain has about machines that asked, without the times.
    fn audited(&self) -> Vec<String> {
        let said = self.says(&["audit", "sessions"]);
        let lines = said
            .lines()
            .filter_map(|line| Some(line.split_once(' ')?.1));
        lines.map(str::to_owned).collect()
    }
}

fn join(home: &Home, code: &str) -> Finished {
    home.run(&["join", code, "--yes"])
}

/// Shows a code with a token, as a program of somebody else may.
fn shows(code: &str, token: &str) -> Result<JoinGrant, NotLetIn> {
    let code = InviteCode::parse(code).expect("a code");
    let token = Token::parse(&token.repeat(64)).expect("a token");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(ask(&code, &token))
}

/// Everything below a home, with what it holds.
fn files(home: &Home) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut dirs = vec![home.path().to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a directory").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => dirs.push(path),
                false => {
                    let bytes = fs::read(&path).expect("a file");
                    found.push((path.display().to_string(), bytes));
                }
            }
        }
    }
    found.sort();
    found
}

#[test]
fn two_commands_let_a_second_machine_in() {
    let (desk, laptop) = (Desk::new(), Home::new());
    let code = desk.invite("laptop");
    let said = laptop.run(&["join", &code]).fails(2);
    assert!(said.contains("say --yes"), "{said}");
    assert_eq!(files(&laptop), [], "nothing is written unasked");
    let said = desk.says(&["invite", "list"]);
    assert!(said.starts_with("laptop: invited, until "), "{said}");
    let secret = code.rsplit('/').next().expect("a secret");
    let said = join(&laptop, &code);
    let plan = "credentials.toml will be made, with a token, HMAC secret and url (wss://127.0.0.1:";
    assert!(said.stderr.contains(plan), "{}", said.stderr);
    assert!(!said.stderr.contains(secret), "{}", said.stderr);
    let said = said.ok();
    assert!(
        said.starts_with("joined the broker at wss://127.0.0.1:"),
        "{said}"
    );
    let mode = fs::metadata(laptop.credentials()).expect("credentials");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    eventually("it is written down that it is there", || {
        let said = desk.says(&["invite", "list"]);
        said.starts_with("laptop: has joined, ").then_some(())
    });
    assert_eq!(desk.says(&["token", "list"]), "laptop: send; laptop*\n");
    for file in ["invitations.toml", "tokens.toml"] {
        let path = desk.home.path().join(".config/peerbus").join(file);
        let text = fs::read_to_string(path).expect("a file");
        let token = laptop.credential("token");
        assert!(
            !text.contains(&token) && !text.contains(secret),
            "{file}: {text}"
        );
    }

    desk.broker.stop();
}

#[test]
fn a_session_that_runs_stays_with_its_broker_and_goes_to_no_other() {
    let (desk, laptop) = (Desk::new(), Home::new());
    let broker = Broker::start(&laptop);
    // A name that it could have there, too.
    let mut session = Mcp::start(&laptop, "generic", "laptop-bob", "some-bot");
    session.call("bus_peers", json!({}));
    let code = desk.invite("laptop");
    laptop.apart(&["join", &code, "--yes"]).ok();
    session.call("bus_send", json!({ "to": "laptop-bob", "body": "here" }));
    broker.stop();
    eventually("it says why it is nowhere", || {
        let said = session.call_fails("bus_peers", json!({}));
        let why = "have become those of the broker at wss://127.0.0.1:";
        (said.contains(why) && said.contains("start it anew")).then_some(())
    });
    let there = desk.says(&["peers", "--all"]);
    assert!(!there.contains("laptop-bob"), "{there}");
    session.close();
    let mut session = Mcp::start(&laptop, "generic", "laptop-bob", "some-bot");
    session.call("bus_peers", json!({}));
    let there = desk.says(&["peers"]);
    assert!(there.contains("laptop-bob"), "{there}");
    session.close();
    desk.broker.stop();
}

#[test]
fn mail_goes_both_ways_under_the_names_that_the_token_may_have() {
    let (desk, laptop) = (Desk::new(), Home::new());
    // Read from stdin, no other user of that machine sees it.
    let mut command = laptop.peerbus(&["join", "--yes"]);
    let code = laptop.path().join("code");
    fs::write(&code, desk.invite("laptop")).expect("a file");
    Finished::of(command.stdin(fs::File::open(&code).expect("a file"))).ok();
    desk.says(&["recv", "--name", "ann", "--timeout", "0.1"]);
    let sent = laptop.run(&["send", "ann", "from the laptop"]);
    let says = "has one wait for `peerbus recv --name ME`";
    assert!(sent.stderr.contains(says), "{}", sent.stderr);
    sent.ok();
    let got = desk.says(&["recv", "--name", "ann", "--count", "1"]);
    assert!(
        got.contains("from the laptop") && got.contains("\"from\":\"laptop-"),
        "{got}"
    );
    let bob = ["recv", "--name", "laptop-bob", "--timeout", "0.1"];
    laptop.run(&bob).ok();
    desk.says(&["send", "laptop-bob", "from the desk"]);
    let bob = ["recv", "--name", "laptop-bob", "--count", "1"];
    let got = laptop.run(&bob).ok();
    assert!(got.contains("from the desk"), "{got}");

    let said = laptop
        .run(&["recv", "--name", "ann", "--timeout", "60"])
        .fails(1);
    assert!(said.contains("laptop*"), "{said}");
    only_what_works_there_is_named(&desk, &laptop);
    let said = laptop.run(&["broadcast", "to all"]).fails(1);
    assert!(said.contains("token"), "it may send only: {said}");

    // An agent there has a name that the token may have, made up, and is reached by it.
    let mut agent = Mcp::spawn(&mut laptop.peerbus(&["adapter"]));
    agent.initialize("some-bot");
    let name = eventually("the agent is there", || {
        let said = desk.says(&["peers", "--json"]);
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let mut all = said["peers"].as_array().expect("peers").iter();
        let is = |it: &&serde_json::Value| {
            it["online"] == true
                && it["name"]
                    .as_str()
                    .is_some_and(|it| it.starts_with("laptop-"))
        };
        Some(all.find(is)?["name"].as_str()?.to_owned())
    });
    desk.says(&["send", &name, "wake up"]);
    eventually("it reads that", || {
        let got = agent.call("bus.inbox", json!({})).to_string();
        got.contains("wake up").then_some(())
    });
    desk.says(&["audit", "verify"]);
    assert_eq!(desk.audited(), ["laptop join joined source \"127.0.0.1\""]);
    desk.broker.stop();
}

fn only_what_works_there_is_named(desk: &Desk, laptop: &Home) {
    let me = ["--name", "laptop-me"];
    let asked = |more: &[&str]| laptop.run(&[&["ask", "ann", "?"], more].concat());
    let said = asked(&["--detach", "--name", "laptop-me"]).ok();
    assert!(
        said.ends_with("; the answer waits for `peerbus recv --name laptop-me`\n"),
        "{said}"
    );
    let said = asked(&["--timeout", "1"]).fails(1);
    assert!(
        said.ends_with("the request stays owed until its time is over\n"),
        "{said}"
    );
    let said = asked(&[&["--timeout", "1"], &me[..]].concat()).fails(1);
    let waits = "an answer that comes later waits for `peerbus recv --name laptop-me`";
    assert!(
        said.contains(waits) && !said.contains("peerbus status"),
        "{said}"
    );
    let desk_bob = Mcp::start(&desk.home, "generic", "bob", "some-bot");
    let sent = eventually("bob is there", || {
        let sent = laptop.run(&["send", "bob", "hello", "--wait", "seen=1"]);
        sent.stderr.contains("got it").then_some(sent.stderr)
    });
    assert!(
        sent.contains("what bob does is not known from here"),
        "{sent}"
    );
    drop(desk_bob);
    eventually("bob has left", || {
        let said = laptop.run(&["peers"]).stderr;
        said.contains(" more, away: `peerbus peers --all`")
            .then_some(())
    });
    let said = laptop.run(&["send", "#shop", "hello"]).fails(1);
    assert!(
        said.contains("nobody else of this token is in #shop now; it has no groups"),
        "{said}"
    );
}

#[test]
fn what_join_wrote_is_taken_back_to_the_byte() {
    let (desk, laptop) = (Desk::new(), Home::new());
    let nothing = files(&laptop);
    join(&laptop, &desk.invite("laptop")).ok();
    let said = laptop.run(&["uninstall", "--join", "--dry-run"]);
    assert!(
        said.stderr.contains("which `peerbus join` made, goes"),
        "{}",
        said.stderr
    );
    assert!(laptop.credentials().exists());
    let said = join(&laptop, &desk.invite("other")).fails(1);
    assert!(said.contains("`peerbus uninstall --join` first"), "{said}");
    laptop.run(&["uninstall", "--join"]).ok();
    assert_eq!(files(&laptop), nothing);
    assert!(
        !laptop.path().join(".config").exists(),
        "a directory is left"
    );
    let said = laptop.run(&["uninstall", "--join"]);
    assert!(said.stderr.contains("nothing to do"), "{}", said.stderr);

    // One that has a broker of its own keeps what that has.
    let tower = Home::new();
    Broker::start(&tower).stop();
    let text = fs::read_to_string(tower.credentials()).expect("credentials");
    fs::write(
        tower.credentials(),
        format!("\u{feff}# mine\n{text}history = \"1d\"\n"),
    )
    .expect("a file");
    let before = files(&tower);
    join(&tower, &desk.invite("tower")).ok();
    let joined = fs::read_to_string(tower.credentials()).expect("credentials");
    assert!(
        joined.starts_with("# mine\n") && joined.contains("history = \"1d\""),
        "{joined}"
    );
    assert_ne!(files(&tower), before);
    tower.run(&["uninstall", "--join"]).ok();
    assert_eq!(files(&tower), before);

    // A join that was killed before it wrote the file leaves this.
    let bytes = fs::read(tower.credentials()).expect("credentials");
    join(&tower, &desk.invite("pylon")).ok();
    fs::write(tower.credentials(), bytes).expect("a file");
    tower.run(&["uninstall", "--join"]).ok();
    assert_eq!(files(&tower), before);

    join(&tower, &desk.invite("mast")).ok();
    let text = fs::read_to_string(tower.credentials()).expect("credentials");
    fs::write(tower.credentials(), text + "# changed\n").expect("a file");
    let said = tower.run(&["uninstall", "--join"]).fails(1);
    assert!(said.contains("was changed since"), "{said}");
    fs::remove_file(tower.credentials()).expect("credentials");
    tower.run(&["uninstall", "--join"]).ok();
    assert_eq!(files(&tower), before);
    desk.broker.stop();
}

#[test]
fn a_machine_is_sent_away_and_the_broker_listens_no_more() {
    let (desk, laptop) = (Desk::new(), Home::new());
    join(&laptop, &desk.invite("laptop")).ok();
    let said = desk.home.run(&["invite", "laptop"]).fails(2);
    assert!(said.contains("there is a token laptop already"), "{said}");
    let secret = desk.home.credential("hmac_secret");
    let said = desk.says(&["invite", "revoke", "Laptop", "--rotate"]);
    assert!(
        said.contains("laptop: its invitation and its token are at an end"),
        "{said}"
    );
    assert_ne!(desk.home.credential("hmac_secret"), secret);
    let out = "takes the token no more with which this machine joined";
    let way = "`peerbus uninstall --join` gives the credentials back";
    let said = laptop.run(&["peers"]).fails(1);
    assert!(said.contains(out) && said.contains(way), "{said}");
    let said = laptop.run(&["doctor"]).stdout;
    assert!(said.contains(out) && said.contains(way), "{said}");
    assert_eq!(desk.says(&["invite", "list"]), "no machine was invited\n");
    assert_eq!(desk.says(&["token", "list"]), "no tokens\n");
    desk.invite("lap");
    let said = desk.home.run(&["invite", "laptop"]).fails(2);
    assert!(
        said.contains("the names of laptop and of lap, which was invited, too"),
        "{said}"
    );
    let said = desk.home.run(&["token", "revoke", "Lap"]).fails(2);
    assert!(
        said.contains("`peerbus invite revoke Lap` ends it"),
        "{said}"
    );
    let elsewhere = ["invite", "pad", "--listen", "127.0.0.1:1"];
    let said = desk.home.run(&elsewhere).fails(2);
    assert!(
        said.contains("lap was invited to 127.0.0.1:") && said.contains("leave --listen out"),
        "{said}"
    );
    desk.says(&["invite", "revoke", "lap"]);
    let said = desk.home.run(&["invite", "revoke", "laptop"]).fails(2);
    assert!(said.contains("no machine laptop was invited"), "{said}");

    let code = desk.invite("laptop");
    let again = format!(
        "`peerbus invite NAME --listen {}`",
        desk.home.credential("listen")
    );
    let said = desk.home.run(&["invite", "off"]);
    assert!(
        said.stdout == "laptop: its invitation is at an end\nno invitation is open\n",
        "{}",
        said.stdout
    );
    assert!(
        said.stderr.contains("restart it, which ends") && said.stderr.contains(&again),
        "{}",
        said.stderr
    );
    let said = join(&Home::new(), &code).fails(1);
    assert!(said.contains("no invitation has this code"), "{said}");
    desk.broker.stop();
    let again = Broker::start(&desk.home);
    let said = join(&Home::new(), &code).fails(1);
    assert!(said.contains("no broker at wss://127.0.0.1:"), "{said}");
    again.stop();
}

#[test]
fn a_machine_that_asked_and_never_came_is_sent_away_with_its_token() {
    let desk = Desk::new();
    let code = desk.invite("laptop");
    shows(&code, "a").expect("it is let in");
    // Its ten minutes are over, its token is not.
    let file = desk.home.path().join(".config/peerbus/invitations.toml");
    let text = fs::read_to_string(&file).expect("invitations");
    let past = |line: &str| match line.starts_with("until = ") {
        true => "until = 2001-01-01T00:00:00Z\n".to_owned(),
        false => format!("{line}\n"),
    };
    fs::write(&file, text.lines().map(past).collect::<String>()).expect("our file");
    desk.invite("pad");
    let said = desk.says(&["invite", "list"]);
    assert!(said.contains("laptop: let in, and not here yet"), "{said}");
    let said = desk.home.run(&["invite", "laptop"]).fails(2);
    assert!(said.contains("`peerbus invite revoke laptop`"), "{said}");

    let said = desk.home.run(&["invite", "off"]).stdout;
    assert!(
        said.contains("laptop: its invitation and its token are at an end\n")
            && said.contains("pad: its invitation is at an end\n"),
        "{said}"
    );
    assert_eq!(desk.says(&["token", "list"]), "no tokens\n");
    assert_eq!(desk.says(&["invite", "list"]), "no machine was invited\n");
    let stranger = Home::new();
    let mut peers = stranger.peerbus(&["peers"]);
    peers
        .env(
            "PEERBUS_URL",
            InviteCode::parse(&code).expect("a code").url.written(),
        )
        .env("PEERBUS_TOKEN", "a".repeat(64))
        .env("PEERBUS_HMAC_SECRET", desk.home.credential("hmac_secret"));
    let said = Finished::of(&mut peers).fails(1);
    assert!(said.contains("the broker refused the token"), "{said}");

    desk.says(&["token", "add", "tower"]);
    let said = desk.home.run(&["invite", "tower"]).fails(2);
    assert!(said.contains("`peerbus token revoke tower`"), "{said}");
    desk.broker.stop();
}

#[test]
fn a_broken_way_in_is_a_warning_and_the_broker_serves() {
    let Desk { home, broker } = Desk::new();
    let config = home.path().join(".config/peerbus");
    broker.stop();
    let (cert, key) = (config.join("broker.crt"), config.join("broker.key"));
    let (cert_text, key_text) = [&cert, &key].map(|it| fs::read(it).expect("a file")).into();
    let other = Desk::new();
    let strange = fs::read(other.home.path().join(".config/peerbus/broker.key")).expect("a key");
    other.broker.stop();
    let begins_with = |why: &str| {
        let broker = Broker::start(&home);
        home.run(&["peers"]).ok();
        let said = home.run(&["invite", "laptop"]).fails(1);
        assert!(said.contains(why), "{said}");
        broker.stop();
    };
    fs::remove_file(&key).expect("a key");
    begins_with("broker.crt is there without ");
    assert!(!key.exists() && fs::read(&cert).expect("a file") == cert_text);
    fs::write(&key, strange).expect("a file");
    begins_with("broker.key");
    fs::write(&key, "no key").expect("a file");
    begins_with("broker.key");
    fs::write(&key, key_text).expect("a file");
    let broker = Broker::start(&home);
    let code = home.run(&["invite", "laptop"]).ok();
    join(&Home::new(), code.trim()).ok();
    broker.stop();
}

#[test]
fn the_code_is_asked_for_and_nothing_is_sent_before_a_person_says_yes() {
    let (desk, laptop) = (Desk::new(), Home::new());
    let code = desk.invite("laptop");
    let types = |code: &str, answer: &str| {
        let typed = format!("{code}\n{answer}\n");
        let said = crate::text::types(&laptop, 400, &["join"], &typed);
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let url = InviteCode::parse(&code).expect("a code").url.written();
    let said = types(&code, "no");
    assert!(
        said.contains("Paste the line that `peerbus invite` printed")
            && said.contains("credentials.toml will be made, with a token, HMAC secret and url")
            && said.contains(&format!("({url})"))
            && said.contains("nothing was sent or written"),
        "{said}"
    );
    let kept = [".config", ".local"].map(|it| laptop.path().join(it).exists());
    assert_eq!(kept, [false; 2], "not even a record");
    assert_eq!(
        desk.audited(),
        [] as [&str; 0],
        "the broker was told nothing"
    );
    let said = desk.says(&["invite", "list"]);
    assert!(said.starts_with("laptop: invited, until "), "{said}");
    let said = types(&code, "yes");
    assert!(said.contains("joined the broker at wss://"), "{said}");
    desk.broker.stop();
}
