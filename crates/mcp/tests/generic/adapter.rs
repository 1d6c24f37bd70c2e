//! What the adapter says of itself, what it sends, and how it ends.

use peerbus_mcp::{AdapterOptions, Exit, Spelling};
use peerbus_test_support::scripted::{Broker, Seen};
use peerbus_test_support::soon;
use peerbus_wire::Stage;
use serde_json::{Value, json};

use crate::{drain, greeted, start, start_with};

#[tokio::test]
async fn the_handshake_says_what_the_adapter_is() {
    let mut broker = Broker::start(true).await;
    let (mut client, _adapter) = start(&broker);
    let probe = client.request("server/discover", json!({})).await;
    assert_eq!(probe["error"]["code"], -32_601);
    client.initialized().await;
    let result = client.greet("some-bot").await;
    assert_eq!(result["protocolVersion"], "2025-11-25");
    assert_eq!(result["capabilities"], json!({ "tools": {} }));
    assert_eq!(result["serverInfo"]["name"], "peerbus");
    for method in [
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "no/such",
    ] {
        let answer = client.request(method, json!({})).await;
        assert_eq!(answer["error"]["code"], -32_601, "{method}: {answer}");
    }
    let presence = broker.saw("presence", |seen| match seen {
        Seen::Presence(presence) => Some(presence),
        Seen::Registered(register) => {
            let presence = register.presence?;
            serde_json::from_str(presence.as_str()).ok()
        }
        _ => None,
    });
    let presence = presence.await;
    assert_eq!(
        (&presence["client"], &presence["adapter"]),
        (&json!("some-bot"), &json!("generic"))
    );
}

#[tokio::test]
async fn versions_without_an_initialized_notification_are_not_negotiated() {
    let broker = Broker::start(true).await;
    for (offered, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let (mut client, _adapter) = start(&broker);
        let client_info = json!({ "name": "c", "version": "1" });
        let params = json!({
            "protocolVersion": offered, "capabilities": {}, "clientInfo": client_info,
        });
        let result = client.request("initialize", params).await;
        assert_eq!(result["result"]["protocolVersion"], agreed, "{offered}");
    }
}

#[tokio::test]
async fn tools_are_described_and_spelled_for_the_client() {
    let broker = Broker::start(true).await;
    for (name, send) in [
        ("claude-code", "bus.send"),
        ("codex-mcp-client", "bus_send"),
    ] {
        let (mut client, _adapter) = start(&broker);
        client.greet(name).await;
        let tools = client.request("tools/list", json!({})).await["result"]["tools"].take();
        let tools = tools.as_array().unwrap();
        let tool = |dotted: &str| {
            let spelled = send.replace("send", dotted);
            let tool = tools.iter().find(|tool| tool["name"] == spelled);
            tool.unwrap_or_else(|| panic!("{name}: no {spelled}"))
        };
        for dotted in [
            "broadcast",
            "reply",
            "ask",
            "status",
            "rename",
            "inbox",
            "ack",
            "drain",
        ] {
            tool(dotted);
        }
        assert_eq!(
            tool("send")["_meta"],
            json!({ "anthropic/alwaysLoad": true })
        );
        assert_eq!(
            tool("send")["inputSchema"]["required"],
            json!(["to", "body"])
        );
        for tool in tools {
            let hints = &tool["annotations"];
            let only_looks = ["peers", "status"]
                .iter()
                .any(|it| tool["name"] == send.replace("send", it));
            assert_eq!(hints["readOnlyHint"], only_looks, "{tool}");
            assert_eq!(hints["destructiveHint"], false, "{tool}");
            let reaches = [
                "ask",
                "broadcast",
                "join",
                "leave",
                "rename",
                "reply",
                "send",
            ]
            .iter()
            .any(|it| tool["name"] == send.replace("send", it));
            assert_eq!(hints["openWorldHint"], reaches, "{tool}");
            assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        }
        for spelling in ["bus.peers", "bus_peers"] {
            let peers = client.call(spelling, json!({})).await;
            assert_eq!(peers["structuredContent"]["self"], "me", "{peers}");
        }
        let unknown = client
            .request("tools/call", json!({ "name": "bus-send" }))
            .await;
        assert_eq!(unknown["error"]["code"], -32_602, "{unknown}");
    }
}

