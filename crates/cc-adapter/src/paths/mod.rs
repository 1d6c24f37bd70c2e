//! Ways to wake a session of Claude Code.

mod channel;
mod socket;

pub(crate) use channel::Channel;
pub(crate) use socket::Socket;
