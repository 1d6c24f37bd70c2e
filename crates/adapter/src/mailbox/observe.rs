//! Watching the session: what it does, and what its conversation shows, as often as somebody wants
//! to know; and who beside the mailbox is told of that, and how far each message is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use peerbus_peer::mailbox::{AttemptId, MailboxMachine, Outcome};
use peerbus_peer::session::Inbound;
use peerbus_view::Words;
use peerbus_wire::{Receipt, Stage};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::agent::{Evidence, EvidenceSource, Readable, SessionSource, Snapshot};
use super::{Mailbox, Push, quote};

/// The first pause between two looks, and the longest, while something may soon be seen.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// When nothing was found for so long, looks are rarer.
const SOON: Duration = Duration::from_secs(300);
/// When everything is proven, the turn that proved it ends soon: so long after it is one more look
/// at what the session does.
const PAUSE_AFTER: Duration = Duration::from_secs(1);
/// After so long the client says which session it resumes; a few looks, at growing distances, see
/// it even on a slow machine.
const PAUSE_START: Duration = Duration::from_millis(250);
const PAUSE_START_MAX: Duration = Duration::from_secs(1);
/// Between two looks at a session from which nothing is expected, in the long run.
const PAUSE_IDLE: Duration = Duration::from_secs(30);
/// When no conversation is there so long after something was to be seen, there is none.
const APPEARS_WITHIN: Duration = Duration::from_secs(10);

/// How far a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Its sender's id for it.
    pub id: String,
    /// Its sender, or, of one that this session sent, its recipient where there is one.
    pub peer: Option<String>,
    /// This session sent it.
    pub sent: bool,
    /// How far.
    pub stage: Stage,
}

/// Is told what happens in a mailbox. Must not wait: it is called by whoever changes something.
pub trait Observer: Send + Sync {
    /// A message is so far.
    fn staged(&self, staged: &Staged);

    /// Somebody looked at the session. It need not have changed.
    fn looked(&self, session: &Snapshot);

    /// The session is [stuck](Mailbox::stuck), or is not any more; or other mail is held back.
    fn changed(&self);

    /// A message came. True: it is taken here, and nothing that the agent is to see.
    fn takes(self: Arc<Self>, inbound: &Inbound) -> bool;
}

/// How far messages of this session's own got, as a line: `📮 receipts: [{"id":…}]`.
pub(super) fn receipts_line(receipts: &[Receipt]) -> Option<String> {
    let entries: Vec<_> = receipts.iter().filter_map(receipt).collect();
    (!entries.is_empty()).then(|| format!("📮 receipts: {}", serde_json::Value::from(entries)))
}

/// A receipt as a JSON object with `id`, `to` and `stage`, if it says how far a message got at a
/// recipient.
#[must_use]
pub fn receipt(receipt: &Receipt) -> Option<serde_json::Value> {
    let (id, to, stage) = reached(receipt)?;
    Some(json!({ "id": id, "to": to, "stage": stage }))
}

pub(super) fn reached(receipt: &Receipt) -> Option<(&str, String, &'static str)> {
    let words = Words::of(&receipt.stage);
    let stage = match words.state {
        // Its peer says so, on evidence that nobody here knows.
        "acked" if words.evidence.is_some() => "seen, not proven",
        known @ ("seen" | "pushed" | "presented" | "acked") => known,
        _ => return None,
    };
    let to = quote::plain(receipt.to.as_deref()?);
    Some((receipt.id.as_str(), to, stage))
}

/// Texts of hooks, each up to its mark: any program below the client can take one and show the mark alone.
#[derive(Default)]
pub(super) struct Texts(BTreeMap<AttemptId, String>);

impl Texts {
    /// Whether one of these is all that an attempt shows before its mark.
    fn stand(&self, attempt: AttemptId, found: &[String]) -> bool {
        let text = self.0.get(&attempt);
        text.is_some_and(|text| found.iter().any(|found| found.ends_with(&**text)))
    }

    /// An attempt shows this; those that nobody looks for any more are forgotten.
    pub(super) fn keep(&mut self, push: &Push, machine: &MailboxMachine) {
        let Some(id) = push.attempt.filter(|id| machine.is_by_hook(*id)) else {
            return;
        };
        let watched: BTreeSet<_> = machine.watched().collect();
        self.0.retain(|id, _| watched.contains(id));
        self.0.extend(push.before_mark().map(|text| (id, text)));
    }
}

impl Staged {
    /// Of a message that came here.
    pub(super) fn here(inbound: &Inbound, stage: Stage) -> Self {
        Self {
            id: inbound.id.clone(),
            peer: Some(inbound.from.clone()),
            sent: false,
            stage,
        }
    }

    /// Of one that this session sent.
    pub(super) fn there(receipt: &Receipt) -> Self {
        Self {
            id: receipt.id.to_string(),
            peer: receipt.to.clone(),
            sent: true,
            stage: receipt.stage.clone(),
        }
    }
}

impl Mailbox {
    /// From now on this one is told. There is one at most: a second is not taken.
    pub fn observed_by(&self, observer: Weak<dyn Observer>) {
        let _ = self.shared.observer.set(observer);
    }

