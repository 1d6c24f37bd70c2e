//! The pipe between a client and rmcp.

use peerbus_test_support::mcp::{Client, client};
use peerbus_test_support::soon;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetExtensions, JsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::watch;

use super::outbox::Calls;
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
async fn noise_is_answered_once_a_line_and_ends_nothing() {
    let (mut client, mut pipe) = pipe();
    client
        .write(b"npm warn\n\xff\xfe\n\n\r\n{\"id\":\n{} {}\n\0\n[]\n{\"id\":3}\n7\n")
        .await;
    client
        .write(b"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}\n")
        .await;
    client.say(&initialize()).await;
    assert!(matches!(shown(&mut pipe).await, JsonRpcMessage::Request(_)));
    // `{"id":3}` has no method: an answer, before anything was asked.
    for code in [
        -32_700, -32_700, -32_700, -32_700, -32_700, -32_600, -32_600,
    ] {
        let answer = client.hear().await;
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&Value::Null, &json!(code))
        );
    }
    let odd = client.hear().await;
    assert_eq!(odd["id"], json!(1.5));
    assert!(odd["error"]["code"].is_i64(), "{odd}");
}

#[tokio::test]
async fn a_client_that_introduces_itself_badly_is_answered_as_any_other() {
    for params in [
        r#"{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"lax"}}"#,
        r#"{"protocolVersion":"2024-11-05","capabilities":null,"clientInfo":{"name":"lax","version":1}}"#,
        r#"{"protocolVersion":"2024-11-05","clientInfo":{"name":"lax","version":null,"extra":[]}}"#,
        r#"{"protocolVersion":7,"capabilities":{"experimental":{"a":null}},"clientInfo":{"name":"lax"}}"#,
        r#"{"capabilities":[],"clientInfo":{"name":"lax\ud800"}}"#,
        r#"{"capabilities":{},"clientInfo":"lax"}"#,
        "[]",
        "null",
    ] {
        let (mut client, mut pipe) = pipe();
        let line = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{params}}}"#);
        client.write(format!("{line}\n").as_bytes()).await;
        let JsonRpcMessage::Request(first) = shown(&mut pipe).await else {
            panic!("{params}")
        };
        let ClientRequest::InitializeRequest(hello) = first.request else {
            panic!("{params}: {first:?}")
        };
        let name = hello.params.client_info.name;
        assert!(
            name.is_empty() || name.starts_with("lax"),
            "{params}: {name}"
        );
        let version = hello.params.protocol_version.to_string();
        let asked = params.contains("2024-11-05").then_some("2024-11-05");
        assert_eq!(version, asked.unwrap_or("2025-11-25"), "{params}");
    }
}

#[tokio::test]
async fn a_batch_is_read_as_its_messages_where_the_version_has_batches() {
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},7,{"jsonrpc":"2.0","id":2,"method":"tools/list"}]"#;
    for (version, has) in [("2025-03-26", true), ("2025-06-18", false)] {
        let (mut client, mut pipe) = pipe();
        let mut hello = initialize();
        hello["params"]["protocolVersion"] = version.into();
        client.say(&hello).await;
        shown(&mut pipe).await;
        client.write(format!("{batch}\n[]\n").as_bytes()).await;
        client
            .say(&json!({ "jsonrpc": "2.0", "id": 9, "method": "ping" }))
            .await;
        let mut ids = Vec::new();
        loop {
            match shown(&mut pipe).await {
                JsonRpcMessage::Request(request) => ids.push(request.id.to_string()),
                _ => ids.push("-".to_owned()),
            }
            if ids.last().is_some_and(|id| id == "9") {
                break;
            }
        }
        let expected: &[&str] = if has { &["1", "-", "2", "9"] } else { &["9"] };
        assert_eq!(ids, expected, "{version}");
        // A message that is none, or the batch; and a batch of nothing.
        for _ in 0..2 {
            let answer = client.hear().await;
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&Value::Null, &json!(-32_600))
            );
        }
    }
}

#[tokio::test]
async fn what_strict_readers_refuse_is_replaced_before_it_is_read() {
    let (mut client, mut pipe) = pipe();
    client.say(&initialize()).await;
    shown(&mut pipe).await;
    let call = r#"{"jsonrpc":"2.0","id":"\ud82d","method":"tools/call","params":{"name":"bus_send","arguments":{"to":"bob","body":{"\uDC00":"\uD82D","n":1e999}}}}"#;
    client.write(format!("{call}\n").as_bytes()).await;
    let JsonRpcMessage::Request(request) = shown(&mut pipe).await else {
        panic!("no request")
    };
    let arguments = request
        .request
        .extensions()
        .get::<Arguments>()
        .expect("arguments");
    assert_eq!(
        (arguments.json("body"), arguments.replaced),
        (Some(r#"{"\ufffd":"\ufffd","n":"1e999"}"#), true)
    );
    assert_eq!(request.id.to_string(), "\u{fffd}");
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
