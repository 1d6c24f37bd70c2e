//! `peerbus session`: the commands, with real adapters.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::orphans::Session;
use crate::support::{Broker, Home, Lines, Mcp, eventually, freeze};

pub(crate) fn listed(home: &Home) -> Vec<Value> {
    let text = home.run(&["session", "list", "--json"]).ok();
    let list: Value = serde_json::from_str(&text).expect("JSON");
    list["sessions"].as_array().cloned().unwrap_or_default()
}

pub(crate) fn names(home: &Home) -> Vec<String> {
    let name = |session: &Value| session["name"].as_str().unwrap_or_default().to_owned();
    listed(home).iter().map(name).collect()
}

/// A program that speaks to a node.
pub(crate) struct Node(BufReader<UnixStream>);

impl Node {
    pub(crate) fn of(session: &Value) -> Self {
        Self::at(session["socket"].as_str().expect("a path").as_ref())
    }

    pub(crate) fn at(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("it listens");
        Self(BufReader::new(stream))
    }

    fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0.get_mut().write_all(line.as_bytes()).expect("heard");
    }

    /// The next line; `None`: it closed the connection.
    pub(crate) fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        let patience = Some(std::time::Duration::from_secs(30));
        self.0.get_ref().set_read_timeout(patience).expect("a time");
        let read = self.0.read_line(&mut line).expect("it is not silent");
        (read > 0).then(|| serde_json::from_str(&line).expect("JSON"))
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.say(&call.to_string());
        self.hear().expect("an answer")
    }
}

