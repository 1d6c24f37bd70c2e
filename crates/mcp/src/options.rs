//! Settings of an adapter, and how they are read.

use peerbus_adapter::mailbox::Policy;

use crate::spelling::Spelling;

/// Settings of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdapterOptions {
    /// How tools are spelled; `None`: by the client's name.
    pub tool_names: Option<Spelling>,
    /// When a message is acked for which there is no evidence.
    pub ack: Policy,
    /// So many replies may lead to a message that the agent is shown; `None`: any number.
    pub hops_max: Option<u32>,
    /// The agent is reminded of requests that it has read and not answered.
    pub remind: bool,
}

const HOPS_MAX: u32 = 16;

impl Default for AdapterOptions {
    fn default() -> Self {
        Self {
            tool_names: None,
            ack: Policy::default(),
            hops_max: Some(HOPS_MAX),
            remind: true,
        }
    }
}

impl AdapterOptions {
    /// Reads `PEERBUS_TOOL_NAMES` (`dotted` or `underscore`), `PEERBUS_ACK` (`auto`, `seen` or
    /// `pushed`), `PEERBUS_BUDGET` (a number or `off`) and `PEERBUS_REMIND` (`on` or `off`). What is absent
    /// or empty has its default.
    ///
    /// # Errors
    ///
    /// For a value that is none of these: a sentence that names it, what was found and the remedy.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let variable = |name| variable(name).filter(|text| !text.is_empty());
        let mut options = Self::default();
        if let Some(text) = variable("PEERBUS_TOOL_NAMES") {
            options.tool_names = Some(match text.as_str() {
                "dotted" => Spelling::Dotted,
                "underscore" => Spelling::Underscore,
                _ => {
                    return Err(wrong(
                        "PEERBUS_TOOL_NAMES must be dotted or underscore,",
                        &text,
                    ));
                }
            });
        }
        if let Some(text) = variable("PEERBUS_ACK") {
            options.ack = match text.as_str() {
                "auto" => Policy::Auto,
                "seen" => Policy::Seen,
                "pushed" => Policy::Pushed,
                _ => return Err(wrong("PEERBUS_ACK must be auto, seen or pushed,", &text)),
            };
        }
        if let Some(text) = variable("PEERBUS_BUDGET") {
            options.hops_max = match (text.as_str(), text.parse()) {
                ("off", _) => None,
                (_, Ok(hops @ 1..=1_000)) => Some(hops),
                _ => return Err(wrong(BUDGET, &text)),
            };
        }
        if let Some(text) = variable("PEERBUS_REMIND") {
            options.remind = match text.as_str() {
                "on" => true,
                "off" => false,
                _ => return Err(wrong("PEERBUS_REMIND must be on or off,", &text)),
            };
        }
        Ok(options)
    }
}

const BUDGET: &str = "PEERBUS_BUDGET must be off, or how many replies may lead to a message that the agent \
    is shown, from 1 to 1000;";

fn wrong(wanted: &str, text: &str) -> String {
    let found: String = text.chars().take(40).collect();
    format!("{wanted} got {found:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<AdapterOptions, String> {
        let variable = |asked: &str| (asked == name).then(|| value.to_owned());
        AdapterOptions::read(variable)
    }

    #[test]
    fn settings_are_read_and_what_is_wrong_is_named() {
        assert_eq!(read("PATH", "x"), Ok(AdapterOptions::default()));
        assert_eq!(read("PEERBUS_ACK", ""), Ok(AdapterOptions::default()));
        assert_eq!(read("PEERBUS_ACK", "seen").unwrap().ack, Policy::Seen);
        assert_eq!(read("PEERBUS_ACK", "pushed").unwrap().ack, Policy::Pushed);
        assert_eq!(read("PEERBUS_BUDGET", "off").unwrap().hops_max, None);
        let five = read("PEERBUS_BUDGET", "5").unwrap();
        assert_eq!(five.hops_max, Some(5));
        assert!(!read("PEERBUS_REMIND", "off").unwrap().remind);
        let dotted = read("PEERBUS_TOOL_NAMES", "dotted").unwrap().tool_names;
        assert_eq!(dotted, Some(Spelling::Dotted));
        for (name, value, says) in [
            ("PEERBUS_ACK", "read", "auto, seen or pushed, got \"read\""),
            ("PEERBUS_BUDGET", "0", "got \"0\""),
            ("PEERBUS_BUDGET", "1001", "from 1 to 1000"),
            ("PEERBUS_BUDGET", "many", "must be off"),
            ("PEERBUS_REMIND", "no", "must be on or off, got \"no\""),
            ("PEERBUS_TOOL_NAMES", "dots", "got \"dots\""),
        ] {
            let error = read(name, value).unwrap_err();
            assert!(error.starts_with(name) && error.contains(says), "{error}");
        }
    }
}
