//! Between the MCP server of the bus, which speaks lines over a pair of streams, and clients that
//! speak MCP inside their own stream: one after the other, each of which begins with `initialize`
//! and counts its requests from zero.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use peerbus_mcp::ClientInfo as Who;
use peerbus_wire::jsonrpc::{RpcMessage, raw};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf};
use tokio::io::{WriteHalf, split};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::stream;

/// Bytes between the two that nobody has taken.
const PIPE_BYTES: usize = 65_536;
/// Requests that wait for their way to the server.
const WAITING_MAX: usize = 64;
/// The request that begins everything.
const HELLO: u64 = 0;

/// Our end of the pair, and what is known of requests under way.
pub(crate) struct Bridge {
    lines: mpsc::Sender<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the last request.
    last: u64,
    open: BTreeMap<u64, Open>,
    /// What `initialize` was answered, for each client that asks.
    hello: Option<RpcMessage>,
    /// Clients that ask before it is there.
    early: Vec<(Client, String, Box<RawValue>)>,
}

/// A request of a client's that the server has not answered.
struct Open {
    client: Client,
    request_id: String,
    id: Box<RawValue>,
}

#[derive(Serialize)]
struct Carried {
    mcp_response: RpcMessage,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hello {
    client_info: Info,
}

#[derive(Deserialize)]
struct Info {
    name: String,
    version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled {
    request_id: Box<RawValue>,
}

impl Bridge {
    /// Makes one. The server gets the other end of the pair. What it says is carried by the future
    /// that is returned, which ends with it.
    pub(crate) fn new() -> (std::sync::Arc<Self>, DuplexStream, Carrying) {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (read, write) = split(ours);
        let (lines, waiting) = mpsc::channel(WAITING_MAX);
        let bridge = std::sync::Arc::new(Self {
            lines,
            state: Mutex::default(),
        });
        let carrying = Carrying {
            read,
            write,
            waiting,
        };
        (bridge, theirs, carrying)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Introduces the client to the server, before any client is there: the bus needs no turn to
    /// begin with. Some ask only when their first turn begins.
    pub(crate) async fn introduce(&self, who: &Who) {
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": who.name, "version": who.version },
        });
        self.pass(&RpcMessage::request(HELLO, "initialize", &hello))
            .await;
        self.pass(&RpcMessage::call(None, "notifications/initialized", None))
            .await;
    }

    /// A message of a client's. Gives who it says it is, where it introduces itself.
    pub(crate) async fn take(
        &self,
        client: &Client,
        request_id: String,
        message: &RawValue,
    ) -> Option<Who> {
        let Ok(message) = serde_json::from_str::<RpcMessage>(message.get()) else {
            let why = "the message is no JSON-RPC message";
            client.say(stream::failure(&request_id, why)).await;
            return None;
        };
        match (message.method.as_deref(), message.id) {
            (Some("initialize"), Some(id)) => {
                let who = message.params.as_deref().and_then(who);
                self.hello(client, request_id, id).await;
                return who;
            }
            (Some(method), Some(id)) => {
                let number = {
                    let mut state = self.state();
                    state.last += 1;
                    let client = client.clone();
                    let open = Open {
                        client,
                        request_id,
                        id,
                    };
                    let number = state.last;
                    state.open.insert(number, open);
                    number
                };
                self.pass(&RpcMessage::call(raw(&number), method, message.params))
                    .await;
            }
            (Some(method), None) => {
                self.notification(client, method, message.params).await;
                client.say(stream::success(&request_id, &json!({}))).await;
            }
            // An answer to something that was never asked.
            (None, _) => {
                client.say(stream::success(&request_id, &json!({}))).await;
            }
        }
        None
    }

    /// Each client is told what the first was.
    async fn hello(&self, client: &Client, request_id: String, id: Box<RawValue>) {
        let hello = {
            let mut state = self.state();
            let hello = state.hello.clone();
            if hello.is_none() {
                let early = (client.clone(), request_id.clone(), id.clone());
                state.early.push(early);
            }
            hello
        };
        if let Some(hello) = hello {
            answer(client, &request_id, id, hello).await;
        }
    }

