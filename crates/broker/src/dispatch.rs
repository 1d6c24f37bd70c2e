//! What becomes of the core's outputs: frames and closes go to the connection table, events to
//! the metrics and the log.

use std::sync::Arc;
use std::time::Duration;

use peerbus_core::broker::{BusEvent, Output};

use crate::shared::Shared;
use crate::table::Sent;

/// Lines of one kind (refusals of messages whose sender cannot be told, messages held back) that
/// are logged per [`LOG_WINDOW_MS`].
const REFUSALS_LOGGED_MAX: u32 = 10;
const LOG_WINDOW_MS: u64 = 10_000;
/// Longest reason of a peer that is logged, in characters.
const REASON_CHARS: usize = 200;

pub(crate) struct Dispatch {
    shared: Arc<Shared>,
    /// Time that a connection has to drain when it is closed.
    pub(crate) drain: Duration,
    refusals: LogLimit,
    holds: LogLimit,
}

impl Dispatch {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            drain: shared.times.drain_max,
            refusals: LogLimit::default(),
            holds: LogLimit::default(),
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
                    tracing::warn!(conn = conn.0, "connection closed: it does not read");
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

    fn log(&mut self, event: &BusEvent) {
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
            BusEvent::Refused {
                from,
                reason,
                told: false,
            } => {
                let now_ms = self.shared.clock.mono_ms();
                if let Some(omitted) = self.refusals.admit(now_ms) {
                    // The sender speaks v1, which has no way to tell it.
                    tracing::warn!(
                        from,
                        reason,
                        omitted,
                        "message refused, its sender not told"
                    );
                }
            }
            BusEvent::Held {
                from,
                to,
                id,
                reason,
            } => {
                let now_ms = self.shared.clock.mono_ms();
                if let Some(omitted) = self.holds.admit(now_ms) {
                    // What a peer wrote: it must not pass for a line of ours.
                    let reason = peerbus_wire::neutralise(reason, REASON_CHARS);
                    tracing::warn!(from, to, %id, reason, omitted, "message held back");
                }
            }
            _ => {}
        }
    }
}

/// Lets a bounded number of lines through per window of time.
#[derive(Debug, Default)]
struct LogLimit {
    window: u64,
    lines: u32,
    omitted: u64,
}

impl LogLimit {
    /// The number of lines omitted before this one, or `None` when this one is to be.
    fn admit(&mut self, now_ms: u64) -> Option<u64> {
        let window = now_ms / LOG_WINDOW_MS;
        if window != self.window {
            self.window = window;
            self.lines = 0;
        }
        if self.lines >= REFUSALS_LOGGED_MAX {
            self.omitted += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_logged_in_part_and_counted() {
        let mut limit = LogLimit::default();
        let logged = (0..1_000).filter(|_| limit.admit(5).is_some()).count();
        assert_eq!(logged, REFUSALS_LOGGED_MAX as usize);
        assert_eq!(
            limit.admit(LOG_WINDOW_MS + 5),
            Some(990),
            "the next window says how many"
        );
    }
}
