//! The ways of waking a session of Claude Code, as data.

use peerbus_adapter::mailbox::{Path, PathSpec};

/// The pause after a push, in milliseconds. The client takes about one each two seconds in the long
/// run.
const GAP_MS: u64 = 2_000;

/// The socket at which the session itself takes messages.
pub(crate) static SOCKET: PathSpec = PathSpec {
    word: "socket",
    rank: 0,
    joins_busy_turn: true,
    ..PathSpec::waking(GAP_MS)
};

/// Our module in the client. Its text passes through processes below that.
pub(crate) static MODULE: PathSpec = PathSpec {
    word: "module",
    rank: 1,
    joins_busy_turn: true,
    passes_below: true,
    ..PathSpec::waking(GAP_MS)
};

/// A hook that waits in the background and rewakes its session.
pub(crate) static REWAKE: PathSpec = PathSpec {
    word: "rewake",
    rank: 2,
    one_shot: true,
    ..PathSpec::waking(0)
};

/// A `claude/channel` notification. Wakes, or is dropped without a word.
pub(crate) static CHANNEL: PathSpec = PathSpec {
    word: "channel",
    rank: 3,
    shows_over_dialogs: true,
    ..PathSpec::waking(GAP_MS)
};

/// The paths that wake a session of Claude Code, best first.
pub static WAKING: [Path; 4] = [&SOCKET, &MODULE, &REWAKE, &CHANNEL];
