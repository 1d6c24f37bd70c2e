//! Hooks of Claude Code, run as it runs them: children of the process that started the adapter.

use std::io::{Read as _, Write as _};
use std::process::{Child, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, eventually};

const TOOL: &str = "PostToolUse";
const PROMPT: &str = "UserPromptSubmit";

/// A worker, and a session whose adapter may wake it over the paths of `wake`.
struct Rig {
    home: Home,
    broker: Broker,
    worker: Mcp,
    /// How the session was started, in the words of its client.
    entry: &'static str,
}

impl Rig {
    fn start() -> Self {
        let home = Home::new();
        let broker = Broker::start(&home);
        let worker = Mcp::start(&home, "generic", "worker", "some-bot");
        Self {
            home,
            broker,
            worker,
            entry: "cli",
        }
    }

    fn session(&self, wake: &str) -> Mcp {
        let args = ["adapter", "--adapter", "cc", "--name", "session"];
        let mut command = self.home.peerbus(&args);
        let mut session = Mcp::spawn(command.env("PEERBUS_WAKE", wake));
        session.initialize("claude-code");
        session.call("bus.peers", json!({}));
        session
    }

    /// Sends to the session and waits until its adapter has the message.
    #[track_caller]
    fn send(&mut self, body: &Value) -> String {
        let sent = self
            .worker
            .call("bus.send", json!({ "to": "session", "body": body }));
        let id = sent["id"].as_str().expect("an id").to_owned();
        eventually("the message is delivered", || {
            let status = self.worker.call("bus.status", json!({ "id": id }));
            let text = status.to_string();
            (text.contains("delivered") || text.contains("pushed")).then_some(())
        });
        id
    }

    /// Starts `peerbus hook` with words, on an event.
    fn hook(&self, words: &[&str], event: &str, more: &Value) -> Child {
        let mut given = json!({
            "session_id": "0b9f0c3e", "transcript_path": "/nowhere/0b9f0c3e.jsonl",
            "cwd": self.home.path(), "hook_event_name": event, "permission_mode": "default",
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            given[key] = value.clone();
        }
        self.hook_given(words, given.to_string().as_bytes())
    }

    fn hook_given(&self, words: &[&str], given: &[u8]) -> Child {
        let mut args = vec!["hook"];
        args.extend_from_slice(words);
        let mut hook = self.home.peerbus(&args);
        hook.env("CLAUDE_CODE_ENTRYPOINT", self.entry);
        hook.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut hook = hook.spawn().expect("the hook starts");
        let mut stdin = hook.stdin.take().expect("a pipe");
        stdin.write_all(given).expect("the hook reads");
        hook
    }

    /// What `peerbus hook` prints on an event; `null` when that is nothing.
    #[track_caller]
    fn context(&self, event: &str, more: &Value) -> Value {
        let output = ended(self.hook(&[], event, more));
        assert_eq!(
            (output.status.code(), &*output.stderr),
            (Some(0), &b""[..]),
            "{event}"
        );
        if output.stdout.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The context that `peerbus hook` adds on an event; empty when that is nothing.
    #[track_caller]
    fn added(&self, event: &str) -> String {
        let said = self.context(event, &json!({}));
        if said.is_null() {
            return String::new();
        }
        let output = &said["hookSpecificOutput"];
        assert_eq!(output["hookEventName"], event, "{said}");
        output["additionalContext"]
            .as_str()
            .expect("a text")
            .to_owned()
    }

    /// Starts a hook that waits, and waits until peers see that it does.
    #[track_caller]
    fn waiter(&mut self) -> Child {
        let waiter = self.hook(&["wait"], "SessionStart", &json!({ "source": "startup" }));
        self.rewakes(true);
        waiter
    }

    /// Waits until the session can be rewaked, or cannot any more.
    #[track_caller]
    fn rewakes(&mut self, wanted: bool) {
        eventually("the worker sees whether a hook waits", || {
            let peers = self.worker.call("bus.peers", json!({}));
            let details = peers["details"].as_array().cloned().unwrap_or_default();
            let session = details.iter().find(|peer| peer["name"] == "session")?;
            let wakes = session["wake"]
                .as_array()
                .is_some_and(|paths| paths.contains(&json!("rewake")));
            (wakes == wanted).then_some(())
        });
    }
}

#[track_caller]
fn ended(hook: Child) -> Output {
    hook.wait_with_output().expect("our child")
}

/// Checks that it ended without a word and without a fault.
#[track_caller]
fn silent(output: &Output) {
    let shown = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*shown), (Some(0), ""));
    assert!(output.stdout.is_empty());
}

/// Checks that it rewakes its session, and gives the text.
#[track_caller]
fn rewake(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(output.stdout.is_empty());
    text
}

