//! Requests from a shell: asked, shown, answered, taken back.

mod told;

use std::collections::BTreeSet;
use std::process::{Child, Stdio};

use peerbus_test_support::message::envelope;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Broker, Home, Lines, Mcp, Raw, eventually};

/// A peer that holds a request: its connection, and the delivery of that.
pub(crate) struct Holder {
    name: &'static str,
    peer: Raw,
    secret: String,
    key: Value,
    pub(crate) question: Value,
}

impl Holder {
    pub(crate) fn new(home: &Home, broker: &Broker, name: &'static str) -> Self {
        Self {
            name,
            peer: Raw::register(home, broker, name),
            secret: home.credential("hmac_secret"),
            key: Value::Null,
            question: Value::Null,
        }
    }

    /// Is in a group.
    fn join(&mut self, group: &str) {
        self.tell(json!({ "type": "peers", "join": [group] }));
        assert_eq!(self.peer.next()["type"], "peers");
    }

    fn tell(&mut self, mut frame: Value) {
        frame["protocol_version"] = "v1".into();
        self.peer.say(&frame.to_string());
    }

    /// Says something of the request.
    pub(crate) fn say(&mut self, mut frame: Value) {
        frame["id"] = self.key.clone();
        self.tell(frame);
    }

    /// Gets the next request.
    pub(crate) fn gets(&mut self) {
        let mut delivery = self.peer.delivery();
        self.key = delivery["delivery_key"].take();
        self.question = delivery["envelope"].take();
    }

    /// Its model reads the request.
    pub(crate) fn reads(&mut self) {
        self.say(
            json!({ "type": "ack", "how": "seen", "path": "socket", "evidence": "transcript" }),
        );
    }

    pub(crate) fn works(&mut self, said: &str) {
        self.say(json!({ "type": "progress", "state": "working", "reason": said }));
    }

    pub(crate) fn declines(&mut self, why: &str) {
        self.say(json!({ "type": "reject", "reason": why }));
    }

    /// What its session does.
    pub(crate) fn does(&mut self, activity: &str) {
        self.shows(json!({ "activity": activity }));
    }

    /// What it says of itself.
    pub(crate) fn shows(&mut self, presence: Value) {
        self.tell(json!({ "type": "presence", "presence": presence }));
    }

    /// Answers whoever asked.
    pub(crate) fn answers(&mut self, id: &str, mut body: Value) {
        body["reply_to"] = self.question["id"].clone();
        let to = self.question["from"].as_str().expect("a name").to_owned();
        self.sends(id, &to, &body);
    }

    /// Sends a message.
    pub(crate) fn sends(&mut self, id: &str, to: &str, body: &Value) {
        let text = envelope(&self.secret, id, self.name, to, &body.to_string());
        self.peer.say(&text);
        self.peer.receipt("accepted");
    }

    /// Says goodbye.
    pub(crate) fn leaves(self) {
        self.peer.leave();
    }

    pub(crate) fn id(&self) -> String {
        self.question["id"].as_str().expect("an id").to_owned()
    }
}

/// `peerbus ask`, and what it says meanwhile.
pub(crate) struct Asking {
    child: Child,
    said: Lines,
}

impl Asking {
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        let mut command = home.peerbus(&[&["ask"], args].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("peerbus starts");
        let said = Lines::of(child.stderr.take().expect("a pipe"));
        Self { child, said }
    }

    #[track_caller]
    pub(crate) fn says(&self, what: &str) {
        self.said
            .find(what, |line| line.contains(what).then_some(()));
    }

    /// Its exit code, and what it printed.
    fn ends(self) -> (Option<i32>, String) {
        let done = self.child.wait_with_output().expect("it ends");
        let printed = String::from_utf8(done.stdout).expect("UTF-8");
        (done.status.code(), printed)
    }
}

/// What `peerbus requests --json` shows of open requests.
pub(crate) fn open(home: &Home) -> Vec<Value> {
    let shown = home.run(&["requests", "--json"]).ok();
    let line = |line: &str| serde_json::from_str(line).expect("JSON");
    shown.lines().map(line).collect()
}