#[tokio::test]
async fn an_option_overrides_the_spelling() {
    let broker = Broker::start(true).await;
    let options = AdapterOptions {
        tool_names: Some(Spelling::Underscore),
        ..AdapterOptions::default()
    };
    let (mut client, _adapter) = start_with(&broker, options, 1 << 20);
    client.greet("claude-code").await;
    let tools = client.request("tools/list", json!({})).await;
    let tools = tools["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "bus_broadcast"));
}

#[tokio::test]
async fn a_send_says_how_far_the_message_got() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let body = json!({ "b": [1.5, "x"], "a": null });
    let result = client
        .call("bus.send", json!({ "to": "bob", "body": body }))
        .await;
    assert_eq!(result["isError"], false, "{result}");
    let known = &result["structuredContent"];
    assert_eq!(
        (&known["sent"], &known["to"]),
        (&json!(true), &json!("bob"))
    );
    assert_eq!(
        (&known["status"], &known["recipients"]),
        (&json!("accepted"), &json!(1))
    );
    assert!(
        known["note"].as_str().unwrap().contains("bob is away"),
        "{known}"
    );
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(&text, known, "the text is the same as the structure");
    let carried = broker.envelope().await;
    assert_eq!(carried.id.as_str(), known["id"].as_str().unwrap());
    // serde_json's maps sort their members; what counts is that the text is what the client wrote.
    assert!(
        carried.text.contains(&format!(r#""body":{body}"#)),
        "{}",
        carried.text
    );

    let result = client.call("bus.broadcast", json!({ "body": "all" })).await;
    assert_eq!(result["structuredContent"]["broadcast"], true, "{result}");
}

#[tokio::test]
async fn behind_a_v1_broker_a_send_is_written_and_no_more_is_claimed() {
    let broker = Broker::start(false).await;
    let mut client = greeted(&broker).await;
    let result = client
        .call("bus.send", json!({ "to": "bob", "body": "x" }))
        .await;
    let known = &result["structuredContent"];
    assert_eq!(
        (&known["sent"], &known["status"]),
        (&json!(true), &json!("written")),
        "{result}"
    );
    assert_eq!(known.get("recipients"), None);
    let peers = client.call("bus.peers", json!({})).await;
    assert_eq!(
        peers["structuredContent"]["peers"],
        json!(["bob"]),
        "{peers}"
    );
}

#[tokio::test]
async fn what_cannot_be_sent_is_an_error_that_says_what_to_do() {
    let broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    for (arguments, says) in [
        (json!({ "to": "bop", "body": "x" }), "Did you mean bob?"),
        (json!({ "body": "x" }), "argument to is missing"),
        (
            json!({ "to": 7, "body": "x" }),
            "argument to must be a string, got a number",
        ),
        (json!({ "to": "bob" }), "argument body is missing"),
        (json!({ "to": "no name", "body": "x" }), "U+0020"),
        (
            json!({ "to": "bob", "body": "x".repeat(1_100_000) }),
            "1048",
        ),
    ] {
        let result = client.call("bus.send", arguments).await;
        assert_eq!(result["isError"], true, "{says}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[tokio::test]
async fn peers_away_are_told_apart_from_those_that_are_here() {
    let broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let result = client.call("bus.peers", json!({})).await;
    let peers = &result["structuredContent"];
    assert_eq!(
        (&peers["self"], &peers["peers"]),
        (&json!("me"), &json!(["bob"]))
    );
    let zoe = &peers["details"][1];
    assert_eq!(
        (&zoe["name"], &zoe["online"], &zoe["away_s"]),
        (&json!("zoe"), &json!(false), &json!(60))
    );
}

#[tokio::test]
async fn a_drain_is_bounded_and_says_what_remains() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    broker.deliver(&format!("\"{}\"", "x".repeat(100_000)));
    for n in 0..60 {
        broker.deliver(&n.to_string());
    }
    let large = drain(&mut client).await["structuredContent"].take();
    assert_eq!(
        large["messages"].as_array().unwrap().len(),
        1,
        "a large one goes alone"
    );
    let mut counts = Vec::new();
    let mut drained = 1;
    while drained < 61 {
        let result = drain(&mut client).await["structuredContent"].take();
        counts.push(result["messages"].as_array().unwrap().len());
        drained += counts.last().unwrap();
    }
    assert!(counts.iter().all(|count| *count <= 50), "{counts:?}");
    for n in 0..3 {
        broker.deliver(&n.to_string());
    }
    let one = loop {
        let result = client.call("bus.drain", json!({ "max": 1 })).await;
        let result = result["structuredContent"].clone();
        if result["messages"] != json!([]) {
            break result;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(one["messages"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_fate_of_a_sent_message_is_told_with_the_next_drain() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let sent = client
        .call("bus.send", json!({ "to": "bob", "body": "x" }))
        .await;
    let id = sent["structuredContent"]["id"].as_str().unwrap().to_owned();
    broker.receipt(
        &id,
        Stage::Expired {
            why: "it was never\nread".into(),
        },
    );
    broker.deliver("1");
    let result = drain(&mut client).await;
    let notice = result["structuredContent"]["notices"][0]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        notice.contains(&id) && notice.contains("expired"),
        "{notice}"
    );
    assert!(!notice.contains('\n'), "{notice}");
}

#[tokio::test]
async fn a_burst_of_sends_leaves_in_order() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    for n in 0..200 {
        let arguments = json!({ "to": "bob", "body": n });
        client
            .ask(
                "tools/call",
                json!({ "name": "bus_send", "arguments": arguments }),
            )
            .await;
    }
    for n in 0..200 {
        let text = broker.envelope().await.text;
        assert!(text.contains(&format!(r#""body":{n},"#)), "{n}: {text}");
    }
}

#[tokio::test]
async fn the_end_of_input_ends_the_adapter() {
    let broker = Broker::start(true).await;
    let (mut client, adapter) = start(&broker);
    client.greet("some-bot").await;
    client.hang_up();
    assert_eq!(soon(adapter).await.unwrap(), Exit::InputClosed);
    // And before any handshake.
    let (mut client, adapter) = start(&broker);
    client.hang_up();
    assert_eq!(soon(adapter).await.unwrap(), Exit::InputClosed);
}

/// A JSON Schema's word for a kind of number that only some readers know: others warn of each.
fn formats(schema: &Value) -> Vec<&Value> {
    match schema {
        Value::Object(members) => {
            let own = members.get("format").filter(|format| format.is_string());
            own.into_iter()
                .chain(members.values().flat_map(formats))
                .collect()
        }
        Value::Array(items) => items.iter().flat_map(formats).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn no_tools_schema_has_a_format_that_clients_warn_of() {
    let broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let tools = client.request("tools/list", json!({})).await["result"]["tools"].take();
    let tools = tools.as_array().expect("tools");
    assert!(!tools.is_empty());
    for tool in tools {
        for schema in ["inputSchema", "outputSchema"] {
            assert_eq!(
                formats(&tool[schema]),
                Vec::<&Value>::new(),
                "{} {schema}",
                tool["name"]
            );
        }
    }
}

#[tokio::test]
async fn what_strict_readers_refuse_reaches_no_client_and_no_peer() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let deep = format!("{}1e999{}", "[".repeat(60), "]".repeat(60));
    for odd in [
        r#""half \ud82d""#,
        r#"{"\uDC00":"\uD82D \ud83d\ude00"}"#,
        r#"{"text":"\udfff","thread":"t-1"}"#,
        "[1e999,-1e999]",
        &deep,
    ] {
        broker.deliver(odd);
        // The client reads each line as strictly as serde_json does.
        let result = drain(&mut client).await;
        let body = result["structuredContent"]["messages"][0]["body"].to_string();
        assert!(
            body.contains('\u{fffd}') || body.contains("1e999\""),
            "{odd}: {body}"
        );
        broker.deliver(odd);
        let along = async {
            loop {
                let result = client.call("bus.peers", json!({})).await;
                if result["structuredContent"]["unseen"].is_string() {
                    return result;
                }
            }
        };
        let along = peerbus_test_support::soon(along).await;
        assert!(!along.to_string().contains("\\ud82d"), "{along}");
        client.call("bus.inbox", json!({})).await;
    }
    let line = r#"{"jsonrpc":"2.0","id":7000,"method":"tools/call","params":{"name":"bus.send","arguments":{"to":"bob","body":"half \ud82d"}}}"#;
    client.write(format!("{line}\n").as_bytes()).await;
    let sent = client.answer(7_000).await["result"].clone();
    let said = sent["structuredContent"]["replaced"]
        .as_str()
        .unwrap_or_default();
    assert!(said.contains("half of a surrogate pair"), "{sent}");
    let body = broker.envelope().await.text;
    assert!(body.contains(r#""text":"half \ufffd""#), "{body}");
}

#[tokio::test]
async fn what_models_send_for_a_number_or_a_list_is_taken() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    broker.deliver(r#""one""#);
    let result = drain(&mut client).await;
    assert_eq!(result["structuredContent"]["messages"][0]["id"], "m1");
    for arguments in [
        json!({ "max": 5.0 }),
        json!({ "max": "5.0" }),
        json!({ "offset": 0.0, "ids": [] }),
    ] {
        let result = client.call("bus.inbox", arguments).await;
        let said = result["content"][0]["text"].as_str().unwrap_or_default();
        assert!(!said.contains("whole number"), "{result}");
    }
    let result = client
        .call("bus.ack", json!({ "ids": "[\"m1\", \"m9\"]" }))
        .await;
    let unknown = &result["structuredContent"]["unknown"];
    // The calls before have shown that the first was seen.
    assert_eq!(*unknown, json!(["m1", "m9"]), "{result}");
}