    async fn notification(&self, client: &Client, method: &str, params: Option<Box<RawValue>>) {
        match method {
            // The server was told already.
            "notifications/initialized" => {}
            "notifications/cancelled" => {
                let read = |params: &RawValue| serde_json::from_str::<Cancelled>(params.get()).ok();
                let cancelled = params.as_deref().and_then(read);
                let Some(number) = cancelled.and_then(|c| self.number(client, &c.request_id))
                else {
                    return;
                };
                let params = json!({ "requestId": number });
                self.pass(&RpcMessage::notification(method, &params)).await;
            }
            _ => self.pass(&RpcMessage::call(None, method, params)).await,
        }
    }

    /// The server's number for a request of this client.
    fn number(&self, client: &Client, id: &RawValue) -> Option<u64> {
        let state = self.state();
        let is_it = |open: &&Open| open.client.is(client) && open.id.get() == id.get();
        let mut open = state.open.iter();
        open.find(|(_, open)| is_it(open))
            .map(|(number, _)| *number)
    }

    async fn pass(&self, message: &RpcMessage) {
        // It fails when the server has ended, and everything with it.
        let _ = self.lines.send(message.line()).await;
    }

    /// A line of the server's.
    async fn carry(&self, line: &str) {
        let Ok(message) = RpcMessage::read(line.as_bytes()) else {
            return;
        };
        let (None, Some(number)) = (&message.method, message.number()) else {
            // What the server asks is about its own streams, and a pair in memory loses nothing.
            tracing::debug!(method = message.method, "the server speaks by itself");
            return;
        };
        if number == HELLO && message.result.is_some() {
            let early = {
                let mut state = self.state();
                state.hello = Some(message.clone());
                std::mem::take(&mut state.early)
            };
            for (client, request_id, id) in early {
                answer(&client, &request_id, id, message.clone()).await;
            }
            return;
        }
        let open = self.state().open.remove(&number);
        if let Some(open) = open {
            answer(&open.client, &open.request_id, open.id, message).await;
        }
    }
}

/// What the server answered, to the request as the client numbered it.
async fn answer(client: &Client, request_id: &str, id: Box<RawValue>, mut answer: RpcMessage) {
    answer.id = Some(id);
    let mcp_response = answer;
    client
        .say(stream::success(request_id, &Carried { mcp_response }))
        .await;
}

fn who(params: &RawValue) -> Option<Who> {
    let hello: Hello = serde_json::from_str(params.get()).ok()?;
    let Info { name, version } = hello.client_info;
    Some(Who { name, version })
}

/// What moves the lines.
pub(crate) struct Carrying {
    read: ReadHalf<DuplexStream>,
    write: WriteHalf<DuplexStream>,
    waiting: mpsc::Receiver<String>,
}

impl Carrying {
    /// Moves lines both ways until the server has ended. Dropped, it ends the server.
    pub(crate) async fn carry(self, bridge: &Bridge) {
        let Self {
            read,
            mut write,
            mut waiting,
        } = self;
        let up = async {
            while let Some(line) = waiting.recv().await {
                if write.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
            }
        };
        let down = async {
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                bridge.carry(&line).await;
            }
        };
        tokio::select! {
            () = up => {}
            () = down => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tests::scripted;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[tokio::test]
    async fn each_client_gets_its_own_answers_as_they_were_written() {
        let (bridge, theirs, carrying) = Bridge::new();
        let (read, mut server) = split(theirs);
        let mut asked = BufReader::new(read).lines();
        let ((one, mut first), (two, mut second)) = (scripted(), scripted());
        let script = async {
            let hello = raw(
                r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"n","version":"v"}}}"#,
            );
            let who = bridge.take(&one, "a".into(), &hello).await.unwrap();
            assert_eq!((who.name.as_str(), who.version.as_str()), ("n", "v"));
            bridge.introduce(&who).await;
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
            server.write_all(said).await.unwrap();
            let early = first.next().await;
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
            () = carrying.carry(&bridge) => panic!("the bridge ended"),
        }
    }
}
