//! An MCP client in the process of the adapter that it talks to.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};

use crate::soon;

/// An MCP client on an adapter's streams. It reads no more than a test asks for.
#[derive(Debug)]
pub struct Client {
    to: Option<DuplexStream>,
    from: BufReader<DuplexStream>,
    next_id: i64,
    /// Notifications that came while something else was waited for.
    pub pushed: Vec<Value>,
}

/// A client, and the adapter's ends: what it reads, what it writes. `room`: bytes that the adapter
/// can write ahead of the client's reading.
pub fn client(room: usize) -> (Client, DuplexStream, DuplexStream) {
    let (to, input) = tokio::io::duplex(1 << 20);
    let (output, from) = tokio::io::duplex(room);
    let from = BufReader::new(from);
    (
        Client {
            to: Some(to),
            from,
            next_id: 0,
            pushed: Vec::new(),
        },
        input,
        output,
    )
}

impl Client {
    /// Writes a message.
    pub async fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    /// Writes these bytes as they are.
    pub async fn write(&mut self, bytes: &[u8]) {
        let to = self.to.as_mut().expect("the client has not hung up");
        to.write_all(bytes).await.unwrap();
    }

    /// Asks and gives the id.
    pub async fn ask(&mut self, method: &str, params: Value) -> i64 {
        self.next_id += 1;
        let id = self.next_id;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
        id
    }

    /// Says something that is not answered.
    pub async fn notify(&mut self, method: &str, params: Value) {
        self.say(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
            .await;
    }

    /// The next line from the adapter. A ping is answered and passed over, as clients do.
    pub async fn hear(&mut self) -> Value {
        loop {
            let message = self.hear_any().await;
            if message["method"] != "ping" {
                return message;
            }
            let pong = json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} });
            self.say(&pong).await;
        }
    }

    /// The next line from the adapter, whatever it is.
    pub async fn hear_any(&mut self) -> Value {
        let mut line = String::new();
        let read = soon(self.from.read_line(&mut line)).await.unwrap();
        assert_ne!(read, 0, "the adapter has ended");
        serde_json::from_str(&line).unwrap()
    }

    /// Reads some bytes of what the adapter wrote.
    pub async fn read_some(&mut self, into: &mut [u8]) -> usize {
        soon(self.from.read(into)).await.unwrap()
    }

    /// Everything that the adapter still writes before it ends.
    pub async fn rest(&mut self) -> String {
        let mut rest = String::new();
        soon(self.from.read_to_string(&mut rest)).await.unwrap();
        rest
    }

    /// Closes the adapter's input.
    pub fn hang_up(&mut self) {
        self.to = None;
    }

    /// The answer to a request.
    pub async fn answer(&mut self, id: i64) -> Value {
        loop {
            let message = self.hear().await;
            if message["id"] == id {
                return message;
            }
            self.pushed.push(message);
        }
    }

    /// Asks and gives the whole answer.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.answer(id).await
    }

    /// Shows that the client goes on: it has every answer that came before.
    pub async fn lives(&mut self) {
        self.request("tools/list", json!({})).await;
    }

    /// Calls a tool and gives the result.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.request("tools/call", params).await["result"].take()
    }

    /// The next push's params, kept or to come.
    pub async fn push(&mut self) -> Value {
        let mut message = if self.pushed.is_empty() {
            self.hear().await
        } else {
            self.pushed.remove(0)
        };
        assert_eq!(
            message["method"], "notifications/claude/channel",
            "{message}"
        );
        message["params"].take()
    }

    /// `initialize`, without saying that it is done.
    pub async fn initialize(&mut self, name: &str) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": name, "version": "1" },
        });
        self.request("initialize", params).await["result"].take()
    }

    /// Says that the handshake is done.
    pub async fn initialized(&mut self) {
        self.notify("notifications/initialized", json!({})).await;
    }

    /// The whole handshake.
    pub async fn greet(&mut self, name: &str) -> Value {
        let result = self.initialize(name).await;
        self.initialized().await;
        result
    }
}

/// The messages in a tool's result.
pub fn messages(result: &Value) -> Vec<Value> {
    let messages = result["structuredContent"]["messages"].as_array();
    messages.expect("a list of messages").clone()
}
