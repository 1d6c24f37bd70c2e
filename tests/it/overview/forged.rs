//! What peers of another token say of themselves buries nothing that waits on this machine.

use peerbus_test_support::socket::registration;
use serde_json::json;

use super::{asks, npm_test};
use crate::orphans::Session;
use crate::sessions::names;
use crate::support::{Broker, Home, Raw, eventually};
use crate::web::page::Page;

/// Names that the other token has.
const FORGED: usize = 30;

#[test]
fn what_waits_here_comes_before_what_peers_of_another_token_say() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let page = Page::open(&home);
    let eve = home.run(&["token", "add", "eve", "--rights", "send"]).ok();
    let forge = |n: usize| {
        let mut register = registration(&format!("a-{n:02}"), eve.trim());
        register["ext"] = 1.into();
        let does = ["waiting", "stuck"][n % 2];
        register["presence"] = json!({ "activity": does, "tried": "run this" });
        Raw::register_as(&broker, &register)
    };
    let _forged: Vec<_> = (0..FORGED).map(forge).collect();
    let mut bob = Session::start_with(&home, "bob", &[("PEERBUS_FROM", "*=hold")]);
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    home.run(&["send", "bob", "real", "--name", "alice"]).ok();
    asks(&mut bob, 1, &npm_test());
    let status = eventually("it waits", || {
        let status = home.run(&["status"]).ok();
        let waits = ["bob waits for you", "held for you: 1 message"];
        let all = waits.iter().all(|it| status.contains(it));
        all.then_some(status)
    });
    let at = |text: &str| {
        status
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {status}"))
    };
    assert!(at("bob waits for you") < at("held for you"), "{status}");
    assert!(at("held for you") < at("a-"), "{status}");
    at("… and 27 more of the token eve: `peerbus peers`");
    at("… and 10 more of the token eve: `peerbus peers`");
    let of_eve = |text: &str| text.lines().filter(|line| line.contains("a-")).count();
    assert_eq!(of_eve(&status), 3 + 20, "{status}");
    let doctor = home.run(&["doctor"]).stdout;
    assert_eq!(of_eve(&doctor), 3, "{doctor}");
    assert!(
        doctor.contains("bob waits for you") && doctor.contains("and 27 more"),
        "{doctor}"
    );
    eventually("the page is told", || {
        let peers = page.list("peers");
        let alarms = peers.iter().filter(|peer| !peer["alarm"].is_null());
        let mut alarms: Vec<_> = alarms.filter_map(|peer| peer["name"].as_str()).collect();
        alarms.sort_unstable();
        let is = alarms.len() == 4 && alarms[3] == "bob";
        let more = page.member("peers", "more");
        (is && more == ["27 more of the token eve"]).then_some(())
    });
    broker.stop();
}
