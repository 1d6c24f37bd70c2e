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

use crate::wake::Waker;
use crate::wake::plugin::{self, About};
use peerbus_adapter::mailbox::{Path, PathSpec};

pub(crate) static WAKER: Waker = Waker {
    agent: ABOUT.agent,
    paths: &PATHS,
    reaches: |around| plugin::is_installed(ABOUT.agent, around),
    connects: true,
    start: |context| plugin::start(context, &ABOUT),
};

/// The plugin in the agent's process.
static PLUGIN: PathSpec = PathSpec {
    word: "plugin",
    joins_busy_turn: true,
    ..PathSpec::waking(plugin::GAP_MS)
};
static PATHS: [Path; 1] = [&PLUGIN];

static ABOUT: About = About {
    agent: "opencode",
    path: &PLUGIN,
    process: Some("OPENCODE_PID"),
    absent: "OpenCode has not loaded peerbus's plugin: `peerbus install opencode` writes it, and \
             sessions that start then load it",
};
