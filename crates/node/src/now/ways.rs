//! How its user lets a session go on.

use peerbus_adapter::hooks::processes_of;
use peerbus_adapter::wall_ms;
use peerbus_os as os;
use peerbus_view::{ADAPTER_STOPPED, PeerState, opens_approve, span};
use peerbus_wire::{escape, from_rfc3339};
use serde_json::Value;

use super::{NAME_CHARS, SessionNow, decided, gist, shown};
use crate::index::LiveSession;

/// The way out where mail is kept from an agent.
pub const SHOWS_HELD: &str = "`peerbus held` shows what is kept, and why";

impl SessionNow {
    /// Its state, and the words of its adapter where it is stuck.
    #[must_use]
    pub fn stands(&self) -> String {
        let session = &self.session;
        let title = match session.name {
            Some(_) => format!("{} ({})", session.title(), session.place()),
            None => session.title(),
        };
        let tried = session.tried().filter(|_| self.state() == PeerState::Stuck);
        let tried = tried.map_or_else(String::new, |tried| format!(": {tried}"));
        format!("{title} {}{tried}", session.does(wall_ms()))
    }

    /// How its user gets to mail that is held, or `paused` too, and lets it go on; `None`: it does without him.
    #[must_use]
    pub fn needs(&self, paused: bool) -> Option<String> {
        let session = &self.session;
        let look = || {
            let place = session.answered_at();
            let place = place.unwrap_or_else(|| "where it runs".into());
            format!("look {place}, or end it and start it anew")
        };
        let is_stuck = self.state() == PeerState::Stuck;
        let goes_on = || is_stuck.then(|| session.goes_on().unwrap_or_else(look));
        let is_kept = session.held > 0 || paused && session.paused > 0;
        let kept = is_kept.then(|| SHOWS_HELD.to_owned());
        let ways = kept.into_iter().chain(self.way_out().or_else(goes_on));
        Some(ways.collect::<Vec<_>>().join("; ")).filter(|ways| !ways.is_empty())
    }

    /// What it asks its user, and the ways to answer; `None`: it asks nothing.
    #[must_use]
    pub fn way_out(&self) -> Option<String> {
        if self.state() != PeerState::Waits && self.approvals.is_empty() {
            return None;
        }
        let Some(first) = self.session.first() else {
            return self.answers();
        };
        // Its adapter tells of it still where the client alone is stopped.
        let answered = self.answered().is_some();
        let is_told = answered || self.lapsed().is_some() || !self.approvals.is_empty();
        let joint = match answered {
            true => "; ",
            false => "; then ",
        };
        let then = match self.session.answered_at().filter(|_| !is_told) {
            Some(place) => format!("answer {place}"),
            None => self.answers()?,
        };
        Some(format!("{first}{joint}{then}"))
    }

    /// The same of one whose processes run.
    fn answers(&self) -> Option<String> {
        let session = &self.session;
        let place = session.answered_at();
        let Some(first) = self.approvals.first() else {
            let place = place?;
            return Some(match (self.lapsed(), self.answered()) {
                (Some(asked), _) => format!(
                    "{}, asked more than ten minutes ago: it is answered {place} only",
                    gist(asked)
                ),
                (None, Some(asked)) => format!(
                    "{} is {}, and it has not gone on yet: if it asks still, answer {place}",
                    gist(asked),
                    decided(asked)
                ),
                (None, None) => format!("what it asks is not known here: answer {place}"),
            });
        };
        let (or, too) = match place {
            None => (String::new(), ""),
            Some(place) => (format!("answer {place}, or "), ", too"),
        };
        let more = match (self.approvals.len(), self.unlisted) {
            (1, false) => String::new(),
            (all, false) => format!(" (and {} more)", all - 1),
            (all, true) => format!(
                " (and {} more, and not all that it asks is listed)",
                all - 1
            ),
        };
        let (asked, id) = (gist(first), shown(&first["request_id"], NAME_CHARS));
        let answers = match first["questions"].as_array() {
            Some(all) => {
                let numbers = " NUMBER".repeat(all.len());
                format!("`peerbus session answer {id}{numbers}`")
            }
            None => format!("`peerbus session approve {id}`"),
        };
        let ends = |open| session.ends(first, open);
        let there = or.replace(", or ", "; ");
        Some(match (session.gates.approve, session.broken_gates()) {
            (true, _) => format!("{asked}{more}: {or}{answers}{}", ends(true)),
            (false, Some(why)) => format!("{asked}{more}: {there}{why}"),
            (false, None) => format!(
                "{asked}{more}: {there}{}the gate `approve` is closed: {}; {answers} answers it then{too}",
                ends(false),
                session.opens()
            ),
        })
    }
}

