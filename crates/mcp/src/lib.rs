//! The bus tools over MCP stdio, and the generic adapter.
//!
//! An adapter is [`run`] with a [`Profile`]; [`generic()`] is the one for clients of any kind.
//! `docs/ARCHITECTURE.md` follows a message through here.

mod arguments;
mod desk;
mod generic;
mod lifecycle;
mod options;
mod profile;
mod reply;
mod rpc;
mod run;
mod server;
pub mod side_channel;
mod spelling;
mod tools;
pub mod wake;

pub use desk::{desk_line, desk_rows};
pub use generic::generic;
pub use lifecycle::Exit;
pub use options::AdapterOptions;
pub use profile::{ClientInfo, Instructions, Profile};
pub use rpc::{Gone, Host, Input, LINE_BYTES_MAX, Notes, Output, stdio};
pub use run::{run, run_over};
pub use server::speaks;
pub use spelling::Spelling;
pub use tools::{BusCalls, is_address, is_tool, peer_lines, send_text, tool_title};
