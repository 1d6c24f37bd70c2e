//! What a configuration has to say for a session to have our hooks.

/// A hook that makes a session hear of its mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The event at which it runs.
    pub event: &'static str,
    /// The arguments of the program.
    pub arguments: &'static str,
    /// It stays in the background and can start a turn.
    pub rewake: bool,
    /// After so many seconds the client ends it.
    pub timeout_s: u32,
}

/// Long enough for a session that nobody touches over a weekend, and below the client's limit for
/// a timer (2^31 ms).
const WAIT_S: u32 = 604_800;
/// A hook that answers ends by itself after a second; this is for a machine that stands still.
const ANSWER_S: u32 = 10;

const fn answers(event: &'static str) -> Entry {
    Entry {
        event,
        arguments: "hook",
        rewake: false,
        timeout_s: ANSWER_S,
    }
}

const fn waits(event: &'static str) -> Entry {
    Entry {
        event,
        arguments: "hook wait",
        rewake: true,
        timeout_s: WAIT_S,
    }
}

/// The hooks of a session, in the order in which they stand in a configuration.
pub const ENTRIES: &[Entry] = &[
    answers("SessionStart"),
    waits("SessionStart"),
    answers("UserPromptSubmit"),
    answers("PostToolUse"),
    answers("Stop"),
    waits("Stop"),
];

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    fn hook(entry: &Entry) -> Value {
        let mut hook = json!({
            "type": "command",
            "command": format!("peerbus {}", entry.arguments),
            "timeout": entry.timeout_s,
        });
        if entry.rewake {
            hook["asyncRewake"] = true.into();
        }
        hook
    }

    #[test]
    fn the_plugin_has_these_hooks_and_no_others() {
        let plugin = include_str!("../../../../deploy/claude-code-plugin/hooks/hooks.json");
        let plugin: Value = serde_json::from_str(plugin).unwrap();
        let mut events = Map::new();
        for entry in ENTRIES {
            let groups = events
                .entry(entry.event)
                .or_insert_with(|| json!([{ "hooks": [] }]));
            groups[0]["hooks"].as_array_mut().unwrap().push(hook(entry));
        }
        assert_eq!(plugin["hooks"], Value::Object(events));
    }

    #[test]
    fn the_plugin_has_the_version_of_the_program() {
        let manifest =
            include_str!("../../../../deploy/claude-code-plugin/.claude-plugin/plugin.json");
        let manifest: Value = serde_json::from_str(manifest).unwrap();
        assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    }
}
