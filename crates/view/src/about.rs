//! What is known of a peer, of which most is its own word.

#[cfg(test)]
mod tests;

use peerbus_wire::{PeerEntry, TokenName, escape, escape_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text::{is_terminal, quoted, span};

/// Longest text of a member, in characters.
const TEXT_CHARS: usize = 80;
/// Longest reason why none can be used, in characters.
const WHY_CHARS: usize = 160;
/// Why one is stuck that cannot say so itself.
pub const ADAPTER_STOPPED: &str = "its adapter is stopped, as by Ctrl-Z";
/// Most wake paths, and the longest word for one, in characters.
const PATHS_MAX: usize = 8;
const PATH_CHARS: usize = 16;

/// Who reads what is told of a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// The person whose agents these are.
    #[default]
    Owner,
    /// Anybody else.
    Peer,
}

impl Audience {
    /// A request to the operator's API whose answer this reads.
    #[must_use]
    pub fn reads(self, target: &str) -> String {
        let joint = if target.contains('?') { '&' } else { '?' };
        match self {
            Self::Owner => target.to_owned(),
            Self::Peer => format!("{target}{joint}audience=peer"),
        }
    }
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// It is not connected.
    Away,
    /// A dialog is open: its user has to answer.
    Waits,
    /// Mail that should wake it stays unseen while it does nothing, or its client is stopped.
    Stuck,
    /// It is in a turn.
    Busy,
    /// Its turn is over.
    Idle,
    /// It is connected, and its client does not say what it does.
    Online,
}

impl PeerState {
    /// The state for the word that a presence or a list of sessions has.
    #[must_use]
    pub fn of(activity: Option<&str>) -> Self {
        match activity {
            Some("waiting" | "waiting_approval") => Self::Waits,
            Some("stuck") => Self::Stuck,
            Some("busy" | "thinking") => Self::Busy,
            Some("idle") => Self::Idle,
            _ => Self::Online,
        }
    }

    /// Its word.
    #[must_use]
    pub const fn word(self, audience: Audience) -> &'static str {
        match (self, audience) {
            (Self::Away, _) => "away",
            (Self::Waits, Audience::Owner) => "waits for you",
            (Self::Waits, Audience::Peer) => "waits for its user",
            (Self::Stuck, _) => "stuck",
            (Self::Busy, _) => "busy",
            (Self::Idle, _) => "idle",
            (Self::Online, _) => "online",
        }
    }
}

/// What a sentence is told by, beside what became of a message.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// The wall clock.
    pub now_ms: u64,
    /// The list of peers, where [that matters](crate::depends_on_peers).
    pub peers: &'a [PeerEntry],
    /// Its reader.
    pub audience: Audience,
}

impl Around<'_> {
    /// Where nothing is known of peers.
    #[must_use]
    pub const fn alone(now_ms: u64) -> Self {
        Self {
            now_ms,
            peers: &[],
            audience: Audience::Peer,
        }
    }
}

/// A peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PeerView {
    /// Its name.
    pub name: String,
    /// It is connected now.
    pub online: bool,
    /// The same as `state`, for programs.
    #[serde(skip)]
    pub is: PeerState,
    /// A session on this machine has the name: its node was asked, and this is not its word alone.
    #[serde(skip)]
    pub here: bool,
    /// The token that its name belongs to, and names that it had before, as the broker's operator is told.
    #[serde(skip)]
    pub token: Option<TokenName>,
    /// See `token`.
    #[serde(skip)]
    pub old: Vec<String>,
    /// What its session does: `away`, `waits for its user` (`waits for you`, where that reads it), `stuck`
    /// (unseen mail does not wake it), `busy`, `idle`; `online` where its client does not say.
    pub state: &'static str,
    /// What was tried to wake it, while it is stuck, in its own words: in quotes. Without them: its adapter is
    /// stopped, which is seen on its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<String>,
    /// The word of `state` in its presence: `idle`, `busy`, `waiting` or `stuck`. Absent: not known, as of
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
    /// Messages for it that are not acked: unseen, held and paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unacked: Option<u64>,
    /// Requests that it has not answered. Absent: none, or not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owes: Option<u64>,
    /// Seconds since it was last connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_s: Option<u64>,
    /// So much of its mail waits for its user. Absent, like the next: none, or not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<usize>,
    /// So much of its mail the loop governor keeps from its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<usize>,
}

impl PeerView {
    /// Reads what the broker says of a peer, and what the peer says of itself. Members of its
    /// presence that have another type than expected say nothing.
    #[must_use]
    pub fn new(entry: &PeerEntry, audience: Audience) -> Self {
        let said = presence(entry);
        let text = |key: &str| said.get(key).and_then(Value::as_str);
        let short = |key: &str| text(key).map(|text| escape_name(text, TEXT_CHARS));
        let client = short("client").map(|name| match short("version") {
            Some(version) => format!("{name} {version}"),
            None => name,
        });
        // A broker gives up a connection that is stopped, and what it said last is its own still.
        let here = entry.online || entry.stopped;
        let activity = text("activity").and_then(activity).filter(|_| here);
        let is = match here {
            true => PeerState::of(activity),
            false => PeerState::Away,
        };
        let tried = text("tried").filter(|_| is == PeerState::Stuck);
        let mut known = Self {
            name: escape_name(&entry.name, TEXT_CHARS),
            online: entry.online,
            is,
            here: false,
            token: entry.token.clone(),
            old: (entry.old.iter())
                .map(|old| escape_name(old, TEXT_CHARS))
                .collect(),
            state: is.word(audience),
            tried: tried.map(|text| quoted(text, WHY_CHARS)),
            activity,
            activity_s: entry.activity_s.filter(|_| activity.is_some()),
            client: client.or_else(|| short("adapter")),
            project: short("project"),
            branch: short("branch"),
            groups: entry.groups.iter().map(ToString::to_string).collect(),
            pid: said.get("pid").and_then(Value::as_u64).filter(|_| here),
            tty: short("tty").filter(|tty| here && is_terminal(tty)),
            started: short("started").filter(|_| here),
            wake: said.get("wake").and_then(Value::as_array).map(|w| paths(w)),
            unwoken: text("unwoken").map(|text| escape(text, WHY_CHARS)),
            acks: acks(text("ack"), said.get("evidence").and_then(Value::as_bool)),
            unacked: entry.unacked,
            owes: entry.owes,
            away_s: entry.away_s.filter(|_| !here),
            held: None,
            paused: None,
        };
        // What it said last is old. A dialog may be open still.
        if entry.stopped && is != PeerState::Waits {
            known.is = PeerState::Stuck;
            known.state = known.is.word(audience);
            (known.tried, known.activity_s) = (Some(ADAPTER_STOPPED.into()), None);
        }
        known
    }

