//! How an adapter describes its session to peers.

use std::mem::discriminant;

use peerbus_peer::mailbox::{Activity, Policy, Stuck};
use serde_json::{Map, Value};

use super::Mailbox;
use crate::project::{self, Project};
use crate::{Bus, rfc3339, wall_ms};

/// Longest text of a member, in characters.
const TEXT_CHARS: usize = 80;

/// Longest reason why nothing wakes a session, in characters.
const WHY_CHARS: usize = 160;

/// Members that are left out, in this order, when the description is too long.
const EXPENDABLE: [&str; 9] = [
    "since", "unwoken", "tty", "pid", "branch", "project", "version", "client", "started",
];

/// Who a session is, to its peers.
#[derive(Debug, Clone, Copy)]
pub struct Who<'a> {
    /// The kind of adapter: `cc` or `generic`.
    pub adapter: &'a str,
    /// What the client calls itself; empty where it says nothing.
    pub client: &'a str,
    /// Its version, likewise.
    pub version: &'a str,
    /// The process that a person sees: the client's, or one that runs it without a screen.
    pub process: u32,
    /// Nobody answers it in that process' terminal: a program drives it.
    pub driven: bool,
}

/// How a session describes itself, as it changes. Peers are told nothing before the client has
/// introduced itself.
#[derive(Debug, Default)]
pub(super) struct About {
    /// When the session began, as RFC 3339 in UTC.
    started: String,
    /// Who is here; empty until that is known.
    client: Map<String, Value>,
    state: Map<String, Value>,
    activity: Activity,
    stuck: Option<Stuck>,
    /// Since when, by the wall clock in milliseconds.
    stuck_ms: u64,
}

impl About {
    pub(super) fn new(policy: Policy) -> Self {
        let mut state = Map::new();
        let ack = match policy {
            Policy::Auto => "auto",
            Policy::Seen => "seen",
            Policy::Pushed => "pushed",
        };
        state.insert("ack".into(), ack.into());
        state.insert("evidence".into(), false.into());
        // Peers can tell a session that nothing wakes from one of which that is not known.
        state.insert("wake".into(), Value::Array(Vec::new()));
        Self {
            state,
            started: rfc3339(wall_ms()),
            ..Self::default()
        }
    }

    /// The client introduced itself.
    pub(super) fn met(&mut self, bus: &Bus, who: &Who<'_>) {
        self.client = of(who, &self.started);
        self.tell(bus);
    }

    /// When the session began.
    pub(super) fn started(&self) -> &str {
        &self.started
    }

    /// The waking paths that were probed and work, and why there is none.
    pub(super) fn set_wake(&mut self, bus: &Bus, words: Vec<&'static str>, why: &str) {
        let why = match why {
            "" => Value::Null,
            why => Value::from(cut(why, WHY_CHARS)),
        };
        let changed = put(&mut self.state, "unwoken", why);
        if put(&mut self.state, "wake", words.into()) || changed {
            self.tell(bus);
        }
    }

    pub(super) fn set_activity(&mut self, bus: &Bus, activity: Activity) {
        self.activity = activity;
        self.set_does(bus);
    }

    /// Why nothing comes of what waits here. Whether that is news.
    pub(super) fn set_stuck(&mut self, bus: &Bus, stuck: Option<Stuck>) -> bool {
        let changed = self.stuck != stuck;
        // A path more that was tried is no other reason.
        let kind = |stuck: &Option<Stuck>| stuck.as_ref().map(discriminant);
        if kind(&self.stuck) != kind(&stuck) {
            self.stuck_ms = wall_ms();
        }
        self.stuck = stuck;
        if changed {
            self.set_does(bus);
        }
        changed
    }

    fn set_does(&mut self, bus: &Bus) {
        let word = match (self.activity, &self.stuck) {
            // A dialog is answered by the user, whatever else is wrong.
            (Activity::Waiting, _) => "waiting".into(),
            (_, Some(_)) => "stuck".into(),
            (Activity::Idle, None) => "idle".into(),
            (Activity::Busy, None) => "busy".into(),
            (Activity::Unknown, None) => Value::Null,
        };
        let tried = self.tried().map_or(Value::Null, Value::from);
        let changed = put(&mut self.state, "tried", tried);
        let since = match word {
            Value::Null => Value::Null,
            _ => Value::from(rfc3339(wall_ms())),
        };
        let other = put(&mut self.state, "activity", word);
        if other {
            put(&mut self.state, "since", since);
        }
        if other || changed {
            self.tell(bus);
        }
    }

    /// The terminal in which the client runs.
    pub(super) fn terminal(&self) -> Option<String> {
        Some(self.client.get("tty")?.as_str()?.to_owned())
    }

    /// The name and version of the client.
    pub(super) fn client(&self) -> [Option<String>; 2] {
        let text = |key: &str| Some(self.client.get(key)?.as_str()?.to_owned());
        ["client", "version"].map(text)
    }

