//! Claude Code, Anthropic's.

use std::path::{Path, PathBuf};

use crate::{Agent, Base, File, Hook, Note, Part, Program, Scope, ServerEntry};

/// What is known of it.
pub const AGENT: Agent = Agent {
    word: "claude-code",
    title: "Claude Code",
    client_info: &["claude-code"],
    session_variable: Some("CLAUDE_CODE_SESSION_ID"),
    project_variable: Some("CLAUDE_PROJECT_DIR"),
    adapter: "cc",
    files: &[
        File {
            // Without the variable it lies in the home, not in the directory of the rest.
            user: Base {
                variable: CONFIG_DIR.variable,
                below_home: "",
            },
            user_names: &[STATE],
            project_names: &[".mcp.json"],
            part: Part::Server(ServerEntry::USUAL),
        },
        File {
            user: CONFIG_DIR,
            user_names: &[SETTINGS],
            project_names: &[".claude/settings.json"],
            part: Part::Hooks(HOOKS),
        },
        module(
            &["skills/peerbus/hooks/peerbus.js"],
            MODULE,
            "tells what its model was shown",
        ),
        module(&["skills/peerbus/hooks/hooks.json"], MODULE_HOOKS, ""),
        module(
            &["skills/peerbus/.claude-plugin/plugin.json"],
            MODULE_MANIFEST,
            "",
        ),
    ],
    reads_upwards: true,
    notes: &[
        Note::new(
            Some(Scope::Project),
            "each user is asked once: choose `Yes, I trust this folder`, then `Use this MCP server`. \
             Enter alone declines, for good",
        ),
        Note {
            asks: true,
            ..Note::new(
                Some(Scope::User),
                "Claude Code asks before each call of a bus tool; `peerbus install claude-code \
                 --allow` ends that",
            )
        },
    ],
    ..Agent::UNKNOWN
};

const CONFIG_DIR: Base = Base {
    variable: "CLAUDE_CONFIG_DIR",
    below_home: ".claude",
};
const STATE: &str = ".claude.json";
/// The file of settings, in the user's directory and in a project's.
pub const SETTINGS: &str = "settings.json";

/// A file of the plugin in which its module is, in the user's directory of skills. A project has none: what
/// runs in the process of everybody who works there is everybody's own choice.
const fn module(names: &'static [&'static str], text: &'static str, does: &'static str) -> File {
    File {
        user: CONFIG_DIR,
        user_names: names,
        project_names: &[],
        part: Part::Whole(Program {
            text,
            does,
            optional: true,
            needs: None,
        }),
    }
}

const MODULE: &str = include_str!("../../../deploy/claude-code-plugin/hooks/peerbus.js");
const MODULE_HOOKS: &str = concat!(
    "{\n",
    "  \"description\": \"Written by `peerbus install claude-code`\",\n",
    "  \"modules\": [\"./peerbus.js\"]\n",
    "}\n",
);
const MODULE_MANIFEST: &str = concat!(
    "{\n",
    "  \"description\": \"Written by `peerbus install claude-code`: what it hears, its adapter is told\",\n",
    "  \"name\": \"peerbus\",\n",
    "  \"version\": \"",
    env!("CARGO_PKG_VERSION"),
    "\"\n",
    "}\n",
);
/// How Claude Code knows that plugin.
pub const MODULE_PLUGIN: &str = "peerbus@skills-dir";

/// The member of a tool's `_meta` that keeps it from hiding the tool until its model searches.
pub const ALWAYS_LOAD: &str = "anthropic/alwaysLoad";

/// The user's directory, `~/.claude` by default: settings, transcripts, running sessions.
#[must_use]
pub fn config_dir() -> Option<PathBuf> {
    CONFIG_DIR.directory()
}

/// Where it remembers what a project's user switched off.
#[must_use]
pub fn state_file() -> Option<PathBuf> {
    AGENT.files[0].candidates(Scope::User, Path::new("")).pop()
}

/// The settings that hold for sessions in a project.
#[must_use]
pub fn settings_files(project: &Path) -> Vec<PathBuf> {
    settings_in(config_dir().as_deref(), project)
}

/// The same where the user's directory is known.
#[must_use]
pub fn settings_in(config_dir: Option<&Path>, project: &Path) -> Vec<PathBuf> {
    let user = config_dir.map(|dir| dir.join(SETTINGS));
    let names = ["settings.json", "settings.local.json"];
    let project = names.map(|name| project.join(".claude").join(name));
    user.into_iter().chain(project).collect()
}

/// Where the settings are that whoever manages a machine has put there, in the order of their names
/// after [`MANAGED`]; and beside them the MCP servers that are to be the only ones.
pub const MANAGED_DIR: &str = match cfg!(target_os = "macos") {
    true => "/Library/Application Support/ClaudeCode",
    false => "/etc/claude-code",
};
/// More files than anybody has there.
const FILES_MAX: usize = 1_000;
/// The first of these settings.
const MANAGED: &str = "managed-settings.json";
/// The directory of the others.
const MANAGED_MORE: &str = "managed-settings.d";
/// The servers.
pub const MANAGED_SERVERS: &str = "managed-mcp.json";

