//! The question whether a tool may be used, as agents ask it. Pure.

use peerbus_adapter::agents::Agent;
use peerbus_node::approvals::{Asked, Decision, Verdict};
use peerbus_wire::jsonrpc::RpcMessage;
use serde_json::{Value, json};

use crate::SERVER;

/// Members of an input by which a tool runs a program, whatever it is called.
const COMMANDS: [&str; 3] = ["command", "commands", "cmd"];
/// The word for the one agent whose questions about tools of servers have a form of their own.
pub(super) const CODEX: &str = "codex";

/// Agents write one of these between `mcp`, the server's name and the tool's.
const BETWEEN: [&str; 6] = ["__", "_", "-", ".", "/", ":"];

/// The tool's name. Where a member is made for it, the title does not count: in some agents the model's
/// own words stand there.
pub(crate) fn tool(call: &Value) -> &str {
    name(call).or(call["title"].as_str()).unwrap_or_default()
}

/// The tool's name in a member that is made for it.
fn name(call: &Value) -> Option<&str> {
    let meta = &call["_meta"];
    let names = [
        &meta["toolName"],
        &meta["claudeCode"]["toolName"],
        &call["name"],
    ];
    names.into_iter().find_map(Value::as_str)
}

/// Codex says in its question that it is about a tool of a server's, and calls that an execution.
pub(super) fn name_of_codex(call: &mut Value) {
    let text = |member: &str| call["rawInput"][member].as_str().unwrap_or_default();
    call["name"] = format!("mcp__{}__{}", text("server"), text("tool")).into();
    call["kind"] = "other".into();
}

/// Whether it is one of the bus tools: its name is theirs, alone or behind the name of our server, and
/// nothing says that it does something else. What a model could bring about by such a name is a call of
/// another server's tool that is called as one of ours. Where the question has no name, both the title
/// by which the call was told before and the one by which it is asked about must be the tool's.
pub(crate) fn is_ours(call: &Value, agent: &Agent) -> bool {
    let other = match &call["kind"] {
        Value::Null => true,
        // Qwen Code has it from the tool's annotations that it changes nothing.
        Value::String(kind) if kind == "read" => name(call).is_some(),
        kind => kind == "other",
    };
    let runs = match &call["rawInput"] {
        Value::Null => false,
        Value::Object(input) => COMMANDS.iter().any(|member| input.contains_key(*member)),
        _ => true,
    };
    let runs = runs || !call["cut"].is_null();
    // Of an agent that is not known the name of the server has to stand before the tool's.
    let is_known = agent.acp.is_some();
    let title = |name: &str| title(name, is_known);
    let told = call["told"].as_str().and_then(title);
    let titled = is_known && told.is_some_and(|told| tool(call) == told);
    other && !runs && (titled || title(tool(call)).is_some())
}

/// Whether nothing says that a call is of another tool. Agents do not tell of all calls by the tool's name.
pub(super) fn may_be_ours(call: &Value) -> bool {
    let kind = call["kind"].as_str().unwrap_or("other");
    let told = call["told"].as_str().unwrap_or_default();
    let is_named = [tool(call), told]
        .iter()
        .any(|it| title(it, true).is_some());
    let server = call["rawInput"]["server"].as_str();
    let is_codex = call["rawInput"]["tool"].is_string();
    if is_codex && server.is_some_and(|server| server != SERVER) {
        return false;
    }
    matches!(kind, "other" | "read") || call["rawInput"]["server"] == SERVER || is_named
}

/// The title of the bus tool that is meant by a name, if one is.
fn title(name: &str, alone: bool) -> Option<&'static str> {
    // As Gemini CLI writes it: `bus_send (peerbus MCP Server)`.
    let of_ours = name.strip_suffix(" (peerbus MCP Server)");
    let (name, alone) = (of_ours.unwrap_or(name), alone || of_ours.is_some());
    // With more between them it is a server whose name begins with ours.
    let of_server = BETWEEN.iter().find_map(|between| {
        let rest = name
            .strip_prefix("mcp")
            .and_then(|it| it.strip_prefix(between));
        let rest = rest.unwrap_or(name).strip_prefix(SERVER)?;
        peerbus_mcp::tool_title(rest.strip_prefix(between)?)
    });
    of_server.or_else(|| peerbus_mcp::tool_title(alone.then_some(name)?))
}

