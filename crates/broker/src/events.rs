//! What happens, as a stream for the operator.
//!
//! Only while somebody listens, and for a moment after, does the core tell of messages and is
//! anything kept. Each reader goes through the log at its own pace; one that falls behind what is
//! kept is cut, with a sentence.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peerbus_core::broker::BusEvent;
use peerbus_os::sync::lock;
use peerbus_view::{Around, MessageView, StepView};
use peerbus_wire::{Accepted, Receipt, Stage};
use serde_json::json;
use tokio::sync::watch;

/// Events that are kept at most,
const EVENTS_MAX: usize = 8_192;
/// and bytes of them, of several.
const BYTES_MAX: usize = 16 * 1_048_576;
pub(crate) const STREAMS_MAX: usize = 64;
/// How long the log goes on when nobody listens any more, so that whoever comes back misses nothing.
pub(crate) const LINGER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Events {
    /// Tells this process from others, in cursors.
    boot: u64,
    watched: AtomicBool,
    log: Mutex<Log>,
    /// The number of the newest event; to be woken by.
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Log {
    /// The number of the first event that is kept.
    first: u64,
    events: VecDeque<Arc<str>>,
    bytes: usize,
    readers: usize,
    /// How often somebody came or left.
    turns: u64,
    closed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// An event, and its number.
    Event(u64, Arc<str>),
    Nothing,
    /// What should come next is not kept any more.
    Gone,
    /// The broker stops.
    Closed,
}

impl Events {
    pub(crate) fn new(boot: u64) -> Self {
        Self {
            boot,
            watched: AtomicBool::new(false),
            log: Mutex::new(Log {
                first: 1,
                ..Log::default()
            }),
            newest: watch::Sender::new(0),
        }
    }

    /// Tells of what the core said, if somebody listens.
    pub(crate) fn note(&self, event: &BusEvent, now_ms: impl FnOnce() -> u64) {
        if self.watched.load(Ordering::Acquire)
            && let Some((kind, data)) = written(event, now_ms)
        {
            self.push(kind, &data);
        }
    }

    fn push(&self, kind: &str, data: &str) {
        let mut log = lock(&self.log);
        let number = log.first + log.events.len() as u64;
        let event = format!(
            "id: {}-{number}\nevent: {kind}\ndata: {data}\n\n",
            self.boot
        );
        log.bytes += event.len();
        log.events.push_back(event.into());
        while log.events.len() > EVENTS_MAX || log.bytes > BYTES_MAX && log.events.len() > 1 {
            if let Some(oldest) = log.events.pop_front() {
                log.bytes -= oldest.len();
                log.first += 1;
            }
        }
        drop(log);
        self.newest.send_replace(number);
    }

    /// Whether what happens is kept.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    /// Counts a reader; `None` when there are as many as may be. Says whether the core must be told
    /// to watch.
    pub(crate) fn enter(&self) -> Option<bool> {
        let mut log = lock(&self.log);
        if log.readers >= STREAMS_MAX {
            return None;
        }
        log.readers += 1;
        log.turns += 1;
        Some(!self.watched.swap(true, Ordering::AcqRel))
    }

    /// A reader has gone. Says, when it was the last, what [`Events::end`] is to be told in a while.
    pub(crate) fn leave(&self) -> Option<u64> {
        let mut log = lock(&self.log);
        log.readers -= 1;
        log.turns += 1;
        (log.readers == 0).then_some(log.turns)
    }

    /// Ends the log unless somebody came since. Says whether it ended.
    pub(crate) fn end(&self, turn: u64) -> bool {
        let mut log = lock(&self.log);
        if log.turns != turn {
            return false;
        }
        self.watched.store(false, Ordering::Release);
        log.first += log.events.len() as u64;
        log.events.clear();
        log.bytes = 0;
        true
    }

    /// The broker stops: every stream ends.
    pub(crate) fn close(&self) {
        lock(&self.log).closed = true;
        self.newest.send_modify(|_| {});
    }

    /// To be woken by when something happens.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    pub(crate) fn next(&self, after: u64) -> Next {
        let log = lock(&self.log);
        let number = after + 1;
        let Some(at) = number.checked_sub(log.first) else {
            return Next::Gone;
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        match log.events.get(at) {
            Some(event) => Next::Event(number, Arc::clone(event)),
            None if at > log.events.len() => Next::Gone,
            None if log.closed => Next::Closed,
            None => Next::Nothing,
        }
    }

    pub(crate) fn last(&self) -> u64 {
        let log = lock(&self.log);
        log.first + log.events.len() as u64 - 1
    }

    pub(crate) fn cursor(&self, number: u64) -> String {
        format!("{}-{number}", self.boot)
    }

    /// The event that a cursor of this process is behind, if what follows is kept.
    pub(crate) fn resume(&self, cursor: &str) -> Option<u64> {
        let (boot, number) = cursor.split_once('-')?;
        let number = number.parse().ok()?;
        let ours = boot.parse() == Ok(self.boot) && number < u64::MAX;
        (ours && self.next(number) != Next::Gone).then_some(number)
    }
}

/// An event's kind and its data, on one line.
fn written(event: &BusEvent, now_ms: impl FnOnce() -> u64) -> Option<(&'static str, String)> {
    let peer = |kind, mut data: serde_json::Value| {
        data["at"] = now_ms().into();
        Some((kind, data.to_string()))
    };
    match event {
        BusEvent::Taken {
            seq,
            id,
            from,
            recipients,
            at_ms,
            envelope,
        } => {
            let accepted = Accepted {
                recipients: *recipients,
                online: 0,
                duplicate: false,
            };
            let receipt = Receipt {
                at_ms: Some(*at_ms),
                ..Receipt::new(id.clone(), Stage::Accepted(accepted))
            };
            let view = MessageView {
                seq: seq.0,
                from: from.clone(),
                at: *at_ms,
                ..MessageView::new(id, &[receipt], None, Around::alone(*at_ms))
            };
            Some(("accepted", view.write(Some(envelope))))
        }
        BusEvent::Step { seq, from, receipt } => {
            let kind = match &receipt.stage {
                stage if stage.is_final() => "settled",
                Stage::Delivered => "delivered",
                _ => "step",
            };
            let step = StepView {
                seq: seq.0,
                id: receipt.id.as_str().to_owned(),
                from: from.clone(),
                at: receipt.at_ms,
                step: receipt.into(),
            };
            Some((kind, json!(step).to_string()))
        }
        BusEvent::Registered { name, takeover, .. } => {
            peer("registered", json!({ "name": name, "takeover": takeover }))
        }
        BusEvent::Presence { name } => peer("presence", json!({ "name": name })),
        BusEvent::Left { name } => peer("left", json!({ "name": name })),
        BusEvent::Renamed { from, to } => peer("renamed", json!({ "from": from, "to": to })),
        BusEvent::Retired { name, successor } => {
            peer("retired", json!({ "name": name, "successor": successor }))
        }
        BusEvent::Forgotten { name, .. } => peer("forgotten", json!({ "name": name })),
        BusEvent::Refused { from, reason, .. } => {
            peer("refused", json!({ "from": from, "reason": reason }))
        }
        BusEvent::DiskFull { full, free } => {
            peer("disk_full", json!({ "full": full, "free": free }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use peerbus_wire::{How, MessageId, Seq};

    use super::*;

    fn left(name: &str) -> BusEvent {
        BusEvent::Left { name: name.into() }
    }

    #[test]
    fn nothing_is_kept_while_nobody_listens() {
        let events = Events::new(7);
        events.note(&left("ada"), || unreachable!("nobody asks"));
        assert_eq!(events.enter(), Some(true));
        assert_eq!(events.enter(), Some(false));
        events.note(&left("bob"), || 5);
        let text = "id: 7-1\nevent: left\ndata: {\"at\":5,\"name\":\"bob\"}\n\n";
        assert_eq!(events.next(0), Next::Event(1, text.into()));
        assert_eq!(events.next(1), Next::Nothing);
        assert_eq!(events.leave(), None);
        let turn = events.leave().unwrap();
        assert_eq!(events.resume("7-0"), Some(0), "for a moment");
        events.enter().unwrap();
        assert!(!events.end(turn), "somebody came back");
        let turn = events.leave().unwrap();
        assert!(events.end(turn));
        assert_eq!(events.resume("7-0"), None);
        assert_eq!(events.resume("7-1"), Some(1), "nothing was missed");
    }

    #[test]
    fn a_message_and_its_steps_are_told_as_they_are_when_they_are_asked_for() {
        let id = MessageId::parse("m1").unwrap();
        let envelope = r#"{"body":1.50}"#;
        let taken = BusEvent::Taken {
            seq: Seq(7),
            id: id.clone(),
            from: "ada".into(),
            recipients: 1,
            at_ms: 9,
            envelope: envelope.into(),
        };
        let (kind, data) = written(&taken, || 0).unwrap();
        let view: MessageView = serde_json::from_str(&data).unwrap();
        assert_eq!(
            (kind, &*view.state, view.seq, view.at),
            ("accepted", "accepted", 7, 9)
        );
        let note = "the broker has it on disk; nothing more is known";
        assert_eq!((view.steps.len(), &*view.note), (1, note));
        assert_eq!(view.envelope.unwrap().get(), envelope);
        let (path, evidence) = ("drain".into(), "tool_call".into());
        let seen = Stage::Acked(Some(How::Seen { path, evidence }));
        let step = BusEvent::Step {
            seq: Seq(7),
            from: "ada".into(),
            receipt: Receipt {
                to: Some("bob".into()),
                ..Receipt::new(id, seen)
            },
        };
        let (kind, data) = written(&step, || 0).unwrap();
        let view: StepView = serde_json::from_str(&data).unwrap();
        assert_eq!((kind, &*view.step.state), ("settled", "seen"));
        assert_eq!(view.step.to.as_deref(), Some("bob"));
    }

    #[test]
    fn what_is_kept_is_bounded_and_a_cursor_that_is_gone_is_known() {
        let events = Events::new(7);
        events.enter().unwrap();
        for n in 0..EVENTS_MAX + 10 {
            events.note(&left(&n.to_string()), || 5);
        }
        assert_eq!(events.next(0), Next::Gone);
        assert!(matches!(events.next(10), Next::Event(11, _)));
        for gone in [
            "7-3",
            "6-20",
            "7-99999",
            "7-",
            "x",
            "",
            "7-18446744073709551615",
        ] {
            assert_eq!(events.resume(gone), None, "{gone}");
        }
        events.note(&left(&"x".repeat(BYTES_MAX)), || 5);
        assert_eq!(
            events.next(events.last() - 1),
            events.next(EVENTS_MAX as u64 + 10)
        );
        events.close();
        assert_eq!(events.next(events.last()), Next::Closed);
    }

    #[test]
    fn as_many_listen_as_may() {
        let events = Events::new(7);
        assert!((0..STREAMS_MAX).all(|_| events.enter().is_some()));
        assert_eq!(events.enter(), None);
        events.leave();
        assert!(events.enter().is_some());
    }
}
