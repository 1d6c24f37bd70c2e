use peerbus_adapter::mailbox::Evidence;
use peerbus_adapter::transcript::TranscriptReader;

use super::*;

const MARK: &str = "pb-0123456789abcdef-7";

fn marks() -> Vec<String> {
    vec![MARK.to_owned()]
}

fn feed(text: &str) -> Vec<Evidence> {
    TranscriptReader::new(Box::<Lines>::default()).feed(text.as_bytes(), &marks())
}

fn presented() -> Evidence {
    Evidence::Presented(MARK.to_owned())
}

fn answered() -> Evidence {
    Evidence::Answered(MARK.to_owned())
}

/// A message that woke an idle session.
fn user(uuid: &str, parent: &str) -> String {
    format!(
        "{{\"parentUuid\":\"{parent}\",\"isSidechain\":false,\"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":\"Another Claude session sent a message:\\n[peerbus {MARK}] …\"}},\"uuid\":\"{uuid}\",\"origin\":{{\"kind\":\"peer\",\"msg_id\":\"x\"}}}}\n"
    )
}

fn line(kind: &str, uuid: &str, parent: &str, more: &str) -> String {
    format!(
        "{{\"parentUuid\":\"{parent}\",\"isSidechain\":false,\"type\":\"{kind}\",\"uuid\":\"{uuid}\"{more}}}\n"
    )
}

fn assistant(uuid: &str, parent: &str) -> String {
    let more = r#","message":{"role":"assistant","content":[{"type":"text","text":"ok"}]},"requestId":"req_1""#;
    line("assistant", uuid, parent, more)
}

#[test]
fn an_answer_that_descends_from_the_line_is_proof() {
    let between = line(
        "attachment",
        "b",
        "a",
        r#","attachment":{"type":"environment"}"#,
    );
    let text = user("a", "0") + &between + &assistant("c", "b") + &assistant("d", "c");
    assert_eq!(feed(&text), [presented(), answered()]);
}

/// Calls a tool, as the call with this id.
fn call(uuid: &str, parent: &str, tool: &str, id: &str) -> String {
    let more = format!(
        r#","message":{{"role":"assistant","content":[{{"type":"tool_use","id":"{id}","name":"{tool}","input":{{}}}}]}},"requestId":"req_0""#
    );
    line("assistant", uuid, parent, &more)
}

#[test]
fn a_mark_in_the_result_of_a_tool_that_is_not_ours_says_nothing() {
    let in_result = |found| Evidence::InResult(Box::new(found));
    let result = format!(
        r#","message":{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":"[0.0 {MARK}]"}}]}}"#
    );
    let proven = [presented(), answered()].map(in_result).to_vec();
    for (tool, id, found) in [
        ("mcp__peerbus__bus_inbox", "t", &proven),
        ("mcp__plugin_peerbus_peerbus__bus_inbox", "t", &proven),
        ("mcp__peerbus__bus_inbox", "u", &vec![]),
        ("Bash", "t", &vec![]),
        ("bus_inbox", "t", &vec![]),
        ("mcp__peerbus_x__bus_inbox", "t", &vec![]),
        ("mcp__peerbus___bus_inbox", "t", &vec![]),
        ("mcp__x_peerbus__bus_inbox", "t", &vec![]),
        ("mcp__peerbus__x", "t", &vec![]),
    ] {
        let text = call("c", "0", tool, id) + &line("user", "a", "c", &result);
        assert_eq!(&feed(&(text + &assistant("b", "a"))), found, "{tool} {id}");
    }
}

