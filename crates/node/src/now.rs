//! What the sessions of this user do now, for the person whose agents they are.

#[cfg(test)]
mod tests;
mod ways;

use std::time::Duration;

use peerbus_adapter::wall_ms;
use peerbus_view::{ADAPTER_STOPPED, Audience, PeerState, PeerView, ago, does, quoted};
use peerbus_wire::{escape, from_rfc3339, printable, short_id};
use serde_json::{Value, json};

use crate::approvals::main_input;
use crate::client::{NodeClient, NodeRefusal, each};
use crate::gates::{Gates, closed_until_mended};
use crate::index::LiveSession;

pub use ways::SHOWS_HELD;

/// How long a session may take to tell: nobody waits longer for one that hangs.
pub const TELLS_WITHIN: Duration = Duration::from_secs(2);
/// Longest text of what is asked, in characters.
const ASKED_CHARS: usize = 80;
const NAME_CHARS: usize = 64;
const WHY_CHARS: usize = 160;

/// A session as its node tells of it.
#[derive(Debug)]
pub struct SessionNow {
    /// As the list has it.
    pub session: LiveSession,
    /// What it asks its user, each as in its event.
    pub approvals: Vec<Value>,
    /// It may ask more than that.
    pub unlisted: bool,
    /// Its last requests that are over, oldest first, and how they ended.
    pub over: Vec<Value>,
    /// Why the governor keeps mail from the agent, for each message that it keeps.
    pub paused: Vec<String>,
}

/// A request that was denied because nobody decided.
#[derive(Debug)]
pub struct Denial {
    /// When, wall clock in milliseconds.
    pub at_ms: u64,
    /// Whom, and what.
    pub what: String,
    /// Why nobody decided.
    pub why: String,
}

impl Denial {
    /// It as a sentence.
    #[must_use]
    pub fn says(&self, now_ms: u64) -> String {
        format!("{}, {}: {}", self.what, ago(self.at_ms, now_ms), self.why)
    }
}

impl SessionNow {
    /// Asks the node of a session.
    ///
    /// # Errors
    ///
    /// When that does not answer.
    pub fn ask(session: &LiveSession) -> Result<Self, NodeRefusal> {
        let mut client = NodeClient::connect(&session.socket)?.within(TELLS_WITHIN);
        let told = client.call("session/status", &json!({}))?;
        let text = |member: &str| told[member].as_str().map(str::to_owned);
        let list = |member: &str| told[member].as_array().cloned().unwrap_or_default();
        let paused = list("why_paused").into_iter();
        let paused = paused.filter_map(|why| Some(why.as_str()?.to_owned()));
        Ok(Self {
            session: LiveSession {
                asked: list("approvals").len(),
                name: text("name"),
                wanted_name: text("wanted_name"),
                status: text("status"),
                stuck: text("stuck"),
                stuck_at: text("stuck_at"),
                ..session.clone()
            },
            approvals: list("approvals"),
            unlisted: told["unlisted"] == true,
            over: list("over"),
            paused: paused.collect(),
        })
    }

    /// Asks all of these at the same time. One that does not answer is as the list has it, and said to be
    /// silent.
    #[must_use]
    pub fn all(sessions: Vec<LiveSession>) -> Vec<(Self, bool)> {
        // A stopped one would be waited for.
        let asked = each(&sessions, |session| match session.stopped {
            true => None,
            false => Self::ask(session).ok(),
        });
        let told = asked.into_iter().zip(sessions);
        let told = told.map(|(asked, session)| match asked.flatten() {
            Some(now) => (now, false),
            None => (Self::listed(session), true),
        });
        told.collect()
    }

    /// One that was not asked, or gave no answer.
    #[must_use]
    pub fn listed(session: LiveSession) -> Self {
        Self {
            session,
            approvals: Vec::new(),
            unlisted: false,
            over: Vec::new(),
            paused: Vec::new(),
        }
    }

    /// The state of the session.
    #[must_use]
    pub fn state(&self) -> PeerState {
        self.session.state()
    }

    /// The request of a dialog that stayed open after nobody had answered from elsewhere in time.
    #[must_use]
    pub fn lapsed(&self) -> Option<&Value> {
        let is_lapsed = |last: &&Value| last["by"] == "timeout" && last["decision"].is_null();
        self.last_over().filter(is_lapsed)
    }

    /// The request that was answered last, while its dialog is open still.
    #[must_use]
    pub fn answered(&self) -> Option<&Value> {
        let last = self.last_over();
        last.filter(|last| last["decision"].is_string())
    }

    /// The last request that is over, while the dialog is open that was its.
    fn last_over(&self) -> Option<&Value> {
        let last = self.over.last()?;
        let at = |text: Option<&str>| text.and_then(from_rfc3339);
        let since = at(self.session.active_at.as_deref());
        let waits = self.state() == PeerState::Waits && since <= at(last["at"].as_str());
        (waits && self.approvals.is_empty()).then_some(last)
    }