    pub(super) fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.shared.observer.get()?.upgrade()
    }

    /// Looks at the session; peers are told what it does.
    pub fn report(&self, session: &dyn SessionSource) -> Snapshot {
        let snapshot = session.snapshot();
        if let Some((id, is_new)) = session.binding(&snapshot) {
            self.shared.bus.bind_session(&id, is_new);
        }
        if let Some(id) = &snapshot.id {
            self.converses(id);
        }
        // Somebody else may know where the client says nothing.
        if let Some(activity) = snapshot.activity {
            self.activity(activity);
        }
        if let Some(observer) = self.observer() {
            observer.looked(&snapshot);
        }
        snapshot
    }

    /// The session is in this conversation.
    fn converses(&self, id: &str) {
        self.with(|state, now_ms| {
            let before = state.conversation.replace(id.to_owned());
            if before.is_some_and(|before| before != id) {
                state.machine.cleared(now_ms);
            }
        });
    }

    /// Takes in what the session's conversation shows.
    pub fn shows(&self, evidence: &Evidence) {
        if *evidence == Evidence::Anew {
            return self.with(|state, now_ms| state.machine.cleared(now_ms));
        }
        let Some(attempt) = self.attempt(evidence.mark()) else {
            return;
        };
        self.with(|state, now_ms| {
            let machine = &mut state.machine;
            let evidence = match evidence {
                Evidence::InResult(_) if !machine.is_in_result(attempt) => return,
                Evidence::Beside(..) if machine.is_in_result(attempt) => return,
                Evidence::Beside(_, texts)
                    if machine.is_by_hook(attempt) && !state.texts.stand(attempt, texts) =>
                {
                    return;
                }
                Evidence::InResult(found) | Evidence::Beside(found, _) => found,
                found => found,
            };
            match evidence {
                Evidence::Presented(_) => machine.presented(now_ms, attempt),
                Evidence::Answered(_) => machine.answered(now_ms, attempt),
                Evidence::Requested(_) => machine.shown_by_program(now_ms, attempt),
                Evidence::Called(_) => machine.model_called(now_ms, attempt),
                Evidence::Doubtful(_) => machine.outcome(now_ms, attempt, Outcome::Doubtful),
                Evidence::Stopped(_) => machine.stopped(now_ms, attempt),
                Evidence::Unshown(_) => machine.outcome(now_ms, attempt, Outcome::Dropped),
                Evidence::Unproven(_) => machine.unproven(now_ms, attempt),
                Evidence::Cut(_) => machine.cut(now_ms, attempt),
                Evidence::InResult(_) | Evidence::Beside(..) | Evidence::Anew => {}
            }
        });
    }

    fn set_evidence(&self, readable: bool) {
        self.with(|state, now_ms| state.machine.set_evidence(now_ms, readable));
    }

    /// Changes when something else waits here: mail, also mail that is kept, or requests.
    #[must_use]
    pub fn waits(&self) -> watch::Receiver<[usize; 4]> {
        self.shared.waits.subscribe()
    }

    /// Waits until there are marks to look for, or none.
    pub async fn watching(&self, any: bool) {
        // The sender lives as long as self: waiting cannot fail.
        let mut watched = self.shared.watched.subscribe();
        let _ = watched.wait_for(|watched| *watched == any).await;
    }
}

/// Tells the mailbox what the session does and what its conversation shows, until the session ends.
pub(super) async fn observe(
    mailbox: &Mailbox,
    session: Option<&dyn SessionSource>,
    mut evidence: Option<Box<dyn EvidenceSource>>,
) {
    let Some(session) = session else {
        return;
    };
    if let Some(evidence) = &evidence {
        let readable = evidence.readable(&session.snapshot());
        mailbox.set_evidence(readable != Readable::No);
    }
    let mut pause = PAUSE_START;
    let _last = LastLook(mailbox, session);
    loop {
        let snapshot = mailbox.report(session);
        // What is pushed in a moment will stand behind what is there now.
        if let Some(evidence) = &mut evidence {
            evidence.begin(&snapshot);
        }
        tokio::select! {
            () = mailbox.watching(true), if evidence.is_some() => {
                if let Some(evidence) = &mut evidence {
                    while_watched(mailbox, session, &mut **evidence).await;
                }
                pause = PAUSE_AFTER;
            }
            () = session.changed() => {}
            () = sleep(pause) => {
                pause = if pause < PAUSE_START_MAX { pause * 2 } else { PAUSE_IDLE };
            }
        }
    }
}

/// One last look when the session ends, in case its id changed after the previous one.
struct LastLook<'a>(&'a Mailbox, &'a dyn SessionSource);

impl Drop for LastLook<'_> {
    fn drop(&mut self) {
        self.0.report(self.1);
    }
}

async fn while_watched(
    mailbox: &Mailbox,
    session: &dyn SessionSource,
    evidence: &mut dyn EvidenceSource,
) {
    let since = Instant::now();
    let (mut pause, mut hoped) = (PAUSE_MIN, since);
    loop {
        let marks = mailbox.watched();
        if marks.is_empty() {
            return;
        }
        let snapshot = mailbox.report(session);
        let grown = evidence.watch(&snapshot, &marks, &mut |found| mailbox.shows(&found));
        if evidence.readable(&snapshot) == Readable::Now {
            mailbox.set_evidence(true);
        } else if since.elapsed() > APPEARS_WITHIN {
            mailbox.set_evidence(false);
        }
        if grown {
            (pause, hoped) = (PAUSE_MIN, Instant::now());
        }
        let rest = if hoped.elapsed() < SOON {
            pause
        } else {
            PAUSE_IDLE
        };
        tokio::select! {
            () = sleep(rest) => pause = (pause * 2).min(PAUSE_MAX),
            () = session.changed() => (pause, hoped) = (PAUSE_MIN, Instant::now()),
            () = mailbox.shared.goes_on.notified() => (pause, hoped) = (PAUSE_MIN, Instant::now()),
            () = mailbox.watching(false) => {}
        }
    }
}
