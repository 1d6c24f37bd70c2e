//! Who a session is, over time: its name comes back with it, changes, and ends.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, eventually};

/// An agent's adapter.
struct Agent {
    mcp: Mcp,
    /// Everything that its tools told it, and that was pushed to it.
    heard: String,
}

impl Agent {
    fn start(command: &mut Command) -> Self {
        let mut mcp = Mcp::spawn(command);
        mcp.initialize("some-bot");
        let heard = String::new();
        Self { mcp, heard }
    }

    /// The adapter of the client's session `id`.
    fn session(home: &Home, id: &str) -> Self {
        Self::start(home.peerbus(&["adapter"]).env("CLAUDE_CODE_SESSION_ID", id))
    }

    /// The adapter of a session of Claude Code that gives its servers no id.
    fn claude(home: &Home) -> Self {
        Self::start(&mut home.peerbus(&["adapter", "--adapter", "cc"]))
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.mcp.call(tool, arguments);
        self.heard += &answer.to_string();
        let pushed = self.mcp.notifications.drain(..);
        self.heard.extend(pushed.map(|message| message.to_string()));
        answer
    }

    /// Its own name, once it is registered.
    fn name(&mut self) -> String {
        let peers = self.call("bus.peers", json!({}));
        peers["self"].as_str().expect("a name").to_owned()
    }

    #[track_caller]
    fn is_called(&mut self, name: &str) {
        eventually("the session has its name again", || {
            (self.name() == name).then_some(())
        });
    }

    /// Mail comes with whichever answer is next, or is drained.
    fn hears(&mut self, texts: &[&str]) {
        eventually(&format!("{texts:?} comes"), || {
            self.call("bus.inbox", json!({}));
            texts
                .iter()
                .all(|text| self.heard.contains(text))
                .then_some(())
        });
    }
}

/// What Claude Code writes about its process, which is the test's: the session it serves.
fn serves(home: &Home, id: &str) {
    let dir = home.path().join(".claude/sessions");
    std::fs::create_dir_all(&dir).expect("a directory");
    let file = dir.join(format!("{}.json", std::process::id()));
    let text = json!({ "pid": std::process::id(), "sessionId": id });
    std::fs::write(file, text.to_string()).expect("a file");
}

/// What a hook of the session tells its adapter.
fn hook(home: &Home, source: &str, id: &str) -> String {
    let given = json!({ "hook_event_name": "SessionStart", "source": source, "session_id": id });
    let mut hook = home.peerbus(&["hook"]);
    hook.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hook = hook.spawn().expect("the hook starts");
    let mut stdin = hook.stdin.take().expect("a pipe");
    let given = given.to_string();
    stdin.write_all(given.as_bytes()).expect("the hook reads");
    drop(stdin);
    let output = hook.wait_with_output().expect("our child");
    String::from_utf8(output.stdout).expect("text")
}

/// Waits until a session is remembered, and gives its name.
fn bound(home: &Home, id: &str) -> String {
    let file = home.path().join(".local/state/peerbus/sessions.json");
    eventually("the session is remembered", || {
        let bindings: Value = serde_json::from_slice(&std::fs::read(&file).ok()?).ok()?;
        let bindings = bindings["sessions"].as_array().expect("bindings");
        let own = bindings.iter().find(|binding| binding[0] == id)?;
        own[1].as_str().map(str::to_owned)
    })
}

#[test]
fn a_session_that_only_its_client_knows_is_found_again() {
    let home = Home::new();
    let broker = Broker::start(&home);
    // The file comes after the adapter.
    let mut first = Agent::claude(&home);
    let name = first.name();
    serves(&home, "s-1");
    assert_eq!(bound(&home, "s-1"), name);
    first.mcp.close();
    home.run(&["send", &name, "while you were away"]).ok();

    // Resumed, it is about another session for a moment.
    serves(&home, "never-was");
    let mut resumed = Agent::claude(&home);
    bound(&home, "never-was");
    serves(&home, "s-1");
    resumed.is_called(&name);
    resumed.hears(&["while you were away"]);
    resumed.mcp.close();
    broker.stop();
}

#[test]
fn a_cleared_session_keeps_its_name() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let start = |id: &str| {
        let mut command = home.peerbus(&["adapter", "--adapter", "cc"]);
        Agent::start(command.env("CLAUDE_CODE_SESSION_ID", id))
    };
    serves(&home, "s-1");
    let mut agent = start("s-1");
    let name = agent.name();
    agent.call("bus.send", json!({ "to": name, "body": "a name in use" }));
    serves(&home, "s-2");
    assert_eq!(bound(&home, "s-2"), name);
    assert_eq!(agent.name(), name);
    // It ends before anybody looks.
    serves(&home, "s-3");
    agent.mcp.close();

    for id in ["s-2", "s-3"] {
        serves(&home, id);
        let mut resumed = start(id);
        assert_eq!(resumed.name(), name, "{id}");
        resumed.mcp.close();
    }
    broker.stop();
}

#[test]
fn hooks_tell_which_session_it_is() {
    let home = Home::new();
    let broker = Broker::start(&home);
    serves(&home, "s-1");
    let mut agent = Agent::claude(&home);
    let name = agent.name();
    agent.call("bus.send", json!({ "to": name, "body": "a name in use" }));
    // The file stays as it is.
    hook(&home, "clear", "s-2");
    assert_eq!(bound(&home, "s-2"), name);
    agent.mcp.close();

    serves(&home, "never-was");
    let mut resumed = Agent::claude(&home);
    let said = hook(&home, "resume", "s-2");
    assert!(said.contains(&format!("is {name}.")), "{said}");
    assert_eq!(resumed.name(), name);
    resumed.mcp.close();
    broker.stop();
}

