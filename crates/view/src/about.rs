//! What is known of a peer, of which most is its own word.

use peerbus_wire::{PeerEntry, escape};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Longest text of a member, in characters.
const TEXT_CHARS: usize = 80;
/// Longest reason why none can be used, in characters.
const WHY_CHARS: usize = 160;
/// Most wake paths, and the longest word for one, in characters.
const PATHS_MAX: usize = 8;
const PATH_CHARS: usize = 16;

/// A peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PeerView {
    /// Its name.
    pub name: String,
    /// It is connected now.
    pub online: bool,
    /// What its session does: `idle`, `busy` or `waiting` (for its user). Absent: not known, as of
    /// every peer that is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<&'static str>,
    /// For so many seconds, by the broker's clock. Absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_s: Option<u64>,
    /// Its program and version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// What it works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The branch that is checked out there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Groups of which it is a member: those that had room here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The process of its program. Absent, like the next two: not known, or it is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u64>,
    /// The terminal in which that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<String>,
    /// When its session began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// Paths that were probed and can wake its agent. Empty: it reads when it looks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Vec<String>>,
    /// Why no path can wake its agent, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwoken: Option<String>,
    /// What its acks mean: `seen`, `pushed` (not proven), or `seen or pushed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acks: Option<&'static str>,
    /// Messages for it that are not acked: unseen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unacked: Option<u64>,
    /// Requests that it has read and not answered. Absent: none, or not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owes: Option<u64>,
    /// Seconds since it was last connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_s: Option<u64>,
}

impl PeerView {
    /// Reads what the broker says of a peer, and what the peer says of itself. Members of its
    /// presence that have another type than expected say nothing.
    #[must_use]
    pub fn new(entry: &PeerEntry) -> Self {
        let said = presence(entry);
        let text = |key: &str| said.get(key).and_then(Value::as_str);
        let short = |key: &str| text(key).map(|text| escape(text, TEXT_CHARS));
        let client = short("client").map(|name| match short("version") {
            Some(version) => format!("{name} {version}"),
            None => name,
        });
        let activity = text("activity").and_then(activity).filter(|_| entry.online);
        Self {
            name: escape(&entry.name, TEXT_CHARS),
            online: entry.online,
            activity,
            activity_s: entry.activity_s.filter(|_| activity.is_some()),
            client: client.or_else(|| short("adapter")),
            project: short("project"),
            branch: short("branch"),
            groups: entry.groups.iter().map(ToString::to_string).collect(),
            pid: said
                .get("pid")
                .and_then(Value::as_u64)
                .filter(|_| entry.online),
            tty: short("tty").filter(|_| entry.online),
            started: short("started").filter(|_| entry.online),
            wake: said.get("wake").and_then(Value::as_array).map(|w| paths(w)),
            unwoken: text("unwoken").map(|text| escape(text, WHY_CHARS)),
            acks: acks(text("ack"), said.get("evidence").and_then(Value::as_bool)),
            unacked: entry.unacked,
            owes: entry.owes,
            away_s: entry.away_s.filter(|_| !entry.online),
        }
    }
}

/// What a peer says of itself, in JSON; null where it says nothing.
#[must_use]
pub fn presence(peer: &PeerEntry) -> Value {
    let said = peer.presence.as_ref();
    let said = said.and_then(|said| serde_json::from_str(said.as_str()).ok());
    said.unwrap_or_default()
}

fn activity(word: &str) -> Option<&'static str> {
    ["idle", "busy", "waiting"]
        .into_iter()
        .find(|known| *known == word)
}

fn paths(list: &[Value]) -> Vec<String> {
    let words = list.iter().filter_map(Value::as_str).take(PATHS_MAX);
    words.map(|word| escape(word, PATH_CHARS)).collect()
}

/// What an ack means under a policy (`PEERBUS_ACK`), where an answer of the model would be noticed
/// or would not.
fn acks(policy: Option<&str>, evidence: Option<bool>) -> Option<&'static str> {
    match (policy, evidence) {
        (Some("pushed"), _) => Some("pushed"),
        (Some("seen"), _) | (Some("auto"), Some(true)) => Some("seen"),
        (Some("auto"), _) => Some("seen or pushed"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use peerbus_wire::Presence;

    use super::*;

    fn about(online: bool, presence: &str) -> PeerView {
        PeerView::new(&PeerEntry {
            name: "bob".into(),
            online,
            unacked: Some(3),
            away_s: Some(90),
            activity_s: Some(240),
            owes: Some(2),
            groups: Vec::new(),
            presence: Presence::parse(presence),
        })
    }

    #[test]
    fn a_peer_is_described_by_what_it_says() {
        let known = about(
            true,
            r#"{"adapter":"cc","client":"claude-code","version":"2.1.330","project":"shop",
                "branch":"fix/x","activity":"busy","wake":["socket","channel"],
                "evidence":true,"ack":"auto","pid":4711,"tty":"pts/3","started":"2026"}"#,
        );
        assert_eq!(
            serde_json::to_value(&known).unwrap(),
            serde_json::json!({
                "name": "bob", "online": true, "activity": "busy", "activity_s": 240,
                "client": "claude-code 2.1.330", "project": "shop", "branch": "fix/x",
                "pid": 4711, "tty": "pts/3", "started": "2026",
                "wake": ["socket", "channel"], "acks": "seen", "unacked": 3, "owes": 2,
            })
        );
        let away = about(false, r#"{"activity":"busy","pid":4711,"tty":"pts/3"}"#);
        assert_eq!((away.pid, away.tty), (None, None), "another's by now");
        assert_eq!(
            (away.away_s, away.client, away.wake),
            (Some(90), None, None)
        );
        assert_eq!(
            (away.activity, away.activity_s),
            (None, None),
            "what it did then is old"
        );
        let drains = about(
            true,
            r#"{"adapter":"generic","ack":"auto","evidence":false}"#,
        );
        assert_eq!(drains.acks, Some("seen or pushed"));
        assert_eq!(drains.client.as_deref(), Some("generic"));
    }

    #[test]
    fn what_it_says_cannot_harm() {
        let long = "w".repeat(300);
        let hostile = about(
            true,
            &format!(
                r#"{{"client":"<x>\n","version":7,"project":"\u202e{long}","activity":"dead",
                    "wake":["<b>",7,"{long}"],"ack":"always","evidence":"yes"}}"#
            ),
        );
        assert_eq!(hostile.client.as_deref(), Some(r"\u003cx\u003e\u000a"));
        let project = hostile.project.unwrap();
        assert!(
            project.starts_with(r"\u202ew") && project.len() < 150,
            "{project}"
        );
        let wake = hostile.wake.unwrap();
        assert!(
            wake[0] == r"\u003cb\u003e" && wake[1].len() < 60,
            "{wake:?}"
        );
        assert_eq!((hostile.activity, hostile.acks), (None, None));
        assert_eq!(hostile.activity_s, None, "of nothing");
    }
}
