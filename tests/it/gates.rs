//! What each gate lets through, and for whom: every method, with every gate, from everybody.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::{Value, json};

use crate::nodes::{NOBODY, open_up};
use crate::orphans::Session;
use crate::sessions::{listed, names};
use crate::support::{Broker, Home, Lines, Mcp, PATIENCE, eventually};

/// What a user can have in `sessions.toml`.
const FILES: [&str; 9] = [
    "",
    "inject = false",
    "inject = true",
    "inject = false\ninterrupt = true",
    "inject = false\napprove = true",
    "inject = false\ncontrol = true",
    "inject = false\nremote = [\"phone\", \"twin\"]",
    "inject = true\ninterrupt = true\napprove = true\ncontrol = true\nremote = [\"phone\", \"twin\"]",
    "inject = true\ninterrupt = true\napprove = true\ncontrol = true\nremote = [\"phone\"]\nx = 1",
];
/// Open for whatever the test itself has to do.
const OPEN: &str = "approve = true\nremote = [\"phone\", \"twin\"]";

/// Who asks at the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// A program of the user's that no agent runs.
    Program,
    /// A process below the session's own client.
    Agent,
    /// Another user's process, that somebody let get to the socket.
    OtherUser,
}

/// Which gates a file opens.
struct Opens {
    inject: bool,
    interrupt: bool,
    approve: bool,
    control: bool,
    remote: bool,
}

impl Opens {
    fn of(file: &str) -> Self {
        let broken = file.contains("x = 1");
        let has = |line: &str| !broken && file.lines().any(|one| one.starts_with(line));
        Self {
            inject: !broken && !has("inject = false"),
            interrupt: has("interrupt = true"),
            approve: has("approve = true"),
            control: has("control = true"),
            remote: has("remote"),
        }
    }
}

/// How an answer ends.
fn outcome(answer: &str) -> String {
    if answer.is_empty() {
        return "nothing".to_owned();
    }
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    let error = &answer["error"];
    match (error["code"].as_i64(), error["data"]["gate"].as_str()) {
        (None, _) => "done".to_owned(),
        (Some(-32003), Some(gate)) => format!("closed: {gate}"),
        (Some(-32003), None) if error["message"].to_string().contains("agent") => {
            "not for agents".to_owned()
        }
        (Some(-32003), None) => "never".to_owned(),
        (Some(-32000), _) => "impossible".to_owned(),
        (Some(code), _) => panic!("{code}: {error}"),
    }
}

/// What asking comes to: the gates in their order, then who may, then what the session can.
fn wanted(who: Who, gates: &[(&str, bool)], for_agents: bool, can: &str) -> String {
    let closed = gates.iter().find(|(_, open)| !open);
    match (who, closed) {
        (Who::OtherUser, _) => "nothing".to_owned(),
        (_, Some((gate, _))) => format!("closed: {gate}"),
        (Who::Agent, None) if !for_agents => "not for agents".to_owned(),
        _ => can.to_owned(),
    }
}

/// Programs that say lines at the socket of a session that a stand-in for Claude Code has.
struct World {
    home: Home,
    session: Session,
    program: Caller,
    other: Option<Caller>,
    phone: Mcp,
    stranger: Mcp,
    twin: Mcp,
    socket: PathBuf,
    hooks: usize,
    _broker: Broker,
}

/// See `caller.py`. It ends when its input does.
struct Caller {
    child: Child,
    input: Option<ChildStdin>,
    said: Lines,
}

impl Caller {
    fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        Self {
            input: child.stdin.take(),
            said: Lines::of(child.stdout.take().expect("a pipe")),
            child,
        }
    }

    fn ask(&mut self, line: &str) -> String {
        let input = self.input.as_mut().expect("it reads");
        writeln!(input, "{line}").expect("it reads");
        self.said.next(PATIENCE).expect("an answer")
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        drop(self.input.take());
        // The orphan ends with its input.
        let _ = self.child.wait();
    }
}

const CALLER: &str = include_str!("caller.py");

fn caller(mut python: Command, socket: &Path) -> Command {
    python.args(["-c", CALLER]).arg(socket);
    python
}

/// A token for this name that may approve. Made before there is an agent: it makes none.
fn approving(home: &Home, name: &str) -> String {
    let names = ["--names", name, "--rights", "send,approve"];
    let token = [&["token", "add", name], &names[..]].concat();
    home.run(&token).ok().trim().to_owned()
}

