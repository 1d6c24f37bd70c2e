//! Requests of sessions to their users, and their ends, for people.

use peerbus_node::decided;
use peerbus_wire::{escape, printable};
use serde_json::Value;

use super::{CELL_CHARS, LINE_CHARS};

pub(super) fn word(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default(), CELL_CHARS)
}

/// A request, for people: whole, since somebody decides by it.
pub(super) fn asked(request: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    // Deeper than what is said of it, so that none of its lines reads like one of those.
    let block = |text: &str| printable(text).replace('\n', "\n        ");
    let tool = escape(&text(&request["tool"]), LINE_CHARS);
    let id = word(&request["request_id"]);
    if let Some(questions) = request["questions"].as_array() {
        return format!(
            "[{id}]{}",
            questions.iter().map(question).collect::<String>()
        );
    }
    let mut said = format!("may it use {tool}? [{id}]");
    for (member, before) in [
        ("description", ""),
        ("input", ""),
        ("blocked_path", "path: "),
        ("decision_reason", "because: "),
        ("agent_id", "for the agent "),
    ] {
        if !request[member].is_null() {
            let text = block(&text(&request[member]));
            said.push_str(&format!("\n    {before}{text}"));
        }
    }
    if let Some(cut) = request["cut"].as_u64() {
        said.push_str(&format!(
            "\n    … and {cut} more bytes that are not shown: it can only be denied from here"
        ));
    }
    for rule in request["suggestions"].as_array().into_iter().flatten() {
        let destination = word(&rule["destination"]);
        let rule = on_a_line(&text(&rule["rule"]));
        said.push_str(&format!(
            "\n    it need not ask again with the rule {rule} in {destination}"
        ));
    }
    said
}

/// A question with its options, for people.
fn question(question: &Value) -> String {
    let text = |value: &Value| on_a_line(value.as_str().unwrap_or_default());
    let header = match text(&question["header"]) {
        header if header.is_empty() => String::new(),
        header => format!("{header}: "),
    };
    let mut said = format!("\n    {header}{}", text(&question["question"]));
    if question["multiSelect"] == true {
        said.push_str(" (several may be chosen: 1,2)");
    }
    for (at, option) in question["options"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        said.push_str(&format!("\n      {} {}", at + 1, text(&option["label"])));
        let description = text(&option["description"]);
        if !description.is_empty() {
            said.push_str(&format!(": {description}"));
        }
    }
    said
}

pub(super) fn resolved(event: &Value) -> String {
    let rule = event["rule"].as_str().map(|rule| {
        let destination = word(&event["destination"]);
        format!(": {} in {destination}", on_a_line(rule))
    });
    let mut more = rule.unwrap_or_default();
    if event["updatedInput"].is_object() {
        more += &format!(
            "; in its place it gets {}",
            on_a_line(&event["updatedInput"].to_string())
        );
    }
    if event["updatedPermissions"].is_array() {
        more += &format!(
            "; permissions change: {}",
            on_a_line(&event["updatedPermissions"].to_string())
        );
    }
    if event["interrupt"] == true {
        more += "; its turn ends";
    }
    let id = word(&event["request_id"]);
    format!("request {id}: {}{more}", how_it_ended(event))
}

/// A decision, and whose it is.
pub(super) fn how_it_ended(event: &Value) -> String {
    format!("{}, {}", decided(event), by(event))
}

/// Who closed a request.
fn by(event: &Value) -> String {
    match event["by"].as_str().unwrap_or_default() {
        "terminal" => "at its terminal".to_owned(),
        "node" if event["source"].is_string() => format!("by {}", word(&event["source"])),
        "node" => "by a command or the dashboard of this user's".to_owned(),
        "timeout" => "since nobody decided in time".to_owned(),
        "nobody" => "since the gate `approve` was closed".to_owned(),
        "client" => "since its client asks no more".to_owned(),
        other => match other.strip_prefix("peer:") {
            Some(peer) => format!("by the peer {}", escape(peer, CELL_CHARS)),
            None => format!("by {}", escape(other, CELL_CHARS)),
        },
    }
}

/// A text for people that is one line.
pub(super) fn on_a_line(text: &str) -> String {
    printable(text).replace('\n', "\\n").replace('\t', "\\t")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_shown_whole_and_forges_nothing() {
        let request = json!({
            "request_id": "abcde", "tool": "Bash\u{1b}[2J", "digest": "0",
            "description": "a\n    path: /tmp\u{9b}",
            "input": { "command": format!("{}\u{202e}", "x".repeat(30_000)) },
            "suggestions": [{ "rule": "Bash(x\r:*)", "destination": "session" }],
        });
        let said = asked(&request);
        assert!(said.len() > 30_000);
        assert!(said.starts_with("may it use Bash\\u001b[2J? [abcde]\n    a\n"));
        assert!(
            !said.lines().any(|line| line.starts_with("    path:")),
            "{}",
            &said[..200]
        );
        assert!(said.contains("\n            path: /tmp\\u009b\n    {"));
        assert!(
            said.contains("the rule Bash(x\\u000d:*) in session")
                || said.contains("the rule Bash(x\\r:*) in session"),
            "{}",
            &said[30_000..]
        );
        let plain = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(said.chars().all(plain));
        let node = json!({ "request_id": "abcde", "decision": "allow", "by": "node" });
        let said = resolved(&node);
        assert!(
            said.ends_with("allowed, by a command or the dashboard of this user's"),
            "{said}"
        );
        let cut = json!({ "request_id": "abcde", "tool": "Write", "input": "{\"x", "cut": 9 });
        assert!(asked(&cut).contains("9 more bytes"));
        let over = json!({ "request_id": "abcde", "decision": null, "by": "peer:\u{1b}x" });
        assert_eq!(resolved(&over), "request abcde: over, by the peer \\u001bx");
    }
}
