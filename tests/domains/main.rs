//! Brokers of several domains, joined by a real nats-server. `.ci/run` installs it.

#![expect(clippy::expect_used, reason = "a scenario fails by panicking")]

mod accounts;
mod deployed;
mod refused;