/// Asks and leaves; gives the request's id.
pub(crate) fn detached(home: &Home, args: &[&str]) -> String {
    let said = home.run(&[&["ask", "--detach"], args].concat()).ok();
    let id = said
        .strip_prefix("asked ")
        .and_then(|rest| rest.split_once(": "));
    let (id, how) = id.unwrap_or_else(|| panic!("{said}"));
    assert!(how.ends_with("; `peerbus requests` shows it\n"), "{said}");
    id.to_owned()
}

#[test]
fn a_result_is_printed_and_one_that_failed_is_no_success() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    for (outcome, code) in [("done", 0), ("failed", 1)] {
        let asking = Asking::start(&home, &["bob", "are the tests green?", "--within", "20m"]);
        bob.gets();
        let body = &bob.question["body"];
        assert_eq!(body["within_ms"], 1_200_000, "{body}");
        bob.reads();
        asking.says("bob's model has seen it and owes an answer");
        bob.does("waiting");
        asking.says("bob waits for you");
        bob.does("busy");
        bob.works("two suites to go");
        asking.says("bob works at it, and said just now: \"two suites to go\"");
        let text = format!("all \u{1b}of them: {outcome}");
        let mut body = json!({ "text": text });
        if code == 1 {
            body["outcome"] = outcome.into();
        }
        bob.answers(outcome, body);
        if code == 1 {
            asking.says("it failed");
        }
        let printed = format!("all \\u001bof them: {outcome}\n");
        assert_eq!(asking.ends(), (Some(code), printed));
    }
    broker.stop();
}

#[test]
fn who_declines_ends_the_wait_and_a_question_back_or_anothers_word_does_not() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    let asking = Asking::start(&home, &["bob", "deploy it"]);
    bob.gets();
    let mut eve = Holder::new(&home, &broker, "eve");
    eve.question = bob.question.clone();
    eve.answers("e1", json!({ "text": "deployed" }));
    asking.says("eve writes, which is no result: \"deployed\"");
    bob.declines("not my repository");
    asking.says("it was declined just now: bob says: \"not my repository\"");
    assert_eq!(asking.ends(), (Some(1), String::new()));
    broker.stop();
}

#[test]
fn a_wait_that_ends_leaves_the_request_and_says_how_it_is_seen_and_taken_back() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    let said = home.run(&["ask", "bob", "2+3?", "--timeout", "1"]).fails(1);
    bob.gets();
    let id = bob.id();
    assert!(
        said.contains("no result from bob within 1 s: bob got it"),
        "{said}"
    );
    let how =
        format!("the request stays owed until its time is over: `peerbus status {id}` shows it");
    assert!(said.contains(&how), "{said}");
    let [request] = &open(&home)[..] else {
        panic!("{:?}", open(&home));
    };
    assert_eq!(
        (&request["id"], &request["body"]["text"]),
        (&json!(id), &json!("2+3?"))
    );
    let asked = request["request"]["left_ms"].as_u64().expect("a time");
    assert!(asked <= 3_600_000, "{asked}");
    assert!(
        said.contains(&format!("`peerbus requests cancel {id}` takes it back")),
        "{said}"
    );
    let said = home.run(&["requests", "cancel", &id[24..]]).ok();
    let told = said.strip_suffix(": bob owes it no more\n");
    let of = format!("taken back {id} of ");
    assert!(told.is_some_and(|told| told.starts_with(&of)), "{said}");
    assert_eq!(open(&home), Vec::<Value>::new());
    let said = home.run(&["requests", "cancel", &id]).fails(1);
    assert!(said.contains("no open request has the id"), "{said}");
    broker.stop();
}

