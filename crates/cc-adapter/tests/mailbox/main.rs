//! What waits for the agent, and how it gets there, as a client sees it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod held;
#[path = "../home/mod.rs"]
mod home;
mod hostile;
mod naming;
mod reading;
mod session;
mod showing;
#[path = "../../../mcp/tests/support/mod.rs"]
mod support;
