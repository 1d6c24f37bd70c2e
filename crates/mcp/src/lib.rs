//! The bus tools over MCP stdio, and the generic adapter.
//!
//! An adapter is [`run`] with a [`Profile`]; [`run_generic`] is the one that needs nothing else.
//! `docs/ARCHITECTURE.md` follows a message through here.

mod about;
mod arguments;
mod generic;
mod lifecycle;
mod options;
mod profile;
mod reply;
mod rpc;
mod run;
mod server;
mod session;
mod spelling;
mod tools;
mod trail;

pub use about::About;
pub use generic::{run_generic, run_generic_over};
pub use lifecycle::Exit;
#[cfg(target_os = "linux")]
pub use options::{BadOption, Budget, Options};
pub use profile::Profile;
pub use rpc::{Gone, Host};
pub use run::{run, run_over};
pub use spelling::{Spelling, UnknownSpelling};
pub use trail::{Step, Trail, reached};
