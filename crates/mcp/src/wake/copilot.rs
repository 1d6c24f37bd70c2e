//! Copilot CLI.
//!
//! Nobody reaches its sessions from outside. An extension of ours, which it runs as a process of its
//! own beside its servers, sends messages into the session that is open, in an agent's name; a busy
//! session takes them after its turn. Open dialogs and half-typed text are left alone (seen with
//! 1.0.102; documented in the package of its extensions). It loads extensions only where its
//! experimental features are switched on.

use crate::wake::{Waker, plugin};

pub(crate) static WAKER: Waker = Waker {
    agent: "copilot",
    path: plugin::path("extension"),
    reaches: plugin::is_installed,
    start: plugin::start,
    process: None,
    absent: "Copilot CLI has not loaded peerbus's extension: `peerbus install copilot` writes it, and \
             sessions that start with `--experimental` load it",
};
