//! Files of ours that are something else than a file, are damaged, or lie in another place.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;

use serde_json::json;

use crate::support::{Broker, Finished, Home, Mcp, PATIENCE};

fn pipe(path: &Path) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    // Whatever was there.
    let _ = fs::remove_file(path);
    let made = Command::new("mkfifo").arg("-m600").arg(path).status();
    assert!(made.expect("mkfifo is there").success());
}

/// What a command says that ends by itself.
#[track_caller]
fn ends(mut command: Command) -> Finished {
    let (tell, told) = mpsc::sync_channel(1);
    command.env("PEERBUS_TIMEOUT", "1");
    std::thread::spawn(move || tell.send(Finished::of(&mut command)));
    told.recv_timeout(PATIENCE).expect("nothing is waited for")
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for() {
    let home = Home::new();
    let home_dir = home.path();
    let config = home_dir.join(".config/peerbus");
    fs::create_dir_all(&config).expect("a directory");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o700)).expect("a mode");
    let backup = home_dir.join("backup");
    pipe(&backup);
    let restore = ["restore", backup.to_str().expect("UTF-8")];
    let cases: [(&str, &[&[&str]]); 3] = [
        (
            "credentials.toml",
            &[
                &["peers"],
                &["serve", "--listen=127.0.0.1:0"],
                &["secret", "rotate"],
            ],
        ),
        (
            "tokens.toml",
            &[&["token", "list"], &["serve", "--listen=127.0.0.1:0"]],
        ),
        ("nothing", &[&restore]),
    ];
    for (file, commands) in cases {
        let file = config.join(file);
        if !file.ends_with("nothing") {
            pipe(&file);
        }
        for command in commands {
            let said = ends(home.peerbus(command));
            assert_ne!(said.code, Some(0), "{command:?}");
            assert!(
                said.stderr.contains("it is no regular file"),
                "{command:?}: {}",
                said.stderr
            );
        }
        fs::remove_file(&file).unwrap_or_default();
    }
    pipe(&config.join("credentials.toml"));
    let said = ends(home.peerbus(&["doctor"]));
    assert!(
        said.stdout.contains("it is no regular file"),
        "{}",
        said.stdout
    );
    let mut mcp = Mcp::start(&home, "generic", "bob", "some-bot");
    let why = mcp.call_fails("bus.peers", json!({}));
    assert!(why.contains("it is no regular file"), "{why}");

    fs::remove_file(config.join("credentials.toml")).expect("the pipe");
    pipe(&home_dir.join(".local/state/peerbus/broker.log"));
    let mut command = home.peerbus(&["peers"]);
    command.env_remove("PEERBUS_AUTOSTART");
    let said = ends(command);
    let names = said.stderr.contains("broker.log") && said.stderr.contains("it is no regular file");
    assert!(names, "{}", said.stderr);
}

#[test]
fn tokens_behind_a_link_are_changed_where_they_are() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["token", "add", "a"]).ok();
    let link = home.path().join(".config/peerbus/tokens.toml");
    let dot = home.path().join("dot");
    fs::create_dir(&dot).expect("a directory");
    let real = dot.join("tokens.toml");
    fs::rename(&link, &real).expect("a file");
    symlink(&real, &link).expect("a link");
    home.run(&["token", "revoke", "a"]).ok();
    home.run(&["token", "add", "b"]).ok();
    assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
    let text = fs::read_to_string(&real).expect("the file");
    assert!(!text.contains("[a]") && text.contains("[b]"), "{text}");
    fs::set_permissions(&dot, fs::Permissions::from_mode(0o777)).expect("a mode");
    let said = home.run(&["token", "list"]).fails(2);
    assert!(said.contains("others can write to the directory"), "{said}");
    fs::remove_file(&real).expect("the file");
    for command in [&["token", "add", "c"][..], &["token", "list"]] {
        let said = home.run(command).fails(2);
        assert!(said.contains("a symbolic link to nothing"), "{said}");
    }
    broker.stop();
}

#[test]
fn a_damaged_credentials_file_is_to_be_corrected_and_not_deleted() {
    let home = Home::new();
    Broker::start(&home).stop();
    let text = fs::read_to_string(home.credentials()).expect("credentials");
    for (damage, says) in [
        (
            format!("{text}\0"),
            "is not TOML (line 4, column 2): correct it",
        ),
        (
            text.replace("token =", "tokn ="),
            "has no `token`: correct it",
        ),
        (String::new(), "has no `token`: correct it"),
    ] {
        fs::write(home.credentials(), damage).expect("a file");
        for command in ["peers", "doctor"] {
            let said = home.run(&[command]);
            let said = said.stdout + &said.stderr;
            assert!(!said.contains("delete"), "{said}");
            let says = says.replace(
                ": correct",
                if command == "peers" {
                    ": correct"
                } else {
                    "; remedy: correct"
                },
            );
            assert!(said.contains(&says), "{said}");
        }
    }
}

#[test]
fn a_variable_that_the_client_did_not_fill_in_fails_the_tools_and_not_the_start() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for name in [
        "PEERBUS_NAME",
        "PEERBUS_URL",
        "PEERBUS_TOKEN",
        "PEERBUS_HMAC_SECRET",
        "PEERBUS_WAKE",
        "PEERBUS_ACK",
        "PEERBUS_GROUPS",
        "PEERBUS_BUDGET",
        "PEERBUS_FROM",
        "PEERBUS_TOOL_NAMES",
        "PEERBUS_CA",
        "PEERBUS_AUTOSTART",
    ] {
        let mut command = home.peerbus(&["adapter", "--adapter", "generic"]);
        let mut mcp = Mcp::spawn(command.env(name, "${SOMETHING:-}"));
        mcp.initialize("some-bot");
        let why = mcp.call_fails("bus.peers", json!({}));
        let says = format!("{name} is \"${{SOMETHING:-}}\", which the client did not fill in");
        assert!(why.contains(&says), "{why}");
        mcp.close();
    }
    broker.stop();
}

#[test]
fn a_tilde_that_no_shell_filled_in_is_no_directory() {
    let home = Home::new();
    let mut command = home.peerbus(&["serve"]);
    let by_variable = Finished::of(command.env("PEERBUS_DB", "~/x.db"));
    for said in [
        home.run(&["serve", "--db=~/x.db"]),
        by_variable,
        home.run(&["backup", "--db=~other/x.db", "to"]),
        home.run(&["peers", "--credentials=~/c.toml"]),
    ] {
        let said = said.fails(2);
        assert!(
            said.contains("is filled in by shells only: write the whole path"),
            "{said}"
        );
    }
    assert!(!home.path().join("~").exists());
}

#[test]
fn the_logs_of_detached_sessions_lie_in_a_directory_of_the_users_alone() {
    let home = Home::new();
    let state = home.path().join(".local/state/peerbus");
    let runs = state.join("runs");
    fs::create_dir_all(&state).expect("a directory");
    let elsewhere = home.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    symlink(&elsewhere, &runs).expect("a link");
    let said = home.run(&["run", "--detach"]).fails(1);
    assert!(said.contains("is a symbolic link"), "{said}");
    assert!(
        fs::read_dir(&elsewhere)
            .expect("a directory")
            .next()
            .is_none()
    );
    fs::remove_file(&runs).expect("the link");
    fs::create_dir(&runs).expect("a directory");
    fs::set_permissions(&runs, fs::Permissions::from_mode(0o777)).expect("a mode");
    // There is no Claude Code here; its log says so.
    home.run(&["run", "--detach"]).fails(1);
    let mode = fs::metadata(&runs)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}
