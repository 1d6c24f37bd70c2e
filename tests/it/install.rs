//! `peerbus install` and `uninstall` on configuration files as people have them.

mod all;
mod configs;
mod names;
mod strangers;
mod trouble;
mod unasked;
mod used;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::Home;

use configs::{CASES, GEMINI};

/// The same text as other editors would have left it.
fn layouts(text: &str) -> [String; 5] {
    [
        text.to_owned(),
        text.replace('\n', "\r\n"),
        format!("\u{feff}{text}"),
        text.replace("  ", "\t"),
        text.replace("  ", "        "),
    ]
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, text).expect("a file");
}

/// Every file below a directory, but for the record of installs.
fn tree(dir: &Path) -> Vec<(PathBuf, Option<String>)> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.ends_with(".local") {
                continue;
            }
            if path.is_dir() {
                found.push((path.clone(), None));
                todo.push(path);
            } else {
                let text = fs::read_to_string(&path).expect("text");
                found.push((path, Some(text)));
            }
        }
    }
    found.sort();
    found
}

/// The lines that a diff takes away.
fn removed(diff: &str) -> Vec<&str> {
    let gone = |line: &&str| line.starts_with('-') && !line.starts_with("---");
    diff.lines().filter(gone).collect()
}

#[test]
fn install_adds_lines_and_uninstall_gives_the_bytes_back() {
    for case in &CASES {
        for text in layouts(case.text) {
            let home = Home::new();
            let path = home.path().join(case.file);
            write(&path, &text);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("a mode");
            let before = tree(home.path());
            let what = format!("{} {} {text:?}", case.client, case.file);

            let dry = home
                .run(&["install", case.client, case.scope, "--dry-run"])
                .ok();
            // Only a pair of braces on one line has to be taken apart, and a neighbour may gain a comma.
            let gone = removed(&dry).into_iter().filter(|line| {
                let gains_a_comma = dry.contains(&format!("\n+{},\n", &line[1..]));
                !gains_a_comma && !line.trim_end().ends_with("{}")
            });
            let gone: Vec<_> = gone.collect();
            assert_eq!(gone, [""; 0], "{what}\n{dry}");
            assert!(
                dry.contains("+") && dry.contains("peerbus"),
                "{what}\n{dry}"
            );
            assert!(!dry.contains("do-not-show-this"), "{dry}");
            assert_eq!(tree(home.path()), before, "{what}");

            home.run(&["install", case.client, case.scope]).ok();
            let after = tree(home.path());
            assert_ne!(after, before, "{what}");
            let mode = fs::metadata(&path).expect("the file").permissions().mode();
            assert_eq!(mode & 0o777, 0o640, "{what}");

            let again = home.run(&["install", case.client, case.scope]);
            assert!(
                again.stderr.contains("nothing to do"),
                "{what}\n{}",
                again.stderr
            );
            assert_eq!(tree(home.path()), after, "{what}");

            home.run(&["uninstall", case.client, case.scope]).ok();
            assert_eq!(tree(home.path()), before, "{what}");
            let again = home.run(&["uninstall", case.client, case.scope]);
            assert!(again.stderr.contains("nothing to do"), "{}", again.stderr);
        }
    }
}

#[test]
fn a_users_new_configuration_is_private_and_a_projects_is_not() {
    let mode = |path: &Path| {
        let found = fs::metadata(path).expect("the file").permissions();
        found.mode() & 0o777
    };
    let home = Home::new();
    home.run(&["install", "claude-code"]).ok();
    // The client keeps its account and keys there later.
    for file in [".claude.json", ".claude/settings.json"] {
        assert_eq!(mode(&home.path().join(file)), 0o600, "{file}");
    }
    home.run(&["install", "claude-code", "--project"]).ok();
    let shared = home.path().join(".mcp.json");
    let plain = home.path().join("plain");
    write(&plain, "");
    assert_eq!(mode(&shared), mode(&plain), "git keeps it");
}

