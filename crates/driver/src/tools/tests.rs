use std::path::Path;

use peerbus_adapter::agents::Agent;
use peerbus_adapter::hooks::{AskTools, SessionSocket, TOOLS};
use peerbus_adapter::paths::Paths;
use serde_json::{Value, json};
use tokio::io::{Lines, ReadHalf, WriteHalf};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::*;

const LIST: &str = r#"{"jsonrpc":"2.0","id":9,"method":"tools/list"}"#;

/// The end of the server, which a test speaks for.
struct Server {
    asked: Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
}

impl Server {
    async fn next(&mut self) -> Value {
        let line = self.asked.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.write.write_all(line.as_bytes()).await.unwrap();
    }

    async fn answer(&mut self, id: &Value, result: &str) {
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        self.say(&answer.to_string()).await;
    }

    /// Hears of the driver's client, and answers it.
    async fn begin(&mut self) {
        let hello = self.next().await;
        assert_eq!(hello["method"], "initialize");
        assert_eq!(
            hello["params"]["clientInfo"],
            json!({ "name": "n", "version": "v" })
        );
        assert_eq!(self.next().await["method"], "notifications/initialized");
        let result = r#"{"protocolVersion":"2025-11-25","hi":1}"#;
        self.say(&format!(r#"{{"jsonrpc":"2.0","id":0,"result":{result}}}"#))
            .await;
    }
}

/// Has `test` speak for the server of tools that are carried meanwhile.
async fn carried<T>(tools: &Tools, waiting: mpsc::Receiver<String>, test: T)
where
    T: AsyncFnOnce(Server),
{
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (read, write) = split(theirs);
    let asked = BufReader::new(read).lines();
    let who = ClientInfo {
        name: "n".to_owned(),
        version: "v".to_owned(),
    };
    tokio::select! {
        () = test(Server { asked, write }) => {}
        () = tools.carry(&who, ours, waiting, |_| {}) => panic!("the server ended"),
    }
}

fn message(text: &str) -> RpcMessage {
    serde_json::from_str(text).unwrap()
}

/// A way back, and what came there.
fn back() -> (Back, mpsc::Receiver<String>) {
    let (to, from) = mpsc::channel(1);
    let back = move |answer: RpcMessage| -> BoxFuture<'static, ()> {
        to.try_send(answer.text()).unwrap();
        Box::pin(std::future::ready(()))
    };
    (Box::new(back), from)
}

#[tokio::test]
async fn a_server_that_asks_whether_its_client_lives_is_answered() {
    let (tools, waiting) = Tools::new();
    carried(&tools, waiting, async |mut server| {
        server.begin().await;
        let (back, mut answer) = back();
        tools.take(STREAM, message(LIST), back).await;
        let asked = server.next().await;
        let ping = r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#;
        server.say(ping).await;
        server.answer(&asked["id"], "none").await;
        answer.recv().await.unwrap();
        // What it is told then comes behind the answer.
        tools.gone(STREAM).await;
        let note = r#"{"jsonrpc":"2.0","method":"notifications/note"}"#;
        let (back, _) = self::back();
        tools.take(STREAM, message(note), back).await;
        let pong = json!({ "jsonrpc": "2.0", "id": 5, "result": {} });
        assert_eq!(server.next().await, pong);
    })
    .await;
}

#[tokio::test]
async fn each_client_gets_its_own_answers_as_they_were_written() {
    let (tools, waiting) = Tools::new();
    let take = async |client, text| {
        let (back, answer) = back();
        (tools.take(client, message(text), back).await, answer)
    };
    carried(&tools, waiting, async |mut server| {
        let hello = r#"{"id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05",
            "clientInfo":{"name":"one","version":"1"}}}"#;
        let ((met, mut answer), ()) = tokio::join!(take(STREAM, hello), server.begin());
        assert_eq!(met.unwrap().name, "one");
        let wanted = json!({ "jsonrpc": "2.0", "id": 0,
            "result": { "protocolVersion": "2024-11-05", "hi": 1 } });
        let told: Value = serde_json::from_str(&answer.recv().await.unwrap()).unwrap();
        assert_eq!(told, wanted);
        // Both count from the same number.
        let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"n":1.50}}"#;
        let (_, mut first) = take(STREAM, call).await;
        let (_, mut second) = take(2, call).await;
        for number in [1, 2] {
            assert_eq!(
                server.asked.next_line().await.unwrap().unwrap(),
                call.replace(":7", &format!(":{number}"))
            );
        }
        let cancel = r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#;
        take(2, cancel).await;
        assert_eq!(server.next().await["params"]["requestId"], 2);
        let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"n":1e400}}"#;
        server.say(answer).await;
        server.say(&answer.replace(":2,", ":1,")).await;
        // What was cancelled has no answer, and takes no place.
        assert_eq!(second.recv().await, None);
        assert_eq!(first.recv().await, Some(answer.replace(":2,", ":7,")));
    })
    .await;
}

