//! `--allow`: the agent calls the bus tools without asking its user.

use crate::support::Home;

use super::configs::CASES;
use super::{layouts, tree, write};

/// An agent, its user's file with the setting, and the setting.
const AGENTS: [(&str, &str, &str); 4] = [
    (
        "claude-code",
        ".claude/settings.json",
        "\"mcp__peerbus__*\"",
    ),
    (
        "codex",
        ".codex/config.toml",
        "default_tools_approval_mode = \"approve\"",
    ),
    ("gemini", ".gemini/settings.json", "\"trust\": true"),
    ("qwen", ".qwen/settings.json", "\"trust\": true"),
];

#[test]
fn the_setting_is_shown_kept_and_taken_out_again() {
    for (client, file, setting) in AGENTS {
        let case = CASES.iter().find(|case| case.file == file);
        let text = case.map_or("", |case| case.text);
        let mut texts = layouts(text).to_vec();
        if client == "claude-code" {
            texts.push(r#"{"permissions": {"allow": []}}"#.to_owned());
            texts.push(r#"{"permissions": {}, "model": "opus"}"#.to_owned());
        }
        for text in texts {
            let home = Home::new();
            let path = home.path().join(file);
            write(&path, &text);
            let before = tree(home.path());
            let has = || {
                std::fs::read_to_string(&path)
                    .expect("text")
                    .contains(setting)
            };

            home.run(&["install", client]).ok();
            assert!(!has(), "{client} asks");
            let dry = home.run(&["install", client, "--allow", "--dry-run"]).ok();
            let added = |line: &str| line.starts_with('+') && line.contains(setting);
            assert!(dry.lines().any(added), "{client} {text:?}\n{dry}");
            home.run(&["install", client, "--allow"]).ok();
            assert!(has(), "{client}");
            let again = home.run(&["install", client]);
            assert!(again.stderr.contains("nothing to do"), "{}", again.stderr);
            assert!(has(), "{client}: a later install keeps it");

            home.run(&["uninstall", client]).ok();
            assert_eq!(tree(home.path()), before, "{client} {text:?}");
        }
    }
}

#[test]
fn what_its_user_allowed_stays() {
    let home = Home::new();
    let path = home.path().join(".claude/settings.json");
    write(&path, "{\n  \"model\": \"opus\"\n}\n");
    home.run(&["install", "claude-code", "--allow"]).ok();
    let text = std::fs::read_to_string(&path).expect("text");
    let more = text.replace("\"mcp__peerbus__*\"", "\"Read\", \"mcp__peerbus__*\"");
    assert_ne!(text, more);
    write(&path, &more);
    home.run(&["uninstall", "claude-code"]).ok();
    let left = std::fs::read_to_string(&path).expect("text");
    assert!(
        left.contains("\"allow\"") && left.contains("\"Read\""),
        "{left}"
    );
    assert!(!left.contains("peerbus"), "{left}");
}

#[test]
fn an_agent_without_such_a_setting_is_refused_with_a_sentence() {
    let home = Home::new();
    let before = tree(home.path());
    let refused = home.run(&["install", "copilot", "--allow"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let says = "Copilot CLI has no setting for --allow: leave it out";
    assert!(refused.stderr.contains(says), "{}", refused.stderr);
    assert_eq!(tree(home.path()), before);
}
