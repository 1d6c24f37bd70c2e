//! What the tests of several crates stand on: a broker that does what a test says, and clients that
//! know nothing but the wire, or nothing but MCP.
//!
//! It knows `wire` only, so that the tests of every crate can use it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure ends the test"
)]

pub mod mcp;
pub mod message;
pub mod nats;
pub mod peer;
pub mod power;
pub mod preload;
pub mod scripted;
pub mod socket;
pub mod tls;

use std::future::Future;
use std::time::Duration;

/// Longer than anything takes in a test, on a loaded machine too.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Ends a wait that would be for ever.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("nothing happened for 60 s")
}
