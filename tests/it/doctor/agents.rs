//! What agents' configurations set: doctor reads it as the adapter would.

use std::fs;

use crate::support::Home;

use super::Setup;

impl Setup {
    /// A project's configuration for Gemini CLI with these members.
    fn gemini(&self, members: &str) {
        let text = format!(
            r#"{{"mcpServers": {{"peerbus": {{"command": "peerbus", "args": ["adapter", "--adapter=generic"], {members}}}}}}}"#
        );
        self.write("work/.gemini/settings.json", &text);
    }

    /// What is said of that file by a doctor that is asked beside it.
    fn said_of_gemini(&self) -> Vec<String> {
        let mut command = self.home.peerbus(&["doctor"]);
        command.env("PATH", self.home.path().join("bin"));
        let output = command.current_dir(self.home.path().join("work")).output();
        let output = output.expect("peerbus starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().map(str::to_owned);
        lines.filter(|line| line.contains("work/.gemini")).collect()
    }
}

#[test]
fn a_file_of_claude_code_with_comments_is_pointed_out() {
    let setup = Setup::new();
    setup.edit(".claude.json", "{", "{ // mine\n");
    setup.edit(".gemini/settings.json", "{", "{ // mine\n");
    let (lines, code) = setup.doctor(&[]);
    let told: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("a strict reader of"))
        .collect();
    assert!(
        told.len() == 1
            && told[0].starts_with("warning claude-code: ")
            && told[0].contains(".claude.json has comments"),
        "{lines:#?}"
    );
    assert_eq!(code, Some(0));
}

