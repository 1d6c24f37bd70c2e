//! What becomes of the core's outputs: frames and closes go to the connection table, events to
//! the metrics and the log.

use std::sync::Arc;
use std::time::Duration;

use peerbus_core::broker::{BusEvent, Output};

use crate::shared::Shared;
use crate::table::Sent;

/// Lines of one kind that are logged per [`LOG_WINDOW_MS`]; of the rest their number.
const LINES_MAX: u64 = 10;
const LOG_WINDOW_MS: u64 = 10_000;
/// Longest reason of a peer that is logged, in characters.
const REASON_CHARS: usize = 200;

pub(crate) struct Dispatch {
    shared: Arc<Shared>,
    /// Time that a connection has to drain when it is closed.
    pub(crate) drain: Duration,
    log: LogLimit,
}

impl Dispatch {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            drain: shared.times.drain_max,
            log: LogLimit::default(),
            shared,
        }
    }

    pub(crate) fn output(&mut self, output: Output) {
        match output {
            Output::Send(conn, frame) => match self.shared.table.send(conn, frame, self.drain) {
                Sent::Queued | Sent::Gone => {}
                Sent::Spared => {
                    self.shared.metrics.spared.inc();
                }
                Sent::Overflow => {
                    self.shared.metrics.overflows.inc();
                    if self.may_log(Kind::Overflow) {
                        tracing::warn!(conn = conn.0, "connection closed: it does not read");
                    }
                }
            },
            Output::Ping(conn) => self.shared.table.ping(conn),
            Output::Close(conn, reason) => self.shared.table.close(conn, reason, self.drain),
            Output::Event(event) => {
                self.shared.metrics.count(&event);
                self.log(&event);
            }
        }
    }

    /// Whether another line of this kind may be logged.
    fn may_log(&mut self, kind: Kind) -> bool {
        self.sum_up(self.shared.clock.mono_ms());
        self.log.admit(kind)
    }

    /// Says what was left out, when it is time to; with the greatest time, at the end.
    pub(crate) fn sum_up(&mut self, now_ms: u64) {
        self.log.sum_up(now_ms);
    }

    /// When there is something to sum up.
    pub(crate) fn sum_due_ms(&self) -> Option<u64> {
        self.log.due_ms()
    }

    fn log(&mut self, event: &BusEvent) {
        match event {
            BusEvent::DiskFull { full: true, free } => {
                tracing::warn!(
                    free,
                    "the disk is nearly full: new mail is refused until there is room"
                );
            }
            BusEvent::DiskFull { full: false, free } => {
                tracing::info!(free, "the disk has room again: new mail is taken");
            }
            _ => {}
        }
        let Some(kind) = Kind::of(event) else {
            return;
        };
        if !self.may_log(kind) {
            return;
        }
        match event {
            BusEvent::Registered { name, takeover } => {
                tracing::info!(peer = name, takeover, "peer registered");
            }
            BusEvent::Renamed { from, to } => tracing::info!(from, to, "peer renamed"),
            BusEvent::Retired { name, successor } => {
                tracing::info!(peer = name, successor, "name ended for good");
            }
            BusEvent::Left { name } => tracing::info!(peer = name, "peer left"),
            BusEvent::Denied { reason } => tracing::info!(reason = reason.text(), "peer denied"),
            BusEvent::Refused { from, reason, .. } => {
                // The sender speaks v1, which has no way to tell it.
                tracing::warn!(from, reason, "message refused, its sender not told");
            }
            BusEvent::Held {
                from,
                to,
                id,
                reason,
            } => {
                // What a peer wrote: it must not pass for a line of ours.
                let reason = peerbus_wire::escape(reason, REASON_CHARS);
                tracing::warn!(from, to, %id, reason, "message held back");
            }
            _ => {}
        }
    }
}

/// Kinds of lines that clients can bring about.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Registered,
    Renamed,
    Retired,
    Left,
    Denied,
    Refused,
    Held,
    Overflow,
}

impl Kind {
    /// What the lines of each kind are called in a sum, in the order of the kinds.
    const WORDS: [&str; 8] = [
        "peers registered",
        "peers renamed",
        "names ended for good",
        "peers left",
        "peers denied",
        "messages refused",
        "messages held back",
        "connections closed that do not read",
    ];

    /// `None`: no line.
    fn of(event: &BusEvent) -> Option<Self> {
        match event {
            BusEvent::Registered { .. } => Some(Self::Registered),
            BusEvent::Renamed { .. } => Some(Self::Renamed),
            BusEvent::Retired { .. } => Some(Self::Retired),
            BusEvent::Left { .. } => Some(Self::Left),
            BusEvent::Denied { .. } => Some(Self::Denied),
            BusEvent::Refused { told: false, .. } => Some(Self::Refused),
            BusEvent::Held { .. } => Some(Self::Held),
            _ => None,
        }
    }
}

/// Lets a bounded number of lines of each kind through per window of time.
#[derive(Debug, Default)]
struct LogLimit {
    window: u64,
    lines: [u64; Kind::WORDS.len()],
}

impl LogLimit {
    /// Counts a line; whether it is to be logged.
    fn admit(&mut self, kind: Kind) -> bool {
        let lines = &mut self.lines[kind as usize];
        *lines += 1;
        *lines <= LINES_MAX
    }

    /// Once a window has passed: logs how many lines it left out, and begins anew.
    fn sum_up(&mut self, now_ms: u64) {
        let window = now_ms / LOG_WINDOW_MS;
        if window != self.window {
            for (what, more) in self.omitted() {
                tracing::warn!(more, "{what}: not logged one by one");
            }
            self.window = window;
            self.lines = Default::default();
        }
    }

    fn omitted(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let more = self
            .lines
            .iter()
            .map(|lines| lines.saturating_sub(LINES_MAX));
        Kind::WORDS
            .into_iter()
            .zip(more)
            .filter(|(_, more)| *more > 0)
    }

    fn due_ms(&self) -> Option<u64> {
        let end_ms = |_| (self.window + 1) * LOG_WINDOW_MS;
        self.omitted().next().map(end_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_kind_is_logged_in_part_and_counted() {
        let mut limit = LogLimit::default();
        let logged = (0..1_000).filter(|_| limit.admit(Kind::Denied)).count();
        assert_eq!(logged, 10);
        assert!(limit.admit(Kind::Left), "another kind has its own");
        limit.sum_up(LOG_WINDOW_MS - 1);
        let omitted: Vec<_> = limit.omitted().collect();
        assert_eq!(omitted, [("peers denied", 990)]);
        assert_eq!(limit.due_ms(), Some(LOG_WINDOW_MS));
        limit.sum_up(LOG_WINDOW_MS);
        assert_eq!(limit.due_ms(), None);
        assert!(limit.admit(Kind::Denied), "the next window is another one");
    }
}
