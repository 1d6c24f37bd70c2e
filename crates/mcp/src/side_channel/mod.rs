//! `mcp://` channels: a peer shares an MCP server that it runs, as far as it says, and others use it
//! over the bus. The messages are MCP's own, JSON-RPC 2.0, with one more member: the channel's URI.

mod advert;
mod host;
mod lines;
mod message;
mod share;
mod surface;
mod user;

pub(crate) use peerbus_wire::jsonrpc::UNKNOWN_METHOD as NOT_FOUND;

pub use advert::{Advert, adverts, generation, is_name, parse};
pub use share::{Share, share};
pub use surface::{Set, Surface};
pub use user::{Used, serve};

/// The version of MCP that is spoken with servers, and with clients that ask for none of ours.
pub(crate) const VERSION: &str = "2025-06-18";
/// The channel is not there (any more).
pub(crate) const GONE: i64 = -32_001;
/// Whoever asks may not.
pub(crate) const REFUSED: i64 = -32_003;
/// No answer came in time.
pub(crate) const TIMED_OUT: i64 = -32_004;
/// The answer does not fit.
pub(crate) const TOO_LARGE: i64 = -32_005;
