//! What the person is told who owns ten agents: the same of each, everywhere.

mod elsewhere;
mod forged;
mod names;
mod stopped;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use peerbus_test_support::preload::preload;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::orphans::Session;
use crate::requests::{Asking, Holder};
use crate::sessions::{listed, names};
use crate::support::{Broker, Home, eventually, python};
use crate::web::page::Page;

/// Ten times the two seconds in which everything tells of a change.
const SOON: Duration = Duration::from_secs(20);
/// Six minutes, in seconds.
const LATER_S: i64 = 360;
/// Where `preload.c` reads how far the steady clock is ahead.
const STEADY_CLOCK: u64 = 32;

/// What each does, and what is said beside that.
const STATES: [(&str, &str, &str); 10] = [
    ("asks", "waits for you", "Bash: \"npm test\""),
    ("questions", "waits for you", "\"Red or blue?\" (1 Red)"),
    ("frozen", "stuck", "its process is stopped"),
    ("unread", "stuck", "unseen for five idle minutes, sent by"),
    ("loops", "idle", ""),
    ("holds", "busy", ""),
    ("owes", "idle", ""),
    ("fine-1", "idle", ""),
    ("fine-2", "busy", ""),
    ("fine-3", "online", ""),
];

/// Whether a state is for its user to act on.
fn is_alarm(state: &str) -> bool {
    ["waits for you", "stuck"].contains(&state)
}

fn asks(session: &mut Session, hook: usize, asked: &Value) {
    let mut asks = asked.clone();
    asks["hook_event_name"] = "PermissionRequest".into();
    session.tell(&format!("hook {hook} {asks}"));
    session.tell("status waiting");
}

fn npm_test() -> Value {
    json!({ "tool_name": "Bash", "tool_input": { "command": "npm test" } })
}

pub(crate) fn signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    kill_process(process.expect("a process"), signal).expect("our child");
}

/// What a list in JSON says of a name.
fn of<'a>(list: &'a [Value], name: &str) -> Option<&'a Value> {
    list.iter().find(|it| it["name"] == name)
}

fn json(home: &Home, args: &[&str]) -> Value {
    serde_json::from_str(&home.run(args).ok()).expect("JSON")
}

fn list(told: &Value, name: &str) -> Vec<Value> {
    told[name].as_array().expect("a list").clone()
}

/// A session whose steady clock can be put ahead.
struct Late {
    session: Session,
    clock: File,
}

impl Late {
    fn start(home: &Home, name: &str) -> Self {
        let path = home.path().join("clock");
        let clock = File::create(&path).expect("a file");
        clock.set_len(STEADY_CLOCK + 8).expect("room for a number");
        let mut python = home.command("python3");
        preload(home.path(), python.env("PEERBUS_FAULTS", path));
        let session = Session::spawn(&mut python, name);
        Self { session, clock }
    }

    /// Its mail is unseen for six minutes.
    fn lets_mail_wait(&self, home: &Home) {
        let me = self.session.process();
        // An answer would stand there.
        let slug = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let path = home.path().to_string_lossy();
        let projects = path.chars().map(slug);
        let projects = home
            .path()
            .join(".claude/projects")
            .join(projects.collect::<String>());
        fs::create_dir_all(&projects).expect("a directory");
        fs::write(projects.join(format!("session-{me}.jsonl")), "").expect("a file");
        let sent = json(home, &["send", "unread", "hello", "--json"]);
        let id = sent["id"].as_str().expect("an id");
        eventually("it is sent by socket", || {
            let told = home.run(&["status", id]).ok();
            told.contains("by socket").then_some(())
        });
        let written = self
            .clock
            .write_all_at(&LATER_S.to_ne_bytes(), STEADY_CLOCK);
        written.expect("a file of ours");
    }
}

/// Ten agents at a broker, and the page of their owner.
struct World {
    page: Page,
    home: Home,
    broker: Broker,
    permission: Session,
    question: Session,
    frozen: Session,
    unread: Late,
    loops: Session,
    /// `holds`, `owes` and those that are fine.
    peers: [Holder; 5],
}

impl World {
    /// All of them at rest.
    fn new() -> Self {
        let home = Home::new();
        let broker = Broker::start(&home);
        let [permission, question, frozen] =
            ["asks", "questions", "frozen"].map(|name| Session::start(&home, name));
        let unread = Late::start(&home, "unread");
        let loops = Session::start_with(&home, "loops", &[("PEERBUS_BUDGET", "1")]);
        let peers = ["holds", "owes", "fine-1", "fine-2", "fine-3"]
            .map(|name| Holder::new(&home, &broker, name));
        eventually("the sessions are on the bus", || {
            (names(&home).iter().filter(|name| !name.is_empty()).count() == 5).then_some(())
        });
        Self {
            page: Page::open(&home),
            home,
            broker,
            permission,
            question,
            frozen,
            unread,
            loops,
            peers,
        }
    }

