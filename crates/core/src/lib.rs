//! The decisions of peerbus, without I/O, clock or random numbers.
//!
//! Two state machines live here: [`broker::Broker`] and [`peer::Session`]. Both are driven the
//! same way: hand in one input with the time, then drain every output before the next input.
//! Whatever happens is a function of the state, the inputs and the times.

pub mod audit;
pub mod broker;
pub mod peer;
pub mod store;
mod time;
mod token;

pub use time::Now;
pub use token::TokenHash;
