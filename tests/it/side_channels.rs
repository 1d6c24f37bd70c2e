//! MCP servers that peers share: the official ones, used over the bus.

mod official;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::{Broker, Home, Lines, Mcp, Raw, eventually, python};

/// A server that notes what it is asked, in a shell: the first argument is its log.
const NOTES: &str = include_str!("side_channels/server.py");

/// Our server's tools, for everybody.
const OPEN: &[&str] = &[
    "notes",
    "--allow",
    "serverTools",
    "--to",
    "*",
    "--name",
    "host",
];

/// `peerbus mcp share`, killed when dropped.
struct Share {
    child: Child,
    said: Lines,
}

impl Share {
    fn start(home: &Home, args: &[&str], server: &[&str]) -> Self {
        let args = [&["mcp", "share"], args, &["--"], server].concat();
        let mut child = home
            .peerbus(&args)
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let said = Lines::of(child.stderr.take().expect("a pipe"));
        Self { child, said }
    }

    /// The URI that is shared now.
    fn uri(&self) -> String {
        self.said.find("URI", |line| {
            line.strip_prefix("sharing ").map(str::to_owned)
        })
    }

    /// Ends it as a power cut would.
    fn kill(&mut self) {
        self.child.kill().expect("our child");
        self.child.wait().expect("our child");
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn user(home: &Home, uri: &str, name: &str) -> Mcp {
    let mut user = Mcp::spawn(&mut home.peerbus(&["mcp", "use", uri, "--name", name]));
    user.initialize("some-client");
    user
}

/// The error that a request is answered with.
#[track_caller]
fn fails(user: &mut Mcp, method: &str, params: Value) -> Value {
    let answer = user.request(method, params);
    assert!(answer["error"].is_object(), "{method}: {answer}");
    answer["error"].clone()
}

/// The program of an official server, which `.ci/run` installs.
fn official(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    assert!(found || !python::in_ci(), "{name} is not installed");
    if !found {
        println!("skipped: {name} is not installed");
    }
    found.then(|| name.to_owned())
}

/// Our own server, and its log.
fn notes(home: &Home) -> (Vec<String>, PathBuf) {
    let (script, log) = (home.path().join("server.py"), home.path().join("asked.log"));
    fs::write(&script, NOTES).expect("our file");
    fs::write(&log, "").expect("our file");
    let words = [
        "python3".into(),
        script.display().to_string(),
        log.display().to_string(),
    ];
    (words.to_vec(), log)
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The methods that our server was asked.
fn asked(log: &PathBuf) -> Vec<String> {
    let text = fs::read_to_string(log).expect("our file");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn an_official_server_is_shared_and_used_by_an_official_client() {
    let Some(files) = official("mcp-server-filesystem") else {
        return;
    };
    let home = Home::new();
    let broker = Broker::start(&home);
    let dir = home.path().join("shared");
    fs::create_dir(&dir).expect("a directory");
    fs::write(dir.join("a.txt"), "hello").expect("our file");
    let dir = dir.display().to_string();
    let share = Share::start(
        &home,
        &[
            "files",
            "--allow",
            "serverTools",
            "--to",
            "dev-*",
            "--name",
            "host",
        ],
        &[&files, &dir],
    );
    let uri = share.uri();
    let listed = home.run(&["mcp", "list", "--json"]).ok();
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(
        (&listed["channel"], &listed["peer"]),
        (&json!(uri), &json!("host"))
    );
    let mut client = home.command("mcp-inspector");
    client.args([
        "--cli",
        env!("CARGO_BIN_EXE_peerbus"),
        "mcp",
        "use",
        "mcp://host/files",
    ]);
    client.args([
        "--name",
        "dev-1",
        "--method",
        "tools/call",
        "--tool-name",
        "read_text_file",
    ]);
    client.args(["--tool-arg", &format!("path={dir}/a.txt")]);
    let done = client.output().expect("the inspector is installed");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        said.contains("hello"),
        "{said} {}",
        String::from_utf8_lossy(&done.stderr)
    );
    broker.stop();
}

/// The servers that a host tells of in the list of peers.
fn advertised(home: &Home, broker: &Broker) -> Value {
    let mut watcher = Raw::register(home, broker, "watcher");
    watcher.say(r#"{"protocol_version":"v1","type":"peers"}"#);
    loop {
        let frame = watcher.next();
        let peers = frame["peers"].as_array();
        if let Some(host) = peers.and_then(|all| all.iter().find(|it| it["name"] == "host")) {
            return host["presence"]["customizations"].clone();
        }
    }
}

#[test]
fn what_is_shared_stands_in_the_hosts_presence_with_its_state_and_channel() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (server, _) = notes(&home);
    let share = Share::start(&home, OPEN, &strs(&server));
    let before = share.uri();
    let shared = |uri: &str| {
        json!([{ "name": "notes", "state": { "kind": "ready" }, "channel": uri,
            "capabilities": { "serverTools": { "listChanged": true } } }])
    };
    assert_eq!(advertised(&home, &broker), shared(&before));
    let mut dev = user(&home, "mcp://host/notes", "dev-1");
    // The channel stays over a start of the broker, and is another one over that of the server.
    broker.kill();
    let broker = Broker::start(&home);
    let mut call = |tool: &str| dev.request("tools/call", json!({ "name": tool }));
    eventually("both are back", || {
        call("echo")["content"].is_array().then_some(())
    });
    assert_eq!(advertised(&home, &broker), shared(&before));
    call("die");
    let after = share.uri();
    assert_ne!(before, after);
    eventually("the new one is told", || {
        (advertised(&home, &broker) == shared(&after)).then_some(())
    });
    broker.stop();
}

#[test]
fn what_is_not_allowed_never_reaches_the_server() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (server, log) = notes(&home);
    let args = [
        "notes",
        "--allow",
        "serverTools",
        "--to",
        "dev-1",
        "--name",
        "host",
    ];
    let share = Share::start(&home, &args, &strs(&server));
    let uri = share.uri();
    let mut dev = user(&home, &uri, "dev-1");
    assert_eq!(
        dev.request("tools/list", json!({}))["tools"][0]["name"],
        "echo"
    );
    let begun = asked(&log);
    for method in [
        "resources/list",
        "prompts/list",
        "logging/setLevel",
        "sampling/createMessage",
        "initialize2",
    ] {
        let error = fails(&mut dev, method, json!({}));
        assert_eq!(error["code"], -32_601, "{method}: {error}");
    }
    let mut stranger = user(&home, &uri, "dev-2");
    let error = fails(&mut stranger, "tools/list", json!({}));
    assert!(
        error["message"]
            .to_string()
            .contains("not shared with dev-2"),
        "{error}"
    );
    assert_eq!(asked(&log), begun, "the server saw nothing of it");
    broker.stop();
}

#[test]
fn a_call_whose_host_dies_is_answered_and_the_next_generation_is_found() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (server, log) = notes(&home);
    let mut share = Share::start(&home, OPEN, &strs(&server));
    let before = share.uri();
    let mut dev = user(&home, "mcp://host/notes", "dev-1");
    let call = |dev: &mut Mcp, tool: &str| dev.request("tools/call", json!({ "name": tool }));
    assert_eq!(call(&mut dev, "echo")["content"][0]["text"], "echo");
    let sent = dev.ask("tools/call", json!({ "name": "hang" }));
    eventually("the server hangs", || {
        asked(&log).iter().any(|line| line == "hang").then_some(())
    });
    share.kill();
    let error = dev.notification("an answer", |it| (it["id"] == sent).then(|| it.clone()));
    assert!(
        error["error"]["message"]
            .to_string()
            .contains("may have been done"),
        "{error}"
    );
    let share = Share::start(&home, OPEN, &strs(&server));
    let after = share.uri();
    assert_ne!(before, after);
    assert_eq!(call(&mut dev, "echo")["content"][0]["text"], "echo");
    // The server itself may end, too.
    let died = fails(&mut dev, "tools/call", json!({ "name": "die" }));
    assert!(
        died["message"].to_string().contains("may have been done"),
        "{died}"
    );
    let again = share.uri();
    assert_ne!(after, again);
    let said = call(&mut dev, "echo");
    assert_eq!(said["content"][0]["text"], "echo", "{said}");
    broker.stop();
}

#[test]
fn a_generation_that_is_named_is_used_or_the_use_fails() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (server, _) = notes(&home);
    let share = Share::start(&home, OPEN, &strs(&server));
    let uri = share.uri();
    let call = json!({ "name": "echo" });
    let mut dev = user(&home, &uri, "dev-1");
    assert_eq!(
        dev.request("tools/call", call.clone())["content"][0]["text"],
        "echo"
    );
    // The server ends, and is started as another generation.
    fails(&mut dev, "tools/call", json!({ "name": "die" }));
    let next = share.uri();
    assert_ne!(uri, next);
    let over = fails(&mut dev, "tools/call", call.clone());
    assert!(
        over["message"].to_string().contains("nothing was done"),
        "{over}"
    );
    let mut late = Mcp::spawn(&mut home.peerbus(&["mcp", "use", &uri, "--name", "dev-2"]));
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {} });
    let refused = fails(&mut late, "initialize", hello);
    let why = refused["message"].to_string();
    assert!(why.contains("is over") && why.contains(&next), "{why}");
    let mut any = user(&home, "mcp://host/notes", "dev-3");
    let odd =
        json!([{ "jsonrpc": "2.0", "id": "a<\u{1f600}", "method": "tools/call", "params": call }]);
    assert!(any.write(&odd));
    let answer = any.notification("an answer", |it| {
        (it["id"] == "a<\u{1f600}").then(|| it.clone())
    });
    assert_eq!(answer["result"]["content"][0]["text"], "echo");
    assert_eq!(
        any.request("tools/call", call)["content"][0]["text"],
        "echo"
    );
    broker.stop();
}

