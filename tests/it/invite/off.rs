//! `invite off`, `revoke --rotate` and `secret rotate`: what they say is so.

use rustix::process::{Signal, kill_process};

use super::*;
use crate::support::freeze;

#[test]
fn off_fails_for_as_long_as_the_broker_listens() {
    let (Desk { home, broker }, laptop) = (Desk::new(), Home::new());
    join(&laptop, &home.run(&["invite", "laptop"]).ok()).ok();
    let off = ["invite", "off"];
    eventually("it is written down that it is there", || {
        let said = home.run(&["invite", "list"]).ok();
        said.starts_with("laptop: has joined, ").then_some(())
    });
    // And the broker has let the directory go.
    let dir = fs::File::open(home.path().join(".config/peerbus")).expect("a directory");
    dir.lock().expect("it is let go");
    drop(dir);
    freeze(broker.pid());
    let said = home.run(&off).fails(1);
    kill_process(broker.pid(), Signal::CONT).expect("it lives");
    assert!(
        said.contains("was not asked whether it listens for other machines still: ")
            && said.contains("Say `peerbus invite off` again"),
        "{said}"
    );
    for _ in 0..2 {
        let said = home.run(&off).fails(1);
        assert!(said.contains("restart it, which ends"), "{said}");
    }
    laptop.run(&["peers"]).ok();
    broker.stop();
    let not_told = "the broker was not told to listen for other machines\n";
    let said = home.run(&off).ok();
    assert!(said.ends_with(not_told), "{said}");
    let broker = Broker::start(&home);
    let said = home.run(&off).ok();
    assert!(said.ends_with(not_told), "{said}");
    broker.stop();

    let file = |name| home.path().join(".config/peerbus").join(name);
    let (cert, key) = (file("broker.crt"), file("broker.key"));
    let mut serve = home.peerbus(&["serve", "--listen", "0.0.0.0:0"]);
    serve.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key);
    let broker = Broker::spawn(&mut serve);
    let said = home.run(&off).fails(1);
    let says = format!(
        "the broker listens at {} whoever is invited",
        broker.address
    );
    assert!(said.contains(&says), "{said}");
    broker.stop();
}

#[test]
fn a_machine_that_has_joined_another_one_leaves_both_as_they_are() {
    let (desk, tower) = (Desk::new(), Desk::new());
    tower.invite("pad");
    join(&tower.home, &desk.invite("tower")).ok();
    let read = || fs::read(tower.home.credentials()).expect("credentials");
    let joined = read();
    for (args, command) in [
        (&["invite", "off"][..], "invite off"),
        (
            &["invite", "revoke", "pad", "--rotate"],
            "invite revoke --rotate",
        ),
        (&["secret", "rotate"], "secret rotate"),
        (&["invite", "mast"], "invite"),
    ] {
        let said = tower.home.run(args).fails(2);
        assert!(
            said.contains("credentials.toml names a broker elsewhere (wss://127.0.0.1:")
                && said.contains(&format!("run `peerbus {command}` on that broker's machine"))
                && said.contains("`peerbus uninstall --join` first"),
            "{said}"
        );
        assert_eq!(read(), joined, "{args:?}");
    }
    let said = tower.says(&["invite", "list"]);
    assert!(said.starts_with("pad: invited, until "), "{said}");
    tower.says(&["uninstall", "--join"]);
    tower.says(&["invite", "revoke", "pad", "--rotate"]);
    desk.broker.stop();
    tower.broker.stop();
}

#[test]
fn a_machine_that_joins_anew_has_its_names_and_their_mail_when_they_are_released() {
    let (desk, laptop) = (Desk::new(), Home::new());
    join(&laptop, &desk.invite("laptop")).ok();
    let api = ["recv", "--name", "laptop-api", "--timeout", "0.1"];
    laptop.run(&api).ok();
    desk.says(&["send", "laptop-api", "it waits"]);
    let said = desk.home.run(&["invite", "revoke", "laptop"]);
    let way = "should laptop join anew, `peerbus names release NAME` here gives it each name back";
    assert!(said.stderr.contains(way), "{}", said.stderr);
    laptop.run(&["uninstall", "--join"]).ok();
    join(&laptop, &desk.invite("laptop")).ok();
    let said = laptop.run(&api).fails(1);
    assert!(said.contains("belongs to another token"), "{said}");
    desk.says(&["names", "release", "laptop-api"]);
    let got = ["recv", "--name", "laptop-api", "--count", "1"];
    let got = laptop.run(&got).ok();
    assert!(got.contains("it waits"), "{got}");
    desk.broker.stop();
}

#[test]
fn a_machine_is_not_sent_away_where_the_secret_cannot_be_changed_with_it() {
    let desk = Desk::new();
    desk.invite("pad");
    desk.says(&["secret", "rotate"]);
    let revoke = ["invite", "revoke", "pad", "--rotate"];
    let said = desk.home.run(&revoke).fails(2);
    assert!(said.contains("`peerbus secret retire`"), "{said}");
    let said = desk.says(&["invite", "list"]);
    assert!(said.starts_with("pad: invited, until "), "{said}");
    desk.says(&["secret", "retire"]);
    desk.says(&revoke);
    desk.broker.stop();
}
