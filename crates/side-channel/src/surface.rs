//! What is served over a channel: sets of capabilities, and the methods that each of them opens.

use serde_json::{Value, json};

use crate::message::Kind;

/// A set of capabilities, by the name that it has in an advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    /// `tools/list`, `tools/call`.
    Tools,
    /// `resources/list`, `resources/templates/list`, `resources/read`.
    Resources,
    /// `logging/setLevel`, and `notifications/message` to the server.
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

    /// What a client may ask of it.
    fn requests(self) -> &'static [&'static str] {
        match self {
            Self::Tools => &["tools/list", "tools/call"],
            Self::Resources => &[
                "resources/list",
                "resources/templates/list",
                "resources/read",
            ],
            Self::Logging => &["logging/setLevel"],
        }
    }

    /// What a client may tell.
    fn told(self) -> &'static [&'static str] {
        match self {
            Self::Tools | Self::Resources => &[],
            Self::Logging => &["notifications/message"],
        }
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
        let set = |set: &Set| {
            let declared = &declared[set.declared()];
            let follows = set.changes().is_some() && declared["listChanged"] == true;
            declared.is_object().then_some((*set, follows))
        };
        let mut sets: Vec<_> = allowed.iter().filter_map(set).collect();
        sets.sort_unstable();
        sets.dedup();
        Self(sets)
    }

    /// Reads an advertisement. What is not known in it is not used.
    #[must_use]
    pub fn read(capabilities: &Value) -> Self {
        let set = |set: Set| {
            let told = &capabilities[set.as_str()];
            let follows = set.changes().is_some() && told["listChanged"] == true;
            told.is_object().then_some((set, follows))
        };
        Self(Set::ALL.into_iter().filter_map(set).collect())
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
            all[set.declared()] = if *follows {
                json!({ "listChanged": true })
            } else {
                json!({})
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
        self.0.iter().any(|(set, _)| match kind {
            Kind::Request => set.requests().contains(&method),
            Kind::Notification => set.told().contains(&method),
            Kind::Response => false,
        })
    }

    /// Whether clients are told this of what the server says.
    #[must_use]
    pub(crate) fn forwards(&self, method: &str) -> bool {
        self.0
            .iter()
            .any(|(set, follows)| *follows && set.changes() == Some(method))
    }

    /// The notifications that clients may get.
    pub(crate) fn followed(&self) -> impl Iterator<Item = &'static str> {
        self.0
            .iter()
            .filter(|(_, follows)| *follows)
            .filter_map(|(set, _)| set.changes())
    }
}
