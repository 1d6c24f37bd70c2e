//! Broker, sessions and commands of one user meet, whatever became of their directories.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Signal, getpriority_process, kill_process};
use serde_json::json;

use super::World;
use crate::sessions::names;
use crate::support::{Broker, Finished, Home, Lines, Mcp, PATIENCE, eventually, freeze};

impl World {
    /// A command with such a runtime directory.
    fn with(&self, runtime: &Path, args: &[&str]) -> Command {
        let mut command = self.peerbus(args);
        command.env("XDG_RUNTIME_DIR", runtime);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

#[test]
fn a_broker_whose_socket_is_gone_listens_there_again() {
    let world = World::new();
    let runtime = world.path("run");
    let peers = || Finished::of(&mut world.with(&runtime, &["peers", "--timeout", "5"])).code;
    assert_eq!(peers(), Some(0));
    let broker = world.broker();
    let socket = runtime.join("peerbus/peerbus.sock");
    let lost: [&dyn Fn(); 4] = [
        &|| fs::remove_file(&socket).expect("a socket"),
        &|| fs::remove_dir_all(&runtime).expect("a directory"),
        &|| fs::rename(&runtime, world.path("moved")).expect("a directory"),
        // One that nobody listens at stands in its place.
        &|| {
            fs::remove_file(&socket).expect("a socket");
            drop(UnixListener::bind(&socket).expect("a socket"));
        },
    ];
    for (number, lose) in lost.into_iter().enumerate() {
        lose();
        eventually("it listens again", || {
            std::os::unix::net::UnixStream::connect(&socket).ok()
        });
        assert_eq!(peers(), Some(0), "{number}");
        assert_eq!(world.broker(), broker, "{number}");
    }
    let mode = fs::metadata(&socket)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    Finished::of(&mut world.with(&runtime, &["stop"])).ok();
    world.ends();
    assert!(!socket.exists(), "it takes its socket along");
}

#[test]
fn a_broker_whose_directory_cannot_be_made_again_is_found_elsewhere() {
    let world = World::new();
    let runtime = world.path("run");
    let mut watching = world.with(&runtime, &["recv", "--name", "bob"]);
    let watching = watching.stdout(Stdio::null()).stderr(Stdio::null());
    let mut watching = watching.spawn().expect("it starts");
    eventually("bob is there", || {
        let peers = Finished::of(&mut world.with(&runtime, &["peers"])).ok();
        peers.contains("bob").then_some(())
    });
    let broker = world.broker();
    fs::remove_dir_all(&runtime).expect("a directory");
    fs::write(&runtime, "in the way").expect("a file");
    eventually("it listens elsewhere", || {
        world.state("peerbus.sock").exists().then_some(())
    });
    for mut peers in [world.with(&runtime, &["peers"]), world.peerbus(&["peers"])] {
        assert!(Finished::of(&mut peers).ok().contains("bob"));
    }
    assert_eq!(world.broker(), broker);
    watching.kill().expect("it is ours");
    watching.wait().expect("it ends");
    world.stop();
}

#[test]
fn a_session_whose_socket_or_list_is_gone_is_in_the_list_again() {
    let world = World::new();
    let _bob = world.adapter("bob");
    let listed = || names(&world.home) == ["bob"];
    eventually("bob is listed", || listed().then_some(()));
    let sessions = world.state("sessions");
    let other = world.state("other");
    let lost: [&dyn Fn(); 4] = [
        &|| fs::remove_dir_all(&sessions).expect("a directory"),
        &|| fs::remove_file(sessions.join("index.json")).expect("a list"),
        &|| fs::write(sessions.join("index.json"), "{}").expect("a list"),
        &|| {
            fs::write(&other, "{}").expect("a list");
            fs::rename(&other, sessions.join("index.json")).expect("a list");
        },
    ];
    for lose in lost {
        lose();
        assert_eq!(names(&world.home), Vec::<String>::new());
        eventually("bob is listed again", || listed().then_some(()));
        world.run(&["session", "inject", "bob", "hello"]).ok();
    }
}

#[test]
fn a_runtime_directory_that_cannot_be_used_counts_as_unset() {
    let world = World::new();
    world.register("bob");
    let broker = world.broker();
    let file = world.path("file");
    fs::write(&file, "").expect("a file");
    let nowhere = world.path("link");
    symlink(world.path("none"), &nowhere).expect("a link");
    for runtime in [file.join("below"), file, nowhere, "/dev/null".into()] {
        let peers = Finished::of(&mut world.with(&runtime, &["peers", "--all"])).ok();
        assert!(peers.contains("bob"), "{}: {peers}", runtime.display());
    }
    assert_eq!(world.broker(), broker);
    world.stop();
    // The broker goes by the same rule.
    let unusable = world.path("file/below");
    Finished::of(&mut world.with(&unusable, &["peers"])).ok();
    assert!(world.state("peerbus.sock").exists());
    world.stop();
}

#[test]
fn another_users_runtime_directory_is_not_touched() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: this is not root");
        return;
    }
    let world = World::new();
    let theirs = world.path("theirs");
    fs::create_dir(&theirs).expect("a directory");
    std::os::unix::fs::chown(&theirs, Some(65_534), None).expect("this is root");
    Finished::of(&mut world.with(&theirs, &["peers"])).ok();
    assert_eq!(fs::read_dir(&theirs).expect("a directory").count(), 0);
    assert!(world.state("peerbus.sock").exists());
    world.stop();
}

