//! The bus tools over MCP stdio, and the generic adapter.
//!
//! An adapter is [`run`] with a [`Profile`]; [`run_generic`] is the one that needs nothing else.
//! `docs/ARCHITECTURE.md` follows a message through here.

mod arguments;
mod desk;
mod generic;
mod inbox;
mod lifecycle;
mod presence;
mod rpc;
mod run;
mod session;
mod spelling;
mod text;
mod tools;

pub use desk::{BoxFuture, Desk, Handed, Letter, Mail, Shown, WakePath, What};
pub use generic::{run_generic, run_generic_over};
pub use lifecycle::Exit;
pub use rpc::{Gone, Host};
pub use run::{run, run_over};
pub use session::{Budget, Options, Profile};
pub use spelling::{Spelling, UnknownSpelling};
pub use text::notice;
