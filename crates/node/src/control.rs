//! What can be done to a session besides putting texts in: ending the turn that is under way, asking
//! the client to work otherwise, ending all of it.

use std::time::Duration;

use peerbus_adapter::mailbox::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::approvals::{Decision, INPUT_MAX, PermissionUpdate, Wish};
use crate::protocol::{NodeError, SET_ENVIRONMENT, SET_MODE, quoted};

/// How long the client may take. Whoever asked is not heard meanwhile.
const WITHIN: Duration = Duration::from_secs(10);
/// Longest name of a variable, in bytes.
const NAME_MAX: usize = 128;

/// What can be done to a session besides putting texts in. The sentences of errors are for whoever
/// asked.
pub trait Control: Send + Sync {
    /// Ends the turn that is under way.
    fn interrupt(&self) -> BoxFuture<'_, Result<(), String>>;
    /// Asks the client for this, by its own words; driven sessions only.
    fn control(
        &self,
        subtype: &str,
        params: Map<String, Value>,
    ) -> BoxFuture<'_, Result<Value, String>>;
    /// Ends the session; driven sessions only.
    ///
    /// # Errors
    ///
    /// Why it cannot be ended.
    fn stop(&self) -> Result<(), String>;
    /// Whether its client takes images.
    ///
    /// # Errors
    ///
    /// Why it does not.
    fn takes_images(&self) -> Result<(), String> {
        Err(NO_IMAGES.to_owned())
    }
}

/// Why a session gets no images.
pub(crate) const NO_IMAGES: &str = "this session takes no images, only those do that `peerbus run` \
    drives: put the image into a file, and name that";

/// What became of something that the client does, if it does it in time.
pub(crate) async fn within<T>(asked: BoxFuture<'_, Result<T, String>>) -> Result<T, NodeError> {
    match timeout(WITHIN, asked).await {
        Ok(done) => done.map_err(NodeError::unable),
        Err(_) => Err(NodeError::unable(format!(
            "the client has not answered for {} s: what was asked of it may still happen",
            WITHIN.as_secs()
        ))),
    }
}

/// Lets pass what a client may be asked for. What nobody asks any more about, it never is.
pub(crate) fn allowed(subtype: &str, params: &Map<String, Value>) -> Result<(), NodeError> {
    if subtype == SET_ENVIRONMENT {
        return variables(params.get("variables").unwrap_or(&Value::Null));
    }
    if subtype != SET_MODE {
        return Ok(());
    }
    let named = params.get("mode").and_then(Value::as_str);
    mode(named.ok_or_else(|| NodeError::params("`mode` is missing: a permission mode's name"))?)
}

/// Lets pass variables that an environment can have.
fn variables(variables: &Value) -> Result<(), NodeError> {
    let wrong = |why: String| Err(NodeError::params(why));
    let Some(variables) = variables.as_object() else {
        return wrong("expected `variables` to be an object: texts by their names".to_owned());
    };
    for (name, value) in variables {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let begins = !name.starts_with(|first: char| first.is_ascii_digit());
        if name.is_empty() || name.len() > NAME_MAX || !begins || !name.bytes().all(is_letter) {
            let name = quoted(name);
            return wrong(format!(
                "{name} is no name of a variable: expected letters, digits and `_`"
            ));
        }
        if value.as_str().is_none_or(|text| text.contains('\0')) {
            return wrong(format!("expected {name} to be a text without NUL"));
        }
    }
    Ok(())
}

/// Lets pass an answer to a hook that sets no mode in which nothing is asked.
pub(crate) fn answers(response: &Value) -> Result<(), NodeError> {
    match response {
        Value::Object(members) => {
            if response["type"] == "setMode" {
                mode(response["mode"].as_str().unwrap_or_default())?;
            }
            members.values().try_for_each(answers)
        }
        Value::Array(items) => items.iter().try_for_each(answers),
        _ => Ok(()),
    }
}