#[test]
fn paths_too_long_for_sockets_take_a_short_private_place() {
    let world = World::new();
    let long = world.path(&"x".repeat(100));
    let run = |args: &[&str]| {
        let mut command = world.with(&long, args);
        Finished::of(command.env("XDG_STATE_HOME", &long))
    };
    run(&["recv", "--name", "bob", "--timeout", "0.1"]).ok();
    run(&["send", "bob", "hello"]).ok();
    let mut adapter = world.with(&long, &["adapter", "--adapter=generic", "--name", "ann"]);
    let mut ann = Mcp::spawn(adapter.env("XDG_STATE_HOME", &long));
    ann.initialize("some-agent");
    eventually("ann is listed", || {
        let list = run(&["session", "list", "--json"]).ok();
        list.contains("\"ann\"").then_some(())
    });
    let lock = fs::read_to_string(long.join("peerbus/peerbus.db.lock")).expect("a lock");
    let socket = lock.lines().nth(1).expect("a socket");
    let own = format!("/tmp/peerbus-{}", rustix::process::geteuid().as_raw());
    assert!(socket.starts_with(&format!("{own}/")), "{lock}");
    let mode = fs::metadata(&own)
        .expect("a directory")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(ann);
    run(&["stop"]).ok();
    world.ends();
    let dir = Path::new(socket).parent().expect("a directory");
    assert!(dir.starts_with(&own));
    fs::remove_dir_all(dir).expect("it is ours");
}

#[test]
fn clients_with_other_variables_find_the_broker_of_their_home() {
    let world = World::new();
    let runtime = world.path("run");
    let recv = ["recv", "--name", "bob", "--timeout", "0.1"];
    Finished::of(&mut world.with(&runtime, &recv)).ok();
    let broker = world.broker();
    let lock = fs::read_to_string(world.state("peerbus.db.lock")).expect("a lock");
    let socket = runtime.join("peerbus/peerbus.sock");
    let number = broker.as_raw_nonzero();
    assert_eq!(lock, format!("{number}\n{}\n", socket.display()));
    for mut command in [
        world.peerbus(&["peers", "--all"]),
        world.with(&world.path("other"), &["peers", "--all"]),
    ] {
        assert!(Finished::of(&mut command).ok().contains("bob"));
    }
    world.run(&["status", "m1"]).fails(1);
    assert_eq!(world.broker(), broker);
    world.stop();
}

#[test]
fn a_broker_that_no_socket_leads_to_is_named_and_ended() {
    let world = World::new();
    let runtime = world.path("run");
    Finished::of(&mut world.with(&runtime, &["peers"])).ok();
    let broker = world.broker();
    // One that is stopped does not notice that its socket is gone.
    freeze(broker);
    fs::remove_dir_all(&runtime).expect("a directory");
    let number = broker.as_raw_nonzero();
    let said = world.run(&["stop"]).fails(1);
    assert!(
        said.contains(&format!("process {number} is stopped")),
        "{said}"
    );
    let doctor = world.run(&["doctor"]).stdout;
    assert!(
        doctor.contains(&format!("(process {number} has ")),
        "{doctor}"
    );
    assert!(
        doctor.contains(&format!(
            "remedy: it is stopped, as by SIGSTOP or by Ctrl-Z: `kill -CONT {number}`"
        )),
        "{doctor}"
    );
    kill_process(broker, Signal::CONT).expect("it is ours");
    world.run(&["stop"]).ok();
    world.ends();
}