    /// Each becomes what it is; gives when that was.
    fn begin(&mut self) -> Instant {
        let peers = &mut self.peers;
        for (at, to) in ["holds", "owes"].into_iter().enumerate() {
            let ask = ["ask", to, "ready?", "--within", "2h", "--detach"];
            self.home.run(&ask).ok();
            peers[at].gets();
            peers[at].reads();
        }
        self.unread.lets_mail_wait(&self.home);
        self.loops.tell("send fine-1 hello");
        peers[2].gets();
        peers[2].sends("r1", "loops", &json!({ "text": "Thank you!", "hops": 2 }));
        for (peer, does) in peers.iter_mut().zip(["busy", "idle", "idle", "busy"]) {
            peer.does(does);
        }
        asks(&mut self.permission, 1, &npm_test());
        let questions = json!([{ "question": "Red or blue?", "options": [{ "label": "Red" }] }]);
        let input = json!({ "questions": questions });
        let asked = json!({ "tool_name": "AskUserQuestion", "tool_input": input });
        asks(&mut self.question, 2, &asked);
        signal(self.frozen.process(), Signal::STOP);
        Instant::now()
    }

    /// What `status` tells once that, `peers`, `session list` and the page tell all of it.
    fn known(&self) -> Value {
        eventually("all is known", || {
            let told = json(&self.home, &["status", "--json"]);
            let peers = json(&self.home, &["peers", "--json"]);
            let lists = [
                list(&told, "peers"),
                list(&peers, "peers"),
                self.page.list("peers"),
            ];
            let of_sessions = self.page.list("sessions");
            let table = self.home.run(&["session", "list"]).ok();
            let is = |(name, state, _): &(&str, &str, &str)| {
                let is = |it: &Value| it["state"] == *state;
                let row = table
                    .lines()
                    .find(|row| row.starts_with(&format!("{name} ")));
                // Those of the bus alone stand in no list of sessions.
                lists.iter().all(|all| of(all, name).is_some_and(is))
                    && of(&of_sessions, name).is_none_or(is)
                    && row.is_none_or(|row| row.contains(state))
            };
            let paused = |all: &Vec<Value>| of(all, "loops").is_some_and(|it| it["paused"] == 1);
            let all = lists.iter().all(paused) && STATES.iter().all(is);
            (all && self.page.list("requests").len() == 2).then_some(told)
        })
    }

    /// Everything that tells of a session tells this.
    fn all_tell(&self, (name, state, beside): (&str, &str, &str), doctor: &str) {
        let run = |args: &[&str]| self.home.run(args).ok();
        let lines = run(&["status"]);
        for table in [&run(&["peers"]), &lines] {
            let row = |line: &&str| line.trim_start().starts_with(&format!("{name} "));
            let row = table.lines().rfind(row);
            assert!(row.is_some_and(|it| it.contains(state)), "{name}: {table}");
        }
        let sessions = self.page.list("sessions");
        if let Some(session) = of(&sessions, name) {
            let said = ["way_out", "tried"].map(|it| session[it].as_str().unwrap_or_default());
            let said = said.iter().any(|it| it.contains(beside));
            assert!(said, "{name}: {session}");
        }
        let alarm = is_alarm(state);
        for list in ["peers", "sessions"] {
            let told = self.page.list(list);
            let told = of(&told, name).is_none_or(|it| it["alarm"].is_string() == alarm);
            assert!(told, "{name} among {list} of the page");
        }
        let mut said = lines.lines().filter(|line| line.starts_with(name));
        let said = said.any(|line| !beside.is_empty() && line.contains(beside));
        assert_eq!(said, alarm, "{name}: {lines}");
        let told = |line: &str| line.contains(&format!(" {name} ")) && line.contains(state);
        assert_eq!(doctor.lines().any(told), alarm, "{name}: {doctor}");
    }

    /// A browser shows that, if there is one.
    fn is_shown(&self) {
        let states = STATES.map(|(name, state, _)| json!([name, state, is_alarm(state)]));
        let mut shown = Command::new("python3");
        shown
            .arg(python::script("web/states.py"))
            .args([self.page.link(), json!(states).to_string()]);
        python::passes_or_skips(&mut shown, python::in_ci());
    }
}

