//! A request in each of its states: all that tells of it tells the same.

use serde_json::{Value, json};

use super::{Answer, Gateway, bearer, event, token};
use crate::requests::{Holder, open};
use crate::support::{Broker, Home, Lines, eventually};

/// What happens to a request that bob gets; the state in which `status`, the history and the gateway show
/// it; how it stands in lists of open requests, unless it has ended; and part of the sentence.
type Row = (
    fn(&mut Holder, &Home),
    &'static str,
    Option<&'static str>,
    &'static str,
);

const TABLE: &[Row] = &[
    (
        |_, _| {},
        "delivered",
        Some("delivered"),
        "has not said what became of it",
    ),
    (
        |bob, _| bob.reads(),
        "owed",
        Some("seen"),
        "bob's model has seen it and owes an answer",
    ),
    (
        |bob, _| {
            bob.reads();
            bob.works("half\nway");
        },
        "working",
        Some("working: \"half\\u000away\""),
        ": \"half\\u000away\"",
    ),
    (
        |bob, _| {
            bob.reads();
            bob.does("waiting");
        },
        "owed",
        Some("waits for its user"),
        "bob waits for you",
    ),
    (
        |bob, _| {
            bob.reads();
            bob.answers(&format!("r-{}", bob.id()), json!({ "text": "yes" }));
        },
        "done",
        None,
        "is the result",
    ),
    (
        |bob, _| {
            let body = json!({ "text": "no", "outcome": "failed" });
            bob.answers(&format!("r-{}", bob.id()), body);
        },
        "failed",
        None,
        "it failed at bob",
    ),
    (
        |bob, _| bob.declines("not mine"),
        "declined",
        None,
        "it was declined",
    ),
    (
        |bob, home| {
            bob.reads();
            home.run(&["requests", "cancel", &bob.id()]).ok();
        },
        "withdrawn",
        None,
        "bob does not owe an answer any more",
    ),
];

/// A gateway, and an asker at it with a token of its own.
struct Asker {
    gateway: Gateway,
    name: String,
    token: String,
    told: Lines,
}

impl Asker {
    fn new(home: &Home, name: &str) -> Self {
        let token = token(home, &[name]);
        let gateway = Gateway::start(home);
        let told = gateway.replies(&token, &[]);
        Self {
            gateway,
            name: format!("web:{name}"),
            token: bearer(&token),
            told,
        }
    }

    fn get(&self, path: &str) -> Answer {
        self.gateway
            .ask(&format!("GET {path}"), &[&self.token], b"")
    }

    fn ask(&self, to: &str, within_ms: u64) -> String {
        let body = json!({ "to": to, "body": "ready?", "within_ms": within_ms }).to_string();
        let sent = self
            .gateway
            .ask("POST /v1/messages", &[&self.token], body.as_bytes());
        sent.accepted()
    }

    /// The end of a request, as it is told to who asked.
    fn end(&self, id: &str) -> Value {
        loop {
            let (_, told) = event(&self.told, "receipt");
            let ends = ["done", "failed", "declined", "withdrawn", "unanswered"];
            let stage = told["stage"].as_str().expect("a stage");
            if told["id"] == id && ends.contains(&stage) {
                return told;
            }
        }
    }
}

/// A request as `status` shows it once it says this of it.
#[track_caller]
fn noted(home: &Home, id: &str, note: &str) -> Value {
    eventually(note, || {
        let status = home.run(&["status", id, "--json"]).ok();
        let mut status: Value = serde_json::from_str(&status).expect("JSON");
        let said = status["messages"][0]["trail"]["note"].as_str();
        let says = said.expect("a note").contains(note);
        says.then(|| status["messages"][0].take())
    })
}