#[test]
fn a_message_rewakes_a_session_through_the_hook_that_waits() {
    let mut rig = Rig::start();
    let session = rig.session("rewake");
    let waiter = rig.waiter();
    let id = rig.send(&json!("the tests are green"));
    let text = rewake(&ended(waiter));
    for part in ["the tests are green", "worker", &id[24..]] {
        assert!(text.contains(part), "{part} in {text}");
    }
    rig.rewakes(false);
    let status = rig.worker.call("bus.status", json!({ "id": id }));
    assert!(status.to_string().contains("rewake"), "{status}");
    // Shown once: neither the next hook that waits nor the next turn has it again.
    let next = rig.waiter();
    assert_eq!(rig.added(PROMPT), "");
    session.close();
    silent(&ended(next));
    rig.broker.stop();
}

#[test]
fn what_is_unseen_joins_the_turn_under_way_once() {
    let mut rig = Rig::start();
    let session = rig.session("none");
    assert_eq!(rig.added(PROMPT), "");
    rig.send(&json!("first"));
    rig.send(&json!({ "text": "second", "priority": "quiet" }));
    let text = rig.added(PROMPT);
    assert!(text.contains("first") && text.contains("second"), "{text}");
    assert_eq!(rig.added(TOOL), "");
    assert_eq!(rig.added(PROMPT), "");

    rig.send(&json!("third"));
    // A bus tool's result has it already, and a subagent is somebody else.
    let ours = json!({ "tool_name": "mcp__peerbus__bus_peers" });
    assert_eq!(rig.context(TOOL, &ours), Value::Null);
    assert_eq!(rig.context(TOOL, &json!({ "agent_id": "a1" })), Value::Null);
    let text = rig.added(TOOL);
    assert!(text.contains("third") && !text.contains("first"), "{text}");
    session.close();
    rig.broker.stop();
}

#[test]
fn a_hooks_text_in_a_tools_result_proves_nothing() {
    let mut rig = Rig::start();
    let _session = rig.session("none");
    let projects = rig.home.path().join(".claude/projects/p");
    std::fs::create_dir_all(&projects).expect("a directory");
    let file = projects.join("0b9f0c3e.jsonl");
    std::fs::write(&file, "").expect("a file");
    // The first hook is one that a tool runs, which prints what it was given.
    let [printed, shown] = ["first", "second"].map(|text| {
        let id = rig.send(&json!(text));
        let said = rig.context(TOOL, &json!({ "transcript_path": file }));
        let said = &said["hookSpecificOutput"]["additionalContext"];
        (id, said.as_str().expect("a text").to_owned())
    });
    let result = json!({ "type": "tool_result", "content": printed.1 });
    let hook = json!({ "type": "hook_additional_context", "content": [shown.1] });
    let lines = [
        json!({ "type": "user", "uuid": "a", "message": { "content": [result] } }),
        json!({ "type": "assistant", "uuid": "b", "parentUuid": "a", "requestId": "1" }),
        json!({ "type": "attachment", "uuid": "c", "attachment": hook }),
        json!({ "type": "assistant", "uuid": "d", "parentUuid": "c", "requestId": "2" }),
    ];
    let lines = lines.map(|line| format!("{line}\n")).concat();
    std::fs::write(&file, lines).expect("a file");
    let mut ask = |id: &str| rig.worker.call("bus.status", json!({ "id": id }));
    let mut status = |id: &str| ask(id).to_string();
    let seen = || status(&shown.0).contains("seen").then_some(());
    eventually("the hook's text is seen", seen);
    let told = status(&printed.0);
    assert!(
        !told.contains("seen") && !told.contains("presented"),
        "{told}"
    );
    rig.broker.stop();
}

#[test]
fn a_turn_goes_on_for_new_mail_but_not_twice_in_a_row() {
    let mut rig = Rig::start();
    let session = rig.session("none");
    let over = json!({ "stop_hook_active": false });
    let again = json!({ "stop_hook_active": true });
    assert_eq!(rig.context("Stop", &over), Value::Null);
    rig.send(&json!({ "text": "no hurry", "priority": "quiet" }));
    assert_eq!(rig.context("Stop", &over), Value::Null);
    rig.send(&json!("before you go"));
    let said = rig.context("Stop", &over);
    assert_eq!(said["decision"], "block", "{said}");
    let reason = said["reason"].as_str().expect("a text");
    assert!(reason.contains("before you go"), "{reason}");
    assert_eq!(rig.context("Stop", &over), Value::Null);

    rig.send(&json!("one more thing"));
    assert_eq!(rig.context("Stop", &again), Value::Null);
    assert!(rig.added(PROMPT).contains("one more thing"));
    session.close();
    rig.broker.stop();
}

