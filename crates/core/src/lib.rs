//! The decisions of peerbus, without I/O, clock or random numbers.
//!
//! Four state machines live here: [`broker::Broker`], [`bridge::Bridge`], [`peer::PeerSession`] and
//! [`mailbox::MailboxMachine`]; beside them stands [`events::EventLog`]. All are driven the same way:
//! hand in one input with the time, then drain every output before the next input. Whatever happens is a function of the state, the inputs and the times.

pub mod audit;
pub mod bridge;
pub mod broker;
mod delivered;
mod delivery_history;
pub mod events;
pub mod grant;
pub mod mailbox;
mod mutation;
pub mod pace;
pub mod peer;
mod peer_id;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod time;
mod token;
mod waiting;
pub mod witness;

pub use delivered::Delivered;
pub use time::{Now, Stamp};
pub use token::TokenHash;
