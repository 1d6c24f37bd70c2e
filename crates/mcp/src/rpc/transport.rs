//! Our side of the wire to the client: what rmcp is shown of it, and what is answered before it.

use std::io;

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::AsyncRead;
use tokio::sync::{oneshot, watch};

use super::calls::Calls;
use super::lines::{LINE_BYTES_MAX, LineReader, Next};
use super::outbox::Outbox;
use crate::arguments::Arguments;

/// JSON-RPC 2.0 §5.1.
const INVALID_REQUEST: i32 = -32_600;
const METHOD_NOT_FOUND: i32 = -32_601;
const INVALID_PARAMS: i32 = -32_602;

/// The client's lines, sorted before rmcp sees them.
///
/// - `server/discover` gets `-32601` at once. A client that is answered otherwise may negotiate
///   MCP 2026-07-28, which has no `initialize`: the channel would never open.
/// - Before `initialize`, requests are refused and everything else is swallowed; rmcp would end.
/// - Arguments of tool calls travel undecoded, beside rmcp's message.
/// - Answers leave in the order in which they are given, and [`Calls`] is told when one has left.
pub(super) struct Pipe<R> {
    lines: LineReader<R>,
    out: Outbox,
    calls: Calls,
    begun: bool,
    ended: watch::Sender<bool>,
}

/// What is read of a line to sort it.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CallParams<'a> {
    name: String,
    #[serde(default)]
    arguments: Option<Arguments>,
    #[serde(borrow, rename = "_meta", default)]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CancelParams {
    #[serde(rename = "requestId")]
    request_id: RequestId,
}

/// An error answer in the making.
struct Refusal {
    code: i32,
    message: String,
}

impl<R: AsyncRead + Unpin + Send> Pipe<R> {
    /// `ended` becomes true when the client has closed its end.
    pub(super) fn new(read: R, out: Outbox, calls: Calls, ended: watch::Sender<bool>) -> Self {
        Self {
            lines: LineReader::new(read),
            out,
            calls,
            begun: false,
            ended,
        }
    }

    /// Sorts the line that was read. `None`: it needs nothing from rmcp.
    fn sort(&mut self) -> Option<ClientJsonRpcMessage> {
        let line = self.lines.line();
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        if line.trim_ascii().is_empty() {
            return None;
        }
        let head = match head(line) {
            Ok(head) => head,
            Err(error) if serde_json::from_slice::<&RawValue>(line).is_ok() => {
                let message = format!("not a JSON-RPC 2.0 message: {error}");
                refuse(
                    &self.out,
                    "null",
                    &Refusal {
                        code: INVALID_REQUEST,
                        message,
                    },
                );
                return None;
            }
            Err(error) => {
                // Nothing to answer to: the line has no id. Other programs print into our stdin.
                tracing::debug!(%error, "ignored a line that is not JSON");
                return None;
            }
        };
        match (head.id, head.method.as_deref()) {
            (Some(id), Some(method)) => {
                let sorted = request(line, &head, id, method, self.begun);
                match sorted {
                    Ok(message) => {
                        self.begun |= method == "initialize";
                        if let (JsonRpcMessage::Request(request), "tools/call") = (&message, method)
                        {
                            self.calls.open(request.id.clone());
                        }
                        Some(message)
                    }
                    Err(refusal) => {
                        refuse(&self.out, id.get(), &refusal);
                        None
                    }
                }
            }
            (None, Some(method)) if self.begun => {
                if method == "notifications/cancelled" {
                    self.cancelled(&head);
                }
                notification(line, method)
            }
            // Answers to questions that were never asked, and notifications before their time.
            _ => None,
        }
    }

    fn cancelled(&self, head: &Head<'_>) {
        let params = head
            .params
            .map(|p| serde_json::from_str::<CancelParams>(p.get()));
        if let Some(Ok(params)) = params {
            self.calls.cancel(&params.request_id);
        }
    }

