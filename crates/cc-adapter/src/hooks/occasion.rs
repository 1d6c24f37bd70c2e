//! What a hook of Claude Code is given, and what is of use of it.

use std::path::PathBuf;

use peerbus_node::approvals::Asked;
use peerbus_wire::lenient;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::SessionFacts;

/// Longest text of a member, in bytes: what is longer is not what it claims to be.
const TEXT_MAX: usize = 4096;
/// So many words of a prompt are kept from each end, and so long is the longest, in bytes.
const MARKS_MAX: usize = 32;
const MARK_MAX: usize = 40;

/// What is of use of the JSON that a hook is given on its standard input. A member that is
/// missing, of another type or too long counts as not there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Occasion {
    #[serde(deserialize_with = "lenient")]
    hook_event_name: Option<Short>,
    #[serde(deserialize_with = "lenient")]
    session_id: Option<Short>,
    #[serde(deserialize_with = "lenient")]
    transcript_path: Option<Short>,
    #[serde(deserialize_with = "lenient")]
    cwd: Option<Short>,
    #[serde(deserialize_with = "lenient")]
    tool_name: Option<Short>,
    /// When the client asks its user.
    #[serde(deserialize_with = "lenient")]
    permission_mode: Option<Short>,
    /// Only inside a subagent.
    #[serde(deserialize_with = "lenient")]
    agent_id: Option<Short>,
    /// What started the session.
    #[serde(deserialize_with = "lenient")]
    source: Option<Short>,
    /// The turn that ends was itself started by a hook at the end of the one before.
    #[serde(deserialize_with = "lenient")]
    stop_hook_active: Option<bool>,
    /// What started the turn: only the words that can be marks of pushes, wherever those stand.
    #[serde(deserialize_with = "lenient")]
    prompt: Option<Marks>,
    /// The module's word: a turn is under way.
    #[serde(deserialize_with = "lenient")]
    busy: Option<bool>,
    /// The module's word: the request with the prompt's marks was answered.
    #[serde(deserialize_with = "lenient")]
    answered: Option<bool>,
    /// The module's word: the recipient of a text that the model writes with the client's own tool, and the text.
    #[serde(deserialize_with = "lenient")]
    to: Option<Short>,
    #[serde(deserialize_with = "lenient")]
    message: Option<String>,
    /// What the tool would get.
    #[serde(skip_serializing)]
    tool_input: Option<Value>,
    /// The rules and modes that the client offers to change.
    #[serde(skip_serializing)]
    permission_suggestions: Option<Value>,
    /// What the client asks its user: made here of the two.
    asked: Option<Asked>,
    /// The session has a user, who does not wait for a hook that stands beside a dialog. Said by the hook
    /// itself.
    interactive: bool,
}

impl Occasion {
    /// Makes of what the client asks what the adapter is told of it.
    pub(super) fn told(mut self) -> Self {
        let input = self.tool_input.take();
        let suggestions = self.permission_suggestions.take();
        let tool = self.tool_name.as_deref();
        self.asked = tool
            .filter(|_| self.event() == Event::Permission)
            .map(|tool| {
                let input = input.unwrap_or_default().to_string();
                let suggestions = suggestions.as_ref().and_then(Value::as_array);
                let suggestions = suggestions.map(Vec::as_slice).unwrap_or_default();
                let mut asked = Asked::new(tool, &input).suggested(suggestions);
                asked.agent_id = self.agent_id.as_deref().map(str::to_owned);
                asked
            });
        self
    }

    /// As a hook of a session that has a user, or has none.
    pub(super) fn of_session(mut self, interactive: bool) -> Self {
        self.interactive = interactive;
        self
    }

    /// There is a dialog, which its user can answer whatever a hook does.
    pub(super) fn has_dialog(&self) -> bool {
        self.interactive && !self.in_subagent()
    }

    /// What the client asks its user.
    pub(super) fn asked(&self) -> Option<Asked> {
        self.asked.clone()
    }