impl LiveSession {
    /// When a request is denied that nobody answers, before or behind the way to answer it: the gate is `open`,
    /// or not. Empty where a dialog stays.
    fn ends(&self, request: &Value, open: bool) -> String {
        let until = request["until"].as_str().and_then(from_rfc3339);
        let Some(at_ms) = until.filter(|_| self.windowless) else {
            return String::new();
        };
        let left = span(at_ms.saturating_sub(wall_ms()).div_ceil(1_000));
        match (open, self.gates.remote.join(" or ")) {
            (true, _) => format!("; it is denied in {left}, if nobody answers"),
            (false, peers) if peers.is_empty() => format!("it is denied in {left}; "),
            (false, peers) => format!("it is denied in {left}, unless {peers} answers; "),
        }
    }

    /// Where its user answers it; `None`: nowhere, since `peerbus run` drives it.
    #[must_use]
    pub fn answered_at(&self) -> Option<String> {
        let place = match &self.tty {
            Some(tty) => format!("at {}", escape(tty, NAME_CHARS)),
            // It may have none just now: Codex keeps a thread whose window was closed.
            None => {
                let client = escape(&self.client, NAME_CHARS);
                format!("in its window ({client}, {})", self.place())
            }
        };
        (!self.windowless).then_some(place)
    }

    /// The command that lets its processes go on which are stopped, or that ends one that is stuck and in no
    /// window; `None`: none is stopped, and its window tells more.
    #[must_use]
    pub fn goes_on(&self) -> Option<String> {
        let is_stuck = self.windowless && self.stuck.is_some() && self.state() == PeerState::Stuck;
        let ends = || {
            let [_, adapter] = processes_of(&self.socket).filter(|_| is_stuck)?;
            Some(format!(
                "`kill {adapter}` ends it, and its mail waits for the next session of its name"
            ))
        };
        self.resumes().or_else(ends)
    }

    /// That it is stopped, and the command that lets it go on, before anything else helps; `None`: it is not.
    #[must_use]
    pub fn first(&self) -> Option<String> {
        let why = match self.stopped {
            true => ADAPTER_STOPPED,
            false => "its process is stopped",
        };
        Some(format!("{why}: {}", self.resumes()?))
    }

    /// The command that lets its processes go on which are stopped; `None`: none is.
    fn resumes(&self) -> Option<String> {
        let [client, adapter] = processes_of(&self.socket)?;
        let others = match (self.windowless, client) {
            (true, _) => os::process::descendants(adapter, |_| false),
            (false, 0) => os::process::starters(adapter),
            (false, client) => vec![client],
        };
        let all = [adapter].into_iter().chain(others);
        // Ctrl-Z stops both.
        let stopped = all.filter(|id| os::process::is_stopped(*id));
        let stopped = stopped.map(|id| format!(" {id}")).collect::<String>();
        (!stopped.is_empty()).then(|| format!("`kill -CONT{stopped}` lets it go on"))
    }

    /// How its gate `approve` is opened, or why its file has to be mended.
    #[must_use]
    pub fn opens(&self) -> String {
        let file = || escape(&self.gates_file.display().to_string(), 4 * NAME_CHARS);
        let broken = self.broken_gates();
        broken.unwrap_or_else(|| opens_approve(&file()))
    }
}
