//! What real agents wrote, line by line: `testdata/acp` has what a client said to each and what it said,
//! on a closed network with a model that is a script. `[[status:N]]` in a prompt made the service fail.

use std::collections::BTreeMap;
use std::ffi::OsString;

use peerbus_adapter::agents::ALL;
use peerbus_node::approvals::{By, Decision, Verdict};
use peerbus_wire::jsonrpc::RpcError;
use serde_json::{Value, json};

use super::session::Asking;
use super::{Acp, AcpAgent};
use crate::process::AgentLines;
use crate::process::tests::scripted;
use crate::protocol::{Given, Heard, Permission, Protocol as _, TurnEnd};

macro_rules! captures {
    ($scenario:literal: $($agent:literal),*) => {
        [$(($agent, include_str!(concat!("../../testdata/acp/", $agent, ".", $scenario, ".ndjson")))),*]
    };
}

fn given<'a>(text: &'a str, mark: Option<&'a str>) -> Given<'a> {
    let images = &[];
    Given {
        text,
        mark,
        images,
        ids: &[],
    }
}

/// A driver of this agent, as the table knows it.
fn driver(name: &str) -> (Acp, AgentLines) {
    let word = if name == "claude" { "claude-acp" } else { name };
    let agent = ALL.into_iter().find(|agent| agent.word == word).unwrap();
    let agent = AcpAgent {
        word: agent.word.to_owned(),
        title: agent.title.to_owned(),
        agent,
        command: vec![OsString::from(agent.word)],
        resume: None,
        model: None,
        mode: None,
    };
    let (to, reader) = scripted();
    tokio::spawn(reader.take_all());
    let env = ["a", "b"].map(|name| (name, String::new()));
    let acp = Acp::new(agent, String::new(), ("peerbus", &["adapter"], env), None);
    (acp, to)
}

/// What a driver makes of a capture, up to a prompt that it would not have given.
async fn heard(name: &str, capture: &str) -> Vec<Heard> {
    let (acp, to) = driver(name);
    played(&acp, &to, capture).await
}

async fn played(acp: &Acp, to: &AgentLines, capture: &str) -> Vec<Heard> {
    let mut all = Vec::new();
    for line in capture.lines() {
        let line: BTreeMap<String, Value> = serde_json::from_str(line).unwrap();
        if let Some(said) = line.get("client") {
            if !says(acp, said) {
                break;
            }
        } else if let Some(said) = line.get("agent") {
            all.extend(acp.hear(to, &said.to_string()).await);
        }
    }
    all
}

/// What a client said, as if the driver had. False: the driver does not say it.
fn says(acp: &Acp, said: &Value) -> bool {
    let mut state = acp.state();
    let params = &said["params"];
    let asking = match said["method"].as_str() {
        Some("initialize") => Asking::Initialize,
        Some("session/new") => Asking::New,
        Some("session/load" | "session/resume") => {
            state.resume = params["sessionId"].as_str().map(str::to_owned);
            Asking::Load
        }
        Some("session/prompt") => {
            let text = params["prompt"][0]["text"].as_str().unwrap();
            if state.prompt(text, given(text, None), "").is_none() {
                return false;
            }
            Asking::Prompt(text.to_owned())
        }
        _ => return true,
    };
    state.asked.insert(said["id"].as_u64().unwrap(), asking);
    true
}

/// How the turns ended, by the texts that they began with.
fn ends(heard: &[Heard]) -> Vec<(&str, &TurnEnd)> {
    let mut all = Vec::new();
    for heard in heard {
        if let Heard::TurnEnd { ids, end } = heard
            && let Some(text) = ids.first()
        {
            all.push((text.as_str(), end));
        }
    }
    all
}

#[tokio::test]
async fn turns_of_real_agents_are_proven_and_what_failed_is_not() {
    let agents = captures!("first": "claude", "codex", "opencode", "qwen", "gemini", "copilot", "kimi", "vibe", "hermes", "openhands");
    let failing = captures!("errors": "claude", "codex", "opencode", "qwen", "gemini", "copilot", "kimi", "vibe", "hermes", "openhands");
    for (name, capture) in agents.into_iter().chain(failing) {
        let heard = heard(name, capture).await;
        let ends = ends(&heard);
        assert!(!ends.is_empty(), "{name}");
        for (text, end) in ends {
            // Vibe takes no key any more once one was rejected. The others tell sums: behind turns without
            // a figure one proves nothing, and the message goes again.
            let unproven = ["vibe", "copilot", "hermes"].contains(&name) && text.contains("id:E1]");
            let failed = text.contains("[[status:") || unproven;
            assert_eq!(*end == TurnEnd::Well, !failed, "{name}: {text}: {end:?}");
        }
    }
}