#[test]
fn a_text_that_is_put_into_an_agents_session_waits_there_and_its_way_is_watched() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    assert_eq!(home.run(&["session", "list"]).ok(), "no sessions\n");
    let why = home.run(&["session", "watch", "bob"]).fails(1);
    assert!(why.contains("no live session"), "{why}");

    let mut session = Mcp::start(&home, "generic", "bob", "some\u{1b}[2Jbot");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    let table = home.run(&["session", "list"]).ok();
    assert!(
        table.contains("bob") && table.contains(r"some\u001b[2Jbot"),
        "{table}"
    );
    let socket = listed(&home)[0]["socket"]
        .as_str()
        .expect("a path")
        .to_owned();
    let mode = fs::metadata(&socket)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut watch = home.peerbus(&["session", "watch", "bob", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("it starts");
    let events = Lines::of(watch.stdout.take().expect("a pipe"));
    // Until somebody watches, there is nothing to see: what is put in before is no news.
    let first = eventually("it watches", || {
        home.run(&["session", "inject", "BOB", "hello"]).ok();
        events.next(std::time::Duration::from_millis(100))
    });
    let event: Value = serde_json::from_str(&first).expect("JSON");
    let id = event["id"].as_str().expect("an id").to_owned();
    assert_eq!(
        (&event["stage"], &event["from"]),
        (&json!("delivered"), &json!("peerbus"))
    );
    let listed = session.call("bus.inbox", json!({ "peek": true }));
    assert_eq!(listed["messages"][0]["kind"], "put_in", "{listed}");
    let drained = session.call("bus.drain", json!({}));
    assert!(drained.to_string().contains("hello"), "{drained}");
    let note = drained["note"].as_str().expect("a note");
    assert!(note.contains("a program that runs as your user"), "{note}");
    assert!(
        !note.contains("reply tool") && !note.contains("peers"),
        "{note}"
    );
    let seen = session.call("bus.ack", json!({ "ids": [id] }));
    assert_eq!(seen["acked"], json!([id]), "{seen}");
    events.find("that it is seen", |line| {
        let event: Value = serde_json::from_str(line).expect("JSON");
        (event["id"] == id.as_str() && event["stage"] == "seen").then_some(())
    });

    session.close();
    events.find("the session's end", |line| {
        line.contains(r#""status":"ended""#).then_some(())
    });
    assert!(watch.wait().expect("it ends").success());
    assert_eq!(names(&home), Vec::<String>::new());
}

#[test]
fn which_session_is_meant_is_never_guessed() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let _ann = Mcp::start(&home, "generic", "ann", "some-bot");
    eventually("ann is listed", || (names(&home) == ["ann"]).then_some(()));
    let bob = Mcp::start(&home, "generic", "bob", "some-bot");
    eventually("both are listed", || {
        (names(&home) == ["ann", "bob"]).then_some(())
    });
    let why = home.run(&["session", "inject", "hello"]).fails(2);
    assert!(
        why.contains("several sessions") && why.contains("--latest"),
        "{why}"
    );
    let why = home.run(&["session", "inject", "eve", "hello"]).fails(1);
    assert!(
        why.contains("eve") && why.contains("bob (") && !why.contains("Did you mean"),
        "{why}"
    );
    let why = home.run(&["session", "inject", "anm", "hello"]).fails(1);
    assert!(why.contains("Did you mean ann?"), "{why}");
    let why = home
        .run(&["session", "inject", "--latest", "bob", "hello"])
        .fails(2);
    assert!(why.contains("text alone"), "{why}");
    home.run(&["session", "inject", "--latest", "hello"]).ok();
    // Whoever takes the beginning of another's id for its name has that, and nothing else of the other's.
    let ann = listed(&home)[0]["id"].as_str().expect("an id").to_owned();
    let taken = &ann[..ann.len() - 1];
    let eve = Mcp::start(&home, "generic", taken, "some-bot");
    eventually("eve is listed by her name", || {
        names(&home).iter().any(|name| name == taken).then_some(())
    });
    let said = home.run(&["session", "inject", taken, "hello"]).ok();
    assert!(said.contains(&format!("queued for {taken} (")), "{said}");
    home.run(&["session", "inject", &ann, "hello"]).ok();
    eve.close();
    eventually("it is gone", || (names(&home).len() == 2).then_some(()));
    // A killed adapter leaves its entry until somebody looks.
    rustix::process::kill_process(bob.pid(), rustix::process::Signal::KILL).expect("it lives");
    eventually("bob is gone", || (names(&home) == ["ann"]).then_some(()));
    home.run(&["session", "inject", "hello"]).ok();
}

/// Puts a text into `bob`'s session and waits until it is seen, with a time that is not reached.
fn waiting(home: &Home) -> std::process::Child {
    let inject = ["session", "inject", "bob", "hello", "--wait", "seen=300"];
    let mut inject = home.peerbus(&inject);
    inject.stderr(Stdio::piped()).spawn().expect("it starts")
}

fn not_seen(inject: std::process::Child) -> String {
    let done = inject.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{said}");
    said
}

#[test]
fn who_waits_until_a_text_is_seen_is_told_that_it_will_not_be() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let mut bob = Mcp::start(&home, "generic", "bob", "some-bot");
    eventually("bob says that nothing wakes it", || {
        let peers = home.run(&["peers", "--json"]).ok();
        let peers: Value = serde_json::from_str(&peers).expect("JSON");
        let peers = peers["peers"].as_array()?.clone();
        let bob = peers.iter().find(|peer| peer["name"] == "bob")?;
        (bob["wake"] == json!([])).then_some(())
    });
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));

    let inject = waiting(&home);
    eventually("it is shown", || {
        let drained = bob.call("bus.drain", json!({}));
        drained.to_string().contains("hello").then_some(())
    });
    bob.call("bus.peers", json!({}));
    let said = not_seen(inject);
    assert!(said.contains("nothing wakes bob"), "{said}");
    let why = "not seen: bob acked it just now as pushed over drain; ";
    assert!(said.contains(why), "{said}");

    for wait in ["seen=0.1", "answer=0.1"] {
        let args = ["session", "inject", "bob", "later", "--wait", wait];
        let said = home.run(&args).fails(1);
        assert!(
            said.contains("not seen: bob's adapter got it")
                && said.contains("nothing wakes bob: it reads when it is told to"),
            "{said}"
        );
    }
    let args = ["session", "inject", "bob", "later", "--wait", "read"];
    assert!(home.run(&args).fails(2).contains("seen=SECONDS"));

    let inject = waiting(&home);
    eventually("it is there", || {
        let listed = bob.call("bus.inbox", json!({}));
        listed.to_string().contains("hello").then_some(())
    });
    bob.close();
    let said = not_seen(inject);
    assert!(said.contains("not seen: the session has ended"), "{said}");
}

