//! What the streams of real clients show.

use peerbus_adapter::mailbox::{Activity, Evidence};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::*;
use crate::process::tests::scripted;
use crate::turns::Turns;

const STREAMS: [&str; 2] = [
    include_str!("../../testdata/2.1.330.ndjson"),
    include_str!("../../testdata/2.1.114.ndjson"),
];

fn claude() -> Claude {
    Claude {
        options: ClientOptions::default(),
        transport: Transport::Stdio,
        instructions: String::new(),
        tools: Tools::new().0,
        asked: Mutex::default(),
        stopped: AtomicBool::default(),
        settings: std::sync::Mutex::default(),
    }
}

/// What the stream of a real client shows, line by line, after everything was written.
async fn shown(lines: &str) -> (Vec<Evidence>, Vec<String>, Activity) {
    let (claude, (to, _reader)) = (claude(), scripted());
    let (mut turns, mut failures) = (Turns::default(), Vec::new());
    for line in lines.lines().map(|line| Line::read(line).unwrap()) {
        if line.is_replay() {
            let text = line.to_string();
            let marks = text.match_indices("pb-").map(|(at, _)| &text[at..at + 13]);
            turns.wrote(line.uuid().unwrap(), marks.last(), &[]);
        }
    }
    assert_eq!(turns.activity(), Activity::Busy);
    for line in lines.lines() {
        if Line::read(line).unwrap().kind() == "control_request" {
            continue;
        }
        for heard in claude.hear(&to, line).await {
            match heard {
                Heard::Shown(id) => turns.shown(&id),
                Heard::Words { answer, .. } => {
                    answer.into_iter().for_each(|answer| turns.answer(answer));
                }
                Heard::TurnEnd { ids, end } => {
                    turns.ended(&ids, &end);
                    if let TurnEnd::Failed(why) = end {
                        failures.push(why);
                    }
                }
                _ => {}
            }
        }
    }
    (turns.take(), failures, turns.activity())
}

#[tokio::test]
async fn real_streams_prove_what_was_merged_and_joined_and_nothing_of_turns_that_failed() {
    for lines in STREAMS {
        let (found, failed, activity) = shown(lines).await;
        let numbers = |answered: bool| -> String {
            let number = |evidence: &Evidence| match evidence {
                Evidence::Answered(mark) if answered => mark.chars().last(),
                Evidence::Presented(mark) if !answered => mark.chars().last(),
                _ => None,
            };
            found.iter().filter_map(number).collect()
        };
        assert_eq!(numbers(false), "12345678");
        assert_eq!(numbers(true), "123456");
        let [service, stopped] = &failed[..] else {
            panic!("{failed:?}")
        };
        assert!(service.starts_with("success: API Error: 400"), "{service}");
        assert!(stopped.starts_with("error_during_execution: "), "{stopped}");
        assert_eq!(activity, Activity::Idle);
    }
}

#[test]
fn each_line_of_a_real_stream_is_read_and_what_it_asks_is_known() {
    for lines in STREAMS {
        let lines: Vec<_> = lines.lines().map(|it| Line::read(it).unwrap()).collect();
        let inits = lines.iter().filter(|line| line["subtype"] == "init");
        assert!(inits.clone().count() > 0);
        assert!(inits.clone().all(|line| line["session_id"].is_string()));
        let asked = lines.iter().map(|line| &line["request"]["subtype"]);
        let mut asked: Vec<_> = asked.filter_map(Value::as_str).collect();
        asked.dedup();
        let wanted = ["mcp_message", "can_use_tool", "mcp_message", "can_use_tool"];
        assert_eq!(asked, wanted);
    }
}