#[tokio::test]
async fn version_two_is_known_by_its_shape() {
    for (name, capture) in captures!("v2": "claude", "codex") {
        let heard = heard(name, capture).await;
        let ends = ends(&heard);
        assert!(ends.len() > 1, "{name}");
        for (text, end) in ends {
            assert_eq!(*end, TurnEnd::Well, "{name}: {text}");
        }
        // The response says that the text stands there, before the model says a word.
        let place = |is: fn(&Heard) -> bool| heard.iter().position(is);
        let shown = place(|heard| matches!(heard, Heard::Shown(_)));
        let words = place(|heard| matches!(heard, Heard::Words { .. }));
        assert!(shown < words, "{name}: {shown:?} {words:?}");
    }
}

#[tokio::test]
async fn a_history_shows_what_was_answered_and_nothing_else() {
    for (name, capture) in captures!("restart.load": "claude", "codex", "opencode", "qwen", "copilot", "kimi", "vibe", "hermes")
    {
        // Words prove nothing with these two; a tool was called in one's second turn.
        let proven = match name {
            "copilot" => "",
            "hermes" => "R2",
            _ => "R1 R2",
        };
        for id in ["R1", "R2", "R3"] {
            let (acp, to) = driver(name);
            let text = prompted(capture, id);
            acp.state().prompt("left", given(&text, Some(id)), "");
            acp.ended();
            let heard = played(&acp, &to, capture).await;
            let known = heard
                .iter()
                .any(|heard| matches!(heard, Heard::Known(mark, TurnEnd::Well) if mark == id));
            assert_eq!(known, proven.contains(id), "{name}: {id}");
            assert!(
                heard
                    .iter()
                    .any(|heard| matches!(heard, Heard::Session(..))),
                "{name}"
            );
        }
    }
}

