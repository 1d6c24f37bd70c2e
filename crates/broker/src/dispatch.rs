//! What becomes of the core's outputs: frames and closes go to the connection table, events to
//! the metrics and the log.

use std::time::Duration;

use peerbus_core::broker::{BrokerOutput, BusEvent};

use crate::log_limit::Kind;
use crate::shared::Shared;
use crate::table::Sent;

/// Longest reason of a peer that is logged, in characters.
const REASON_CHARS: usize = 200;

impl Shared {
    /// `drain`: the time that a connection has to drain when it is closed.
    pub(crate) fn dispatch(&self, output: BrokerOutput, drain: Duration) {
        match output {
            BrokerOutput::Send(conn, frame) => match self.table.send(conn, frame, drain) {
                Sent::Queued | Sent::Gone => {}
                Sent::Spared => {
                    self.metrics.spared.inc();
                }
                Sent::Overflow => {
                    self.metrics.overflows.inc();
                    if self.may_log(Kind::Overflow) {
                        tracing::warn!(conn = conn.0, "connection closed: it does not read");
                    }
                }
            },
            BrokerOutput::Ping(conn) => self.table.ping(conn),
            BrokerOutput::Close(conn, reason) => self.table.close(conn, reason, drain),
            BrokerOutput::Event(event) => {
                self.metrics.count(&event);
                let now_ms = || self.clock.now().wall_ms;
                self.events.note(&event, now_ms);
                self.log_event(&event);
            }
        }
    }

    /// Whether another line of this kind may be logged.
    fn may_log(&self, kind: Kind) -> bool {
        let now_ms = self.clock.mono_ms();
        self.log.admit(kind, now_ms)
    }

    fn log_event(&self, event: &BusEvent) {
        let may = |kind| self.may_log(kind);
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
            BusEvent::Registered { name, takeover } if may(Kind::Registered) => {
                tracing::info!(peer = name, takeover, "peer registered");
            }
            BusEvent::Renamed { from, to } if may(Kind::Renamed) => {
                tracing::info!(from, to, "peer renamed");
            }
            BusEvent::Retired { name, successor } if may(Kind::Retired) => {
                tracing::info!(peer = name, successor, "name ended for good");
            }
            BusEvent::Left { name } if may(Kind::Left) => tracing::info!(peer = name, "peer left"),
            BusEvent::Forgotten { name, token } if may(Kind::Forgotten) => tracing::warn!(
                peer = name,
                %token,
                "name forgotten: it had no mail, and its token is at its limit of names"
            ),
            BusEvent::Denied { reason } if may(Kind::Denied) => {
                tracing::info!(reason = reason.text(), "peer denied");
            }
            // The sender speaks v1, which has no way to tell it.
            BusEvent::Refused {
                from,
                reason,
                told: false,
            } if may(Kind::Refused) => {
                tracing::warn!(from, reason, "message refused, its sender not told");
            }
            BusEvent::Held {
                from,
                to,
                id,
                reason,
            } if may(Kind::Held) => {
                // What a peer wrote: it must not pass for a line of ours.
                let reason = peerbus_wire::escape(reason, REASON_CHARS);
                tracing::warn!(from, to, %id, reason, "message held back");
            }
            _ => {}
        }
    }
}