/// What tells of a request: the commands, the gateway, and the history.
#[track_caller]
fn agree(home: &Home, asker: &Asker, id: &str, (_, state, listed, note): &Row) {
    // A statement that comes while somebody asks is in the answer to that.
    if listed.is_none() {
        let end = asker.end(id);
        assert_eq!((&end["stage"], &end["to"]), (&json!(state), &json!("bob")));
    }
    let message = noted(home, id, note);
    let told = asker.get(&format!("/v1/messages/{id}")).json();
    assert_eq!(told["stage"], *state, "{told}");
    for trail in [&message["trail"], &told] {
        let steps = trail["steps"].as_array().expect("steps");
        let mut here = steps.iter().filter(|step| step["to"] == "bob");
        let step = here.find(|step| step["state"] == *state);
        let step = step.unwrap_or_else(|| panic!("{trail}"));
        let has_reply = ["done", "failed"].contains(state);
        assert_eq!(step["reply"].is_string(), has_reply, "{trail}");
    }
    let history = home.run(&["history"]).ok();
    let from = format!("{} → bob", asker.name);
    let line = history.lines().rfind(|line| line.contains(&from));
    let word = if *state == "owed" { "seen" } else { state };
    let word = format!("bob  {word}  ");
    assert!(line.expect("a line").contains(&word), "{history}");
    // Of lists of open requests.
    let here = |it: &&Value| it["id"] == id;
    // Whose agents these are is told so, and others are not.
    let (all, gateway) = (open(home), asker.get("/v1/requests").json());
    let command = all.iter().find(here).map(|it| &it["request"]);
    let gateway = gateway["requests"]
        .as_array()
        .expect("a list")
        .iter()
        .find(here);
    for (shown, user) in [(command, "you"), (gateway, "its user")] {
        let listed = listed.map(|state| state.replace("its user", user));
        let state = shown.map(|it| it["state"].as_str().expect("a word"));
        assert_eq!(state, listed.as_deref());
        assert!(shown.is_none_or(|it| it["holder"] == "bob"));
    }
    if listed.is_none() {
        let done = home.run(&["requests", "--done"]).ok();
        let row = done.lines().last().expect("a row");
        assert!(row.contains(&id[24..]) && row.contains(state), "{done}");
    }
}

#[test]
fn the_commands_the_gateway_and_the_receipts_agree_on_what_became_of_a_request() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    // The gateway takes twenty requests of a token at once; a row has three.
    for (number, rows) in TABLE.chunks(4).enumerate() {
        let asker = Asker::new(&home, &format!("ci-{number}"));
        for row in rows {
            let id = asker.ask("bob", 3_600_000);
            bob.gets();
            assert_eq!(bob.id(), id);
            row.0(&mut bob, &home);
            agree(&home, &asker, &id, row);
            bob.does("idle");
        }
    }
    // Another token is not told of them.
    let other = Asker::new(&home, "other");
    assert_eq!(other.get("/v1/requests").json(), json!({ "requests": [] }));
    broker.stop();
}

#[test]
fn a_request_whose_time_is_over_is_unanswered_everywhere() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let bob = Holder::new(&home, &broker, "bob");
    let asker = Asker::new(&home, "ci");
    let id = asker.ask("bob", 1);
    let row: Row = (|_, _| {}, "unanswered", None, "its time is over");
    agree(&home, &asker, &id, &row);
    bob.leaves();
    // Nobody has it, and it waits.
    let row: Row = (
        |_, _| {},
        "queued",
        Some("queued"),
        "it waits at the broker for bob",
    );
    let id = asker.ask("bob", 3_600_000);
    noted(&home, &id, row.3);
    let told = asker.get(&format!("/v1/messages/{id}")).json();
    assert_eq!(told["stage"], row.1, "{told}");
    let note = told["note"].as_str().expect("a note");
    assert!(note.contains(row.3), "{told}");
    let all = open(&home);
    assert_eq!(all[0]["request"]["state"], row.2.expect("a state"));
    broker.stop();
}

#[test]
fn a_time_that_may_not_be_said_is_refused() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = Holder::new(&home, &broker, "bob");
    let asker = Asker::new(&home, "ci");
    for within_ms in ["0", "604800001", "-1", "1.5", "1e300"] {
        let body = format!(r#"{{"to":"bob","body":"?","within_ms":{within_ms}}}"#);
        let asked = asker
            .gateway
            .ask("POST /v1/messages", &[&asker.token], body.as_bytes());
        asked.refused(400, "within_ms is 1 to 604800000, which is 7 days");
    }
    broker.stop();
}