/// A peer with this token.
fn approver(home: &Home, name: &str, token: &str) -> Mcp {
    let mut command = home.peerbus(&["adapter", "--adapter", "generic", "--name", name]);
    let mut peer = Mcp::spawn(command.env("PEERBUS_TOKEN", token));
    peer.initialize("some-phone");
    peer
}

impl World {
    fn new() -> Self {
        let home = Home::new();
        let broker = Broker::start(&home);
        let tokens = ["phone", "stranger"].map(|name| approving(&home, name));
        let session = Session::start(&home, "bob");
        let listed = eventually("bob is listed", || {
            listed(&home).into_iter().find(|one| one["name"] == "bob")
        });
        let socket: PathBuf = listed["socket"].as_str().expect("a path").into();
        let mut program = caller(home.command("python3"), &socket);
        program.arg("orphan");
        let program = Caller::start(program);
        let other = rustix::process::getuid().is_root().then(|| {
            // The one of the system: others may lie where this user cannot look.
            let mut other = caller(Command::new("/usr/bin/python3"), &socket);
            other.current_dir("/").uid(NOBODY).gid(NOBODY);
            Caller::start(other)
        });
        let phone = approver(&home, "phone", &tokens[0]);
        let stranger = approver(&home, "stranger", &tokens[1]);
        let twin = Mcp::start(&home, "generic", "twin", "some-bot");
        eventually("all are there", || {
            let names = names(&home);
            ["bob", "phone", "stranger", "twin"]
                .iter()
                .all(|name| names.iter().any(|one| one == name))
                .then_some(())
        });
        // An adapter that starts closes the directory.
        open_up(&socket, home.path());
        Self {
            home,
            session,
            program,
            other,
            phone,
            stranger,
            twin,
            socket,
            hooks: 0,
            _broker: broker,
        }
    }

    fn gates(&self, text: &str) {
        let file = self.home.credentials().with_file_name("sessions.toml");
        fs::write(file, text).expect("it is written");
    }

    fn callers(&self) -> Vec<Who> {
        let other = self.other.is_some().then_some(Who::OtherUser);
        [Who::Agent]
            .into_iter()
            .chain(other)
            .chain([Who::Program])
            .collect()
    }

    fn ask(&mut self, who: Who, method: &str, params: &Value) -> String {
        let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        match who {
            Who::Program => self.program.ask(&line.to_string()),
            Who::OtherUser => self.other.as_mut().expect("root").ask(&line.to_string()),
            Who::Agent => {
                let call = json!([CALLER, self.socket, line.to_string()]);
                self.session.tell(&format!("ask {call}"));
                self.session.hear("asked")
            }
        }
    }

    /// Starts a hook of the session at an event, and gives its number.
    fn begin(&mut self, event: &str, more: &Value) -> usize {
        self.hooks += 1;
        let mut occasion = more.clone();
        occasion["hook_event_name"] = event.into();
        self.session
            .tell(&format!("hook {} {occasion}", self.hooks));
        self.hooks
    }

    /// What a hook says at its end.
    fn end(&mut self, hook: usize) -> String {
        self.session.hear(&format!("hook {hook}"))
    }

    fn hook(&mut self, event: &str) -> String {
        let hook = self.begin(event, &json!({}));
        self.end(hook)
    }