#[test]
fn a_change_is_told_to_those_who_use_the_channel() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (server, _) = notes(&home);
    let share = Share::start(&home, OPEN, &strs(&server));
    share.uri();
    let mut users: Vec<_> = (0..8)
        .map(|n| user(&home, "mcp://host/notes", &format!("dev-{n}")))
        .collect();
    for (n, user) in users.iter_mut().enumerate() {
        let text = format!("{n}");
        let said = user.request(
            "tools/call",
            json!({ "name": "echo", "arguments": { "text": text } }),
        );
        assert_eq!(said["content"][0]["text"], text);
    }
    users[0].request("tools/call", json!({ "name": "change" }));
    for user in &mut users {
        user.notification("a change", |told| {
            (told["method"] == "notifications/tools/list_changed").then_some(())
        });
        // It came first, and nobody allowed it.
        assert!(logged(user).is_none());
    }
    broker.stop();
}

/// What the server logged, of what came.
fn logged(user: &Mcp) -> Option<&Value> {
    let mut told = user.notifications.iter();
    told.find(|told| told["method"] == "notifications/message")
}

#[test]
fn what_a_server_logs_is_told_where_that_is_allowed() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (mut server, _) = notes(&home);
    server.push("logging".into());
    let args = [OPEN, &["--allow", "logging"]].concat();
    let share = Share::start(&home, &args, &strs(&server));
    share.uri();
    let mut dev = user(&home, "mcp://host/notes", "dev-1");
    dev.request("tools/call", json!({ "name": "change" }));
    dev.notification("a change", |told| {
        (told["method"] == "notifications/tools/list_changed").then_some(())
    });
    let logged = logged(&dev).expect("a line of its log");
    let params = json!({ "level": "info", "data": "changing" });
    assert_eq!(logged["params"], params, "without the channel");
    broker.stop();
}

