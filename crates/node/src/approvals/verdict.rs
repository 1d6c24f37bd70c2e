//! What becomes of a request to use a tool, and what somebody wants to become of it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::asked::SuggestedRule;

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This once.
    Allow,
    /// No.
    Deny,
    /// Now, and by a rule from now on.
    AllowAlways,
}

impl Decision {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::AllowAlways => "allow_always",
        }
    }
}

/// Who closed a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// The user, at the client's own dialog.
    Terminal,
    /// A program of the user's, at the node.
    Node,
    /// This peer.
    Peer(String),
    /// Its time.
    Timeout,
    /// The client, which does not want to know any more.
    Client,
    /// Nobody: there was none to ask, or a gate was closed.
    Nobody,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terminal => f.write_str("terminal"),
            Self::Node => f.write_str("node"),
            Self::Peer(name) => write!(f, "peer:{name}"),
            Self::Timeout => f.write_str("timeout"),
            Self::Client => f.write_str("client"),
            Self::Nobody => f.write_str("nobody"),
        }
    }
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// `None`: nobody knows, or it is not needed any more.
    pub decision: Option<Decision>,
    /// By whom.
    pub by: By,
    /// What the program calls itself that decided; empty: it does not say, or none did.
    pub source: String,
    /// What the model is to be told.
    pub message: Option<String>,
    /// The rule that is added, for [`Decision::AllowAlways`].
    pub rule: Option<SuggestedRule>,
    /// What the tool gets in place of what was asked.
    pub input: Option<NewInput>,
    /// What the client changes in what it allows, as whoever decided wrote it.
    pub permissions: Vec<PermissionUpdate>,
    /// The turn ends with the denial.
    pub interrupt: bool,
}

/// What a tool gets in place of what it was to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewInput {
    /// The questions, with the answers to them.
    Answered(Value),
    /// What whoever decided put there.
    Changed(Value),
}

impl NewInput {
    /// As the client takes it.
    #[must_use]
    pub const fn value(&self) -> &Value {
        match self {
            Self::Answered(value) | Self::Changed(value) => value,
        }
    }
}

impl Verdict {
    /// Closed in this way.
    #[must_use]
    pub const fn closed(decision: Option<Decision>, by: By) -> Self {
        Self {
            decision,
            by,
            source: String::new(),
            message: None,
            rule: None,
            input: None,
            permissions: Vec::new(),
            interrupt: false,
        }
    }

    /// All that the client is to change in what it allows, as it takes it; `None`: nothing.
    #[must_use]
    pub fn updates(&self) -> Option<Value> {
        let rule = self.rule.iter().map(|rule| rule.suggestion.clone());
        let updates: Vec<_> = rule
            .chain(self.permissions.iter().map(|update| json!(update)))
            .collect();
        (!updates.is_empty()).then(|| updates.into())
    }
}

/// What somebody wants to become of a request. A member that is not known is an error: it may say that
/// something else is to run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    #[serde(rename = "request_id")]
    pub(crate) id: String,
    pub(crate) decision: Decision,
    /// Stands for what was seen of it.
    pub(crate) digest: Option<String>,
    /// Which rule, for [`Decision::AllowAlways`]; the only one where there is one.
    pub(crate) rule: Option<String>,
    /// Where the client is to keep it, where it offers that rule for several places.
    pub(crate) destination: Option<String>,
    /// What the model is to be told.
    pub(crate) message: Option<String>,
    /// The answers to a question, one for each that it asks.
    #[serde(default)]
    pub(crate) answers: Vec<String>,
    /// What the tool is to get in place of what was asked.
    #[serde(default, rename = "updatedInput")]
    pub(crate) input: Option<Map<String, Value>>,
    /// What the client is to change in what it allows.
    #[serde(default, rename = "updatedPermissions")]
    pub(crate) permissions: Vec<PermissionUpdate>,
    /// The turn is to end with the denial.
    #[serde(default)]
    pub(crate) interrupt: bool,
    /// What the program that decides calls itself.
    #[serde(default)]
    pub(crate) source: Option<String>,
}

impl Wish {
    /// Whether something else than what was asked is to happen.
    pub(crate) fn changes(&self) -> bool {
        self.input.is_some() || !self.permissions.is_empty() || self.interrupt
    }
}

/// A change of what a client allows, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionUpdate {
    #[serde(rename = "type")]
    kind: UpdateKind,
    destination: Destination,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<ToolRule>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    behavior: Option<Behavior>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    directories: Option<Vec<String>>,
}

impl PermissionUpdate {
    /// It has the members that are of its kind, and no others.
    pub(crate) const fn is_whole(&self) -> bool {
        let has = (
            self.rules.is_some() && self.behavior.is_some(),
            self.rules.is_some() || self.behavior.is_some(),
            self.mode.is_some(),
            self.directories.is_some(),
        );
        use UpdateKind as Kind;
        match self.kind {
            Kind::AddRules | Kind::ReplaceRules | Kind::RemoveRules => {
                matches!(has, (true, _, false, false))
            }
            Kind::SetMode => matches!(has, (_, false, true, false)),
            Kind::AddDirectories | Kind::RemoveDirectories => {
                matches!(has, (_, false, false, true))
            }
        }
    }

    /// The mode that it sets.
    pub(crate) fn mode(&self) -> Option<&str> {
        self.mode.as_deref()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum UpdateKind {
    AddRules,
    ReplaceRules,
    RemoveRules,
    SetMode,
    AddDirectories,
    RemoveDirectories,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolRule {
    tool_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule_content: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Behavior {
    Allow,
    Deny,
    Ask,
}

/// Where the client keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Destination {
    UserSettings,
    ProjectSettings,
    LocalSettings,
    Session,
}

/// What somebody wants a message that waits to become.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Choice {
    pub(crate) id: String,
    pub(crate) from: Option<String>,
    /// Stands for what was seen of it. Not needed where the agent does not get it.
    pub(crate) digest: Option<String>,
}

/// Why a wish is not granted: a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VerdictRefusal {
    /// The request is closed, in this way.
    Late(String, Box<Verdict>),
    /// It is none that can be granted.
    Wrong(String),
}
