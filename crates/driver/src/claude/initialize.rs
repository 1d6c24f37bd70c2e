//! A user's setup of each client beside the bus: a file of JSON, in the client's own words.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use peerbus_os::file::open_regular;
use peerbus_wire::escape;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

use crate::WHY_CHARS;

/// Largest file, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Members of a client's first request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Initialize {
    /// Hooks by their events, which whoever subscribed to them answers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    hooks: BTreeMap<String, Vec<HookMatcher>>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    agents: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    json_schema: Map<String, Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    system_prompt: String,
    append_system_prompt: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HookMatcher {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    matcher: Option<String>,
    hook_callback_ids: Vec<String>,
    /// In seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<Number>,
}

impl Initialize {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// A sentence that names the file, and a member that is not known.
    pub fn read(file: &Path) -> Result<Self, String> {
        let shown = escape(&file.display().to_string(), WHY_CHARS);
        let unreadable = |error| format!("{shown} cannot be read: {error}");
        let mut text = String::new();
        let opened = open_regular(file).map_err(unreadable)?;
        let mut bounded = opened.take(FILE_MAX + 1);
        bounded.read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > FILE_MAX {
            return Err(format!(
                "{shown} has more than {FILE_MAX} bytes: shorten it"
            ));
        }
        serde_json::from_str(&text).map_err(|error| {
            let why = escape(&error.to_string(), WHY_CHARS);
            format!("{shown} is not what a client is set up with: {why}")
        })
    }

    /// The members of the first request: with the server behind the stream, and what the model is told of
    /// the bus behind what its user has it told.
    pub(crate) fn params(&self, server: &str, instructions: &str) -> Map<String, Value> {
        let mut params = match json!(self) {
            Value::Object(params) => params,
            _ => Map::new(),
        };
        let told = match self.append_system_prompt.as_str() {
            "" => instructions.to_owned(),
            own => format!("{own}\n\n{instructions}"),
        };
        params.insert("appendSystemPrompt".into(), told.into());
        params.insert("sdkMcpServers".into(), json!([server]));
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Initialize, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("set\u{1b}up.json");
        std::fs::write(&file, text).unwrap();
        Initialize::read(&file)
    }

    #[test]
    fn what_is_in_the_file_goes_to_the_client_beside_what_is_ours() {
        let own = json!({
            "hooks": { "PreToolUse": [{ "matcher": "Bash", "hookCallbackIds": ["a"], "timeout": 1.5 }] },
            "agents": { "critic": { "description": "d", "prompt": "p" } },
            "jsonSchema": { "type": "object" },
            "systemPrompt": "You are terse.",
        });
        let mut wanted = own.as_object().cloned().unwrap();
        wanted.insert("sdkMcpServers".into(), json!(["peerbus"]));
        wanted.insert("appendSystemPrompt".into(), "bus".into());
        let read_ = read(own.to_string().as_bytes()).unwrap();
        assert_eq!(read_.params("peerbus", "bus"), wanted);
        let both = read(br#"{"appendSystemPrompt":"own"}"#).unwrap();
        assert_eq!(both.params("s", "bus")["appendSystemPrompt"], "own\n\nbus");
        let none = Initialize::default().params("s", "bus");
        assert_eq!(none.len(), 2, "{none:?}");
    }

    #[test]
    fn what_is_not_known_or_cannot_be_read_is_refused_by_a_sentence_that_names_it() {
        let large = vec![b' '; (FILE_MAX + 1).try_into().unwrap()];
        for (text, why) in [
            (
                br#"{"sdkMcpServers":[]}"#.as_slice(),
                "unknown field `sdkMcpServers`",
            ),
            (
                br#"{"hooks":{"Stop":[{"hookCallbackIds":[],"command":"x"}]}}"#,
                "`command`",
            ),
            (br#"{"hooks":{"Stop":[{}]}}"#, "`hookCallbackIds`"),
            (b"[", "is not what a client is set up with"),
            (b"\xff", "cannot be read"),
            (&large, "more than 1048576 bytes"),
        ] {
            let said = read(text).unwrap_err();
            assert!(
                said.contains(why) && said.contains(r"set\u001bup.json"),
                "{why}: {said}"
            );
        }
        let gone = Initialize::read(Path::new("/nonexistent")).unwrap_err();
        assert!(gone.contains("/nonexistent cannot be read"), "{gone}");
    }
}
