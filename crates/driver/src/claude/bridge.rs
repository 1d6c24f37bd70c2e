//! Between the MCP server of the bus, which speaks lines over a pair of streams, and clients that
//! speak MCP inside their own stream: one after the other, each of which begins with `initialize`
//! and counts its requests from zero.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use peerbus_mcp::ClientInfo;
use peerbus_os::sync::lock;
use peerbus_wire::jsonrpc::{RpcMessage, raw};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, split};
use tokio::sync::{mpsc, watch};

use super::stream;
use crate::process::AgentLines;

/// Bytes between the two that nobody has taken.
pub(crate) const PIPE_BYTES: usize = 65_536;
const WAITING_MAX: usize = 64;
/// The request that begins everything.
const HELLO: u64 = 0;

pub(crate) struct Bridge {
    lines: mpsc::Sender<String>,
    last: AtomicU64,
    open: Mutex<BTreeMap<u64, Open>>,
    /// What `initialize` was answered, for each client that asks.
    hello: watch::Sender<Option<RpcMessage>>,
}

/// A request of a client's that the server has not answered.
struct Open {
    client: AgentLines,
    request_id: String,
    id: Box<RawValue>,
}

impl Bridge {
    /// Makes one, and gives the lines that [`Bridge::carry`] takes to the server.
    pub(crate) fn new() -> (Self, mpsc::Receiver<String>) {
        let (lines, waiting) = mpsc::channel(WAITING_MAX);
        let bridge = Self {
            lines,
            last: AtomicU64::new(HELLO),
            open: Mutex::default(),
            hello: watch::Sender::new(None),
        };
        (bridge, waiting)
    }

    /// Introduces the client to the server, before any client is there, since the bus needs no turn to
    /// begin with and some ask only when their first turn begins; then moves lines both ways until the
    /// server has ended. Dropped, it ends the server.
    pub(crate) async fn carry(
        &self,
        who: &ClientInfo,
        server: DuplexStream,
        mut waiting: mpsc::Receiver<String>,
    ) {
        let (read, mut write) = split(server);
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": who.name, "version": who.version },
        });
        let hello = RpcMessage::request(HELLO, "initialize", &hello).line();
        let ready = RpcMessage::call(None, "notifications/initialized", None).line();
        let up = async {
            let mut next = Some(hello + &ready);
            while let Some(line) = next
                && write.write_all(line.as_bytes()).await.is_ok()
            {
                next = waiting.recv().await;
            }
        };
        let down = async {
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                self.answered(&line).await;
            }
        };
        tokio::select! {
            () = up => {}
            () = down => {}
        }
    }

    /// A message of a client's. Gives who it says it is, where it introduces itself.
    pub(crate) async fn take(
        &self,
        client: &AgentLines,
        request_id: String,
        message: &RawValue,
    ) -> Option<ClientInfo> {
        let Ok(message) = serde_json::from_str::<RpcMessage>(message.get()) else {
            let why = "the message is no JSON-RPC message";
            client.say(stream::failure(&request_id, why)).await;
            return None;
        };
        let open = |id| Open {
            client: client.clone(),
            request_id: request_id.clone(),
            id,
        };
        match (message.method.as_deref(), message.id) {
            (Some("initialize"), Some(id)) => {
                // Each client is told what the first was. The sender lives as long as self.
                let mut hello = self.hello.subscribe();
                let hello = hello.wait_for(Option::is_some).await;
                let hello = hello.ok().and_then(|hello| hello.clone());
                open(id).answer(hello.unwrap_or_default()).await;
                return message.params.as_deref().and_then(who);
            }
            (Some(method), Some(id)) => {
                let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
                lock(&self.open).insert(number, open(id));
                self.pass(raw(&number), method, message.params).await;
                return None;
            }
            // The server was told already.
            (Some("notifications/initialized"), None) => {}
            (Some(method @ "notifications/cancelled"), None) => {
                if let Some(number) = self.number(client, message.params.as_deref()) {
                    let params = json!({ "requestId": number });
                    self.pass(None, method, raw(&params)).await;
                }
            }
            (Some(method), None) => self.pass(None, method, message.params).await,
            // An answer to something that was never asked.
            (None, _) => {}
        }
        client.say(stream::success(&request_id, &json!({}))).await;
        None
    }

    /// The server's number for the request that a client cancels.
    fn number(&self, client: &AgentLines, params: Option<&RawValue>) -> Option<u64> {
        let id = stream::member(params?.get(), "requestId")?;
        let open = lock(&self.open);
        let mut open = open.iter();
        let found = open.find(|(_, open)| open.client.is(client) && open.id.get() == id.get());
        found.map(|(number, _)| *number)
    }

    async fn pass(&self, id: Option<Box<RawValue>>, method: &str, params: Option<Box<RawValue>>) {
        let line = RpcMessage::call(id, method, params).line();
        // It fails when the server has ended, and everything with it.
        let _ = self.lines.send(line).await;
    }

    async fn answered(&self, line: &str) {
        let Ok(message) = RpcMessage::read(line.as_bytes()) else {
            return;
        };
        match (&message.method, message.number()) {
            (None, Some(HELLO)) => drop(self.hello.send_replace(Some(message))),
            (None, Some(number)) => {
                let open = lock(&self.open).remove(&number);
                if let Some(open) = open {
                    open.answer(message).await;
                }
            }
            // What the server asks is about its own streams, and a pair in memory loses nothing.
            (method, _) => tracing::debug!(method, "the server speaks by itself"),
        }
    }
}

