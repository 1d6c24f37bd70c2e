//! The pipe between a client and rmcp.

use peerbus_test_support::mcp::{Client, client};
use peerbus_test_support::soon;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetExtensions, JsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::watch;

use super::calls::Calls;
use super::outbox::Outbox;
use super::transport::Pipe;
use crate::arguments::Arguments;

fn pipe() -> (Client, Pipe<DuplexStream>) {
    let (client, input, output) = client(1 << 20);
    let out = Outbox::default();
    let pipe = Pipe::new(
        input,
        out.clone(),
        Calls::default(),
        watch::channel(false).0,
    );
    tokio::spawn(async move { out.write_to(output, drop).await });
    (client, pipe)
}

/// The next message that rmcp is shown.
async fn shown(pipe: &mut Pipe<DuplexStream>) -> ClientJsonRpcMessage {
    soon(pipe.receive()).await.expect("no end")
}

fn initialize() -> Value {
    json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        },
    })
}

#[tokio::test]
async fn discover_is_answered_before_anything_else_happens() {
    let (mut client, mut pipe) = pipe();
    client
        .say(&json!({ "jsonrpc": "2.0", "id": "probe-1", "method": "server/discover", "params": {} }))
        .await;
    client.say(&initialize()).await;
    let first = shown(&mut pipe).await;
    let JsonRpcMessage::Request(request) = first else {
        panic!("{first:?}")
    };
    assert!(matches!(
        request.request,
        ClientRequest::InitializeRequest(_)
    ));
    let answer = client.hear().await;
    assert_eq!(answer["id"], "probe-1");
    assert_eq!(answer["error"]["code"], -32_601);
}

#[tokio::test]
async fn before_initialize_notifications_vanish_and_requests_are_refused() {
    let (mut client, mut pipe) = pipe();
    client
        .say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    client
        .say(&json!({ "jsonrpc": "2.0", "id": 9, "result": {} }))
        .await;
    client
        .say(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }))
        .await;
    client.say(&initialize()).await;
    let first = shown(&mut pipe).await;
    let JsonRpcMessage::Request(request) = first else {
        panic!("{first:?}")
    };
    assert!(matches!(
        request.request,
        ClientRequest::InitializeRequest(_)
    ));
    let answer = client.hear().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(1), &json!(-32_600))
    );
}

#[tokio::test]
async fn noise_is_answered_where_it_can_be_and_ends_nothing() {
    let (mut client, mut pipe) = pipe();
    client
        .write(b"npm warn\n\xff\xfe\n\n\r\n[]\n{\"id\":3}\n")
        .await;
    client
        .write(b"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}\n")
        .await;
    client.say(&initialize()).await;
    assert!(matches!(shown(&mut pipe).await, JsonRpcMessage::Request(_)));
    let list = client.hear().await;
    assert_eq!(
        (&list["id"], &list["error"]["code"]),
        (&Value::Null, &json!(-32_600))
    );
    let odd = client.hear().await;
    assert_eq!(odd["id"], json!(1.5));
    assert!(odd["error"]["code"].is_i64(), "{odd}");
}

#[tokio::test]
async fn arguments_travel_as_they_were_spelled() {
    let (mut client, mut pipe) = pipe();
    client.say(&initialize()).await;
    shown(&mut pipe).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bus_send","arguments":{"to":"bob","body":{"n":1.00,"big":123456789012345678901}},"_meta":{"progressToken":7}}}"#;
    client.write(format!("{call}\n").as_bytes()).await;
    let message = shown(&mut pipe).await;
    let JsonRpcMessage::Request(request) = message else {
        panic!("{message:?}")
    };
    let arguments = request
        .request
        .extensions()
        .get::<Arguments>()
        .expect("arguments");
    assert_eq!(
        arguments.json("body"),
        Some(r#"{"n":1.00,"big":123456789012345678901}"#)
    );
    let ClientRequest::CallToolRequest(call) = request.request else {
        panic!("no call")
    };
    assert_eq!(call.params.name, "bus_send");
}

#[tokio::test]
async fn a_burst_keeps_its_order_in_both_directions() {
    let (mut client, mut pipe) = pipe();
    client.say(&initialize()).await;
    shown(&mut pipe).await;
    for id in 0..200 {
        let params = json!({ "name": "bus_peers" });
        client
            .say(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }))
            .await;
    }
    let mut sends = Vec::new();
    for expected in 0..200 {
        let message = shown(&mut pipe).await;
        let JsonRpcMessage::Request(request) = message else {
            panic!("{message:?}")
        };
        assert_eq!(request.id, rmcp::model::RequestId::Number(expected));
        let result = rmcp::model::ServerResult::empty(());
        sends.push(pipe.send(JsonRpcMessage::response(result, request.id)));
    }
    // Whoever waits last for his answer does not delay it.
    for send in sends.into_iter().rev() {
        send.await.expect("written");
    }
    for expected in 0..200 {
        assert_eq!(client.hear().await["id"], expected);
    }
}

#[tokio::test]
async fn an_unterminated_last_line_counts_and_the_end_is_told() {
    let (to, input) = tokio::io::duplex(1 << 16);
    let (closed, mut closing) = watch::channel(false);
    let mut pipe = Pipe::new(input, Outbox::default(), Calls::default(), closed);
    let mut to = to;
    to.write_all(initialize().to_string().as_bytes())
        .await
        .unwrap();
    drop(to);
    assert!(matches!(shown(&mut pipe).await, JsonRpcMessage::Request(_)));
    assert!(!*closing.borrow_and_update());
    assert!(pipe.receive().await.is_none());
    assert!(*closing.borrow_and_update());
}