#[test]
fn no_gate_is_named_where_the_client_offers_no_way() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let _bob = Mcp::start(&home, "generic", "bob", "some-bot");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    let client = std::process::id();
    eventually("its client is known", || {
        (listed(&home)[0]["pid"] == client).then_some(())
    });
    let why = home.run(&["session", "interrupt", "bob"]).fails(1);
    assert!(
        why.contains("its client (some-bot) offers no way") && !why.contains("gate"),
        "{why}"
    );
    let mut node = Node::of(&listed(&home)[0]);
    let control = node.call("session/control", json!({ "subtype": "mcp_status" }));
    assert_eq!(control["error"]["code"], -32000, "{control}");
}

#[test]
fn a_closed_gate_refuses_with_a_sentence() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let _bob = Mcp::start(&home, "generic", "bob", "some-bot");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    let file = home.credentials().with_file_name("sessions.toml");
    for (text, why) in [("inject = false", "inject = false"), ("inject =", "line 1")] {
        fs::write(&file, text).expect("it is written");
        let said = home.run(&["session", "inject", "bob", "hello"]).fails(1);
        let path = file.display().to_string();
        assert!(
            said.contains("`inject` is closed") && said.contains(&path),
            "{said}"
        );
        assert!(said.contains(why), "{said}");
        assert_eq!(listed(&home)[0]["gates"]["inject"], false);
    }
    fs::remove_file(&file).expect("it is there");
    home.run(&["session", "inject", "bob", "hello"]).ok();
}

#[test]
fn what_is_put_in_and_what_a_gate_refuses_stands_in_the_audit_chain() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Mcp::start(&home, "generic", "bob", "some-bot");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    assert_eq!(home.run(&["audit", "sessions"]).ok(), "");
    let mut node = Node::of(&listed(&home)[0]);
    let params = json!({ "prompt": "hello", "source": "evil\u{1b}[2J\" tool" });
    node.call("session/inject", params.clone())["result"]["id"]
        .as_str()
        .expect("it is accepted");
    fs::write(
        home.credentials().with_file_name("sessions.toml"),
        "inject = false",
    )
    .expect("it is written");
    assert_eq!(node.call("session/inject", params)["error"]["code"], -32003);
    let own = std::process::id();
    let uid = rustix::process::getuid().as_raw();
    let who = format!(r#"uid {uid} pid {own} source "evil\u001b[2J\" tool""#);
    let said = eventually("both are written", || {
        let said = home.run(&["audit", "sessions"]).ok();
        (said.lines().count() == 2).then_some(said)
    });
    let ends: Vec<_> = said.lines().map(|line| line.split_once(' ')).collect();
    let [done, refused] = ["done", "refused"].map(|word| format!("bob inject {word} {who}"));
    assert_eq!(
        ends.iter().flatten().map(|end| end.1).collect::<Vec<_>>(),
        [&*done, &*refused]
    );
    broker.stop();
    let json: Value =
        serde_json::from_str(&home.run(&["audit", "sessions", "--json"]).ok()).expect("JSON");
    assert_eq!(json["records"][1]["outcome"], "refused", "{json}");
    assert_eq!(json["records"][1]["pid"], own, "{json}");
    assert!(home.run(&["audit", "verify"]).ok().starts_with("OK "));
}