impl Open {
    /// What the server answered, to the request as the client numbered it.
    async fn answer(self, mut answer: RpcMessage) {
        answer.id = Some(self.id);
        let carried = BTreeMap::from([("mcp_response", answer)]);
        let line = stream::success(&self.request_id, &carried);
        self.client.say(line).await;
    }
}

fn who(params: &RawValue) -> Option<ClientInfo> {
    let params: Value = serde_json::from_str(params.get()).ok()?;
    let text = |member: &str| params["clientInfo"][member].as_str().map(str::to_owned);
    Some(ClientInfo {
        name: text("name")?,
        version: text("version")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::scripted;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[tokio::test]
    async fn each_client_gets_its_own_answers_as_they_were_written() {
        let (bridge, waiting) = Bridge::new();
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (read, mut server) = split(theirs);
        let mut asked = BufReader::new(read).lines();
        let ((one, mut first), (two, mut second)) = (scripted(), scripted());
        let info = ClientInfo {
            name: "n".to_owned(),
            version: "v".to_owned(),
        };
        let script = async {
            let hello = raw(
                r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"n","version":"v"}}}"#,
            );
            assert!(
                asked
                    .next_line()
                    .await
                    .unwrap()
                    .unwrap()
                    .contains("initialize")
            );
            assert!(
                asked
                    .next_line()
                    .await
                    .unwrap()
                    .unwrap()
                    .contains("initialized")
            );
            let said = b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"hi\":1}}\n";
            let early = async {
                server.write_all(said).await.unwrap();
                first.next().await
            };
            let (who, early) = tokio::join!(bridge.take(&one, "a".into(), &hello), early);
            assert_eq!(who.as_ref(), Some(&info));
            assert!(early.contains(r#""id":0,"result":{"hi":1}"#), "{early}");
            // Both count from the same number.
            let call = raw(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"n":1.50}}"#);
            bridge.take(&one, "b".into(), &call).await;
            bridge.take(&two, "c".into(), &call).await;
            let (b, c) = (asked.next_line().await, asked.next_line().await);
            let wanted = |id| {
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"n":1.50}}}}"#
                )
            };
            assert_eq!(b.unwrap(), Some(wanted(1)));
            assert_eq!(c.unwrap(), Some(wanted(2)));
            let cancel = raw(r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#);
            let cancelling = bridge.take(&two, "d".into(), &cancel);
            let (_, noted) = tokio::join!(cancelling, second.next());
            assert!(
                noted.contains(r#""request_id":"d","response":{}"#),
                "{noted}"
            );
            let line = asked.next_line().await.unwrap().unwrap();
            assert!(line.contains(r#""requestId":2"#), "{line}");
            let said = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"n\":1e400}}\n";
            server.write_all(said).await.unwrap();
            let answer = first.next().await;
            let wanted = r#""request_id":"b","response":{"mcp_response":{"jsonrpc":"2.0","id":7,"result":{"n":1e400}}}"#;
            assert!(answer.contains(wanted), "{answer}");
        };
        tokio::select! {
            () = script => {}
            () = bridge.carry(&info, ours, waiting) => panic!("the bridge ended"),
        }
    }
}