    /// Its last requests as far as they were denied since this time, because nobody decided. `of`: those of
    /// the turns that the message with this id was in.
    #[must_use]
    pub fn denied(&self, since_ms: u64, of: Option<&str>) -> Vec<Denial> {
        let denied = |last: &Value| {
            let last = Some(last).filter(|it| it["decision"] == "deny")?;
            let why = match last["by"].as_str()? {
                "timeout" => "nobody decided in time".to_owned(),
                "nobody" => self.closed_then(),
                _ => return None,
            };
            let (name, asked) = (self.session.title(), gist(last));
            let id = shown(&last["request_id"], NAME_CHARS);
            Some(Denial {
                at_ms: last["at"].as_str().and_then(from_rfc3339)?,
                what: format!("{name} was denied {asked} [{id}]"),
                why,
            })
        };
        let is_meant = |over: &&Value| {
            let turn = over["turn"].as_array();
            of.is_none_or(|id| turn.is_some_and(|turn| turn.iter().any(|it| it == id)))
        };
        let last = self.over.iter().rev().filter(is_meant).map_while(denied);
        let mut all: Vec<_> = last.take_while(|it| it.at_ms >= since_ms).collect();
        all.reverse();
        all
    }

    /// That the gate was closed when something was asked, and whether it is now.
    fn closed_then(&self) -> String {
        let session = &self.session;
        let file = escape(&session.gates_file.display().to_string(), 4 * NAME_CHARS);
        let closed = || format!("it still is, in {file}");
        let now = match session.gates.approve {
            true => "it is open now".to_owned(),
            false => session.broken_gates().unwrap_or_else(closed),
        };
        format!("the gate `approve` was closed; {now}")
    }

    /// How much of its mail the loop governor keeps, and why the last of it; `None`: none.
    #[must_use]
    pub fn pause(&self) -> Option<String> {
        let why = escape(self.paused.last()?, 2 * WHY_CHARS);
        let why = why.strip_prefix("paused: ").unwrap_or(&why);
        let (name, count) = (self.session.title(), counted(self.paused.len(), "message"));
        Some(format!("paused at {name}: {count}: {why}"))
    }

    /// The same of one sender alone.
    #[must_use]
    pub fn of_sender(mut self, name: &str) -> Self {
        let named = format!(" of {}, ", name.to_ascii_lowercase());
        self.paused
            .retain(|why| why.to_ascii_lowercase().contains(&named));
        self
    }

    /// How many of its last requests were denied because nobody decided, and what tells of them; `None`: none.
    #[must_use]
    pub fn denials(&self) -> Option<(String, String)> {
        let count = Some(self.denied(0, None).len()).filter(|count| *count > 0)?;
        let name = escape(self.session.name.as_ref()?, NAME_CHARS);
        let count = counted(count, "request");
        let says = format!("denied at {name}: {count}, since nobody decided");
        Some((says, format!("`peerbus status {name}`")))
    }
}

impl LiveSession {
    /// Its name for people; one that is not on the bus has none there.
    #[must_use]
    pub fn title(&self) -> String {
        let name = |name: &str| escape(name, NAME_CHARS);
        match (&self.name, &self.wanted_name) {
            (Some(own), _) => name(own),
            (None, Some(wanted)) => format!("{} (off the bus)", name(wanted)),
            (None, None) => name(short_id(&self.id)),
        }
    }

    /// What the session does, as the list has it.
    #[must_use]
    pub fn state(&self) -> PeerState {
        match PeerState::of(self.status.as_deref()) {
            // Nobody can answer what a driver asked that is stopped.
            _ if self.stopped && self.windowless => PeerState::Stuck,
            PeerState::Waits => PeerState::Waits,
            // A client without a screen asks while it works. A request that nobody may allow is denied at once.
            _ if self.asked > 0 && (!self.windowless || self.gates.has_approvers()) => {
                PeerState::Waits
            }
            _ if self.stopped || self.stuck.is_some() => PeerState::Stuck,
            PeerState::Online if self.name.is_none() => PeerState::Away,
            state => state,
        }
    }

    /// What was tried to wake it, in quotes; or that its adapter is stopped.
    #[must_use]
    pub fn tried(&self) -> Option<String> {
        match (self.stopped, &self.stuck) {
            (true, _) => Some(ADAPTER_STOPPED.to_owned()),
            (false, why) => why.as_deref().map(|why| quoted(why, WHY_CHARS)),
        }
    }

    /// The process of its client, as its peers are told, or of its adapter where that is not known.
    #[must_use]
    pub fn process(&self) -> String {
        let stem = self.socket.file_stem().unwrap_or_default();
        let stem = stem.to_string_lossy();
        // The socket is called by both.
        let called = stem.split('.').find(|it| *it != "0").unwrap_or_default();
        let told = self.pid.map(|pid| pid.to_string());
        let process = told.unwrap_or_else(|| escape(called, NAME_CHARS));
        format!("process {process}")
    }

