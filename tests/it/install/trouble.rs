//! Where install cannot do its work: it says why, and nothing is lost.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::Home;

use super::{tree, write};

fn fails(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn where_the_record_cannot_be_kept_nothing_is_changed() {
    let home = Home::new();
    write(&home.path().join(".claude.json"), "{}\n");
    let before = tree(home.path());
    let mut command = home.peerbus(&["install", "claude-code"]);
    let said = fails(command.env("XDG_STATE_HOME", "/dev/null"));
    assert!(
        said.contains("installed.json") && said.contains("nothing was changed"),
        "{said}"
    );
    assert_eq!(tree(home.path()), before);
}

#[test]
fn what_lies_in_the_way_is_to_be_moved() {
    let home = Home::new();
    fs::create_dir(home.path().join(".claude.json")).expect("a directory");
    let said = home.run(&["install", "claude-code"]).fails(1);
    assert!(
        said.contains(".claude.json is not a file: move what lies there"),
        "{said}"
    );
}

#[test]
fn in_the_home_one_scope_leaves_the_other_what_both_use() {
    for (first, second) in [("--user", "--project"), ("--project", "--user")] {
        let home = Home::new();
        let hooks = || fs::read_to_string(home.path().join(".claude/settings.json"));
        home.run(&["install", "claude-code", first]).ok();
        home.run(&["install", "claude-code", second]).ok();
        let out = home.run(&["uninstall", "claude-code", second]);
        assert!(
            out.stderr.contains(&format!(
                "what `peerbus install claude-code {first}` made needs it"
            )),
            "{}",
            out.stderr
        );
        assert!(hooks().expect("the hooks").contains("peerbus hook"));
        home.run(&["uninstall", "claude-code", first]).ok();
        assert!(hooks().is_err(), "it was made for them");
    }
}

#[test]
fn what_was_changed_before_a_failure_is_named_and_can_be_undone() {
    let home = Home::new();
    // So long a name leaves no room for the file that replaces it.
    let real = home.path().join(format!("dotfiles/{}", "x".repeat(250)));
    write(&real, "{ \"model\": \"opus\" }\n");
    write(&home.path().join(".claude/keep"), "");
    symlink(&real, home.path().join(".claude/settings.json")).expect("a link");
    let before = tree(home.path());
    let said = home.run(&["install", "claude-code"]).fails(1);
    assert!(
        said.contains("cannot write ") && said.contains(".claude.json is changed already"),
        "{said}"
    );
    home.run(&["uninstall", "claude-code"]).ok();
    assert_eq!(tree(home.path()), before);
}

#[test]
fn a_projects_link_that_leads_out_of_it_is_refused_and_named() {
    let home = Home::new();
    let project = home.path().join("shop");
    let install = |place: &Path| {
        let mut command = home.peerbus(&["install", "claude-code", "--project"]);
        command.current_dir(place).output().expect("it starts")
    };
    let outside = home.path().join(".claude");
    write(&outside.join("settings.json"), "{}\n");
    write(&outside.join("else.json"), "{}\n");
    fs::create_dir_all(project.join(".git")).expect("a directory");
    for (link, to) in [
        (".claude", &*outside),
        (".claude", &home.path().join("nowhere")),
        (".mcp.json", &outside.join("else.json")),
    ] {
        symlink(to, project.join(link)).expect("a link");
        let found = || {
            let here = fs::read_dir(&project).expect("a directory").count();
            (tree(&outside), home.path().join("nowhere").exists(), here)
        };
        let before = found();
        let output = install(&project);
        let said = String::from_utf8_lossy(&output.stderr);
        let named = format!(
            "{} is a symbolic link out of ",
            project.join(link).display()
        );
        assert!(
            said.contains(&named) && said.contains("nothing was changed"),
            "{said}"
        );
        assert_eq!((output.status.code(), found()), (Some(1), before));
        fs::remove_file(project.join(link)).expect("our link");
    }
    // A link within the repository is one of the project's own.
    let part = project.join("part");
    fs::create_dir_all(project.join("shared")).expect("a directory");
    fs::create_dir_all(&part).expect("a directory");
    symlink("../shared", part.join(".claude")).expect("a link");
    assert!(install(&part).status.success());
    let hooks = fs::read_to_string(project.join("shared/settings.json"));
    assert!(hooks.expect("the hooks").contains("peerbus hook"));
}

#[test]
fn what_nobody_reads_is_done_all_the_same() {
    let home = Home::new();
    let before = tree(home.path());
    let file = home.path().join(".gemini/settings.json");
    let done = home.run_unread(&["install", "gemini"]);
    assert!(done.stderr.contains("is now installed"), "{}", done.stderr);
    done.ok();
    let text = fs::read_to_string(&file).expect("it is written");
    assert!(text.contains("peerbus"), "{text}");
    home.run_unread(&["uninstall", "gemini"]).ok();
    assert!(!file.exists());
    let full = || {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        full.expect("a device")
    };
    for (verb, says) in [
        ("install", "is now installed"),
        ("uninstall", "is no longer"),
    ] {
        let said = fails(home.peerbus(&[verb, "gemini"]).stdout(full()));
        assert!(said.contains(says), "{said}");
        assert!(said.contains("cannot write to stdout"), "{said}");
    }
    home.run_unread(&["install", "gemini", "--dry-run"]).ok();
    assert_eq!(tree(home.path()), before);
}

#[test]
fn a_program_of_another_name_says_so() {
    let home = Home::new();
    let other = home.path().join("pb");
    fs::copy(env!("CARGO_BIN_EXE_peerbus"), &other).expect("a program");
    let before = tree_without(&home, &other);
    let said = fails(home.command(&other).args(["install", "cursor"]));
    assert!(said.contains("/pb is not called peerbus"), "{said}");
    assert_eq!(tree_without(&home, &other), before);
}

fn tree_without(home: &Home, file: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(home.path()).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path != file).collect()
}