#[test]
fn a_stopped_adapter_is_not_waited_for() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let bob = Mcp::start(&home, "generic", "bob", "some-bot");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    let injected = home.run(&["session", "inject", "bob", "hello"]);
    let said = &injected.stderr;
    assert!(said.contains("nothing wakes bob"), "{said}");
    injected.ok();
    freeze(bob.pid());
    let why = home.run(&["session", "inject", "bob", "hello"]).fails(1);
    assert!(!why.contains("10 s") && why.contains("is stopped"), "{why}");
    rustix::process::kill_process(bob.pid(), rustix::process::Signal::CONT).expect("it lives");
    home.run(&["session", "inject", "bob", "hello"]).ok();
}

#[test]
fn who_cannot_be_asked_for_requests_is_named_and_nothing_is_said_of_it() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let stopped = ["bob", "cyd"].map(|name| Mcp::start(&home, "generic", name, "some-bot"));
    eventually("they are listed", || {
        (names(&home) == ["bob", "cyd"]).then_some(())
    });
    // Nothing tells what their clients ask.
    let asked = home.run(&["session", "approve"]);
    assert_eq!(asked.stdout, "nothing is asked that is known here\n");
    for name in ["bob", "cyd"] {
        let unknown = format!("whether {name} ");
        assert!(asked.stderr.contains(&unknown), "{}", asked.stderr);
    }
    let why = home.run(&["session", "approve", "bob"]).fails(1);
    assert!(why.contains("asks something is not known"), "{why}");
    let signal = |signal| {
        for one in &stopped {
            rustix::process::kill_process(one.pid(), signal).expect("it lives");
        }
    };
    stopped.iter().for_each(|one| freeze(one.pid()));
    for args in [&["session", "approve"][..], &["session", "deny", "bob"]] {
        let done = home.run(args);
        assert!(!done.stdout.contains("nothing"), "{}", done.stdout);
        let why = done.fails(1);
        for words in ["bob", "cyd", "as by Ctrl-Z", "not every session answered"] {
            assert!(why.contains(words), "{words}: {why}");
        }
        assert!(!why.contains("nothing came within"), "{why}");
    }
    let _ann = Mcp::start(&home, "generic", "ann", "some-bot");
    eventually("ann is listed", || {
        names(&home).contains(&"ann".into()).then_some(())
    });
    for verb in ["approve", "answer", "deny"] {
        let why = home.run(&["session", verb, "ann"]).fails(1);
        assert!(
            why.contains("whether ann ") && why.contains("is not known"),
            "{why}"
        );
        let others = ["not every session", "as by Ctrl-Z"];
        assert!(!others.iter().any(|word| why.contains(word)), "{why}");
    }
    signal(rustix::process::Signal::CONT);
}