#[test]
fn a_result_is_found_however_deep_what_stands_beside_it_is() {
    let in_result = |found| Evidence::InResult(Box::new(found));
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let result = |content: &str, beside: &str| {
        let more = format!(
            r#","message":{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":{content}}}]}},"toolUseResult":{beside}"#
        );
        call("c", "0", "mcp__peerbus__bus_inbox", "t")
            + &line("user", "a", "c", &more)
            + &assistant("b", "a")
    };
    let mark = format!("\"[0.0 {MARK}]\"");
    let proven = [presented(), answered()].map(in_result);
    assert_eq!(feed(&result(&mark, &deep)), proven);
    // Nothing can be told of a text that is nested too deep itself.
    let within = deep.replacen("[]", &format!("[{mark}]"), 1);
    assert_eq!(feed(&result(&within, "1")), []);
    let other = format!(r#","message":{{"role":"user","content":{within}}}"#);
    assert_eq!(feed(&line("user", "a", "0", &other)), []);
}

#[test]
fn a_message_in_mid_turn_a_hook_and_a_tool_result_are_presented() {
    let in_result = |found| Evidence::InResult(Box::new(found));
    let queued = format!(
        r#","attachment":{{"type":"queued_command","prompt":"{MARK}","origin":{{"msg_id":"x"}}}}"#
    );
    let hook =
        format!(r#","attachment":{{"type":"hook_additional_context","content":["{MARK}"]}}"#);
    let result = format!(
        r#","message":{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":"[0.0 {MARK}]"}}]}}"#
    );
    for (kind, more) in [("attachment", &queued), ("attachment", &hook)] {
        let text = line(kind, "a", "0", more) + &assistant("b", "a");
        assert_eq!(feed(&text), [presented(), answered()], "{more}");
    }
    let call = call("0", "z", "mcp__peerbus__bus_drain", "t");
    let text = call.clone() + &line("user", "a", "0", &result) + &assistant("b", "a");
    assert_eq!(feed(&text), [presented(), answered()].map(in_result));
    // The client cut the end off for the model, and keeps all of it beside that.
    let cut = result.replace(MARK, "saved to a file")
        + &format!(r#","mcpMeta":{{"structuredContent":{{"end":"[{MARK}]"}}}}"#);
    let text = call.clone() + &line("user", "a", "0", &cut) + &assistant("b", "a");
    assert_eq!(feed(&text), []);
    // The tool has the mark of a text that stands in the conversation, too.
    let both = call + &line("user", "a", "0", &result) + &line("attachment", "b", "a", &hook);
    let told = [
        in_result(presented()),
        presented(),
        in_result(answered()),
        answered(),
    ];
    assert_eq!(feed(&(both + &assistant("c", "b"))), told);
}

#[test]
fn a_mark_in_another_attachment_says_nothing() {
    for (kind, carries) in [
        ("hook_additional_context", true),
        ("hook_blocking_error", true),
        ("queued_command", true),
        ("plugin_note", true),
        ("hook_success", false),
        ("edited_text_file", false),
        ("file", false),
    ] {
        let more = format!(r#","attachment":{{"type":"{kind}","snippet":"note: {MARK}"}}"#);
        let text = line("attachment", "a", "0", &more) + &assistant("b", "a");
        let found = feed(&text);
        assert_eq!(!found.is_empty(), carries, "{kind}: {found:?}");
    }
}

#[test]
fn a_compaction_takes_away_what_stood() {
    let boundary = line("system", "b", "a", r#","subtype":"compact_boundary""#);
    let summary = line("user", "c", "b", r#","isCompactSummary":true,"message":{}"#);
    let asked = line("user", "b", "a", r#","message":{"content":"go on"}"#);
    let both = boundary.clone() + &summary;
    for (text, found) in [
        (
            user("a", "0") + &boundary,
            vec![presented(), Evidence::Anew],
        ),
        (user("a", "0") + &summary, vec![presented(), Evidence::Anew]),
        (user("a", "0") + &both, vec![presented(), Evidence::Anew]),
        (user("a", "0") + &asked, vec![presented()]),
        (both.clone() + &user("a", "0"), vec![presented()]),
        (
            user("a", "0") + &boundary.replace("\"isSidechain\":false", "\"isSidechain\":true"),
            vec![presented()],
        ),
    ] {
        assert_eq!(feed(&text), found, "{text}");
    }
    // The next part of a long text was called for before anybody looked.
    let mut transcript = TranscriptReader::new(Box::<Lines>::default());
    let found = transcript.feed(user("a", "0").as_bytes(), &marks());
    assert_eq!(found, [presented()]);
    let next = ["pb-0123456789abcdef-8".to_owned()];
    assert_eq!(transcript.feed(both.as_bytes(), &next), [Evidence::Anew]);
}

#[test]
fn the_mere_line_is_no_proof() {
    assert_eq!(feed(&user("a", "0")), [presented()]);
    // The model's service is down: the client writes an answer in its name.
    let error = line(
        "assistant",
        "b",
        "a",
        r#","requestId":"r","isApiErrorMessage":true"#,
    );
    assert_eq!(feed(&(user("a", "0") + &error)), [presented()]);
    let synthetic = line(
        "assistant",
        "b",
        "a",
        r#","message":{"model":"<synthetic>"}"#,
    );
    assert_eq!(feed(&(user("a", "0") + &synthetic)), [presented()]);
    let refused = r#","requestId":"r","message":{"model":"m","id":"i","stop_reason":"refusal"}"#;
    let refused = line("assistant", "b", "a", refused);
    assert_eq!(feed(&(user("a", "0") + &refused)), [presented()]);
    // Retried, it is answered.
    let text = user("a", "0") + &error + &assistant("c", "b");
    assert_eq!(feed(&text), [presented(), answered()]);
}

/// As the client writes an answer of a service that gives its requests no id.
fn nameless(uuid: &str, parent: &str, id: &str, model: &str) -> String {
    let more = format!(
        r#","message":{{"model":"{model}","id":"{id}","type":"message","role":"assistant","content":[{{"type":"text","text":"ok"}}],"stop_reason":"end_turn","usage":{{"input_tokens":10,"output_tokens":5}}}},"userType":"external","version":"2.1.330""#
    );
    line("assistant", uuid, parent, &more)
}

#[test]
fn an_answer_of_a_service_that_names_no_request_is_proof() {
    let answer = nameless("b", "a", "msg_1", "claude-opus-4-5");
    let text = user("a", "0") + &answer;
    assert_eq!(feed(&text), [presented(), answered()]);
    // What the client wrote itself is none, whatever its id.
    for own in [
        nameless("b", "a", "ab12-cd", "<synthetic>"),
        nameless("b", "a", "ab12-cd", "<synthetic>").replace(
            "\"type\":\"assistant\",\"uuid\"",
            "\"isApiErrorMessage\":true,\"type\":\"assistant\",\"uuid\"",
        ),
        answer.replace(
            "\"isSidechain\":false",
            "\"isApiErrorMessage\":true,\"isSidechain\":false",
        ),
        answer.replace("\"isSidechain\":false", "\"isSidechain\":true"),
        nameless("b", "a", "", "claude-opus-4-5"),
        nameless("b", "z", "msg_1", "claude-opus-4-5"),
    ] {
        assert_eq!(feed(&(user("a", "0") + &own)), [presented()], "{own}");
    }
    // The rest of an answer that began before is none to the mark.
    let result = format!(r#","message":{{"role":"user","content":"{MARK}"}}"#);
    let begun = nameless("a", "0", "msg_1", "m") + &line("user", "b", "a", &result);
    let text = begun + &nameless("c", "b", "msg_1", "m");
    assert_eq!(feed(&text), [presented()]);
    let next = nameless("d", "c", "msg_2", "m");
    assert_eq!(feed(&(text + &next)), [presented(), answered()]);
}

#[test]
fn an_answer_to_something_else_is_no_proof() {
    let stranger = assistant("c", "z");
    assert_eq!(feed(&(user("a", "0") + &stranger)), [presented()]);
    let before = assistant("0", "z") + &user("a", "0");
    assert_eq!(feed(&before), [presented()]);
    let subagent = assistant("b", "a").replace("\"isSidechain\":false", "\"isSidechain\":true");
    assert_eq!(feed(&(user("a", "0") + &subagent)), [presented()]);
    let shown_to_subagent = user("a", "0").replace("\"isSidechain\":false", "\"isSidechain\":true");
    assert_eq!(feed(&(shown_to_subagent + &assistant("b", "a"))), []);
}

#[test]
fn what_the_user_interrupted_was_not_answered() {
    let stop = r#","message":{"role":"user","content":[{"type":"text","text":"[Request interrupted by user]"}]}"#;
    let text = user("a", "0") + &line("user", "b", "a", stop) + &assistant("c", "b");
    assert_eq!(feed(&text), [presented()]);
}

#[test]
fn text_about_interruptions_interrupts_nothing() {
    let quoting = |content: &str| {
        let more = format!(r#","message":{{"role":"user","content":{content}}}"#);
        user("a", "0") + &line("user", "b", "a", &more) + &assistant("c", "b")
    };
    for content in [
        r#""a peer wrote: [Request interrupted by user]""#,
        r#"[{"type":"text","text":"› [Request interrupted by user"}]"#,
        r#"[{"type":"text","text":"ok"},{"type":"text","text":"[Request interrupted by user]"}]"#,
        r#"[{"type":"tool_result","content":"[Request interrupted by user]"}]"#,
        r#"{"text":"[Request interrupted by user]"}"#,
    ] {
        assert_eq!(
            feed(&quoting(content)),
            [presented(), answered()],
            "{content}"
        );
    }
    for content in [
        r#""[Request interrupted by user]""#,
        r#"[{"type":"tool_result","content":"x"},{"type":"text","text":"[Request interrupted by user for tool use]"}]"#,
    ] {
        assert_eq!(feed(&quoting(content)), [presented()], "{content}");
    }
}

#[test]
fn the_rest_of_an_answer_that_began_before_is_no_proof() {
    // Two calls of tools in one answer: the result of the first is written between them.
    let result = format!(r#","message":{{"role":"user","content":"{MARK}"}}"#);
    let text = assistant("a", "0") + &line("user", "b", "a", &result) + &assistant("c", "b");
    assert_eq!(feed(&text), [presented()]);
    let next = assistant("d", "c").replace("req_1", "req_2");
    assert_eq!(feed(&(text.clone() + &next)), [presented(), answered()]);
    // A subagent's answer is none of the session's.
    let subagent = assistant("x", "0").replace("\"isSidechain\":false", "\"isSidechain\":true");
    let text = subagent.replace("req_1", "req_2") + &text;
    assert_eq!(feed(&(text + &next)), [presented(), answered()]);
    // Nothing was watched for while that was written.
    let mut transcript = TranscriptReader::new(Box::<Lines>::default());
    assert_eq!(transcript.feed(assistant("a", "0").as_bytes(), &[]), []);
    let text = user("b", "a") + &assistant("c", "b");
    assert_eq!(transcript.feed(text.as_bytes(), &marks()), [presented()]);
}

#[test]
fn lines_are_not_always_written_in_order() {
    // As 2.1.114 does when it resumes a session.
    let before = line("attachment", "a", "0", "");
    let answer = assistant("d", "c");
    let between = line("attachment", "b", "a", "");
    let text = before + &answer + &between + &user("c", "b");
    assert_eq!(feed(&text), [presented(), answered()]);
    // The answer that began before is found wherever it stands.
    let text = user("b", "a") + &assistant("a", "0") + &assistant("c", "b");
    assert_eq!(feed(&text), [presented()]);
    let text = assistant("a", "0") + &assistant("c", "b") + &user("b", "a");
    assert_eq!(feed(&text), [presented()]);
}

#[test]
fn a_mark_elsewhere_says_nothing() {
    let quoted = format!(r#","message":{{"content":"about {MARK}"}},"requestId":"r""#);
    let log = format!(r#","attachment":{{"type":"hook_success","stdout":"{MARK}"}}"#);
    let queue =
        format!(r#"{{"type":"queue-operation","operation":"enqueue","content":"{MARK}"}}"#) + "\n";
    let blob =
        format!(r#"{{"type":"api-request-blob","message":{{"role":"user","content":"{MARK}"}}}}"#)
            + "\n";
    let other = user("a", "0").replace(MARK, &format!("{MARK}1"));
    for text in [
        line("assistant", "a", "0", &quoted),
        line("attachment", "a", "0", &log),
        queue,
        blob,
        other,
        format!("no JSON: {MARK}\n"),
        format!("[\"{MARK}\"]\n"),
        format!("{{\"type\":\"user\",\"uuid\":7,\"x\":\"{MARK}\"}}\n"),
    ] {
        assert_eq!(feed(&(text.clone() + &assistant("b", "a"))), [], "{text}");
    }
}

#[test]
fn bytes_come_in_any_portions() {
    let text = user("a", "0") + &assistant("b", "a");
    for size in [1, 7, 100] {
        let mut transcript = TranscriptReader::new(Box::<Lines>::default());
        let portions = text.as_bytes().chunks(size);
        let found: Vec<_> = portions
            .flat_map(|part| transcript.feed(part, &marks()))
            .collect();
        assert_eq!(found, [presented(), answered()], "{size}");
    }
    // The last line is not written to its end.
    let open = text.trim_end();
    assert_eq!(feed(open), [presented()]);
    let mut tail = TranscriptReader::in_mid_line(Box::<Lines>::default());
    assert_eq!(tail.feed(&text.as_bytes()[10..], &marks()), []);
}
