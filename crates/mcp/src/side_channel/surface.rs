//! What is served over a channel: sets of capabilities, and the methods that each of them opens.

use serde_json::{Value, json};

use crate::side_channel::message::Kind;

/// A line of a log.
const LOG: &str = "notifications/message";

/// A set of capabilities, by the name that it has in an advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    /// `tools/list`, `tools/call`.
    Tools,
    /// `resources/list`, `resources/templates/list`, `resources/read`.
    Resources,
    /// `logging/setLevel`, and `notifications/message` both ways.
    Logging,
}

impl Set {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Resources, Self::Logging];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "serverTools",
            Self::Resources => "serverResources",
            Self::Logging => "logging",
        }
    }

    /// The name of what a server declares for it.
    fn declared(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Logging => "logging",
        }
    }

    /// Reads its name, or what a server calls it.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|set| set.as_str() == word || set.declared() == word)
    }

    /// Whether a client may send this to it.
    fn admits(self, kind: Kind, method: &str) -> bool {
        match (self, kind) {
            (Self::Tools, Kind::Request) => ["tools/list", "tools/call"].contains(&method),
            (Self::Resources, Kind::Request) => [
                "resources/list",
                "resources/templates/list",
                "resources/read",
            ]
            .contains(&method),
            (Self::Logging, Kind::Request) => method == "logging/setLevel",
            (Self::Logging, Kind::Notification) => method == LOG,
            _ => false,
        }
    }

    /// What clients are told, whatever the server declares besides.
    fn tells(self) -> Option<&'static str> {
        (self == Self::Logging).then_some(LOG)
    }

    /// What clients are told, where the server says so.
    fn changes(self) -> Option<&'static str> {
        match self {
            Self::Tools => Some("notifications/tools/list_changed"),
            Self::Resources => Some("notifications/resources/list_changed"),
            Self::Logging => None,
        }
    }
}

/// What is served: sets, each with whether its lists are followed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surface(Vec<(Set, bool)>);

impl Surface {
    /// Of the sets that are allowed, those that a server declares in its answer to `initialize`.
    #[must_use]
    pub fn of(allowed: &[Set], declared: &Value) -> Self {
        let mut sets = allowed.to_vec();
        sets.sort_unstable();
        sets.dedup();
        Self::found(&sets, |set| &declared[set.declared()])
    }

    /// Reads an advertisement. What is not known in it is not used.
    #[must_use]
    pub fn read(capabilities: &Value) -> Self {
        Self::found(&Set::ALL, |set| &capabilities[set.as_str()])
    }

    fn found<'a>(sets: &[Set], said: impl Fn(Set) -> &'a Value) -> Self {
        let set = |set: &Set| {
            let said = said(*set);
            let follows = set.changes().is_some() && said["listChanged"] == true;
            said.is_object().then_some((*set, follows))
        };
        Self(sets.iter().filter_map(set).collect())
    }

    /// The advertisement.
    #[must_use]
    pub fn capabilities(&self) -> Value {
        let mut all = json!({});
        for (set, follows) in &self.0 {
            all[set.as_str()] = match set.changes() {
                Some(_) => json!({ "listChanged": follows }),
                None => json!({}),
            };
        }
        all
    }

    /// What a server that serves this declares to its client.
    #[must_use]
    pub fn declared(&self) -> Value {
        let mut all = json!({});
        for (set, follows) in &self.0 {
            all[set.declared()] = match follows {
                true => json!({ "listChanged": true }),
                false => json!({}),
            };
        }
        all
    }

    /// Nothing is served.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a client may send this. Cancellation, progress and `ping` are not decided here.
    #[must_use]
    pub(crate) fn admits(&self, kind: Kind, method: &str) -> bool {
        self.0.iter().any(|(set, _)| set.admits(kind, method))
    }

    /// Whether clients are told this of what the server says.
    #[must_use]
    pub(crate) fn forwards(&self, method: &str) -> bool {
        let mut told = self.0.iter().filter_map(|(set, _)| set.tells());
        told.any(|told| told == method) || self.followed().any(|change| change == method)
    }

    /// Those of changes.
    pub(crate) fn followed(&self) -> impl Iterator<Item = &'static str> {
        let followed = self.0.iter().filter(|(_, follows)| *follows);
        followed.filter_map(|(set, _)| set.changes())
    }
}
