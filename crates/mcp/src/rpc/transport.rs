//! Our side of the wire to the client: what rmcp is shown of it, and what is answered before it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;

use peerbus_os::lines::{BoundedLines, NextLine};
use peerbus_wire::jsonrpc::RpcMessage;
use peerbus_wire::readable;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, ErrorCode,
    ErrorData, Implementation, InitializeRequest, InitializeRequestParams, JsonRpcMessage,
    ListToolsRequest, PingRequest, ProtocolVersion, RequestId, RequestMetaObject,
    ServerJsonRpcMessage,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::AsyncRead;
use tokio::sync::{oneshot, watch};

use super::outbox::Calls;
use super::outbox::{Line, Outbox};
use crate::arguments::Arguments;

/// Longest line that is read, in bytes: a body of the largest size, every byte of it escaped.
pub const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
const BATCH_MAX: usize = 256;

/// rmcp's transport, with what rmcp does otherwise than this server needs it.
///
/// - `server/discover`, and every method that is not served, gets `-32601` at once. A client whose
///   `server/discover` is answered otherwise may negotiate MCP 2026-07-28, which has no
///   `initialize`: the channel would never open. rmcp lists resources and prompts that there are
///   not.
/// - Before `initialize`, requests are refused and everything else is swallowed; rmcp would end.
/// - A line that is no message gets one error, and ends nothing. A client that lacks what `initialize`
///   asks for is answered as any other: nothing here needs more than its name.
/// - What strict readers of JSON refuse is replaced before anything reads a line.
/// - A batch is read as its messages, where the version has batches; each has its own answer.
/// - Arguments of tool calls and structured results travel undecoded, beside rmcp's messages.
/// - Answers leave in the order in which they are given; [`Calls`] is told when one has left, when
///   the client says something, and when it asks for something.
pub(super) struct Pipe<R> {
    lines: BoundedLines<R>,
    out: Outbox,
    calls: Calls,
    begun: bool,
    /// The version that was agreed on has batches.
    batches: bool,
    /// The rest of a batch.
    batch: VecDeque<Box<RawValue>>,
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
            lines: BoundedLines::new(read, LINE_BYTES_MAX),
            out,
            calls,
            begun: false,
            batches: false,
            batch: VecDeque::new(),
            ended,
        }
    }

    /// Sorts the line that was read. `None`: it needs nothing from rmcp.
    fn sort_line(&mut self) -> Option<ClientJsonRpcMessage> {
        let line = self.lines.line();
        let line = line
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(line)
            .trim_ascii();
        if line.is_empty() {
            return None;
        }
        let text = std::str::from_utf8(line).map(readable);
        let is_json = |text: &Cow<'_, str>| serde_json::from_str::<&RawValue>(text).is_ok();
        let Some(text) = text.ok().filter(is_json) else {
            let why = "a line is not JSON: write one message on each line, in UTF-8";
            self.refuse(RawValue::NULL, &ErrorData::parse_error(why, None));
            return None;
        };
        let replaced = matches!(text, Cow::Owned(_));
        let text = text.into_owned();
        if !text.starts_with('[') || !self.batches {
            return self.sort(&text, replaced);
        }
        match serde_json::from_str::<VecDeque<Box<RawValue>>>(&text) {
            Ok(batch) if (1..=BATCH_MAX).contains(&batch.len()) => self.batch = batch,
            _ => {
                let why = format!("a batch has 1 to {BATCH_MAX} messages");
                self.refuse(RawValue::NULL, &invalid_request(why));
            }
        }
        None
    }

    /// Sorts a message, of which something was `replaced` by what every reader takes.
    fn sort(&mut self, text: &str, replaced: bool) -> Option<ClientJsonRpcMessage> {
        let head = match serde_json::from_str::<Head<'_>>(text) {
            // serde reads structs from lists, too.
            Ok(head) if text.starts_with('{') => head,
            _ => {
                self.refuse(
                    RawValue::NULL,
                    &invalid_request("not a JSON-RPC 2.0 message"),
                );
                return None;
            }
        };
        if self.begun {
            self.hear(&head);
        }
        let (Some(id), Some(method)) = (head.id, head.method.as_deref()) else {
            // Notifications and answers before their time say nothing.
            return serde_json::from_str(text).ok().filter(|_| self.begun);
        };
        match request(&head, id, method, (self.begun, replaced)) {
            Ok(message) => {
                if let JsonRpcMessage::Request(request) = &message
                    && let ClientRequest::InitializeRequest(hello) = &request.request
                {
                    self.begun = true;
                    self.batches = hello.params.protocol_version == ProtocolVersion::V_2025_03_26;
                }
                Some(message)
            }
            Err(error) => {
                self.refuse(id, &error);
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

    /// Answers a request that rmcp does not see, whose id can be what rmcp takes for none.
    fn refuse(&self, id: &RawValue, error: &ErrorData) {
        let answer = RpcMessage::response(id.to_owned(), &Err::<(), _>(error));
        let bytes = answer.text().into_bytes();
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
            if let Some(text) = self.batch.pop_front() {
                if let Some(message) = self.sort(text.get(), false) {
                    return Some(message);
                }
                continue;
            }
            match self.lines.next().await {
                NextLine::Line => {
                    if let Some(message) = self.sort_line() {
                        return Some(message);
                    }
                }
                NextLine::TooLong => {
                    let why = format!("a line has at most {LINE_BYTES_MAX} bytes");
                    self.refuse(RawValue::NULL, &invalid_request(why));
                }
                NextLine::End => {
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

/// A request as rmcp is to see it, or what is answered in its place. Whether one may be made yet, and
/// whether something in it was replaced.
fn request(
    head: &Head<'_>,
    id: &RawValue,
    method: &str,
    (begun, replaced): (bool, bool),
) -> Result<ClientJsonRpcMessage, ErrorData> {
    let invalid = |error| ErrorData::invalid_params(format!("{method}: {error}"), None);
    let request = match method {
        "initialize" => ClientRequest::InitializeRequest(hello(head.params)),
        "ping" => ClientRequest::PingRequest(PingRequest::default()),
        "server/discover" => return Err(not_found(method)),
        _ if !begun => return Err(invalid_request("the first request must be initialize")),
        "tools/list" => ClientRequest::ListToolsRequest(ListToolsRequest::default()),
        "tools/call" => {
            let params = head.params.map_or("{}", RawValue::get);
            let params: CallParams = serde_json::from_str(params).map_err(invalid)?;
            let mut call = CallToolRequest::new(CallToolRequestParams::new(params.name));
            let mut arguments = params.arguments.unwrap_or_default();
            arguments.replaced = replaced;
            call.extensions.insert(params.meta.unwrap_or_default());
            call.extensions.insert(arguments);
            ClientRequest::CallToolRequest(call)
        }
        _ => return Err(not_found(method)),
    };
    let id = serde_json::from_str(id.get()).map_err(invalid)?;
    Ok(JsonRpcMessage::request(request, id))
}

/// What a client says of itself, as far as it is of the form that MCP gives it.
fn hello(params: Option<&RawValue>) -> InitializeRequest {
    let params = params.and_then(|params| serde_json::from_str::<Value>(params.get()).ok());
    let params = params.unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let client = &params["clientInfo"];
    let capabilities = serde_json::from_value(params["capabilities"].clone());
    let about = Implementation::new(text(&client["name"]), text(&client["version"]));
    let hello = InitializeRequestParams::new(capabilities.unwrap_or_default(), about);
    let version = serde_json::from_value(params["protocolVersion"].clone());
    let version = version.unwrap_or(ProtocolVersion::V_2025_11_25);
    InitializeRequest::new(hello.with_protocol_version(version))
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