#[test]
fn what_cannot_be_shared_is_refused_with_a_sentence() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let (server, _) = notes(&home);
    let server = strs(&server);
    for (args, server, code, says) in [
        (
            &["a b", "--allow", "logging", "--to", "*"][..],
            &server[..],
            2,
            "cannot be a server's name",
        ),
        (
            &["x", "--allow", "sampling", "--to", "*"],
            &server,
            2,
            "no model stands behind it",
        ),
        (
            &["x", "--allow", "everything", "--to", "*"],
            &server,
            2,
            "is none of serverTools",
        ),
        (&["x", "--allow", "logging"], &server, 2, "--to"),
        (
            &["x", "--allow", "logging", "--to", "*"],
            &server,
            1,
            "has none of logging",
        ),
        (
            &["x", "--allow", "serverTools", "--to", "*"],
            &["false"],
            1,
            "is no MCP server",
        ),
        (
            &["x", "--allow", "serverTools", "--to", "*"],
            &["no-such-program"],
            1,
            "cannot be started",
        ),
    ] {
        let all = [&["mcp", "share"], args, &["--"], server].concat();
        let refused = home.run(&all).fails(code);
        assert!(refused.contains(says), "{refused}");
    }
    let refused = home.run(&["mcp", "use", "http://x"]).fails(2);
    assert!(refused.contains("mcp://PEER/NAME"), "{refused}");
    let mut nobody = Mcp::spawn(&mut home.peerbus(&["mcp", "use", "mcp://nobody/x"]));
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
    let error = fails(&mut nobody, "initialize", hello);
    assert!(
        error["message"]
            .to_string()
            .contains("nobody shares no x now"),
        "{error}"
    );
    broker.stop();
}