#[test]
fn a_session_with_the_name_of_another_as_its_id_is_not_meant_by_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let file = home.credentials().with_file_name("sessions.toml");
    fs::write(file, "approve = true\ninject = true").expect("it is written");
    let bob = Session::start(&home, "bob");
    let mut eve = Session::start(&home, "eve");
    eventually("both are listed", || {
        (names(&home).len() == 2).then_some(())
    });
    let cleared =
        json!({ "hook_event_name": "SessionStart", "source": "clear", "session_id": "bob" });
    eve.tell(&format!("hook 1 {cleared}"));
    eve.hear("hook 1");
    let asks = json!({ "hook_event_name": "PermissionRequest", "session_id": "bob",
        "tool_name": "Bash", "tool_input": { "command": "ls" } });
    eve.tell(&format!("hook 2 {asks}"));
    let node = eventually("it asks", || {
        let said = home.run(&["session", "approve", "--json"]).ok();
        let said: Value = serde_json::from_str(&said).expect("JSON");
        said["approvals"][0]["request_id"].as_str()?;
        let all = listed(&home);
        let eve = all.iter().find(|one| one["name"] == "eve")?;
        let socket = Path::new(eve["socket"].as_str()?).file_stem()?;
        (eve["id"] == "bob").then(|| socket.to_str().map(str::to_owned))?
    });
    for args in [
        &["session", "approve", "bob"][..],
        &["session", "deny", "bob"],
        &["session", "inject", "bob", "hello"],
        &["session", "watch", "bob"],
    ] {
        let why = home.run(args).fails(2);
        assert!(
            why.contains("several sessions are meant: name ") && why.contains(&node),
            "{args:?}: {why}"
        );
    }
    // Nor what is meant for one who has gone.
    drop(bob);
    eventually("bob is away", || {
        let said = home.run(&["status", "bob"]).ok();
        said.contains("away").then_some(())
    });
    for args in [&["approve", "bob"][..], &["inject", "bob", "hello"]] {
        let why = home.run(&[&["session"], args].concat()).fails(1);
        assert!(why.contains("bob is away"), "{args:?}: {why}");
    }
    home.run(&["session", "deny", &node]).ok();
    assert!(eve.hear("hook 2").contains(r#""behavior":"deny""#));
    broker.stop();
}

/// Holds every place that a socket has, says so by a file, and goes when that goes.
const CROWD: &str = "import os, socket, sys, time\n\
    crowd, file = [], sys.stdin.readline().strip()\n\
    for number in range(100):\n\
    \x20   one = socket.socket(socket.AF_UNIX)\n\
    \x20   one.connect(sys.argv[1])\n\
    \x20   if number < 32:\n\
    \x20       try:\n\
    \x20           one.sendall(b'{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\\n')\n\
    \x20           one.recv(1)\n\
    \x20       except OSError: pass\n\
    \x20   crowd.append(one)\n\
    open(file, 'w').close()\n\
    while os.path.exists(file): time.sleep(0.01)";

#[test]
fn what_runs_below_an_agent_keeps_its_user_out_of_nothing() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Session::start(&home, "bob");
    let file = home.credentials().with_file_name("sessions.toml");
    fs::write(file, "approve = true").expect("it is written");
    let session = eventually("it is listed", || {
        listed(&home).into_iter().find(|one| one["name"] == "bob")
    });
    let asks = json!({ "hook_event_name": "PermissionRequest", "tool_name": "Bash",
        "tool_input": { "command": "ls" } });
    bob.tell(&format!("hook 1 {asks}"));
    let id = eventually("it asks", || {
        let said = home.run(&["session", "approve", "--json"]).ok();
        let said: Value = serde_json::from_str(&said).expect("JSON");
        Some(said["approvals"][0]["request_id"].as_str()?.to_owned())
    });
    let crowded = home.path().join("crowded");
    bob.tell(&format!(
        "ask {}",
        json!([CROWD, session["socket"], crowded])
    ));
    eventually("the crowd is there", || crowded.exists().then_some(()));
    let said = home.run(&["session", "approve"]).ok();
    assert!(said.contains(&id), "{said}");
    assert_eq!(home.run(&["held"]).ok(), "no mail waits for you\n");
    home.run_unread(&["session", "approve", &id]).ok();
    let heard = bob.hear("hook 1");
    assert!(heard.contains(r#""behavior":"allow""#), "{heard}");
    fs::remove_file(&crowded).expect("it is there");
    broker.stop();
}

#[test]
fn a_session_that_could_not_be_written_into_the_list_is_in_it_later() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let _ann = Mcp::start(&home, "generic", "ann", "some-bot");
    eventually("ann is listed", || (names(&home) == ["ann"]).then_some(()));
    let socket = listed(&home)[0]["socket"].clone();
    let socket = std::path::Path::new(socket.as_str().expect("a path"));
    let lock = fs::File::open(socket.with_file_name("index.lock")).expect("a lock");
    lock.lock().expect("it is free some time");
    let mut bob = Mcp::start(&home, "generic", "bob", "some-bot");
    // It is on the bus, and nothing changes any more.
    let peers = bob.call("bus.peers", json!({}));
    assert!(peers.to_string().contains("ann"), "{peers}");
    assert_eq!(names(&home), ["ann"]);
    drop(lock);
    eventually("bob is listed", || {
        (names(&home) == ["ann", "bob"]).then_some(())
    });
}