/// The prompt with this id, as the agent repeats it.
fn prompted(capture: &str, id: &str) -> String {
    let line = capture
        .lines()
        .find(|line| line.contains("user_message_chunk") && line.contains(&format!("[[id:{id}]]")));
    let line: Value = serde_json::from_str(line.unwrap()).unwrap();
    let text = &line["agent"]["params"]["update"]["content"]["text"];
    text.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn real_questions_are_put_to_whoever_may_answer_but_those_about_bus_tools() {
    for (name, capture) in captures!("strict": "claude", "codex", "opencode", "qwen", "gemini", "copilot", "kimi", "vibe", "hermes", "openhands")
    {
        let heard = heard(name, capture).await;
        let tools = heard.iter().filter_map(|heard| match heard {
            Heard::Asks(permission) => Some(permission.asked.tool.as_str()),
            _ => None,
        });
        let tools: Vec<_> = tools.collect();
        // Whoever decides is shown what it is about, wherever the agent says it.
        let unsaid = heard.iter().filter(|heard| match heard {
            Heard::Asks(Permission { asked, .. }) => {
                !format!("{} {}", asked.tool, asked.input).contains("made-by")
            }
            _ => false,
        });
        assert_eq!(unsaid.count(), 0, "{name}");
        assert!(
            !tools.iter().any(|tool| tool.contains("bus_")),
            "{name}: {tools:?}"
        );
        assert!(!tools.is_empty() || name == "hermes", "{name}");
    }
    let (acp, to) = driver("kimi");
    let line = json!({ "jsonrpc": "2.0", "id": 1, "method": "fs/write_text_file", "params": {} });
    assert!(acp.hear(&to, &line.to_string()).await.is_empty());
}

#[tokio::test]
async fn an_answer_is_that_of_its_own_prompt_and_a_verdict_that_of_its_own_question() {
    let (acp, to) = driver("kimi");
    acp.state().began("s");
    let proof = acp.agent.facts().proof;
    let failed = Err(RpcError::new(-32_603, "down"));
    acp.state().prompt("one", given("a", None), "");
    assert_eq!(ends(&acp.state().prompted(proof, "one", &failed)).len(), 1);
    acp.state().prompt("two", given("b", None), "");
    let late = Ok(json!({ "stopReason": "end_turn" }));
    assert!(acp.state().prompted(proof, "one", &late).is_empty());

    let asks = |title: &str| {
        let call = json!({ "toolCallId": title, "title": title, "rawInput": { "command": title } });
        let options = json!([{ "optionId": title, "kind": "allow_once" }]);
        let params = json!({ "sessionId": "s", "toolCall": call, "options": options });
        json!({ "jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": params })
            .to_string()
    };
    let mut heard = acp.hear(&to, &asks("ls")).await;
    let Some(Heard::Asks(asked)) = heard.pop() else {
        panic!("{heard:?}");
    };
    assert!(acp.hear(&to, &asks("rm")).await.is_empty());
    assert!(acp.hear(&to, &asks("bus_send")).await.is_empty());
    let verdict = Verdict::closed(Some(Decision::Allow), By::Node);
    let answer = acp.answer(&asked, &verdict).unwrap();
    assert!(answer.contains(r#""optionId":"ls""#), "{answer}");

    let mut heard = acp.hear(&to, &asks("ls")).await;
    acp.interrupt(&to).await.unwrap();
    let Some(Heard::Asks(asked)) = heard.pop() else {
        panic!("{heard:?}");
    };
    // It was answered `cancelled`.
    assert_eq!(acp.answer(&asked, &verdict), None);
    // An id that would take much to keep.
    let long = asks("ls").replace(
        r#""id":7"#,
        &format!(r#""id":"{}""#, "x".repeat(super::lines::ID_MAX)),
    );
    assert!(acp.hear(&to, &long).await.is_empty());
    assert!(acp.state().questions.is_empty());
}

#[tokio::test]
async fn a_question_about_a_call_shows_that_the_model_got_the_text_which_led_to_it() {
    let asks = |session: &str, call: &Value| {
        let params = json!({ "sessionId": session, "toolCall": call, "options": [] });
        json!({ "jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": params })
            .to_string()
    };
    let call = json!({ "toolCallId": "t", "title": "ls", "rawInput": { "command": "ls" } });
    let nameless = json!({ "title": "ls", "rawInput": { "command": "ls" } });
    for (session, call, shows) in [
        ("s", &call, true),
        ("s", &nameless, false),
        ("another", &call, false),
    ] {
        let (acp, to) = driver("kimi");
        acp.state().began("s");
        acp.state().prompt("one", given("a", None), "");
        let heard = acp.hear(&to, &asks(session, call)).await;
        let shown = |it: &Heard| matches!(it, Heard::Shown(uuid) if uuid == "one");
        assert_eq!(heard.iter().any(shown), shows, "{heard:?}");
        let stopped = Ok(json!({ "stopReason": "cancelled" }));
        let proof = acp.agent.facts().proof;
        let heard = acp.state().prompted(proof, "one", &stopped);
        assert_eq!(*ends(&heard)[0].1 == TurnEnd::Well, shows);
        // What is left of it is of no later turn.
        acp.state().prompt("two", given("b", None), "");
        let heard = acp.hear(&to, &asks(session, call)).await;
        assert!(!heard.iter().any(|it| matches!(it, Heard::Shown(_))));
    }
}

fn says_of(kind: &str, text: &str, id: &str) -> String {
    let update = json!({ "sessionUpdate": kind, "messageId": id, "content": { "text": text } });
    let params = json!({ "sessionId": "s", "update": update });
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }).to_string()
}

#[tokio::test]
async fn the_rest_of_a_history_answers_nothing_and_the_turns_own_text_ends_it() {
    for echoes in [false, true] {
        let (acp, to) = driver("kimi");
        let proof = acp.agent.facts().proof;
        acp.state().resume = Some("s".to_owned());
        acp.state().can.loads = true;
        acp.state().asked.insert(1, Asking::Load);
        acp.hear(&to, &says_of("user_message_chunk", "old", "u"))
            .await;
        acp.state().asked.clear();
        acp.state().loaded(proof, &Value::Null);
        acp.state().prompt("one", given("new", Some("mark")), "");
        let mut lines = vec![
            says_of("agent_message_chunk", "an old answer", "a"),
            says_of("user_message_chunk", "older", "v"),
            says_of("agent_message_chunk", "another", "b"),
        ];
        if echoes {
            lines.push(says_of("user_message_chunk", "new", "w"));
            lines.push(says_of("agent_message_chunk", "heard it", "c"));
        }
        for line in &lines {
            acp.hear(&to, line).await;
        }
        let ended = Ok(json!({ "stopReason": "end_turn" }));
        let heard = acp.state().prompted(proof, "one", &ended);
        let ends = ends(&heard);
        assert_eq!(*ends[0].1 == TurnEnd::Well, echoes, "{ends:?}");
        // The next turn is no part of it.
        acp.state().prompt("two", given("new", None), "");
        acp.hear(&to, &says_of("agent_message_chunk", "heard it", "d"))
            .await;
        let heard = acp.state().prompted(proof, "two", &ended);
        assert_eq!(self::ends(&heard)[0].1, &TurnEnd::Well);
    }
}

#[tokio::test]
async fn what_a_tool_gave_is_proven_by_what_comes_after_it_alone() {
    let (said, end) = (
        json!({ "totalTokens": 9 }),
        json!({ "stopReason": "end_turn" }),
    );
    let stop = json!({ "stopReason": "cancelled" });
    for (before, done, after, ended, proven) in [
        ("", "completed", "n", &end, true),
        ("", "completed", "n", &stop, false),
        ("a", "completed", "", &end, false),
        ("a", "completed", "", &stop, false),
        // The rest of what it said before.
        ("a", "completed", "m", &end, false),
        // It gave the call up.
        ("", "failed", "n", &end, false),
    ] {
        let (acp, to) = driver("kimi");
        let proof = acp.agent.facts().proof;
        acp.state().began("s");
        acp.state().prompt("one", given("new", None), "");
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t" });
        acp.state()
            .update(proof, &json!({ "sessionId": "s", "update": call }));
        let words = |text: &str, id: &str| says_of("agent_message_chunk", text, id);
        acp.hear(&to, &words(before, "m")).await;
        assert!(acp.returned("mark", "mark"));
        let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t",
            "status": done, "rawOutput": "mark" });
        acp.state()
            .update(proof, &json!({ "sessionId": "s", "update": update }));
        let another = json!({ "sessionUpdate": "tool_call", "toolCallId": "u" });
        acp.state()
            .update(proof, &json!({ "sessionId": "s", "update": another }));
        let text = if after.is_empty() { "" } else { "a" };
        acp.hear(&to, &words(text, after)).await;
        let heard = acp.state().prompted(proof, "one", &Ok(ended.clone()));
        assert_eq!(ends(&heard), [("one", &TurnEnd::Well)], "{before} {after}");
        let known = heard.iter().filter_map(|heard| match heard {
            Heard::Known(mark, end) => Some((&**mark, *end == TurnEnd::Well)),
            _ => None,
        });
        assert_eq!(
            known.collect::<Vec<_>>(),
            [("mark", proven)],
            "{before} {after}"
        );
    }
    // In an editor it may be a turn of the user's.
    let (acp, _) = driver("kimi");
    acp.returned("mark", "mark");
    let proof = Some(acp.agent.facts().proof);
    let idle = json!({ "busy": false, "usage": said });
    let heard = acp.state().told(proof, super::ELSEWHERE, &idle);
    let is_known = |heard: &Heard| matches!(heard, Heard::Known(mark, _) if mark == "mark");
    assert!(heard.iter().any(is_known), "{heard:?}");
}