    fn queue(&self, item: &ServerJsonRpcMessage) -> io::Result<oneshot::Receiver<()>> {
        let (done, flushed) = oneshot::channel();
        let (bytes, call) = match item {
            JsonRpcMessage::Response(answer) => match self.calls.result(&answer.id) {
                Some(result) => {
                    let id = serde_json::to_string(&answer.id)?;
                    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
                    (line.into_bytes(), Some(answer.id.clone()))
                }
                None => (serde_json::to_vec(item)?, Some(answer.id.clone())),
            },
            JsonRpcMessage::Error(answer) => (serde_json::to_vec(item)?, answer.id.clone()),
            _ => (serde_json::to_vec(item)?, None),
        };
        let calls = self.calls.clone();
        let then = move || {
            if let Some(id) = call {
                calls.flushed(&id);
            }
            // Nobody may be waiting.
            let _ = done.send(());
        };
        self.out.push(bytes, Some(Box::new(then)))?;
        Ok(flushed)
    }
}

impl<R: AsyncRead + Unpin + Send> Transport<RoleServer> for Pipe<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        // Queued here, not in the future: the order of calls is the order of lines.
        let queued = self.queue(&item);
        async move { queued?.await.map_err(|_| io::ErrorKind::BrokenPipe.into()) }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            self.out.room().await;
            match self.lines.next().await {
                Next::Line => {
                    if let Some(message) = self.sort() {
                        return Some(message);
                    }
                }
                Next::TooLong => {
                    let message = format!("a line has at most {LINE_BYTES_MAX} bytes");
                    refuse(
                        &self.out,
                        "null",
                        &Refusal {
                            code: INVALID_REQUEST,
                            message,
                        },
                    );
                }
                Next::End => {
                    self.ended.send_replace(true);
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.out.empty().await;
        Ok(())
    }
}

fn head(line: &[u8]) -> serde_json::Result<Head<'_>> {
    // serde reads structs from lists, too; a batch is no message since MCP 2025-06-18.
    if line.trim_ascii_start().starts_with(b"[") {
        return Err(serde::de::Error::custom(
            "a list, where a message is an object",
        ));
    }
    serde_json::from_slice(line)
}

/// A request as rmcp is to see it, or what is answered in its place.
fn request(
    line: &[u8],
    head: &Head<'_>,
    id: &RawValue,
    method: &str,
    begun: bool,
) -> Result<ClientJsonRpcMessage, Refusal> {
    if method == "server/discover" {
        return Err(Refusal {
            code: METHOD_NOT_FOUND,
            message: format!("no method {method}"),
        });
    }
    if !begun && !matches!(method, "initialize" | "ping") {
        let message = "the first request must be initialize".to_owned();
        return Err(Refusal {
            code: INVALID_REQUEST,
            message,
        });
    }
    let invalid = |error: serde_json::Error| Refusal {
        code: INVALID_PARAMS,
        message: format!("{method}: {error}"),
    };
    if method != "tools/call" {
        return serde_json::from_slice(line).map_err(invalid);
    }
    let params = head.params.map_or("{}", RawValue::get);
    let params: CallParams<'_> = serde_json::from_str(params).map_err(invalid)?;
    let name = serde_json::to_string(&params.name).map_err(invalid)?;
    let meta = params.meta.map_or("{}", RawValue::get);
    let bare = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":{name},"_meta":{meta}}}}}"#
    );
    let mut message: ClientJsonRpcMessage = serde_json::from_str(&bare).map_err(invalid)?;
    if let JsonRpcMessage::Request(request) = &mut message {
        use rmcp::model::GetExtensions;
        request
            .request
            .extensions_mut()
            .insert(params.arguments.unwrap_or_default());
    }
    Ok(message)
}

fn notification(line: &[u8], method: &str) -> Option<ClientJsonRpcMessage> {
    let known = matches!(
        method,
        "notifications/initialized" | "notifications/cancelled" | "notifications/progress"
    );
    known.then(|| serde_json::from_slice(line).ok()).flatten()
}

/// Answers a request that rmcp does not see. `id` is JSON text.
fn refuse(out: &Outbox, id: &str, refusal: &Refusal) {
    let Refusal { code, message } = refusal;
    let message = serde_json::Value::from(message.as_str());
    let line =
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#);
    // A client that does not read any more is noticed by whoever writes.
    let _ = out.push(line.into_bytes(), None);
}