#[tokio::test]
async fn what_is_asked_of_the_server_behind_the_stream_is_answered_inside_it() {
    let (tools, waiting) = Tools::new();
    let claude = Claude { tools, ..claude() };
    let ((to, mut reader), (ours, theirs)) = (scripted(), tokio::io::duplex(1 << 16));
    let (read, mut write) = tokio::io::split(theirs);
    let mut asked = BufReader::new(read).lines();
    let line = |message| {
        format!(
            r#"{{"type":"control_request","request_id":"b","request":{{"subtype":"mcp_message","message":{message}}}}}"#
        )
    };
    let test = async {
        let call = line(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#);
        claude.hear(&to, &call).await;
        while !asked.next_line().await.unwrap().unwrap().contains("call") {}
        let answer = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"n\":1e400}}\n";
        write.write_all(answer).await.unwrap();
        let answer = reader.next().await;
        let wanted = r#""request_id":"b","response":{"mcp_response":{"jsonrpc":"2.0","id":7,"result":{"n":1e400}}}"#;
        assert!(answer.contains(wanted), "{answer}");
        for (message, wanted) in [
            (
                r#"{"method":"notifications/initialized"}"#,
                r#""response":{}"#,
            ),
            ("7", r#""subtype":"error""#),
        ] {
            let line = line(message);
            let (_, said) = tokio::join!(claude.hear(&to, &line), reader.next());
            assert!(
                said.contains(r#""request_id":"b""#) && said.contains(wanted),
                "{said}"
            );
        }
    };
    let who = peerbus_mcp::ClientInfo {
        name: String::new(),
        version: String::new(),
    };
    tokio::select! {
        () = test => {}
        () = claude.tools.carry(&who, ours, waiting, |_| {}) => panic!("the server ended"),
    }
}

#[tokio::test]
async fn what_has_another_form_says_nothing_and_ends_nothing() {
    let (claude, (to, _reader)) = (claude(), scripted());
    for line in [
        r#"{"type":7}"#,
        r#"{"type":"new","subtype":"er"}"#,
        r#"{"type":"control_request"}"#,
        r#"{"type":"assistant","parent_tool_use_id":"t","message":{"id":"b","content":[]}}"#,
        "no JSON",
        "[]",
    ] {
        assert!(claude.hear(&to, line).await.is_empty(), "{line}");
    }
    let words = async |line| match claude.hear(&to, line).await.pop() {
        Some(Heard::Words { answer, texts }) => (answer, texts),
        other => panic!("{other:?}"),
    };
    let none = words(r#"{"type":"assistant","message":{"content":"x"}}"#).await;
    assert_eq!(none, (None, Vec::new()));
    let half =
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"half \ud82d"}]}}"#;
    assert_eq!(words(half).await.1, ["half \u{fffd}"]);
}

#[tokio::test]
async fn what_is_answered_is_what_was_written() {
    let (claude, (to, _reader)) = (claude(), scripted());
    let line = r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"n":1.50,"n":1e400}}}"#;
    let Some(Heard::Asks(asked)) = claude.hear(&to, line).await.pop() else {
        panic!("a request");
    };
    let verdict = Verdict::closed(Some(Decision::Allow), By::Node);
    let said = claude.answer(&asked, &verdict).unwrap();
    let input = r#""updatedInput":{"n":1.50,"n":1e400}"#;
    assert!(said.contains(input), "{said}");
}

#[tokio::test]
async fn what_a_tool_gave_stands_in_a_result_that_is_no_error() {
    let (claude, (to, _reader)) = (claude(), scripted());
    let given = json!([{ "type": "text", "text": "1 message [pb-1]" }]);
    for (is_error, shown) in [
        (json!(null), true),
        (json!(false), true),
        (json!(true), false),
    ] {
        let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": given,
            "is_error": is_error });
        let line = json!({ "type": "user", "message": { "role": "user", "content": [result] } });
        let heard = claude.hear(&to, &line.to_string()).await;
        let mut results = heard.iter().filter_map(|heard| match heard {
            Heard::Result(text) => Some(text.contains("[pb-1]")),
            _ => None,
        });
        assert_eq!(results.next(), shown.then_some(true), "{line}");
    }
}