    /// Why nothing comes of mail for it as things are, as a sentence; `None` where it may take it.
    #[must_use]
    pub fn why_silent(&self, audience: Audience) -> Option<String> {
        let name = &self.name;
        // Of a moment nothing is said.
        let since = self.activity_s.filter(|seconds| *seconds > 0).map(span);
        let since = since.map_or_else(String::new, |since| format!(", for {since}"));
        Some(match (self.is, audience) {
            (PeerState::Waits, Audience::Owner) => {
                let tty = self.tty.as_ref();
                let place = tty.map_or_else(String::new, |tty| format!(" at {tty}"));
                format!("{name} {}{place}{since}", self.state)
            }
            // It may be answered by now, and not have gone on.
            (PeerState::Waits, Audience::Peer) => {
                format!("{name} says that it {}{since}", self.state)
            }
            // To let it go on does not let its mail in.
            (PeerState::Stuck, _) if self.held.is_none() => match self.tried.as_deref() {
                Some(ADAPTER_STOPPED) => format!("{name} is {}: {ADAPTER_STOPPED}", self.state),
                tried => {
                    let tried = tried.unwrap_or("it does not say why");
                    format!(
                        "{name} is {}{since}, as its adapter says: {tried}",
                        self.state
                    )
                }
            },
            _ if self.held.or(self.paused).is_some() => format!("{name} is {}", self.does()),
            _ => return None,
        })
    }

    /// A remedy for its user where it is stuck and nothing is known that lets it go on.
    #[must_use]
    pub fn look(&self) -> String {
        let process = self.pid.map(|pid| format!(" (process {pid})"));
        let place = match (&self.tty, process) {
            (Some(_), _) => "at its window".to_owned(),
            (None, process) => format!("where it runs{}", process.unwrap_or_default()),
        };
        format!("look {place}, or end it and start it anew")
    }

    /// So much of its mail is unseen, beside what is held and paused.
    #[must_use]
    pub fn unseen(&self) -> Option<u64> {
        let kept = self.held.into_iter().chain(self.paused).sum::<usize>();
        let unseen = |all: u64| all.saturating_sub(kept as u64);
        self.unacked.map(unseen)
    }

    /// It is here, or something is owed to it or by it.
    #[must_use]
    pub fn is_of_note(&self) -> bool {
        let owes = self.unacked.into_iter().chain(self.owes).any(|it| it > 0);
        self.is != PeerState::Away || owes
    }

    /// That no path can wake its agent, or none now; `None`: one can, or that is not known.
    #[must_use]
    pub fn asleep(&self) -> Option<String> {
        let name = &self.name;
        let asleep = self.online && self.wake.as_ref().is_some_and(Vec::is_empty);
        // A path that cannot be used now is named before its reason.
        let why = self.unwoken.as_ref().filter(|why| why.contains(": "));
        asleep.then(|| match why.map(|why| why.replace(['`', '"'], "'")) {
            Some(why) => format!("nothing wakes {name} as long as it says \"{why}\""),
            None => format!("nothing wakes {name}: it reads when it is told to"),
        })
    }

    /// Its state, since when, and what is kept from its agent: `waits for you 3 min, held 2`.
    #[must_use]
    pub fn does(&self) -> String {
        does(
            self.state,
            self.away_s.or(self.activity_s),
            [self.held, self.paused],
        )
    }
}

/// A state, for how many seconds it has been so, and how much mail is held and paused.
#[must_use]
pub fn does(state: &str, since_s: Option<u64>, [held, paused]: [Option<usize>; 2]) -> String {
    let since = since_s.map_or_else(String::new, |seconds| format!(" {}", span(seconds)));
    let kept = [("held", held), ("paused", paused)];
    let kept = kept
        .map(|(word, count)| count.map_or_else(String::new, |count| format!(", {word} {count}")));
    format!("{state}{since}{}", kept.concat())
}

/// What a peer says of itself, in JSON; null where it says nothing.
#[must_use]
pub fn presence(peer: &PeerEntry) -> Value {
    let said = peer.presence.as_ref();
    let said = said.and_then(|said| serde_json::from_str(said.as_str()).ok());
    said.unwrap_or_default()
}

fn activity(word: &str) -> Option<&'static str> {
    ["idle", "busy", "waiting", "stuck"]
        .into_iter()
        .find(|known| *known == word)
}

fn paths(list: &[Value]) -> Vec<String> {
    let words = list.iter().filter_map(Value::as_str).take(PATHS_MAX);
    words.map(|word| escape_name(word, PATH_CHARS)).collect()
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