#[test]
fn of_ten_agents_everything_tells_the_same() {
    let mut world = World::new();
    let begun = world.begin();
    let overview = world.known();
    let took = begun.elapsed();
    assert!(took < SOON, "it took {took:?} until all was told");
    let requests = overview["requests"].as_array().expect("a list");
    assert_eq!(requests.len(), 2, "{overview}");
    let doctor = world.home.run(&["doctor"]).stdout;
    for row in STATES {
        world.all_tell(row, &doctor);
    }
    world.is_shown();
    let held = world.home.run(&["held"]);
    assert_eq!(held.stdout, "no mail waits for you\n");
    // Its sender's name leads to it, too.
    for name in [None, Some("loops"), Some("FINE-1")] {
        let args: Vec<_> = ["held"].into_iter().chain(name).collect();
        let held = world.home.run(&args);
        let says = "paused at loops: 1 message: 2 replies led";
        assert!(held.stderr.contains(says), "{}", held.stderr);
        let paused = &json(&world.home, &[&args[..], &["--json"]].concat())["paused"][0];
        assert_eq!(paused["session"], "loops", "{paused}");
    }
    let held = world.home.run(&["held", "holds"]).stderr;
    assert!(!held.contains("paused"), "{held}");
    for told in [
        world.home.run(&["peers"]).ok(),
        world.home.run(&["names", "list"]).ok(),
        world.home.run(&["status"]).ok(),
    ] {
        let row = told.lines().rfind(|line| line.starts_with("loops "));
        let row = row.expect("its row").split_whitespace().collect::<Vec<_>>();
        let at = row
            .iter()
            .position(|word| *word == "paused")
            .expect("its state");
        assert_eq!(row[at + 1..at + 3], ["1", "0"], "paused, and none unseen");
    }
    let sent = world.home.run(&["send", "unread", "hello"]).ok();
    let stuck = ["unread is stuck, for ", "five idle minutes, sent by socket"];
    assert!(stuck.iter().all(|part| sent.contains(part)), "{sent}");
    signal(world.frozen.process(), Signal::CONT);
    eventually("it goes on", || {
        let told = json(&world.home, &["peers", "--json"]);
        let peers = [list(&told, "peers"), world.page.list("peers")];
        let idle = |all: &Vec<Value>| of(all, "frozen").is_some_and(|it| it["state"] == "idle");
        peers.iter().all(idle).then_some(())
    });
    world.broker.stop();
}

#[test]
fn a_closed_gate_is_named_everywhere_and_counts_at_once_when_it_opens() {
    let mut world = World::new();
    world.begin();
    world.known();
    let home = &world.home;
    let gates = home.credentials().with_file_name("sessions.toml");
    let asked = home.run(&["session", "approve"]);
    assert!(asked.stdout.contains("npm test"), "{}", asked.stdout);
    let until = ", once the gate is open\n";
    assert!(asked.stdout.contains(until), "{}", asked.stdout);
    let (status, doctor) = (home.run(&["status"]).ok(), home.run(&["doctor"]).stdout);
    for said in [&asked.stderr, &status, &doctor] {
        assert!(said.contains("gate `approve` is closed"), "{said}");
        assert!(said.contains(&gates.display().to_string()), "{said}");
    }
    fs::write(&gates, "aprove = true").expect("it is written");
    let asked = home.run(&["session", "approve"]).stderr;
    let (status, doctor) = (home.run(&["status"]).ok(), home.run(&["doctor"]).stdout);
    for said in [&asked, &status, &doctor] {
        let mend = "every gate is closed until this is mended: ";
        assert!(said.contains(mend) && said.contains("aprove"), "{said}");
        assert!(!said.contains("with `approve = true`"), "{said}");
    }
    fs::write(&gates, "approve = true").expect("it is written");
    let lines = home.run(&["status"]).ok();
    let id = lines.split("`peerbus session approve ").nth(1);
    let id = id.and_then(|rest| rest.split('`').next()).expect(&lines);
    home.run(&["session", "approve", id]).ok();
    let heard = world.permission.hear("hook 1");
    assert!(heard.contains(r#""behavior":"allow""#), "{heard}");
    signal(world.frozen.process(), Signal::CONT);
    world.broker.stop();
}

#[test]
fn who_asks_one_that_waits_for_its_user_is_told_so_and_the_way_out() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Session::start(&home, "bob");
    eventually("bob is listed", || {
        listed(&home)
            .iter()
            .any(|it| it["name"] == "bob")
            .then_some(())
    });
    asks(&mut bob, 1, &npm_test());
    eventually("bob waits", || {
        let peers = home.run(&["peers"]).ok();
        peers.contains("waits for you").then_some(())
    });
    let why = home.run(&["ask", "bob", "?", "--timeout", "1"]).fails(1);
    let socket = listed(&home)[0]["socket"].to_string();
    let process = socket
        .rsplit('/')
        .next()
        .and_then(|it| it.split('.').next());
    let out = format!(
        "Bash: \"npm test\": answer in its window (claude-code, process {} in {}); the gate `approve` is closed",
        process.expect("a socket"),
        home.path().display()
    );
    let out = out.as_str();
    assert!(
        why.contains("bob waits for you") && why.contains(out),
        "{why}"
    );
    let sent = home.run(&["send", "bob", "hello"]).ok();
    assert!(
        sent.contains("bob waits for you") && sent.contains(out),
        "{sent}"
    );
    let id = sent.split([' ', ':']).nth(1).expect(&sent);
    let told = home.run(&["status", id]).ok();
    let mut sentence = told.lines().filter(|it| it.contains("bob waits for you"));
    assert!(sentence.any(|it| it.contains(out)), "{told}");
    let sent = home
        .run(&["send", "bob", "hello", "--wait", "seen=1"])
        .fails(1);
    assert!(
        sent.contains("bob waits for you") && sent.contains(out),
        "{sent}"
    );
    broker.stop();
}

#[test]
fn who_waits_for_an_answer_is_told_of_each_dialog_that_is_open() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let gates = home.credentials().with_file_name("sessions.toml");
    fs::write(gates, "approve = true").expect("it is written");
    let mut bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    asks(&mut bob, 1, &npm_test());
    eventually("bob waits", || {
        let peers = home.run(&["peers"]).ok();
        peers.contains("waits for you").then_some(())
    });
    let asking = Asking::start(&home, &["bob", "?"]);
    asking.says("Bash: \"npm test\": answer in its window");
    // Between the two it waits without a pause.
    let other = json!({ "tool_name": "Bash", "tool_input": { "command": "make" } });
    asks(&mut bob, 2, &other);
    asking.says("Bash: \"npm test\" (and 1 more): answer");
    let status = home.run(&["status"]).ok();
    let id = status.split("`peerbus session approve ").nth(1);
    let id = id.and_then(|rest| rest.split('`').next()).expect(&status);
    home.run(&["session", "approve", id]).ok();
    asking.says("Bash: \"make\": answer");
    broker.stop();
}