#[test]
fn who_has_left_finds_the_result_under_the_request() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    let id = detached(&home, &["bob", "review the parser"]);
    bob.gets();
    assert_eq!(bob.id(), id);
    bob.reads();
    bob.works("half way");
    let row = eventually("it is worked at", || {
        let shown = home.run(&["requests"]).ok();
        let row = shown.lines().nth(1)?.trim().to_owned();
        row.contains("working: \"half way\"").then_some(row)
    });
    assert!(
        row.starts_with(&id[24..]) && row.ends_with("review the parser"),
        "{row}"
    );
    bob.answers("r1", json!({ "text": "two bugs, both in lexer.rs" }));
    let said = home.run(&["status", &id]).ok();
    assert!(said.contains("done       bob  message r1\n"), "{said}");
    assert!(
        said.ends_with("result of bob: \"two bugs, both in lexer.rs\"\n"),
        "{said}"
    );
    let told: Value =
        serde_json::from_str(&home.run(&["status", &id, "--json"]).ok()).expect("JSON");
    let result = &told["messages"][0]["result"];
    assert_eq!(
        result["body"]["text"], "two bugs, both in lexer.rs",
        "{told}"
    );
    assert_eq!(home.run(&["requests"]).ok().lines().count(), 1);
    let done = home.run(&["requests", "--done"]).ok();
    let row = done.lines().nth(1).expect("a row");
    let parts = [&id[24..], "shell-", "bob", "done: two bugs", "review the"];
    for part in parts {
        assert!(row.contains(part), "{done}");
    }
    let few = home.run(&["requests", "--done", "--limit", "1"]).ok();
    assert!(few.contains("done: two bugs"), "{few}");
    home.run(&["requests", "--limit", "1"]).fails(2);
    // Nobody got the answer, and it does not wait for anybody.
    let history = home.run(&["history"]).ok();
    assert!(history.contains(" for nobody "), "{history}");
    let kept = home.run(&["status", "r1"]).ok();
    assert!(
        kept.contains("the result of a request is kept with that"),
        "{kept}"
    );
    broker.stop();
}

/// Ends with the test, also while it is stopped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tail_shows_the_end_of_a_request_that_it_missed() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    let mut command = home.peerbus(&["tail", "--follow"]);
    let tail = command.stdout(Stdio::piped()).spawn();
    let mut tail = Killed(tail.expect("it starts"));
    let lines = Lines::of(tail.0.stdout.take().expect("a pipe"));
    let shows = |what: &str| {
        lines.find(what, |line| line.contains(what).then_some(()));
    };
    home.run(&["send", "bob", "hello", "--name", "ann"]).ok();
    shows("hello");
    bob.gets();
    bob.reads();
    let id = detached(&home, &["bob", "ready?", "--name", "ann"]);
    bob.gets();
    bob.reads();
    shows("\"ready?\"");
    shows("→ bob  seen by socket");
    home.run(&["send", "bob", "later", "--name", "ann"]).ok();
    shows("later");
    let pid = Pid::from_child(&tail.0);
    kill_process(pid, Signal::STOP).expect("our child");
    broker.stop();
    let broker = Broker::start(&home);
    let question = bob.question.take();
    let mut bob = Holder::new(&home, &broker, "bob");
    bob.question = question;
    bob.answers("r1", json!({ "text": "yes" }));
    kill_process(pid, Signal::CONT).expect("our child");
    shows("→ bob  done message r1");
    assert!(home.run(&["status", &id]).ok().contains("done"));
    broker.stop();
}

#[test]
fn texts_that_nobody_was_shown_are_kept_from_agents() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    let id = detached(&home, &["bob", "the word is xyzzy"]);
    bob.gets();
    // From here on this process is an agent's.
    let mut ann = Mcp::start(&home, "generic", "ann", "some-bot");
    ann.call("bus.peers", json!({}));
    let shown = |home: &Home, args: &[&str], word: &str| {
        let (person, agent) = (home.apart(args).ok(), home.run(args).ok());
        assert!(person.contains(word), "{args:?}: {person}");
        assert!(!agent.contains(word), "{args:?}: {agent}");
        assert!(agent.contains("an agent asks"), "{args:?}: {agent}");
    };
    shown(&home, &["requests"], "xyzzy");
    shown(&home, &["requests", "--json"], "xyzzy");
    bob.answers("r1", json!({ "text": "plugh" }));
    shown(&home, &["status", &id], "plugh");
    shown(&home, &["status", &id, "--json"], "plugh");
    shown(&home, &["requests", "--done"], "plugh");
    // Others who use the id, and say that they answer, are not taken for the holder.
    let mut eve = Holder::new(&home, &broker, "eve");
    eve.question = json!({ "id": id, "from": "ann" });
    eve.answers("r1", json!({ "text": "forged" }));
    let said = home.apart(&["status", &id]).ok();
    assert!(said.ends_with("result of bob: \"plugh\"\n"), "{said}");
    broker.stop();
}

