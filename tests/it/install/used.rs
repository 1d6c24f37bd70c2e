//! `--use`: servers that peers share, beside peerbus' own.

use std::fs;
use std::process::{Child, Stdio};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Broker, Home, Lines, Mcp};

use super::configs::CASES;
use super::{layouts, removed, tree, write};

const URI: &str = "mcp://host/files";
const ENTRY: &str = "peerbus-host-files";

/// A file of JSON below a home.
fn read(home: &Home, file: &str) -> Value {
    let text = fs::read_to_string(home.path().join(file)).expect("the file");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_shared_server_goes_in_beside_ours_and_out_alone_or_with_it() {
    for case in &CASES {
        for text in layouts(case.text) {
            let home = Home::new();
            let path = home.path().join(case.file);
            write(&path, &text);
            let before = tree(home.path());
            let what = format!("{} {} {text:?}", case.client, case.file);
            let run = |verb: &str, more: &[&str]| {
                let args = [&[verb, case.client, case.scope], more].concat();
                home.run(&args)
            };
            run("install", &[]).ok();
            let plain = tree(home.path());

            let dry = run("install", &["--use", URI, "--dry-run"]).ok();
            assert!(dry.contains(ENTRY) && dry.contains(URI), "{what}\n{dry}");
            let gone = removed(&dry).into_iter();
            let gone = gone.filter(|line| !dry.contains(&format!("\n+{},\n", &line[1..])));
            assert_eq!(gone.collect::<Vec<_>>(), [""; 0], "{what}\n{dry}");
            assert_eq!(tree(home.path()), plain, "{what}");

            let said = run("install", &["--use", URI]);
            let to = format!("{URI} is the server {ENTRY}: its --to has to cover '");
            assert!(said.stderr.contains(&to), "{what}\n{}", said.stderr);
            let both = tree(home.path());
            assert_ne!(both, plain, "{what}");
            for more in [&[][..], &["--use", URI], &["--use", "mcp://HOST/files/7a"]] {
                let again = run("install", more);
                let nothing = again.stderr.contains("nothing to do");
                assert!(nothing, "{what} {more:?}\n{}", again.stderr);
            }

            let said = run("uninstall", &["--use", "mcp://host/other"]).stderr;
            let nothing = "nothing to do: no entry for mcp://host/other is in ";
            assert!(said.contains(nothing), "{what}\n{said}");
            assert_eq!(tree(home.path()), both, "{what}");
            run("uninstall", &["--use", URI]).ok();
            assert_eq!(tree(home.path()), plain, "{what}");

            let two = ["--use", URI, "--use", "mcp://host/other"];
            run("install", &two).ok();
            assert_ne!(tree(home.path()), plain, "{what}");
            run("uninstall", &[]).ok();
            assert_eq!(tree(home.path()), before, "{what}");
        }
    }
}

#[test]
fn what_is_written_runs_the_command_as_each_client_wants_it() {
    let home = Home::new();
    let program = fs::canonicalize(env!("CARGO_BIN_EXE_peerbus")).expect("a path");
    let program = program.to_str().expect("UTF-8");
    let allowed = ["claude-code", "codex", "qwen", "gemini"];
    for client in ["opencode", "copilot", "cursor"].into_iter().chain(allowed) {
        let allow = allowed.contains(&client).then_some("--allow");
        let args = [
            "install",
            client,
            "--use",
            "mcp://host/files/1c0ffee1",
            "--as",
            "dev",
        ];
        let args: Vec<_> = args.into_iter().chain(allow).collect();
        home.run(&args).ok();
    }
    let args = json!(["mcp", "use", URI, "--name", "dev-*"]);
    for file in [
        ".claude.json",
        ".qwen/settings.json",
        ".gemini/settings.json",
        ".copilot/mcp-config.json",
        ".cursor/mcp.json",
    ] {
        let server = &read(&home, file)["mcpServers"][ENTRY];
        assert_eq!(
            (&server["command"], &server["args"]),
            (&json!(program), &args),
            "{file}"
        );
        // Who lets the bus tools be called unasked has not said so of somebody's files.
        assert!(server.get("trust").is_none(), "{file}: {server}");
    }
    let settings = read(&home, ".claude/settings.json");
    assert_eq!(settings["permissions"]["allow"], json!(["mcp__peerbus__*"]));
    let server = &read(&home, ".copilot/mcp-config.json")["mcpServers"][ENTRY];
    assert_eq!(
        (&server["type"], &server["tools"]),
        (&json!("local"), &json!(["*"]))
    );
    let server = &read(&home, ".config/opencode/opencode.json")["mcp"][ENTRY];
    assert_eq!(
        (&server["type"], &server["command"][4]),
        (&json!("local"), &json!("--name"))
    );
    let codex = fs::read_to_string(home.path().join(".codex/config.toml")).expect("the file");
    let codex: toml_edit::Document<String> = codex.parse().expect("TOML");
    let server = &codex["mcp_servers"][ENTRY];
    assert_eq!(server["args"][2].as_str(), Some(URI));
    let handed_on = server["env_vars"].as_array().expect("a list");
    assert!(
        handed_on
            .iter()
            .any(|it| it.as_str() == Some("XDG_RUNTIME_DIR"))
    );
    assert!(server.get("default_tools_approval_mode").is_none());
}

#[test]
fn the_name_on_the_bus_is_the_sessions_or_the_users_unless_it_is_said() {
    let home = Home::new();
    let name = |args: &[&str]| {
        let mut command = home.peerbus(&[&["install", "gemini"], args].concat());
        let output = command.env("USER", "ann").output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let args = &read(&home, ".gemini/settings.json")["mcpServers"][ENTRY]["args"];
        (args[4].as_str().expect("a name").to_owned(), said)
    };
    let (given, said) = name(&["--use", URI]);
    assert_eq!(given, "{user}-*");
    assert!(said.contains("its --to has to cover 'ann-*'"), "{said}");
    assert_eq!(name(&["--use", URI, "--name", "fred"]).0, "fred-*");
    assert_eq!(name(&["--use", URI]).0, "fred-*", "what is there stays");
    assert_eq!(name(&["--use", URI, "--as", "dev-ann"]).0, "dev-ann-*");
    assert_eq!(name(&["--name", "anna"]).0, "dev-ann-*");
    home.run(&["uninstall", "gemini", "--use", URI]).ok();
    assert_eq!(
        name(&["--use", URI]).0,
        "anna-*",
        "as the sessions are called"
    );
}

#[test]
fn what_cannot_be_used_is_refused_before_anything_is_written() {
    let home = Home::new();
    let before = tree(home.path());
    let long = "x".repeat(60);
    for (args, says) in [
        (&["--use", "http://host/files"][..], "write mcp://PEER/NAME"),
        (&["--use", "mcp://host"], "write mcp://PEER/NAME"),
        (
            &["--use", URI, "--use", "mcp://a b/c"],
            "write mcp://PEER/NAME",
        ),
        (&["--use", URI, "--as", "a b"], "a b"),
        (&["--use", URI, "--as", &long], "too long"),
        (&["--as", "dev"], "--use"),
    ] {
        for scope in ["--user", "--project"] {
            let args = [&["install", "claude-code", scope], args].concat();
            let said = home.run(&args).fails(2);
            assert!(said.contains(says), "{args:?}: {said}");
        }
        assert_eq!(tree(home.path()), before, "{args:?}");
    }
    let said = home.run(&["uninstall", "codex", "--use", "host"]).fails(2);
    assert!(said.contains("write mcp://PEER/NAME"), "{said}");
}

#[test]
fn an_entry_of_that_name_that_is_somebody_elses_stays() {
    for (client, file, text) in [
        (
            "claude-code",
            ".claude.json",
            "{\n  \"mcpServers\": {\n    \"peerbus-host-files\": { \"command\": \"npx\" }\n  }\n}\n",
        ),
        (
            "codex",
            ".codex/config.toml",
            "[mcp_servers.peerbus-host-files]\ncommand = \"npx\"\n",
        ),
    ] {
        let home = Home::new();
        write(&home.path().join(file), text);
        let before = tree(home.path());
        let said = home.run(&["install", client, "--use", URI]).fails(1);
        let line = if client == "codex" {
            "line 1, "
        } else {
            "line 3, "
        };
        assert!(
            said.contains(line) && said.contains(ENTRY) && said.contains("rename or remove it"),
            "{client}: {said}"
        );
        assert_eq!(tree(home.path()), before, "{client}");
        home.run(&["install", client]).ok();
        home.run(&["uninstall", client, "--use", URI]).ok();
        home.run(&["uninstall", client]).ok();
        assert_eq!(tree(home.path()), before, "{client}");
    }
}

#[test]
fn an_entry_that_its_user_made_for_another_name_stays() {
    let home = Home::new();
    let text = r#"{"mcpServers": {"files": {"command": "peerbus", "args": ["mcp", "use", "mcp://host/files"]}}}"#;
    let path = home.path().join(".cursor/mcp.json");
    write(&path, text);
    home.run(&["install", "cursor", "--use", URI]).ok();
    home.run(&["uninstall", "cursor", "--use", URI]).ok();
    home.run(&["uninstall", "cursor"]).ok();
    assert_eq!(fs::read_to_string(&path).expect("the file"), text);
}

/// Somebody shares a server, until this is dropped.
struct Shares(Child, Lines);

impl Drop for Shares {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn share(home: &Home) -> Shares {
    let script = home.path().join("server.py");
    fs::write(&script, include_str!("../side_channels/server.py")).expect("our file");
    let script = script.display().to_string();
    let log = home.path().join("asked.log").display().to_string();
    let mut command = home.peerbus(&["mcp", "share", "files", "--allow", "serverTools"]);
    command.args([
        "--to",
        "dev-ann-*",
        "--name",
        "host",
        "--",
        "python3",
        &script,
        &log,
    ]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let said = Lines::of(child.stderr.take().expect("a pipe"));
    said.find("URI", |line| {
        line.strip_prefix("sharing ").map(str::to_owned)
    });
    Shares(child, said)
}

#[test]
fn a_process_that_is_to_stop_stops_while_its_client_still_holds_the_pipe() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for signal in [Signal::INT, Signal::TERM] {
        let mut user = Mcp::spawn(&mut home.peerbus(&["mcp", "use", URI, "--name", "dev-*"]));
        assert_eq!(user.request("ping", json!({})), json!({}));
        kill_process(user.pid(), signal).expect("our child");
        assert!(user.wait().success(), "{signal:?}");
    }
    broker.stop();
}

#[test]
fn doctor_says_who_shares_it_now_and_what_is_written_can_be_used_twice_at_once() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["install", "gemini", "--use", URI, "--as", "dev-ann"])
        .ok();
    let said = || {
        let done = home.run(&["doctor"]);
        let line = done.stdout.lines().find(|line| line.contains(URI));
        (done.code, line.expect("a line").to_owned())
    };
    let (code, line) = said();
    assert_eq!(code, Some(0), "only a warning: {line}");
    assert!(
        line.starts_with("warning gemini: ")
            && line.contains("host is not on the bus now")
            && line.contains("`peerbus uninstall gemini --user --use mcp://host/files`"),
        "{line}"
    );
    let shares = share(&home);
    let (_, line) = said();
    assert!(line.starts_with("ok      gemini: "), "{line}");
    assert!(
        line.contains("(peerbus-host-files): it is shared now"),
        "{line}"
    );

    let entry = read(&home, ".gemini/settings.json")["mcpServers"][ENTRY].take();
    let args = entry["args"].as_array().expect("a list").iter();
    let args: Vec<_> = args.map(|word| word.as_str().expect("a text")).collect();
    // Two sessions, each with a process of its own.
    let mut users = [(); 2].map(|()| {
        let mut user = Mcp::spawn(&mut home.peerbus(&args));
        user.initialize("gemini-cli-mcp-client");
        user
    });
    let mut callers = Vec::new();
    for user in &mut users {
        let said = user.request("tools/call", json!({ "name": "echo" }));
        assert_eq!(said["content"][0]["text"], "echo", "{said}");
        callers.push(shares.1.find("who called", |line| {
            let (name, what) = line.split_once(": ")?;
            what.contains("tools/call echo").then(|| name.to_owned())
        }));
    }
    assert_ne!(callers[0], callers[1]);
    assert!(
        callers.iter().all(|name| name.starts_with("dev-ann-")),
        "{callers:?}"
    );

    let settings = home.path().join(".gemini/settings.json");
    let text = fs::read_to_string(&settings).expect("the file");
    for (from, to, found, says) in [
        (
            "dev-ann-*",
            "{porject}-*",
            "failed",
            "--use mcp://host/files --as NAME`",
        ),
        ("\"mcp\"", "\"mcp\"", "ok", "it is shared now"),
    ] {
        write(&settings, &text.replace(from, to));
        let (_, line) = said();
        assert!(line.starts_with(found) && line.contains(says), "{line}");
    }
    drop(shares);
    broker.stop();
}
