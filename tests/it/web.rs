//! The gateway: what comes in over HTTP reaches peers, and what they answer comes out.

mod dashboard;
pub(crate) mod hostile;
pub(crate) mod page;
mod phone;
mod refused;
mod replies;
mod requests;
mod second;
mod sessions;
mod webhooks;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::orphans::Session;
use crate::sessions::names;
use crate::support::{Broker, Home, Lines, Mcp, PATIENCE, eventually};

/// `peerbus web`, killed when dropped.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: String,
}

impl Gateway {
    pub(crate) fn start(home: &Home) -> Self {
        Self::start_with(home, &[])
    }

    fn start_with(home: &Home, more: &[&str]) -> Self {
        let args = [&["web", "--listen", "127.0.0.1:0"], more].concat();
        Self::of(&mut home.peerbus(&args))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the gateway starts");
        let lines = Lines::of(child.stderr.take().expect("a pipe"));
        let address = lines.find("address", |line| {
            let url = line.strip_prefix("listening on http")?;
            Some(url.split_once("://")?.1.to_owned())
        });
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("the gateway listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    /// One request, its headers as lines. Gives the answer.
    pub(crate) fn ask(&self, line: &str, headers: &[&str], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let host = format!("Host: {}", self.address);
        let given = |name: &str| headers.iter().any(|header| header.starts_with(name));
        let mut all = vec![line.to_owned() + " HTTP/1.1", "Connection: close".into()];
        all.extend((!given("Host:")).then_some(host));
        all.push(format!("Content-Length: {}", body.len()));
        all.extend(headers.iter().map(|header| (*header).to_owned()));
        let head = all.join("\r\n") + "\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("it reads");
        // Refused before all of it was read.
        let _ = stream.write_all(body);
        Answer::read(stream)
    }

    /// A stream of replies: its lines.
    fn replies(&self, token: &str, more: &[&str]) -> Lines {
        self.reader(token, more).0
    }

    /// The same, and its end: it hangs up when that is shut down.
    fn reader(&self, token: &str, more: &[&str]) -> (Lines, TcpStream) {
        let mut stream = self.connect();
        let more: String = more.iter().map(|line| format!("{line}\r\n")).collect();
        let host = &self.address;
        let head = format!(
            "GET /v1/replies HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{more}\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        let end = stream.try_clone().expect("a socket");
        let lines = Lines::of(stream);
        lines.find("stream", |line| (line == ": connected").then_some(()));
        (lines, end)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A connection that was refused while we wrote may be reset behind its answer.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Self {
            status: status.expect("a status"),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}", self.body))
    }

    /// Checks that it is a receipt, and gives the message's id.
    #[track_caller]
    fn accepted(&self) -> String {
        assert_eq!(self.status, 200, "{}", self.body);
        let receipt = self.json();
        assert_eq!(receipt["state"], "accepted");
        receipt["id"].as_str().expect("an id").to_owned()
    }

    /// Checks that it is refused with a sentence.
    #[track_caller]
    fn refused(&self, status: u16, says: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        let error = self.json()["error"]
            .as_str()
            .expect("a sentence")
            .to_owned();
        assert!(error.contains(says), "{error}");
    }
}

pub(crate) fn token(home: &Home, args: &[&str]) -> String {
    let made = home.run(&[&["web", "token", "add"], args].concat()).ok();
    assert_eq!(made.lines().count(), 1, "{made}");
    made.trim().to_owned()
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

fn agent(home: &Home, name: &str) -> Mcp {
    let mut agent = Mcp::start(home, "generic", name, "some-bot");
    agent.call("bus.peers", json!({}));
    agent
}

/// The next message that an agent reads.
fn read(agent: &mut Mcp) -> Value {
    eventually("a message comes", || {
        let mut read = agent.call("bus.inbox", json!({ "max": 1 }));
        read["messages"].as_array_mut()?.pop()
    })
}

/// The next event of a stream: its id, its name and its data.
fn event(lines: &Lines, wanted: &str) -> (String, Value) {
    let mut id = String::new();
    let mut name = String::new();
    let data = lines.find(wanted, |line| {
        if let Some(text) = line.strip_prefix("id: ") {
            text.clone_into(&mut id);
        }
        if let Some(text) = line.strip_prefix("event: ") {
            text.clone_into(&mut name);
        }
        let data = line.strip_prefix("data: ")?;
        (name == wanted).then(|| data.to_owned())
    });
    (id, serde_json::from_str(&data).expect("JSON on one line"))
}

const JSON: &str = "Content-Type: application/json; charset=utf-8";

/// A webhook: its line, headers and body, the text that its receiver reads, and parts of where it
/// says to come from.
type Hook = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
    &'static [&'static str],
);

const HOOKS: &[Hook] = &[
    (
        "POST /hook/bob",
        &[],
        "build failed",
        "build failed",
        &[r#"path="/hook/bob""#],
    ),
    (
        "POST /hook/BOB/deploy?run=7&a-b=%22%3Cx%3E&from=alice",
        &["X-GitHub-Event: push", "X-Other: secret"],
        "a\n<b>\u{1b}",
        "a\n\\u003cb\\u003e\\u001b",
        &[
            r#"path="/hook/BOB/deploy""#,
            r#"run="7""#,
            r#"a_b="\"\u003cx\u003e""#,
            r#"x_github_event="push""#,
            r#"method="POST""#,
        ],
    ),
    (
        "POST /hook/bob",
        &[JSON],
        r#"{"n":1.50,"meta":{"path":"/forged"}}"#,
        r#"{"n":1.50,"meta":{"path":"/forged"}}"#,
        &[r#"path="/hook/bob""#],
    ),
    ("POST /hook/bob", &[JSON], r#""plain""#, "plain", &[]),
];

#[test]
fn a_webhook_reaches_an_agent_with_where_it_came_from_and_its_answer_comes_back() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = bearer(&token(
        &home,
        &["ci", "--to", "bo*", "--header", "X-GitHub-Event"],
    ));
    let gateway = Gateway::start(&home);
    let mut bob = agent(&home, "bob");
    for (line, headers, body, text, meta) in HOOKS {
        let headers = [&[ci.as_str()], *headers].concat();
        let id = gateway.ask(line, &headers, body.as_bytes()).accepted();
        let heard = read(&mut bob);
        assert_eq!(
            (&heard["from"], &heard["id"]),
            (&json!("web:ci"), &json!(id))
        );
        assert_eq!(heard["text"], *text, "{heard}");
        let said = heard["meta"].as_str().expect("where it came from");
        for part in *meta {
            assert!(said.contains(part), "{said}");
        }
        assert!(!said.contains("secret"), "{said}");
    }
    let answered = gateway.ask(
        "POST /v1/messages",
        &[&ci],
        br#"{"to":"bob","body":"and?"}"#,
    );
    let id = answered.accepted();
    assert_eq!(read(&mut bob)["text"], "and?");
    bob.call(
        "bus.reply",
        json!({ "msg_id": id, "body": "mended\nit <now>" }),
    );
    // It waits for whoever reads, also when nobody did.
    let lines = gateway.replies(ci.rsplit(' ').next().expect("a token"), &[]);
    let (_, reply) = event(&lines, "message");
    assert_eq!(
        (&reply["from"], &reply["reply_to"]),
        (&json!("bob"), &json!(id))
    );
    assert_eq!(reply["text"], "mended\nit <now>");
    eventually("its way is told to the end", || {
        let told = gateway.ask(&format!("GET /v1/messages/{id}"), &[&ci], b"");
        let steps = told.json()["steps"].as_array().expect("steps").clone();
        (steps.last().expect("a step")["state"] == "seen").then_some(())
    });
    broker.stop();
}

#[test]
fn a_request_that_is_repeated_is_sent_once_also_after_a_restart() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = bearer(&token(&home, &["ci"]));
    let mut bob = agent(&home, "bob");
    let key = "Idempotency-Key: build-7";
    let body = br#"{"to":"bob","body":"once"}"#;
    let mut gateway = Gateway::start(&home);
    let ask = |gateway: &Gateway, body: &[u8]| gateway.ask("POST /v1/messages", &[&ci, key], body);
    let first = ask(&gateway, body);
    let id = first.accepted();
    assert_eq!(ask(&gateway, body).body, first.body);
    ask(&gateway, br#"{"to":"bob","body":"another"}"#).refused(409, "another request");
    gateway = Gateway::start(&home);
    assert_eq!(ask(&gateway, body).accepted(), id);
    assert_eq!(read(&mut bob)["text"], "once");
    assert_eq!(bob.call("bus.inbox", json!({}))["messages"], json!([]));
    // Nothing is called accepted that was not sent, whatever is remembered.
    gateway = Gateway::start(&home);
    let other = ask(&gateway, br#"{"to":"bob","body":"another"}"#).accepted();
    let heard = read(&mut bob);
    assert_eq!(
        (&heard["id"], &heard["text"]),
        (&json!(other), &json!("another"))
    );
    broker.stop();
}

#[test]
fn a_phone_approves_over_http_where_the_user_says_so_and_only_with_a_token_for_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let phone = token(&home, &["phone", "--approve"]);
    let other = token(&home, &["other"]);
    let gateway = Gateway::start(&home);
    let gates = home.credentials().with_file_name("sessions.toml");
    std::fs::write(gates, "remote = [\"web:phone\", \"web:other\"]").expect("our file");
    let streams = [&phone, &other].map(|token| gateway.replies(token, &[]));
    let mut bob = Session::start(&home, "bob");
    eventually("bob is there", || {
        names(&home).contains(&"bob".to_owned()).then_some(())
    });
    let ask = json!({
        "hook_event_name": "PermissionRequest", "tool_name": "Bash",
        "tool_input": { "command": "make" },
    });
    for (way, answer) in [("POST /hook/bob", "yes"), ("POST /v1/messages", "no")] {
        bob.tell(&format!("hook {answer} {ask}"));
        let requests = streams.each_ref().map(|lines| {
            let (_, request) = event(lines, "message");
            let id = request["body"]["approval"]["id"].as_str();
            id.unwrap_or_else(|| panic!("{request}")).to_owned()
        });
        assert_eq!(requests[0], requests[1]);
        let words = format!("{answer} {}", requests[0]);
        let body = match way.contains("hook") {
            true => words.clone(),
            false => json!({ "to": "bob", "body": words }).to_string(),
        };
        // It is a text like others, and no verdict.
        gateway
            .ask(way, &[&bearer(&other)], body.as_bytes())
            .accepted();
        gateway
            .ask(way, &[&bearer(&phone)], body.as_bytes())
            .accepted();
        let (_, told) = event(&streams[0], "message");
        let resolved = &told["body"]["approval_resolved"];
        assert_eq!(resolved["by"], "peer:web:phone", "{told}");
        let verdict = bob.hear(&format!("hook {answer}"));
        let behavior = if answer == "yes" { "allow" } else { "deny" };
        assert!(
            verdict.contains(&format!(r#""behavior":"{behavior}""#)),
            "{verdict}"
        );
    }
    broker.stop();
}
