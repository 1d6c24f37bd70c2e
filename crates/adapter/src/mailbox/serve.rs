//! What runs beside a mailbox: mail comes in, deadlines pass, pushes go out.

use std::time::Duration;

use peerbus_core::mailbox::{Attempt, Outcome, Path};
use tokio::sync::watch;
use tokio::time::sleep_until;

use super::agent::{AgentLink, WakePath};
use super::observe::observe;
use super::{Mailbox, State};
use crate::{Bus, LinkState, Liveness};

/// How long the broker may take to say that the name is still ours.
const ALIVE_WITHIN: Duration = Duration::from_secs(2);

/// After so long without a word of the broker's a session counts as one that was suspended.
const SILENT: Duration = Duration::from_secs(30);

/// Which paths to ask whether they can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Probe {
    None,
    /// Those that could not be used.
    Absent,
    All,
}

/// Something to do for a client that takes pushes.
enum Job {
    /// Tell the session its name.
    Announce(String),
    /// Ask the paths whether they can be used.
    Probe(Probe),
    /// Show this.
    Push(Attempt),
}

impl State {
    pub(super) fn has_work(&self) -> bool {
        self.announce.is_some() || self.probe != Probe::None || !self.pushes.is_empty()
    }

    fn job(&mut self) -> Option<Job> {
        if let Some(name) = self.announce.take() {
            return Some(Job::Announce(name));
        }
        match std::mem::replace(&mut self.probe, Probe::None) {
            Probe::None => self.pushes.pop_front().map(Job::Push),
            probe => Some(Job::Probe(probe)),
        }
    }

    /// A path that could not be used may be there by now.
    pub(super) fn look_for_paths(&mut self) {
        if self.paths.values().any(|ready| !ready) {
            self.probe = self.probe.max(Probe::Absent);
        }
    }

    pub(super) fn found(&mut self, bus: &Bus, path: Path, ready: bool) {
        if self.paths.insert(path, ready) != Some(ready) {
            let mut works: Vec<Path> = self
                .paths
                .iter()
                .filter(|(_, r)| **r)
                .map(|p| *p.0)
                .collect();
            works.sort_by_key(|path| path.rank);
            let words = works.into_iter().map(|path| path.word).collect();
            self.about.set_wake(bus, words);
        }
    }
}

impl Mailbox {
    /// Runs the mailbox until the bus is closed. Nothing is pushed before `ready` says that the
    /// client takes pushes: it would drop them.
    pub async fn serve(&self, mut ready: watch::Receiver<bool>, agent: AgentLink) {
        let AgentLink {
            paths,
            session,
            evidence,
        } = agent;
        self.with(|state, _| {
            for path in &paths {
                state.machine.add_path(path.spec());
            }
        });
        let push = async {
            if ready.wait_for(|ready| *ready).await.is_err() {
                std::future::pending::<()>().await;
            }
            self.push_all(&paths).await;
        };
        tokio::join!(
            self.collect(),
            self.watch_deadlines(),
            push,
            observe(self, session.as_deref(), evidence)
        );
    }

    /// Waits a moment until the session is on the bus and gives its name; `Err` says why it is not.
    ///
    /// # Errors
    ///
    /// With a sentence on what the link does.
    pub async fn joined(&self, patience: Duration) -> Result<String, String> {
        let joined = self.shared.bus.joined(patience).await;
        joined.map_err(|state| state.to_string())
    }

    async fn collect(&self) {
        while let Some(event) = self.shared.bus.next().await {
            self.with(|state, now_ms| state.put(now_ms, event));
        }
    }

    async fn watch_deadlines(&self) {
        loop {
            let due = self.with(|state, _| state.machine.poll_timeout());
            let passed = async {
                match due {
                    Some(due_ms) => {
                        sleep_until(self.shared.start + Duration::from_millis(due_ms)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = passed => self.with(|state, now_ms| {
                    state.machine.handle_timeout(now_ms);
                    state.look_for_paths();
                }),
                () = self.shared.deadline.notified() => {}
            }
        }
    }

    async fn push_all(&self, paths: &[Box<dyn WakePath>]) {
        self.with(|state, now_ms| {
            state.probe = Probe::All;
            state.machine.open(now_ms);
        });
        loop {
            let work = self.shared.work.notified();
            match self.with(|state, _| state.job()) {
                Some(Job::Announce(name)) => {
                    for path in paths {
                        path.announce(&name).await;
                    }
                }
                Some(Job::Probe(which)) => self.probe_paths(paths, which).await,
                Some(Job::Push(attempt)) => self.deliver(paths, &attempt).await,
                None => work.await,
            }
        }
    }

    async fn probe_paths(&self, paths: &[Box<dyn WakePath>], which: Probe) {
        for path in paths {
            let spec = path.spec();
            let ready = self.with(|state, _| state.paths.get(&spec).copied());
            if which == Probe::All || ready != Some(true) {
                let usable = usable(&**path).await;
                self.set_path(spec, usable);
            }
        }
    }

    async fn deliver(&self, paths: &[Box<dyn WakePath>], attempt: &Attempt) {
        let path = paths.iter().find(|path| path.spec() == attempt.path);
        let outcome = match path {
            Some(path) if usable(&**path).await => {
                self.confirm_alive().await;
                match self.push(attempt) {
                    Some(push) => path.wake(&push).await,
                    None => Outcome::Failed,
                }
            }
            Some(_) | None => Outcome::Failed,
        };
        tracing::debug!(path = attempt.path.word, ?outcome, "pushed");
        self.outcome(attempt.id, outcome);
        if outcome == Outcome::Failed {
            // It is asked whether it is still there.
            self.with(|state, _| {
                state.found(&self.shared.bus, attempt.path, false);
                state.probe = state.probe.max(Probe::Absent);
            });
        }
    }

    /// Asked before anything is shown: a session that was suspended may hold what another one of
    /// its name has read meanwhile. Where the broker does not say that the name is still ours, all
    /// that waits counts as perhaps shown.
    pub async fn confirm_alive(&self) {
        let bus = &self.shared.bus;
        if self.with(|state, _| state.machine.unseen() == 0) {
            return;
        }
        let doubtful = match bus.confirm_alive(ALIVE_WITHIN).await {
            Liveness::Alive => false,
            Liveness::NoAnswer => true,
            // A broker that restarts takes no name away.
            Liveness::Lost => {
                let taken = matches!(*bus.link().borrow(), LinkState::Refused { .. });
                taken || !bus.shared().pulse.heard_within(SILENT)
            }
        };
        if doubtful {
            self.with(|state, now_ms| state.machine.doubt(now_ms));
        }
    }
}

async fn usable(path: &dyn WakePath) -> bool {
    let found = path.probe().await;
    if let Err(why) = &found {
        let path = path.spec().word;
        tracing::debug!(path, %why, "a wake path cannot be used");
    }
    found.is_ok()
}
