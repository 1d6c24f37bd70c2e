//! The broker process: sockets, engine thread, HTTP and metrics around the core.
//!
//! Follow a message through it: [`start`] makes a listener whose sockets `http` upgrades to
//! WebSocket; `connection` reads and parses a frame and puts it into the engine's channel; the
//! `engine` has the core handle it, commits, and hands the core's outputs on, for which
//! it looks up the recipient in the connection `table`; the recipient's `connection` writes it.

mod clock;
mod connection;
mod control;
mod engine;
mod engine_input;
mod events;
mod http;
pub mod invitations;
mod joining;
mod life;
mod link;
mod listener;
mod log_limit;
mod metrics;
mod operator;
mod options;
mod pace;
mod places;
mod running;
mod shared;
mod table;
mod tls;
pub mod tokens;

pub use options::{
    BrokerOptions, BrokerStartError, DEFAULT_PORT, HistoryLimits, Inviting, Origin, SecretSource,
    Times, Tune,
};
pub use running::{EngineEnd, LifeWatch, Running, ShutdownReport, start};
pub use tls::ServerTls;
