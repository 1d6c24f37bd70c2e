//! `--name`: what it may be, and what is said of it.

use std::fs;

use crate::support::Home;

use super::{tree, write};

#[test]
fn a_name_that_nobody_could_have_is_refused() {
    let home = Home::new();
    let before = tree(home.path());
    for name in ["{porject}", "{user", "system", "a b"] {
        let said = home.run(&["install", "gemini", "--name", name]).fails(2);
        assert!(said.contains(name), "{name}: {said}");
    }
    assert_eq!(tree(home.path()), before);
}

#[test]
fn what_a_name_means_for_several_sessions_is_said() {
    let home = Home::new();
    let work = home.path().join("My Work");
    fs::create_dir(&work).expect("a directory");
    let install = |name: &str| {
        let mut command = home.peerbus(&["install", "gemini", "--name", name]);
        let output = command.current_dir(&work).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = install("fred");
    assert!(
        said.contains("the name is fred: only one session at a time"),
        "{said}"
    );
    let said = install("{project}-g");
    assert!(
        said.contains("the name is My-Work-g for every session here: only one session"),
        "{said}"
    );
    let said = install("{branch}-g");
    assert!(
        said.contains("a session started here would not start: ") && said.contains("no branch"),
        "{said}"
    );
}

#[test]
fn a_name_that_stays_is_mentioned() {
    let home = Home::new();
    for client in ["gemini", "codex", "opencode"] {
        home.run(&["install", client, "--name", "fred"]).ok();
        let said = home.run(&["install", client]).stderr;
        assert!(
            said.contains("nothing to do") && said.contains("keep the name fred"),
            "{client}: {said}"
        );
        let said = home.run(&["install", client, "--name", "anna"]).stderr;
        assert!(!said.contains("keep the name"), "{client}: {said}");
        let said = home.run(&["install", client]).stderr;
        assert!(said.contains("keep the name anna"), "{client}: {said}");
    }
}

#[test]
fn a_server_of_codex_in_one_line_goes_in_and_out() {
    let home = Home::new();
    let path = home.path().join(".codex/config.toml");
    let rest = "[mcp_servers]\n# below\n\n[tui]\nx = 1\n";
    let ours = "peerbus = { command = \"peerbus\", args = [\"adapter\"] }\n";
    write(&path, &rest.replace("# below", &format!("{ours}# below")));
    home.run(&["install", "codex"]).ok();
    let text = fs::read_to_string(&path).expect("the file");
    assert!(text.contains("--adapter=generic"), "{text}");
    home.run(&["uninstall", "codex"]).ok();
    assert_eq!(fs::read_to_string(&path).expect("the file"), rest);
}
