//! Variables: what is wrong with them; of `PEERBUS_NAME` whose it is, and who has it.

use peerbus_test_support::socket::registration;
use serde_json::json;

use crate::orphans::Session;
use crate::sessions::names;
use crate::support::{Home, Mcp, Raw, eventually};

use super::{OTHER_SECRET, Setup, has_failed};

#[test]
fn a_name_of_another_token_and_one_in_use_are_told_apart() {
    let home = Home::new();
    let socket = home.path().join("b.sock");
    let mut serve = home.peerbus(&["serve", "--listen", "127.0.0.1:0", "--socket"]);
    serve
        .arg(&socket)
        .env("PEERBUS_TOKENS", "token-one,token-two");
    let mut broker = serve
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("serve starts");
    eventually("the broker listens", || socket.exists().then_some(()));
    let run = |args: &[&str], token: &str, name: &str| {
        let mut command = home.peerbus(args);
        command
            .env("PEERBUS_TOKEN", token)
            .env("PEERBUS_HMAC_SECRET", OTHER_SECRET);
        command.env("PEERBUS_URL", format!("unix:{}", socket.display()));
        let output = command
            .env("PEERBUS_NAME", name)
            .output()
            .expect("peerbus starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(
        &["recv", "--name", "bob", "--timeout", "0.1"],
        "token-one",
        "",
    );
    let said = run(&["doctor"], "token-two", "bob");
    let line = said.lines().find(|line| line.starts_with("failed  name: "));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.contains("another token") && line.contains("`peerbus names release bob`"),
        "{line}"
    );
    let said = run(&["doctor"], "token-one", "bob");
    assert!(said.contains("name: bob can be used"), "{said}");
    broker.kill().expect("the broker is ours");
    broker.wait().expect("the broker ends");
}

#[test]
fn who_has_a_name_is_told() {
    let setup = Setup::new();
    let carol = Mcp::start(&setup.home, "generic", "carol", "some-bot");
    eventually("carol is there", || {
        let (lines, _) = setup.doctor(&[("PEERBUS_NAME", "carol")]);
        let told = |line: &String| line.starts_with("ok      name: carol is in use by some-bot");
        lines.iter().any(told).then_some(())
    });
    drop(carol);
}

#[test]
fn two_that_want_one_name_are_both_named_with_the_remedy() {
    let setup = Setup::new();
    let has = Session::start(&setup.home, "carol");
    eventually("carol is there", || {
        (names(&setup.home) == ["carol"]).then_some(())
    });
    let waits = Session::start(&setup.home, "Carol");
    let home = setup.home.path().display();
    let says = format!(
        "warning name: two agents want the name Carol: process {} in {home} has it, process {} in {home} \
         waits for it; remedy: ",
        has.process(),
        waits.process()
    );
    let line = eventually("both are named", || {
        let (lines, _) = setup.doctor(&[]);
        lines.into_iter().find(|line| line.starts_with(&says))
    });
    assert!(line.contains("--name NAME"), "{line}");
    drop(has);
    eventually("it has the name", || {
        (names(&setup.home) == ["Carol"]).then_some(())
    });
    let (lines, _) = setup.doctor(&[]);
    assert!(!lines.join("\n").contains("two agents want"), "{lines:#?}");
}

#[test]
fn a_process_that_a_peer_says_is_told_as_no_process_of_this_machine() {
    let setup = Setup::new();
    let mut register = registration("carol", &setup.home.credential("token"));
    register["ext"] = 1.into();
    register["presence"] = json!({ "client": "x", "project": "p", "pid": 4711 });
    register["instance"] = "e1".repeat(16).into();
    let has = Raw::register_as(setup.broker.as_ref().expect("a broker"), &register);
    let waits = Session::start(&setup.home, "Carol");
    let line = eventually("both are named", || {
        let (lines, _) = setup.doctor(&[]);
        lines
            .into_iter()
            .find(|line| line.contains("two agents want"))
    });
    let process = waits.process();
    let says = format!("Carol: another session has it, process {process} in ");
    assert!(line.contains(&says), "{line}");
    setup.home.run(&["send", "carol", "hi"]).ok();
    let said = setup.home.run(&["history"]).stderr;
    assert!(said.contains("carol: p\n"), "{said}");
    has.leave();
}

#[test]
fn every_variable_that_is_wrong_is_named() {
    let setup = Setup::new();
    let wrong = [
        ("PEERBUS_URL", "http://x"),
        ("PEERBUS_FROM", "alice"),
        ("PEERBUS_HMAC_SECRET", "short"),
        ("PEERBUS_NAME", "a b"),
        ("PEERBUS_GROUPS", "{x}"),
        ("PEERBUS_HISTORY", "foo"),
        ("PEERBUS_ACK", "never"),
        ("PEERBUS_BUDGET", "many"),
        ("PEERBUS_TOOL_NAMES", "dots"),
        ("PEERBUS_WAKE", "telepathy"),
    ];
    let (lines, code) = setup.doctor(&wrong);
    assert_eq!(code, Some(1));
    for (name, value) in wrong {
        // A URL is told as such.
        let named = if name == "PEERBUS_URL" { value } else { name };
        let line = lines.iter().find(|line| line.contains(named));
        assert!(
            line.is_some_and(|line| line.starts_with("failed ")),
            "{name}: {lines:#?}"
        );
        let (lines, _) = setup.doctor(&[(name, value)]);
        let all_well = lines
            .iter()
            .any(|line| line.starts_with("ok      settings: "));
        assert!(!all_well && has_failed(&lines), "{name}: {lines:#?}");
    }
}
