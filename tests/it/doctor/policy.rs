//! Settings that keep from running what is installed.

use std::fs;
use std::process::Output;

use super::{Fault, Setup, nothing};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        what: "a server that its user denied",
        plant: |setup| {
            setup.write(
                ".claude/settings.local.json",
                r#"{"deniedMcpServers": [{"serverName": "peerbus"}]}"#,
            )
        },
        env: &[],
        says: &[
            "failed  claude-code: ",
            "settings.local.json has peerbus in `deniedMcpServers`",
            "remedy: take it out of that list",
        ],
    },
    Fault {
        what: "a list of servers without ours",
        plant: |setup| {
            setup.write(
                ".claude/settings.local.json",
                r#"{"allowedMcpServers": []}"#,
            )
        },
        env: &[],
        says: &[
            "failed  claude-code: ",
            "settings.local.json has `allowedMcpServers` without peerbus",
            r#"remedy: add {"serverName":"peerbus"} to that list"#,
        ],
    },
    Fault {
        what: "local settings that cannot be read",
        plant: |setup| setup.write(".claude/settings.local.json", "{"),
        env: &[],
        says: &[
            "failed  claude-code: ",
            "settings.local.json cannot be read: ",
            "whether peerbus may run is not known; remedy: correct it",
        ],
    },
    Fault {
        what: "a module that its user switched off",
        plant: |setup| {
            setup.write(
                ".claude/settings.local.json",
                r#"{"enabledPlugins": {"peerbus@skills-dir": false}}"#,
            )
        },
        env: &[],
        says: &[
            "warning claude-code: ",
            "settings.local.json has `peerbus@skills-dir`: Claude Code does not load the module",
            "remedy: let it load, if you want it",
        ],
    },
    Fault {
        what: "variables of ours in an agent's settings",
        plant: |setup| {
            setup.write(
                ".claude/settings.local.json",
                r#"{"env": {"PEERBUS_WAKE": "none"}}"#,
            )
        },
        env: &[],
        says: &[
            "warning claude-code: ",
            "settings.local.json has PEERBUS_WAKE=none in `env`: nothing wakes its sessions",
            "remedy: take it out there",
        ],
    },
    Fault {
        what: "gates with a slip in them",
        plant: |setup| setup.write(".config/peerbus/sessions.toml", "aprove = true\n"),
        env: &[],
        says: &[
            "failed  sessions: ",
            "every gate is closed until this is mended: sessions file ",
            "sessions.toml cannot be used: line 1: unknown field `aprove`",
            "remedy: correct it",
        ],
    },
    Fault {
        what: "a directory of an agent's that is no absolute path",
        plant: nothing,
        env: &[("CLAUDE_CONFIG_DIR", "~/claude")],
        says: &[
            "failed  claude-code: ",
            "CLAUDE_CONFIG_DIR is \"~/claude\", which is no absolute path",
            "remedy: correct the variable",
        ],
    },
];

/// Runs a command where these files are in the directory of who manages the machine. `None`: nothing
/// can be mounted here.
fn managed(setup: &Setup, files: &[(&str, &str)], args: &[&str]) -> Option<Output> {
    let dir = setup.home.path().join("managed");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("claude-code/managed-settings.d")).expect("directories");
    for (name, text) in files {
        fs::write(dir.join("claude-code").join(name), text).expect("a file");
    }
    let script = "mount --bind managed /etc || exit 77; exec \"$@\"";
    let mut command = setup.home.command("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
    ]);
    command.arg(env!("CARGO_BIN_EXE_peerbus")).args(args);
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = setup.home.path().join("bin");
    command.env("PATH", format!("{}:{path}", bin.display()));
    let output = command.output().ok()?;
    let mounted =
        !matches!(output.status.code(), Some(77)) && !output.stderr.starts_with(b"unshare");
    assert!(mounted || !crate::support::python::in_ci(), "{output:?}");
    mounted.then_some(output)
}

#[test]
fn settings_of_who_manages_the_machine_are_obeyed_and_named_once() {
    let setup = Setup::new();
    let denied = r#"{"deniedMcpServers": [{"serverName": "peerbus"}]}"#;
    let hooks = r#"{"allowManagedHooksOnly": true}"#;
    for (name, text, says) in [
        (
            "managed-settings.json",
            hooks,
            "has `allowManagedHooksOnly`: no hook of peerbus runs",
        ),
        (
            "managed-settings.json",
            r#"{"disableAllHooks": true}"#,
            "has `disableAllHooks`",
        ),
        (
            "managed-settings.json",
            denied,
            "has peerbus in `deniedMcpServers`",
        ),
        (
            "managed-settings.d/10-it.json",
            denied,
            "has peerbus in `deniedMcpServers`",
        ),
        (
            "managed-settings.json",
            r#"{"allowedMcpServers": []}"#,
            "`allowedMcpServers` without peerbus",
        ),
        (
            "managed-settings.json",
            "{ no JSON",
            "whether peerbus may run is not known",
        ),
        (
            "managed-mcp.json",
            r#"{"mcpServers": {}}"#,
            "has the only servers that Claude Code starts",
        ),
    ] {
        let Some(output) = managed(&setup, &[(name, text)], &["doctor"]) else {
            println!("skipped: nothing can be mounted here");
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let line: Vec<_> = said.lines().filter(|line| line.contains(says)).collect();
        assert_eq!(line.len(), 1, "{text}: {said}");
        let file = format!("/etc/claude-code/{name}");
        assert!(
            line[0].starts_with("failed  claude-code: ") && line[0].contains(&file),
            "{said}"
        );
        assert!(
            line[0].contains("remedy: ask who manages this machine"),
            "{said}"
        );
        assert_eq!(output.status.code(), Some(1), "{said}");
    }
    let install = ["install", "claude-code", "--dry-run"];
    let output =
        managed(&setup, &[("managed-settings.json", denied)], &install).expect("as before");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("warning: /etc/claude-code/managed-settings.json has peerbus in"),
        "{said}"
    );
    let output = managed(&setup, &[], &["doctor"]).expect("as before");
    assert!(output.status.success(), "{output:?}");
}
