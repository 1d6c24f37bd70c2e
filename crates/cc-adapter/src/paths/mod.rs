//! Ways to wake a session of Claude Code.

mod channel;
mod module;
mod socket;

pub(crate) use channel::Channel;
pub(crate) use module::Module;
pub(crate) use socket::Socket;