#[test]
fn a_shape_that_is_none_is_refused_by_its_place() {
    for (client, file, text, says) in [
        (
            "claude-code",
            ".claude/settings.json",
            r#"{"hooks": null}"#,
            "column 11: hooks is",
        ),
        (
            "claude-code",
            ".claude/settings.json",
            r#"{"hooks": {"Stop": null}}"#,
            "hooks.Stop is",
        ),
        (
            "gemini",
            ".gemini/settings.json",
            r#"{"mcpServers": null}"#,
            "column 16: mcpServers is",
        ),
        (
            "gemini",
            ".gemini/settings.json",
            r#"{"mcpServers": {"peerbus": null}}"#,
            "does not run",
        ),
        ("codex", ".codex/config.toml", "mcp_servers = 1\n", "line 1"),
        (
            "codex",
            ".codex/config.toml",
            "[mcp_servers]\npeerbus = 1\n",
            "line 2",
        ),
    ] {
        let home = Home::new();
        write(&home.path().join(file), text);
        let before = tree(home.path());
        let said = home.run(&["install", client]).fails(1);
        assert!(
            said.contains(file) && said.contains(says) && said.contains("nothing was changed"),
            "{text}: {said}"
        );
        let said = home.run(&["uninstall", client]).stderr;
        assert!(said.contains("nothing to do"), "{text}: {said}");
        assert_eq!(tree(home.path()), before);
    }
}

#[test]
fn a_program_of_somebody_elses_is_neither_replaced_nor_taken_away() {
    let home = Home::new();
    let path = home.path().join(".config/opencode/plugins/peerbus.js");
    write(&path, "export const Mine = async () => ({})\n");
    let before = tree(home.path());
    let said = home.run(&["install", "opencode"]).fails(1);
    let refused =
        said.contains("peerbus.js is not peerbus's") && said.contains("nothing was changed");
    assert!(refused, "{said}");
    assert_eq!(tree(home.path()), before);
    let said = home.run(&["uninstall", "opencode"]).stderr;
    assert!(said.contains("not peerbus's: it stays"), "{said}");
    assert_eq!(tree(home.path()), before);
}

#[test]
fn a_program_that_its_user_changed_stays_and_an_older_one_is_brought_up_to_date() {
    let home = Home::new();
    let path = home.path().join(".config/opencode/plugins/peerbus.js");
    home.run(&["install", "opencode"]).ok();
    let ours = fs::read_to_string(&path).expect("the plugin");
    write(&path, &format!("{ours}// and mine\n"));
    let said = home.run(&["uninstall", "opencode"]).stderr;
    assert!(
        said.contains("it was changed since") && path.exists(),
        "{said}"
    );
    home.run(&["install", "opencode"]).ok();
    assert_eq!(fs::read_to_string(&path).expect("the plugin"), ours);
    home.run(&["uninstall", "opencode"]).ok();
    assert!(!path.exists());
}

#[test]
fn who_works_on_a_project_without_peerbus_sees_nothing_of_its_hooks() {
    let home = Home::new();
    home.run(&["install", "claude-code", "--project"]).ok();
    let settings = fs::read_to_string(home.path().join(".claude/settings.json")).expect("text");
    let settings: serde_json::Value = serde_json::from_str(&settings).expect("JSON");
    let events = settings["hooks"].as_object().expect("events");
    let groups = events
        .values()
        .flat_map(|groups| groups.as_array().expect("groups"));
    let hooks = groups.flat_map(|group| group["hooks"].as_array().expect("hooks"));
    let mut ran = 0;
    for hook in hooks {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", hook["command"].as_str().expect("a command")]);
        let output = shell.env("PATH", "/nonexistent").output().expect("a shell");
        assert!(output.status.success(), "{hook}: {output:?}");
        assert!(
            output.stdout.is_empty() && output.stderr.is_empty(),
            "{hook}: {output:?}"
        );
        ran += 1;
    }
    assert!(ran > 0);
}

