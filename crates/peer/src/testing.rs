//! For tests: the waking paths of a client.

use crate::mailbox::PathSpec;

/// Text for the turn, busy or not, which the client's user may keep or deny.
pub static SOCKET: PathSpec = PathSpec {
    word: "socket",
    joins_busy_turn: true,
    ..PathSpec::waking(2_000)
};

/// A hook that waits in the background, for one push.
pub static REWAKE: PathSpec = PathSpec {
    word: "rewake",
    rank: 1,
    one_shot: true,
    ..PathSpec::waking(0)
};

/// Notifications, which may be dropped in silence.
pub static CHANNEL: PathSpec = PathSpec {
    word: "channel",
    rank: 2,
    shows_over_dialogs: true,
    ..PathSpec::waking(2_000)
};
