//! Copilot CLI.
//!
//! Nobody reaches its sessions from outside. An extension of ours, which it runs as a process of its
//! own beside its servers, sends messages into the session that is open, in an agent's name; a busy
//! session takes them after its turn. Open dialogs and half-typed text are left alone (seen with
//! 1.0.102; documented in the package of its extensions). It loads extensions only where its
//! experimental features are switched on.

use peerbus_adapter::mailbox::{Path, PathSpec};

use crate::wake::Waker;
use crate::wake::plugin::{self, About};

pub(crate) static WAKER: Waker = Waker {
    agent: ABOUT.agent,
    paths: &PATHS,
    reaches: |around| plugin::is_installed(ABOUT.agent, around),
    connects: true,
    start: |context| plugin::start(context, &ABOUT),
};

/// The extension beside the agent.
static EXTENSION: PathSpec = PathSpec {
    word: "extension",
    joins_busy_turn: true,
    ..PathSpec::waking(plugin::GAP_MS)
};
static PATHS: [Path; 1] = [&EXTENSION];

static ABOUT: About = About {
    agent: "copilot",
    path: &EXTENSION,
    process: None,
    absent: "Copilot CLI has not loaded peerbus's extension: `peerbus install copilot` writes it, and \
             sessions that start with `--experimental` load it",
};
