//! A disk that is nearly full takes no new mail, so that what is there can be read and acked.

use peerbus_wire::{Refusal, RefusalCode};

use super::{Broker, BusEvent, Caller};
use crate::Now;

/// The part of a small disk that stays free: one in so many bytes.
const FLOOR_PART: u64 = 8;
/// By which part of the floor more must be free before mail is taken again, so that a single
/// message does not turn it over.
const RISE_PART: u64 = 8;

impl Broker {
    /// The disk has so many bytes in all, of which so many are free.
    pub(super) fn note_space(&mut self, now: Now, free: u64, total: u64) {
        let floor = self.config.disk_floor.min(total / FLOOR_PART);
        let needed = if self.full {
            floor + floor / RISE_PART
        } else {
            floor
        };
        let full = free < needed;
        if full != self.full {
            self.full = full;
            self.sweep.forget_soon(now);
            let event = BusEvent::DiskFull { full, free };
            self.outbox.event(event);
        }
    }

    /// Whether new mail is refused for want of room. Who cannot be told should not be read from
    /// meanwhile.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Refuses new mail while the disk is nearly full. What a v1 sender had under way is taken: it
    /// could not be told, and is not read from any more.
    pub(super) fn check_space(&self, caller: Caller) -> Result<(), Refusal> {
        if !self.full || !caller.ext {
            return Ok(());
        }
        Err(RefusalCode::DiskFull
            .because("the broker's disk is nearly full; send again when there is room on it"))
    }
}
