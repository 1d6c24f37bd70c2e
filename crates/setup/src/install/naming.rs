//! What sessions are named by a configuration.

use peerbus_adapter::{BusConfig, Failure, Flags, Naming, PeerName};
use peerbus_agents::Scope;
use serde_json::Value;

use crate::text::escape;

/// What stands for something of the session in a name.
pub(super) const PLACEHOLDERS: [&str; 4] = ["{project}", "{branch}", "{host}", "{user}"];
/// Those of them that depend on where a session is started.
pub(super) const OF_THE_PLACE: [&str; 2] = ["{project}", "{branch}"];
/// Longest name that is shown, in characters.
pub(super) const SHOWN_CHARS: usize = 80;

/// Checks a name that may hold placeholders. One that nobody on this machine could have is refused
/// in its user's own configuration; a project's is read elsewhere too.
pub(super) fn check(name: &str, scope: Scope) -> Result<(), Failure> {
    PeerName::parse(&filled(name, &PLACEHOLDERS)).map_err(|error| {
        let shown = escape(name, SHOWN_CHARS);
        let known = PLACEHOLDERS.join(", ");
        Failure::config(format!(
            "the name \"{shown}\" cannot be used: {error} (and {known} stand for something)"
        ))
    })?;
    if scope == Scope::User {
        expanded(&filled(name, &OF_THE_PLACE), |_| None).map_err(Failure::config)?;
    }
    Ok(())
}

pub(super) fn filled(name: &str, words: &[&str]) -> String {
    let fill = |name: String, word: &&str| name.replace(word, "x");
    words.iter().fold(name.to_owned(), fill)
}

/// The name that an adapter started here takes, or why it would not start. `env` comes before this
/// process's environment.
pub(crate) fn expanded(name: &str, env: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let flags = Flags {
        name: Some(name.to_owned()),
        ..Flags::default()
    };
    let env = |variable: &str| match variable {
        "USER" | "LOGNAME" => env(variable).or_else(|| std::env::var(variable).ok()),
        _ => None,
    };
    match BusConfig::resolve_with(&flags, env) {
        Ok(config) => match config.naming {
            Naming::Verbatim(name) => Ok(name.as_str().to_owned()),
            Naming::Generated => Ok(String::new()),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// A variable that an entry sets; one that the client fills in is not known here.
pub(crate) fn variable(entry: &Value, name: &str) -> Option<String> {
    let env = entry.get("env").or_else(|| entry.get("environment"))?;
    let text = env.get(name)?.as_str()?;
    (!text.is_empty() && !text.contains('$')).then(|| text.to_owned())
}