    pub(super) fn event(&self) -> Event {
        match self.hook_event_name.as_deref() {
            Some("SessionStart") => Event::Start,
            Some("UserPromptSubmit") => Event::Prompt,
            Some("PermissionRequest") => Event::Permission,
            Some("PostToolUse") => Event::Tool,
            Some("Stop") => Event::Stop,
            Some("ModTurn") => Event::ModTurn,
            Some("ModStep") => Event::ModStep,
            Some("ModDrop") => Event::ModDrop,
            Some("ModSend") => Event::ModSend,
            Some("ModList") => Event::ModList,
            Some("ModBus") => Event::ModBus,
            _ => Event::Other,
        }
    }

    pub(super) fn facts(&self) -> SessionFacts {
        let mode = self.permission_mode.as_deref();
        SessionFacts {
            session_id: self.session_id.as_deref().map(str::to_owned),
            transcript: self.transcript_path.as_deref().map(PathBuf::from),
            cwd: self.cwd.as_deref().map(PathBuf::from),
            mode: mode.filter(|_| !self.in_subagent()).map(str::to_owned),
            renamed: self.event() == Event::Start && self.source.as_deref() != Some("startup"),
        }
    }

    /// The words of the prompt that can be marks of pushes, if a prompt was given.
    pub(super) fn prompt(&self) -> Option<&str> {
        self.prompt.as_ref().map(|prompt| prompt.0.as_str())
    }

    /// The module's word on turns: whether one is under way now.
    pub(super) const fn begins_turn(&self) -> Option<bool> {
        self.busy
    }

    /// The marks that stood in a request to the model, of which the module tells, and whether the model
    /// answered that.
    pub(super) fn requested(&self) -> (impl Iterator<Item = &str>, bool) {
        let marks = self.prompt().unwrap_or_default().split_whitespace();
        (marks, self.answered == Some(true))
    }

    /// To whom the model writes with the client's own tool, and what.
    pub(super) fn letter(&self) -> Option<(&str, &str)> {
        Some((self.to.as_deref()?, self.message.as_deref()?))
    }

    /// It happened in a subagent, which has a conversation of its own.
    pub(super) fn in_subagent(&self) -> bool {
        self.agent_id.is_some()
    }

    /// The session starts, and no turn is under way.
    pub(super) fn starts_idle(&self) -> bool {
        matches!(self.source.as_deref(), Some("startup" | "resume" | "clear"))
    }

    /// Another end of the turn would be the second in a row that a hook prevents.
    pub(super) fn prevented_before(&self) -> bool {
        self.stop_hook_active == Some(true)
    }

    /// The tool is one of the bus, whatever the server is called: its result has what is unseen.
    pub(super) fn bus_tool(&self) -> bool {
        let name = self.tool_name.as_deref().unwrap_or_default();
        name.starts_with("mcp__")
            && name
                .rsplit("__")
                .next()
                .is_some_and(|tool| tool.starts_with("bus_") || tool.starts_with("bus."))
    }
}

/// Reads what a hook hands on and asks it everything. What it says of itself is read again as it is.
///
/// # Panics
///
/// When that does not hold.
#[cfg(feature = "fuzzing")]
#[expect(clippy::expect_used, reason = "a fuzzer finds by panicking")]
pub fn fuzz(line: &[u8]) {
    let ask: Option<peerbus_adapter::hooks::Ask<Occasion>> = serde_json::from_slice(line).ok();
    let occasion = ask
        .map(|ask| ask.on)
        .or_else(|| serde_json::from_slice(line).ok());
    let Some(occasion) = occasion.map(Occasion::told) else {
        return;
    };
    let asked = (
        occasion.event(),
        occasion.in_subagent(),
        occasion.bus_tool(),
    );
    let text = serde_json::to_string(&occasion).expect("it is written");
    let again: Occasion = serde_json::from_str(&text).expect("it is read");
    assert_eq!(again, occasion);
    assert_eq!(
        (again.event(), again.in_subagent(), again.bus_tool()),
        asked
    );
    let prompt = again.prompt().unwrap_or_default();
    assert!(
        prompt.len() <= 2 * MARKS_MAX * (MARK_MAX + 1),
        "{}",
        prompt.len()
    );
    let _ = again.facts();
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Start,
    Prompt,
    Permission,
    Tool,
    Stop,
    /// Of our module in the client: a turn begins or ends.
    ModTurn,
    /// Likewise: a request with marks of ours goes to the model, or was answered.
    ModStep,
    /// Likewise: a text that it was given is not shown,
    ModDrop,
    /// Likewise: the model writes to somebody with the client's own tool,
    ModSend,
    /// and asks whom it can write to.
    ModList,
    /// Likewise: the person asks what waits.
    ModBus,
    Other,
}