#[test]
fn what_install_makes_goes_again_unless_somebody_uses_it() {
    for case in &CASES {
        let home = Home::new();
        let before = tree(home.path());
        home.run(&["install", case.client, case.scope]).ok();
        assert_ne!(tree(home.path()), before, "{}", case.client);
        home.run(&["uninstall", case.client, case.scope]).ok();
        assert_eq!(tree(home.path()), before, "{} {}", case.client, case.scope);
    }

    let home = Home::new();
    home.run(&["install", "cursor"]).ok();
    // The broker keeps its mail there, whoever made the directory.
    for (path, mode) in [
        (".local/state/peerbus", 0o700),
        (".local/state/peerbus/installed.json", 0o600),
    ] {
        let found = fs::metadata(home.path().join(path)).expect("the record");
        assert_eq!(found.permissions().mode() & 0o777, mode, "{path}");
    }
    let rule = home.path().join(".cursor/rules.md");
    write(&rule, "be brief");
    home.run(&["uninstall", "cursor"]).ok();
    assert!(rule.exists() && !home.path().join(".cursor/mcp.json").exists());
}

#[test]
fn claude_codes_module_is_shown_and_can_be_left_out() {
    let home = Home::new();
    let dir = home.path().join(".claude/skills/peerbus");
    home.run(&["install", "claude-code", "--no-mod"]).ok();
    home.run(&["install", "claude-code", "--project"]).ok();
    assert!(!dir.exists(), "it is the user's own choice");
    let shown = home.run(&["install", "claude-code"]).ok();
    let module = dir.join("hooks/peerbus.js");
    let text = fs::read_to_string(&module).expect("the module");
    for line in text.lines().filter(|line| !line.is_empty()) {
        assert!(shown.contains(&format!("+{line}")), "{line}");
    }
    let read = |name: &str| -> Value {
        let text = fs::read_to_string(dir.join(name)).expect("the file");
        serde_json::from_str(&text).expect("JSON")
    };
    assert_eq!(read(".claude-plugin/plugin.json")["name"], "peerbus");
    let modules = read("hooks/hooks.json");
    assert_eq!(modules["modules"], serde_json::json!(["./peerbus.js"]));
    assert_eq!(modules.get("hooks"), None, "the settings have them");
    let said = home.run(&["install", "gemini", "--no-mod"]).fails(2);
    assert!(said.contains("--no-mod is for claude-code"), "{said}");
    home.run(&["uninstall", "claude-code"]).ok();
    assert!(!dir.exists());
}

/// The command of a hook that says nothing once its program is gone.
fn guarded(program: &str) -> String {
    let without = "{ cat >/dev/null 2>&1; exit 0; }";
    format!("command -v {program} >/dev/null || {without}; exec {program} hook")
}

#[test]
fn what_is_written_is_what_each_client_documents() {
    let home = Home::new();
    let program = fs::canonicalize(env!("CARGO_BIN_EXE_peerbus")).expect("a path");
    let program = program.to_str().expect("UTF-8");
    for client in [
        "claude-code",
        "codex",
        "opencode",
        "qwen",
        "gemini",
        "copilot",
        "cursor",
    ] {
        home.run(&["install", client, "--name", "{project}-{user}"])
            .ok();
    }
    let read = |file: &str| fs::read_to_string(home.path().join(file)).expect("the file");
    let json = |file: &str| serde_json::from_str::<Value>(&read(file)).expect("JSON");
    let env = serde_json::json!({ "PEERBUS_NAME": "{project}-{user}" });
    for (file, adapter) in [
        (".claude.json", "cc"),
        (".qwen/settings.json", "generic"),
        (".gemini/settings.json", "generic"),
        (".copilot/mcp-config.json", "generic"),
        (".cursor/mcp.json", "generic"),
    ] {
        let server = &json(file)["mcpServers"]["peerbus"];
        assert_eq!(server["command"], program, "not on this PATH: {file}");
        assert_eq!(server["args"][1], format!("--adapter={adapter}"), "{file}");
        assert_eq!(server["env"], env, "{file}");
    }
    let server = &json(".qwen/settings.json")["mcpServers"]["peerbus"];
    assert_eq!(server["alwaysLoadTools"], true);
    let server = &json(".copilot/mcp-config.json")["mcpServers"]["peerbus"];
    assert_eq!(
        (&server["type"], &server["tools"][0]),
        (&"local".into(), &"*".into())
    );
    let server = &json(".config/opencode/opencode.json")["mcp"]["peerbus"];
    assert_eq!(
        (&server["type"], &server["enabled"]),
        (&"local".into(), &true.into())
    );
    assert_eq!(
        (&server["command"][0], &server["environment"]),
        (&program.into(), &env)
    );
    let settings = json(".claude/settings.json");
    for (event, count) in [
        ("SessionStart", 2),
        ("UserPromptSubmit", 1),
        ("PostToolUse", 1),
        ("Stop", 2),
    ] {
        let hooks = settings["hooks"][event][0]["hooks"]
            .as_array()
            .expect("hooks");
        assert_eq!(hooks.len(), count, "{event}");
        assert_eq!(hooks[0]["command"], guarded(program), "{event}");
    }
    let codex: toml_edit::Document<String> = read(".codex/config.toml").parse().expect("TOML");
    let server = &codex["mcp_servers"]["peerbus"];
    assert_eq!(server["command"].as_str(), Some(program));
    let handed_on = server["env_vars"].as_array().expect("a list");
    let handed_on = |name: &str| handed_on.iter().any(|found| found.as_str() == Some(name));
    assert!(
        ["XDG_RUNTIME_DIR", "PEERBUS_BUDGET", "PEERBUS_ACK"]
            .into_iter()
            .all(handed_on)
    );
}

