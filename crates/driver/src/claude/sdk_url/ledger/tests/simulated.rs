//! Worlds of a driver, a client and a connection that is cut at any point, drawn from a seed. The
//! client does what 2.1.114 was seen to do: it keeps what has an id and repeats all of it after a
//! cut; its requests and answers are lost when they are written into one.

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::claude::sdk_url::ledger::*;
use crate::claude::stream::{request, user};

const WORLDS: u64 = 2_000;
const STEPS_MAX: usize = 20_000;
const CUTS: usize = 20;
const TURNS: usize = 12;
const REQUESTS: usize = 6;

enum Frame {
    Line(String),
    /// To the client a question whether it is there, from it the answer.
    Sign(u64),
}

/// What is under way, in both directions.
#[derive(Default)]
struct Wire {
    to_client: VecDeque<Frame>,
    to_driver: VecDeque<Frame>,
}

/// What a client does next in a turn.
#[derive(Clone)]
enum Step {
    Say(Value),
    /// A request that it waits on.
    Ask(Value),
    /// Takes what came meanwhile into the turn.
    Join,
}

#[derive(Default)]
struct Client {
    begun: bool,
    greeted: bool,
    /// Lines that it has and did not look at yet: signs are answered before it does.
    inbox: VecDeque<String>,
    names: u64,
    kept: Vec<Value>,
    taken: Vec<String>,
    queue: Vec<String>,
    steps: VecDeque<Step>,
    waits: Option<Value>,
    /// The request that it waits on was written into a cut.
    is_lost: bool,
    /// Lines with an id, as they were said the first time, without those that look like receipts.
    said: Vec<String>,
    may_be_receipts: Vec<String>,
    done: Vec<String>,
}

#[derive(Default)]
struct Driver {
    ledger: Ledger,
    sent: Vec<String>,
    asked: Vec<String>,
    answered: Vec<String>,
    /// What the client waits for.
    open: Vec<String>,
    heard: Vec<String>,
    may_be_receipts: Vec<String>,
    permitted: Vec<String>,
}

struct World {
    rng: StdRng,
    wire: Option<Wire>,
    client: Client,
    driver: Driver,
    cuts: usize,
}

impl Client {
    fn name(&mut self, of: &str) -> String {
        self.names += 1;
        format!("{of}-{}", self.names)
    }

    /// Says something with an id, which is kept.
    fn say(&mut self, mut line: Value, wire: Option<&mut Wire>) {
        if line["uuid"].is_null() {
            line["uuid"] = self.name("said").into();
        }
        self.kept.push(line.clone());
        if let Some(wire) = wire {
            wire.to_driver.push_back(Frame::Line(line.to_string()));
        }
    }

    fn repeats(&self, uuid: &str, timed: bool) -> Value {
        let mut line = json!({ "type": "user", "uuid": uuid, "isReplay": true });
        if timed {
            line["timestamp"] = format!("at {}", self.names).into();
        }
        line
    }

    fn hear(&mut self, mut wire: Option<&mut Wire>) {
        let line = self.inbox.pop_front().unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        match line["type"].as_str().unwrap() {
            "user" => {
                let uuid = text(&line["uuid"]);
                if self.taken.contains(&uuid) {
                    let receipt = self.repeats(&uuid, false);
                    self.say(receipt, wire);
                } else {
                    self.taken.push(uuid.clone());
                    self.queue.push(uuid);
                }
            }
            "control_request" => {
                let id = text(&line["request_id"]);
                let mut answer = json!({ "subtype": "success", "request_id": id, "response": {} });
                if line["request"]["subtype"] != "initialize" {
                    self.done.push(id);
                } else if std::mem::replace(&mut self.begun, true) {
                    let waits = self.waits.clone();
                    let may = waits.filter(|w| w["request"]["subtype"] == "can_use_tool");
                    let pending: Vec<_> = may.into_iter().collect();
                    answer["subtype"] = "error".into();
                    answer["error"] = "Already initialized".into();
                    answer["pending_permission_requests"] = pending.into();
                }
                if let Some(wire) = &mut wire {
                    let answer = json!({ "type": "control_response", "response": answer });
                    wire.to_driver.push_back(Frame::Line(answer.to_string()));
                }
            }
            "control_response" => {
                let waits = self.waits.as_ref().map(|w| w["request_id"].clone());
                if waits.as_ref() == Some(&line["response"]["request_id"]) {
                    self.waits = None;
                    self.is_lost = false;
                }
            }
            other => panic!("{other}"),
        }
    }

    fn is_idle(&self) -> bool {
        self.waits.is_none() && self.steps.is_empty() && self.queue.is_empty()
    }