#[tokio::test]
async fn what_a_client_asked_is_cancelled_when_it_is_gone_and_nothing_of_others() {
    let (tools, waiting) = Tools::new();
    carried(&tools, waiting, async |mut server| {
        server.begin().await;
        let call = || message(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
        let (mut backs, mut answers): (Vec<_>, Vec<_>) = (0..3).map(|_| back()).unzip();
        for client in [1, 2, 1] {
            tools.take(client, call(), backs.pop().unwrap()).await;
            server.next().await;
        }
        tools.gone(1).await;
        for number in [1, 3] {
            let cancelled = server.next().await;
            assert_eq!(cancelled["method"], "notifications/cancelled");
            assert_eq!(cancelled["params"]["requestId"], number);
        }
        for number in [1, 2, 3] {
            let answer = json!({ "jsonrpc": "2.0", "id": number, "result": {} });
            server.say(&answer.to_string()).await;
        }
        let wanted = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(answers[1].recv().await.as_deref(), Some(wanted));
        assert_eq!(answers[0].recv().await, None);
        assert_eq!(answers[2].recv().await, None);
    })
    .await;
}

/// An adapter's connection to a driver.
struct Adapter {
    lines: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
}

impl Adapter {
    async fn connect(socket: &Path, ask: &AskTools) -> (Self, Value) {
        let (read, write) = UnixStream::connect(socket).await.unwrap().into_split();
        let lines = BufReader::new(read).lines();
        let mut adapter = Self { lines, write };
        adapter
            .say(&RpcMessage::request(1, TOOLS, ask).text())
            .await;
        let part = adapter.next().await["result"].take();
        (adapter, part)
    }

    async fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.write.write_all(line.as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

fn places(dir: &Path) -> Paths {
    Paths {
        config_dir: dir.to_owned(),
        state_dir: dir.join("state"),
        runtime_dir: dir.join("run"),
        credentials: dir.join("credentials.toml"),
        gates: dir.join("sessions.toml"),
        tokens: dir.join("tokens"),
        database: dir.join("peerbus.db"),
        socket: dir.join("peerbus.sock"),
        sockets: Vec::new(),
    }
}

/// Has `test` speak for the server, and for adapters that ask with this at the session's socket.
async fn at_socket(test: impl AsyncFnOnce(Server, &Path, AskTools)) {
    let home = tempfile::tempdir().unwrap();
    let socket = SessionSocket::bind(&places(home.path()), std::process::id()).unwrap();
    let path = socket.path().borrow().clone();
    let (tools, waiting) = Tools::new();
    let relays = Relays::new(tools.clone(), &Agent::UNKNOWN, false, None);
    let [_, (_, token)] = relays.environment();
    let ask = AskTools {
        token: Some(token),
        ..AskTools::default()
    };
    let served = socket.serve(
        move |hook| relays.clone().serve(hook),
        |_| std::future::ready(()),
    );
    let test = carried(&tools, waiting, async |mut server| {
        server.begin().await;
        test(server, &path, ask).await;
    });
    tokio::select! {
        () = test => {}
        () = served => panic!("the socket ended"),
    }
}

#[tokio::test]
async fn relays_are_served_at_the_sessions_socket_side_by_side() {
    at_socket(async |mut server, path, ask| {
        let (_, part) = Adapter::connect(path, &AskTools::default()).await;
        assert_eq!(part, "peer", "nobody knows it");
        let (mut one, part) = Adapter::connect(path, &ask).await;
        assert_eq!(part, "relay");
        let (mut two, _) = Adapter::connect(path, &ask).await;
        for adapter in [&mut one, &mut two] {
            let params = json!({ "protocolVersion": "2099-01-01" });
            adapter
                .say(&RpcMessage::request(0, "initialize", &params).text())
                .await;
            let hello = adapter.next().await;
            assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
            adapter.say("no JSON").await;
            let refused = adapter.next().await;
            assert_eq!(refused["error"]["code"], -32_700, "{refused}");
            // Longer than other lines at that socket.
            let long = "x".repeat(2 << 20);
            adapter
                .say(&RpcMessage::request(1, "tools/call", &long).text())
                .await;
            assert_eq!(server.next().await["params"], *long);
        }
        for number in [2, 1] {
            server.answer(&json!(number), &number.to_string()).await;
        }
        assert_eq!(two.next().await["result"], "2");
        assert_eq!(one.next().await["result"], "1");
        one.say(LIST).await;
        assert_eq!(server.next().await["id"], 3);
        drop(one);
        let cancelled = server.next().await;
        assert_eq!(cancelled["params"]["requestId"], 3, "{cancelled}");
        two.say(LIST).await;
        assert_eq!(server.next().await["id"], 4);
    })
    .await;
}

#[tokio::test]
async fn a_relay_that_is_not_read_holds_up_no_other() {
    at_socket(async |mut server, path, ask| {
        let (mut stuck, _) = Adapter::connect(path, &ask).await;
        let (mut other, _) = Adapter::connect(path, &ask).await;
        // More than a socket holds.
        let long = "x".repeat(64 << 10);
        for _ in 0..64 {
            stuck.say(LIST).await;
            let id = server.next().await["id"].take();
            server.answer(&id, &long).await;
        }
        other.say(LIST).await;
        let id = server.next().await["id"].take();
        server.answer(&id, "this").await;
        assert_eq!(other.next().await["result"], "this");
    })
    .await;
}
