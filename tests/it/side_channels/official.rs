//! The official everything server behind a channel: through the official SDK, and asked for all of MCP by
//! a peer that keeps to nothing.

use std::fs;
use std::path::Path;

use peerbus_test_support::message::envelope;
use serde_json::{Value, json};

use super::{Share, official, user};
use crate::support::{Broker, Home, Raw, eventually, python};

/// What MCP's clients may ask, and the set that it belongs to.
const REQUESTS: [(&str, &str); 20] = [
    ("tools/list", "serverTools"),
    ("tools/call", "serverTools"),
    ("resources/list", "serverResources"),
    ("resources/templates/list", "serverResources"),
    ("resources/read", "serverResources"),
    ("logging/setLevel", "logging"),
    ("initialize", ""),
    ("server/discover", ""),
    ("resources/subscribe", ""),
    ("resources/unsubscribe", ""),
    ("prompts/list", ""),
    ("prompts/get", ""),
    ("completion/complete", ""),
    ("sampling/createMessage", ""),
    ("elicitation/create", ""),
    ("roots/list", ""),
    ("tasks/list", ""),
    ("tasks/get", ""),
    ("tasks/cancel", ""),
    ("Tools/List", ""),
];

/// A peer that speaks the wire itself.
struct Stranger {
    raw: Raw,
    secret: String,
    asked: usize,
}

impl Stranger {
    fn new(home: &Home, broker: &Broker) -> Self {
        Self {
            raw: Raw::register(home, broker, "stranger"),
            secret: home.credential("hmac_secret"),
            asked: 0,
        }
    }

    /// Sends a message of MCP to the host.
    fn tell(&mut self, message: &Value) {
        self.asked += 1;
        let id = format!("s{}", self.asked);
        let text = envelope(&self.secret, &id, "stranger", "host", &message.to_string());
        self.raw.say(&text);
    }

    /// Asks a method without arguments, and gives the answer.
    fn asks(&mut self, uri: &str, id: usize, method: &str) -> Value {
        self.tell(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": {}, "channel": uri }),
        );
        let answer = self.hear();
        assert_eq!(
            (&answer["id"], &answer["channel"]),
            (&json!(id), &json!(uri))
        );
        answer
    }

    /// What the host sends next, changes of lists apart: this server tells of one at its start.
    fn hear(&mut self) -> Value {
        loop {
            let mut frame = self.raw.delivery();
            let key = &frame["delivery_key"];
            let ack = json!({ "protocol_version": "v1", "type": "ack", "id": key });
            self.raw.say(&ack.to_string());
            let body = frame["envelope"]["body"].take();
            if body["method"] != "notifications/tools/list_changed" {
                return body;
            }
        }
    }
}

/// The everything server, behind a `tee` that writes down all that it reads.
fn everything(home: &Home, allow: &str) -> Option<(Share, std::path::PathBuf)> {
    let server = official("mcp-server-everything")?;
    let log = home.path().join(format!("{allow}.log"));
    let script = format!("tee '{}' | {server} stdio", log.display());
    let args = [
        "everything",
        "--allow",
        allow,
        "--to",
        "*",
        "--name",
        "host",
    ];
    Some((Share::start(home, &args, &["sh", "-c", &script]), log))
}

/// How often the server was told of a method.
fn read(log: &Path, method: &str) -> usize {
    let text = fs::read_to_string(log).expect("tee's file");
    let lines = text.lines().map(serde_json::from_str::<Value>);
    lines
        .filter(|line| line.as_ref().is_ok_and(|line| line["method"] == method))
        .count()
}

#[test]
fn eight_clients_of_the_official_sdk_use_one_server() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let Some((share, log)) = everything(&home, "serverTools,serverResources,logging") else {
        return;
    };
    let uri = share.uri();
    let mut script = python::driver(&home, "mcp/channel_drive.py");
    script.args(["--channel", &uri]);
    script.args(["--server", "mcp-server-everything stdio"]);
    python::passes_or_skips(&mut script, python::in_ci());
    eventually("the server is told of four that gave up", || {
        (read(&log, "notifications/cancelled") == 4).then_some(())
    });
    assert_eq!(read(&log, "prompts/list"), 0);
    broker.stop();
}

