//! What runs beside a mailbox: mail comes in, deadlines pass, pushes go out.

use std::time::Duration;

use futures_util::future::{OptionFuture, join_all};
use peerbus_peer::mailbox::{Attempt, Named, Outcome, Path};
use peerbus_peer::session::SessionEvent;
use peerbus_wire::{How, Stage};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::agent::{AgentLink, WakePath};
use super::observe::observe;
use super::{Mailbox, State};
use crate::{Bus, LinkState, Liveness};

/// How long the broker may take to say that the name is still ours.
const ALIVE_WITHIN: Duration = Duration::from_secs(2);
/// Clients write so soon what their model said. Those that were measured take a tenth of it.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// After so long without a word of the broker's a session counts as one that was suspended.
const SILENT: Duration = Duration::from_secs(30);

/// Between two looks at a client whose process is stopped.
const STOPPED_PAUSE: Duration = Duration::from_secs(1);

/// The path of a message that is none of the agent's business.
const TAKEN: &str = "approval";

/// Which paths to ask whether they can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Probe {
    #[default]
    None,
    /// Those that could not be used.
    Absent,
    All,
}

impl State {
    pub(super) fn has_work(&self) -> bool {
        self.announce.is_some() || self.probe != Probe::None || !self.pushes.is_empty()
    }

    /// What there is to do now: tell the session its name, ask the paths whether they can be used, and
    /// only where there is nothing of that, push.
    fn work(&mut self) -> (Option<String>, Probe, Option<Attempt>) {
        let (name, probe) = (self.announce.take(), std::mem::take(&mut self.probe));
        let push = match (&name, probe) {
            (None, Probe::None) => self.pushes.pop_front(),
            _ => None,
        };
        (name, probe, push)
    }

    /// A path that could not be used may be there by now.
    pub(super) fn look_for_paths(&mut self) {
        if self.resting.is_some() || self.paths.values().any(Option::is_some) {
            self.probe = self.probe.max(Probe::Absent);
        }
    }

    /// A path can be used, or cannot, and why. Peers are told when that changes.
    pub(super) fn found(&mut self, bus: &Bus, path: Path, why_not: Option<String>) {
        // What notices a path need not know whether it may be used.
        if !self.offered.contains(&path) || self.paths.get(&path) == Some(&why_not) {
            return;
        }
        if let Some(why) = &why_not {
            tracing::debug!(path = path.word, why, "a wake path cannot be used");
        }
        self.paths.insert(path, why_not);
        let mut paths: Vec<_> = self.paths.iter().collect();
        paths.sort_by_key(|(path, _)| path.rank);
        let works = paths.iter().filter(|(_, why)| why.is_none());
        let words: Vec<_> = works.map(|(path, _)| path.word).collect();
        let reasons = paths.iter().filter_map(|(path, why)| {
            let why = why.as_deref()?;
            Some(format!("{}: {why}", path.word))
        });
        let reasons: Vec<_> = reasons.take_while(|_| words.is_empty()).collect();
        self.about.set_wake(bus, words, &reasons.join("; "));
    }
}

impl Mailbox {
    /// Runs the mailbox until the bus is closed. Nothing is pushed before `ready` says that the
    /// client takes pushes: it would drop them. `agent` may take until the client has introduced
    /// itself.
    pub async fn serve(
        &self,
        ready: watch::Receiver<bool>,
        agent: impl Future<Output = AgentLink>,
    ) {
        let reach = async { self.reach(ready, agent.await).await };
        tokio::join!(self.collect(), self.watch_deadlines(), reach);
    }

    /// Shows what is to be shown, and watches what comes of it.
    async fn reach(&self, mut ready: watch::Receiver<bool>, agent: AgentLink) {
        let AgentLink {
            paths,
            session,
            evidence,
            asleep,
            beside,
        } = agent;
        self.with(|state, _| {
            state.about.set_wake(&self.shared.bus, Vec::new(), &asleep);
            for path in &paths {
                state.machine.add_path(path.spec());
                state.offered.insert(path.spec());
            }
        });
        let push = async {
            if ready.wait_for(|ready| *ready).await.is_err() {
                std::future::pending::<()>().await;
            }
            self.push_all(&paths).await;
        };
        tokio::join!(
            push,
            observe(self, session.as_deref(), evidence),
            join_all(beside)
        );
    }

    async fn collect(&self) {
        while let Some(event) = self.shared.bus.next().await {
            let is_taken = |inbound: &_| self.observer().is_some_and(|it| it.takes(inbound));
            match &event {
                SessionEvent::Message(inbound) if is_taken(inbound) => {
                    let path = TAKEN.to_owned();
                    self.shared.bus.ack(&inbound.key, How::Pushed { path });
                }
                _ => {
                    if let SessionEvent::Message(inbound) = &event {
                        self.learn_names(&inbound.from).await;
                    }
                    let senders = self.shared.bus.shared().senders();
                    self.with(|state, now_ms| {
                        state.machine.set_senders(now_ms, &senders);
                        state.put(now_ms, event);
                    });
                }
            }
        }
    }

    /// A message arrives under this name: perhaps a peer with paused mail has it now.
    async fn learn_names(&self, from: &str) {
        let sent = self.with(|state, _| state.machine.sent_to_paused(from));
        if !sent.is_empty() {
            self.look_at(&sent, ALIVE_WITHIN).await;
        }
    }

    /// A tool call names this message: the agent has seen it, if it was shown it.
    pub fn named(&self, id: &str, from: Option<&str>) -> Named {
        self.machine(|it, now_ms| it.named(now_ms, id, from))
    }