#[test]
fn what_keeps_an_installed_adapter_from_starting_is_found_with_one_remedy() {
    let setup = Setup::new();
    let variable = "remedy: correct it there, or take it out";
    let name = "remedy: correct the name there, or `peerbus install gemini --project` with";
    for (members, says, remedy) in [
        (
            r#""env": {"PEERBUS_WAKE": "telepathy"}"#,
            "PEERBUS_WAKE",
            variable,
        ),
        (
            r#""env": {"PEERBUS_ACK": "never"}"#,
            "PEERBUS_ACK",
            variable,
        ),
        (
            r#""env": {"PEERBUS_BUDGET": "0"}"#,
            "PEERBUS_BUDGET",
            variable,
        ),
        (
            r#""env": {"PEERBUS_URL": "http://x"}"#,
            "http://x",
            variable,
        ),
        (r#""env": {"PEERBUS_NAME": "{porject}"}"#, "{porject}", name),
        (
            r#""env": {"PEERBUS_NAME": "{branch}"}"#,
            "there is no branch here",
            name,
        ),
        (r#""env": {"PEERBUS_NAME": "system"}"#, "reserved", name),
    ] {
        setup.gemini(members);
        let lines = setup.said_of_gemini();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        let line = &lines[0];
        assert!(
            line.starts_with("failed  gemini: ") && line.contains(says) && line.contains(remedy),
            "{members}: {line}"
        );
        assert_eq!(line.matches('`').count() % 2, 0, "{line}");
    }
    for members in [
        r#""env": {"PEERBUS_NAME": "{project}-x", "PEERBUS_BUDGET": "off"}"#,
        r#""env": {"PEERBUS_NAME": "{user}", "USER": "ann"}"#,
        r#""env": {"PEERBUS_NAME": "${PEERBUS_NAME:-}"}"#,
    ] {
        setup.gemini(members);
        let lines = setup.said_of_gemini();
        assert!(lines[0].starts_with("ok      gemini: "), "{lines:#?}");
    }
}

#[test]
fn a_name_that_two_agents_have_is_said() {
    let setup = Setup::new();
    let install = |client: &str, name: &str| {
        let output = setup.run(&["install", client, "--name", name], &[]);
        assert!(output.status.success(), "{output:?}");
    };
    let shared = || {
        let (lines, _) = setup.doctor(&[]);
        let shared = |line: &String| line.contains("have one name");
        lines.into_iter().find(shared)
    };
    install("gemini", "Fred");
    install("codex", "{project}-codex");
    assert_eq!(shared(), None);
    let project = setup.home.path().file_name().expect("a name");
    let project = project.to_str().expect("UTF-8");
    install("gemini", &format!("{}-codex", project.to_uppercase()));
    let line = shared().expect("a line");
    for part in [
        "warning agents: codex (",
        ".codex/config.toml) and gemini (",
        &format!("{project}-codex").to_uppercase(),
        "only one session at a time",
        "--name NAME",
    ] {
        let line = line.to_uppercase();
        assert!(line.contains(&part.to_uppercase()), "{part}: {line}");
    }
}

#[test]
fn the_projects_files_above_are_looked_at() {
    let home = Home::new();
    let sub = home.path().join("work/crates/a");
    fs::create_dir_all(&sub).expect("a directory");
    fs::create_dir(home.path().join("work/.git")).expect("a directory");
    let run = |args: &[&str], dir: &std::path::Path| {
        let mut command = home.peerbus(args);
        let output = command.env("PATH", "/nowhere").current_dir(dir).output();
        let output = output.expect("peerbus starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    for client in ["claude-code", "codex", "opencode", "gemini"] {
        let said = run(&["install", client, "--project"], &home.path().join("work"));
        assert!(!said.contains("root seems to be"), "{said}");
    }
    let files = [
        ("work/.mcp.json", "\"command\": \""),
        ("work/.codex/config.toml", "command = \""),
        ("work/opencode.json", "\"command\": [\""),
    ];
    for (file, before) in files {
        let path = home.path().join(file);
        let text = fs::read_to_string(&path).expect("the file");
        let gone = text.replace(
            &format!("{before}peerbus"),
            &format!("{before}/gone/peerbus"),
        );
        assert_ne!(text, gone);
        fs::write(path, gone).expect("a file");
    }
    let said = run(&["doctor"], &sub);
    for (file, _) in files {
        let line = said.lines().find(|line| line.contains(file));
        let line = line.unwrap_or_else(|| panic!("{file}: {said}"));
        assert!(
            line.contains(" starts /gone/peerbus, which is not"),
            "{line}"
        );
        assert!(line.ends_with("/work"), "where to install: {line}");
    }
    let line = said.lines().find(|line| line.contains("work/.gemini"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.contains("when that is started there, not here"),
        "{line}"
    );

    let said = run(&["install", "gemini", "--project", "--dry-run"], &sub);
    let shown = fs::canonicalize(&sub).expect("a path");
    assert!(
        said.contains(&format!("started in {}", shown.display()))
            && said.contains("the project's root seems to be"),
        "{said}"
    );
}

#[test]
fn an_extension_that_its_agent_does_not_run_is_named_with_what_makes_it_run() {
    let setup = Setup::new();
    setup.home.run(&["install", "copilot"]).ok();
    let said = || {
        let output = setup.home.run(&["doctor"]).stdout;
        let lines = output.lines().filter(|line| line.contains("extension.mjs"));
        lines.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    for text in ["{}", "{ \"experimental\": false } // no"] {
        setup.write(".copilot/settings.json", text);
        let off = said();
        assert!(
            off.contains("experimental features") && off.contains("not switched on"),
            "{off}"
        );
    }
    setup.write(
        ".copilot/settings.json",
        "{ \"experimental\": true } // yes",
    );
    let on = said();
    assert!(on.contains("wakes sessions that began with it"), "{on}");
}

#[test]
fn what_keeps_the_plugin_of_an_agent_from_waking_its_sessions_is_said() {
    let setup = Setup::new();
    let plugin = ".config/opencode/plugins/peerbus.js";
    setup.home.run(&["install", "opencode"]).ok();
    let said = |what: &str| {
        let output = setup.home.run(&["doctor"]).stdout;
        let lines = output.lines().filter(|line| line.contains(what));
        lines.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let slow = said(plugin);
    assert!(slow.contains("over a minute"), "{slow}");
    fs::create_dir(setup.home.path().join(".config/opencode/node_modules")).expect("a directory");
    let well = said(plugin);
    assert!(
        well.contains("wakes sessions that began with it") && !well.contains("minute"),
        "{well}"
    );
    setup.write(plugin, "// `peerbus install opencode` of old\n");
    let other = said(plugin);
    assert!(
        other.contains("another than this version writes"),
        "{other}"
    );
    fs::remove_file(setup.home.path().join(plugin)).expect("a file");
    let gone = said(plugin);
    assert!(
        gone.contains("nothing wakes sessions of OpenCode"),
        "{gone}"
    );
}

#[test]
fn a_program_that_is_not_on_the_path_is_not_to_be_installed_again() {
    let setup = Setup::new();
    setup.gemini(r#""env": {}"#);
    let mut command = setup.home.peerbus(&["doctor"]);
    command.env("PATH", "/nonexistent");
    let output = command.current_dir(setup.home.path().join("work")).output();
    let output = output.expect("peerbus starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.contains("work/.gemini"))
        .expect("a line");
    assert!(
        line.contains("`peerbus`, which is not on the PATH; remedy: put"),
        "{line}"
    );
}

#[test]
fn a_plugin_of_claude_code_is_an_installation() {
    let setup = Setup::new();
    for client in ["claude-code", "gemini"] {
        assert!(setup.run(&["uninstall", client], &[]).status.success());
    }
    let says = |parts: &[&str]| {
        let (lines, _) = setup.doctor(&[]);
        let found = lines
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "{parts:?}: {lines:#?}");
        lines
    };
    let nowhere = ["warning agents: ", "no agent's configuration"];
    says(&nowhere);
    let settings = |on: bool| format!(r#"{{"enabledPlugins": {{"peerbus@peerbus": {on}}}}}"#);
    let installed = |version: &str| {
        format!(r#"{{"plugins": {{"peerbus@peerbus": [{{"version": "{version}"}}]}}}}"#)
    };
    let record = ".claude/plugins/installed_plugins.json";
    setup.write(".claude/settings.json", &settings(true));
    setup.write(record, &installed(env!("CARGO_PKG_VERSION")));
    let lines = says(&["ok      claude-code: ", "the plugin peerbus@peerbus is on"]);
    let wrong = |line: &&String| line.contains("agents: ") || line.contains("hooks are not");
    assert_eq!(lines.iter().find(wrong), None, "{lines:#?}");
    says(&["asks before each call", "`mcp__plugin_peerbus_peerbus__*`"]);

    setup.write(record, &installed("0.0.1"));
    says(&[
        "warning claude-code: ",
        "is of version 0.0.1",
        "remedy: `claude plugin update peerbus@peerbus`",
    ]);
    setup.run(&["install", "claude-code"], &[]);
    says(&["warning claude-code: ", "each runs twice"]);
    setup.run(&["uninstall", "claude-code"], &[]);
    let program = setup.home.path().join("bin/peerbus");
    fs::rename(&program, program.with_extension("away")).expect("a program");
    says(&["failed  claude-code: ", "starts `peerbus`, which is not on"]);

    setup.write(".claude/settings.json", &settings(false));
    says(&nowhere);
}
