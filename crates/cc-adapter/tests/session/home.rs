//! A session of Claude Code as far as its adapter sees it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use peerbus_adapter::inbox::SocketToken;
use peerbus_adapter::mailbox::WakeList;
use peerbus_adapter::paths::Paths;
use peerbus_cc_adapter::{ClaudeSurroundings, Process, WAKING};
use peerbus_test_support::soon;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

pub(crate) const TOKEN: &str = "open sesame";
const ID: &str = "00000000-0000-4000-8000-000000000001";

/// A session of Claude Code as far as the adapter sees it: a directory with transcripts, and a
/// socket.
pub(crate) struct Home {
    pub(crate) dir: TempDir,
    pub(crate) inbox: Option<UnixListener>,
}

/// A hook that was offered something. Dropped, it has shown nothing.
pub(crate) struct Hook(BufReader<UnixStream>);

/// What came to the session's socket.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) lines: Vec<Value>,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("projects/-nonexistent-project")).unwrap();
        fs::create_dir(dir.path().join("socks")).unwrap();
        let mut home = Self { dir, inbox: None };
        home.listen();
        home
    }

    /// Listens, again where it did before, at the session's socket.
    pub(crate) fn listen(&mut self) {
        let path = self.dir.path().join("socks/1.sock");
        let _ = fs::remove_file(&path);
        self.inbox = Some(UnixListener::bind(path).unwrap());
    }

    pub(crate) fn around(&self, wake: &str) -> ClaudeSurroundings {
        ClaudeSurroundings {
            config_dir: Some(self.dir.path().to_owned()),
            session_id: Some(ID.into()),
            socket: Some(self.dir.path().join("socks/1.sock")),
            token: Some(SocketToken::new(TOKEN.into())),
            project: Some("/nonexistent/project".into()),
            wake: WakeList::read(wake, &WAKING).unwrap(),
            ..ClaudeSurroundings::default()
        }
    }

    /// Where hooks find the adapter.
    pub(crate) fn paths(&self) -> Paths {
        let dir = self.dir.path().to_owned();
        Paths {
            config_dir: dir.clone(),
            state_dir: dir.clone(),
            runtime_dir: dir.clone(),
            credentials: dir.join("credentials.toml"),
            gates: dir.join("sessions.toml"),
            tokens: dir.join("tokens.toml"),
            database: dir.join("peerbus.db"),
            socket: dir.join("peerbus.sock"),
            sockets: Vec::new(),
        }
    }

    /// What the client says in its file that the session does, and the process that the file is
    /// about: this one, for the hooks come from here.
    pub(crate) fn does(&self, status: &str) -> Process {
        let sessions = self.dir.path().join("sessions");
        fs::create_dir_all(&sessions).unwrap();
        let said = json!({ "sessionId": ID, "status": status }).to_string();
        let id = std::process::id();
        fs::write(sessions.join(format!("{id}.json")), said).unwrap();
        Process { id, started: None }
    }

    /// Runs a hook at an event: what it is offered, and the hook, which has not taken it yet.
    pub(crate) async fn hook(&self, event: &str) -> (Option<String>, Hook) {
        self.hook_on(&json!({ "hook_event_name": event })).await
    }

    /// The same, with all that the hook is given.
    pub(crate) async fn hook_on(&self, on: &Value) -> (Option<String>, Hook) {
        let mut hook = Hook(BufReader::new(self.node().await));
        hook.ask(1, "hook", &json!({ "wait": false, "on": on }))
            .await;
        let offer = hook.hear().await;
        let text = offer["result"]["text"].as_str();
        (text.map(str::to_owned), hook)
    }

    /// A connection to the adapter's socket.
    pub(crate) async fn node(&self) -> UnixStream {
        let dir = self.dir.path().join("sessions");
        let of_adapter = |entry: &fs::DirEntry| entry.path().extension() == Some("sock".as_ref());
        let mut entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
        let path = entries.find(of_adapter).expect("a socket").path();
        UnixStream::connect(path).await.unwrap()
    }

    /// The next connection to the session's socket.
    pub(crate) async fn posted(&self) -> Posted {
        let inbox = self.inbox.as_ref().expect("the session listens");
        let read = async {
            let (stream, _) = inbox.accept().await.unwrap();
            let mut lines = BufReader::new(stream).lines();
            let mut all = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                all.push(serde_json::from_str(&line).unwrap());
            }
            Posted { lines: all }
        };
        soon(read).await
    }

    /// Appends a line to the session's transcript.
    pub(crate) fn write(&self, line: &Value) {
        let path = format!("projects/-nonexistent-project/{ID}.jsonl");
        let path = self.dir.path().join(path);
        let file = fs::File::options().create(true).append(true).open(path);
        writeln!(file.unwrap(), "{line}").unwrap();
    }

    /// The files beside the session's socket.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.path().join("socks")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

impl Hook {
    async fn ask(&mut self, id: u64, method: &str, params: &Value) {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let line = format!("{line}\n");
        self.0.write_all(line.as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let mut line = String::new();
        soon(self.0.read_line(&mut line)).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Does not take what was offered.
    pub(crate) async fn refuse(mut self) {
        self.ask(2, "hook/refused", &json!({})).await;
        let mut end = String::new();
        let read = soon(self.0.read_line(&mut end)).await.unwrap();
        assert_eq!(read, 0, "{end}");
    }

    /// Takes what was offered, and shows it when it may.
    pub(crate) async fn take(mut self) {
        self.ask(2, "hook/took", &json!({})).await;
        let shows = self.hear().await;
        assert_eq!((&shows["id"], &shows["result"]), (&2.into(), &json!({})));
    }
}

impl Posted {
    pub(crate) fn message(&self) -> &Value {
        self.lines.last().unwrap()
    }

    pub(crate) fn content(&self) -> &str {
        self.message()["message"]["content"].as_str().unwrap()
    }

    pub(crate) fn reply_socket(&self) -> &Path {
        let from = self.message()["from"].as_str().unwrap();
        Path::new(from.strip_prefix("uds:").unwrap())
    }

    /// The line by which the session takes it into its conversation.
    pub(crate) fn line(&self, uuid: &str) -> Value {
        line(uuid, self.content())
    }

    /// What the client says of it, until the adapter has read that.
    pub(crate) async fn receipt(&self, status: &str, detail: Option<&str>) {
        let mut stream = UnixStream::connect(self.reply_socket()).await.unwrap();
        let mut receipt = json!({ "type": "control", "action": "peer_message_status", "status": status,
            "reason": "…", "orig_msg_id": self.message()["msg_id"], "msgV": 1, "msg_id": "r" });
        if let Some(detail) = detail {
            receipt["status_detail"] = detail.into();
        }
        stream
            .write_all(format!("{receipt}\n").as_bytes())
            .await
            .unwrap();
        let mut end = String::new();
        let read = BufReader::new(&mut stream).read_line(&mut end).await;
        assert!(matches!(read, Ok(0)), "the adapter closes what it has read");
    }
}

/// The line by which the session takes a text into its conversation.
pub(crate) fn line(uuid: &str, text: &str) -> Value {
    json!({ "type": "user", "uuid": uuid, "parentUuid": null, "isSidechain": false,
        "message": { "role": "user", "content": text } })
}

pub(crate) fn answer(uuid: &str, parent: &str) -> Value {
    json!({ "type": "assistant", "uuid": uuid, "parentUuid": parent, "isSidechain": false,
        "requestId": "req_1", "message": { "role": "assistant", "content": [] } })
}
