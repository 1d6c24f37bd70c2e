//! How a broker is started.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use peerbus_adapter::demand::LOG_BYTES_MAX;
use rustix::process::{Signal, getsid, kill_process};
use serde_json::{Value, json};

use super::World;
use crate::support::{Mcp, eventually};

/// Ten times what any adapter may wait for its broker.
const WAITS_MAX: Duration = Duration::from_secs(10);

#[test]
fn twenty_adapters_at_once_on_a_clean_home_get_one_broker() {
    let world = World::new();
    let start = Instant::now();
    let spawn = |number: usize| {
        let name = format!("agent-{number}");
        let args = ["adapter", "--adapter", "generic", "--name", &name];
        Mcp::spawn(&mut world.peerbus(&args))
    };
    let mut adapters: Vec<_> = (0..20).map(spawn).collect();
    for (number, adapter) in adapters.iter_mut().enumerate() {
        adapter.initialize("some-agent");
        let peers = adapter.call("bus.peers", json!({}));
        assert_eq!(peers["self"], format!("agent-{number}"));
    }
    assert!(start.elapsed() < WAITS_MAX, "{:?}", start.elapsed());
    world.broker();
    let told: Value = serde_json::from_str(&world.run(&["peers", "--json"]).ok()).expect("JSON");
    let peers = told["peers"].as_array().expect("a list");
    let online = peers.iter().filter(|peer| peer["online"] == true);
    assert_eq!(online.count(), 20, "{told}");
    let started = told["broker"]["started"].as_str().expect("a text");
    assert!(
        started.starts_with("on demand, by `peerbus adapter`, process "),
        "{started}"
    );
    let log = world.log();
    assert_eq!(log.matches("made new credentials").count(), 1, "{log}");
    let mode = fs::metadata(world.home.credentials()).expect("credentials");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    world.stop();
}

#[test]
fn credentials_that_are_gone_are_missed_and_new_ones_said_not_to_reach_the_old_names() {
    let world = World::new();
    world.register("bob");
    let file = world.home.credentials();
    let kept = world.home.path().join("kept.toml");
    fs::rename(&file, &kept).expect("it is there");
    let found = |words: &str| {
        let lines = world.run(&["doctor"]).stdout;
        lines
            .lines()
            .find(|line| line.contains(words))
            .map(str::to_owned)
    };
    for running in [true, false] {
        let line = found("credentials: no credentials at ").expect("it is missed");
        assert!(
            line.starts_with("failed ")
                && line.contains("remedy: if there were some, put that file"),
            "{line}"
        );
        assert_eq!(found("credentials: there is no"), None);
        assert!(!file.exists(), "doctor makes none");
        if running {
            let said = world.run(&["peers"]).fails(2);
            assert!(said.contains("put that file back"), "{said}");
            world.stop();
        }
    }
    world.has_none();

    let peers = world.run(&["peers"]);
    let says = "are new, and the database has 1 name of another token";
    assert!(
        peers.stderr.contains(says) && peers.stderr.contains("put it there"),
        "{}",
        peers.stderr
    );
    peers.ok();
    let warned = found("warning names: ").expect("a warning");
    assert!(
        warned.contains("the database had 1 name of other tokens")
            && warned.contains("remedy: if credentials.toml was lost"),
        "{warned}"
    );

    fs::rename(&kept, &file).expect("it can be replaced");
    let said = world.run(&["peers"]).fails(1);
    assert!(said.contains("refused the token"), "{said}");
    assert!(said.contains("`peerbus stop` first"), "{said}");
    world.stop();
    let peers = world.run(&["peers", "--all"]);
    assert!(!peers.stderr.contains("another token"), "{}", peers.stderr);
    assert!(peers.ok().contains("bob"));
    assert_eq!(found("warning names: "), None);
}

#[test]
fn a_broker_that_is_killed_is_back_with_the_next_need_and_nothing_is_lost() {
    let world = World::new();
    let mut alice = world.adapter("alice");
    world.register("bob");
    alice.call("bus.send", json!({ "to": "bob", "body": "before" }));
    let killed = world.broker();
    kill_process(killed, Signal::KILL).expect("it is ours");
    eventually("it is gone", || {
        (!world.brokers().contains(&killed)).then_some(())
    });
    eventually("alice sends again", || {
        let arguments =
            json!({ "name": "bus.send", "arguments": { "to": "bob", "body": "after" } });
        let result = alice.request("tools/call", arguments);
        (result["isError"] != true).then_some(())
    });
    let got = world
        .run(&["recv", "--name", "bob", "--count", "2", "--timeout", "50"])
        .ok();
    assert!(got.contains("before") && got.contains("after"), "{got}");
    assert_ne!(world.broker(), killed);
    world.stop();
}