    /// The client's process.
    pub(super) fn process(&self) -> Option<u32> {
        self.client.get("pid")?.as_u64()?.try_into().ok()
    }

    /// The word of [`Self::tried`], and since when it is true, by the wall clock in milliseconds.
    pub(super) fn stuck(&self) -> Option<(String, u64)> {
        Some((self.tried()?, self.stuck_ms))
    }

    /// What was tried while nothing comes of what waits here.
    pub(super) fn tried(&self) -> Option<String> {
        Some(match self.stuck.as_ref()? {
            Stuck::Stopped => "its process is stopped, as by Ctrl-Z".into(),
            Stuck::Failed(why) => why.to_string(),
            Stuck::GivenBack => {
                "its mail has waited for five idle minutes, and came back unread each time it was sent".into()
            }
            Stuck::Unseen(words) if words.is_empty() => {
                "its mail has waited for five idle minutes, and no path took it".into()
            }
            Stuck::Unseen(words) => {
                let paths = words.join(", ");
                format!("its mail has been unseen for five idle minutes, sent by {paths}")
            }
        })
    }

    /// Whether an answer of the model would be noticed.
    pub(super) fn set_evidence(&mut self, bus: &Bus, readable: bool) {
        self.set(bus, "evidence", readable.into());
    }

    fn set(&mut self, bus: &Bus, key: &str, value: Value) {
        if put(&mut self.state, key, value) {
            self.tell(bus);
        }
    }

    fn tell(&self, bus: &Bus) {
        if self.client.is_empty() {
            return;
        }
        let mut about = self.client.clone();
        about.extend(self.state.clone());
        // Too large: a project's path can be. What is short says enough.
        let mut expendable = EXPENDABLE.iter();
        while !bus.set_presence(&about) {
            let Some(member) = expendable.next() else {
                return;
            };
            about.remove(*member);
        }
    }
}

impl Mailbox {
    /// Why nothing comes of what waits here, as peers are told, and since when, by the wall clock in
    /// milliseconds; `None`: something does, or nothing waits.
    #[must_use]
    pub fn stuck(&self) -> Option<(String, u64)> {
        self.with(|state, _| state.about.stuck())
    }

    /// The name and version of the client, as far as it has introduced itself.
    #[must_use]
    pub fn client(&self) -> [Option<String>; 2] {
        self.with(|state, _| state.about.client())
    }

    /// The terminal in which the client runs, where it has introduced itself.
    #[must_use]
    pub fn terminal(&self) -> Option<String> {
        self.with(|state, _| state.about.terminal())
    }

    /// The client's process, likewise.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.with(|state, _| state.about.process())
    }

    /// When the session began, as its peers are told.
    #[must_use]
    pub fn started(&self) -> String {
        self.with(|state, _| state.about.started().to_owned())
    }
}

/// Sets or removes a member; whether that changed anything.
fn put(members: &mut Map<String, Value>, key: &str, value: Value) -> bool {
    if value.is_null() {
        return members.remove(key).is_some();
    }
    let changed = members.get(key) != Some(&value);
    members.insert(key.into(), value);
    changed
}

/// Who is here: adapter, client, project, branch; and which of several there, by process, terminal
/// and time.
fn of(who: &Who<'_>, started: &str) -> Map<String, Value> {
    let mut about = Map::new();
    let mut put = |key: &str, text: &str| {
        if !text.is_empty() {
            about.insert(key.into(), Value::from(cut(text, TEXT_CHARS)));
        }
    };
    put("adapter", who.adapter);
    put("client", who.client);
    put("version", who.version);
    if let Some(root) = project::root() {
        put(
            "project",
            &Project::at(&root).map_or_else(String::new, |it| it.title),
        );
        put("branch", &project::branch(&root).unwrap_or_default());
    }
    if !who.driven {
        put("tty", &terminal(who.process).unwrap_or_default());
    }
    put("started", started);
    about.insert("pid".into(), who.process.into());
    about
}

/// The terminal from which a process reads, such as `pts/3`, as far as `/proc` tells.
fn terminal(process: u32) -> Option<String> {
    let input = std::fs::read_link(format!("/proc/{process}/fd/0")).ok()?;
    let device = input.to_str()?.strip_prefix("/dev/")?;
    (device.starts_with("pts/") || device.starts_with("tty")).then(|| device.to_owned())
}

fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    text.chars().take(chars - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_says_what_is_known() {
        let version = "v".repeat(200);
        let who = Who {
            adapter: "cc",
            client: "claude-code",
            version: &version,
            process: 4711,
            driven: false,
        };
        let about = of(&who, "2026-01-01T00:00:00.000Z");
        assert_eq!(about["pid"], 4711);
        assert_eq!(about["adapter"], "cc");
        assert_eq!(about["client"], "claude-code");
        assert_eq!(
            about["version"].as_str().unwrap().chars().count(),
            TEXT_CHARS
        );
    }
}