#[test]
fn of_a_group_one_member_answers_and_the_next_where_one_is_gone() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    bob.join("#shop");
    let asking = Asking::start(&home, &["#shop", "review the parser"]);
    bob.gets();
    assert_eq!(open(&home)[0]["request"]["to"], "#shop");
    let id = open(&home)[0]["id"].as_str().expect("an id").to_owned();
    let said = home.run(&["status", &id]).ok();
    assert!(
        said.starts_with("from shell-") && said.contains(" to #shop (bob)\n"),
        "{said}"
    );
    bob.reads();
    asking.says("bob's model has seen it and owes an answer");
    let mut cyd = Holder::new(&home, &broker, "cyd");
    cyd.join("#shop");
    bob.leaves();
    cyd.gets();
    asking.says("before that bob had it");
    cyd.answers("c1", json!({ "text": "no bugs" }));
    assert_eq!(asking.ends(), (Some(0), "no bugs\n".to_owned()));
    drop(cyd);
    broker.stop();
}

/// One of the crew: what its agent drained and has not answered, and the adapter.
struct Member {
    name: String,
    adapter: Mcp,
    owes: Vec<String>,
}

impl Member {
    fn start(home: &Home, name: String) -> Self {
        let mut command = home.peerbus(&["adapter", "--adapter", "generic", "--name", &name]);
        let mut adapter = Mcp::spawn(command.env("PEERBUS_GROUPS", "crew"));
        adapter.initialize("some-bot");
        Self {
            name,
            adapter,
            owes: Vec::new(),
        }
    }

    /// Reads what has come, and answers all but the last `left`.
    fn works(&mut self, left: usize) {
        let drain = json!({ "name": "bus.drain", "arguments": { "max": 20 } });
        // The broker may be away, or still have the member that is gone: the agent looks again.
        let drained = self.adapter.request("tools/call", drain);
        let messages = drained["structuredContent"]["messages"].as_array();
        let ids = messages
            .into_iter()
            .flatten()
            .map(|it| it["id"].as_str().expect("an id"));
        self.owes.extend(ids.map(str::to_owned));
        let answered = self.owes.len().saturating_sub(left);
        for id in self.owes.drain(..answered).collect::<Vec<_>>() {
            let reply = json!({ "name": "bus.reply", "arguments": { "msg_id": id, "body": id } });
            // The broker may be away: the agent tries it again.
            if self.adapter.request("tools/call", reply)["isError"] == true {
                self.owes.push(id);
            }
        }
    }
}

#[test]
fn a_hundred_requests_end_once_each_over_kills_of_members_and_of_the_broker() {
    let home = Home::new();
    let mut broker = Broker::start(&home);
    let mut crew: Vec<_> = (0..5)
        .map(|n| Member::start(&home, format!("m{n}")))
        .collect();
    let mut boss = Mcp::start(&home, "generic", "boss", "some-bot");
    let asked = |n: usize| {
        let question = json!({ "to": "#crew", "body": format!("part {n}"), "timeout_s": 0 });
        boss.call("bus.ask", question)["id"]
            .as_str()
            .expect("an id")
            .to_owned()
    };
    let asked: BTreeSet<_> = (0..100).map(asked).collect();
    assert_eq!(open(&home).len(), 100);
    for round in 0..200 {
        if open(&home).is_empty() {
            break;
        }
        crew[round % 5].works(2);
        match round {
            3 | 11 | 17 | 29 => {
                // It has read some that it has not answered.
                let name = crew.remove(round % 5).name;
                crew.insert(round % 5, Member::start(&home, name));
            }
            7 | 23 => {
                broker.kill();
                broker = Broker::start(&home);
            }
            _ if round >= 30 => crew[round % 5].works(0),
            _ => {}
        }
    }
    assert!(open(&home).is_empty());
    let done = |id: &String| {
        let status = home.run(&["status", id]).ok();
        status.matches("  done").count()
    };
    assert!(asked.iter().all(|id| done(id) == 1));
    let mut results = BTreeSet::new();
    eventually("every result", || {
        let drained = boss.call("bus.drain", json!({ "max": 50 }));
        let all = drained["messages"].as_array().expect("a list");
        results.extend(
            all.iter()
                .map(|it| it["body"]["reply_to"].as_str().expect("an id").to_owned()),
        );
        (results == asked).then_some(())
    });
    broker.stop();
}