#[test]
fn a_broker_inherits_nothing_that_it_does_not_need() {
    let world = World::new();
    let open = world.home.path().join("open");
    let mut shell = world.home.command("sh");
    shell
        .args([
            "-c",
            "exec 7>open; exec \"$0\" peers",
            env!("CARGO_BIN_EXE_peerbus"),
        ])
        .env_remove("PEERBUS_AUTOSTART")
        .env("ANTHROPIC_API_KEY", "sk-secret")
        .env(
            "PEERBUS_HMAC_SECRET",
            "a secret of more than thirty-two bytes",
        )
        .env("LC_ALL", "C")
        .env("XDG_DATA_HOME", world.home.path());
    assert!(shell.output().expect("it starts").status.success());
    let broker = world.broker();
    let place = format!("/proc/{}", broker.as_raw_nonzero());
    let environment = fs::read_to_string(format!("{place}/environ")).expect("its environment");
    let entries = environment.split('\0').filter(|entry| !entry.is_empty());
    let mut names: Vec<_> = entries.map(|entry| entry.split('=').next()).collect();
    names.sort_unstable();
    let expected = ["HOME", "LC_ALL", "PATH", "XDG_DATA_HOME"].map(Some);
    assert_eq!(names, expected);
    let cwd = fs::read_link(format!("{place}/cwd")).expect("its directory");
    assert_eq!(cwd.to_str(), Some("/"));
    assert_eq!(getsid(Some(broker)).expect("a session"), broker);
    let files = fs::read_dir(format!("{place}/fd"))
        .expect("its files")
        .flatten();
    let files: Vec<_> = files.flat_map(|file| fs::read_link(file.path())).collect();
    assert!(!files.contains(&open), "{files:?}");
    for number in [0, 1] {
        let file = fs::read_link(format!("{place}/fd/{number}")).expect("a file");
        assert_eq!(file.to_str(), Some("/dev/null"));
    }
    world.stop();
}

#[test]
fn a_log_that_is_full_begins_anew() {
    let world = World::new();
    let [log, before] = ["broker.log", "broker.log.1"].map(|name| world.state(name));
    fs::create_dir_all(log.parent().expect("a parent")).expect("a directory");
    let almost = usize::try_from(LOG_BYTES_MAX).expect("it fits") - 100;
    fs::write(&log, vec![b'x'; almost]).expect("a log");
    world.run(&["peers"]).ok();
    eventually("the log begins anew", || before.exists().then_some(()));
    let size = |path| fs::metadata(path).expect("a log").len();
    assert!((LOG_BYTES_MAX..LOG_BYTES_MAX + 1_024).contains(&size(&before)));
    assert!(size(&log) < 10_000);
    world.stop();
}

#[test]
fn a_port_that_is_taken_keeps_no_session_from_its_broker() {
    let world = World::new();
    // A broker of another test may have it for a while.
    let _taken = eventually("the port is ours", || {
        TcpListener::bind("127.0.0.1:47821").ok()
    });
    world.run(&["peers"]).ok();
    let log = world.log();
    let warned = "warning: cannot listen on 127.0.0.1:47821: another process has port 47821";
    assert!(log.contains(warned), "{log}");
    assert!(
        log.contains("sessions of this user use the Unix socket"),
        "{log}"
    );
    world.stop();
}

#[test]
fn a_broker_that_cannot_start_is_one_sentence_with_the_place_of_the_log() {
    let world = World::new();
    world.run(&["peers"]).ok();
    world.stop();
    fs::write(world.state("peerbus.db"), "no database at all, but a text").expect("a file");
    let log = world.state("broker.log").display().to_string();
    let check = |said: &str| {
        assert!(
            said.contains("none could be started: cannot use the database "),
            "{said}"
        );
        assert!(said.contains(&format!("(its log is {log})")), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    };
    let mut adapter = world.adapter("alice");
    eventually("the tools say why", || {
        let arguments = json!({ "name": "bus.peers", "arguments": {} });
        let result = adapter.request("tools/call", arguments);
        let said = result["content"][0]["text"].as_str().expect("a text");
        said.contains("none could").then(|| check(said))
    });
    let said = world.run(&["status", "m1"]).fails(1);
    check(&said);
    let said = world.run(&["peers", "--timeout", "0.5"]).fails(1);
    assert!(said.contains("none could be started"), "{said}");
    world.ends();
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    let world = World::new();
    fs::create_dir(world.home.path().join(".local")).expect("a directory");
    fs::write(world.home.path().join(".local/state"), "in the way").expect("a file");
    let said = world.run(&["peers", "--timeout", "2"]).fails(1);
    let named = world.state("").display().to_string();
    assert!(said.contains(named.trim_end_matches('/')), "{said}");
    world.has_none();
}