#[test]
fn a_session_learns_its_name_when_it_starts() {
    let rig = Rig::start();
    // The hook that waits may be there before the adapter.
    let early = rig.hook(&["wait"], "SessionStart", &json!({ "source": "startup" }));
    assert_eq!(rig.added("SessionStart"), "");
    let mut rig = rig;
    let session = rig.session("rewake");
    rig.rewakes(true);
    let text = rig.added("SessionStart");
    assert!(text.contains("session"), "{text}");
    rig.send(&json!("good morning"));
    assert!(rewake(&ended(early)).contains("good morning"));
    session.close();
    rig.broker.stop();
}

#[test]
fn a_session_that_is_not_on_the_bus_learns_why() {
    let rig = Rig::start();
    let holder = Mcp::start(&rig.home, "generic", "session", "some-bot");
    eventually("the name is in use", || {
        let peers = rig.home.run(&["peers"]).ok();
        peers.contains("session").then_some(())
    });
    let mut command = rig.home.peerbus(&["adapter", "--adapter", "cc"]);
    let mut session = Mcp::spawn(command.args(["--name", "session"]));
    session.initialize("claude-code");
    eventually("the session is told", || {
        let text = rig.added("SessionStart");
        let refused = text.contains("not connected") && text.contains("session is in use");
        refused.then_some(())
    });
    session.close();
    holder.close();
    rig.broker.stop();
}

#[test]
fn a_process_that_is_no_child_of_the_session_gets_nothing() {
    let mut rig = Rig::start();
    // The shell is the adapter's client: this process stands above it.
    let run = format!(
        "{} adapter --adapter cc --name session; exit $?",
        env!("CARGO_BIN_EXE_peerbus")
    );
    let mut shell = rig.home.command("sh");
    shell.args(["-c", &run]).env("PEERBUS_WAKE", "none");
    let mut session = Mcp::spawn(&mut shell);
    session.initialize("claude-code");
    session.call("bus.peers", json!({}));
    rig.send(&json!("for the session"));

    let sockets = rig.home.path().join(".local/state/peerbus/sessions");
    // The worker has one, too, at which no hook is served: it is of no client.
    let is_sessions = |path: &std::path::PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name.ends_with(".sock") && !name.starts_with("0.")
    };
    let entries = std::fs::read_dir(sockets).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let found: Vec<_> = paths.filter(is_sessions).collect();
    let [socket] = found.as_slice() else {
        panic!("{found:?}");
    };
    let connect = || std::os::unix::net::UnixStream::connect(socket).expect("the adapter listens");
    let mut hook = connect();
    let on = json!({
        "hook_event_name": TOOL, "session_id": "stranger", "transcript_path": "/tmp/mine.jsonl",
    });
    let params = json!({ "wait": false, "on": on });
    let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "hook", "params": params });
    // It may be refused before it has spoken.
    let _ = writeln!(hook, "{ask}");
    let mut answer = Vec::new();
    let _ = hook.read_to_end(&mut answer);
    assert_eq!(String::from_utf8_lossy(&answer), "");
    // Any program of the user's may speak to the node.
    let mut program = connect();
    let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/status" });
    writeln!(program, "{ask}").expect("it is heard");
    program
        .shutdown(std::net::Shutdown::Write)
        .expect("it has said all");
    let mut answer = String::new();
    program.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains(r#""client":"claude-code""#), "{answer}");
    let peers = session.call("bus.peers", json!({})).to_string();
    assert!(peers.contains("for the session"), "{peers}");
    session.close();
    rig.broker.stop();
}

#[test]
fn an_agent_inside_the_session_does_not_get_its_mail() {
    let mut rig = Rig::start();
    let session = rig.session("rewake");
    assert_eq!(rig.added(PROMPT), "");
    rig.send(&json!("for the session"));
    let inner = json!({ "session_id": "inner", "source": "startup" });
    for event in ["SessionStart", PROMPT, TOOL, "Stop"] {
        assert_eq!(rig.context(event, &inner), Value::Null, "{event}");
    }
    silent(&ended(rig.hook(&["wait"], "SessionStart", &inner)));
    assert!(rig.added(TOOL).contains("for the session"));

    for source in ["clear", "resume"] {
        let cleared = json!({ "session_id": source, "source": source });
        let text = rig.context("SessionStart", &cleared).to_string();
        assert!(text.contains("this session is session"), "{text}");
        rig.send(&json!(source));
        let text = rig.context(TOOL, &cleared).to_string();
        assert!(text.contains(source), "{text}");
    }
    session.close();
    rig.broker.stop();
}

