//! What peerbus asks of the operating system: private files and directories, local sockets,
//! processes, locks, the user, a clock, certificates, lines of a bounded length. It knows nothing of peerbus, and stands on Unix alone.

pub mod clock;
pub mod dir;
pub mod disk;
pub mod file;
pub mod lines;
pub mod private;
pub mod process;
pub mod socket;
pub mod sync;
pub mod tcp;
pub mod tls;
pub mod uri;
pub mod user;
pub mod watch;

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod system;
#[cfg(target_os = "macos")]
#[path = "macos.rs"]
mod system;
