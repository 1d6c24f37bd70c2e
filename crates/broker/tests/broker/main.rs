//! A real broker on 127.0.0.1:0 and a Unix socket, with a real database, and clients that know
//! nothing but WebSocket and JSON.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod end;
mod http;
mod limits;
mod liveness;
mod messages;
mod share;
mod support;
mod tls;
