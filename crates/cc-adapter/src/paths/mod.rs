//! Ways to wake a session of Claude Code.

mod channel;
#[cfg(unix)]
mod receipts;
#[cfg(unix)]
mod socket;
#[cfg(unix)]
mod trace;

pub(crate) use channel::Channel;
#[cfg(unix)]
pub(crate) use socket::Socket;