impl Event {
    /// The answer takes as long as the broker does, and is for the module.
    pub(super) const fn asks(self) -> bool {
        matches!(self, Self::ModSend | Self::ModList | Self::ModBus)
    }

    /// The client's word for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Start => "SessionStart",
            Self::Prompt => "UserPromptSubmit",
            Self::Permission => "PermissionRequest",
            Self::Tool => "PostToolUse",
            Self::Stop => "Stop",
            _ => "",
        }
    }
}

/// A text that is not too long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
struct Short(String);

impl TryFrom<String> for Short {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let fits = text.len() <= TEXT_MAX;
        fits.then_some(Self(text)).ok_or("too long")
    }
}

impl std::ops::Deref for Short {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The words of a text that can be marks of pushes. What else a user writes is nobody's business.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String")]
struct Marks(String);

impl From<String> for Marks {
    fn from(text: String) -> Self {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let mark = |word: &&str| word.starts_with("pb-") && word.len() <= MARK_MAX;
        let mut marks: Vec<&str> = words.filter(mark).collect();
        // Peers can write such words too: between a mark at an end and the other end.
        if marks.len() > 2 * MARKS_MAX {
            marks.drain(MARKS_MAX..marks.len() - MARKS_MAX);
        }
        Self(marks.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use peerbus_adapter::hooks::ASK_MAX;

    use super::*;

    fn occasion(json: &str) -> Occasion {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_a_hook_is_given_is_read_leniently() {
        let given = occasion(
            r#"{"session_id":"s","transcript_path":7,"cwd":"/p","hook_event_name":"Stop",
                "stop_hook_active":true,"tool_response":{"deep":[[[]]]},"extra":null}"#,
        );
        assert_eq!(given.event(), Event::Stop);
        assert!(given.prevented_before() && !given.in_subagent());
        let facts = given.facts();
        assert_eq!(facts.session_id.as_deref(), Some("s"));
        assert_eq!((facts.transcript, facts.cwd), (None, Some("/p".into())));

        let long = format!(r#"{{"session_id":"{}","agent_id":"a"}}"#, "x".repeat(5000));
        let given = occasion(&long);
        assert_eq!(
            (given.event(), given.facts()),
            (Event::Other, SessionFacts::default())
        );
        assert!(given.in_subagent());
        let fakes = "pb-0000000000000000-00000000000000000000 é".repeat(9_000);
        let long = occasion(&format!(
            r#"{{"prompt":"[pb-1] {fakes} my secret [pb-2]"}}"#
        ));
        let prompt = long.prompt().unwrap();
        assert!(prompt.starts_with("pb-1 ") && prompt.ends_with(" pb-2"));
        assert!(!prompt.contains("secret"));
        let line = serde_json::to_string(&long).unwrap();
        assert!(line.len() < ASK_MAX);
        assert_eq!(occasion(r#"{"prompt":7}"#).prompt(), None);
        assert_eq!(occasion("{}"), Occasion::default());
    }

    #[test]
    fn a_bus_tool_is_known_under_any_servers_name() {
        for (tool, ours) in [
            ("mcp__peerbus__bus_send", true),
            ("mcp__plugin_peerbus_peerbus__bus_inbox", true),
            ("mcp__mail__bus.peers", true),
            ("mcp__bus__list", false),
            ("Bash", false),
            ("bus_send", false),
        ] {
            let given = occasion(&format!(r#"{{"tool_name":"{tool}"}}"#));
            assert_eq!(given.bus_tool(), ours, "{tool}");
        }
    }
}
