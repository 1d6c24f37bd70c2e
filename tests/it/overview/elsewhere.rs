//! A session of the same name at another broker.

use rustix::process::Signal;

use super::{asks, json, npm_test, of, signal};
use crate::orphans::Session;
use crate::sessions::{listed, names};
use crate::support::{Broker, Home, Mcp, eventually};

#[test]
fn a_namesake_at_another_broker_changes_nothing_that_is_told_of_a_peer() {
    let (home, far) = (Home::new(), Home::new());
    let (broker, there) = (Broker::start(&home), Broker::start(&far));
    let mut bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    bob.tell("status idle");
    let variables = [
        ("PEERBUS_URL", &*there.url()),
        ("PEERBUS_TOKEN", &far.credential("token")),
        ("PEERBUS_HMAC_SECRET", &far.credential("hmac_secret")),
    ];
    let mut namesake = Session::start_with(&home, "bob", &variables);
    eventually("both are listed", || {
        (names(&home) == ["bob", "bob"]).then_some(())
    });
    let mut ann = Mcp::start(&home, "generic", "ann", "some-bot");
    let mut told = || {
        let told = json(&home, &["peers", "--json"]);
        let told = told["peers"].as_array().expect("a list");
        let tool = ann.call("bus.peers", json!({}))["details"].clone();
        let tool = tool.as_array().expect("a list");
        let states = [told, tool].map(|all| of(all, "bob").expect("bob")["state"].clone());
        let sent = home.run(&["send", "bob", "hello"]).stdout;
        let status = home.run(&["status"]).ok();
        (states, format!("{sent}{status}"))
    };
    let does = |state: &str| {
        eventually(state, || {
            let all = listed(&home);
            all.iter().any(|it| it["status"] == state).then_some(())
        });
    };
    eventually("bob is idle", || {
        (told().0 == ["idle", "idle"]).then_some(())
    });

    asks(&mut namesake, 1, &npm_test());
    does("waiting_approval");
    let (states, said) = told();
    assert_eq!(states, ["idle", "idle"]);
    assert!(!said.contains("bob waits for you"), "{said}");
    // The agent `ann` of this test is told of no dialogs.
    eventually("the namesake's dialog is told", || {
        let said = home.apart(&["status"]).stdout;
        said.contains(") waits for you").then_some(())
    });

    let adapter = namesake.adapter();
    namesake.tell("status idle");
    does("idle");
    signal(adapter, Signal::STOP);
    eventually("it is stopped", || {
        let list = home.run(&["session", "list"]).stdout;
        list.contains("stuck").then_some(())
    });
    let (states, said) = told();
    assert_eq!(states, ["idle", "idle"]);
    assert!(!said.contains("bob is stuck"), "{said}");
    signal(adapter, Signal::CONT);
    there.stop();
    broker.stop();
}
