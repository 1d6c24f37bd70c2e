//! Where no broker is started.

use std::fs;
use std::os::unix::fs::chown;

use super::World;
use crate::support::{Finished, eventually};
use crate::web::page::Page;

/// Somebody else's number.
const OTHER: u32 = 65_534;

#[track_caller]
fn none_is_started(world: &World, env: &[(&str, &str)], says: &str) {
    for args in [&["peers", "--timeout", "0.3"][..], &["status", "m1"]] {
        let mut command = world.peerbus(args);
        let done = Finished::of(command.envs(env.iter().copied()));
        assert_ne!(done.code, Some(0), "{env:?}");
        assert!(done.stderr.contains(says), "{env:?}: {}", done.stderr);
    }
    world.has_none();
    assert!(!world.state("broker.log").exists(), "{env:?}");
}

#[test]
fn none_is_started_where_another_one_is_meant() {
    let world = World::new();
    none_is_started(&world, &[("PEERBUS_URL", "unix:/nowhere.sock")], "");
    let own = [
        ("PEERBUS_TOKEN", "a-token-of-somebody"),
        (
            "PEERBUS_HMAC_SECRET",
            "a secret of more than thirty-two bytes",
        ),
    ];
    let mut peers = world.peerbus(&["peers", "--timeout", "0.3"]);
    assert_ne!(Finished::of(peers.envs(own)).code, Some(0));
    let other = world.home.path().join("other.toml");
    let mut peers = world.peerbus(&["peers", "--timeout", "0.3", "--credentials"]);
    assert_ne!(Finished::of(peers.arg(&other)).code, Some(0));
    let file = world.home.credentials();
    fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
    let secret = "s".repeat(32);
    let text = format!("token = \"t\"\nhmac_secret = \"{secret}\"\nurl = \"ws://127.0.0.1:1\"\n");
    fs::write(&file, text).expect("a file");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("a mode");
    let said = world.run(&["peers", "--timeout", "0.3"]).fails(1);
    assert!(said.contains("127.0.0.1:1"), "{said}");
    world.has_none();
    assert!(!world.state("broker.log").exists());
    says_that_it_is_elsewhere(&world, &[]);
    let page = Page::of(&mut world.peerbus(&["web", "--listen", "127.0.0.1:0", "--open"]));
    let (why, stays) = eventually("the page is told", || page.away());
    assert!(why.contains("names a broker elsewhere") && stays, "{why}");
    world.has_none();
    let doctor = world.run(&["doctor"]).stdout;
    let remedy = format!("or correct `url` in {}", file.display());
    assert!(
        doctor.contains(&remedy) && !doctor.contains("PEERBUS_URL"),
        "{doctor}"
    );
    let said = world.run(&["stop"]).ok();
    let here = "no broker is running here: ";
    assert!(
        said.starts_with(here) && said.contains("ws://127.0.0.1:1"),
        "{said}"
    );
    fs::remove_file(world.state("stopped")).expect("a mark");
    fs::remove_file(&file).expect("our file");
    says_that_it_is_elsewhere(&world, &[("PEERBUS_URL", "ws://127.0.0.1:1")]);
}

/// What a broker shows on its own machine only, a tunnel's end does not show.
#[track_caller]
fn says_that_it_is_elsewhere(world: &World, env: &[(&str, &str)]) {
    for args in [
        &["history"][..],
        &["tail"],
        &["tail", "--follow"],
        &["inbox", "bob"],
        &["status", "m1"],
        &["requests"],
        &["names", "list"],
    ] {
        let mut command = world.peerbus(args);
        let done = Finished::of(command.envs(env.iter().copied()));
        assert_ne!(done.code, Some(0), "{args:?}");
        assert!(
            done.stderr
                .contains("names a broker elsewhere (ws://127.0.0.1:1)")
                && done.stderr.contains("on its own machine only")
                && done.stderr.contains("`peerbus status ID --name FROM`"),
            "{args:?}: {}",
            done.stderr
        );
    }
    world.has_none();
    assert!(!world.state("broker.log").exists(), "{env:?}");
}

#[test]
fn none_is_started_where_the_user_forbids_it_or_in_ci() {
    let world = World::new();
    let off = "PEERBUS_AUTOSTART=off keeps";
    none_is_started(&world, &[("PEERBUS_AUTOSTART", "off")], off);
    none_is_started(&world, &[("CI", "true"), ("PEERBUS_AUTOSTART", "off")], off);
    let mut wrong = world.peerbus(&["peers"]);
    let said = Finished::of(wrong.env("PEERBUS_AUTOSTART", "perhaps")).fails(2);
    assert!(said.contains("\"perhaps\" is neither on nor off"), "{said}");

    // With credentials, so that there is nothing else to complain of.
    world.run(&["peers"]).ok();
    world.stop();
    fs::remove_file(world.state("broker.log")).expect("a log");
    none_is_started(
        &world,
        &[("CI", "true")],
        "in CI unless PEERBUS_AUTOSTART=on",
    );
    none_is_started(&world, &[("PEERBUS_AUTOSTART", "off")], off);
    let mut asked = world.peerbus(&["peers"]);
    asked.env("CI", "true").env("PEERBUS_AUTOSTART", "on");
    Finished::of(&mut asked).ok();
    world.stop();
}

#[test]
fn root_starts_none_for_another_user() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: this is not root");
        return;
    }
    let world = World::new();
    none_is_started(
        &world,
        &[("SUDO_UID", "1000"), ("PEERBUS_AUTOSTART", "on")],
        "root starts none",
    );
    chown(world.home.path(), Some(OTHER), Some(OTHER)).expect("this is root");
    none_is_started(&world, &[], "root starts none");
    chown(world.home.path(), Some(0), Some(0)).expect("this is root");
    world.run(&["peers"]).ok();
    world.stop();
}