#[test]
fn one_hook_waits_and_it_is_the_last() {
    let mut rig = Rig::start();
    let session = rig.session("rewake");
    let first = rig.waiter();
    let second = rig.hook(&["wait"], "Stop", &json!({}));
    silent(&ended(first));
    rig.send(&json!("for the second"));
    assert!(rewake(&ended(second)).contains("for the second"));
    session.close();
    rig.broker.stop();
}

#[test]
fn a_dialog_that_names_no_tool_ends_at_once_and_takes_no_waiters_place() {
    let mut rig = Rig::start();
    let session = rig.session("rewake");
    let waiter = rig.waiter();
    for tool in [json!(null), json!(7), json!("x".repeat(5_000))] {
        let given = json!({ "tool_name": tool, "tool_input": { "command": "ls" } });
        assert_eq!(rig.context("PermissionRequest", &given), Value::Null);
    }
    rig.send(&json!("for the one that waits"));
    assert!(rewake(&ended(waiter)).contains("for the one that waits"));
    session.close();
    rig.broker.stop();
}

#[test]
fn a_hook_waits_for_a_closed_gate_beside_a_dialog_alone() {
    let mut rig = Rig::start();
    let session = rig.session("none");
    let asks = json!({ "tool_name": "Bash", "tool_input": { "command": "ls" } });
    let mut inside = asks.clone();
    inside["agent_id"] = "a".into();
    for (entry, asks) in [("cli", &inside), ("sdk-cli", &asks), ("", &asks)] {
        rig.entry = entry;
        let mut hook = rig.hook(&[], "PermissionRequest", asks);
        eventually("the hook ends", || hook.try_wait().expect("our child"));
        silent(&ended(hook));
    }
    session.close();
    rig.broker.stop();
}

#[test]
fn what_a_killed_hook_was_waiting_for_is_not_lost() {
    let mut rig = Rig::start();
    let session = rig.session("rewake");
    let mut waiter = rig.waiter();
    kill_process(Pid::from_child(&waiter), Signal::KILL).expect("our child");
    waiter.wait().expect("our child");
    rig.rewakes(false);
    rig.send(&json!("still here"));
    assert!(rig.added(TOOL).contains("still here"));
    session.close();
    rig.broker.stop();
}

#[test]
fn a_hook_that_waits_ends_with_the_shell_that_runs_it() {
    let mut rig = Rig::start();
    let session = rig.session("rewake");
    let run = format!("{} hook wait; exit $?", env!("CARGO_BIN_EXE_peerbus"));
    let mut shell = rig.home.command("sh");
    shell
        .args(["-c", &run])
        .env("CLAUDE_CODE_ENTRYPOINT", rig.entry)
        .stdin(Stdio::piped());
    let mut shell = shell.spawn().expect("a shell");
    let mut stdin = shell.stdin.take().expect("a pipe");
    stdin
        .write_all(br#"{"hook_event_name":"Stop"}"#)
        .expect("the hook reads");
    drop(stdin);
    rig.rewakes(true);
    shell.kill().expect("our child");
    shell.wait().expect("our child");
    rig.rewakes(false);
    rig.send(&json!("nobody waits"));
    assert!(rig.added(PROMPT).contains("nobody waits"));
    session.close();
    rig.broker.stop();
}

#[test]
fn a_hook_that_has_nothing_to_do_says_nothing() {
    let mut rig = Rig::start();
    for event in ["SessionStart", PROMPT, TOOL, "Stop", "PreCompact"] {
        assert_eq!(rig.context(event, &json!({})), Value::Null, "{event}");
    }
    silent(&ended(rig.hook(&["wait"], "Stop", &json!({}))));
    let large = json!({ "tool_response": "x".repeat(2_000_000) });
    assert_eq!(rig.context(TOOL, &large), Value::Null);

    let session = rig.session("rewake");
    for given in ["", "{", "[1]", "null", "\u{0}", r#"{"hook_event_name":7}"#] {
        silent(&ended(rig.hook_given(&[], given.as_bytes())));
    }
    for words in [&["later"][..], &["wait", "--for", "ever"], &["--newer"]] {
        silent(&ended(rig.hook(words, PROMPT, &json!({}))));
    }
    // A session without a user would wait for the hook.
    for entry in ["sdk-cli", "sdk-py", ""] {
        rig.entry = entry;
        silent(&ended(rig.hook(&["wait"], "SessionStart", &json!({}))));
    }
    rig.entry = "cli";
    // Where the user does not want to be woken this way, no hook waits.
    session.close();
    let session = rig.session("channel");
    silent(&ended(rig.hook(&["wait"], "Stop", &json!({}))));
    session.close();
    rig.broker.stop();
}
