//! What is called peerbus and is somebody else's: it stays, and that is said.

use std::fs;

use serde_json::{Value, json};

use crate::support::Home;

use super::write;

/// Servers called peerbus that install did not write, each in the file of a client.
const SERVERS: [(&str, &str, &str); 6] = [
    (
        "cursor",
        ".cursor/mcp.json",
        r#"{ "mcpServers": { "peerbus": { "command": "/opt/wrap.sh", "env": { "MINE": "1" } } } }"#,
    ),
    (
        "gemini",
        ".gemini/settings.json",
        r#"{ "mcpServers": { "peerbus": { "command": "/opt/peerbus/wrap.sh", "args": ["peerbus"] } } }"#,
    ),
    (
        "qwen",
        ".qwen/settings.json",
        r#"{ "mcpServers": { "peerbus": { "httpUrl": "https://bus.example/mcp" } } }"#,
    ),
    (
        "claude-code",
        ".claude.json",
        r#"{ "mcpServers": { "peerbus": { "command": "ssh", "args": ["host", "peerbus", "adapter"] } } }"#,
    ),
    (
        "opencode",
        ".config/opencode/opencode.json",
        r#"{ "mcp": { "peerbus": { "type": "local", "command": ["env", "A=1", "peerbus", "adapter"] } } }"#,
    ),
    (
        "codex",
        ".codex/config.toml",
        "[mcp_servers.peerbus]\ncommand = \"/opt/wrap.sh\"\nenv = { MINE = \"1\" }\n",
    ),
];

#[test]
fn a_server_of_somebody_elses_is_neither_changed_nor_taken_out() {
    for (client, file, text) in SERVERS {
        let home = Home::new();
        let path = home.path().join(file);
        write(&path, text);
        let said = home.run(&["install", client]).fails(1);
        assert!(
            said.contains("does not run peerbus") && said.contains("rename or remove"),
            "{client}: {said}"
        );
        for args in [
            &["uninstall", client, "--dry-run"][..],
            &["uninstall", client],
        ] {
            let done = home.run(args);
            assert!(
                done.stderr.contains(file) && done.stderr.contains("not ours, and stays"),
                "{args:?}: {}",
                done.stderr
            );
            assert_eq!(done.ok(), "", "nothing changes");
            assert_eq!(fs::read_to_string(&path).expect("the file"), text);
        }
    }
}

#[test]
fn a_server_that_its_user_made_another_one_since_the_install_stays() {
    let home = Home::new();
    home.run(&["install", "cursor"]).ok();
    let path = home.path().join(".cursor/mcp.json");
    let text = r#"{ "mcpServers": { "peerbus": { "command": "/opt/wrap.sh" } } }"#;
    fs::write(&path, text).expect("a file");
    home.run(&["uninstall", "cursor"]).ok();
    assert_eq!(fs::read_to_string(&path).expect("the file"), text);
    // What is somebody's own file by now stays one, even with nothing in it.
    fs::write(&path, "{}\n").expect("a file");
    let said = home.run(&["uninstall", "cursor"]).stderr;
    assert!(said.contains("nothing to do"), "{said}");
    assert_eq!(fs::read_to_string(&path).expect("the file"), "{}\n");
}

/// Hooks that call peerbus in a way of their user's.
const HOOKS: [&str; 7] = [
    "peerbus hook | tee -a log",
    "peerbus hook && notify-send done",
    "/usr/bin/peerbus hook wait; true",
    "peerbus hook --loud",
    "peerbus hook wait now",
    "A=1 peerbus hook",
    "'/opt/my tools/peerbus' \"hook\" > /dev/null",
];

#[test]
fn a_hook_of_its_users_own_making_stays_and_is_named() {
    let home = Home::new();
    let hooks = HOOKS.map(|command| json!({ "type": "command", "command": command }));
    let text =
        json!({ "hooks": { "Stop": [{ "hooks": hooks }], "PreToolUse": [{ "hooks": hooks }] } });
    for text in [text.to_string(), format!("{text:#}\n")] {
        let path = home.path().join(".claude/settings.json");
        write(&path, &text);
        home.run(&["install", "claude-code"]).ok();
        let after = fs::read_to_string(&path).expect("the file");
        let after: Value = serde_json::from_str(&after).expect("JSON");
        let groups = after["hooks"]["Stop"].as_array().expect("groups");
        assert_eq!(groups.len(), 2, "ours came in: {after:#}");
        assert!(
            groups.iter().any(|group| group["hooks"] == json!(hooks)),
            "{after:#}"
        );

        let said = home.run(&["uninstall", "claude-code"]).stderr;
        for command in HOOKS {
            assert!(said.contains(command), "{command}: {said}");
        }
        assert!(said.contains("not ours, and stays"), "{said}");
        assert_eq!(fs::read_to_string(&path).expect("the file"), text);

        // The same where nothing is known of an install.
        home.run(&["install", "claude-code"]).ok();
        fs::remove_file(home.path().join(".local/state/peerbus/installed.json")).expect("a file");
        home.run(&["uninstall", "claude-code"]).ok();
        assert_eq!(fs::read_to_string(&path).expect("the file"), text);
    }
}