#[test]
fn a_stopped_broker_is_said_at_once_with_what_helps() {
    let world = World::new();
    world.register("bob");
    let broker = world.broker();
    freeze(broker);
    let number = broker.as_raw_nonzero();
    let stopped = format!("process {number} is stopped");
    let helps = format!("`kill -CONT {number}` lets it go on, or `kill -9 {number}` ends it");
    let patience = PATIENCE.as_secs().to_string();
    for args in [
        &["peers", "--timeout", &patience][..],
        &["send", "bob", "hello", "--timeout", &patience],
        &["recv", "--name", "bob"],
        &["status", "m1"],
        &["tail"],
        &["tail", "--follow"],
        &["stop"],
    ] {
        let done = world.run(args);
        assert_eq!(done.code, Some(1), "{args:?}: {}", done.stderr);
        let said = done.stderr.trim_end();
        assert!(
            said.contains(&stopped) && said.contains(&helps),
            "{args:?}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    }
    let doctor = world.run(&["doctor"]).stdout;
    assert!(
        doctor.contains(&stopped) && doctor.contains(&helps),
        "{doctor}"
    );
    kill_process(broker, Signal::CONT).expect("it is ours");
    world.run(&["send", "bob", "hello"]).ok();
    world.stop();
}

#[test]
fn a_start_that_fails_for_good_is_told_at_once_and_once() {
    let world = World::new();
    world.run(&["peers"]).ok();
    world.stop();
    fs::write(world.state("peerbus.db"), "no database at all, but a text").expect("a file");
    let forever = PATIENCE.as_secs().to_string();
    for args in [
        &["peers", "--timeout", &forever][..],
        &["recv", "--name", "bob"],
        &["tail", "--follow"],
    ] {
        let said = world.run(args).fails(1);
        assert_eq!(said.matches("none could be started").count(), 1, "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
    let doctor = world.run(&["doctor"]).stdout;
    assert!(
        doctor.contains("failed  broker: no broker is running, and none could be"),
        "{doctor}"
    );
    assert!(
        doctor.contains("remedy: mend that, and the next command"),
        "{doctor}"
    );
    let mut adapter = world.adapter("alice");
    eventually("the tools do not wait", || {
        let send = json!({ "name": "bus.send", "arguments": { "to": "bob", "body": "hi" } });
        let said = adapter.request("tools/call", send).to_string();
        said.contains("not sent, and not kept for later: ")
            .then_some(())
    });
    world.ends();
}

#[test]
fn who_listens_is_told_that_the_broker_ended() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut recv = home.peerbus(&["recv", "--name", "bob"]);
    let mut recv = recv.stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = Lines::of(recv.stderr.take().expect("a pipe"));
    lines.find("it listens", |line| {
        line.contains("listening as bob").then_some(())
    });
    broker.kill();
    let said = lines.next(PATIENCE).expect("a line");
    assert!(said.contains("ended without a word"), "{said}");
    recv.kill().expect("it is ours");
    recv.wait().expect("it ends");
}

#[test]
fn a_log_that_cannot_be_is_not_promised() {
    let world = World::new();
    fs::create_dir_all(world.path(".local/state")).expect("a directory");
    fs::write(world.path(".local/state/peerbus"), "in the way").expect("a file");
    let said = world.run(&["peers"]).fails(1);
    assert!(said.contains("none could be started"), "{said}");
    assert!(!said.contains("its log"), "{said}");
    for args in [&["peers"][..], &["status", "m1"]] {
        let mut command = world.peerbus(args);
        let said = Finished::of(command.env("XDG_STATE_HOME", "/dev/null")).fails(1);
        assert!(
            said.contains("or set HOME or XDG_STATE_HOME to another"),
            "{said}"
        );
    }
}

#[test]
fn a_variable_that_leads_away_from_the_credentials_is_named() {
    let world = World::new();
    world.register("bob");
    let mut command = world.peerbus(&["peers"]);
    command.env("PEERBUS_AUTOSTART", "off");
    let said = Finished::of(command.env("XDG_CONFIG_HOME", world.path("elsewhere"))).fails(2);
    let file = world.home.credentials().display().to_string();
    assert!(
        said.contains("where XDG_CONFIG_HOME leads") && said.contains(&file),
        "{said}"
    );
    assert!(!said.contains("peerbus serve"), "{said}");
    world.stop();
}

#[test]
fn who_waits_for_another_start_is_told_so_without_credentials() {
    let world = World::new();
    fs::create_dir_all(world.state("")).expect("a directory");
    let lock = fs::File::create(world.state("start.lock")).expect("a file");
    lock.lock().expect("it is free");
    for args in [
        &["send", "bob", "hello", "--timeout", "7"][..],
        &["status", "m1"],
    ] {
        let said = world.run(args).stderr;
        let held = world.state("start.lock").display().to_string();
        assert!(said.contains("another process is starting one"), "{said}");
        assert!(
            said.contains(&held) && !said.contains("no credentials"),
            "{said}"
        );
    }
}

#[test]
fn a_broker_takes_its_full_share_of_the_machine() {
    let world = World::new();
    let mut shell = world.home.command("sh");
    shell
        .args(["-c", "ulimit -Sn 40; exec nice -n 7 \"$0\" peers"])
        .arg(env!("CARGO_BIN_EXE_peerbus"))
        .env_remove("PEERBUS_AUTOSTART");
    assert!(shell.output().expect("it starts").status.success());
    let broker = world.broker();
    let limits = format!("/proc/{}/limits", broker.as_raw_nonzero());
    let limits = fs::read_to_string(limits).expect("its limits");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let files: Vec<_> = files.expect("a limit").split_whitespace().collect();
    assert_eq!(files[3], files[4], "{limits}");
    if rustix::process::geteuid().is_root() {
        assert_eq!(getpriority_process(Some(broker)), Ok(0));
    }
    world.stop();
}

#[test]
fn few_open_files_are_shared_and_said() {
    let world = World::new();
    let mut shell = world.home.command("sh");
    shell
        .args(["-c", "ulimit -n 60; exec \"$0\" peers"])
        .arg(env!("CARGO_BIN_EXE_peerbus"))
        .env_remove("PEERBUS_AUTOSTART");
    assert!(shell.output().expect("it starts").status.success());
    assert!(
        world.log().contains("the hard limit of open files is 60"),
        "{}",
        world.log()
    );
    let mut adapters: Vec<_> = (0..12)
        .map(|n| world.adapter(&format!("agent-{n}")))
        .collect();
    for adapter in &mut adapters {
        adapter.call("bus.peers", json!({}));
    }
    world.stop();
}

#[test]
fn a_deleted_directory_keeps_nobody_from_the_doctor() {
    let world = World::new();
    let gone = world.path("gone");
    for args in ["doctor", "install gemini --user"] {
        fs::create_dir(&gone).expect("a directory");
        let mut shell = world.home.command("sh");
        shell
            .args(["-c", &format!("rmdir ../gone; exec \"$0\" {args}")])
            .arg(env!("CARGO_BIN_EXE_peerbus"))
            .env_remove("PEERBUS_AUTOSTART")
            .current_dir(&gone);
        let done = Finished::of(&mut shell);
        assert!(
            !done.stderr.contains("current directory"),
            "{args}: {}",
            done.stderr
        );
        assert!(!done.stdout.is_empty(), "{args}");
    }
    world.stop();
}

#[test]
fn mail_in_another_database_of_the_user_is_hinted_at() {
    let world = World::new();
    world.register("bob");
    world.run(&["send", "bob", "in the first"]).ok();
    let other = world.path("state");
    let run = |args: &[&str]| {
        let mut command = world.peerbus(args);
        Finished::of(command.env("XDG_STATE_HOME", &other))
    };
    let said = run(&["recv", "--name", "bob", "--count", "1", "--timeout", "0.1"]).fails(1);
    let first = world.state("peerbus.db").display().to_string();
    assert!(
        said.contains(&first) && said.contains("XDG_STATE_HOME"),
        "{said}"
    );
    let doctor = run(&["doctor"]).stdout;
    assert!(doctor.contains("XDG_STATE_HOME leads to "), "{doctor}");
}
