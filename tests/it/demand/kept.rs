//! What a broker on demand keeps of what was read, and what is left when all of it goes.

use std::fs;

use super::World;
use crate::support::{Finished, Mcp, eventually};

#[test]
fn what_is_kept_is_also_set_for_a_broker_on_demand() {
    let world = World::new();
    let kept = |text: &str| {
        let history = world.run(&["history"]).ok();
        history.contains(text)
    };
    let run = |args: &[&str]| {
        let mut command = world.peerbus(args);
        Finished::of(command.env("PEERBUS_HISTORY", "0"))
    };
    run(&["recv", "--name", "bob", "--timeout", "0.1"]).ok();
    run(&["send", "bob", "a secret text"]).ok();
    run(&["recv", "--name", "bob", "--count", "1"]).ok();
    eventually("nothing is kept", || (!kept("a secret text")).then_some(()));
    world.stop();
    let mut wrong = world.peerbus(&["peers"]);
    let said = Finished::of(wrong.env("PEERBUS_HISTORY", "perhaps")).fails(1);
    assert!(
        said.contains("invalid value 'perhaps' for '--history AGE,SIZE'")
            && said.contains("PEERBUS_HISTORY"),
        "{said}"
    );
    world.run(&["peers"]).ok();
    world.stop();
}

#[test]
fn what_is_kept_stands_in_the_credentials_too() {
    let world = World::new();
    world
        .run(&["recv", "--name", "bob", "--timeout", "0.1"])
        .ok();
    world.stop();
    let file = world.home.credentials();
    let text = fs::read_to_string(&file).expect("credentials");
    fs::write(&file, format!("history = \"0\"\n{text}")).expect("our file");
    world.run(&["send", "bob", "a secret text"]).ok();
    world.run(&["recv", "--name", "bob", "--count", "1"]).ok();
    let kept = || world.run(&["history"]).ok().contains("a secret text");
    eventually("nothing is kept", || (!kept()).then_some(()));
    world.stop();
    // A variable wins over the file.
    let mut send = world.peerbus(&["send", "bob", "a text to keep"]);
    Finished::of(send.env("PEERBUS_HISTORY", "1d")).ok();
    world.run(&["recv", "--name", "bob", "--count", "1"]).ok();
    assert!(world.run(&["history"]).ok().contains("a text to keep"));
    world.stop();
    fs::write(&file, format!("history = \"perhaps\"\n{text}")).expect("our file");
    let said = world.run(&["peers"]).fails(1);
    assert!(
        said.contains("an age and a size such as 7d,256M") && said.contains("in the credentials"),
        "{said}"
    );
}

#[test]
fn all_of_peerbus_goes_and_what_is_not_its_own_stays() {
    let world = World::new();
    let path = |name: &str| world.home.path().join(name);
    let codex = path(".codex/config.toml");
    fs::create_dir_all(path(".codex")).expect("a directory");
    fs::write(&codex, "model = \"x\"\n").expect("a file");
    world.run(&["install", "codex"]).ok();
    world.run(&["send", "bob", "hi", "--name", "bob"]).ok();
    let own = path(".config/peerbus/alpha.nk");
    fs::write(&own, "a key of its user's").expect("a file");
    let others = ["notes.sock", "index.json"].map(|name| world.state(name));
    others
        .iter()
        .for_each(|it| fs::write(it, "not a socket").expect("a file"));
    let purge = ["uninstall", "--all", "--purge", "--yes"];
    let mut bob = world.adapter("bob");
    bob.call("bus.peers", serde_json::json!({}));
    let said = world.home.apart(&purge).fails(1);
    assert!(
        said.contains("bob") && said.contains("end them first"),
        "{said}"
    );
    let dry = ["uninstall", "--all", "--purge", "--dry-run"];
    let said = world.home.apart(&dry).fails(1);
    assert!(
        said.contains("but not now: these run") && said.contains("bob"),
        "{said}"
    );
    drop::<Mcp>(bob);
    eventually("it has left", || {
        let done = world.home.apart(&["session", "list"]).ok();
        done.contains("no sessions").then_some(())
    });
    let said = world.home.apart(&purge[..3]).fails(2);
    assert!(said.contains("say --yes"), "{said}");
    let dry = world.home.apart(&dry).ok();
    assert!(dry.contains("nothing was deleted"), "{dry}");
    assert!(world.state("peerbus.db").exists());
    let text = fs::read_to_string(&codex).expect("a file");
    assert!(text.contains("peerbus"), "{text}");

    let said = world.home.apart(&purge).ok();
    assert!(
        said.contains("has ended\n") && !said.contains("on disk"),
        "{said}"
    );
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_peerbus"));
    let left = others.iter().chain([&own]).map(std::path::PathBuf::as_path);
    for left in left.chain([program]) {
        assert!(left.exists(), "{}", left.display());
        let left = format!("left: {}\n", left.display());
        assert!(said.contains(&left), "{said}");
    }
    world.has_none();
    let kept = fs::read_dir(path(".local/state/peerbus")).expect("a directory");
    assert_eq!(kept.count(), others.len(), "what is others' alone");
    let kept = fs::read_dir(path(".config/peerbus")).expect("a directory");
    assert_eq!(kept.count(), 1, "the user's own file alone");
    assert_eq!(
        fs::read_to_string(&codex).expect("a file"),
        "model = \"x\"\n"
    );
    let again = world.home.apart(&purge);
    let said = again.stdout + &again.stderr;
    assert!(said.contains("in no agent's configuration"), "{said}");
    assert!(!said.contains("nothing to do"), "{said}");
}
