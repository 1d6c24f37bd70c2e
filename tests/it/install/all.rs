//! `peerbus install` and `uninstall` for all agents at once.

use std::fs;
use std::process::Command;

use super::{tree, write};
use crate::support::{Finished, Home};

/// In a project, with no program on the path.
fn within(home: &Home, args: &[&str]) -> Finished {
    let project = home.path().join("code/shop");
    fs::create_dir_all(&project).expect("a directory");
    let mut command: Command = home.peerbus(args);
    Finished::of(command.current_dir(project).env("PATH", "/nowhere"))
}

#[test]
fn who_names_no_agent_is_shown_those_that_are_here() {
    let home = Home::new();
    let said = within(&home, &["install"]);
    assert!(
        said.stdout.contains("no agent's configuration"),
        "{}",
        said.stdout
    );
    assert!(said.stderr.contains("codex, opencode"), "{}", said.stderr);
    write(&home.path().join(".codex/config.toml"), "");
    fs::create_dir(home.path().join(".cursor")).expect("a directory");
    let said = within(&home, &["install"]).ok();
    let commands: Vec<_> = said
        .lines()
        .filter_map(|line| line.split_once("peerbus install "))
        .collect();
    let words: Vec<_> = commands.iter().map(|(_, word)| *word).collect();
    assert_eq!(words, ["codex", "cursor"], "{said}");
    assert!(
        within(&home, &["uninstall"])
            .ok()
            .contains("in no agent's own")
    );
    within(&home, &["install", "codex"]).ok();
    let said = within(&home, &["install"]).ok();
    assert!(
        said.contains("peerbus install codex  (installed)\n"),
        "{said}"
    );
    let said = within(&home, &["uninstall"]).ok();
    assert!(
        said.contains("peerbus uninstall codex\n") && !said.contains("cursor"),
        "{said}"
    );
    within(&home, &["install", "--allow"]).fails(2);
}

#[test]
fn all_that_was_installed_goes_at_once_and_the_bytes_are_as_before() {
    let home = Home::new();
    let path = |name: &str| home.path().join(name);
    write(&path(".codex/config.toml"), "# mine\nmodel = \"x\"\n");
    write(&path(".gemini/settings.json"), "{ \"theme\": \"dark\" }\n");
    // One that its own client cannot read either, and that has nothing of ours.
    write(&path(".cursor/mcp.json"), "{ \"mcpServers\": ");
    within(&home, &["doctor"]);
    let before = tree(home.path());
    within(&home, &["install", "codex"]).ok();
    within(&home, &["install", "gemini"]).ok();
    within(&home, &["install", "claude-code", "--project"]).ok();
    let after = tree(home.path());
    assert!(path("code/shop/.mcp.json").exists());
    let all = |args: &[&str]| {
        let mut command = home.peerbus(&[&["uninstall", "--all"], args].concat());
        Finished::of(command.env("PATH", "/nowhere"))
    };
    all(&["--dry-run"]).ok();
    assert_eq!(tree(home.path()), after);
    all(&[]).ok();
    assert_eq!(tree(home.path()), before);
    let again = all(&[]);
    assert!(
        again.stderr.contains("in no agent's configuration"),
        "{}",
        again.stderr
    );
    again.ok();
}