#[test]
fn installs_at_once_keep_each_others_record() {
    let home = Home::new();
    let clients = ["gemini", "qwen", "codex", "cursor", "opencode", "copilot"];
    let all: Vec<_> = clients
        .iter()
        .map(|client| home.peerbus(&["install", client]).output_later())
        .collect();
    for one in all {
        let output = one.join().expect("it ends");
        assert!(output.status.success(), "{output:?}");
    }
    let record = home.path().join(".local/state/peerbus/installed.json");
    let record = fs::read_to_string(record).expect("the record");
    for file in [
        ".gemini", ".qwen", ".codex", ".cursor", "opencode", ".copilot",
    ] {
        assert!(record.contains(file), "{file}: {record}");
    }
}

trait Later {
    fn output_later(self) -> std::thread::JoinHandle<std::process::Output>;
}

impl Later for Command {
    fn output_later(mut self) -> std::thread::JoinHandle<std::process::Output> {
        std::thread::spawn(move || self.output().expect("it starts"))
    }
}

#[test]
fn a_hook_whose_program_is_gone_reads_what_the_client_writes_and_is_silent() {
    let home = Home::new();
    for (scope, file) in [
        ("--user", ".claude/settings.json"),
        ("--project", "p/.claude/settings.json"),
    ] {
        let dir = home.path().join("p");
        fs::create_dir_all(&dir).expect("a project");
        let mut command = home.peerbus(&["install", "claude-code", scope]);
        assert!(
            command
                .current_dir(&dir)
                .status()
                .expect("it starts")
                .success()
        );
        let text = fs::read_to_string(home.path().join(file)).expect("settings");
        // The program of a user's own hooks is called by its path.
        let text = text.replace(env!("CARGO_BIN_EXE_peerbus"), "/gone/peerbus");
        let settings: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let hook = &settings["hooks"]["PostToolUse"][0]["hooks"][0]["command"];
        let script = format!(
            "head -c 300000 /dev/zero | sh -c '{}'; echo ${{PIPESTATUS[0]}} $?",
            hook.as_str().expect("a command").replace('\'', "'\\''")
        );
        let mut command = home.command("bash");
        let output = command
            .args(["-c", &script])
            .env("PATH", "/usr/bin:/bin")
            .output();
        let output = output.expect("a shell");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "0 0\n",
            "{hook}: {output:?}"
        );
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn a_directory_of_an_agents_that_nobody_finds_again_is_refused_and_a_good_one_remembered() {
    let home = Home::new();
    let other = home.path().join("account");
    for wrong in ["~/account", "account"] {
        let mut command = home.peerbus(&["install", "claude-code"]);
        let output = command
            .env("CLAUDE_CONFIG_DIR", wrong)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("CLAUDE_CONFIG_DIR is \"{wrong}\"")),
            "{said}"
        );
    }
    let mut command = home.peerbus(&["install", "claude-code"]);
    command.env("CLAUDE_CONFIG_DIR", &other);
    assert!(command.status().expect("it starts").success());
    assert!(other.join("settings.json").exists() && !home.path().join(".claude.json").exists());
    home.run(&["uninstall", "claude-code"]).ok();
    assert!(
        !other.join("settings.json").exists(),
        "{:?}",
        tree(home.path())
    );
    assert!(
        home.run(&["uninstall", "claude-code"])
            .stderr
            .contains("nothing to do")
    );
}

#[test]
fn what_a_user_is_told_fits_what_he_asked_for_and_what_is_written() {
    let home = Home::new();
    let said = home.run(&["install", "codex", "--allow"]);
    assert!(!said.stderr.contains("--allow"), "{}", said.stderr);
    assert!(
        said.stdout.contains("[mcp_servers.peerbus]") && !said.stdout.contains("\"mcp_servers\"")
    );
    for client in ["codex", "claude-code"] {
        home.run(&["install", client, "--allow"]).ok();
        let said = home.run(&["install", client]).stderr;
        assert!(
            said.contains("nothing to do") && !said.contains("--allow"),
            "{said}"
        );
    }
    home.run(&["uninstall", "codex"]).ok();
    assert!(
        home.run(&["install", "codex"])
            .stderr
            .contains("`peerbus install codex --allow`")
    );
}
