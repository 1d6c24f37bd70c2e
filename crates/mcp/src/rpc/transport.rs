//! Our side of the wire to the client: what rmcp is shown of it, and what is answered before it.

use std::io;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, ErrorCode,
    ErrorData, JsonRpcMessage, RequestId, RequestMetaObject, ServerJsonRpcMessage,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::AsyncRead;
use tokio::sync::{oneshot, watch};

use super::calls::Calls;
use super::lines::{LINE_BYTES_MAX, LineReader, Next};
use super::outbox::{Line, Outbox};
use crate::arguments::Arguments;

/// rmcp's transport, with what rmcp does otherwise than this server needs it.
///
/// - `server/discover`, and every method that is not served, gets `-32601` at once. A client whose
///   `server/discover` is answered otherwise may negotiate MCP 2026-07-28, which has no
///   `initialize`: the channel would never open. rmcp lists resources and prompts that there are
///   not.
/// - Before `initialize`, requests are refused and everything else is swallowed; rmcp would end.
/// - A line that is no message is answered where it can be, and ends nothing.
/// - Arguments of tool calls and structured results travel undecoded, beside rmcp's messages.
/// - Answers leave in the order in which they are given; [`Calls`] is told when one has left, when
///   the client says something, and when it asks for something.
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
struct CallParams {
    name: String,
    #[serde(default)]
    arguments: Option<Arguments>,
    #[serde(rename = "_meta", default)]
    meta: Option<RequestMetaObject>,
}

#[derive(Deserialize)]
struct CancelParams {
    #[serde(rename = "requestId")]
    request_id: RequestId,
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
        let line = line
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(line)
            .trim_ascii();
        let head = match serde_json::from_slice::<Head<'_>>(line) {
            // serde reads structs from lists, too; a batch is no message since MCP 2025-06-18.
            Ok(head) if line.starts_with(b"{") => head,
            _ => {
                // What is not JSON has no id to answer to: other programs print into our stdin.
                if serde_json::from_slice::<&RawValue>(line).is_ok() {
                    self.refuse("null", &invalid_request("not a JSON-RPC 2.0 message"));
                }
                return None;
            }
        };
        if self.begun {
            self.hear(&head);
        }
        let (Some(id), Some(method)) = (head.id, head.method.as_deref()) else {
            // Notifications and answers before their time say nothing.
            return serde_json::from_slice(line).ok().filter(|_| self.begun);
        };
        match request(line, &head, id, method, self.begun) {
            Ok(message) => {
                self.begun |= method == "initialize";
                Some(message)
            }
            Err(error) => {
                self.refuse(id.get(), &error);
                None
            }
        }
    }

    /// What a message shows of answers that left before it.
    fn hear(&self, head: &Head<'_>) {
        if head.method.as_deref() == Some("notifications/cancelled")
            && let Some(params) = head.params
            && let Ok(cancel) = serde_json::from_str::<CancelParams>(params.get())
        {
            self.calls.cancel(&cancel.request_id);
        }
        // What a library answers by itself shows no more than that it lives.
        let asks = head.id.is_some() && head.method.as_deref().is_some_and(|m| m != "ping");
        match asks {
            true => self.calls.goes_on(),
            false => self.calls.alive(),
        }
    }

    /// Answers a request that rmcp does not see. `id` is JSON text: it can be what rmcp takes for
    /// none.
    fn refuse(&self, id: &str, error: &ErrorData) {
        let error = serde_json::to_string(error).unwrap_or_default();
        let bytes = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_bytes();
        // A client that does not read any more is noticed where its answers are written.
        let _ = self.out.push(Line {
            bytes,
            ..Line::default()
        });
    }

    fn queue(&self, item: &ServerJsonRpcMessage) -> io::Result<oneshot::Receiver<()>> {
        let (done, flushed) = oneshot::channel();
        let mut bytes = serde_json::to_vec(item)?;
        let call = match item {
            JsonRpcMessage::Response(answer) => Some(answer.id.clone()),
            JsonRpcMessage::Error(answer) => answer.id.clone(),
            _ => None,
        };
        if let Some(structured) = call.as_ref().and_then(|id| self.calls.structured(id))
            && bytes.ends_with(b"}}")
        {
            bytes.truncate(bytes.len() - 2);
            bytes.extend_from_slice(br#","structuredContent":"#);
            bytes.extend_from_slice(structured.as_bytes());
            bytes.extend_from_slice(b"}}");
        }
        let done = Some(done);
        self.out.push(Line { bytes, call, done })?;
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
                    let why = format!("a line has at most {LINE_BYTES_MAX} bytes");
                    self.refuse("null", &invalid_request(why));
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

/// A request as rmcp is to see it, or what is answered in its place.
fn request(
    line: &[u8],
    head: &Head<'_>,
    id: &RawValue,
    method: &str,
    begun: bool,
) -> Result<ClientJsonRpcMessage, ErrorData> {
    let invalid = |error| ErrorData::invalid_params(format!("{method}: {error}"), None);
    match method {
        "initialize" | "ping" => serde_json::from_slice(line).map_err(invalid),
        "server/discover" => Err(not_found(method)),
        _ if !begun => Err(invalid_request("the first request must be initialize")),
        "tools/list" => serde_json::from_slice(line).map_err(invalid),
        "tools/call" => {
            let params = head.params.map_or("{}", RawValue::get);
            let params: CallParams = serde_json::from_str(params).map_err(invalid)?;
            let id = serde_json::from_str(id.get()).map_err(invalid)?;
            let mut call = CallToolRequest::new(CallToolRequestParams::new(params.name));
            call.extensions.insert(params.meta.unwrap_or_default());
            call.extensions.insert(params.arguments.unwrap_or_default());
            let call = ClientRequest::CallToolRequest(call);
            Ok(JsonRpcMessage::request(call, id))
        }
        _ => Err(not_found(method)),
    }
}

fn not_found(method: &str) -> ErrorData {
    ErrorData::new(
        ErrorCode::METHOD_NOT_FOUND,
        format!("no method {method}"),
        None,
    )
}

fn invalid_request(why: impl Into<String>) -> ErrorData {
    ErrorData::invalid_request(why.into(), None)
}
