//! Whether the user's own rules let the model send without being asked: nobody else may say so.

use std::path::Path;

use peerbus_agents::claude_code::{MANAGED_DIR, managed_files, settings_in};
use peerbus_os::file::read_small;
use serde_json::Value;

/// More than settings have.
const BYTES_MAX: u64 = 4 << 20;
/// Our server, by itself and of the plugin, as rules name it.
const SERVERS: [&str; 2] = ["mcp__peerbus", "mcp__plugin_peerbus_peerbus"];
/// The client's own tool.
const OWN: &str = "SendMessage";
const MANAGED_ONLY: &str = "allowManagedPermissionRulesOnly";

/// Whether the send tool of the bus runs unasked in a user's sessions of a project. What cannot be read allows
/// nothing.
pub(super) fn sends_unasked((config_dir, project): (Option<&Path>, &Path)) -> bool {
    let files = settings_in(config_dir, project).into_iter();
    let files = files.chain(managed_files(Path::new(MANAGED_DIR)));
    let all: Option<Vec<Value>> = files
        .filter(|path| path.exists())
        .map(|path| serde_json::from_str(&read_small(&path, BYTES_MAX)?).ok())
        .collect();
    all.is_some_and(|all| allows(&all))
}

fn allows(settings: &[Value]) -> bool {
    let rules = |list: &str| {
        let lists = settings.iter().map(move |one| &one["permissions"][list]);
        let lists = lists.filter_map(Value::as_array).flatten();
        lists.filter_map(Value::as_str).collect::<Vec<_>>()
    };
    let sends = |rule: &&str| {
        let tool = SERVERS.iter().find_map(|server| rule.strip_prefix(server));
        matches!(tool, Some("" | "__*" | "__bus_send"))
    };
    // Any rule that may be about it, whatever it is meant to be about.
    let minds = |rule: &&str| {
        let names = SERVERS.into_iter().chain([OWN]);
        let tool = rule.split('(').next().unwrap_or_default();
        let begins = tool.split('*').next().unwrap_or_default();
        let all = begins.len() < tool.len();
        names
            .into_iter()
            .any(|it| rule.starts_with(it) || all && it.starts_with(begins))
    };
    let mut against = rules("deny").into_iter().chain(rules("ask"));
    let managed = settings.iter().any(|one| one[MANAGED_ONLY] == true);
    rules("allow").iter().any(sends) && !managed && !against.any(|rule| minds(&rule))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_rule_of_the_users_that_no_other_may_contradict_counts() {
        let allowed = json!({ "permissions": { "allow": ["Bash(ls)", "mcp__peerbus__*"] } });
        let and = |more: Value| allows(&[allowed.clone(), more]);
        let others = ["mcp__github__*", "Read(*)", "mcp__git*__bus_send"];
        assert!(and(
            json!({ "permissions": { "deny": ["Bash(rm:*)"], "ask": others } })
        ));
        for rule in [
            "mcp__peerbus__bus_send",
            "mcp__peerbus",
            "SendMessage",
            "*",
            "mcp__*",
            "mcp__*__bus_send",
            "mcp__plugin_*_send",
            "*__bus_send",
            "Send*(bob)",
        ] {
            for list in ["deny", "ask"] {
                assert!(
                    !and(json!({ "permissions": { list: [rule] } })),
                    "{list} {rule}"
                );
            }
        }
        assert!(!and(json!({ MANAGED_ONLY: true })));
        for (rule, sends) in [
            ("mcp__peerbus", true),
            ("mcp__peerbus__bus_send", true),
            ("mcp__plugin_peerbus_peerbus__*", true),
            ("mcp__peerbus__bus_peers", false),
            ("mcp__peerbus2__*", false),
            ("SendMessage", false),
            ("*", false),
        ] {
            let settings = json!({ "permissions": { "allow": [rule] } });
            assert_eq!(allows(&[settings]), sends, "{rule}");
        }
        assert!(!allows(&[]));
        assert!(!allows(&[json!({ "permissions": "none" }), json!([])]));
    }
}