/// Lets pass a permission mode in which something is asked.
fn mode(mode: &str) -> Result<(), NodeError> {
    let letters = mode.chars().filter(char::is_ascii_alphanumeric);
    let letters = letters.collect::<String>().to_ascii_lowercase();
    if letters.contains("bypass") {
        return Err(NodeError::refused(
            "no session is set to `bypassPermissions` from outside, whatever gate is open",
        ));
    }
    if mode.is_empty() || !mode.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Err(NodeError::params(
            "expected `mode` to be a permission mode's name, in letters",
        ));
    }
    Ok(())
}

/// Looks at what a verdict is to change.
pub(crate) fn changes(wish: &Wish) -> Result<(), NodeError> {
    let wrong = |why: &str| Err(NodeError::params(why));
    let more = wish.input.is_some() || !wish.permissions.is_empty();
    if more && wish.decision != Decision::Allow {
        return wrong("`updatedInput` and `updatedPermissions` go with `allow`");
    }
    if wish.interrupt && wish.decision != Decision::Deny {
        return wrong("`interrupt` goes with a denial");
    }
    if wish.input.is_some() && !wish.answers.is_empty() {
        return wrong("`updatedInput` and `answers` do not go together");
    }
    if json!([wish.input, wish.permissions]).to_string().len() > INPUT_MAX {
        return wrong("`updatedInput` and `updatedPermissions` are too long");
    }
    if !wish.permissions.iter().all(PermissionUpdate::is_whole) {
        return wrong("`updatedPermissions` lacks a member of its `type`, or has one of another");
    }
    let mut modes = wish.permissions.iter().filter_map(PermissionUpdate::mode);
    modes.try_for_each(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_of_a_mode_in_which_nothing_is_asked_passes() {
        let asked = |params: Value| {
            let params = params.as_object().cloned().unwrap();
            Some(allowed(SET_MODE, &params).err()?.0.code)
        };
        for mode in ["default", "acceptEdits", "plan", "dontAsk"] {
            assert_eq!(asked(json!({ "mode": mode })), None, "{mode}");
        }
        for mode in [
            "bypassPermissions",
            "BYPASSPERMISSIONS",
            " bypassPermissions\n",
            "bypass-permissions",
            "by_pass\u{200b}Permissions",
            "bypass",
        ] {
            assert_eq!(asked(json!({ "mode": mode })), Some(-32003), "{mode}");
        }
        for mode in [json!("ｂypassPermissions"), json!(""), json!(["plan"])] {
            assert_eq!(asked(json!({ "mode": mode })), Some(-32602), "{mode}");
        }
        assert_eq!(asked(json!({})), Some(-32602));
        let mode = json!({ "mode": "bypassPermissions" });
        assert!(allowed("mcp_status", mode.as_object().unwrap()).is_ok());
    }

    #[test]
    fn no_answer_to_a_hook_sets_such_a_mode_however_deep_it_stands() {
        let answer = |mode: &str| {
            let update = json!({ "type": "setMode", "mode": mode, "destination": "session" });
            let decision = json!({ "behavior": "allow", "updatedPermissions": [update] });
            answers(&json!({ "hookSpecificOutput": { "decision": decision } }))
        };
        assert_eq!(answer("plan"), Ok(()));
        assert_eq!(answer("bypass_Permissions").unwrap_err().0.code, -32003);
        assert_eq!(answer("").unwrap_err().0.code, -32602);
    }

    #[test]
    fn only_what_an_environment_can_have_passes() {
        let asked = |variables: Value| {
            let params = json!({ "variables": variables });
            let asked = allowed(SET_ENVIRONMENT, params.as_object().unwrap());
            asked.map_err(|error| error.0.message)
        };
        assert_eq!(asked(json!({ "_A1": "x\ny", "b": "" })), Ok(()));
        for (variables, why) in [
            (json!(null), "an object"),
            (json!({ "": "x" }), "no name"),
            (json!({ "1A": "x" }), "no name"),
            (json!({ "A=B": "x" }), "\"A=B\" is no name"),
            (json!({ ("A".repeat(NAME_MAX + 1)): "x" }), "no name"),
            (json!({ "A": 1 }), "expected A to be a text"),
            (json!({ "A": "x\0" }), "without NUL"),
        ] {
            let said = asked(variables).unwrap_err();
            assert!(said.contains(why), "{why}: {said}");
        }
    }
}
