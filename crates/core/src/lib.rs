//! The decisions of the broker, without I/O, clock or random numbers, and what those of its clients
//! share with them.
//!
//! [`broker::Broker`] is a state machine; beside it stands [`events::EventLog`]. Both are driven the same way, as
//! those of the clients are: hand in one input with the time, then drain every output before the next
//! input. Whatever happens is a function of the state, the inputs and the times.

pub mod audit;
pub mod broker;
mod delivered;
mod delivery_history;
pub mod events;
pub mod grant;
mod invitation;
mod mutation;
pub mod pace;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod time;
mod token;
mod waiting;
pub mod witness;

pub use delivered::Delivered;
pub use invitation::{INVITATION_MS, Invitation, InvitationState, invitation_of};
pub use mutation::Mutations;
pub use time::{Now, Stamp};
pub use token::TokenHash;
