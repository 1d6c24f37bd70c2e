//! The decisions of peerbus, without I/O, clock or random numbers.
//!
//! Three state machines live here: [`broker::Broker`], [`peer::Session`] and [`wake::Ladder`]. All are
//! driven the same way: hand in one input with the time, then drain every output before the next
//! input. Beside them stands [`governor::Governor`], which judges conversations.
//! Whatever happens is a function of the state, the inputs and the times.

pub mod audit;
pub mod broker;
pub mod governor;
mod mutation;
pub mod peer;
mod peer_id;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod time;
mod token;
pub mod wake;

pub use time::Now;
pub use token::TokenHash;