    /// As [`Mailbox::named`], of several. Agents' clients write a conversation a moment after its words: where it is
    /// to show the answer that this call is, it has that moment.
    pub async fn named_in_conversation(&self, ids: &[&str]) -> Vec<Named> {
        let mut named: Vec<_> = ids.iter().map(|id| self.named(id, None)).collect();
        let deadline = sleep(WRITTEN_WITHIN);
        tokio::pin!(deadline);
        if named.contains(&Named::Awaited) {
            self.shared.goes_on.notify_one();
        }
        while named.contains(&Named::Awaited) {
            let further = self.shared.further.notified();
            for (one, id) in named.iter_mut().zip(ids) {
                if *one == Named::Awaited {
                    *one = match self.named(id, None) {
                        // It was acked, or else it left unseen.
                        Named::Unknown if self.machine(|it, _| it.remembers(id)) => Named::Seen,
                        other => other,
                    };
                }
            }
            tokio::select! {
                () = further => {}
                () = &mut deadline => break,
            }
        }
        named
    }

    /// Asks the broker about messages of this session's, each to one peer: where they are, and under which
    /// names. What is told of them meanwhile is no event, and stands in the answer.
    async fn look_at(&self, sent: &[String], within: Duration) {
        let answer = self.shared.bus.statuses(sent, within).await;
        let receipts = answer.unwrap_or_default();
        self.with(|state, now_ms| {
            let mut rest = receipts.iter().peekable();
            while let Some(receipt) = rest.next() {
                state.machine.learn_name(receipt);
                state.machine.heard(now_ms, receipt);
                let last = rest.peek().is_none_or(|next| next.id != receipt.id);
                if last && matches!(receipt.stage, Stage::Held { .. }) {
                    let (receipt, id) = (receipt.clone(), None);
                    state.put(now_ms, SessionEvent::Notice { receipt, id });
                }
            }
        });
    }

    async fn watch_deadlines(&self) {
        loop {
            let (due, stopped) =
                self.with(|state, _| (state.machine.poll_timeout(), state.machine.is_stopped()));
            let due = due.map(|due_ms| self.shared.start + Duration::from_millis(due_ms));
            let due = due.filter(|_| !stopped);
            let due = due.or_else(|| stopped.then(|| Instant::now() + STOPPED_PAUSE));
            tokio::select! {
                Some(()) = OptionFuture::from(due.map(sleep_until)) => {
                    self.is_client_stopped();
                    self.with(|state, now_ms| {
                        state.machine.handle_timeout(now_ms);
                        state.look_for_paths();
                    });
                }
                () = self.shared.deadline.notified() => {}
            }
        }
    }

    /// Looks whether the client's process is stopped: it reads nothing then.
    pub fn is_client_stopped(&self) -> bool {
        let client = self.with(|state, _| state.client.clone());
        let stopped = client.into_iter().any(peerbus_os::process::is_stopped);
        self.with(|state, now_ms| state.machine.set_stopped(now_ms, stopped));
        stopped
    }

    async fn push_all(&self, paths: &[Box<dyn WakePath>]) {
        self.with(|state, now_ms| {
            state.probe = Probe::All;
            state.machine.open(now_ms);
        });
        loop {
            let work = self.shared.work.notified();
            let (name, probe, push) = self.with(|state, _| state.work());
            for path in paths {
                if let Some(name) = &name {
                    path.announce(name).await;
                }
            }
            if probe != Probe::None {
                self.probe_paths(paths, probe).await;
            }
            match push {
                Some(attempt) => self.deliver(paths, &attempt).await,
                None => work.await,
            }
        }
    }

    async fn probe_paths(&self, paths: &[Box<dyn WakePath>], which: Probe) {
        for path in paths {
            let spec = path.spec();
            let works = self.with(|state, _| {
                let works = state.paths.get(&spec).is_some_and(Option::is_none);
                works && state.resting != Some(spec)
            });
            if which == Probe::All || !works {
                let found = path.probe().await;
                self.found(spec, found);
            }
        }
    }

    async fn deliver(&self, paths: &[Box<dyn WakePath>], attempt: &Attempt) {
        let path = paths.iter().find(|path| path.spec() == attempt.path);
        let usable = match path {
            Some(path) => path.probe().await.map(|()| path),
            None => Err("it is no path of this session".to_owned()),
        };
        let (outcome, why) = match usable {
            Ok(path) => {
                while self.is_client_stopped() {
                    sleep(STOPPED_PAUSE).await;
                }
                self.confirm_alive().await;
                let outcome = match self.push(attempt) {
                    Some(push) => path.wake(&push).await,
                    None => Outcome::Failed,
                };
                (outcome, "the client did not take a message".to_owned())
            }
            Err(why) => (Outcome::Failed, why),
        };
        tracing::debug!(path = attempt.path.word, ?outcome, "pushed");
        self.outcome(attempt.id, outcome);
        if outcome == Outcome::Failed {
            // It is asked whether it is still there.
            self.with(|state, _| {
                state.found(&self.shared.bus, attempt.path, Some(why));
                state.probe = state.probe.max(Probe::Absent);
            });
        }
    }

    /// Asked before anything is shown: a session that was suspended may hold what another one of
    /// its name has read meanwhile. Where the broker does not say that the name is still ours, all
    /// that waits counts as perhaps shown.
    pub async fn confirm_alive(&self) {
        let bus = &self.shared.bus;
        bus.catch_up().await;
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
