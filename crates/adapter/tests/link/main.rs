//! The bus and its link against a scripted broker on a Unix socket.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a failure ends the test"
)]

mod alive;
mod broker;
mod end;
mod naming;
mod receive;
mod resume;
mod send;
mod start;
