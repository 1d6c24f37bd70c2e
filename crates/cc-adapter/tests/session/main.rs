//! The adapter between a session of Claude Code, as far as it sees one, and a scripted broker.

#![cfg(unix)]
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a failure ends the test"
)]

mod channel;
mod held;
mod home;
mod hostile;
mod module;
mod naming;
mod node;
mod reading;
mod receipts;
mod relay;
mod requests;
mod session;
mod showing;
mod socket;
mod suspended;
