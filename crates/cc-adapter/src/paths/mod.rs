//! Ways to wake a session of Claude Code.

mod channel;
mod receipts;
mod socket;
mod trace;

pub(crate) use channel::Channel;
pub(crate) use socket::Socket;
