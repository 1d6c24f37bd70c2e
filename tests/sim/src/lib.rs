//! The simulation: the real core of the broker and real sessions, on a network that cuts, delays
//! and half-opens, with a store and processes that crash at any step. A seed decides everything,
//! so a seed reproduces a run.
//!
//! [`run`] lives one world. While it lives, the [`oracle`] compares what the broker is told, what
//! it writes and what it says with a model of its own; at the end everything is healed, and what
//! was promised must have come true.

mod client;
mod disk;
mod domains;
mod draw;
mod events;
mod failure;
mod faults;
mod host;
mod host_mailbox;
mod machine;
mod mailbox;
mod net;
pub mod oracle;
mod plan;
mod rng;
mod run;
mod script;
mod sqlite;
mod trace;
mod transport;
mod world;

pub use disk::{Audit, Backend, Disk, DiskFault, OutsideMutation, Write};
pub use domains::{DomainOptions, DomainReport, run_domains};
pub use events::run_events;
pub use failure::{Failure, Verdict};
pub use mailbox::{MailboxOptions, MailboxReport, run_echo, run_mailbox};
pub use rng::Rng;
pub use run::{Options, Report, run, run_on};
pub use sqlite::SqliteDisk;
