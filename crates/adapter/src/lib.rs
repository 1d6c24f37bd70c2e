//! The resuming bus client that every adapter and CLI verb stands on.
//!
//! [`connect`] makes a [`Bus`] handle and a [`Link`] driver and does no I/O; the caller spawns
//! [`Link::run`]. The link dials, registers, resumes and backs off for as long as the bus is in
//! use. What to do is decided by `peerbus_peer::session`; this crate moves bytes, reads clocks and
//! finds its configuration.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use peerbus_adapter::{BusConfig, Flags, How, SessionEvent, Stage, connect};
//!
//! let (bus, link) = connect(BusConfig::resolve(&Flags::default())?);
//! let driver = tokio::spawn(link.run());
//! let sent = bus.send("wild-wasp-3kx", r#""hello""#, Duration::from_secs(10)).await?;
//! println!("{}: {:?}", sent.id, sent.accepted);
//! while let Some(event) = bus.next().await {
//!     if let SessionEvent::Message(message) = event {
//!         println!("{}: {}", message.from, message.body);
//!         let how = How::Pushed { path: "recv".into() };
//!         bus.reached(&message.key, Stage::Acked(Some(how)));
//!     }
//! }
//! bus.close().await;
//! driver.await?;
//! # Ok(())
//! # }
//! ```

mod alive;
mod bus;
mod compose;
mod config;
pub mod credentials;
mod deadline;
pub mod demand;
mod dial;
pub mod domains;
mod error;
mod failure;
pub mod groups;
pub mod hooks;
pub mod inbox;
pub mod invited;
mod kept;
mod link;
pub mod mailbox;
pub mod names;
mod naming;
pub mod operator;
pub mod paths;
pub mod project;
mod pulse;
mod reach;
pub mod sessions;
mod shared;
pub mod signals;
mod similar;
mod ssh;
pub mod stderr;
mod stopped;
mod template;
mod tls;
pub mod transcript;
pub mod url;

pub use alive::Liveness;
pub use bus::{Bus, Peers, SentMessage};
pub use compose::wall_ms;
pub use config::{BusConfig, Flags, Naming};
pub use credentials::CredentialsError;
pub use dial::{Socket, Stream, UNUSABLE, open_socket, reach};
pub use error::{BusError, ConfigError, SendError};
pub use failure::Failure;
pub use kept::kept_token;
pub use link::{Link, LinkEnd, connect};
pub use peerbus_agents as agents;
pub use peerbus_peer::session::{
    IN_USE_MS, Inbound, Key, NoticeId, RegistrationRefusal, SessionEvent, Status as LinkState,
    refusal,
};
pub use peerbus_wire::{
    Accepted, AuditAction, AuditRecord, Domain, How, Kind, PeerEntry, PeerName, Presence, Receipt,
    Refusal, RefusalCode, Secret, Stage, Token, Window, printable, rfc3339,
};
pub use similar::similar;
pub use tls::TlsFiles;
pub use url::Url;