#[test]
fn whatever_a_peer_asks_the_server_sees_what_is_shared_and_nothing_else() {
    for allow in [
        "serverTools",
        "serverResources",
        "logging",
        "serverTools,logging",
        "serverTools,serverResources,logging",
    ] {
        let home = Home::new();
        let broker = Broker::start(&home);
        let Some((share, log)) = everything(&home, allow) else {
            return;
        };
        let uri = share.uri();
        let mut stranger = Stranger::new(&home, &broker);
        let served = |set: &str| allow.split(',').any(|allowed| allowed == set);
        for (number, (method, set)) in REQUESTS.into_iter().enumerate() {
            let answer = stranger.asks(&uri, number, method);
            let refused = answer["error"]["message"] == "Method not found";
            assert_eq!(served(set), !refused, "{allow}: {method}: {answer}");
        }
        let mut ours = REQUESTS.into_iter().filter(|(_, set)| served(set));
        let (last, _) = ours.next().expect("something is shared");
        stranger.asks(&uri, REQUESTS.len(), last);
        eventually("all is written down", || {
            (read(&log, last) == 2).then_some(())
        });
        for (method, set) in REQUESTS {
            // The host itself introduces itself.
            let seen = usize::from(served(set) || method == "initialize");
            let again = usize::from(method == last);
            assert_eq!(read(&log, method), seen + again, "{allow}: {method}");
        }
        broker.stop();
    }
}

#[test]
fn a_channel_is_read_where_it_stands_and_answered_there() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let Some((share, log)) = everything(&home, "serverTools") else {
        return;
    };
    let uri = share.uri();
    let mut stranger = Stranger::new(&home, &broker);
    let call = json!({ "name": "trigger-long-running-operation", "arguments": { "duration": 0.1, "steps": 1 }, "_meta": { "progressToken": "mine" } });
    for top in [true, false] {
        let mut message =
            json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": call });
        match top {
            true => message["channel"] = json!(uri),
            false => message["params"]["channel"] = json!(uri),
        }
        stranger.tell(&message);
        let progress = stranger.hear();
        assert_eq!(
            progress["method"], "notifications/progress",
            "{top}: {progress}"
        );
        assert_eq!(progress["params"]["progressToken"], "mine");
        let (beside, within) = (&progress["channel"], &progress["params"]["channel"]);
        let (used, empty) = match top {
            true => (beside, within),
            false => (within, beside),
        };
        assert_eq!((used, empty), (&json!(uri), &Value::Null), "{progress}");
        let answer = stranger.hear();
        assert!(answer["result"].is_object(), "{answer}");
        // There is no other place in a response.
        assert_eq!(answer["channel"], uri);
    }
    let text = fs::read_to_string(log).expect("tee's file");
    assert!(!text.contains(r#""channel""#), "{text}");
    for (uri, code) in [("mcp://host/everything/00000000", -32_001), ("", -32_001)] {
        stranger
            .tell(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "channel": uri }));
        assert_eq!(stranger.hear()["error"]["code"], code);
    }
    broker.stop();
}

#[test]
fn what_was_asked_and_answered_is_not_kept() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let Some((share, _)) = everything(&home, "serverTools") else {
        return;
    };
    let uri = share.uri();
    let mut dev = user(&home, &uri, "dev-1");
    let secret = "hunter2 and the sea";
    let call = json!({ "name": "echo", "arguments": { "message": secret } });
    let answer = dev.request("tools/call", call);
    assert!(answer.to_string().contains(secret), "{answer}");
    share.said.find("who called", |line| {
        line.contains("dev-1: tools/call echo").then_some(())
    });
    let db = home.database();
    let texts = |db: &Path| {
        let sql = "SELECT envelope FROM messages UNION ALL SELECT entries FROM contents";
        let db = rusqlite::Connection::open(db).expect("a database");
        let mut statement = db.prepare(sql).expect("our tables");
        let texts = statement.query_map([], |row| row.get::<_, String>(0));
        texts
            .expect("rows")
            .collect::<Result<Vec<_>, _>>()
            .expect("texts")
    };
    // The last ack may be on its way.
    eventually("no text is left", || {
        let texts = texts(&db);
        assert!(!texts.is_empty());
        texts
            .iter()
            .all(|text| !text.contains("jsonrpc"))
            .then_some(())
    });
    let history = home.run(&["history", "--json"]).ok();
    assert!(!history.contains("hunter2"), "{history}");
    home.run(&["audit", "verify"]).ok();
    broker.stop();
}