/// What the tool would get, and what else the agent says of the call; `null`: it says nothing.
pub(super) fn input(call: &Value) -> Value {
    let says = |member: &str| {
        Some(&call[member])
            .filter(|value| !is_empty(value))
            .cloned()
    };
    match (says("rawInput"), says("content")) {
        (Some(input), Some(content)) => json!({ "input": input, "content": content }),
        (one, other) => one.or(other).unwrap_or_default(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// What is asked, as whoever may answer is shown it.
pub(super) fn shown(call: &Value) -> Asked {
    let title = call["title"].as_str().map(str::to_owned);
    let kind = call["kind"].as_str().unwrap_or("tool");
    let name = match tool(call) {
        "" => kind,
        name => name,
    };
    let input = input(call);
    let asked = Asked::new(name, &input.to_string());
    Asked {
        description: title.filter(|title| title != name),
        // A question without an input cannot be allowed from elsewhere.
        cut: asked
            .cut
            .max(usize::from(input.is_null() || !call["cut"].is_null())),
        ..asked
    }
}

/// The answer to a question with these options: what is allowed once, or denied once. Never what holds
/// for longer, which is the user's to say at the agent; and of several the first, since later ones of
/// that kind may change the agent's mode.
pub(super) fn outcome(verdict: &Verdict, options: &Value) -> Value {
    match verdict.decision {
        Some(Decision::Allow | Decision::AllowAlways) => allowed(options),
        Some(Decision::Deny) | None => first(options, "reject_once"),
    }
}

/// The answer that allows it once.
pub(super) fn allowed(options: &Value) -> Value {
    first(options, "allow_once")
}

fn first(options: &Value, kind: &str) -> Value {
    let options = options.as_array().into_iter().flatten();
    let mut of_kind = options.filter(|option| option["kind"] == kind);
    match of_kind.next().map(|option| &option["optionId"]) {
        Some(id) => json!({ "outcome": { "outcome": "selected", "optionId": id } }),
        None => cancelled(),
    }
}

/// The answer to a question that nobody decides about any more.
pub(crate) fn cancelled() -> Value {
    json!({ "outcome": { "outcome": "cancelled" } })
}

/// The answer to a question with this id, as a line.
pub(super) fn response(id: &str, outcome: &Value) -> String {
    let id = serde_json::from_str(id).unwrap_or_default();
    RpcMessage::response(id, &Ok::<_, ()>(outcome)).text()
}

#[cfg(test)]
mod tests {
    use peerbus_node::approvals::By;
    use peerbus_wire::jsonrpc::raw;
    use serde_json::value::RawValue;

    use super::*;
    use crate::acp::calls::{CALLS_BYTES, CALLS_MAX, Calls};
    use crate::acp::lines::{LONG, question, update};

    fn known() -> &'static Agent {
        let mut all = peerbus_adapter::agents::ALL.into_iter();
        all.find(|agent| agent.word == "kimi").unwrap()
    }

    #[test]
    fn of_an_agent_that_is_not_known_the_name_says_whose_the_tool_is() {
        let ours = |call: Value| is_ours(&call, &Agent::UNKNOWN);
        assert!(ours(json!({ "title": "mcp__peerbus__bus_send" })));
        assert!(ours(json!({ "title": "bus_send (peerbus MCP Server)" })));
        assert!(!ours(json!({ "title": "bus_send" })));
        let of = |word: &str, server: &str| {
            let said = json!({ "_meta": { "is_mcp_tool_approval": true }, "toolCall": { "toolCallId": "t",
                "kind": "execute", "rawInput": { "server": server, "tool": "bus_send" } } });
            let mut all = peerbus_adapter::agents::ALL.into_iter();
            let agent = all.find(|agent| agent.word == word).unwrap();
            is_ours(&Calls::default().asked(&said, agent), agent)
        };
        let ours = ["peerbus", "peerbus_", "peerbus__", "peerbus-"].map(|it| of("codex", it));
        assert_eq!(ours, [true, false, false, false]);
        assert!(!of("kimi", "peerbus"));
    }

    #[test]
    fn a_call_that_begins_has_nothing_of_an_earlier_one_and_what_is_odd_is_not_ours() {
        let mut calls = Calls::default();
        let first = json!({ "sessionUpdate": "tool_call", "toolCallId": "t",
            "_meta": { "toolName": "mcp__peerbus__bus_send" } });
        calls.note(&first);
        assert!(is_ours(&calls.of(&first), known()));
        let second = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "run" });
        calls.note(&second);
        assert!(!is_ours(&calls.of(&json!({ "toolCallId": "t" })), known()));
        for (kind, input) in [
            (json!(7), json!({})),
            (json!(["other"]), json!({})),
            (json!("other"), json!("rm -rf /")),
            (json!("other"), json!({ "cmd": "rm" })),
            (json!("other"), json!({ "commands": ["rm"] })),
        ] {
            let call = json!({ "title": "bus_send", "kind": kind, "rawInput": input });
            assert!(!is_ours(&call, known()), "{call}");
        }
    }

    #[test]
    fn a_call_of_a_server_of_another_name_is_not_ours() {
        for (server, ours) in [("peerbus", true), ("peerbus_x", false), ("files", false)] {
            let input = json!({ "server": server, "tool": "bus_send", "arguments": {} });
            let call = json!({ "title": "bus_send", "kind": "other", "rawInput": input });
            assert_eq!(may_be_ours(&call), ours, "{server}");
        }
    }

    #[test]
    fn nobody_allows_what_nobody_is_shown() {
        let asked = shown(&json!({ "title": "Confirm Agent Actions", "kind": "other" }));
        assert!(asked.cut > 0);
        let asked = shown(&json!({ "title": "Bash", "content": [{ "text": "ls" }] }));
        assert_eq!(asked.cut, 0);
    }

    #[test]
    fn the_call_is_found_in_either_version() {
        let about = json!({ "toolCallId": "1", "rawInput": { "command": "touch a" } });
        let one = json!({ "sessionId": "s", "toolCall": about });
        let two = json!({ "title": "Run?", "subject": { "type": "tool_call", "toolCall": about } });
        for asked in [one, two] {
            assert_eq!(question(raw(&asked).as_deref())["toolCall"], about);
        }
    }

    #[test]
    fn of_what_is_long_little_is_kept_and_it_is_never_ours() {
        let long = format!("[{}0]", r#"{"":0},"#.repeat(LONG));
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for odd in [&long, &deep] {
            let said = format!(
                r#"{{"update":{{"sessionUpdate":"tool_call","toolCallId":"t",
                "rawInput":{odd},"title":"bus_send"}},"sessionId":"s"}}"#
            );
            let said = RawValue::from_string(said).unwrap();
            let read = update(Some(&said));
            assert_eq!(
                (&read["sessionId"], &read["update"]["cut"]),
                (&json!("s"), &json!(true))
            );
            let mut calls = Calls::default();
            for _ in 0..3 {
                calls.note(&read["update"]);
                calls.note(&json!({ "toolCallId": "t", "status": "pending" }));
            }
            assert!(calls.0[0].bytes < 100, "{calls:?}");
            assert!(!is_ours(&calls.of(&json!({ "toolCallId": "t" })), known()));
            let asks = format!(r#"{{"toolCall":{{"rawInput":{odd},"title":"bus_send"}}}}"#);
            let asks = question(RawValue::from_string(asks).ok().as_deref());
            let call = Calls::default().asked(&asks, known());
            assert!(!is_ours(&call, known()) && shown(&call).cut > 0, "{call}");
        }
        // Many members that are not long by themselves.
        let mut calls = Calls::default();
        for member in ["rawInput", "content", "_meta"] {
            calls.note(&json!({ "toolCallId": "t", member: "x".repeat(LONG - 100) }));
        }
        assert!(calls.0[0].bytes <= LONG && calls.0[0].members.contains_key("cut"));
    }

    #[test]
    fn only_a_bus_tool_is_ours_whatever_the_model_writes_where_names_may_stand() {
        for (call, ours) in [
            (json!({ "title": "bus_send" }), true),
            (
                json!({ "title": "mcp__peerbus__bus_send", "kind": "other" }),
                true,
            ),
            (json!({ "title": "mcp_peerbus_bus_send" }), true),
            (json!({ "title": "mcp.peerbus.bus_send" }), true),
            (json!({ "title": "peerbus_bus_send" }), true),
            (json!({ "title": "peerbus-bus_reply" }), true),
            (json!({ "title": "bus_send (peerbus MCP Server)" }), true),
            (
                json!({ "title": "{}", "_meta": { "toolName": "mcp__peerbus__bus_send" } }),
                true,
            ),
            (
                json!({ "title": "bus_send", "_meta": { "toolName": "mcp__x__drop" } }),
                false,
            ),
            (
                json!({ "_meta": { "toolName": "mcp__peerbus__bus_peers" }, "kind": "read" }),
                true,
            ),
            (json!({ "title": "bus_peers", "kind": "read" }), false),
            (json!({ "title": "bus_send", "name": "Bash" }), false),
            (json!({ "title": "bus_send", "kind": "execute" }), false),
            (
                json!({ "title": "bus_send", "rawInput": { "command": "rm" } }),
                false,
            ),
            (json!({ "title": "mcp__evil__bus_send" }), false),
            (json!({ "title": "mcp__peerbus___bus_send" }), false),
            (json!({ "title": "mcp__peerbus-__bus_send" }), false),
            (json!({ "title": "mcp__peerbus_bus_send" }), false),
            (json!({ "title": "mcp_peerbus__bus_send" }), false),
            (json!({ "title": "mcppeerbus_bus_send" }), false),
            (json!({ "title": "_peerbus_bus_send" }), false),
            (json!({ "title": "peerbusbus_send" }), false),
            (json!({ "title": "rm -rf / bus_send" }), false),
            (json!({ "title": "peerbus__x__bus_send" }), false),
            (json!({ "title": "peerbus" }), false),
            (json!({}), false),
        ] {
            assert_eq!(is_ours(&call, known()), ours, "{call}");
        }
    }

    #[test]
    fn a_title_for_people_is_ours_where_the_call_was_told_by_the_name_of_that_tool() {
        let asked = |told: &str, kind: &str, title: &str| {
            let mut calls = Calls::default();
            calls.note(&json!({ "toolCallId": "t", "title": told, "kind": kind }));
            is_ours(
                &calls.of(&json!({ "toolCallId": "t", "title": title })),
                known(),
            )
        };
        let title = "Reply to a message";
        assert!(asked("peerbus-bus_reply", "other", title));
        assert!(!asked("peerbus-bus_send", "other", title));
        assert!(!asked("peerbus-bus_reply", "execute", title));
        assert!(!asked("x", "other", title));
        assert!(!asked("peerbus-bus_reply", "other", "Delete everything"));
    }

    #[test]
    fn calls_that_have_not_ended_are_what_a_question_without_one_is_about() {
        let mut calls = Calls::default();
        let note = |calls: &mut Calls, id: &str, status: &str| {
            let input = json!({ "command": id });
            let call =
                json!({ "toolCallId": id, "title": "t", "status": status, "rawInput": input });
            calls.note(&call);
        };
        note(&mut calls, "a", "in_progress");
        note(&mut calls, "b", "pending");
        note(&mut calls, "a", "completed");
        let open = json!([{ "title": "t", "input": { "command": "b" } }]);
        assert_eq!(calls.open(), open);
        let known =
            |calls: &Calls, id: &str| calls.of(&json!({ "toolCallId": id }))["title"].take();
        assert_eq!(known(&calls, "b"), "t");
        assert_eq!(known(&calls, "a"), Value::Null, "another call has its id");
        calls.end();
        assert_eq!(calls.open(), Value::Null);
        assert_eq!(known(&calls, "b"), Value::Null);
    }

    #[test]
    fn what_an_earlier_line_said_of_a_call_counts_where_the_question_says_nothing() {
        let mut calls = Calls::default();
        calls.note(&json!({ "toolCallId": "t", "title": "bus_send", "kind": "other" }));
        assert!(is_ours(&calls.of(&json!({ "toolCallId": "t" })), known()));
        calls.note(&json!({ "toolCallId": "t", "kind": "execute" }));
        assert!(!is_ours(&calls.of(&json!({ "toolCallId": "t" })), known()));
        assert!(!is_ours(&calls.of(&json!({ "toolCallId": "u" })), known()));
        for n in 0..2 * CALLS_MAX {
            calls.note(&json!({ "toolCallId": n.to_string(), "title": "x" }));
        }
        assert_eq!(calls.0.len(), CALLS_MAX);
        for n in 0..CALLS_MAX {
            let input = "x".repeat(LONG / 2);
            calls.note(&json!({ "toolCallId": n.to_string(), "rawInput": input }));
        }
        let bytes: usize = calls.0.iter().map(|call| call.bytes).sum();
        assert!(bytes <= CALLS_BYTES && calls.0.len() > 1, "{bytes}");
    }

    #[test]
    fn what_is_chosen_holds_once_and_changes_no_mode() {
        let options = json!([
            { "optionId": "always", "kind": "allow_always" },
            { "optionId": "once", "kind": "allow_once" },
            { "optionId": "once_and_switch", "kind": "allow_once" },
            { "optionId": "never", "kind": "reject_always" },
            { "optionId": "no", "kind": "reject_once" },
        ]);
        let chosen = |decision| {
            let verdict = Verdict::closed(decision, By::Node);
            outcome(&verdict, &options)["outcome"]["optionId"].clone()
        };
        assert_eq!(chosen(Some(Decision::Allow)), "once");
        assert_eq!(chosen(Some(Decision::AllowAlways)), "once");
        assert_eq!(chosen(Some(Decision::Deny)), "no");
        assert_eq!(chosen(None), "no");
        let always = json!([{ "optionId": "always", "kind": "allow_always" }]);
        let verdict = Verdict::closed(Some(Decision::Allow), By::Node);
        assert_eq!(outcome(&verdict, &always), cancelled());
    }
}