    /// Its process, and its directory where that is known.
    #[must_use]
    pub fn place(&self) -> String {
        let process = self.process();
        match &self.cwd {
            Some(cwd) => {
                let cwd = escape(&cwd.display().to_string(), 4 * NAME_CHARS);
                format!("{process} in {cwd}")
            }
            None => process,
        }
    }

    /// Its word, for its user.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.state().word(Audience::Owner)
    }

    /// Its state as lists have it, given the wall clock: since when, and what is kept from its agent.
    #[must_use]
    pub fn does(&self, now_ms: u64) -> String {
        let since = self.since_s(now_ms);
        let [held, paused] = [self.held, self.paused].map(|it| Some(it).filter(|n| *n > 0));
        does(self.word(), since, [held, paused])
    }

    /// For how many seconds it has been in its state, given the wall clock; `None`: that is not known.
    fn since_s(&self, now_ms: u64) -> Option<u64> {
        let state = self.state();
        let since = match state {
            PeerState::Stuck => self.stuck_at.as_ref().filter(|_| !self.stopped),
            _ => self.active_at.as_ref(),
        };
        let is_told = state == PeerState::Stuck || state == PeerState::of(self.status.as_deref());
        let since = since.filter(|_| is_told && self.status.is_some());
        since
            .and_then(|at| from_rfc3339(at))
            .map(|at_ms| now_ms.saturating_sub(at_ms) / 1_000)
    }

    /// Whether its client tells what it does: of one that does not it is not known whether it asks something.
    #[must_use]
    pub const fn tells(&self) -> bool {
        self.status.is_some()
    }

    /// That every gate is closed, since the file cannot be understood, and why; `None`: it can.
    #[must_use]
    pub fn broken_gates(&self) -> Option<String> {
        let why = Gates::read(&self.gates_file).err()?;
        Some(printable(&closed_until_mended(&why)))
    }

    /// Adds what is known here alone to what the bus knows of the session, for its user.
    pub fn add_to(&self, peer: &mut PeerView) {
        peer.here = true;
        let state = self.state();
        let here = peer.is != PeerState::Away;
        if here && state != PeerState::Online && peer.is != state {
            (peer.is, peer.state, peer.activity_s) = (state, state.word(Audience::Owner), None);
        }
        if peer.is == PeerState::Stuck {
            peer.tried = self.tried();
        }
        // A broker counts from its own start at the earliest.
        if here && peer.is == state {
            peer.activity_s = self.since_s(wall_ms()).or(peer.activity_s);
        }
        peer.held = Some(self.held).filter(|count| *count > 0);
        peer.paused = Some(self.paused).filter(|count| *count > 0);
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// The word for a decision about a request.
#[must_use]
pub fn decided(event: &Value) -> &'static str {
    match event["decision"].as_str() {
        Some("allow") if event["answers"].is_object() || event["question"] == true => "answered",
        Some("allow") => "allowed",
        Some("deny") => "denied",
        Some("allow_always") => "allowed, by a rule from now on",
        _ => "over",
    }
}

/// A request in a few words: `Bash: "npm test"`, or its questions: `"Which colour?" (1 Red, 2 Blue)`.
fn gist(request: &Value) -> String {
    if let Some(questions) = request["questions"].as_array() {
        let shown: Vec<_> = questions.iter().map(question).collect();
        return shown.join(", and ");
    }
    let input = plain(&main_input(request), ASKED_CHARS);
    let tool = request["tool"].as_str().unwrap_or_default();
    // Some agents give a call its command for a title.
    if plain(tool.trim_matches('`'), ASKED_CHARS) == input {
        return format!("\"{input}\"");
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    let tool = match tool.len() <= NAME_CHARS && tool.chars().all(is_name) {
        true => tool.to_owned(),
        false => format!("\"{}\"", plain(tool, NAME_CHARS)),
    };
    format!("{tool}: \"{input}\"")
}

fn question(question: &Value) -> String {
    let text = |value: &Value| plain(value.as_str().unwrap_or_default(), ASKED_CHARS);
    let options = question["options"].as_array().into_iter().flatten();
    let options = options.enumerate();
    let options = options.map(|(at, option)| format!("{} {}", at + 1, text(&option["label"])));
    let options: Vec<_> = options.collect();
    format!(
        "\"{}\" ({})",
        text(&question["question"]),
        options.join(", ")
    )
}

/// The beginning of a text for people, on one line, in which nothing reads like a command of ours.
fn plain(text: &str, chars: usize) -> String {
    let (shown, more) = match text.char_indices().nth(chars) {
        Some((end, _)) => (&text[..end], "…"),
        None => (text, ""),
    };
    printable(shown)
        .replace(['\n', '\t'], " ")
        .replace(['`', '"'], "'")
        + more
}

fn shown(value: &Value, chars: usize) -> String {
    escape(value.as_str().unwrap_or_default(), chars)
}