#[test]
fn a_program_on_the_path_and_a_shared_file_say_the_plain_name() {
    let home = Home::new();
    let bin = home.path().join("bin");
    fs::create_dir(&bin).expect("a directory");
    symlink(env!("CARGO_BIN_EXE_peerbus"), bin.join("peerbus")).expect("a link");
    let install = |scope: &str, path: &Path| {
        let mut command = home.peerbus(&["install", "gemini", scope]);
        let output = command.env("PATH", path).output().expect("peerbus starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let command = |file: &str| {
        let text = fs::read_to_string(home.path().join(file)).expect("the file");
        let read: Value = serde_json::from_str(&text).expect("JSON");
        read["mcpServers"]["peerbus"]["command"]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    install("--user", &bin);
    assert_eq!(command(".gemini/settings.json"), "peerbus");
    // Elsewhere on the PATH is another program of that name, or none.
    install("--user", Path::new("/nowhere"));
    assert!(command(".gemini/settings.json").ends_with("/peerbus"));
    let said = install("--project", Path::new("/nowhere"));
    assert!(said.contains("it is not on your PATH"), "{said}");
    assert_eq!(command(".gemini/settings.json"), "peerbus");
}

#[test]
fn a_file_that_cannot_be_read_is_refused_and_no_other_is_touched() {
    for (file, text, place) in [
        (
            ".claude/settings.json",
            "{\n  \"model\": \"opus\"\n  \"env\": {}\n}\n",
            "line 2, column 18",
        ),
        (
            ".claude/settings.json",
            "{ \"hooks\": [] }",
            "line 1, column 12",
        ),
        (".claude.json", "{\"a\": 1", "line 1"),
    ] {
        let home = Home::new();
        write(&home.path().join(file), text);
        let before = tree(home.path());
        let said = home.run(&["install", "claude-code"]).fails(1);
        assert!(said.contains(file) && said.contains(place), "{said}");
        assert_eq!(tree(home.path()), before);
    }
    let home = Home::new();
    fs::write(home.path().join(".claude.json"), b"{\"a\": \"\xff\"}").expect("a file");
    let said = home.run(&["install", "claude-code"]).fails(1);
    assert!(said.contains("not UTF-8 (byte 7)"), "{said}");
    let said = home.run(&["install", "gemini", "--name", "a b"]).fails(2);
    assert!(said.contains("a b") && said.contains("{project}"), "{said}");
}

#[test]
fn a_symbolic_link_stays_and_its_target_is_changed_and_named() {
    let home = Home::new();
    let real = home.path().join("dotfiles/gemini.json");
    write(&real, GEMINI);
    fs::create_dir(home.path().join(".gemini")).expect("a directory");
    let link = home.path().join(".gemini/settings.json");
    symlink(&real, &link).expect("a link");
    let said = home.run(&["install", "gemini"]).stderr;
    assert!(
        said.contains("is a symbolic link") && said.contains("dotfiles/gemini.json"),
        "{said}"
    );
    assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
    assert!(
        fs::read_to_string(&real)
            .expect("the file")
            .contains("peerbus")
    );
    home.run(&["uninstall", "gemini"]).ok();
    assert_eq!(fs::read_to_string(&real).expect("the file"), GEMINI);

    fs::remove_file(&real).expect("the file");
    let said = home.run(&["install", "gemini"]).fails(1);
    assert!(said.contains("symbolic link to nothing"), "{said}");
}

#[test]
fn an_older_install_is_updated_and_what_its_user_added_stays() {
    let home = Home::new();
    let path = home.path().join(".claude/settings.json");
    let old = r#"{
  "hooks": {
    "Stop": [
      {
        "hooks": [
          { "type": "command", "command": "/old/bin/peerbus hook", "timeout": 3, "statusMessage": "mail" },
          { "type": "command", "command": "notify-send done" }
        ]
      }
    ],
    "PreToolUse": [{ "hooks": [{ "type": "command", "command": "peerbus hook" }] }]
  }
}
"#;
    write(&path, old);
    home.run(&["install", "claude-code"]).ok();
    let text = fs::read_to_string(&path).expect("the file");
    let settings: Value = serde_json::from_str(&text).expect("JSON");
    let all = settings["hooks"]["Stop"].as_array().expect("groups").iter();
    let hooks: Vec<_> = all
        .flat_map(|group| group["hooks"].as_array().expect("hooks"))
        .collect();
    let count = |end: &str| {
        let ends = |hook: &&&Value| hook["command"].as_str().is_some_and(|c| c.ends_with(end));
        hooks.iter().filter(ends).count()
    };
    assert_eq!(
        (count("peerbus hook"), count("peerbus hook wait")),
        (1, 1),
        "{text}"
    );
    assert_eq!(count("notify-send done"), 1, "{text}");
    assert!(
        !text.contains("/old/bin") && text.contains("\"statusMessage\": \"mail\""),
        "{text}"
    );
    assert!(settings["hooks"].get("PreToolUse").is_none(), "{text}");

    home.run(&["uninstall", "claude-code"]).ok();
    let text = fs::read_to_string(&path).expect("the file");
    assert!(
        text.contains("notify-send done") && !text.contains("peerbus"),
        "{text}"
    );
}

#[test]
fn a_file_that_was_made_anew_by_its_user_is_its_users() {
    let home = Home::new();
    home.run(&["install", "cursor"]).ok();
    let path = home.path().join(".cursor/mcp.json");
    fs::remove_file(&path).expect("the file");
    fs::write(&path, "{}\n").expect("a file");
    home.run(&["install", "cursor"]).ok();
    home.run(&["uninstall", "cursor"]).ok();
    assert_eq!(fs::read_to_string(&path).expect("the file"), "{}\n");
}

#[test]
fn a_program_at_an_awkward_path_is_called_and_found_again() {
    let home = Home::new();
    for dir in ["o'brien dir", "a \"b\" \\ $c", "-n; true"] {
        let dir = home.path().join(dir);
        fs::create_dir(&dir).expect("a directory");
        let program = dir.join("peerbus");
        fs::hard_link(env!("CARGO_BIN_EXE_peerbus"), &program)
            .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_peerbus"), &program).map(drop))
            .expect("a program");
        let run = |args: &[&str]| {
            let output = home.command(&program).args(args).output();
            let output = output.expect("peerbus starts");
            let said = [output.stdout, output.stderr].concat();
            (
                output.status.success(),
                String::from_utf8_lossy(&said).into_owned(),
            )
        };
        let (worked, said) = run(&["install", "claude-code"]);
        assert!(worked, "{said}");
        let file = home.path().join(".claude/settings.json");
        let text = fs::read_to_string(&file).expect("the file");
        let read: Value = serde_json::from_str(&text).expect("JSON");
        let hook = read["hooks"]["Stop"][0]["hooks"][0]["command"].as_str();
        let shell = home
            .command("/bin/sh")
            .args(["-c", &format!("{} --help", hook.expect("a command"))])
            .output()
            .expect("a shell");
        assert!(shell.status.success(), "{hook:?}: {shell:?}");

        let (_, said) = run(&["install", "claude-code"]);
        assert!(said.contains("nothing to do"), "{said}");
        let (_, said) = run(&["doctor"]);
        assert!(said.contains("has all hooks"), "{said}");
        let (worked, said) = run(&["uninstall", "claude-code"]);
        assert!(worked && !file.exists(), "{said}");
    }
}