/// The settings in such a directory, the first of them and the others in the order of their names.
#[must_use]
pub fn managed_files(dir: &Path) -> Vec<PathBuf> {
    let more = std::fs::read_dir(dir.join(MANAGED_MORE)).into_iter();
    let more = more.flatten().flatten().take(FILES_MAX);
    let mut more: Vec<_> = more.map(|entry| entry.path()).collect();
    more.retain(|path| {
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !hidden && path.extension().is_some_and(|ending| ending == "json")
    });
    more.sort();
    more.insert(0, dir.join(MANAGED));
    more
}

/// The permission with which it calls the bus tools without asking its user.
pub const UNASKED: &str = "mcp__peerbus__*";

/// How the id of our plugin begins; behind it stands the marketplace's name.
pub const PLUGIN: &str = "peerbus@";
/// The server of our plugin, as it is called beside those of configurations.
pub const PLUGIN_SERVER: &str = "plugin:peerbus:peerbus";
/// [`UNASKED`] for the tools of our plugin.
pub const PLUGIN_UNASKED: &str = "mcp__plugin_peerbus_peerbus__*";

/// Long enough for a session that nobody touches over a weekend, and below its limit for a timer
/// (2^31 ms).
const WAIT_S: u32 = 604_800;
/// A hook that answers ends by itself after a second; this is for a machine that stands still.
const ANSWER_S: u32 = 10;
/// As long as a dialog is offered to others than the user before it.
const ASKS_S: u32 = 600;

const fn answers(event: &'static str) -> Hook {
    Hook {
        event,
        arguments: "hook",
        rewake: false,
        timeout_s: ANSWER_S,
    }
}

const fn waits(event: &'static str) -> Hook {
    Hook {
        event,
        arguments: "hook wait",
        rewake: true,
        timeout_s: WAIT_S,
    }
}

const fn asks(event: &'static str) -> Hook {
    Hook {
        timeout_s: ASKS_S,
        ..answers(event)
    }
}

/// The command of a hook that starts a program, quoted for a shell, if it is there: without it no
/// error is shown at each event. Its input is read all the same, since the client may write it.
#[must_use]
pub fn if_there(program: &str, arguments: &str) -> String {
    let [before, without, ..] = IF_THERE;
    format!("{before}{program}{without}{program} {arguments}")
}

/// What stands before the program's two places there, and before the second in older configurations.
pub const IF_THERE: [&str; 3] = [
    "command -v ",
    " >/dev/null || { cat >/dev/null 2>&1; exit 0; }; exec ",
    " >/dev/null || exit 0; exec ",
];

/// The hooks of a session, in the order in which they stand in a configuration.
pub const HOOKS: &[Hook] = &[
    answers("SessionStart"),
    waits("SessionStart"),
    answers("UserPromptSubmit"),
    asks("PermissionRequest"),
    answers("PostToolUse"),
    answers("Stop"),
    waits("Stop"),
];

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    fn parse(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn entry(hook: &Hook) -> Value {
        let mut entry = json!({
            "type": "command",
            "command": if_there("peerbus", hook.arguments),
            "timeout": hook.timeout_s,
        });
        if hook.rewake {
            entry["asyncRewake"] = true.into();
        }
        entry
    }

    #[test]
    fn the_plugin_has_these_hooks_and_no_others() {
        let plugin = parse(include_str!(
            "../../../deploy/claude-code-plugin/hooks/hooks.json"
        ));
        let mut events = Map::new();
        for hook in HOOKS {
            let groups = events
                .entry(hook.event)
                .or_insert_with(|| json!([{ "hooks": [] }]));
            groups[0]["hooks"].as_array_mut().unwrap().push(entry(hook));
        }
        assert_eq!(plugin["hooks"], Value::Object(events));
        assert_eq!(plugin["modules"], parse(MODULE_HOOKS)["modules"]);
    }

    #[test]
    fn the_repository_is_a_marketplace_with_the_plugin_of_this_version() {
        let marketplace = parse(include_str!("../../../.claude-plugin/marketplace.json"));
        let [listed] = marketplace["plugins"].as_array().unwrap().as_slice() else {
            panic!("one plugin: {marketplace}");
        };
        assert_eq!(listed["source"], "./deploy/claude-code-plugin");
        let manifest = parse(include_str!(
            "../../../deploy/claude-code-plugin/.claude-plugin/plugin.json"
        ));
        assert_eq!(listed["name"], manifest["name"]);
        assert_eq!(listed["description"], manifest["description"]);
        assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(parse(MODULE_MANIFEST)["name"], manifest["name"]);
        let name = manifest["name"].as_str().unwrap();
        assert_eq!(PLUGIN, format!("{name}@"));
    }

    #[test]
    fn the_plugin_has_the_server_that_is_its_channel() {
        let manifest = parse(include_str!(
            "../../../deploy/claude-code-plugin/.claude-plugin/plugin.json"
        ));
        let servers = parse(include_str!("../../../deploy/claude-code-plugin/.mcp.json"));
        let server = json!({ "command": "peerbus", "args": ["adapter", "--adapter=cc"] });
        assert_eq!(servers, json!({ "mcpServers": { "peerbus": server } }));
        assert_eq!(manifest["channels"], json!([{ "server": "peerbus" }]));
        let name = manifest["name"].as_str().unwrap();
        assert_eq!(PLUGIN_SERVER, format!("plugin:{name}:peerbus"));
        assert_eq!(PLUGIN_UNASKED, format!("mcp__plugin_{name}_peerbus__*"));
    }
}