#[test]
fn a_name_that_was_given_is_nobodys_session() {
    let home = Home::new();
    let broker = Broker::start(&home);
    serves(&home, "s-1");
    let mut command = home.peerbus(&["adapter", "--adapter", "cc"]);
    let mut agent = Agent::start(command.env("PEERBUS_NAME", "ada"));
    hook(&home, "clear", "s-2");
    assert_eq!(agent.name(), "ada");
    agent.mcp.close();
    assert!(
        !home
            .path()
            .join(".local/state/peerbus/sessions.json")
            .exists()
    );
    broker.stop();
}

#[test]
fn a_resumed_session_gets_its_name_and_its_queue_back() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut first = Agent::session(&home, "s-1");
    let name = first.name();
    first.mcp.close();
    home.run(&["send", &name, "while you were away"]).ok();

    let mut resumed = Agent::session(&home, "s-1");
    assert_eq!(resumed.name(), name);
    resumed.hears(&["while you were away"]);
    let mut twin = Agent::session(&home, "s-1");
    let other = twin.name();
    assert_ne!(other, name, "the name is in use");
    let mut stranger = Agent::session(&home, "s-2");
    let third = stranger.name();
    assert!(third != name && third != other);
    for agent in [twin, stranger, resumed] {
        agent.mcp.close();
    }

    let mut resumed = Agent::session(&home, "s-1");
    assert_eq!(resumed.name(), name, "the twin did not take it");
    resumed.mcp.close();
    let file = home.path().join(".local/state/peerbus/sessions.json");
    let metadata = std::fs::metadata(&file).expect("the bindings");
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(!file.with_extension("json.new").exists());
    broker.stop();
}

#[test]
fn a_renamed_session_keeps_its_mail_and_is_found_under_both_names() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut agent = Agent::session(&home, "s-1");
    let old = agent.name();
    agent.call("bus.rename", json!({ "name": "reviewer" }));
    assert_eq!(agent.name(), "reviewer");
    home.run(&["send", &old, "to the old name"]).ok();
    home.run(&["send", "reviewer", "to the new one"]).ok();
    agent.hears(&["to the old name", "to the new one"]);
    agent.mcp.close();
    let mut agent = Agent::session(&home, "s-1");
    assert_eq!(agent.name(), "reviewer", "the name that the session chose");
    agent.mcp.close();
    broker.stop();
}

#[test]
fn a_name_is_put_together_from_where_the_session_runs() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let project = home.path().join("my project");
    std::fs::create_dir_all(project.join(".git")).expect("a project");
    std::fs::write(project.join(".git/HEAD"), "ref: refs/heads/fix/it\n").expect("a branch");
    let mut command = home.peerbus(&["adapter"]);
    command
        .current_dir(&project)
        .env("USER", "ann")
        .env("PEERBUS_NAME", "{user}.{project}.{branch}");
    let mut agent = Agent::start(&mut command);
    assert_eq!(agent.name(), "ann.my-project.fix-it");
    agent.mcp.close();
    let said = home.run(&["adapter", "--name", "x-{porject}"]).fails(2);
    assert!(
        said.contains("{porject}") && said.contains("--name or PEERBUS_NAME"),
        "{said}"
    );
    broker.stop();
}

#[test]
fn the_operator_ends_a_name_and_nothing_is_lost_in_silence() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for name in ["old", "gone", "heir"] {
        home.run(&["recv", "--name", name, "--timeout", "1"]).ok();
    }
    let mut ada = Agent::start(&mut home.peerbus(&["adapter", "--name", "ada"]));
    ada.call("bus.send", json!({ "to": "old", "body": "for the heir" }));
    ada.call("bus.send", json!({ "to": "gone", "body": "for nobody" }));
    let said = home.apart(&["names", "retire", "old", "--to", "heir"]).ok();
    assert!(said.contains("heir"), "{said}");
    home.apart(&["names", "retire", "gone"]).ok();
    let said = home.apart(&["names", "retire", "nobody"]).fails(1);
    assert!(said.contains("no peer named nobody"), "{said}");

    let received = home
        .run(&["recv", "--name", "heir", "--count", "1", "--timeout", "30"])
        .ok();
    assert!(received.contains("for the heir"), "{received}");
    ada.hears(&["gone ended for good"]);
    let refused = ada
        .mcp
        .call_fails("bus.send", json!({ "to": "gone", "body": "late" }));
    assert!(refused.contains("nobody here is called gone"), "{refused}");
    home.apart(&["names", "retire", "ada"]).ok();
    let ended = eventually("ada is off the bus", || {
        let answer = ada.mcp.request(
            "tools/call",
            json!({ "name": "bus.peers", "arguments": {} }),
        );
        let said = answer.to_string();
        said.contains("was ended for good").then_some(said)
    });
    assert!(!ended.contains("rename"), "{ended}");
    // A made-up name that is ended is no reason to come back under another one.
    let mut made_up = Agent::session(&home, "s-1");
    let name = made_up.name();
    home.apart(&["names", "retire", &name]).ok();
    eventually("it is off the bus", || {
        let call = json!({ "name": "bus.peers", "arguments": {} });
        let answer = made_up.mcp.request("tools/call", call).to_string();
        answer
            .contains(&format!("{name} was ended for good"))
            .then_some(())
    });
    let peers = home.run(&["peers"]).ok();
    assert!(!peers.contains("some-bot"), "{peers}");
    broker.stop();
}
