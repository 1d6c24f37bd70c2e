//! What runs at a desk: mail comes in, deadlines pass, letters go out.

use std::time::Duration;

use peerbus_adapter::wake::{Outcome, Parcel, PathState};
use tokio::time::sleep_until;

use super::Desk;
use super::path::WakePath;
use super::state::{Probe, State};
use crate::rpc::Host;

/// Something to do for a client that takes pushes.
enum Job {
    /// Tell the session its name.
    Announce(String),
    /// Ask the paths whether they can be used.
    Probe(Probe),
    /// Show this.
    Push(Parcel),
}

impl State {
    pub(super) fn has_work(&self) -> bool {
        self.registered.is_some() || self.probe != Probe::None || !self.pushes.is_empty()
    }

    fn job(&mut self) -> Option<Job> {
        if let Some(name) = self.registered.take() {
            return Some(Job::Announce(name));
        }
        match std::mem::replace(&mut self.probe, Probe::None) {
            Probe::None => self.pushes.pop_front().map(Job::Push),
            probe => Some(Job::Probe(probe)),
        }
    }
}

impl Desk {
    /// Runs the desk until the bus is closed. Nothing is pushed before the client is initialized:
    /// it would drop it.
    pub(crate) async fn serve(&self, host: Host, paths: Vec<Box<dyn WakePath>>) {
        tokio::join!(
            self.collect(),
            self.watch_deadlines(),
            self.push(host, paths)
        );
    }

    /// Waits a moment until the session is on the bus and gives its name; `Err` says why it is not.
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
            let due = self.with(|state, _| state.ladder.poll_timeout());
            let passed = async {
                match due {
                    Some((due_ms, _)) => {
                        sleep_until(self.shared.start + Duration::from_millis(due_ms)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = passed => self.with(|state, now_ms| {
                    state.ladder.handle_timeout(now_ms);
                    state.look_for_paths();
                }),
                () = self.shared.deadline.notified() => {}
            }
        }
    }

    async fn push(&self, host: Host, paths: Vec<Box<dyn WakePath>>) {
        host.initialized().await;
        self.with(|state, now_ms| state.open(now_ms));
        loop {
            let work = self.shared.work.notified();
            match self.with(|state, _| state.job()) {
                Some(Job::Announce(name)) => {
                    for path in &paths {
                        path.announce(&name).await;
                    }
                }
                Some(Job::Probe(which)) => self.probe_paths(&paths, which).await,
                Some(Job::Push(parcel)) => self.deliver(&paths, &parcel).await,
                None => work.await,
            }
        }
    }

    async fn probe_paths(&self, paths: &[Box<dyn WakePath>], which: Probe) {
        for path in paths {
            let ready = self
                .with(|state, _| state.paths.get(&path.path()).copied() == Some(PathState::Ready));
            if which == Probe::All || !ready {
                self.probe_path(&**path).await;
            }
        }
    }

    async fn probe_path(&self, path: &dyn WakePath) {
        let state = match usable(path).await {
            true => PathState::Ready,
            false => PathState::Absent,
        };
        self.set_path(path.path(), state);
    }

    async fn deliver(&self, paths: &[Box<dyn WakePath>], parcel: &Parcel) {
        let path = paths.iter().find(|path| path.path() == parcel.path);
        let outcome = match path {
            Some(path) if usable(&**path).await => {
                let letter = self.letter(parcel);
                // Everything in it was seen meanwhile.
                if letter.items.is_empty() {
                    Outcome::Failed
                } else {
                    path.wake(&letter).await
                }
            }
            Some(_) | None => Outcome::Failed,
        };
        tracing::debug!(path = parcel.path.as_str(), ?outcome, "pushed");
        let failed = outcome == Outcome::Failed;
        self.told(parcel.id, outcome);
        if failed {
            self.with(|state, _| state.doubt(parcel.path));
        }
    }
}

async fn usable(path: &dyn WakePath) -> bool {
    let found = path.probe().await;
    if let Err(why) = &found {
        let (path, needs) = (path.path().as_str(), path.needs());
        tracing::debug!(path, %why, needs, "a wake path cannot be used");
    }
    found.is_ok()
}