#[tokio::test]
async fn what_was_never_asked_no_agent_can_say() {
    let (acp, to) = driver("kimi");
    acp.state().began("s");
    let proof = acp.agent.facts().proof;
    acp.state().prompt("one", given("a", None), "");
    acp.hear(&to, &says_of("agent_message_chunk", "heard it", "m"))
        .await;
    let unasked = json!({ "jsonrpc": "2.0", "method": super::UNASKED, "params": { "id": 1 } });
    acp.state()
        .asked
        .insert(1, Asking::Prompt("one".to_owned()));
    assert!(acp.hear(&to, &unasked.to_string()).await.is_empty());
    let failed = Err(RpcError::new(-32_099, "another turn"));
    let heard = acp.state().prompted(proof, "one", &failed);
    assert!(matches!(ends(&heard)[0].1, TurnEnd::Failed(_)), "{heard:?}");
}

#[tokio::test]
async fn of_a_long_line_only_what_is_needed_is_read() {
    let long = format!("[{}0]", r#"{"":0},"#.repeat(300_000));
    let (acp, to) = driver("kimi");
    acp.state().began("s");
    acp.state().prompt("one", given("a", None), "");
    let head = r#"{"jsonrpc":"2.0","method":"#;
    for line in [
        format!(r#"{head}"fs/read_text_file","id":1,"params":{long}}}"#),
        format!(r#"{head}"x","params":{{"a":{long}}}}}"#),
        format!(
            r#"{head}"session/update","params":{{"update":{{"a":{long},"messageId":"m",
            "sessionUpdate":"agent_message_chunk","content":{{"text":"heard it","a":{long}}}}},
            "sessionId":"s"}}}}"#
        ),
    ] {
        acp.hear(&to, &line).await;
    }
    acp.state()
        .asked
        .insert(1, Asking::Prompt("one".to_owned()));
    let ended = r#""result":{"stopReason":"end_turn","_meta":"#;
    let ended = format!(r#"{{"jsonrpc":"2.0","id":1,{ended}{long}}}}}"#);
    let heard = acp.hear(&to, &ended).await;
    assert_eq!(ends(&heard), [("one", &TurnEnd::Well)]);
}