#[test]
fn a_session_off_the_bus_that_waits_is_told_as_itself() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _first = Session::start(&home, "twin");
    eventually("one has the name", || {
        names(&home).contains(&"twin".to_owned()).then_some(())
    });
    let mut second = Session::start(&home, "twin");
    eventually("both are listed", || {
        (listed(&home).len() == 2).then_some(())
    });
    asks(&mut second, 1, &npm_test());
    let status = eventually("it waits", || {
        let status = home.run(&["status"]).ok();
        status.contains("npm test").then_some(status)
    });
    assert!(
        status.contains("twin (off the bus) waits for you"),
        "{status}"
    );
    let doctor = home.run(&["doctor"]).stdout;
    assert!(
        doctor.contains("twin (off the bus) waits for you"),
        "{doctor}"
    );
    let approve = home.run(&["session", "approve"]).stdout;
    assert!(approve.contains("twin (off the bus) asks: "), "{approve}");
    // It waits without a broker, too, which no command starts here.
    let stop = home.run(&["stop"]);
    let way = "`peerbus serve` starts it again: PEERBUS_AUTOSTART=off";
    assert!(stop.stderr.contains(way), "{}", stop.stderr);
    stop.ok();
    assert_eq!(broker.ended().0, Some(0));
    let status = home.run(&["status"]).fails(1);
    let doctor = home.run(&["doctor"]).stdout;
    let of_both = home.run(&["status", "TWIN"]).fails(1);
    let count = of_both.matches("twin (off the bus) ").count();
    assert_eq!(count, 2, "{of_both}");
    for said in [status, doctor, of_both] {
        assert!(said.contains("twin (off the bus) waits for you"), "{said}");
    }
}

#[test]
fn whoever_looks_for_questions_is_told_that_a_file_closes_every_gate() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    let gates = home.credentials().with_file_name("sessions.toml");
    fs::write(&gates, "aprove = true").expect("it is written");
    let said = home.run(&["session", "approve"]).stderr;
    let mend = "every gate is closed until this is mended: ";
    assert_eq!(said.matches(mend).count(), 1, "{said}");
    broker.stop();
}

#[test]
fn a_broker_that_is_started_anew_says_what_it_said_of_mail_under_way() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Session::start(&home, "bob");
    eventually("bob is listed", || (names(&home) == ["bob"]).then_some(()));
    let sent = home.run(&["send", "bob", "hello", "--json"]).ok();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    let id = sent["id"].as_str().expect("an id");
    let path = || {
        let status = json(&home, &["status", id, "--json"]);
        let steps = status["messages"][0]["trail"]["steps"]
            .as_array()
            .expect("steps");
        let pushed = steps.iter().find(|step| step["state"] == "pushed");
        pushed.map(|step| step["path"].clone())
    };
    let before = eventually("it is pushed", path);
    broker.kill();
    let broker = Broker::start(&home);
    assert_eq!(eventually("it is told again", path), before);
    broker.stop();
}