    /// Takes one or several messages into a turn.
    fn plan(&mut self, rng: &mut StdRng) {
        if !std::mem::replace(&mut self.greeted, true) {
            for method in ["initialize", "notifications/initialized", "tools/list"] {
                let message = json!({ "method": method });
                let asked = json!({ "subtype": "mcp_message", "message": message });
                self.steps.push_back(Step::Ask(asked));
            }
        }
        self.steps.push_back(Step::Say(json!({ "type": "system" })));
        self.steps.push_back(Step::Join);
        for _ in 0..rng.random_range(0..3) {
            let id = self.name("use");
            let is_ours = rng.random();
            let name = ["Bash", "mcp__peerbus__bus_send"][usize::from(is_ours)];
            let block = json!({ "type": "tool_use", "id": id, "name": name });
            let message = json!({ "content": [block] });
            let said = json!({ "type": "assistant", "message": message });
            self.steps.push_back(Step::Say(said));
            let may = json!({ "subtype": "can_use_tool", "tool_name": name });
            self.steps.push_back(Step::Ask(may));
            if is_ours {
                let meta = json!({ "claudecode/toolUseId": id });
                let message = json!({ "method": "tools/call", "params": { "_meta": meta } });
                let call = json!({ "subtype": "mcp_message", "message": message });
                self.steps.push_back(Step::Ask(call));
            }
            let block = json!({ "type": "tool_result", "tool_use_id": id });
            let said = json!({ "type": "user", "message": { "content": [block] } });
            self.steps.push_back(Step::Say(said));
            self.steps.push_back(Step::Join);
        }
        self.steps
            .push_back(Step::Say(json!({ "type": "assistant" })));
        self.steps.push_back(Step::Say(json!({ "type": "result" })));
    }

    fn step(&mut self, rng: &mut StdRng, mut wire: Option<&mut Wire>) {
        let Some(step) = self.steps.pop_front() else {
            return self.plan(rng);
        };
        match step {
            Step::Say(line) => {
                self.say(line, wire);
                self.said.push(self.kept.last().unwrap().to_string());
            }
            Step::Join => {
                let all = std::mem::take(&mut self.queue);
                for (at, uuid) in all.iter().enumerate() {
                    let line = self.repeats(uuid, at + 1 == all.len());
                    let of = match at + 1 == all.len() {
                        true => &mut self.said,
                        false => &mut self.may_be_receipts,
                    };
                    of.push(line.to_string());
                    self.say(line, wire.as_deref_mut());
                }
            }
            Step::Ask(asked) => {
                let id = self.name("request");
                let line = json!({ "type": "control_request", "request_id": id, "request": asked });
                match wire {
                    Some(wire) => wire.to_driver.push_back(Frame::Line(line.to_string())),
                    None => self.is_lost = true,
                }
                self.waits = Some(line);
            }
        }
    }
}

impl Driver {
    fn send(&mut self, line: String, wire: Option<&mut Wire>) {
        let number = self.ledger.send(line.clone());
        if let Some(wire) = wire {
            self.ledger.tried(number);
            wire.to_client.push_back(Frame::Line(line));
            wire.to_client.push_back(Frame::Sign(number));
        }
    }

    fn turn(&mut self, wire: Option<&mut Wire>) {
        let uuid = format!("turn-{}", self.sent.len());
        self.sent.push(uuid.clone());
        self.send(user(&uuid, "words".into()), wire);
    }

    /// The first request is answered before there is another.
    fn can_ask(&self) -> bool {
        self.asked.len() < REQUESTS && !self.answered.is_empty()
    }

    fn ask(&mut self, wire: Option<&mut Wire>) {
        let id = format!("ask-{}", self.asked.len());
        self.asked.push(id.clone());
        self.send(request(&id, "interrupt", serde_json::Map::new()), wire);
    }

