//! How a connection's window is divided among those who send to it.

use peerbus_wire::Window;

/// How a window is divided among senders.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    /// What one sender may have in flight: half.
    pub(super) one: Window,
    /// The eighth that is kept for the first message of a sender, and for what is urgent. Nothing else
    /// takes it, however many names a peer has.
    pub(super) kept: Window,
    /// What one token may have of that: half.
    pub(super) kept_one: Window,
    /// What may be taken of a token's part by what is not urgent: half.
    pub(super) kept_calm: Window,
    /// Urgent messages that one sender may have of that.
    pub(super) kept_urgent: usize,
    /// Bytes of a message so short that the number of those that are kept bounds them.
    pub(super) short: usize,
}

impl Shares {
    pub(super) fn of(window: Window) -> Self {
        let part = |of: Window, parts: u32| Window {
            messages: of.messages.div_ceil(parts),
            bytes: of.bytes.div_ceil(parts),
        };
        // A window for one message has nothing to keep.
        let kept = match window.messages {
            1 => NOTHING,
            messages => Window {
                messages: (messages / 8).max(1),
                bytes: window.bytes / 8,
            },
        };
        Self {
            one: part(window, 2),
            kept,
            kept_one: part(kept, 2),
            kept_calm: part(kept, 4),
            kept_urgent: kept.messages.div_ceil(8) as usize,
            short: (window.bytes / window.messages) as usize,
        }
    }

    /// The same, but nothing is kept.
    pub(super) fn without_kept(self) -> Self {
        Self {
            kept: NOTHING,
            ..self
        }
    }
}

const NOTHING: Window = Window {
    messages: 0,
    bytes: 0,
};
