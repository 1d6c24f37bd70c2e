//! How tools are spelled to a client.

use peerbus_adapter::agents::Agent;

/// The spelling of tool names. Both are accepted in calls; one is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// `bus.send`
    Dotted,
    /// `bus_send`
    Underscore,
}

impl Spelling {
    /// The spelling for a client, by its `clientInfo.name`.
    #[must_use]
    pub fn for_client(name: &str) -> Self {
        match Agent::of_client(name) {
            Some(agent) if !agent.takes_dots => Self::Underscore,
            _ => Self::Dotted,
        }
    }

    /// A tool's name, given dotted, in this spelling.
    pub(crate) fn spell(self, dotted: &str) -> String {
        match self {
            Self::Dotted => dotted.to_owned(),
            Self::Underscore => dotted.replace('.', "_"),
        }
    }
}

/// Whether a called name means the tool whose name is given dotted.
pub(crate) fn means(called: &str, dotted: &str) -> bool {
    called == dotted || called == Spelling::Underscore.spell(dotted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_is_shown_the_spelling_that_it_can_take() {
        let cases = [
            ("claude-code", Spelling::Dotted),
            ("", Spelling::Dotted),
            ("some-bot", Spelling::Dotted),
            ("inspector-client", Spelling::Dotted),
            ("codex-mcp-client", Spelling::Underscore),
            ("opencode", Spelling::Underscore),
            ("qwen-cli-mcp-client-peerbus", Spelling::Underscore),
            ("gemini-cli-mcp-client", Spelling::Underscore),
            ("copilot-cli", Spelling::Underscore),
            ("claude-ai", Spelling::Underscore),
            ("Claude Desktop", Spelling::Underscore),
        ];
        for (client, spelling) in cases {
            assert_eq!(Spelling::for_client(client), spelling, "{client}");
        }
    }

    #[test]
    fn both_spellings_are_understood() {
        assert!(means("bus.send", "bus.send") && means("bus_send", "bus.send"));
        assert!(!means("bus-send", "bus.send") && !means("bus.sends", "bus.send"));
    }
}