    fn hear(&mut self, line: &str) {
        for line in self.ledger.hear(line) {
            let said: Value = serde_json::from_str(&line).unwrap();
            let id = |of: &Value| of["request_id"].as_str().unwrap().to_owned();
            match said["type"].as_str().unwrap() {
                "control_request" => {
                    self.permitted.push(id(&said));
                    self.open.push(id(&said));
                }
                "control_cancel_request" => self.open.retain(|open| *open != id(&said)),
                "control_response" => self.answered.push(id(&said["response"])),
                _ if said["isReplay"] == true && said["timestamp"].is_null() => {
                    self.may_be_receipts.push(line);
                }
                _ => self.heard.push(line),
            }
        }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            rng: StdRng::seed_from_u64(seed),
            wire: None,
            client: Client::default(),
            driver: Driver::default(),
            cuts: 0,
        };
        world.driver.asked.push("begin".to_owned());
        let begin = initialize("begin");
        world.driver.send(begin, None);
        world
    }

    fn connect(&mut self) {
        let mut wire = Wire::default();
        for line in &self.client.kept {
            wire.to_driver.push_back(Frame::Line(line.to_string()));
        }
        for (number, line) in self.driver.ledger.came() {
            wire.to_client.push_back(Frame::Line(line));
            wire.to_client.extend(number.map(Frame::Sign));
        }
        self.wire = Some(wire);
    }

    /// What is under way is lost.
    fn cut(&mut self) {
        self.cuts += 1;
        let wire = self.wire.take().unwrap();
        let waits = self.client.waits.as_ref().map(Value::to_string);
        for frame in wire.to_driver {
            if let Frame::Line(line) = frame {
                self.client.is_lost |= Some(line) == waits;
            }
        }
    }

    /// Does something that can be done. False: there is nothing.
    fn step(&mut self) -> bool {
        let Self {
            rng,
            wire,
            client,
            driver,
            ..
        } = self;
        let Some(wire) = wire else {
            // The client goes on without a connection, and both have more to say.
            match rng.random_range(0..8) {
                3 if !client.inbox.is_empty() => client.hear(None),
                0 if !client.is_idle() && client.waits.is_none() => client.step(rng, None),
                1 if driver.sent.len() < TURNS => driver.turn(None),
                2 if driver.can_ask() => driver.ask(None),
                _ => self.connect(),
            }
            return true;
        };
        let cut = self.cuts < CUTS && rng.random_ratio(1, 40);
        if cut {
            self.cut();
            return true;
        }
        let works = !client.is_idle() && client.waits.is_none();
        let can = [
            !wire.to_client.is_empty(),
            !wire.to_driver.is_empty(),
            works,
            driver.sent.len() < TURNS,
            driver.can_ask(),
            !driver.open.is_empty(),
            !client.inbox.is_empty(),
        ];
        let can: Vec<_> = (0..can.len()).filter(|at| can[*at]).collect();
        if can.is_empty() {
            return false;
        }
        match can[rng.random_range(0..can.len())] {
            0 => match wire.to_client.pop_front().unwrap() {
                Frame::Line(line) => client.inbox.push_back(line),
                Frame::Sign(number) => wire.to_driver.push_back(Frame::Sign(number)),
            },
            1 => match wire.to_driver.pop_front().unwrap() {
                Frame::Line(line) => driver.hear(&line),
                Frame::Sign(number) => driver.ledger.proven(number),
            },
            2 => client.step(rng, Some(wire)),
            3 => driver.turn(Some(wire)),
            4 => driver.ask(Some(wire)),
            6 => client.hear(Some(wire)),
            _ => {
                let at = rng.random_range(0..driver.open.len());
                let id = driver.open.swap_remove(at);
                driver.send(success(&id, &json!({})), Some(wire));
            }
        }
        true
    }
}

#[test]
fn through_any_cuts_nothing_is_lost_or_doubled_and_a_client_that_lost_a_call_is_noticed() {
    let (mut stuck, mut well) = (0, 0);
    for seed in 0..WORLDS {
        let mut world = World::new(seed);
        let steps = (0..STEPS_MAX).take_while(|_| world.step()).count();
        assert!(steps < STEPS_MAX, "seed {seed}: it never comes to rest");
        let World { client, driver, .. } = world;
        assert_eq!(client.is_idle(), !client.is_lost, "seed {seed}");
        let seems = driver.ledger.seems_stuck();
        assert_eq!(client.is_lost, seems, "seed {seed}: {:?}", client.waits);
        *[&mut well, &mut stuck][usize::from(seems)] += 1;
        assert_eq!(client.taken, driver.sent, "seed {seed}: turns");
        assert_eq!(driver.heard, client.said, "seed {seed}: what was said");
        assert_eq!(
            sorted(&driver.answered),
            sorted(&driver.asked),
            "seed {seed}"
        );
        // One that belongs to a turn can be taken for a receipt, but never the other way round.
        let mut merged = client.may_be_receipts.iter();
        let heard = &driver.may_be_receipts;
        assert!(
            heard.iter().all(|line| merged.any(|said| said == line)),
            "seed {seed}: {heard:?}"
        );
        let done = [&client.done, &driver.permitted].map(|all| sorted(all));
        for all in done {
            assert!(
                all.is_sorted_by(|one, next| one < next),
                "seed {seed}: {all:?}"
            );
        }
    }
    assert!(stuck > 0 && well > 0, "{stuck} and {well}");
}

fn sorted(all: &[String]) -> Vec<String> {
    let mut all = all.to_vec();
    all.sort();
    all
}
