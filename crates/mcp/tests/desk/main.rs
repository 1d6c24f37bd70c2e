//! What waits for the agent, and how it gets there, as a client sees it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod held;
mod hostile;
mod naming;
mod reading;
mod session;
mod showing;
#[path = "../support/mod.rs"]
mod support;
