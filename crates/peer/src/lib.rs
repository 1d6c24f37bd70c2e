//! The decisions of a broker's clients, without I/O, clock or random numbers.
//!
//! Three state machines live here: [`session::PeerSession`], [`mailbox::MailboxMachine`] and
//! [`bridge::Bridge`]. They are driven as the broker's own ([`peerbus_core`]) is: hand in one input with the
//! time, then drain every output before the next input.

pub mod bridge;
pub mod mailbox;
pub mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
