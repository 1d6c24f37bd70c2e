//! OpenCode.
//!
//! Nobody reaches its sessions from outside: it listens nowhere unless its user says so. A plugin of
//! ours runs in its process instead, and prompts the conversation that its user prompted last, or
//! begins one where there is none yet. A prompt is shown to its user as one of his, and taken in by a
//! busy session at its next request to the model. Open dialogs and half-typed text are left alone
//! (seen with 1.18.33; documented are plugins, the call and the events).
//!
//! A prompt without a mode and a model would have the default's, which may be allowed more: it has
//! those of the last prompt.

use crate::wake::{Waker, plugin};

pub(crate) static WAKER: Waker = Waker {
    agent: "opencode",
    path: plugin::path("plugin"),
    reaches: plugin::is_installed,
    start: plugin::start,
    process: Some("OPENCODE_PID"),
    absent: "OpenCode has not loaded peerbus's plugin: `peerbus install opencode` writes it, and \
             sessions that start then load it",
};