    /// Asks while a turn is under way, and checks whether that is ended.
    fn during_a_turn(&mut self, who: Who, method: &str, params: &Value) -> String {
        self.hook("UserPromptSubmit");
        let answer = outcome(&self.ask(who, method, params));
        let said = self.hook("PostToolUse");
        let ended = said.contains(r#""continue":false"#);
        assert_eq!(
            ended,
            answer == "done",
            "{who:?} {method}: {answer}, {said}"
        );
        answer
    }

    /// Has the session ask whether it may run this, while the gates are open. Gives the hook, the
    /// request and its digest.
    fn permission(&mut self, command: &str) -> (usize, Value) {
        self.gates(OPEN);
        let tool = json!({ "tool_name": "Bash", "tool_input": { "command": command } });
        let hook = self.begin("PermissionRequest", &tool);
        let request = eventually("it asks", || self.request(command));
        (hook, request)
    }

    /// The request that is open for a command.
    fn request(&mut self, command: &str) -> Option<Value> {
        let status = self.ask(Who::Program, "session/status", &json!({}));
        let mut status: Value = serde_json::from_str(&status).expect("JSON");
        let approvals = status["result"]["approvals"].as_array_mut()?;
        let at = approvals
            .iter()
            .position(|one| one["input"]["command"] == command)?;
        Some(approvals.swap_remove(at))
    }

    /// Has somebody allow a request under these gates, and checks that this is the verdict if it is
    /// to be one, and that the dialog goes on to wait if not.
    fn approves(
        &mut self,
        file: &str,
        what: &str,
        allowed: bool,
        tries: impl FnOnce(&mut Self, &Value),
    ) {
        let command = format!("run {what} {}", self.hooks);
        let (hook, request) = self.permission(&command);
        self.gates(file);
        tries(self, &request);
        let open = self.request(&command).is_some();
        assert_eq!(open, !allowed, "{what}, {file:?}");
        if open {
            self.gates(OPEN);
            let params = json!({ "request_id": request["request_id"], "decision": "deny" });
            let answer = self.ask(Who::Program, "session/approve", &params);
            assert_eq!(outcome(&answer), "done", "{answer}");
        }
        let verdict = self.end(hook);
        let behavior = if allowed { "allow" } else { "deny" };
        let says = verdict.contains(&format!(r#""behavior":"{behavior}""#));
        assert!(says, "{what}, {file:?}: {verdict}");
    }
}

/// Says `yes` to a request, and gives what the session answers to that.
fn says_yes(peer: &mut Mcp, request: &Value) -> String {
    let id = request["request_id"].as_str().expect("an id");
    let body = format!("yes {id}");
    let mut heard = peer.call("bus.send", json!({ "to": "bob", "body": body }));
    eventually("an answer", || {
        // It comes along with the result of any tool.
        let text = heard.to_string().replace('\\', "");
        let answers = text.match_indices("\"approval_re");
        let mut answers = answers.filter_map(|(at, _)| text.get(at..));
        let is = |answer: &&str| answer.get(..120).is_some_and(|begin| begin.contains(id));
        let found = answers.find(is).map(str::to_owned);
        heard = peer.call("bus.drain", json!({}));
        found
    })
}

/// The same with peers' words, which decide requests and nothing else.
fn peers_answer(world: &mut World, file: &str, opens: &Opens) {
    world.approves(file, "of a stranger", false, |world, request| {
        let told = says_yes(&mut world.stranger, request);
        assert!(told.contains("`remote`"), "{told}");
    });
    world.approves(file, "of a twin", false, |world, request| {
        let told = says_yes(&mut world.twin, request);
        let says = if opens.remote {
            "a token other than"
        } else {
            "`remote`"
        };
        assert!(told.contains(says), "{told}");
    });
    world.approves(file, "of a phone", opens.remote, |world, request| {
        let told = says_yes(&mut world.phone, request);
        assert_eq!(told.contains("peer:phone"), opens.remote, "{told}");
    });
}

#[test]
fn a_gate_opens_what_it_says_and_for_whom() {
    for file in FILES {
        // The governor ends conversations that are as long as all of these.
        let mut world = World::new();
        let opens = Opens::of(file);
        let inject = ("inject", opens.inject);
        let interrupt = ("interrupt", opens.interrupt);
        let approve = ("approve", opens.approve);
        let control = ("control", opens.control);
        for who in world.callers() {
            world.gates(file);
            let mut is = |method: &str, params: Value, wanted: String| {
                let answer = world.ask(who, method, &params);
                assert_eq!(
                    outcome(&answer),
                    wanted,
                    "{who:?} {method} {file:?}: {answer}"
                );
            };
            let watches = wanted(who, &[], true, "done");
            is("session/status", json!({}), watches.clone());
            is("session/subscribe", json!({}), watches);
            let hooks = json!({ "events": ["hook_callback"] });
            let may = wanted(who, &[approve, control], false, "done");
            is("session/subscribe", hooks, may);
            let may = wanted(who, &[inject], true, "done");
            is("session/inject", json!({ "prompt": "hello" }), may);
            let status = json!({ "subtype": "mcp_status" });
            let answer = json!({ "request_id": "x", "response": {} });
            let cannot = wanted(who, &[approve, control], false, "impossible");
            is("session/hook", answer, cannot);
            let cannot = wanted(who, &[control], false, "impossible");
            is("session/control", status, cannot);
            let bypass = json!({ "subtype": "set_permission_mode", "mode": "bypassPermissions" });
            let never = wanted(who, &[control], false, "never");
            is("session/control", bypass, never);
            is("session/held", json!({}), wanted(who, &[], false, "done"));
            let none = wanted(who, &[], false, "impossible");
            is("session/release", json!({ "id": "m1" }), none);
            // Nobody ends what its user runs in a terminal.
            let cannot = wanted(who, &[], false, "impossible");
            is("session/stop", json!({}), cannot);

            let answer = world.during_a_turn(who, "session/interrupt", &json!({}));
            let may = wanted(who, &[interrupt], false, "done");
            assert_eq!(answer, may, "{who:?} interrupts, {file:?}");
            let instead = json!({ "prompt": "hello", "mode": "interrupt" });
            let answer = world.during_a_turn(who, "session/inject", &instead);
            let may = wanted(who, &[inject, interrupt], false, "done");
            assert_eq!(answer, may, "{who:?} puts in instead, {file:?}");

            for (more, gates) in [
                (json!({}), &[approve][..]),
                (json!({ "updatedInput": {} }), &[approve, control]),
            ] {
                let may = wanted(who, gates, false, "done");
                world.approves(file, "at the socket", may == "done", |world, request| {
                    let mut params = more;
                    for name in ["request_id", "digest"] {
                        params[name] = request[name].clone();
                    }
                    params["decision"] = "allow".into();
                    let answer = world.ask(who, "session/approve", &params);
                    assert_eq!(outcome(&answer), may, "{who:?}, {file:?}: {answer}");
                });
            }
        }
        peers_answer(&mut world, file, &opens);
    }
}

#[test]
fn a_session_that_is_called_like_a_request_is_not_taken_for_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut session = Session::start(&home, "qkzmw");
    let file = home.credentials().with_file_name("sessions.toml");
    fs::write(file, "approve = true").expect("it is written");
    eventually("it is listed", || {
        listed(&home).into_iter().find(|one| one["name"] == "qkzmw")
    });
    let asks = json!({ "hook_event_name": "PermissionRequest", "tool_name": "Bash",
        "tool_input": { "command": "ls" } });
    session.tell(&format!("hook 1 {asks}"));
    let id = eventually("it asks", || {
        let said = home.run(&["session", "approve", "--json"]).ok();
        let said: Value = serde_json::from_str(&said).expect("JSON");
        Some(said["approvals"][0]["request_id"].as_str()?.to_owned())
    });
    for json in [&[][..], &["--json"]] {
        let said = home.run(&[&["session", "approve", "qkzmw"], json].concat());
        let why = said.fails(1);
        assert!(
            why.contains(&id) && why.contains("name the request"),
            "{why}"
        );
    }
    home.run(&["session", "approve", &id]).ok();
    assert!(session.hear("hook 1").contains(r#""behavior":"allow""#));
    broker.stop();
}

#[test]
fn what_was_done_to_a_session_and_what_was_not_is_audited() {
    let mut world = World::new();
    world.gates("interrupt = true");
    world.hook("UserPromptSubmit");
    for who in [Who::Agent, Who::Program] {
        for method in ["session/interrupt", "session/stop"] {
            world.ask(who, method, &json!({ "source": "table" }));
        }
    }
    let params = json!({ "subtype": "mcp_status", "source": "table" });
    world.ask(Who::Program, "session/control", &params);
    let said = eventually("all is written", || {
        let said = world.home.run(&["audit", "sessions"]).ok();
        (said.lines().count() == 5).then_some(said)
    });
    let words: Vec<_> = said
        .lines()
        .map(|line| {
            line.split_whitespace()
                .skip(2)
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    let wanted = [
        "interrupt refused",
        "control refused",
        "interrupt done",
        "control failed",
        "control refused",
    ];
    assert_eq!(words, wanted, "{said}");
    assert!(
        said.lines()
            .all(|line| line.contains("uid ") && line.ends_with(r#"source "table""#))
    );
}
